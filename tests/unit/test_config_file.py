"""Config files and overrides: every mistake is one sentence that a person can act on."""

from pathlib import Path

import pytest

from core.errors import ConfigError
from drivers.config_file import dump_config, load_config

GOOD = "name: run\ndata: {train: q.jsonl}\npolicy: {model: m}\nloop: {steps: 1}\n"


def refusal(folder: Path, text: str | bytes, *overrides: str) -> str:
    path = folder / "c.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as caught:
        load_config(str(path), overrides)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 600
    return message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "got an empty file, wanted a mapping"),
        ("- a\n- b\n", "got a list, wanted a mapping"),
        (b"\xff\xfe\x00\x01\x9b", "not YAML"),
        (b"name: a\x00b", "not YAML (unacceptable character #x0000"),
        ("seed: 2020-13-45", "not YAML (month must be in 1..12"),
        ("seed: !!int x", "not YAML (invalid literal"),
        ("name: " + "[" * 5000, "not YAML"),
        ("name: a\nseed: 1\nname: b", "line 1: the key 'name' twice in one section"),
        ("name: a\n---\nname: b", "not YAML (line 2"),
        (GOOD + "evolution: ratchet", "got evolution='ratchet', wanted: a section with its method"),
        (GOOD + "evolution: [ratchet]", "got evolution=['ratchet'], wanted: a section"),
        (GOOD + "evolution: 3", "got evolution=3, wanted: a section"),
        (GOOD + "evolution: {method: best}", "'static', 'care', 'rare', 'rler'"),
        (GOOD + f"judge: {{template: {'x' * 5000}}}", "got judge.template='xxx"),
        (GOOD + f"sampling: [{'1, ' * 5000}]", "got sampling=[1, 1, 1, 1, 1, 1, ...]"),
    ],
)
def test_a_file_that_is_no_config_is_refused_in_one_sentence(
    tmp_path: Path, text: str | bytes, message: str
) -> None:
    assert message in refusal(tmp_path, text)


@pytest.mark.parametrize("value", ["2020-13-45", "!!int x", "*a", "!!python/x 1", "[" * 3000])
def test_an_override_that_is_no_yaml_is_taken_as_text(tmp_path: Path, value: str) -> None:
    assert "got loop.steps='" in refusal(tmp_path, GOOD, f"loop.steps={value}")


def test_an_override_inside_a_value_is_refused(tmp_path: Path) -> None:
    assert "'steps' is not a section" in refusal(tmp_path, GOOD, "loop.steps.x=3")


@pytest.mark.parametrize("name", ["a\0b", "a" * 5000])
def test_a_name_that_no_file_can_have_is_left_to_the_reader_of_the_data(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(GOOD)
    tree_override = f"data.train={name}" if "\0" not in name else 'data.train="a\\0b"'
    assert load_config(str(path), [tree_override]).data.train == name


def test_a_config_file_that_is_not_there_or_has_no_possible_name_is_refused() -> None:
    for path in ("absent.yaml", "a\0b", "a" * 5000):
        with pytest.raises(ConfigError, match="wanted an existing YAML file"):
            load_config(path)


def test_merge_keys_and_anchors_of_yaml_still_work(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(GOOD + "judge: &m {max_tokens: 7}\nwriter: {<<: *m, seed: 3}\n")
    config = load_config(str(path))
    assert (config.writer.max_tokens, config.writer.seed) == (7, 3)
    path.write_text(dump_config(config))
    assert load_config(str(path)) == config
