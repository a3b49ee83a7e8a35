"""The distribution of the study fokker-planck, and its measurements."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from studies.fokker_planck.study import FokkerPlanck
from studies.ring import NOISING, PROCESS, Ring, scaled_residual, train

RING = Ring()


def grid(side: int = 121, reach: float = 6.0) -> tuple[torch.Tensor, float]:
    ends = torch.linspace(-reach, reach, side, dtype=torch.float64)
    return torch.cartesian_prod(ends, ends), float(ends[1] - ends[0]) ** 2


@pytest.mark.parametrize("t", [0.01, 0.3, 2.0])
def test_mass_mean_and_second_moment_follow_the_process(t: float) -> None:
    """Mass one; mean zero; E‖X_t‖² = e^{-2t}(r² + 2s²) + 2(1 - e^{-2t})."""
    x, cell = grid(241)
    density = RING.log_density(x, torch.full((len(x),), t)).exp() * cell
    assert float(density.sum()) == pytest.approx(1, abs=1e-7)
    assert (density @ x).abs().max() < 1e-9
    decay = math.exp(-2 * t)
    expected = decay * (1.2**2 + 2 * 0.25**2) + 2 * (1 - decay)
    assert float(density @ x.square().sum(dim=1)) == pytest.approx(expected, rel=1e-6)


def test_the_score_is_the_gradient_of_the_log_density() -> None:
    x = torch.tensor([[0.3, -0.7], [1.1, 0.2]], dtype=torch.float64)
    t, step = torch.tensor([0.05, 0.4], dtype=torch.float64), 1e-5
    found = RING.score(x, t)
    for j in range(2):
        side = torch.zeros(2, dtype=torch.float64)
        side[j] = step
        slope = (RING.log_density(x + side, t) - RING.log_density(x - side, t)) / (2 * step)
        torch.testing.assert_close(found[:, j], slope, rtol=1e-6, atol=1e-6)


def test_moments_of_draws() -> None:
    x = RING.sample(20_000, torch.Generator().manual_seed(0))
    assert x.dtype == torch.float32
    assert float(x.square().sum(dim=1).mean()) == pytest.approx(1.2**2 + 2 * 0.25**2, rel=0.01)
    assert float(x.mean(dim=0).norm()) < 0.02


def test_training_depends_on_the_generator_and_the_residual() -> None:
    nets = [train(RING, weight, 3, torch.Generator().manual_seed(0)) for weight in (0.0, 0.0, 1.0)]
    x, t = RING.sample(5, torch.Generator().manual_seed(1)), torch.full((5,), 0.2)
    first, again, other = (net.score(x, t) for net in nets)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert nets[0].steps == 3
    assert nets[2].milliseconds > 0
    residual = scaled_residual(nets[0].score, x, t)
    assert residual.shape == x.shape
    assert not residual.requires_grad


def test_residuals_of_the_exact_score() -> None:
    study = FokkerPlanck(tested=50)
    times = study.times
    assert len(times) == 12
    gaps = NOISING.log_snr(NOISING.clock.inverse(times)).diff()
    torch.testing.assert_close(gaps, gaps.mean().expand(11), rtol=1e-6, atol=1e-6)
    exact, printed = study.measure_truth(RING)
    assert exact.max() < 1e-12
    assert (printed > 0.01).all()
    # The residual of the printed equation is 2∇⟨x, s⟩ up to the sign.
    x, t = (part.reshape(12, 50, -1)[6] for part in study.draws(RING))
    pushed = torch.func.grad(lambda y: (y * RING.score(y, t[:, 0])).sum())(x.double())
    size = 2 * float(PROCESS.variance(float(t[0]))) ** 1.5 * float(pushed.square().mean().sqrt())
    assert printed[6] == pytest.approx(size, rel=1e-6)
    assert np.isfinite(printed).all()
