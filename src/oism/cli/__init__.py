"""The command ``oism``: fit, sample, evaluate and plot models, from files and through pipes.

A command is a frozen dataclass: its docstring is the help, its fields are the options, ``run`` does
the work. A new one is a file of its own and a line in `COMMANDS`. Packages that are slow to import
are imported where they are used, so that the help is printed at once.
"""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import field, fields, make_dataclass
from inspect import cleandoc
from typing import Annotated, Any, Union, get_type_hints

import tyro

import oism
from oism.cli.data import Data
from oism.cli.demo import Demo
from oism.cli.density import Density
from oism.cli.evaluate import Evaluate
from oism.cli.exit_codes import UsageError, delayed_signals, exit_code_of
from oism.cli.explore import Explore
from oism.cli.export import Export
from oism.cli.fit import Fit
from oism.cli.fit_images import FitImages
from oism.cli.impute import Impute
from oism.cli.info import Info
from oism.cli.options import Command, check_seed, given
from oism.cli.outliers import Outliers
from oism.cli.plot import Plot
from oism.cli.sample import Sample
from oism.cli.train import Train

COMMANDS: dict[str, type[Command]] = {
    "fit": Fit,
    "fit-images": FitImages,
    "train": Train,
    "sample": Sample,
    "density": Density,
    "outliers": Outliers,
    "impute": Impute,
    "evaluate": Evaluate,
    "plot": Plot,
    "info": Info,
    "export": Export,
    "data": Data,
    "demo": Demo,
    "explore": Explore,
}

ABOUT = """Density estimation and sampling by diffusion models that are fitted in closed form.

Tables are CSV, TSV, Parquet, NPY or NPZ files, by their suffix; - is standard input or output.
Images are a folder, Parquet, NPY or NPZ. `oism COMMAND --help` explains a command with examples;
`oism --version` prints the version.

First commands:
  oism data moons -n 1000 -o moons.csv
  oism fit moons.csv -o moons.safetensors
  oism sample moons.safetensors -n 5

Exit codes:
  0    success
  1    an error in the data or a file, explained in one line on standard error
       (with OISM_TRACEBACK=1 in the environment, with its traceback)
  2    invalid arguments
  130  interrupted (SIGINT), 143 terminated (SIGTERM): no incomplete file is left
  141  the reader of the output closed the pipe
"""

HELP, HELP_ALL = ("-h", "--help"), "--help-all"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv) or [HELP[-1]]
    if words == ["--version"]:
        print(f"oism {oism.__version__}")
        return 0
    return exit_code_of(lambda: _run(parse(words)))


def _run(command: Command) -> None:
    check_seed(given(command).get("seed"))
    if command.needs_torch:
        with delayed_signals():
            importlib.import_module("torch")
    command.run()


def parse(words: Sequence[str]) -> Command:
    """Return the command of some words; tyro exits with code 2 if they are invalid."""
    brief = any(word in HELP for word in words) and HELP_ALL not in words
    # The list of commands has a line for each; the page of one has all of its docstring.
    kinds: list[Any] = [
        Annotated[
            _without_further(command) if brief else command,
            tyro.conf.subcommand(name, description=_help(command, whole=name in words[:1])),
        ]
        for name, command in COMMANDS.items()
    ]
    one: Any = Union[tuple(kinds)]  # noqa: UP007
    arguments: dict[str, Any] = {
        "prog": "oism",
        "description": ABOUT,
        "args": ["--help" if word == HELP_ALL else word for word in words],
        "config": (tyro.conf.FlagCreatePairsOff, tyro.conf.DisallowNone),
    }
    try:
        with redirect_stderr(io.StringIO()):  # a hint replaces the message
            command: Command = tyro.cli(one, **arguments)
    except SystemExit as end:
        if not end.code:
            raise
        if hint := _hint(one, arguments):
            raise UsageError(hint) from end
        tyro.cli(one, **arguments)  # exits, with its message
        raise
    return command


def _hint(one: Any, arguments: dict[str, Any]) -> str:  # noqa: ANN401
    """Return what a command says of the first word that it does not take, if anything."""
    silent = io.StringIO()
    try:
        with redirect_stdout(silent), redirect_stderr(silent):
            command, unknown = tyro.cli(one, return_unknown_args=True, **arguments)
    except SystemExit:
        return ""
    hint = command.hint(unknown[0]) if unknown else ""
    return f"unexpected {unknown[0]!r}: {hint}" if hint else ""


def _without_further(command: type[Command]) -> Any:  # noqa: ANN401
    """Return a command whose help leaves out the groups that only ``--help-all`` shows."""
    if not command.further:
        return command
    hints = get_type_hints(command, include_extras=True)
    hidden: list[Any] = [
        (one.name, Annotated[hints[one.name], tyro.conf.Suppress], field(default=one.default))
        for one in fields(command)  # type: ignore[arg-type]
        if one.name in command.further
    ]
    return make_dataclass(command.__name__, hidden, bases=(command,), frozen=True)


def _help(command: type[Command], *, whole: bool) -> str:
    text = cleandoc(command.__doc__ or "")
    return text if whole else text.splitlines()[0]
