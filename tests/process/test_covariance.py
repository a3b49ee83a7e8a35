"""Factors of covariances, also of singular ones, and their Gaussian distributions."""

from __future__ import annotations

import math

import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.func import jacrev, vmap

from oism.process import CorrelatedGaussian, Gaussian, Quadrature
from oism.process._covariance import act, root, spread, whitener
from oism.process._expectation import expectation

from .systems import matrix, normal

SIGMA = matrix([2.0, 0.6, 0.0], [0.6, 0.5, -0.3], [0.0, -0.3, 1.1])


def of_rank(size: int, rank: int, seed: int) -> Tensor:
    """A covariance of a given rank, with deviations over twelve orders of magnitude."""
    units = 10 ** (12 * torch.rand(size, generator=torch.Generator().manual_seed(seed)) - 6)
    factor = units.double()[:, None] * normal(size, max(rank, 1), seed=seed) * bool(rank)
    return factor @ factor.mT


@given(size=st.integers(1, 6), missing=st.integers(0, 6), seed=st.integers(0, 500))
def test_factors_of_any_rank(size: int, missing: int, seed: int) -> None:
    rank = max(0, size - missing)
    sigma = of_rank(size, rank, seed)
    factor = root(sigma)
    scale = sigma.diagonal().sqrt()
    defect = (factor @ factor.mT - sigma).abs()
    assert bool((defect <= 1e-12 * scale[:, None] * scale).all())
    # W is finite if and only if Σ is definite.
    inverse, log_det, definite = whitener(sigma)
    if rank < size:
        assert not definite
        assert inverse.isnan().all()
        assert log_det.isnan()
    elif definite:
        correlation = sigma / (scale[:, None] * scale)
        condition = float(torch.linalg.cond(correlation))
        torch.testing.assert_close(
            inverse @ sigma @ inverse.mT, torch.eye(size).double(), rtol=0, atol=1e-13 * condition
        )
        right = -0.5 * float(torch.linalg.slogdet(correlation)[1]) - float(scale.log().sum())
        assert float(log_det) == pytest.approx(right, abs=1e-13 * condition)


def test_rows_of_a_batch_are_independent() -> None:
    batch = torch.stack((SIGMA, of_rank(3, 1, 0), torch.zeros(3, 3).double(), of_rank(3, 2, 1)))
    for together in (root(batch), vmap(root)(batch)):
        torch.testing.assert_close(together, torch.stack([root(s) for s in batch]))
    torch.testing.assert_close(root(SIGMA), torch.linalg.cholesky(SIGMA))
    assert whitener(batch)[2].tolist() == [True, False, False, False]


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_factors_are_differentiable_at_every_rank(rank: int) -> None:
    base = normal(3, rank, seed=3)

    def of(angle: Tensor) -> Tensor:
        moved = (1 + angle) * base + angle.square() * base.flip(0)
        return moved @ moved.mT

    angle = torch.tensor(0.3, dtype=torch.float64)
    for jacobian in (torch.func.jacfwd, torch.func.jacrev):
        back = jacobian(lambda a: root(of(a)) @ root(of(a)).mT)(angle)
        torch.testing.assert_close(back, jacobian(of)(angle), rtol=1e-9, atol=1e-9)


def test_matrices_act_on_copies_as_kronecker_products(generator: torch.Generator) -> None:
    x, a = normal(4, 2, 3), normal(3, 3, seed=1)
    expected = (torch.kron(a, torch.eye(2)) @ x.flatten(1).mT).mT.reshape(x.shape)
    torch.testing.assert_close(act(a, x, 2), expected)
    torch.testing.assert_close(spread(a, 2), torch.kron(a, torch.eye(2).double()))
    several = normal(4, 3, 3, seed=2)
    expected = torch.stack([act(m, row[None], 2)[0] for m, row in zip(several, x, strict=True)])
    torch.testing.assert_close(act(several, x, 2), expected)
    torch.testing.assert_close(spread(several, 2)[1], spread(several[1], 2))
    assert act(a, x[:0], 2).shape == (0, 2, 3)


