"""``python -m campaign``: run cases that have no record yet, within a time, and write the table."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from campaign import report
from campaign.runner import KINDS, measured, run


def main() -> int:
    """Run a campaign, and return 1 if there are failures."""
    parser = argparse.ArgumentParser(prog="python -m campaign", description=__doc__)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--count", type=int, default=1000, help="at most so many cases of a kind")
    parser.add_argument("--seconds", type=float, default=3600.0, help="no case begins after these")
    parser.add_argument("--processes", type=int, default=1, help="how many cases at once")
    parser.add_argument("--folder", type=Path, default=Path("runs/campaign"))
    parser.add_argument("--report", type=Path, default=Path("docs/reliability.md"))
    parser.add_argument("--retry", action="store_true", help="forget the records of failures")
    parser.add_argument("--only", type=int, metavar="SEED", help="print one case, keep no record")
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before anything imports torch
    if given.only is not None:
        for kind in given.kinds:
            sys.stdout.write(json.dumps(measured(kind, given.only), indent=1) + "\n")
        return 0
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.retry:
        report.forget_failures(given.folder, given.kinds)
    bounds = {"seconds": given.seconds, "processes": given.processes, "count": given.count}
    try:
        run(given.kinds, given.folder, **bounds)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: the same command continues\n")
    records = report.read(given.folder)
    given.report.write_text(report.page(records, KINDS), encoding="utf-8")
    return int(any(one["failed"] for one in records))


if __name__ == "__main__":
    sys.exit(main())
