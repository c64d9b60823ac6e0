"""Tables of ``ratchet anchors`` as lines for the terminal."""

from collections.abc import Mapping
from typing import Any

from core.anchors import ASPECTS, PAIR_OUTCOMES
from drivers.rubrics_text import shown

_NAME_WIDTH = 48

_WORDS = {
    "both_accept": "both accept",
    "disagree": "disagree",
    "both_reject": "both reject",
    "unread": "unread",
}


def validation_text(table: Mapping[str, Any]) -> list[str]:
    """Return the table of outcomes (CARE table 3, with unread ones apart)."""
    heading = f"{'':15}" + "".join(f"{_WORDS[o]:>18}" for o in PAIR_OUTCOMES)
    validators = table["validators"]
    return [
        shown(f"{table['candidates']} anchors judged by {validators['a']} and {validators['b']}"),
        heading,
        _outcome_line("all together", table["outcomes"]),
        *(_outcome_line(aspect, table["by_aspect"][aspect]) for aspect in ASPECTS),
        f"agreement of the two (Krippendorff's alpha): {_number(table['alpha'])}",
        f"training {table['training']}, held out {table['held_out']}, same prompt as a held-out "
        f"one {table['same_prompt_as_held_out']}, without an anchor {table['without_anchor']}",
    ]


def _outcome_line(name: str, outcomes: Mapping[str, Mapping[str, Any]]) -> str:
    cells = [f"{outcomes[o]['count']} {_percent(outcomes[o]['share'])}" for o in PAIR_OUTCOMES]
    return f"{name:15}" + "".join(f"{cell:>18}" for cell in cells)


def labels_text(table: Mapping[str, Any]) -> list[str]:
    """Return what people's labels come to."""
    raters = ", ".join(table["raters"])
    lines = [
        shown(
            f"{table['cases']} cases, {len(table['raters'])} raters ({raters}), "
            f"{table['labels']} labels, {table['missing_labels']} missing"
        ),
        _share_line("passed every question", table["passed"]),
        _share_line("precision of the validators", table["precision"]),
        _share_line("yes among all labels", table["label_agreement"]),
    ]
    for question, row in table["questions"].items():
        lines += [
            _share_line(f"{question}: people say yes", row["people"]),
            _share_line(f"{question}: same as validators", row["agreement"]),
            f"{question + ': alpha of the raters':{_NAME_WIDTH}}{_number(row['alpha'])}",
        ]
    strata = table["strata"]
    return [*lines, *(_share_line(f"passed in {s}", row) for s, row in strata.items())]


def _share_line(name: str, row: Mapping[str, Any]) -> str:
    where = "" if row["low"] is None else f"  [{_percent(row['low'])}, {_percent(row['high'])}]"
    undecided = f"  ({row['undecided']} undecided)" if row["undecided"] else ""
    cell = f"{row['yes']}/{row['n']} {_percent(row['share'])}"
    return f"{shown(name):{_NAME_WIDTH}}{cell}{where}{undecided}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _number(value: float | None) -> str:
    return "not defined" if value is None else f"{value:.3f}"
