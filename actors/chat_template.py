"""The policy's chat template as the config gives it: Jinja text, or a file that holds it."""

from pathlib import Path

from core.errors import ConfigError


def read_chat_template(given: str) -> str:
    """Return the template's text; ConfigError for a file that is not there.

    Text without any Jinja mark would make every prompt the same, so it can only be a file's name.
    """
    if "{" in given or "\n" in given:
        return given
    path = Path(given).expanduser()
    if not path.is_file():
        raise ConfigError(
            f"got policy.chat_template={given!r}, wanted a Jinja template or an existing file that "
            "holds one: correct the path, or write the template into the config"
        )
    return path.read_text(encoding="utf-8")
