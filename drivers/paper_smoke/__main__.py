"""``make paper-smoke``: the whole chain on eight prompts, with scripted judges and writers.

It shows that the parts fit together on this machine, in some minutes and without a key; the files
say that they are scripted, and no number in them is a result. The commands go on where they were
when it is started again; ``--fresh`` begins anew.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from drivers.jsonl_files import write_whole
from drivers.loopback_endpoint import loopback_endpoint
from drivers.paper_smoke.chain import Link, chain

_NOTE = (
    "SCRIPTED: judge, rubric writer, anchor writer and validators were a script that answers by a "
    "hash.\nThese files show that the chain runs; none of their numbers is a result.\n"
)
_LIMIT_S = 600.0
_TAIL_CHARS = 3000


def main(argv: Sequence[str] | None = None) -> int:
    """Run the chain; return 0 when every command did."""
    args = _parser().parse_args(argv)
    out: Path = args.out.resolve()
    if args.fresh:
        shutil.rmtree(out, ignore_errors=True)
    (out / "logs").mkdir(parents=True, exist_ok=True)
    (out / "SCRIPTED.txt").write_text(_NOTE, encoding="utf-8")
    done: list[dict[str, object]] = []
    with loopback_endpoint("drivers.paper_smoke.replies") as address:
        links = chain(out, address)
        for number, link in enumerate(links, start=1):
            _say(f"{number:2} of {len(links)}  {link.title} ...")
            began = time.monotonic()
            log = out / "logs" / f"{number:02}_{link.command[0]}.log"
            code = _run(link, log)
            seconds = time.monotonic() - began
            done.append({"title": link.title, "exit_code": code, "seconds": round(seconds, 1)})
            if code != 0:
                tail = log.read_text("utf-8", "replace")[-_TAIL_CHARS:]
                _say(f"{tail}\nstopped: {link.title} ended with {code}; its output is in {log}")
                return 1
            _say(f"          {seconds:.0f} s")
    summary = {"scripted": True, "steps": done}
    write_whole(out / "summary.json", json.dumps(summary, indent=2).encode() + b"\n")
    _say(f"{_NOTE}The report: {out / 'report.html'}")
    return 0


def _run(link: Link, log: Path) -> int:
    command = [sys.executable, "-m", f"drivers.{link.command[0]}", *link.command[1:]]
    with log.open("wb") as file:
        try:
            return subprocess.run(
                command, stdout=file, stderr=subprocess.STDOUT, timeout=_LIMIT_S, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            file.write(f"\nno end within {_LIMIT_S:.0f} s: ended\n".encode())
            return 124


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m drivers.paper_smoke",
        description="Run the papers' whole chain on eight prompts, with scripted models.",
    )
    parser.add_argument("--out", type=Path, default=Path("results/paper_smoke"))
    parser.add_argument("--fresh", action="store_true", help="remove what an earlier one left")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
