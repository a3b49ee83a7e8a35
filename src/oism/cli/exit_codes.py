"""Exit codes of the command, and its one-line messages for errors, warnings and signals."""

from __future__ import annotations

import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from oism.cli.wording import in_shell_words

SUCCESS, FAILURE, USAGE = 0, 1, 2
INTERRUPTED, BROKEN_PIPE, TERMINATED = 130, 141, 143


class UsageError(Exception):
    """Arguments of the command that are invalid, or that contradict each other."""


class Terminated(BaseException):
    """SIGTERM was received. As an exception it lets drafts of files be removed."""


SIGNALS = (KeyboardInterrupt, Terminated)
"""The exceptions that signals raise."""

CODES: dict[type[BaseException], int] = {
    UsageError: USAGE,
    KeyboardInterrupt: INTERRUPTED,
    Terminated: TERMINATED,
    **dict.fromkeys((ValueError, TypeError, OSError, MemoryError, RuntimeError), FAILURE),
    ImportError: FAILURE,
}
"""The exit codes of errors. Any other exception is a bug and keeps its traceback."""


def exit_code_of(work: Callable[[], None]) -> int:
    """Return the exit code of some work; an error is printed to standard error as one line."""
    try:
        with _one_line_warnings(), _raising_sigterm():
            work()
            sys.stdout.flush()
    except SystemExit as leaving:  # tyro, after help or an option that it does not have
        return leaving.code if isinstance(leaving.code, int) else SUCCESS
    except BrokenPipeError:
        # Python flushes standard output once more at exit, and nothing reads it any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except tuple(CODES) as caught:
        error = cause_of(caught)
        if os.environ.get("OISM_TRACEBACK", "") not in ("", "0"):
            traceback.print_exception(error)
        print(f"oism: error: {one_line(error)}", file=sys.stderr)
        return next(code for kind, code in CODES.items() if isinstance(error, kind))
    return SUCCESS


def cause_of(error: BaseException) -> BaseException:
    """Return the signal that an error was raised from, or the error itself.

    Python 3.11 raises a RuntimeError from a signal that arrives while a class is created.
    """
    cause = error.__cause__
    return cause if cause is not None and type(cause) in SIGNALS else error


def one_line(error: BaseException) -> str:
    """Return the message of an error on one line."""
    if isinstance(error, KeyboardInterrupt | Terminated):
        word = "interrupted" if isinstance(error, KeyboardInterrupt) else "terminated"
        return "; ".join((word, *getattr(error, "__notes__", ())))
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror[0].lower() + error.strerror[1:]
        return text if error.filename is None else f"{error.filename}: {text}"
    if isinstance(error, MemoryError):
        return f"out of memory: {error}" if str(error) else "out of memory"
    refused = ALLOCATION.search(str(error)) if isinstance(error, RuntimeError) else None
    if refused is not None:
        size = int(refused["bytes"]) / 2**30
        return f"out of memory: {size:,.1f} GiB are needed at once: ask for fewer rows"
    return " ".join(in_shell_words(str(error)).split()) or type(error).__name__


ALLOCATION = re.compile(r"allocate memory: you tried to allocate (?P<bytes>\d+) bytes")
"""What torch says when memory is refused, in a RuntimeError."""


@contextmanager
def _one_line_warnings() -> Iterator[None]:
    """Print warnings of the library as single lines; those of other packages are not shown."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        text = " ".join(in_shell_words(str(message)).split())
        print(f"oism: warning: {text}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = show
        yield


@contextmanager
def delayed_signals() -> Iterator[None]:
    """Within, signals to interrupt or terminate wait, and are then raised.

    For imports of packages in C++, which end the process if an exception interrupts them.
    """
    arrived: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        arrived.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if arrived:
        signal.raise_signal(arrived[0])


@contextmanager
def _raising_sigterm() -> Iterator[None]:
    def raise_terminated(_number: int, _frame: FrameType | None) -> NoReturn:
        raise Terminated

    before = signal.signal(signal.SIGTERM, raise_terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
