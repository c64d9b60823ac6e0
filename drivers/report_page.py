"""The report as one HTML file: its data, style and script stand in it, and nothing is loaded.

Texts of policies, writers, judges and data files travel as JSON in which no markup can end the
script element, and the script sets them as text. The content policy names the digests of the two
scripts and allows nothing else: no other script, no request, no frame.
"""

import base64
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header><h1>{title}</h1><button id="theme" type="button">Light or dark</button></header>
<main></main>
<svg id="shape" hidden></svg>
<script id="data" type="application/json">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def report_page(views: Sequence[Mapping[str, Any]]) -> str:
    """Return the page of one run, or of several side by side (``report_view.run_view`` of each)."""
    style, script = _asset("page.css"), _asset("charts.js") + _asset("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    names = ", ".join(str(view["name"]) for view in views)
    return _PAGE.format(
        policy=policy,
        title=html.escape(f"Ratchet: {names}"),
        style=style,
        data=_json({"runs": list(views)}),
        script=script,
    )


def _json(value: object) -> str:
    """Return JSON that cannot end the element it stands in, whatever its texts hold."""
    text = json.dumps(value, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _asset(name: str) -> str:
    return files("drivers.report_assets").joinpath(name).read_text(encoding="utf-8")
