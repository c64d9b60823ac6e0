"""How a command over a run's files ends, whatever was raised on the way."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from core.errors import ConfigError, RunStopped
from drivers.reading_command import exit_code


def raising(error: BaseException) -> Callable[[], int]:
    def command() -> int:
        raise error

    return command


def busy(path: Path) -> int:
    """Write where another connection has the lock."""
    first, second = sqlite3.connect(path), sqlite3.connect(path, timeout=0.0)
    first.execute("CREATE TABLE t (x)")
    first.execute("BEGIN IMMEDIATE")
    try:
        second.execute("BEGIN IMMEDIATE")
    finally:
        first.close()
        second.close()
    return 0


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (ConfigError("got a,\nwanted b"), 2, "error: got a, wanted b"),
        (RunStopped("got no turn"), 1, "stopped: got no turn"),
        (TimeoutError("waited 3 s for the judge"), 1, "stopped: waited 3 s for the judge"),
        (KeyError("verdicts"), 2, "error: got a record in mine that is not a run's (KeyError"),
        (sqlite3.DatabaseError("not a database"), 2, "in mine that is not a run's"),
        (OSError(28, "No space left on device", "events.jsonl"), 1, "(events.jsonl)"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_an_error_is_an_exit_code_and_one_line(
    error: BaseException, code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(raising(error), "mine") == code
    shown = capsys.readouterr().err
    assert words in shown
    assert shown.count("\n") == (0 if code == 130 else 1)


def test_a_file_that_another_process_holds_is_no_broken_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(lambda: busy(tmp_path / "db"), "mine") == 1
    assert "stopped: got database is locked from SQLite" in capsys.readouterr().err


def test_what_a_command_returns_is_handed_on() -> None:
    assert [exit_code(lambda n=n: n, "mine") for n in (0, 1)] == [0, 1]
