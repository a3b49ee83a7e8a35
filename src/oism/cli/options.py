"""What the commands share: options, the meaning of ``column=value``, and where words go."""

from __future__ import annotations

import json
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from tyro.conf import Positional, arg

from oism._core.plain import plain
from oism.cli.ending import UsageError

if TYPE_CHECKING:
    from oism.process import Clock

STANDARD = "-"
Value = TypeVar("Value")

Format = Literal["csv", "tsv", "parquet", "npy", "npz"]
Missing = Literal["error", "skip"]
Mode = Literal["L", "RGB"]
Law = Literal[
    "swissroll", "circles", "rings", "moons", "8gaussians", "pinwheel", "2spirals", "checkerboard"
]
DataFile = Annotated[Positional[str], arg(metavar="DATA")]
ModelFile = Annotated[Positional[str], arg(metavar="MODEL")]
Output = Annotated[str, arg(aliases=["-o"], metavar="FILE")]
Count = Annotated[int, arg(aliases=["-n"], metavar="N")]
ColumnNames = Annotated[tuple[str, ...], arg(metavar="COLUMN ...", help_behavior_hint="")]
Pairs = Annotated[tuple[str, ...], arg(metavar="COLUMN=VALUE ...", help_behavior_hint="")]
ClockName = Annotated[str | None, arg(metavar="ve:SIGMA_MIN:SIGMA_MAX|vp:BETA_0:BETA_1")]
Split = Annotated[str | None, arg(metavar="NAME")]
ImageColumn = Annotated[str | None, arg(metavar="NAME")]
Seed = Annotated[int, arg(aliases=["--seed"])]
SeedOrNone = Annotated[int | None, arg(aliases=["--seed"])]
Intervals = Annotated[tuple[str, ...], arg(metavar="COLUMN=LOW:HIGH ...", help_behavior_hint="")]


@dataclass(frozen=True)
class Command(ABC):
    """What ``oism NAME`` does."""

    @abstractmethod
    def run(self) -> None:
        """Do it."""


def pairs(words: Iterable[str], option: str, value: Callable[[str], Value]) -> dict[str, Value]:
    """Return ``column=value`` words as a mapping."""
    found: dict[str, Value] = {}
    for word in words:
        column, equals, text = word.rpartition("=")
        if not equals or not column:
            raise UsageError(f"{option}: expected column=value, got {word!r}")
        if column in found:
            raise UsageError(f"{option}: column {column!r} is named twice")
        found[column] = _parsed(text, option, word, value)
    return found


def number(text: str) -> float:
    """Return a finite number."""
    result = float(text)
    if not math.isfinite(result):
        raise ValueError(text)
    return result


def interval(text: str) -> tuple[float, float]:
    """Return ``low:high``."""
    low, high = text.split(":")
    return number(low), number(high)


def periods(words: tuple[str, ...], columns: Iterable[str]) -> dict[str, float]:
    """Return ``column=period`` words as a mapping; a bare number is the period of all columns."""
    if len(words) == 1 and "=" not in words[0]:
        period = _parsed(words[0], "--periodic", words[0], number)
        return dict.fromkeys(columns, period)
    return pairs(words, "--periodic", number)


def clock_of(said: str | None) -> Clock | None:
    """Return the clock that an option names, if it does."""
    if said is None:
        return None
    from oism.process import VarianceExploding, VariancePreserving

    kinds: dict[str, type[Clock]] = {"ve": VarianceExploding, "vp": VariancePreserving}
    kind, *ends = said.split(":")
    try:
        first, last = (number(end) for end in ends)
        return kinds[kind](first, last)  # type: ignore[call-arg]
    except (KeyError, ValueError) as error:
        why = f" ({error})" if kind in kinds and len(ends) == 2 else ""
        raise UsageError(
            f"--clock: expected ve:SIGMA_MIN:SIGMA_MAX or vp:BETA_0:BETA_1, got {said!r}{why}"
        ) from error


@contextmanager
def naming_options(names: Mapping[str, str]) -> Iterator[None]:
    """Say which option it is where the library refuses an argument, which it names first."""
    try:
        yield
    except (TypeError, ValueError) as error:
        name, _, rest = str(error).partition(" ")
        name = name.partition("[")[0]  # an entry of several
        if name not in names:
            raise
        raise UsageError(f"--{names[name]}: {rest}") from error


def _parsed(text: str, option: str, word: str, value: Callable[[str], Value]) -> Value:
    try:
        return value(text)
    except ValueError:
        expected = "low:high" if value is interval else "a finite number"
        raise UsageError(f"{option}: expected {expected} in {word!r}") from None


def demand_count(n: int, least: int, option: str = "-n") -> None:
    """Raise unless a number of rows makes sense."""
    if n < least:
        raise UsageError(f"{option}: expected at least {least}, got {n}")


def given(command: Command, names: Iterable[str]) -> list[str]:
    """Return which of some options were given, in the order of the command's."""
    known = [field for field in fields(command) if field.name in names]
    return [field.name for field in known if getattr(command, field.name) != field.default]


def demand_default(command: Command, names: Iterable[str], why: str) -> None:
    """Raise where an option was given that means nothing here."""
    for name in given(command, names):
        raise UsageError(f"--{name.replace('_', '-')}: {why}")


def demand_one_stdout(output: str, *, json: bool) -> None:
    """Raise where both a result and a report would go to standard output."""
    if json and output == STANDARD:
        raise UsageError("--json and the output would both be written to standard output: give -o")


def demand_one_stdin(model: str, data: str | None) -> None:
    """Raise where both a model and a table would come from standard input."""
    if model == data == STANDARD:
        raise UsageError("the model and the data cannot both be standard input")


def report(text: str, facts: Mapping[str, object], output: str, *, json: bool, quiet: bool) -> None:
    """Say what was done: as JSON, or in words where no data go, or not at all."""
    if json:
        print_json(facts)
    elif not quiet:
        print(text, file=sys.stderr if output == STANDARD else sys.stdout)


def print_json(facts: Mapping[str, object]) -> None:
    """Print facts as JSON, null for what is not finite."""
    print(json.dumps(plain(facts), indent=2, allow_nan=False, ensure_ascii=False))