def test_densities_agree_with_scipy() -> None:
    x = normal(20, 3)
    right = scipy.stats.multivariate_normal(cov=SIGMA.numpy()).logpdf(x.numpy())
    law = CorrelatedGaussian(SIGMA)
    torch.testing.assert_close(law.log_density(x), torch.from_numpy(right))
    torch.testing.assert_close(law.precision, torch.linalg.inv(SIGMA))
    copies = CorrelatedGaussian(SIGMA, copies=2)
    both = torch.stack((x[:10], x[10:]), dim=2)
    right = right.reshape(2, 10).sum(axis=0)
    torch.testing.assert_close(copies.log_density(both), torch.from_numpy(right))
    same = CorrelatedGaussian(matrix([0.4]), copies=3)
    torch.testing.assert_close(same.log_density(x), Gaussian(0.4).log_density(x))
    torch.testing.assert_close(same.score(x), Gaussian(0.4).score(x))


@pytest.mark.parametrize("copies", [1, 2])
def test_score_is_the_gradient(copies: int) -> None:
    law, x = CorrelatedGaussian(SIGMA, copies), normal(5, 3 * copies)
    gradient = vmap(jacrev(lambda y: law.log_density(y[None])[0]))(x)
    torch.testing.assert_close(law.score(x), gradient)


def test_samples_and_rules_have_the_covariance(generator: torch.Generator) -> None:
    singular = of_rank(3, 2, 4)
    for sigma in (SIGMA, singular / singular.diagonal().max()):
        law = CorrelatedGaussian(sigma)
        second = expectation(
            lambda x: x[:, :, None] * x[:, None], law, (3,), Quadrature(4), dtype=torch.float64
        )
        torch.testing.assert_close(second, law.covariance, rtol=1e-13, atol=1e-15)
        draws = law.sample((100_000, 3), generator=generator, dtype=torch.float64)
        scale = sigma.diagonal().sqrt()
        error = (draws.mT.cov() - sigma) / (scale[:, None] * scale)
        assert float(error.abs().max()) < 0.02
        along = draws[:, 0] / scale[0]
        assert scipy.stats.kstest(along, scipy.stats.norm.cdf).pvalue > 0.01
        assert scipy.stats.kstest(1.1 * along, scipy.stats.norm.cdf).pvalue < 1e-6
    columns = CorrelatedGaussian(SIGMA, 2).sample((50_000, 3, 2), generator=generator)
    torch.testing.assert_close(
        columns.flatten(1).mT.cov().double(), spread(SIGMA, 2), rtol=0, atol=0.05
    )


def test_invalid_arguments_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"covariance must be square, got shape \(1, 2\)"):
        CorrelatedGaussian(torch.ones(1, 2))
    for wrong in (matrix([1.0, 2.0], [2.0, 1.0]), matrix([1.0, 0.5], [0.0, 1.0]), -torch.eye(2)):
        with pytest.raises(ValueError, match="covariance must be symmetric and semidefinite"):
            CorrelatedGaussian(wrong)
    with pytest.raises(ValueError, match=r"covariance must be finite, but covariance\[0, 0\]"):
        CorrelatedGaussian(torch.full((2, 2), math.nan))
    with pytest.raises(ValueError, match="copies must be an integer >= 1, got 0"):
        CorrelatedGaussian(SIGMA, 0)
    flat = CorrelatedGaussian(of_rank(3, 2, 1))
    for method in (flat.score, flat.log_density):
        with pytest.raises(ValueError, match="positive definite for a density, got one of rank 2"):
            method(torch.zeros(1, 3))
    law = CorrelatedGaussian(SIGMA)
    with pytest.raises(ValueError, match=r"x must have 3 entries per point, got shape \(2, 4\)"):
        law.score(torch.zeros(2, 4))
    with pytest.raises(ValueError, match="dim must be 3, the entries of a point, got 2"):
        law.quadrature(2, 4)
    with pytest.raises(
        ValueError, match=r"shape must have 3 entries per point, got shape \(2, 2\)"
    ):
        law.sample((2, 2))
