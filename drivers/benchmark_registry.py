"""The benchmarks that ``ratchet evaluate`` knows: their templates and their options.

An option of a benchmark is a field of its dataclass with a default that text can say; its type is
checked before anything is spent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, get_type_hints

import yaml
from pydantic import ConfigDict, ValidationError, create_model

from core.benchmarks.arena_hard import ArenaHard, ArenaPrompts
from core.benchmarks.base import Benchmark
from core.benchmarks.biggen import BiGGen
from core.benchmarks.followbench import FollowBench
from core.benchmarks.healthbench import HealthBench
from core.benchmarks.infobench import InfoBench
from core.benchmarks.pairwise import Pairwise, PairwisePrompts
from core.benchmarks.script_metrics import ScriptMetrics
from core.benchmarks.writingbench import WritingBench
from core.errors import ConfigError
from core.validation import first_problem
from drivers.token_counter import token_counter
from serve.prompts import load_prompt


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One benchmark."""

    about: str
    kind: Any
    """Its dataclass."""
    templates: Mapping[str, str]
    """Prompt file by field."""
    prompts: Any = None
    """A dataclass that holds the templates in the field ``prompts``."""
    fixed: Sequence[str] = field(default=())
    """Fields that are no options."""

    @property
    def options(self) -> dict[str, Any]:
        """The defaults of its options."""
        closed = {*self.templates, "prompts", *self.fixed}
        return {
            f.name: f.default
            for f in fields(self.kind)
            if f.name not in closed and f.default is not MISSING
        }

    @property
    def summary(self) -> str:
        """What it is and its options, for a person."""
        shown = ", ".join(f"{name}={_shown(value)}" for name, value in self.options.items())
        return f"{self.about} ({shown})"


BENCHMARKS: Mapping[str, Entry] = {
    "arena_hard": Entry(
        about="Arena-Hard against its baselines, vanilla and style-controlled",
        kind=ArenaHard,
        prompts=ArenaPrompts,
        templates={
            "hard": "bench_arena_hard",
            "creative": "bench_arena_creative",
            "user": "bench_arena_user",
            "again": "bench_arena_again",
        },
        fixed=("judge_sampling", "counter"),
    ),
    "biggen": Entry(
        about="BiGGen Bench: 77 tasks of nine capabilities, 1 to 5",
        kind=BiGGen,
        templates={"template": "bench_biggen", "system": "bench_biggen_system"},
    ),
    "followbench": Entry(
        about="FollowBench: HSR, SSR and CSL, by rules and by a judge",
        kind=FollowBench,
        templates={"template": "bench_followbench", "one_template": "bench_followbench_one"},
    ),
    "healthbench": Entry(
        about="HealthBench: signed points a criterion",
        kind=HealthBench,
        templates={"template": "bench_healthbench"},
    ),
    "infobench": Entry(
        about="InfoBench: decomposed yes/no questions, DRFR",
        kind=InfoBench,
        templates={"template": "bench_infobench"},
    ),
    "pairwise": Entry(
        about="win rate against anchors or a file of responses",
        kind=Pairwise,
        prompts=PairwisePrompts,
        templates={"user": "bench_pairwise", "again": "bench_arena_again"},
        fixed=("judge_sampling",),
    ),
    "script_metrics": Entry(
        about="RARE's twelve metrics of a script, with audited evidence",
        kind=ScriptMetrics,
        templates={
            "template": "bench_script_metrics",
            "system": "bench_script_metrics_system",
            "repair": "bench_script_repair",
        },
    ),
    "writingbench": Entry(
        about="WritingBench: five criteria a query, 1 to 10",
        kind=WritingBench,
        templates={"template": "bench_writingbench", "system": "bench_writingbench_system"},
    ),
}


def build_benchmark(name: str, given: Sequence[str]) -> Benchmark:
    """Return the benchmark with ``KEY=VALUE`` options; ConfigError for one it does not take."""
    entry = BENCHMARKS[name]
    texts = {key: load_prompt(file) for key, file in entry.templates.items()}
    parts = texts if entry.prompts is None else {"prompts": entry.prompts(**texts)}
    counted = {"counter": token_counter()} if "counter" in entry.fixed else {}
    return entry.kind(**parts, **counted, **_checked(name, entry, given))


def _checked(name: str, entry: Entry, given: Sequence[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for one in given:
        key, equals, text = one.partition("=")
        if not equals or key not in entry.options:
            raise ConfigError(
                f"got --set {one!r}, wanted KEY=VALUE with an option of {name}: "
                f"{', '.join(entry.options)}"
            )
        values[key] = _value(text, entry.options[key])
    hints = get_type_hints(entry.kind)
    typed: Any = {key: (hints[key], default) for key, default in entry.options.items()}
    model = create_model("Options", __config__=ConfigDict(arbitrary_types_allowed=True), **typed)
    try:
        checked = model.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"--set: {first_problem(error)}") from error
    return {key: getattr(checked, key) for key in values}


def _value(text: str, default: Any) -> Any:
    if isinstance(default, tuple):
        return [part for part in text.split(",") if part]
    return text if isinstance(default, str) else yaml.safe_load(text)


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "all"
    return str(value)
