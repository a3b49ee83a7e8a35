from __future__ import annotations

import io
import sys

import pytest

from oism._core.progress import no_bars, progress_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(show: bool | None) -> bool:
    with progress_bar(show) as bar:
        return bar.shown


def test_bars_are_for_terminals_and_can_be_silenced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert shown(None)
    with no_bars():
        assert not shown(None)
        assert shown(True), "one that is asked for by name"
    assert shown(None)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert not shown(None)
