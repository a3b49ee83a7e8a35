"""The bar of a fit moves with the work that is done, and never passes its end."""

from __future__ import annotations

import sys
import threading
from io import StringIO

import pytest
import torch
from torch import Tensor

from oism import Fourier, Hermite, fit
from oism.basis import Basis
from oism.estimation import SampleMeans, gather
from oism.score import System


def rows(n: int, dim: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, dim, generator=generator, dtype=torch.float64)
    return 0.5 * x + 0.3 * x.square() - 0.5


def system_of(basis: Basis) -> System:
    return gather(rows(200, basis.dim), basis, folds=5).system(SampleMeans())


@pytest.mark.parametrize(
    "basis",
    [Fourier.lattice(1, 64), Fourier.lattice(2, 60), Fourier.lattice(3, 9), Hermite(2, 4)],
    ids=["dense waves", "waves of the plane", "waves of space", "polynomials"],
)
def test_shares_of_the_work_are_positive_and_sum_to_one(basis: Basis) -> None:
    system = system_of(basis)
    t = torch.logspace(-4, 1, 6, dtype=torch.float64)
    shares: list[float] = []
    lock = threading.Lock()

    def advance(share: float) -> None:
        with lock:
            shares.append(share)

    with system.workers():
        losses = system.losses(t, advance=advance)
        assert torch.equal(losses.values, system.losses(t).values)
        assert min(shares) >= 0
        assert sum(shares) == pytest.approx(1.0)
        ridge = torch.full((6, *system.batch), 0.1, dtype=torch.float64)
        level = torch.zeros_like(ridge)
        for work in (system.solve, system.diagnose):
            shares.clear()
            found = work(t, ridge, level, advance=advance)
            assert torch.equal(found.alpha, work(t, ridge, level).alpha)
            assert sum(shares) == pytest.approx(1.0)


@pytest.mark.slow
def test_a_sweep_reports_many_small_shares() -> None:
    """No single report is most of the work: the bar is updated often."""
    system = system_of(Fourier.lattice(3, 40))
    shares: list[float] = []
    with system.workers():
        system.losses(torch.logspace(-4, 0, 6, dtype=torch.float64), advance=shares.append)
    assert len(shares) > 10
    assert max(shares) < 0.3


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_shows_no_more_than_its_total(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    fit(rows(300, 2), Fourier.lattice(2, 60), progress=True)
    shown = [part for part in terminal.getvalue().split("\r") if "/100" in part]
    assert {part.split(":")[0] for part in shown} >= {"choosing ridge and truncation", "solving"}
    for part in shown:
        done = int(part.split("/100")[0].rsplit("|", 1)[-1])
        assert 0 <= done <= 100
