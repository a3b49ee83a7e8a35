"""Options that several commands share, and the parsing and checking of their values.

A command is a class made by `options`: its fields are the options, their docstrings the help. A
field whose type is another such class is a group: its options have a box of their own in the help,
and helpers take the group instead of the whole command.
"""

from __future__ import annotations

import json
import math
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import MISSING, dataclass, fields
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    TypeVar,
    dataclass_transform,
    get_type_hints,
)

from tyro.conf import Positional, arg

from oism._core.plain import plain
from oism.cli.exit_codes import UsageError

if TYPE_CHECKING:
    from oism.data.files import Images, Split
    from oism.process import Clock

C = TypeVar("C", bound=type[Any])
Value = TypeVar("Value")

STANDARD = "-"

LEVELS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.5, 0.9)
"""The noise levels τ at which errors are printed."""

DataFile = Annotated[Positional[str], arg(metavar="DATA")]
ModelFile = Annotated[Positional[str], arg(metavar="MODEL")]
Output = Annotated[str, arg(aliases=["-o"], metavar="FILE")]
Folder = Annotated[str, arg(aliases=["-o"], metavar="DIR")]
Count = Annotated[int, arg(aliases=["-n"], metavar="N")]
Seed = Annotated[int, arg(metavar="N")]
OptionalSeed = Annotated[int | None, arg(metavar="N")]
Device = Annotated[str | None, arg(metavar="DEVICE")]
Number = Annotated[int | None, arg(metavar="N")]
ColumnNames = Annotated[tuple[str, ...], arg(metavar="COL ...")]
ClockText = Annotated[str | None, arg(metavar="CLOCK")]
Format = Annotated[Literal["csv", "tsv", "parquet", "npy", "npz"] | None, arg(metavar="FORMAT")]
Missing = Annotated[Literal["error", "skip", "use"], arg(metavar="error|skip|use")]
ToyName = Annotated[
    Literal[
        "swissroll",
        "circles",
        "rings",
        "moons",
        "8gaussians",
        "pinwheel",
        "2spirals",
        "checkerboard",
    ],
    arg(metavar="NAME"),
]


@dataclass_transform(frozen_default=True)
def options(cls: C) -> C:
    """Return a frozen dataclass whose fields are options, for a command or a group of options.

    Options of a group have no prefix. Defaults that mean "not given" (None, False, ()) are left
    out of the help, and so is the docstring of a group.
    """
    made: Any = dataclass(frozen=True)(cls)
    hints = get_type_hints(made, include_extras=True)
    own: dict[str, Any] = made.__annotations__
    for field in fields(made):
        if field.name not in own:
            continue
        hinted = any(getattr(m, "help_behavior_hint", None) for m in _metadata(hints[field.name]))
        unset = field.default is None or field.default is False or field.default == ()
        is_group = field.default is not MISSING and hasattr(field.default, "__dataclass_fields__")
        own[field.name] = Annotated[
            hints[field.name],
            arg(
                prefix_name=False if not is_group else None,
                help="" if is_group else None,
                help_behavior_hint="" if unset and not hinted else None,
            ),
        ]
    found: C = made
    return found


def _metadata(hint: object) -> tuple[Any, ...]:
    found: tuple[Any, ...] = getattr(hint, "__metadata__", ())
    return found


def setting(default: object, metavar: str | None = None) -> Any:  # noqa: ANN401
    """Return the annotation of an option that is None if not given; the help has its default."""
    return arg(metavar=metavar, help_behavior_hint=f"(default: {default})")


class Command(ABC):
    """The command ``oism NAME``."""

    further: tuple[str, ...] = ()
    """The groups of options that only ``--help-all`` shows."""

    needs_torch: ClassVar[bool] = True
    """Whether the work needs torch, which is imported before it."""

    def hint(self, word: str) -> str:  # noqa: ARG002
        """Return what to write instead of a word that the command does not take, or nothing."""
        return ""

    @abstractmethod
    def run(self) -> None:
        """Do the work of the command."""


