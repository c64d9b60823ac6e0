"""Group commit: who waits together is on disk together, and nobody is harmed by another's error."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actors.rubric_log import RubricLog
from actors.rubric_writes import RubricWrites
from core.records import Verdict
from tests.unit.rubric_builders import TWO, make_commit


class Counting(RubricLog):
    """Notes how many changes each transaction had, and can break the next one."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.sizes: list[int] = []
        self.is_broken = False

    def together(self, changes: Sequence[Callable[[], Any]]) -> list[Any]:
        self.sizes.append(len(changes))
        results = super().together([*changes, self._broken] if self.is_broken else changes)
        return results[: len(changes)]

    def _broken(self) -> None:
        self._db.execute("ROLLBACK")  # what SQLite itself does when the disk is full
        raise OSError("disk full")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Counting]:
    log = Counting(tmp_path / "rubrics.sqlite")
    log.register(TWO)
    yield log
    log.close()


def ask_together(log: RubricLog, *works: Callable[[], Any]) -> "list[Future[Any]]":
    """Have the works wait behind one that holds the thread; return their futures, done."""
    writes = RubricWrites(log)
    begun, gate = threading.Event(), threading.Event()

    def hold() -> bool:
        begun.set()
        return gate.wait(10)

    first = writes.ask(hold)
    assert begun.wait(10)
    answers = [writes.ask(work) for work in works]
    gate.set()
    writes.close()
    assert first.result() is True
    return answers


def test_changes_that_wait_together_are_one_transaction_and_seen_from_outside(
    log: Counting, tmp_path: Path
):
    verdict = Verdict(criterion_id="c1", score=1.0, max=1)
    answers = ask_together(
        log,
        lambda: log.commit(make_commit(TWO["q1"], "x", step=1)),
        lambda: log.put_verdicts({"k": verdict}),
        lambda: log.commit(make_commit(TWO["q2"], "y", step=1, query_id="q2")),
    )
    assert [a.exception() for a in answers] == [None] * 3
    assert log.sizes[-1] == 3
    other = RubricLog(tmp_path / "rubrics.sqlite", is_read_only=True)
    assert (other.current("q1").version, other.current("q2").version) == (1, 1)
    assert set(other.cached_verdicts(["k"])) == {"k"}
    assert (other.num_edits, log.num_edits) == (2, 2)
    other.close()


def test_one_that_raises_in_the_middle_harms_no_other_and_leaves_nothing(log: Counting):
    new = make_commit(TWO["q1"], "x", step=1)
    bad_version = replace(
        make_commit(new.rubric, "y", step=2, key="bad", query_id="q2"), from_version=0
    )
    good, bad, race, unknown, again = ask_together(
        log,
        lambda: log.commit(make_commit(TWO["q1"], "x", step=1)),
        lambda: log.commit(bad_version),
        lambda: log.commit(make_commit(TWO["q1"], "late", step=1, key="late")),
        lambda: log.commit(make_commit(TWO["q1"], "x", step=1, query_id="nobody")),
        lambda: log.commit(make_commit(TWO["q1"], "x", step=1)),
    )
    assert log.sizes[-1] == 5
    assert good.result().status == "applied"
    with pytest.raises(ValueError, match="wanted 1"):
        bad.result()
    # The first one's version counts, although that is not on disk yet.
    assert race.result().status == "conflict"
    assert isinstance(unknown.exception(), KeyError)
    assert again.result().status == "duplicate"
    assert [v.version for v in log.history("q1")] == [0, 1]
    assert log.current("q2").version == 0


def test_when_the_transaction_breaks_each_change_is_done_again_alone(log: Counting):
    log.is_broken = True
    first, bad, second = ask_together(
        log,
        lambda: log.commit(make_commit(TWO["q1"], "x", step=1)),
        lambda: log.current("nobody"),
        lambda: log.commit(make_commit(TWO["q2"], "y", step=1, query_id="q2")),
    )
    assert (first.result().status, second.result().status) == ("applied", "applied")
    assert isinstance(bad.exception(), KeyError)
    assert log.num_edits == 2


def test_a_change_that_shares_no_transaction_keeps_its_turn(log: Counting, tmp_path: Path):
    log.snapshot(tmp_path / "checkpoint", 0)
    writes = RubricWrites(log)
    before = writes.ask(lambda: log.commit(make_commit(TWO["q1"], "x", step=1)))
    restore = writes.ask(lambda: log.restore(tmp_path / "checkpoint", 0), is_alone=True)
    after = writes.ask(lambda: log.current("q1").version)
    cancelled = writes.ask(lambda: log.commit(make_commit(TWO["q1"], "never", step=1)))
    is_cancelled = cancelled.cancel()
    writes.close()
    assert (before.result().status, restore.result(), after.result()) == ("applied", 1, 0)
    assert log.current("q1").version == (0 if is_cancelled else 1)
