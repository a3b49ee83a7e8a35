"""Progress bars on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock

from tqdm import tqdm

_silent = ContextVar("_silent", default=False)

PARTS = 100
"""The number of steps of a bar whose progress is reported in shares."""


@contextmanager
def no_bars() -> Iterator[None]:
    """Show no bars within the block, except those with ``show=True``."""
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
        """Begin a stage of ``total`` steps; None if the number is unknown."""
        self._bar.set_description_str(name, refresh=False)
        self._bar.total = total  # `reset(None)` would keep the total of the previous stage
        self._bar.reset()

    def shares(self, name: str) -> Callable[[float], None]:
        """Begin a stage, and return a function to report the shares of it that are done.

        Shares sum to 1 up to rounding. The function is thread-safe.
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
        """Show a text next to the bar, from its next update on."""
        self._bar.set_postfix_str(words, refresh=False)


@contextmanager
def progress_bar(show: bool | None) -> Iterator[Progress]:
    """Open a bar: shown, not shown, or (None) shown on a terminal after one second."""
    disable = (_silent.get() or None) if show is None else not show
    delay = 1.0 if show is None else 0.0
    # Update at every step, at most ten times a second: the speed of a fit varies, and tqdm's
    # estimate of the step rate could stop updates for seconds.
    with tqdm(disable=disable, delay=delay, miniters=1, leave=False) as bar:
        yield Progress(bar)