@options
class Report:
    """How a command reports its result."""

    json: bool = False
    """Print the report as JSON."""
    quiet: bool = False
    """Print no report and show no progress bar."""

    def check_stdout(self, output: str) -> None:
        """Raise if both a result and a report would go to standard output."""
        if self.json and output == STANDARD:
            raise UsageError(
                "--json and the output would both be written to standard output: give -o"
            )

    def print(self, text: str, facts: Mapping[str, object], output: str = "") -> None:
        """Print a report; to standard error where the result goes to standard output."""
        if self.json:
            print_json(facts)
        elif not self.quiet:
            print(text, file=sys.stderr if output == STANDARD else sys.stdout)

    def bars(self, *, also: bool = True) -> Any:  # noqa: ANN401
        """Return a context with progress bars, or without if they are not wanted."""
        from oism._core.progress import no_bars

        return nullcontext() if also and not self.quiet else no_bars()


ReportOptions = Annotated[Report, arg(name="")]
"""The type of a field with these options: without a name they are not in a box of their own."""


@options
class ImageFiles:
    """How images are read."""

    image_column: Annotated[str | None, arg(metavar="NAME")] = None
    """The image column of a Parquet file, or the array of an NPZ file."""
    split: Annotated[str | None, arg(metavar="NAME")] = None
    """The split of a dataset whose files or folders are named by split."""
    label_column: Annotated[str | None, arg(metavar="NAME")] = None
    """The column or array of the labels, where its name is not usual (--labels)."""
    mode: Annotated[Literal["L", "RGB"] | None, arg(metavar="L|RGB")] = None
    """Convert all images to grey (L) or colour (RGB)."""
    skip_broken: bool = False
    """Leave out damaged images."""

    def open(self, data: str, default: Split, **more: int) -> Images:
        """Return the images of a folder, a file or a dataset; ``default`` is the default split."""
        from oism.data import files

        return files.open_images(
            data,
            column=self.image_column,
            mode=self.mode,
            skip_broken=self.skip_broken,
            split=default if self.split is None else self.split,
            **more,
        )


def pairs(words: Iterable[str], option: str, value: Callable[[str], Value]) -> dict[str, Value]:
    """Return words ``column=value`` as a dictionary."""
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


