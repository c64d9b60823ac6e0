"""``python -m drivers.report RUN_DIR``: a run's report page and picture, or a check of its claims.

Without ``--check`` it writes report.html (one file, nothing loaded from outside) and report.png
into the run's folder. With ``--check`` it writes nothing and says whether the raw records bear out
the run's claims; exit code 0 when all hold, 1 when one does not, 2 for a folder that is not a run.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from drivers.reading_command import exit_code
from drivers.run_files import RunFiles

EXAMPLES = """examples:
  python -m drivers.report runs/quickstart                  write report.html and report.png
  python -m drivers.report runs/quickstart --check          check the claims on the raw records
  python -m drivers.report runs/mine --check --min-gain 0   for a run that need not gain"""


def write_report(files: RunFiles) -> Path:
    """Write report.html and report.png; return the page's path."""
    from drivers.jsonl_files import write_whole
    from drivers.report_charts import draw
    from drivers.report_data import read_report_data
    from drivers.report_page import report_page

    data = read_report_data(files)
    page = report_page(data, draw(data, image_format="svg"))
    # A lone surrogate, which a policy can write, has no UTF-8 form: shown as "?".
    write_whole(files.report, page.encode("utf-8", "replace"))
    write_whole(files.picture, draw(data, image_format="png"))
    return files.report


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    args = _parser().parse_args(argv)
    files = RunFiles(args.run_dir)
    if args.check:
        return exit_code(lambda: _check(files, args.min_gain), args.run_dir)
    return exit_code(lambda: _write(files), args.run_dir)


def _write(files: RunFiles) -> int:
    sys.stdout.write(f"{write_report(files)}\n")
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
    parser.add_argument("run_dir", type=Path, help="a run's folder, such as runs/quickstart")
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
