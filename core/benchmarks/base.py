"""What every benchmark is to the command that runs it: tasks, judge calls, outcomes, scores.

A benchmark is pure. It turns the authors' rows into tasks; says, from an answer and the judge's
replies so far, which calls come next (so that a stopped evaluation goes on where it was, and a
later question can show earlier replies); keeps of each task an outcome that JSON can hold; and
makes scores out of all outcomes, by the authors' arithmetic. Where their code does something unsafe
or counts in a way that misleads, the scores hold both numbers. A reply that cannot be read is asked
for again up to the call's ``attempts``; after that it is missing, counted, and never a default.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from core.model_calls import ModelCall, Sampling
from core.query import Message
from core.rows import Row

Replies = Mapping[str, tuple[str, ...]]
"""By call key, the texts of all its attempts, oldest first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One prompt to be answered by the model under test."""

    id: str
    messages: tuple[Message, ...]
    row: Row
    """The authors' row and what scoring needs beside it, as JSON values."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """A benchmark's tasks, and why other rows of its files are none."""

    tasks: tuple[Task, ...]
    dropped: Mapping[str, str] = field(default_factory=dict[str, str])
    """By row (file and number, or id), the reason."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgeCall:
    """One question to the judge about one answer."""

    key: str
    """Unique within the task, such as ``game 1`` or ``criterion 3``; the same after a resume."""
    call: ModelCall


class Benchmark(Protocol):
    """One benchmark; instances hold options (which variant), never state."""

    @property
    def name(self) -> str:
        """Its name in commands and files."""
        ...

    @property
    def answer_sampling(self) -> Sampling:
        """How its authors draw answers."""
        ...

    def load(self, files: Mapping[str, Sequence[Row]]) -> Loaded:
        """Return the tasks of the authors' files, rows by file name; ConfigError when there are
        none or a file that is needed is not there, with the names that are wanted."""
        ...

    def next_calls(self, task: Task, answer: str, replies: Replies) -> list[JudgeCall]:
        """Return the calls that can be made now; none when the task is judged (or needs no judge).

        A key whose last reply can be read is not asked again; one whose replies cannot be read is
        asked again until it has as many replies as the benchmark allows.
        """
        ...

    def outcome(self, task: Task, answer: str, replies: Replies) -> Row:
        """Return what of this task counts, as a JSON object with ``id``."""
        ...

    def scores(self, outcomes: Sequence[Row]) -> dict[str, Any]:
        """Return the scores as a JSON object.

        ``main`` is the headline number with ``name``, ``value``, ``low``, ``high`` (95 % bootstrap
        interval over tasks) and ``n``; ``missing`` counts what could not be judged.
        """
        ...


def to_ask_again(replies: Replies, key: str, is_readable: bool, attempts: int) -> bool:
    """Whether a call is due: it has no reply, or none that can be read and tries are left."""
    made = replies.get(key, ())
    return not made or (not is_readable and len(made) < attempts)
