"""How the command ends: exit codes, one line for an error, warnings and signals."""

from __future__ import annotations

import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

FINE, WRONG, USAGE = 0, 1, 2
INTERRUPTED, BROKEN_PIPE, TERMINATED = 130, 141, 143


class UsageError(Exception):
    """The command line says something that cannot be meant."""


class ClaimError(Exception):
    """A study ran, and a claim of it does not hold."""


class Terminated(BaseException):
    """SIGTERM came: unwind, so that drafts are removed."""


CODES: dict[type[BaseException], int] = {
    UsageError: USAGE,
    KeyboardInterrupt: INTERRUPTED,
    Terminated: TERMINATED,
    **dict.fromkeys(
        (ClaimError, ValueError, TypeError, OSError, MemoryError, RuntimeError, ImportError), WRONG
    ),
}
"""What is not here is a fault of the program, and keeps its traceback."""


def guarded(work: Callable[[], None]) -> int:
    """Do the work and return the exit code that says how it went."""
    try:
        with _told_warnings(), _heeded_sigterm():
            work()
            sys.stdout.flush()
    except SystemExit as leaving:  # tyro, after help or a word it does not know
        return leaving.code if isinstance(leaving.code, int) else FINE
    except BrokenPipeError:
        # Python flushes standard output once more when it leaves; there is no one to flush to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except tuple(CODES) as error:
        if os.environ.get("OISM_TRACEBACK", "") not in ("", "0"):
            traceback.print_exception(error)
        print(f"oism: error: {one_line(error)}", file=sys.stderr)
        return next(code for kind, code in CODES.items() if isinstance(error, kind))
    return FINE


def one_line(error: BaseException) -> str:
    """Return what an error says, on one line."""
    if isinstance(error, KeyboardInterrupt | Terminated):
        word = "interrupted" if isinstance(error, KeyboardInterrupt) else "terminated"
        return "; ".join((word, *getattr(error, "__notes__", ())))
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror[0].lower() + error.strerror[1:]
        return text if error.filename is None else f"{error.filename}: {text}"
    if isinstance(error, MemoryError):
        return f"out of memory: {error}" if str(error) else "out of memory"
    return " ".join(str(error).split()) or type(error).__name__


@contextmanager
def _told_warnings() -> Iterator[None]:
    """Show what the library warns of as single lines, and nothing of what its libraries do."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        print(f"oism: warning: {' '.join(str(message).split())}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = show
        yield


@contextmanager
def _heeded_sigterm() -> Iterator[None]:
    def raise_terminated(_number: int, _frame: FrameType | None) -> NoReturn:
        raise Terminated

    before = signal.signal(signal.SIGTERM, raise_terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
