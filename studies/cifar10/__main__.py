"""Run some variants of the study, or time steps, and store the results."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

from studies.cifar10 import figures
from studies.cifar10.study import STEPS, Cifar10
from studies.study import write_figure, write_json
from studies.training import step_time


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m studies.cifar10", description=__doc__)
    parser.add_argument("folder", type=Path, help="where results are stored, as runs/cifar10")
    parser.add_argument(
        "--data", default=Cifar10.data, help="a folder with train*.parquet and test*.parquet"
    )
    parser.add_argument(
        "--marks", nargs="+", type=int, default=Cifar10.marks,
        help="the steps at which variants are measured, increasing",
    )  # fmt: skip
    keys = ", ".join(one.key for one in Cifar10().variants)
    parser.add_argument("--only", nargs="*", metavar="KEY", help=f"some of the variants: {keys}")
    parser.add_argument("--times", action="store_true", help="time steps as well")
    options = parser.parse_args(arguments)
    if len(options.marks) < 2 or sorted(set(options.marks)) != list(options.marks):
        parser.error(f"--marks: must be two or more, increasing, got {options.marks}")
    study = Cifar10(data=options.data, marks=tuple(options.marks))
    known = [one.key for one in study.variants]
    for key in options.only or ():
        if key not in known:
            parser.error(f"--only: {key!r} is none of {', '.join(known)}")
    mpl.use("Agg")
    try:
        results = study.results(options.folder, options.only)
    except FileNotFoundError as error:
        parser.error(str(error))
    numbers = {"variants": [figures.numbers_of(one) for one in results]}
    write_json(options.folder / "variants.json", numbers)
    if figures.shown(results, study.plan):
        write_figure(options.folder / "samples.png", figures.samples(results, study.plan))
    if options.times:
        step_time.write(study.times(), options.folder / STEPS)


if __name__ == "__main__":
    main()
