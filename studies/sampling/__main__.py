"""Run stages of the study and store their results; they continue where they were stopped.

    python -m studies.sampling train classifier --case cifar10 --data FOLDER --folder RESULTS
    python -m studies.sampling rmse frechet times --case cifar10 --data FOLDER --folder RESULTS
    python -m studies.sampling report --folder RESULTS --output FOLDER
    python -m studies.sampling export --case cifar10 --folder RESULTS --files FILES

`report` writes report, numbers and figures of what is stored, and runs nothing. `export` writes
weights as files below 16 MiB, in bfloat16, and `import` reads them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import matplotlib as mpl

from studies.sampling import networks
from studies.sampling.context import Context, Settings
from studies.sampling.networks import CASES
from studies.sampling.stages import STAGES
from studies.sampling.study import Sampling
from studies.study import Findings, Results, run_study

FILES = ("data", "export", "import", "report")
"""The stages that only decode images, write and read weights, or write the report."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(
        prog="python -m studies.sampling",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("stages", nargs="+", choices=[*FILES, *STAGES], metavar="STAGE",
                       help=f"one or more of {', '.join((*FILES, *STAGES))}")  # fmt: skip
    found.add_argument("--case", choices=CASES, default="cifar10", help="the network")
    found.add_argument("--data", help="a folder with train*.parquet and test*.parquet, or digits")
    found.add_argument("--folder", type=Path, required=True, help="where results are stored")
    found.add_argument("--seconds", type=float, default=3600.0, help="the time of the command")
    found.add_argument("--train-seconds", type=float, help="the time of training alone")
    found.add_argument("--files", type=Path, help="the folder of exported weights")
    found.add_argument("--output", type=Path, help="the folder of the report")
    found.add_argument("--step", type=int, help="the step whose weights are exported")
    for one in fields(Settings):
        if isinstance(one.default, int):
            found.add_argument(f"--{one.name}", type=int, default=one.default)
    found.add_argument("--evaluations", type=int, nargs="+", default=Settings.evaluations)
    found.add_argument("--forms", nargs="+", choices=Settings.forms, default=Settings.forms)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    begin = time.perf_counter()
    command = parser()
    options = command.parse_args(arguments)
    mpl.use("Agg")
    case = CASES[options.case]
    if options.train_seconds is not None:
        case = replace(case, seconds=options.train_seconds)
    given = {one.name: getattr(options, one.name) for one in fields(Settings)}
    lists = {name: tuple(given[name]) for name in ("evaluations", "forms")}
    settings = Settings(**{**given, **lists})
    data = options.data or case.images
    context = Context(case, data, options.folder, begin + options.seconds, settings)
    try:
        for stage in options.stages:
            context.say(f"{stage} of {case.name}")
            if stage in FILES:
                _files(stage, context, options, command)
            else:
                STAGES[stage](context)
    except FileNotFoundError as error:
        command.error(str(error))
    print(f"{time.perf_counter() - begin:.0f} s in all", file=sys.stderr, flush=True)


def report(stored: Path, output: Path) -> Results:
    """Write report, numbers and figures of the stored results to a folder."""

    class Stored(Sampling):
        def run_in(self, folder: Path) -> Findings:  # noqa: ARG002 (nothing is run there)
            return self.findings(stored)

    return run_study(Stored(), output)


def _files(
    stage: str, context: Context, options: argparse.Namespace, command: argparse.ArgumentParser
) -> None:
    if stage == "data":
        context.say(f"images {tuple(context.images.sets.train.shape)}")
        return
    if stage == "report":
        if options.output is None:
            command.error("report needs --output FOLDER")
        for claim in report(options.folder, options.output).claims:
            print(claim)
        return
    if options.files is None:
        command.error(f"{stage} needs --files FOLDER")
    if stage == "export":
        step = context.last if options.step is None else options.step
        written = networks.export_weights(context.place, step, options.files)
        context.say(f"{len(written)} files in {options.files}")
    else:
        shape = tuple(context.images.sets.train.shape[1:])
        steps = networks.import_weights(context.case, shape, options.files, context.place)
        context.say(f"imported the weights after {steps} steps")


if __name__ == "__main__":
    main()
