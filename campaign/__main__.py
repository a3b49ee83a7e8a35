"""``python -m campaign``: run cases that have no record yet, within a time, and write the table."""

from __future__ import annotations

import argparse
from pathlib import Path

from campaign import report
from campaign.runner import CASES, run


def main() -> None:
    """Run a campaign."""
    parser = argparse.ArgumentParser(prog="python -m campaign", description=__doc__)
    parser.add_argument("--kind", choices=CASES, default="tables")
    parser.add_argument("--count", type=int, default=1000, help="seeds 0 to COUNT - 1")
    parser.add_argument("--seconds", type=float, default=3600.0, help="no case begins after these")
    parser.add_argument("--folder", type=Path, default=Path("runs/campaign"))
    parser.add_argument("--report", type=Path, default=Path("docs/reliability.md"))
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    path = given.folder / "records.jsonl"
    path.touch()
    run(given.kind, given.count, given.seconds, path)
    given.report.write_text(report.page(report.read(path)), encoding="utf-8")


if __name__ == "__main__":
    main()
