"""The rows of an offline run, read from its files and split: training and validation.

Strict like a run's own data: the first row that cannot be read is a ConfigError with file, line
and reason. A sound row without a target (no anchor, no script, no preference) is one too, or is
left out and counted under ``data.missing_target: skip``. Importable without torch.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from core.config_offline import DpoMethod, OfflineConfig
from core.errors import ConfigError
from core.formats.rows import Row, RowError
from core.offline_rows import (
    NOTHING_TO_LEARN,
    Demonstration,
    Example,
    Preference,
    anchor_demonstration,
    held_out,
    preference,
    script_demonstration,
)
from core.query import Query
from core.rubric import Criterion, Rubric
from drivers.data_files import load_queries, load_rows

_STAND_IN = Rubric(criteria=(Criterion(id="none", text="is not asked for here"),))
"""Rubric of a row with an anchor and none of its own: imitation needs none."""

BYTES_A_TOKEN = 4
"""UTF-8 bytes of one token, roughly: about 4 of English text, as many of Chinese."""


@dataclass(frozen=True, kw_only=True)
class OfflineData:
    """What an offline run learns from."""

    train: tuple[Example, ...]
    val: tuple[Example, ...]
    skipped: Mapping[str, int]
    """Rows left out, by reason (``core.offline_rows.NOTHING_TO_LEARN``)."""
    fingerprint: str
    """Tells on resume whether the run still has the same rows on the same sides."""


def load_offline_data(config: OfflineConfig) -> OfflineData:
    """Return the rows of the run; raises ConfigError naming file, line and reason."""
    data = config.data
    given, skipped, prints = _examples(config, data.train)
    if data.eval is not None:
        val, more, other = _examples(config, data.eval)
        train, prints = given, prints + other
        skipped.update(more)
        _check_apart(data.eval, train, val)
    else:
        try:
            train, val = held_out(given, data.val_frac, config.seed)
        except ValueError as error:
            raise ConfigError(f"{data.train}: {error}: add rows, or set data.val_frac=0") from None
    sides = json.dumps([prints, [e.id for e in train], [e.id for e in val]])
    return OfflineData(
        train=tuple(train),
        val=tuple(val),
        skipped=dict(skipped),
        fingerprint=hashlib.sha256(sides.encode("utf-8", "backslashreplace")).hexdigest(),
    )


def example_bytes(example: Example) -> int:
    """Return the bytes of the texts that one row trains on."""
    texts = [m.content for m in example.prompt]
    if isinstance(example, Preference):
        return sum(map(_num_bytes, texts * 2)) + sum(
            map(_num_bytes, (example.chosen, example.rejected))
        )
    return sum(map(_num_bytes, (*texts, example.response)))


def trl_row(example: Example) -> dict[str, Any]:
    """Return the row as TRL's conversational prompt-completion or preference format."""
    prompt = [m.model_dump() for m in example.prompt]
    if isinstance(example, Preference):
        return {
            "prompt": prompt,
            "chosen": _assistant(example.chosen),
            "rejected": _assistant(example.rejected),
        }
    return {"prompt": prompt, "completion": _assistant(example.response)}


def _assistant(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def _num_bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


# ------------------------------------------------------------------ one file
def _examples(config: OfflineConfig, path: str) -> tuple[list[Example], Counter[str], str]:
    """Return the examples of a file, what was left out, and the file's fingerprint."""
    examples: list[Example] = []
    skipped: Counter[str] = Counter()
    read, rows, fingerprint = _reader(config, path)
    for number, row in enumerate(rows):
        try:
            examples.append(read(row, number))
        except RowError as error:
            is_sound = error.reason in NOTHING_TO_LEARN
            if not (is_sound and config.data.missing_target == "skip"):
                raise ConfigError(_refusal(config, path, row, number, error)) from None
            skipped[error.reason] += 1
    if not examples:
        left_out = ", ".join(f"{n} with {reason}" for reason, n in skipped.items())
        raise ConfigError(
            f"{path}: got no row to learn from ({left_out or 'the file has none'}), wanted "
            f"{_wanted(config)}"
        )
    return examples, skipped, fingerprint


def _reader(config: OfflineConfig, path: str) -> tuple[Callable[[Any, int], Example], Any, str]:
    """Return what makes an example of a row, the rows, and the file's fingerprint."""
    method = config.offline
    if not isinstance(method, DpoMethod) and method.target == "anchor":
        loaded = load_queries(path, strict=True, stand_in=_STAND_IN)
        return _anchor, loaded.queries, loaded.fingerprint
    file = load_rows(path)
    read = _preference if isinstance(method, DpoMethod) else _script
    return read, file.rows, file.fingerprint


def _anchor(query: Query, _: int) -> Demonstration:
    return anchor_demonstration(query)


def _script(row: Row, number: int) -> Demonstration:
    return script_demonstration(_value(row), number)


def _preference(row: Row, number: int) -> Preference:
    return preference(_value(row), number)


def _value(row: Row) -> Any:
    if row.problem:
        raise RowError(row.problem, str(row.value))
    return row.value


def _refusal(
    config: OfflineConfig, path: str, row: Row | Query, number: int, error: RowError
) -> str:
    line = row.line if isinstance(row, Row) else None
    place = f"row {number}" if line is None else f"line {line}"
    way_out = "correct the row or take it out"
    if error.reason in NOTHING_TO_LEARN:
        way_out = f"wanted {_wanted(config)}: add it, or set data.missing_target=skip"
    return f"{path}, {place}: {error.reason}: {error.detail or 'the row cannot be used'}; {way_out}"


def _wanted(config: OfflineConfig) -> str:
    method = config.offline
    if isinstance(method, DpoMethod):
        return "a chosen and a rejected response in each row"
    if method.target == "anchor":
        return "an anchor with each query"
    return "a response with each query"


def _check_apart(path: str, train: list[Example], val: list[Example]) -> None:
    """Refuse a validation file that asks what is trained on: its loss would say nothing."""
    trained = {e.group for e in train}
    both = [e for e in val if e.group in trained]
    if both:
        raise ConfigError(
            f"{path}: got {len(both)} of {len(val)} validation rows whose prompt or source group "
            f"is also in data.train (the first one is {both[0].id[:80]!r}), wanted rows that are "
            "not trained on: take them out, or set data.eval=null for a share of data.train"
        )
