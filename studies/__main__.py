"""Run a study, or list all of them: ``python -m studies NAME``.

The exit status is 0, 1 if a claim of the study does not hold, 2 for a mistake in the arguments or
missing data.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

from studies import STUDIES, folder_of, make_study
from studies.study import run_study

EPILOG = """\
coefficients, closed-form-cifar, sampling and training use images: --data is a folder with
train*.parquet and test*.parquet, as the Hub's uoft-cs/cifar10 and ylecun/mnist have them (default:
cifar10), or "digits" for the images of scikit-learn, as with --quick. sampling and training in full
train large networks: half an hour and two hours on a GPU, days without one. They continue where
they were stopped.
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(
        prog="python -m studies",
        description="Run a study: write its figure, its numbers and a report.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("name", nargs="?", metavar="NAME", help="the study; without it, list all")
    found.add_argument(
        "--quick", action="store_true", help="smaller settings, under two minutes on two cores"
    )
    found.add_argument("--seed", type=int, default=0, help="the seed of all random draws")
    found.add_argument("--data", metavar="FOLDER", help="the folder of the images")
    found.add_argument(
        "-o", "--output", type=Path, metavar="FOLDER",
        help="where to write (default: the folder of the study, or runs/NAME-quick with --quick)",
    )  # fmt: skip
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    command = parser()
    options = command.parse_args(arguments)
    if options.name is None:
        print("\n".join(f"{name:<18} {words}" for name, words in STUDIES.items()))
        return 0
    name = options.name.replace("_", "-")
    mpl.use("Agg")
    try:
        study = make_study(name, quick=options.quick, seed=options.seed, data=options.data)
    except ValueError as error:
        command.error(str(error))
    default = Path("runs", f"{name}-quick") if options.quick else folder_of(name)
    try:
        results = run_study(study, default if options.output is None else options.output)
    except OSError as error:  # missing data, or a folder that cannot be written
        command.error(str(error))
    print("\n".join(map(str, results.claims)))
    print(f"{results.seconds:.0f} s; written: {', '.join(map(str, results.files))}", flush=True)
    if not results.holds:
        broken = sum(not claim.holds for claim in results.claims)
        print(f"error: {broken} of {len(results.claims)} claims do not hold", file=sys.stderr)
    return int(not results.holds)


if __name__ == "__main__":
    sys.exit(main())
