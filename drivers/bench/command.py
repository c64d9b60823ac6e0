"""The command ``ratchet bench``: measures parts, writes the result file, prints the table.

Each part runs in a process of its own, so that no part's memory or threads weigh on another's. A
missed target is shown and is no error (``--check`` makes it exit code 1); a part that broke is. A
signal ends the running part with its processes; the parts before it keep their figures.
"""

import argparse
import importlib
import logging
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from core.errors import ConfigError
from drivers.bench.part import Options, Part, Row
from drivers.bench.results import check_writable, read_results, table, write_part
from drivers.bench.supervised import Stopped, interruptible, run_supervised

PARTS: dict[str, str] = {
    "overlap": "what a CARE, RARE or Ratchet step costs over a static one, engines that keep time",
    "real": "the same with the real small model and a judge and a writer that take 2 s a call",
    "learner": "training tokens a second and peak memory against TRL's GRPOTrainer",
    "end_to_end": "rollouts a second of whole steps against TRL's",
    "control_plane": "rollouts a second through all parts with engines that take no time",
    "store": "durable commits a second, restart and reads of a large RubricStore",
    "prefix_cache": "what a judge's prefix cache saves, by layout of the prompt and by router",
}

ASKED_FOR = ("prefix_cache",)
"""Parts that are measured only when named: counts that hold on any machine, and no target."""

_EXAMPLES = """examples:
  ratchet bench                     all but prefix_cache, half an hour on 2 cores
  ratchet bench overlap store       two parts; the others keep their figures
  ratchet bench real --short        does it work at all
  ratchet bench --show              the table of the last measurement
  ratchet bench learner --device cuda
"""

_BAD_INPUT = 2

log = logging.getLogger("ratchet")


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 0, 1 for a part that broke (or a miss under --check), 2 bad input,
    130 or 143 for a signal."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    names = list(dict.fromkeys(options.parts)) or [name for name in PARTS if name not in ASKED_FOR]
    try:
        _check_names(names)
        found = read_results(options.out)
        if options.show:
            if not found.keys() & PARTS.keys():
                raise ConfigError(f"got no figures in {options.out}, wanted some: measure first")
            return _show(options.out, list(PARTS), is_check=options.check)
        if options.quiet:  # the process of one part
            _measure(names[0], options)
            return 0
        check_writable(options.out)
        codes = _measure_all(names, options)
        if codes == [_BAD_INPUT]:  # the one part asked for has said it
            return _BAD_INPUT
        missed = _show(options.out, names, is_check=options.check)
        return 1 if any(codes) else missed
    except Stopped as error:
        print(
            f"ratchet bench: {error}; nothing of it runs any more, finished parts are in "
            f"{options.out}",
            file=sys.stderr,
        )
        return error.exit_code
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except ConfigError as error:
        print(f"ratchet bench: {error}", file=sys.stderr)
        return _BAD_INPUT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ratchet bench",
        description="Measure what evolution costs and how fast the parts are.",
        epilog="parts:\n"
        + "".join(f"  {name:14} {meaning}\n" for name, meaning in PARTS.items())
        + "\n"
        + _EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help="default: all but prefix_cache")
    parser.add_argument("--out", type=Path, default=Path("results/bench.json"), help="result file")
    parser.add_argument("--short", action="store_true", help="small sizes: figures mean little")
    parser.add_argument("--show", action="store_true", help="print the table, measure nothing")
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="learner only")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quiet", action="store_true", help=argparse.SUPPRESS)
    return parser


def _check_names(names: Sequence[str]) -> None:
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise ConfigError(f"got no part {unknown[0]!r}, wanted some of {', '.join(PARTS)}")


def _measure_all(names: Sequence[str], options: argparse.Namespace) -> list[int]:
    """Measure each part in a process of its own; return their exit codes."""
    codes: list[int] = []
    for number, name in enumerate(names, start=1):
        log.info("part %d of %d: %s (%s)", number, len(names), name, PARTS[name])
        began = time.monotonic()
        codes.append(run_supervised(part_command(name, options)))
        if codes[-1] != 0:
            log.error("part %s broke: see above", name)
        log.info("part %s took %.0f s", name, time.monotonic() - began)
    return codes


def part_command(name: str, options: argparse.Namespace) -> list[str]:
    """Return the command that measures one part and writes its figures."""
    command = [sys.executable, "-m", "drivers.bench", name, "--quiet", "--out", str(options.out)]
    command += ["--seed", str(options.seed), "--device", options.device]
    return command + (["--short"] if options.short else [])


def _measure(name: str, options: argparse.Namespace) -> None:
    interruptible()
    part = load_part(name)
    chosen = Options(is_short=options.short, device=options.device, seed=options.seed)
    write_part(options.out, name, part.measure(chosen))


def load_part(name: str) -> Part:
    """Return the part of this name."""
    return importlib.import_module(f"drivers.bench.{name}").PART


def _show(path: Path, names: Iterable[str], *, is_check: bool) -> int:
    results = read_results(path)
    rows: dict[str, Sequence[Row]] = {
        name: _rows(path, name, results[name]) for name in names if name in results
    }
    print(table(rows))
    num_missed = sum(row.is_met is False for each in rows.values() for row in each)
    print(f"\n{num_missed} target(s) missed; figures in {path}")
    return 1 if is_check and num_missed else 0


def _rows(path: Path, name: str, result: Any) -> Sequence[Row]:
    try:
        return load_part(name).rows(result)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"got figures of {name} in {path} that this version cannot show "
            f"({type(error).__name__}: {error}), wanted those of `ratchet bench {name}`: measure "
            "it again or give another --out"
        ) from error