def is_number(text: str) -> bool:
    """Return whether a text is a number, finite or not."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def positive(text: str) -> float:
    """Return a positive number."""
    if not number(text) > 0:
        raise ValueError(text)
    return number(text)


def number_or_level(text: str) -> float | str:
    """Return a finite number, or text that is none: the level of a category.

    >>> number_or_level("0.5"), number_or_level("Oslo")
    (0.5, 'Oslo')
    """
    try:
        return number(text)
    except ValueError:
        if text.strip().lower().lstrip("+-") in ("", "nan", "inf", "infinity"):
            raise
        return text


def text_of_value(text: str) -> str:
    """Return the text of a finite number or a level."""
    number_or_level(text)
    return text


def interval(text: str) -> tuple[float | None, float | None]:
    """Return the two numbers of ``low:high``; one of them may be left out, which is None.

    >>> interval("0:")
    (0.0, None)
    """
    words = text.split(":")
    low, high = (number(word) if word else None for word in words)
    ends = [end for end in (low, high) if end is not None]
    if not ends or ends != sorted(set(ends)):
        raise ValueError(text)
    return low, high


def periods(words: tuple[str, ...], columns: Sequence[str]) -> dict[str, float]:
    """Return words ``column=period`` as a dictionary; a single number is the period of all."""
    bare = [word for word in words if "=" not in word]
    if bare and not is_number(bare[0]):
        from oism.data.files import unknown_column

        column = bare[0]
        if column not in columns:
            raise unknown_column(column, columns, "--periodic")
        raise UsageError(
            f"--periodic: {column} has no period: give {column}=360 for degrees, {column}=24 for "
            f"hours, {column}=6.283185307179586 for radians"
        )
    if len(words) == 1 and bare:
        period = _parsed(words[0], "--periodic", words[0], positive)
        return dict.fromkeys(columns, period)
    return pairs(words, "--periodic", positive)


def clock_of(text: str | None) -> Clock | None:
    """Return the clock that the option ``--clock`` describes."""
    if text is None:
        return None
    from oism.process import VarianceExploding, VariancePreserving

    kinds: dict[str, type[Clock]] = {"ve": VarianceExploding, "vp": VariancePreserving}
    kind, *ends = text.split(":")
    try:
        first, last = (number(end) for end in ends)
        return kinds[kind](first, last)  # type: ignore[call-arg]
    except (KeyError, ValueError) as error:
        why = f" ({error})" if kind in kinds and len(ends) == 2 else ""
        raise UsageError(
            f"--clock: expected ve:SIGMA_MIN:SIGMA_MAX or vp:BETA_0:BETA_1, got {text!r}{why}"
        ) from error


def image_clock_of(text: str | None) -> Clock | None:
    """Return the clock that ``--clock`` describes, which must preserve variance."""
    clock = clock_of(text)
    if clock is not None and text is not None and not text.startswith("vp"):
        raise UsageError("--clock: the noise of images preserves variance: vp:BETA_0:BETA_1")
    return clock


def clock_text(clock: Mapping[str, Any]) -> str:
    """Return the facts of a clock as text."""
    values = ", ".join(f"{name} = {value:g}" for name, value in clock.items() if name != "kind")
    return f"{clock['kind']}, {values}" if values else str(clock["kind"])


@contextmanager
def naming_options(names: Mapping[str, str]) -> Iterator[None]:
    """Name the option instead of the library's argument, which begins the library's message."""
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
        raise UsageError(f"{option}: expected {EXPECTED[value]} in {word!r}") from None


EXPECTED: dict[Callable[[str], Any], str] = {
    interval: "low:high, increasing,",
    positive: "a positive number",
    number: "a finite number",
    text_of_value: "a finite number or a level",
}
"""What messages call the values of ``column=value``."""


def given(group: object) -> dict[str, Any]:
    """Return the options of a command or a group that have another value than the default.

    Those of its groups are among them.
    """
    found: dict[str, Any] = {}
    for field in fields(group):  # type: ignore[arg-type]
        value = getattr(group, field.name)
        if hasattr(value, "__dataclass_fields__"):
            found |= given(value)
        elif field.default is not MISSING and value != field.default:
            found[field.name] = value
    return found


def option_of(name: str) -> str:
    """Return the option of a field.

    >>> option_of("image_column")
    '--image-column'
    """
    return f"--{name.replace('_', '-')}"


def check_not_given(group: object, names: Iterable[str], why: str) -> None:
    """Raise if one of some options was given, which has no meaning here."""
    found = given(group)
    for name in names:
        if name in found:
            raise UsageError(f"{option_of(name)}: {why}")


MOST = 10**15
"""The largest number of rows or the like that is tried."""


def check_count(n: int, minimum: int, option: str = "-n") -> None:
    """Raise unless a number is at least ``minimum``, and one that a memory could hold."""
    if n < minimum:
        raise UsageError(f"{option}: expected at least {minimum}, got {n}")
    if n > MOST:
        raise UsageError(f"{option}: expected at most {MOST}, got {n}")


def rows_text(n: int) -> str:
    """Return a number of rows as text.

    >>> rows_text(1), rows_text(2)
    ('1 row', '2 rows')
    """
    return f"{n} row" if n == 1 else f"{n} rows"


def check_seed(seed: int | None) -> None:
    """Raise unless a seed is one that every generator of random numbers takes."""
    if seed is not None and not 0 <= seed < 2**32:
        raise UsageError(f"--seed: expected a number from 0 to {2**32 - 1}, got {seed}")


def check_one_stdin(first: str, second: str | None, both: str = "the model and the data") -> None:
    """Raise if two inputs, the model and the data, would come from standard input."""
    if first == second == STANDARD:
        raise UsageError(f"{both} cannot both be standard input")


def check_file(output: str, *, binary: bool = True) -> None:
    """Raise unless a file can be written there."""
    from oism._core.atomic import check_writable

    if output != STANDARD:
        check_writable(output)
    elif binary and sys.stdout.isatty():
        raise UsageError("-o: this is no text for a terminal: name a file, or redirect the output")


def check_table(output: str, format: str | None) -> str:  # noqa: A002
    """Return the format of a table that can be written there."""
    from oism.data.files import TEXT_FORMATS, format_of

    kind = format_of(output, format)
    check_file(output, binary=kind not in TEXT_FORMATS)
    return kind


def is_same_file(first: str, second: str) -> bool:
    """Return whether two names are those of one file that exists."""
    exist = STANDARD not in (first, second) and os.path.exists(first) and os.path.exists(second)
    return exist and os.path.samefile(first, second)


def check_not_input(output: str, source: str) -> None:
    """Raise if the output would replace the input."""
    if is_same_file(output, source):
        raise UsageError(f"-o: {output} is the input, and would be overwritten")


def print_json(facts: Mapping[str, object]) -> None:
    """Print facts as JSON, null for numbers that are not finite."""
    print(json.dumps(plain(facts), indent=2, allow_nan=False, ensure_ascii=False))
