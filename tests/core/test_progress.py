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
        assert shown(True), "one with show=True"
    assert shown(None)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert not shown(None)


def test_a_stage_of_unknown_length_has_no_total() -> None:
    with progress_bar(False) as bar:
        bar.stage("known", 17)
        assert bar._bar.total == 17
        bar.stage("unknown")
        assert bar._bar.total is None


def test_shares_never_exceed_the_total(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress_bar(True) as bar:
        advance = bar.shares("work")
        for share, steps in ((0.25, 25), (0.25, 50), (0.0, 50), (0.4999, 99), (0.3, 100), (1, 100)):
            advance(share)
            assert bar._bar.n == steps
        bar.shares("more work")
        assert bar._bar.n == 0
        assert bar._bar.total == 100
