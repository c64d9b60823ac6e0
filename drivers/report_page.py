"""The report as one HTML page.

Everything that a policy, a writer, a judge or a data file wrote goes through ``_text``, the only
way into the page; the page has no script, and its content policy lets a browser load nothing but
the picture that is inside it.
"""

import base64
import html
from collections.abc import Iterable, Sequence
from typing import Any

from core.rows import Row, puts_in_veto
from core.rubric import TAGS, CriterionKind
from drivers.report_data import ReportData, rubric_name

MAX_EDITS = 200
"""Edits shown of each kind (accepted; all others)."""

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em; }
h1, h2 { font-weight: 600; } img { max-width: 100%; }
table { border-collapse: collapse; width: 100%; margin: 1em 0; }
td, th { border-bottom: 1px solid #ddd; padding: .35em .6em; }
td, th { text-align: left; vertical-align: top; }
pre, q { white-space: pre-wrap; overflow-wrap: anywhere; }
pre { background: #f6f6f6; padding: .7em; }
.resist { color: #a93226; } .old { color: #777; } .note { color: #666; }
"""

_HEAD = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
    "style-src 'unsafe-inline'\"><title>{title}</title><style>"
    + _STYLE.replace("{", "{{").replace("}", "}}")
    + "</style></head><body>"
)


def report_page(data: ReportData, picture_svg: bytes) -> str:
    """Return the whole page."""
    title = _text(f"Ratchet run {data.config.name}")
    picture = base64.b64encode(picture_svg).decode("ascii")
    return "\n".join(
        (
            _HEAD.format(title=title),
            f"<h1>{title}</h1>",
            f'<img alt="Reward and gold by step" src="data:image/svg+xml;base64,{picture}">',
            "<h2>Numbers</h2>",
            _table(("", ""), [(_text(n), _number(v)) for n, v in data.numbers.items()]),
            _edits_section(data.events),
            _history_section(data),
            _examples_section(data.examples),
            _failures_section(data),
            "<h2>Time</h2>",
            _table(
                ("part", "mean seconds a step"),
                [(_text(name), _number(value)) for name, value in data.timing.items()],
            ),
            "</body></html>",
        )
    )


def _text(value: object) -> str:
    """Escaped text: markup in it is shown, never acted on."""
    return html.escape(str(value), quote=True)


def _number(value: object) -> str:
    if value is None:
        return "no data"
    return f"{value:.4g}" if isinstance(value, float) else _text(value)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML already."""
    body = "".join("<tr>" + "".join(f"<td>{c}</td>" for c in row) + "</tr>" for row in rows)
    head = "".join(f"<th>{h}</th>" for h in heads)
    return f"<table><tr>{head}</tr>{body}</table>"


def _criterion(row: Row | None, style: str = "") -> str:
    if row is None:
        return '<span class="note">none</span>'
    kind: CriterionKind = row["kind"]
    return f'<span class="{_text(style or kind)}">{_text(TAGS[kind])} {_text(row["text"])}</span>'


def _evidence(evidence: dict[str, Any]) -> str:
    quotes = "".join(f"<div><q>{_text(q)}</q></div>" for q in evidence["quotes"])
    rollouts = ", ".join(str(i) for i in evidence["rollouts"])
    where = f'<div class="note">rollouts {_text(rollouts)}</div>' if rollouts else ""
    analysis = _text(evidence["analysis"])
    return f"{quotes}{where}<div>{analysis}</div>"


def _edits_section(events: Sequence[Row]) -> str:
    accepted = sorted(
        (e for e in events if e["status"] == "accepted"),
        key=lambda e: (not puts_in_veto(e), e["step"]),
    )
    others = [e for e in events if e["status"] != "accepted"]
    heads = ("step", "query", "branch", "before", "after", "evidence")
    rows = [
        (
            _number(e["step"]),
            f"{_text(e['query_id'])}<br>{_text(e['from_version'])} → {_text(e['to_version'])}",
            _text(e["branch"]),
            _criterion(e["old"], "old"),
            _criterion(e["new"]),
            _evidence(e["evidence"]),
        )
        for e in accepted[:MAX_EDITS]
    ]
    refused = [
        tuple(_text(e[key]) for key in ("step", "query_id", "branch", "status", "reason"))
        for e in others[:MAX_EDITS]
    ]
    return "\n".join(
        (
            f"<h2>Edits accepted ({len(accepted)}), those that put in a veto first</h2>",
            _left_out(accepted),
            _table(heads, rows),
            f"<h2>Edits refused, failed, or without change ({len(others)})</h2>",
            _left_out(others),
            _table(("step", "query", "branch", "status", "reason"), refused),
        )
    )


def _left_out(edits: Sequence[Row]) -> str:
    if len(edits) <= MAX_EDITS:
        return ""
    return f'<p class="note">The first {MAX_EDITS}; all are in events.jsonl.</p>'


def _history_section(data: ReportData) -> str:
    if not data.history:
        return ""
    parts = [f"<h2>One rubric's history: {_text(rubric_name(data.history[0].query_id))}</h2>"]
    for version in data.history:
        by = f", by {_text(version.writer)}" if version.writer else ""
        when = f"from the draw of step {version.step}{by}" if version.version else "as given"
        criteria = "".join(
            f"<li>{_criterion({'kind': c.kind, 'text': c.text})}</li>"
            for c in version.rubric.criteria
        )
        parts.append(f"<h3>Version {version.version}, {when}</h3><ol>{criteria}</ol>")
    return "\n".join(parts)


def _examples_section(examples: Sequence[Row]) -> str:
    parts = ["<h2>Its best rollout at first and at last</h2>"] if examples else []
    for row in examples:
        failed = [i for i, v in row["verdicts"].items() if (v["score"] or 0) < v["max"]]
        notes = f"reward {row['reward']:.3f}" + (", vetoed" if row["vetoed"] else "")
        notes += f", not full on: {', '.join(failed)}" if failed else ""
        parts.append(
            f'<p class="note">Step {_number(row["step"])}, {_text(notes)}</p>'
            f"<pre>{_text(row['response'])}</pre>"
        )
    return "\n".join(parts)


def _failures_section(data: ReportData) -> str:
    if not data.failures:
        return "<h2>Judge failures</h2><p>None: every verdict is a score.</p>"
    rows = [(_text(kind), _number(count)) for kind, count in sorted(data.failures.items())]
    return "<h2>Judge failures</h2>" + _table(("kind", "verdicts without a score"), rows)
