"""Config files and overrides: every mistake is one sentence that a person can act on."""

from pathlib import Path

import pytest

from core.errors import ConfigError
from drivers.config_file import dump_config, load_config
from drivers.config_layers import RECIPES

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


# ---------------------------------------------------------------------- extends
def layered(folder: Path, **files: str) -> Path:
    """Write files by stem and return the first one's path."""
    for stem, text in files.items():
        (folder / f"{stem}.yaml").write_text(text, encoding="utf-8")
    return folder / f"{next(iter(files))}.yaml"


def test_a_child_overrides_its_parents_key_by_key(tmp_path: Path) -> None:
    path = layered(
        tmp_path,
        child="extends: middle.yaml\nloop: {groups_per_step: 3}\nlearner: {betas: [0.5, 0.6]}\n",
        middle="extends: top.yaml\nseed: 7\nloop: {steps: 5}\n",
        top=GOOD + "learner: {lr: 2.0e-6, betas: [0.1, 0.2]}\n",
    )
    config = load_config(str(path), ["loop.steps=9"])
    assert (config.loop.steps, config.loop.groups_per_step, config.seed) == (9, 3, 7)
    assert (config.learner.lr, config.learner.betas) == (2e-6, (0.5, 0.6))
    assert "extends" not in dump_config(config)
    dumped = layered(tmp_path, again=dump_config(config))
    assert load_config(str(dumped)) == config


def test_a_childs_method_leaves_nothing_of_another_ones_section(tmp_path: Path) -> None:
    parent = GOOD + "evolution: {method: care, deadline_s: 9, care: {chase: false}}\n"
    path = layered(tmp_path, child="extends: p.yaml\nevolution: {method: rare}\n", p=parent)
    config = load_config(str(path))
    assert config.evolution.model_dump()["deadline_s"] == 120.0
    same = layered(tmp_path, child="extends: p.yaml\nevolution: {care: {anchor: false}}\n")
    kept = load_config(str(same)).evolution.model_dump()
    assert (kept["method"], kept["deadline_s"]) == ("care", 9.0)
    assert (kept["care"]["chase"], kept["care"]["anchor"]) == (False, False)


def test_an_override_of_the_method_does_the_same_wherever_it_stands(tmp_path: Path) -> None:
    path = layered(tmp_path, c=GOOD + "evolution: {method: care, care: {chase: false}}\n")
    config = load_config(str(path), ["evolution.scope=task", "evolution.method=static"])
    assert config.evolution.model_dump() == {
        "method": "static",
        "scope": "task",
        "universal": False,
    }
    same = load_config(str(path), ["evolution.method=care"]).evolution.model_dump()
    assert same["care"]["chase"] is False


def test_data_files_are_looked_for_beside_the_file_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    for name in ("q.jsonl", "r.json"):
        (tmp_path / "shared" / name).touch()
    layered(tmp_path / "shared", p=GOOD + "evolution: {method: mpo}\n")
    text = "extends: shared/p.yaml\ndata: {task_rubrics: {a: shared/r.json, b: absent.json}}\n"
    config = load_config(str(layered(tmp_path, c=text)))
    assert config.data.train == str(tmp_path / "shared" / "q.jsonl")
    assert config.data.task_rubrics == {
        "a": str(tmp_path / "shared" / "r.json"),
        "b": "absent.json",
    }


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a": "extends: b.yaml", "b": "extends: a.yaml"}, "(a.yaml -> b.yaml -> a.yaml)"),
        ({"a": "extends: a.yaml"}, "(a.yaml -> a.yaml), wanted a chain that ends"),
        ({"a": "extends: gone.yaml"}, "extends 'gone.yaml', wanted an existing YAML file"),
        ({"a": "extends: quickstrt"}, "did you mean `quickstart`?"),
        ({"a": "extends: [b.yaml]"}, "got extends=['b.yaml'], wanted one file name"),
        ({"a": "extends:"}, "got extends=None, wanted one file name"),
        ({"a": "extends: b.yaml", "b": "- x"}, "b.yaml: got a list, wanted a mapping"),
        ({"a": "extends: b.yaml", "b": GOOD + "loop: {}"}, "the key 'loop' twice"),
        ({"a": "extends: b.yaml\nloop: {stepz: 1}", "b": GOOD}, "the unknown key `loop.stepz`"),
        ({"a": "extends: b.yaml", "b": GOOD + "judg: {}"}, "did you mean `judge`?"),
    ],
)
def test_a_chain_of_files_that_does_not_hold_is_one_sentence(
    tmp_path: Path, files: dict[str, str], message: str
) -> None:
    path = layered(tmp_path, **files)
    with pytest.raises(ConfigError) as caught:
        load_config(str(path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_shipped_recipe_is_named_alone_and_can_be_extended(tmp_path: Path) -> None:
    shipped = load_config("quickstart")
    assert shipped == load_config(str(RECIPES / "quickstart.yaml"))
    child = load_config(str(layered(tmp_path, c="extends: quickstart\nname: mine\n")))
    assert child == shipped.model_copy(update={"name": "mine"})


# ---------------------------------------------------------------------- mistakes in a method
@pytest.mark.parametrize(
    ("evolution", "message"),
    [
        (
            "{method: static, care: {}}",
            "got the unknown key `evolution.care` with evolution.method=static, wanted one of "
            "method, scope, universal: `care` belongs to care, ratchet",
        ),
        ("{method: care, cares: {}}", "`evolution.cares`, wanted one of deadline_s, method"),
        (
            "{method: care, care: {chaze: true}}",
            "got the unknown key `evolution.care.chaze`, wanted one of adaptive, chase, veto, "
            "anchor, max_new, max_criteria, max_chars: did you mean `chase`?",
        ),
        ("{method: rare, rare: {budget: 0}}", "got evolution.rare.budget=0, wanted: Input should"),
        ("{method: rare, task: {min_groups: 20}}", "`evolution.task`: got min_groups=20 over"),
        ("{scope: task}", "got `evolution` without a method, wanted `method` to be one of static"),
        ("{method: mpo, mpo: 3}", "got evolution.mpo=3, wanted"),
    ],
)
def test_a_mistake_inside_a_method_names_its_key_and_what_stands_there(
    tmp_path: Path, evolution: str, message: str
) -> None:
    assert message in refusal(tmp_path, GOOD + f"evolution: {evolution}\n")


def test_a_mistake_in_an_optional_section_names_its_keys(tmp_path: Path) -> None:
    text = GOOD + "reference_judge: {fraction: 0.2}\n"
    assert "did you mean `frac`?" in refusal(tmp_path, text)
