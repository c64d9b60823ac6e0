"""``python -m drivers.report RUN…``: a run's report page and picture, or a check of its claims.

Without ``--check`` it writes report.html (one file, nothing loaded from outside) and report.png
into the run's folder; of several runs, one page with all of them side by side. With ``--check`` it
writes nothing and says whether the raw records bear out the run's claims; exit code 0 when all
hold, 1 when one does not, 2 for a folder that is not a run.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from drivers.reading_command import exit_code
from drivers.run_files import RunFiles

EXAMPLES = """examples:
  python -m drivers.report runs/quickstart                  write report.html and report.png
  python -m drivers.report runs/static runs/care            both in one page, side by side
  python -m drivers.report runs/quickstart --check          check the claims on the raw records
  python -m drivers.report runs/mine --check --min-gain 0   for a run that need not gain"""


def write_report(files: RunFiles) -> Path:
    """Write report.html and report.png; return the page's path."""
    from drivers.jsonl_files import write_whole
    from drivers.report_charts import draw
    from drivers.report_data import read_report_data

    _write_page([files], files.report)
    write_whole(files.picture, draw(read_report_data(files), image_format="png"))
    return files.report


def _write_page(runs: Sequence[RunFiles], path: Path) -> None:
    from drivers.jsonl_files import write_whole
    from drivers.report_page import report_page
    from drivers.report_view import run_view

    page = report_page([run_view(files) for files in runs])
    # A lone surrogate, which a policy can write, has no UTF-8 form: shown as "?".
    write_whole(path, page.encode("utf-8", "replace"))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    args = _parser().parse_args(argv)
    runs = [RunFiles(folder) for folder in args.run_dir]
    if args.check:
        return max(exit_code(lambda f=f: _check(f, args.min_gain), f.folder) for f in runs)
    named = ", ".join(str(files.folder) for files in runs)
    return exit_code(lambda: _write(runs, args.out), named)


def _write(runs: Sequence[RunFiles], out: Path | None) -> int:
    if len(runs) == 1 and out is None:
        path = write_report(runs[0])
    else:
        path = out or runs[0].folder.parent / "comparison.html"
        _write_page(runs, path)
    sys.stdout.write(f"{path}\n")
    return 0


def _check(files: RunFiles, min_gain: float) -> int:
    from drivers.report_check import check_run

    claims = check_run(files, min_gain=min_gain)
    for claim in claims:
        sys.stdout.write("\n".join(claim.lines()) + "\n")
    failed = sum(not claim.holds for claim in claims)
    sys.stdout.write(f"{len(claims) - failed} of {len(claims)} claims hold\n")
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ratchet report",
        description="Write a run's report page and picture, or check its claims.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "run_dir", type=Path, nargs="+", help="a run's folder, such as runs/quickstart"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="where the page goes (default: report.html in the run's folder; of several runs, "
        "comparison.html beside the first)",
    )
    parser.add_argument(
        "--check", action="store_true", help="check the claims on the raw records, write nothing"
    )
    parser.add_argument(
        "--min-gain",
        type=float,
        default=0.15,
        metavar="X",
        help="how much gold must rise from the first five steps to the last (default 0.15)",
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
