"""Symmetric linear SDEs in independent coordinates."""

from __future__ import annotations

import math

import pytest
import scipy.linalg
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oism import Linear, OrnsteinUhlenbeck, TensorHermite, fit
from oism.basis import WhitenedHermite
from oism.process import InfinitesimalGenerator, Semigroup, Whitening

from .systems import CRITICAL, SWIRL, UNSTABLE, matrix, normal


def symmetric(size: int, seed: int = 0, copies: int = 1) -> Linear:
    """F = -GΣ∞⁻¹ with random G and Σ∞, which do not commute."""
    a, b = (m @ m.mT + 0.3 * torch.eye(size) for m in normal(2, size, size, seed=seed))
    return Linear(-a @ torch.linalg.inv(b), torch.linalg.cholesky(2 * a), copies)


@given(size=st.integers(1, 5), seed=st.integers(0, 500), copies=st.integers(1, 2))
def test_the_coordinates_are_independent(size: int, seed: int, copies: int) -> None:
    process = symmetric(size, seed, copies)
    whitening = Whitening(process)
    w, rates = whitening.matrix, whitening.rates
    eye = torch.eye(size * copies).double()
    large = [
        torch.kron(m, torch.eye(copies).double()) for m in (process.drift_matrix, _noise(process))
    ]
    unit = torch.linalg.inv(w)
    # W F W⁻¹ = -Θ, W LLᵀ Wᵀ = 2Θ, W Σ∞ Wᵀ = I.
    size_of = float(rates.max()) * float(torch.linalg.cond(w))
    assert float((w @ large[0] @ unit + torch.diag(rates)).abs().max()) < 1e-12 * size_of
    assert float((w @ large[1] @ w.mT - 2 * torch.diag(rates)).abs().max()) < 1e-12 * size_of
    sigma = torch.kron(process.stationary_covariance, torch.eye(copies).double())
    torch.testing.assert_close(w @ sigma @ w.mT, eye, rtol=0, atol=1e-11)
    assert bool((rates > 0).all())
    assert bool((rates.diff() >= 0).all())
    spectrum = torch.linalg.eigvals(process.drift_matrix).real.neg().sort()[0]
    torch.testing.assert_close(rates, spectrum.repeat_interleave(copies), rtol=1e-9, atol=1e-9)
    assert whitening.log_det == pytest.approx(float(torch.linalg.slogdet(w)[1]), abs=1e-12)
    x = normal(4, size * copies)
    y = whitening.analyse(x)
    torch.testing.assert_close(y, x @ w.mT)
    torch.testing.assert_close(whitening.synthesise(y), x, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(whitening.pull_back(y), y @ w)


def _noise(process: Linear) -> Tensor:
    return process.noise_matrix @ process.noise_matrix.mT


def test_the_coordinates_agree_with_the_symmetric_root() -> None:
    # y = RᵀΣ∞^{-1/2}x, up to the signs of the directions.
    process = symmetric(3, 4)
    half = torch.from_numpy(scipy.linalg.sqrtm(process.stationary_covariance.numpy()))
    similar = torch.linalg.inv(half) @ process.drift_matrix @ half
    torch.testing.assert_close(similar, similar.mT)
    turn = torch.linalg.eigh(-0.5 * (similar + similar.mT))[1]
    other = turn.mT @ torch.linalg.inv(half)
    overlap = other @ torch.linalg.inv(Whitening(process).matrix)
    torch.testing.assert_close(overlap.abs(), torch.eye(3).double(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("t", [1e-3, 0.5, 3.0])
def test_the_transition_density_is_a_product(t: float) -> None:
    process = symmetric(3, 1)
    whitening = Whitening(process)
    x, y = normal(5, 3), normal(5, 3, seed=1)
    ours = process.transition(t).log_density(y, x)
    u, v = whitening.analyse(x), whitening.analyse(y)
    total = torch.full((5,), whitening.log_det, dtype=torch.float64)
    for i, rate in enumerate(whitening.rates.tolist()):
        one = OrnsteinUhlenbeck(theta=rate, sigma=math.sqrt(2 * rate))
        total += one.transition(t).log_density(v[:, i : i + 1], u[:, i : i + 1])
    torch.testing.assert_close(ours, total, rtol=1e-10, atol=1e-10)


def test_eigenfunctions_with_copies() -> None:
    process = symmetric(2, 3, copies=2)
    basis = WhitenedHermite(process, 3)
    assert basis.dim == 4
    assert basis.size == math.comb(7, 3) - 1
    x = normal(6, 4)
    generated = InfinitesimalGenerator(process)(basis)(x)
    torch.testing.assert_close(generated, basis.eigenvalues * basis(x), rtol=1e-10, atol=1e-10)


def test_functions_are_sorted_by_eigenvalue_not_by_degree() -> None:
    process = Linear(-torch.diag(matrix([0.1, 1.0])[0]), torch.eye(2))
    basis = WhitenedHermite(process, 3)
    assert basis.indices.tolist()[:4] == [[1, 0], [2, 0], [3, 0], [0, 1]]
    assert basis.eigenvalues[:4].tolist() == pytest.approx([-0.1, -0.2, -0.3, -1.0])


def test_equal_rates_give_the_functions_of_ornstein_uhlenbeck() -> None:
    known = OrnsteinUhlenbeck(theta=0.7, sigma=1.3)
    process = Linear(-0.7 * torch.eye(2).double(), 1.3 * torch.eye(2).double())
    x = normal(6, 2)
    ours, theirs = WhitenedHermite(process, 3), TensorHermite(2, 3, known)
    torch.testing.assert_close(ours.eigenvalues, theirs.eigenvalues)
    # Whitened directions have any order and sign: compare quantities that do not depend on it.
    for basis in (ours, theirs):
        assert basis.size == 9
    a, b = torch.randn(2, 6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close((ours(a) * ours(b)).sum(dim=1), (theirs(a) * theirs(b)).sum(dim=1))
    torch.testing.assert_close(
        ours.laplacians(x).square().sum(), theirs.laplacians(x).square().sum()
    )


def test_a_fit_in_whitened_coordinates_is_a_fit_of_the_process() -> None:
    # One rate, any Σ∞: OrnsteinUhlenbeck in y. Order 2 is the Gaussian: its score is known.
    theta = 0.8
    sigma = matrix([2.0, 0.9], [0.9, 0.7])
    process = Linear(-theta * torch.eye(2).double(), torch.linalg.cholesky(2 * theta * sigma))
    whitening = Whitening(process)
    data = 0.6 * normal(400, 2) @ matrix([1.0, 0.4], [0.0, 0.5]) + matrix([0.3, -0.2])
    one = OrnsteinUhlenbeck(theta=theta, sigma=math.sqrt(2 * theta))
    score = fit(whitening.analyse(data), TensorHermite(2, 2, one), ridge=0.0)
    x, t = normal(5, 2), 0.4
    ours = whitening.pull_back(score.score(whitening.analyse(x), t))
    law = process.transition(t)
    centred = data - data.mean(dim=0)
    spread = centred.mT @ centred / len(data)
    covariance = law.means @ spread @ law.means.mT + law.covariances
    step = x - law.mean(data.mean(dim=0, keepdim=True))
    right = -torch.linalg.solve(covariance, step.mT).mT
    torch.testing.assert_close(ours, right, rtol=1e-6, atol=1e-6)


def test_the_semigroup_in_three_dimensions() -> None:
    process = symmetric(3, 2)
    basis, x, t = WhitenedHermite(process, 3), normal(2, 3), 0.3
    averaged = Semigroup(process, t)(basis)(x)
    torch.testing.assert_close(averaged, torch.exp(t * basis.eigenvalues) * basis(x))


def test_invalid_processes_are_rejected() -> None:
    for kind in (Whitening, lambda process: WhitenedHermite(process, 2)):
        for process in (SWIRL, CRITICAL):
            with pytest.raises(ValueError, match="process must be symmetric, FΣ∞ = Σ∞Fᵀ"):
                kind(process)
        with pytest.raises(ValueError, match="drift_matrix must be Hurwitz"):
            kind(UNSTABLE["growing"])
        with pytest.raises(
            ValueError, match="process must have a stationary distribution, got one without"
        ):
            kind(Linear(torch.zeros(2, 2), torch.eye(2)))
        with pytest.raises(TypeError, match="process must be of type Linear, got OrnsteinUhl"):
            kind(OrnsteinUhlenbeck())  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="covariance must be positive definite for a density"):
            kind(Linear(-torch.eye(2), matrix([1.0], [0.0])))
    with pytest.raises(ValueError, match="order must be an integer >= 1, got 0"):
        WhitenedHermite(symmetric(2), 0)
    with pytest.raises(ValueError, match="order must be smaller for dim = 40, got 9"):
        WhitenedHermite(symmetric(2, copies=20), 9)
    whitening = Whitening(symmetric(2))
    for method in (whitening.analyse, whitening.synthesise, whitening.pull_back):
        with pytest.raises(ValueError, match=r"must have 2 entries per point, got shape \(1, 3\)"):
            method(torch.zeros(1, 3))
