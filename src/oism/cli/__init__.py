"""The command ``oism``: fit, sample, densities, pictures, from files and through pipes.

A command is a frozen dataclass: its docstring is the help, its fields are the options, ``run`` does
the work. A new one is a file of its own and a line in `COMMANDS`. What is heavy to import is
imported where it is used, so that help comes at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from inspect import cleandoc
from typing import Annotated, Any, Union

import tyro

import oism
from oism.cli.data import Data
from oism.cli.demo import Demo
from oism.cli.density import Density
from oism.cli.ending import guarded
from oism.cli.evaluate import Evaluate
from oism.cli.fit import Fit
from oism.cli.info import Info
from oism.cli.options import Command
from oism.cli.plot import Plot
from oism.cli.reproduce import Reproduce
from oism.cli.sample import Sample
from oism.cli.train import Train

COMMANDS: dict[str, type[Command]] = {
    "fit": Fit,
    "train": Train,
    "sample": Sample,
    "density": Density,
    "evaluate": Evaluate,
    "plot": Plot,
    "info": Info,
    "data": Data,
    "demo": Demo,
    "reproduce": Reproduce,
}

ABOUT = """Density estimation and sampling by a diffusion model that is fitted in closed form.

Tables are CSV, TSV, Parquet, NPY or NPZ, by their suffix; - is standard input or output. Images
are a folder of them, Parquet, NPY or NPZ.
`oism COMMAND --help` explains a command with examples; `oism --version` says the version.

Examples:
  oism data moons -n 1000 -o moons.csv
  oism fit moons.csv -o moons.safetensors
  oism sample moons.safetensors -n 5

Exit codes:
  0    all went well
  1    the data or a file is wrong: one line on standard error says how; or a claim failed
       (with OISM_TRACEBACK=1 in the environment, the traceback too)
  2    the command was not understood
  130  interrupted (SIGINT), 143 terminated (SIGTERM): no half-written file is left
  141  whoever read the output stopped reading
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words == ["--version"]:
        print(f"oism {oism.__version__}")
        return 0
    return guarded(lambda: parse(words).run())


def parse(words: Sequence[str]) -> Command:
    """Return the command that words mean; tyro leaves with exit code 2 where they mean none."""
    # The list of commands has a line for each; the page of one has all of its docstring.
    options: list[Any] = [
        Annotated[
            command,
            tyro.conf.subcommand(name, description=_help(command, whole=name in words[:1])),
        ]
        for name, command in COMMANDS.items()
    ]
    one: Any = Union[tuple(options)]  # noqa: UP007
    command: Command = tyro.cli(
        one,
        prog="oism",
        description=ABOUT,
        args=words,
        config=(tyro.conf.FlagCreatePairsOff,),
    )
    return command


def _help(command: type[Command], *, whole: bool) -> str:
    text = cleandoc(command.__doc__ or "")
    return text if whole else text.splitlines()[0]
