"""Benchmarks: what evolution costs, and how fast the parts are, each as a ratio in one run.

``python -m drivers.bench`` measures everything and writes ``results/bench.json`` and a table;
``python -m drivers.bench PART`` measures one part and replaces its figures in the file. Each part
is a module of its name (``overlap.py``, ``real.py``, …) that has a ``PART``; what they share is in
``part.py`` and ``results.py``.
"""

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """See ``drivers/bench/command.py``."""
    from drivers.bench.command import main as command

    return command(arguments)
