"""Progress of long work: one bar, on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock

from tqdm import tqdm

_silent = ContextVar("_silent", default=False)

PARTS = 100
"""The steps of a bar whose work is reported in shares."""


@contextmanager
def no_bars() -> Iterator[None]:
    """Show no bar within, unless one is asked for by name."""
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)


class Progress:
    """A bar over the stages of a fit."""

    def __init__(self, bar: tqdm[None]) -> None:
        self._bar = bar

    @property
    def shown(self) -> bool:
        """Whether the bar is displayed."""
        return not self._bar.disable

    def stage(self, name: str, total: int | None = None) -> None:
        """Begin a stage of ``total`` steps, or of a number that is not known."""
        self._bar.set_description_str(name, refresh=False)
        self._bar.total = total  # `reset` would keep that of the stage before where it is None
        self._bar.reset()

    def shares(self, name: str) -> Callable[[float], None]:
        """Begin a stage, and return the function that takes the shares of it as they are done.

        Shares sum to 1; what rounding adds to that is not shown. Threads may call it.
        """
        self.stage(name, PARTS)
        done, lock = 0.0, Lock()

        def advance(share: float) -> None:
            nonlocal done
            with lock:
                done += share
                self.reach(min(PARTS, int(PARTS * done + 1e-6)))

        return advance

    def advance(self, steps: int) -> None:
        """Report steps done."""
        self._bar.update(steps)

    def reach(self, place: int) -> None:
        """Report the number of steps done so far."""
        self._bar.update(place - self._bar.n)

    def note(self, words: str) -> None:
        """Show a text beside the bar, from its next update on."""
        self._bar.set_postfix_str(words, refresh=False)


@contextmanager
def progress_bar(show: bool | None) -> Iterator[Progress]:
    """Open a bar: shown, not shown, or (None) shown on a terminal if it takes a while."""
    disable = (_silent.get() or None) if show is None else not show
    delay = 1.0 if show is None else 0.0
    # At every step that comes a tenth of a second after the last: the pace of a fit is not even,
    # and tqdm's own guess would leave the bar as it is for seconds.
    with tqdm(disable=disable, delay=delay, miniters=1, leave=False) as bar:
        yield Progress(bar)
