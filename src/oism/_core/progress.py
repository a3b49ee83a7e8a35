"""How long work shows where it stands: one bar, on a terminal, once it has taken a second."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tqdm import tqdm

_silent = ContextVar("_silent", default=False)


@contextmanager
def no_bars() -> Iterator[None]:
    """Show no bar within, unless one is asked for by name."""
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)


class Progress:
    """A bar over the stages of a fit; shown on a terminal once a fit has taken a second."""

    def __init__(self, bar: tqdm[None]) -> None:
        self._bar = bar

    @property
    def shown(self) -> bool:
        """Whether there is anyone to tell."""
        return not self._bar.disable

    def stage(self, name: str, total: int | None = None) -> None:
        """Begin a stage."""
        self._bar.set_description_str(name, refresh=False)
        self._bar.reset(total)

    def advance(self, steps: int) -> None:
        """Report steps done."""
        self._bar.update(steps)

    def reach(self, place: int) -> None:
        """Report where a stage without a known end stands."""
        self._bar.update(place - self._bar.n)

    def note(self, words: str) -> None:
        """Say something beside the bar, from its next turn on."""
        self._bar.set_postfix_str(words, refresh=False)


@contextmanager
def progress_bar(show: bool | None) -> Iterator[Progress]:
    """Open a bar: shown, not shown, or (None) shown on a terminal if it takes a while."""
    disable = (_silent.get() or None) if show is None else not show
    with tqdm(disable=disable, delay=1.0 if show is None else 0.0, leave=False) as bar:
        yield Progress(bar)
