"""A chat template is text or an existing file, and never a file name taken for text."""

from pathlib import Path

import pytest

from actors.chat_template import read_chat_template
from core.errors import ConfigError


def test_text_is_taken_as_it_is_and_a_file_is_read(tmp_path: Path) -> None:
    text = "{% for m in messages %}{{ m.content }}{% endfor %}"
    assert read_chat_template(text) == text
    path = tmp_path / "chat.jinja"
    path.write_text(text)
    assert read_chat_template(str(path)) == text


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="wanted a Jinja template or an existing file"):
        read_chat_template(str(tmp_path / "absent.jinja"))
