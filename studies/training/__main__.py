"""Run some trainings of the study, time steps, or write the report of what is stored.

    python -m studies.training RESULTS --data FOLDER --seconds 560
    python -m studies.training RESULTS --data FOLDER --seconds 560 --only noise-0-500 v-0-500
    python -m studies.training RESULTS --data FOLDER --seconds 300 --times
    python -m studies.training RESULTS --report

A command ends before its seconds are over, and the same command continues where it ended. RESULTS
then has trainings/KEY.json and trainings/KEY.npz, steps.json, classifier.pt and classifier.json,
and cache/, which can be computed again. The exit status is 0 if nothing is missing, 3 otherwise.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl

from studies.study import Findings, run_study
from studies.training import step_time
from studies.training.study import STEPS, TrainingStudy, run_some, say

INCOMPLETE = 3
"""The exit status where measurements are missing."""


class Stored(TrainingStudy):
    """The study as it is stored: nothing is run."""

    def run_in(self, folder: Path) -> Findings:
        """Return the findings of what a folder has."""
        return self.findings(folder)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(
        prog="python -m studies.training",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("folder", type=Path, metavar="RESULTS", help="where results are stored")
    found.add_argument("--data", help="a folder with train*.parquet and test*.parquet, or digits")
    found.add_argument("--quick", action="store_true", help="the settings for digits")
    keys = ", ".join(one.key for one in TrainingStudy().trainings)
    found.add_argument(
        "--only", nargs="+", metavar="KEY", help=f"some of the trainings, in this order: {keys}"
    )
    found.add_argument("--seconds", type=float, default=math.inf, help="the time of the command")
    found.add_argument("--marks", nargs="+", type=int, metavar="STEPS",
                       help="when trainings with the short warm-up are measured")  # fmt: skip
    found.add_argument("--long-marks", nargs="+", type=int, metavar="STEPS",
                       help="when trainings with the paper's warm-up are measured")  # fmt: skip
    found.add_argument("--eager", action="store_true", help="compile nothing for measurements")
    found.add_argument("--times", action="store_true", help="time steps instead of training")
    found.add_argument("--list", action="store_true", help="print which measurements are missing")
    found.add_argument("--report", action="store_true", help="write report, numbers and figures")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    begin = time.perf_counter()
    command = parser()
    options = command.parse_args(arguments)
    study = _study(command, options)
    mpl.use("Agg")
    try:
        if options.report:
            for claim in run_study(study, options.folder).claims:
                print(claim)
        elif options.times:
            deadline = begin + 0.9 * options.seconds
            step_time.write(study.times(deadline), options.folder / STEPS)
        elif not options.list:
            run_some(
                study, options.folder, options.only, seconds=options.seconds,
                compiled=not options.eager,
            )  # fmt: skip
    except FileNotFoundError as error:
        command.error(str(error))
    missing = {
        one.key: study.missing(options.folder, one)
        for one in study.trainings
        if options.only is None or one.key in options.only
    }
    say(f"{time.perf_counter() - begin:.0f} s in all")
    for key, steps in missing.items():
        say(f"{key}: " + (f"missing {', '.join(map(str, steps))}" if steps else "complete"))
    return INCOMPLETE if any(missing.values()) else 0


def _study(command: argparse.ArgumentParser, options: argparse.Namespace) -> TrainingStudy:
    """Return the study with the settings of the command line."""
    study: TrainingStudy = Stored.quick() if options.quick else Stored()
    changes: dict[str, Any] = {
        name: tuple(getattr(options, name))
        for name in ("marks", "long_marks")
        if getattr(options, name) is not None
    }
    for name, steps in changes.items():
        if list(steps) != sorted(set(steps)) or steps[0] < 1:
            command.error(f"--{name.replace('_', '-')}: must be increasing, got {list(steps)}")
    if options.data is not None:
        changes["data"] = options.data
    study = replace(study, **changes)
    known = [one.key for one in study.trainings]
    for key in options.only or ():
        if key not in known:
            command.error(f"--only: {key!r} is none of {', '.join(known)}")
    return study


if __name__ == "__main__":
    sys.exit(main())
