"""Densities of points of the three-sphere, from data to samples."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from oism import CrossValidation, fit
from oism.basis import Hyperspherical
from oism.flow import RungeKutta4
from oism.process import ThreeSphere

CENTRES = torch.tensor([[1.0, 0.0, 0.0, 0.0], [-0.5, 0.5, 0.5, 0.5]]).double()
TIMES = torch.tensor([0.12, 0.06]).double()
SHARE = torch.tensor([0.6, 0.4]).double()


def draws(n: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    k = torch.multinomial(SHARE, n, replacement=True, generator=generator)
    return ThreeSphere().transition(TIMES[k]).sample(CENTRES[k], generator=generator)


def truth(x: Tensor) -> Tensor:
    parts = [
        share.log() + ThreeSphere().transition(t).log_density(x, centre.expand_as(x))
        for share, t, centre in zip(SHARE, TIMES, CENTRES, strict=True)
    ]
    return torch.logsumexp(torch.stack(parts), dim=0)


def test_a_density_on_the_three_sphere_is_near_the_truth_and_samples_follow_it() -> None:
    """The truth differs at x and -x, unlike a density of rotations."""
    score = fit(draws(3000, 0), Hyperspherical(6), ridge=CrossValidation(times=12))
    method, test = RungeKutta4(24), draws(600, 1)
    gap = truth(test) - score.log_density(test, method=method)
    assert -0.02 < float(gap.mean()) < 0.05
    uniform = -math.log(2 * math.pi**2)
    assert float(truth(test).mean()) - uniform > 0.5
    nodes, weights = ThreeSphere().invariant.quadrature(4, 16)
    density = score.log_density(nodes, method=method).exp() * weights * 2 * math.pi**2
    assert float(density.sum()) == pytest.approx(1, abs=2e-3)
    n = 1500
    samples = score.flow.sample(
        n, method=method, generator=torch.Generator().manual_seed(2), dtype=torch.float64
    )
    basis = Hyperspherical(2)
    values = basis(samples)
    error = (values.mean(dim=0) - density @ basis(nodes)) / (values.std(dim=0) / math.sqrt(n))
    assert float(error.abs().max()) < 4.5
    opposite = (basis(-samples).mean(dim=0) - density @ basis(nodes)).abs().max()
    assert float(opposite) > 0.5
