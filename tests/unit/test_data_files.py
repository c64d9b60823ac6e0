"""Query files: bytes, lines and messages that name file, line and reason."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from core.errors import ConfigError
from drivers.data_files import load_queries

C1 = {"id": "c1", "text": "Names one"}
ROW = {
    "id": "q1",
    "messages": [{"role": "user", "content": "Name a river."}],
    "rubric": [C1],
}


def write(folder: Path, *rows: object) -> Path:
    path = folder / "queries.jsonl"
    path.write_text("\n".join(json.dumps(r) for r in rows), encoding="utf-8")
    return path


def test_a_good_file_loads_with_its_fingerprint(tmp_path: Path) -> None:
    path = write(tmp_path, ROW)
    loaded = load_queries(path)
    assert [q.id for q in loaded.queries] == ["q1"]
    assert loaded.fingerprint == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_missing_file_is_a_config_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.jsonl: got no readable file .*check the path"):
        load_queries(tmp_path / "none.jsonl")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({**ROW, "id": "q2", "rubric": []}, "no_rubrics"),
        ({"id": "q2", "messages": ROW["messages"]}, "no_rubrics"),
        ({**ROW, "id": "q2", "rubric": ROW["rubric"] * 2}, "two criteria with the id 'c1'"),
        ([1], "not_object"),
        ({"prompt": "p", "rubrics": [{"text": "t", "weight": 1e308}]}, "wanted at most 1e+30"),
        (
            {"prompt": "p", "rubrics": [{"text": "t", "max_points": 10**12, "scoring_rule": "r"}]},
            "less than or equal to 1000000",
        ),
        ({**ROW, "id": "q2", "rubric": [{**C1, "max": 10**26}]}, "less than or equal to 1000000"),
        ({**ROW, "id": "q2", "rubric": [{**C1, "weight": 1e308}]}, "wanted at most 1e+30 in size"),
        ({**ROW, "id": "q2", "rubric": [{**C1, "weight": True}]}, "a valid number"),
        ({**ROW, "id": "q2", "rubric": [{**C1, "weight": "1"}]}, "a valid number"),
        ({**ROW, "id": "q2", "rubric": {"version": 7, "criteria": [C1]}}, "rubric of version 7"),
        ({**ROW, "id": "q2", "anchor": {"response": " \n"}}, "got a blank response"),
    ],
)
def test_a_strict_load_names_file_line_and_reason(tmp_path: Path, bad: object, reason: str) -> None:
    path = write(tmp_path, ROW, bad)
    with pytest.raises(ConfigError, match=r"queries\.jsonl, line 2: ") as caught:
        load_queries(path, strict=True)
    assert reason in str(caught.value)
    assert len(load_queries(path, strict=False).queries) == 1


@pytest.mark.parametrize("depth", [300, 900, 200_000])
def test_a_row_nested_too_deeply_is_named_in_a_short_sentence(tmp_path: Path, depth: int) -> None:
    path = write(tmp_path, ROW)
    deep = "[" * depth + "]" * depth
    text = json.dumps({**ROW, "id": "q2"})[:-1] + ', "meta": {"x": ' + deep + "}}"
    path.write_text(json.dumps(ROW) + "\n" + text + "\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"queries\.jsonl, line 2: ") as caught:
        load_queries(path, strict=True)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("name", ["a\0b", "a" * 5000])
def test_a_name_that_no_file_can_have_is_a_short_config_error(name: str) -> None:
    with pytest.raises(ConfigError, match="got no readable file") as caught:
        load_queries(name)
    assert len(str(caught.value)) < 500


def test_a_file_without_a_usable_query_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no usable query"):
        load_queries(write(tmp_path, {"prompt": "p"}), strict=False)
    with pytest.raises(ConfigError, match="no usable query"):
        load_queries(write(tmp_path), strict=False)


def test_bytes_that_are_no_utf8_are_named_by_line(tmp_path: Path) -> None:
    path = tmp_path / "queries.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(ROW).encode() + b'\r\n\r\n{"id": "\xff"}\n')
    loaded = load_queries(path, strict=False)
    assert [(d.row, d.line, d.reason) for d in loaded.dropped] == [(1, 3, "bad_encoding")]


def test_loading_needs_no_torch_vllm_or_ray(tmp_path: Path) -> None:
    code = (
        "import sys; from drivers.data_files import load_queries; "
        f"load_queries({str(write(tmp_path, ROW))!r}); "
        "print([m for m in ('torch', 'vllm', 'ray', 'pyarrow') if m in sys.modules])"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=100
    )
    assert done.stdout.strip() == "[]", done.stderr
