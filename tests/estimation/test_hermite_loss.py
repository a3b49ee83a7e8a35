"""Fits from averages: the same as from rows, and their losses."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.polynomial import hermite_e
from torch import Tensor

from oism import CrossValidation, Hermite, Logarithmic, fit, fit_prior
from oism.basis import Standardised
from oism.estimation import HermiteMoments, HermiteSystem, PlacedKnots, fit_standardised

CLOCK = Logarithmic(first=1e-3, last=3.0)
KNOTS = PlacedKnots(tolerance=1e-2, most=100)


def skewed(n: int, dim: int) -> Tensor:
    z = torch.randn(n, dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return 0.6 * (z + 0.3 * z.square()) + 0.2


def averages(x: Tensor, order: int, folds: int) -> Standardised:
    return HermiteMoments(Hermite(x.shape[1], order), folds).update(x).standardised()


@pytest.mark.parametrize("order", [3, 5])
def test_the_loss_is_the_implicit_score_matching_loss(order: int) -> None:
    """E[f'² + 2(f'' - u f')] over rows and noise, by Gauss's rule, for any coefficients."""
    x = skewed(12, 2)
    system = HermiteSystem(Hermite(2, order), averages(x, order, 1))
    generator = torch.Generator().manual_seed(1)
    times = torch.tensor([0.0, 0.05, 0.7], dtype=torch.float64)
    alpha = torch.randn(3, 2, order, generator=generator, dtype=torch.float64)
    found = system.loss(times, alpha)
    assert found.shape == (3, 2)
    nodes, weights = hermite_e.hermegauss(24)
    weights = weights / weights.sum()
    for i, t in enumerate(times.tolist()):
        decay, noise = math.exp(-t), -math.expm1(-2 * t)
        for column in range(2):
            z = x[:, column].numpy()
            mean, scale = decay * z.mean(), math.sqrt(decay**2 * z.var() + noise)
            u = (decay * z[:, None] + math.sqrt(noise) * nodes - mean) / scale
            roots = [math.sqrt(math.factorial(k)) for k in range(1, order + 1)]
            series = hermite_e.HermiteE([0.0, *(alpha[i, column].numpy() / roots)])
            first, second = series.deriv(1)(u), series.deriv(2)(u)
            expected = ((first**2 + 2 * (second - u * first)) @ weights).mean()
            assert float(found[i, column]) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_the_loss_is_minimal_at_the_solution() -> None:
    x = skewed(300, 2)
    system = HermiteSystem(Hermite(2, 4), averages(x, 4, 1))
    t = torch.tensor([0.01, 0.3], dtype=torch.float64)
    none = torch.zeros(2, 2, dtype=torch.float64)
    best = system.solve(t, none, none).alpha
    least = system.loss(t, best)
    assert bool((least < 0).all()), "smaller than that of the Gaussian, which is 0"
    generator = torch.Generator().manual_seed(2)
    for _ in range(5):
        step = 0.1 * torch.randn(best.shape, generator=generator, dtype=torch.float64)
        assert bool((system.loss(t, best + step) > least).all())


@pytest.mark.parametrize("ridge", [CrossValidation(folds=3, times=9), 0.01])
@pytest.mark.parametrize("order", [2, 4])
def test_averages_give_the_same_fit_as_rows(ridge: CrossValidation | float, order: int) -> None:
    x, basis = skewed(300, 2), Hermite(2, order)
    folds = ridge.folds if isinstance(ridge, CrossValidation) else 1
    found = fit_standardised(
        basis, averages(x, order, folds), clock=CLOCK, ridge=ridge, knots=KNOTS
    )
    expected = fit(x, basis, clock=CLOCK, ridge=ridge, knots=KNOTS)
    assert found.clock == CLOCK
    for t in (0.0, 0.02, 1.0):
        torch.testing.assert_close(
            found.score(x[:9], t), expected.score(x[:9], t), rtol=1e-9, atol=1e-9
        )


def test_cross_validation_with_one_fold_is_rejected() -> None:
    basis = Hermite(2, 3)
    one_fold = averages(skewed(20, 2), 3, 1)
    with pytest.raises(ValueError, match="data must fall into at least two folds for cross-valid"):
        fit_standardised(basis, one_fold, clock=CLOCK)
    assert fit_standardised(basis, one_fold, clock=CLOCK, ridge=0.1).curve.values.numel()
    with pytest.raises(ValueError, match="ridge must be CrossValidation"):
        fit_standardised(basis, one_fold, clock=CLOCK, ridge=-1.0)


def test_reported_losses_are_those_used_to_choose_the_ridge() -> None:
    """The error that a prior reports is computed from the losses that chose its ridge."""
    prior = fit_prior(skewed(400, 2), order=4)
    loss = prior.lines.diagnostics.loss
    assert bool(loss.isfinite().all())
    assert float(loss.min()) < -0.05
    assert np.allclose(loss[-1], 0, atol=1e-2), "the last distribution is Gaussian"
