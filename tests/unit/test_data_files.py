"""Query files: bytes, lines and messages that name file, line and reason."""

import gzip
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from core.errors import ConfigError
from drivers.data_files import load_queries
from drivers.run_data import load_run_data
from tests.unit.loop_rig import make_config

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


# ---------------------------------------------------------------------- files of other kinds
def plain_row(prompt: str, **more: object) -> dict[str, object]:
    return {"prompt": prompt, "rubrics": ["Is short"], **more}


def test_gzip_and_parquet_are_told_by_their_bytes(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    packed, table = tmp_path / "q.jsonl.gz", tmp_path / "rows.bin"
    packed.write_bytes(gzip.compress(json.dumps(ROW).encode()))
    parquet.write_table(pyarrow.Table.from_pylist([plain_row("p", query_id=3)]), table)
    assert [q.id for q in load_queries(packed).queries] == ["q1"]
    assert [q.id for q in load_queries(table).queries] == ["3"]


@pytest.mark.parametrize(
    ("data", "message"),
    [(gzip.compress(b"{}" * 99)[:20], "cannot be unpacked"), (b"PAR1xx", "no readable parquet")],
)
def test_a_broken_file_is_a_config_error_that_names_it(
    tmp_path: Path, data: bytes, message: str
) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=rf"broken\.jsonl: .*{message}"):
        load_queries(path)


def test_a_folder_is_read_in_the_order_of_its_names_with_unique_ids(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "b.jsonl").write_text(json.dumps(plain_row("two", id="x")))
    (tmp_path / "a.json").write_text(json.dumps([plain_row("one", id="x")]))
    (tmp_path / "sub" / "c.jsonl.gz").write_bytes(gzip.compress(json.dumps(ROW).encode()))
    for name in (".hidden.jsonl", "README.md"):
        (tmp_path / name).write_text("not data")
    loaded = load_queries(tmp_path)
    assert [q.prompt_text for q in loaded.queries] == ["one", "two", "Name a river."]
    assert loaded.queries[0].id == "x"
    assert len({q.id for q in loaded.queries}) == 3
    (tmp_path / "b.jsonl").write_text(json.dumps(plain_row("two", id="y")))
    assert load_queries(tmp_path).fingerprint != loaded.fingerprint


def test_a_repeat_over_files_is_named_with_both_places(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text("\n" + json.dumps(plain_row("one")))
    (dropped,) = load_queries(tmp_path, strict=False).dropped
    assert (dropped.file, dropped.line, dropped.reason) == ("b.jsonl", 2, "duplicate")
    assert "repeats a.jsonl, line 2" in dropped.detail
    with pytest.raises(ConfigError, match=r"b\.jsonl, line 2: duplicate"):
        load_queries(tmp_path)


def test_a_folder_without_data_files_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="got a folder without data files"):
        load_queries(tmp_path)


def test_rows_that_count_differently_are_refused_in_a_run_and_named_else(tmp_path: Path) -> None:
    tail = {"prompt": "p", "rubrics": [{"criterion": "c", "weight": 2}], "total_weight": 2}
    path = write(tmp_path, tail, plain_row("q"), plain_row("r"), ROW)
    with pytest.raises(ConfigError, match=r"count differently \(chasing_tail: 1 rows, plain: 2"):
        load_queries(path)
    loaded = load_queries(path, strict=False)
    assert (loaded.format, loaded.normaliser, loaded.reward) == ("mixed", None, None)
    assert loaded.formats == {"chasing_tail": 1, "plain": 2, "native": 1}


def test_a_given_format_is_used_and_is_part_of_the_fingerprint(tmp_path: Path) -> None:
    path = write(tmp_path, {"prompt": "p", "rubrics": [{"criterion": "c", "weight": 2}]})
    found, given = load_queries(path), load_queries(path, format="chasing_tail")
    assert found.queries[0].rubric.criteria[0].max == 1
    assert given.queries[0].rubric.criteria[0].max == 2
    assert given.fingerprint != found.fingerprint
    assert given.why == {"chasing_tail": "it was given"}


def test_the_config_gives_a_run_its_format(tmp_path: Path) -> None:
    rows = [{"prompt": p, "rubrics": [{"criterion": "c", "weight": 2}]} for p in ("p", "q")]
    data = {"train": str(write(tmp_path, *rows)), "format": "chasing_tail"}
    run = load_run_data(make_config(data=data, evolution={"method": "static"}))
    assert [q.rubric.total_max for q in run.train] == [2, 2]
    with pytest.raises(ValueError, match="format"):
        make_config(data={**data, "format": "chasing"})
