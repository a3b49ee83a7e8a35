"""The Hermite systems, compared with brute force over the points and with separate solves."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oism import Hermite, OrnsteinUhlenbeck, TensorHermite
from oism.basis import Standardised
from oism.estimation import (
    HermiteMoments,
    HermiteSystem,
    TensorHermiteMoments,
    TensorHermiteSystem,
    fold_of,
)
from oism.estimation._systems.choice import choose
from oism.estimation._systems.nested import nested_solve
from oism.score import RIDGES

FOLDS = 3
OTHER = OrnsteinUhlenbeck(theta=0.6, sigma=1.7)
TIMES = torch.tensor([0.0, 0.1, 1.0], dtype=torch.float64)
START = torch.zeros(1, dtype=torch.float64)


def points(dim: int, n: int = 60) -> Tensor:
    """Skewed and correlated."""
    generator = torch.Generator().manual_seed(dim)
    x = torch.randn(n, dim, generator=generator, dtype=torch.float64)
    mixing = torch.eye(dim, dtype=torch.float64) + 0.4 * torch.ones(dim, dim).triu(1)
    return 0.7 + (x + 0.3 * x.square()) @ mixing * torch.arange(1, dim + 1)


def single(order: int, x: Tensor) -> tuple[HermiteSystem, Tensor]:
    """A system, and the points in its standardised coordinates."""
    basis = Hermite(x.shape[1], order, OTHER)
    standard = HermiteMoments(basis, FOLDS).update(x).standardised()
    return HermiteSystem(basis, standard), (x - x.mean(dim=0)) / x.std(dim=0, correction=0)


def tensor(order: int, x: Tensor) -> tuple[TensorHermiteSystem, Standardised, Tensor]:
    """The same in principal coordinates."""
    basis = TensorHermite(x.shape[1], order, OTHER)
    standard = TensorHermiteMoments(basis, FOLDS).update(x).standardised()
    rotation = standard.rotation
    assert rotation is not None
    z = x / math.sqrt(OTHER.stationary_variance) @ rotation.mT
    u = (z - z.mean(dim=0)) / z.std(dim=0, correction=0)
    return TensorHermiteSystem(basis, standard), standard, u


def full(value: float, *shape: int) -> Tensor:
    return torch.full(shape, value, dtype=torch.float64)


def spd(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    factor = torch.randn(*shape, shape[-1], generator=generator, dtype=torch.float64)
    return factor @ factor.mT + 0.5 * torch.eye(shape[-1], dtype=torch.float64)


@given(n=st.integers(1, 9), seed=st.integers(0, 10**6))
def test_nested_solutions_are_those_of_leading_blocks(n: int, seed: int) -> None:
    matrix, right = spd(2, 3, n, seed=seed), spd(2, 3, n, seed=seed + 1)[..., 0]
    # Far from a unit diagonal, as moments of high degree are.
    scale = 10.0 ** torch.linspace(-4, 4, n, dtype=torch.float64)
    matrix, right = scale[:, None] * matrix * scale, scale * right
    sizes = list(range(n, 0, -1))
    found = nested_solve(matrix, right, sizes)
    assert found.shape == (2, 3, n, n)
    for i, size in enumerate(sizes):
        # Scaled here, because the direct solver does not scale.
        block = (matrix / (scale[:, None] * scale))[..., :size, :size]
        expected = torch.linalg.solve(block, (right / scale)[..., :size]) / scale[:size]
        torch.testing.assert_close(
            found[..., i, :size] * scale[:size], expected * scale[:size], rtol=1e-9, atol=1e-10
        )
        assert bool((found[..., i, size:] == 0).all())


def test_only_blocks_that_are_indefinite_have_nan_solutions() -> None:
    matrix = spd(3, 4)
    matrix[1] -= 1.1 * torch.linalg.eigvalsh(matrix[1])[1] * torch.eye(4, dtype=torch.float64)
    found = nested_solve(matrix, torch.ones(3, 4, dtype=torch.float64), [4, 2])
    assert bool(found[1].isnan().all())
    assert bool(found[[0, 2]].isfinite().all())


@pytest.mark.parametrize(("order", "dim"), [(3, 1), (6, 1), (5, 3)])
def test_losses_of_directions_agree_with_brute_force(order: int, dim: int) -> None:
    x = points(dim)
    system, u = single(order, x)
    losses = system.losses(START)
    fold = fold_of(x, FOLDS)
    held = torch.unique(fold)
    assert losses.values.shape == (len(held), 1, dim, order - 1, len(RIDGES))
    assert losses.shares.tolist() == pytest.approx(
        [float((fold == f).double().mean()) for f in held]
    )
    plain = Hermite(1, order)  # the standard process: φ of u itself
    for j in range(dim):
        jet = plain.jet(u[:, j : j + 1])
        slopes, pull = (
            jet.gradients[..., 0],
            jet.laplacians - u[:, j : j + 1] * jet.gradients[..., 0],
        )
        for f, one in enumerate(held):
            fit = fold != one
            matrix = slopes[fit].mT @ slopes[fit] / fit.sum()
            right = pull[fit].mean(dim=0)
            rest = u[~fit, j]
            gaussian = score_loss(-rest, torch.full_like(rest, -1.0))
            for level in range(order - 1):
                size = order - level
                degree = torch.arange(1, size + 1, dtype=torch.float64)
                penalty = torch.where(degree > 2, degree**2, 0.0)
                for r, ridge in enumerate(RIDGES):
                    own = matrix[:size, :size] + torch.diag(ridge * penalty)
                    alpha = torch.linalg.solve(own, -right[:size])
                    # The score with that of the Gaussian, -u, and its derivative.
                    score = -rest + slopes[~fit, :size] @ alpha
                    bend = -1 + jet.laplacians[~fit, :size] @ alpha
                    expected = float(score_loss(score, bend) - gaussian)
                    got = float(losses.values[f, 0, j, level, r])
                    assert got == pytest.approx(expected, rel=1e-7, abs=1e-9)


def score_loss(score: Tensor, divergence: Tensor) -> Tensor:
    """E|s|² + 2E[∇·s] over rows, of one direction or many."""
    size = score.square() if score.ndim == 1 else score.square().sum(dim=1)
    return size.mean() + 2 * divergence.mean()


@pytest.mark.parametrize(("order", "dim"), [(3, 1), (4, 2)])
def test_losses_of_products_agree_with_brute_force(order: int, dim: int) -> None:
    x = points(dim)
    system, standard, u = tensor(order, x)
    losses = system.losses(START)
    fold = fold_of(x, FOLDS)
    plain = TensorHermite(dim, order)
    values = plain.values(u)
    metric = standard.scale.pow(-2)
    # Second derivatives along each axis by Hermite's equation, ∂ᵢ²φ = uᵢ∂ᵢφ - mᵢφ.
    slopes = plain.gradients(u)
    bends = u[:, None] * slopes - plain.indices * values[..., None]
    scaled = slopes / standard.scale  # gradients with respect to z
    degree = plain.indices.sum(dim=1)
    rates = plain.indices.double() @ metric
    penalty = torch.where(degree > 2, rates * degree, 0.0)
    sizes = [math.comb(dim + n, dim) - 1 for n in range(order, 1, -1)]
    assert system.sizes == sizes
    assert losses.values.shape == (len(torch.unique(fold)), 1, order - 1, len(RIDGES))
    for f, one in enumerate(torch.unique(fold)):
        fit = fold != one
        matrix = torch.einsum("nki,nli->kl", scaled[fit], scaled[fit]) / fit.sum()
        right = ((bends - u[:, None] * slopes)[fit] @ metric).mean(dim=0)
        base, base_bend = -u[~fit] / standard.scale, -metric.sum().expand(int((~fit).sum()))
        gaussian = score_loss(base, base_bend)
        for level, size in enumerate(sizes):
            for r, ridge in enumerate(RIDGES):
                own = matrix[:size, :size] + torch.diag(ridge * penalty[:size])
                alpha = torch.linalg.solve(own, -right[:size])
                score = base + torch.einsum("nki,k->ni", scaled[~fit, :size], alpha)
                bend = base_bend + (bends[~fit, :size] @ metric) @ alpha
                expected = float(score_loss(score, bend) - gaussian)
                got = float(losses.values[f, 0, level, r])
                assert got == pytest.approx(expected, rel=1e-7, abs=1e-9)


def test_a_level_is_a_lower_order() -> None:
    x = points(2)
    high, _ = single(6, x)
    ridge = torch.tensor([[0.01, 0.1]], dtype=torch.float64).expand(3, 2)
    for level in range(5):
        low, _ = single(6 - level, x)
        found = high.solve(TIMES, ridge, full(level, 3, 2)).alpha
        expected = low.solve(TIMES, ridge, full(0, 3, 2)).alpha
        assert found.shape == (3, 2, 6)
        assert bool((found[..., 6 - level :] == 0).all())
        torch.testing.assert_close(found[..., : 6 - level], expected, rtol=1e-9, atol=1e-11)


def test_a_level_is_a_lower_total_degree() -> None:
    x = points(2)
    high, _, _ = tensor(4, x)
    for level in range(3):
        low, _, _ = tensor(4 - level, x)
        found = high.solve(TIMES, full(0.02, 3), full(level, 3)).alpha
        expected = low.solve(TIMES, full(0.02, 3), full(0, 3)).alpha
        size = expected.shape[-1]
        assert bool((found[..., size:] == 0).all())
        torch.testing.assert_close(found[..., :size], expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", ["single", "tensor"])
def test_between_two_orders_solutions_are_interpolated(kind: str) -> None:
    x = points(2)
    system = single(5, x)[0] if kind == "single" else tensor(5, x)[0]
    shape = (3, *system.batch)
    ridge = full(0.01, *shape)
    at = [system.solve(TIMES, ridge, full(level, *shape)).alpha for level in range(system.levels)]
    half = system.solve(TIMES, ridge, full(1.5, *shape)).alpha
    torch.testing.assert_close(half, 0.5 * (at[1] + at[2]), rtol=1e-12, atol=1e-14)
    quarter = system.solve(TIMES, ridge, full(0.25, *shape)).alpha
    torch.testing.assert_close(quarter, 0.75 * at[0] + 0.25 * at[1], rtol=1e-12, atol=1e-14)
    # Levels beyond the ends equal those at the ends.
    for level, expected in ((-2.0, at[0]), (9.0, at[-1])):
        assert torch.equal(system.solve(TIMES, ridge, full(level, *shape)).alpha, expected)
    assert float(at[-1].abs().max()) < 1e-12  # the Gaussian itself
    assert float(at[0].abs().max()) > 0.01


def test_solutions_satisfy_the_penalised_equations() -> None:
    x = points(2)
    system, _ = single(5, x)
    ridge = torch.tensor([[1e-4, 0.5]], dtype=torch.float64).expand(3, 2)
    alpha = system.solve(TIMES, ridge, full(0, 3, 2)).alpha
    matrix, right = system._equations("total", TIMES)
    degree = torch.arange(1, 6, dtype=torch.float64)
    weight = ridge[..., None] * torch.where(degree > 2, degree**2, 0.0)
    left = (matrix @ alpha[..., None])[..., 0] + weight * alpha + right
    assert float(left.abs().max()) < 1e-10 * float(right.abs().max())


def test_each_direction_has_its_own_choice() -> None:
    x = points(2)
    both, _ = single(5, x)
    ridge = torch.tensor([[1e-4, 0.5]], dtype=torch.float64).expand(3, 2)
    level = torch.tensor([[0.0, 1.5]], dtype=torch.float64).expand(3, 2)
    alpha = both.solve(TIMES, ridge, level).alpha
    for j in range(2):
        alone, _ = single(5, x[:, j : j + 1])
        own = alone.solve(TIMES, ridge[:, j : j + 1], level[:, j : j + 1]).alpha
        torch.testing.assert_close(alpha[:, j : j + 1], own, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("order", [1, 2])
def test_low_orders_are_the_gaussian(order: int) -> None:
    x = points(2)
    line, (products, _, _) = single(order, x)[0], tensor(order, x)
    assert line.levels == products.levels == 1
    assert not line.has_choice
    assert not products.has_choice
    found = line.solve(TIMES, full(0, 3, 2), full(0, 3, 2)).alpha
    assert found.shape == (3, 2, order)
    assert float(found.abs().max()) < 1e-13
    found = products.solve(TIMES, full(0, 3), full(0, 3)).alpha
    assert found.shape == (3, {1: 2, 2: 5}[order])
    assert float(found.abs().max()) < 1e-13


def test_the_norm_is_that_of_the_score_without_the_gaussian_part() -> None:
    x = points(2)
    line, u = single(4, x)
    alpha = line.solve(START, full(0.01, 1, 2), full(0, 1, 2)).alpha
    scale = x.std(dim=0, correction=0) / math.sqrt(OTHER.stationary_variance)
    slopes = Hermite(2, 4).series(u, alpha[0].mT.flatten(), 1) / scale
    expected = slopes.square().sum(dim=1).mean().sqrt()
    assert float(line.norm(START, alpha)) == pytest.approx(float(expected), rel=1e-10)
    products, standard, u = tensor(4, x)
    alpha = products.solve(START, full(0.01, 1), full(0, 1)).alpha
    slopes = TensorHermite(2, 4).series(u, alpha[0], 1) / standard.scale
    expected = slopes.square().sum(dim=1).mean().sqrt()
    assert float(products.norm(START, alpha)) == pytest.approx(float(expected), rel=1e-10)


def test_diagnose_returns_the_extreme_eigenvalues() -> None:
    line, _ = single(4, points(2))
    ridge, level = full(0.01, 3, 2), full(0, 3, 2)
    found = line.diagnose(TIMES, ridge, level)
    assert torch.equal(found.alpha, line.solve(TIMES, ridge, level).alpha)
    matrix, _ = line._equations("total", TIMES)
    for i in range(3):
        for j in range(2):
            root = matrix[i, j].diagonal().sqrt()
            values = torch.linalg.eigvalsh(matrix[i, j] / root / root[:, None])
            assert float(found.smallest[i, j]) == pytest.approx(float(values[0]), rel=1e-9)
            assert float(found.largest[i, j]) == pytest.approx(float(values[-1]), rel=1e-12)


def test_indefinite_moments_do_not_give_nan() -> None:
    # E[φ₄] = -3 is not the moment of a distribution: E[u⁴] would be negative.
    basis = Hermite(2, 4, OTHER)
    standard = HermiteMoments(basis, FOLDS).update(points(2)).standardised()
    broken = standard.averages.total.clone()
    broken[4, 1] = -3.0
    averages = replace(standard.averages, total=broken)
    system = HermiteSystem(basis, replace(standard, averages=averages))
    matrix, _ = system._equations("total", START)
    assert float(torch.linalg.eigvalsh(matrix)[0, 1, 0]) < -1
    sound = HermiteSystem(basis, standard)
    for ridge in (0.0, 1e-6, 1.0):
        found = system.solve(TIMES, full(ridge, 3, 2), full(0, 3, 2)).alpha
        assert bool(found.isfinite().all())
        expected = sound.solve(TIMES, full(ridge, 3, 2), full(0, 3, 2)).alpha
        assert torch.equal(found[:, 0], expected[:, 0])  # the other direction is unchanged


def test_indefinite_training_moments_are_never_chosen() -> None:
    basis = Hermite(1, 4, OTHER)
    standard = HermiteMoments(basis, FOLDS).update(points(1)).standardised()
    broken = standard.averages.training.clone()
    broken[0, 4] = -0.6  # E[u⁴] = 0.06 < E[u²]²
    averages = replace(standard.averages, training=broken)
    system = HermiteSystem(basis, replace(standard, averages=averages))
    losses = system.losses(TIMES)
    assert bool(losses.values[0, 0].isnan().any())  # small ridges do not help
    assert bool(losses.values[1:].isfinite().all())
    for field in choose(losses):
        assert bool(field.isfinite().all())
    log_ridge, level, _ = choose(losses)
    place = (log_ridge[0] - RIDGES[0].log()) / (RIDGES[1] / RIDGES[0]).log()
    picked = losses.values[0, 0, 0, int(level[0])][round(float(place))]
    assert bool(picked.isfinite())


@pytest.mark.parametrize("ridge", [0.0, 1e-6, 1.0])
def test_two_distinct_values(ridge: float) -> None:
    x = torch.tensor([[-1.0], [2.0]], dtype=torch.float64).repeat(9, 1)[:-1]
    system, _ = single(6, x)
    found = system.solve(TIMES, full(ridge, 3, 1), full(0, 3, 1)).alpha
    assert bool(found.isfinite().all())
    products, _, _ = tensor(6, x)
    found = products.solve(TIMES, full(ridge, 3), full(0, 3)).alpha
    assert bool(found.isfinite().all())


def test_a_constant_column() -> None:
    x = points(2)
    x[:, 1] = 3.0
    system, _ = single(5, x)
    found = system.solve(TIMES, full(0.01, 3, 2), full(0, 3, 2)).alpha
    alone, _ = single(5, x[:, :1])
    expected = alone.solve(TIMES, full(0.01, 3, 1), full(0, 3, 1)).alpha
    torch.testing.assert_close(found[:, :1], expected, rtol=1e-9, atol=1e-11)
    assert bool((found[:, 1] == 0).all())


def test_batches_of_times_do_not_change_the_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    x = points(2)
    for system in (single(4, x)[0], tensor(4, x)[0]):
        shape = (3, *system.batch)
        ridge, level = full(0.01, *shape), full(0.5, *shape)
        whole, losses = system.solve(TIMES, ridge, level).alpha, system.losses(TIMES).values
        with monkeypatch.context() as patch:
            patch.setattr("oism.estimation._systems.nested_system.CHUNK", 1)
            torch.testing.assert_close(system.solve(TIMES, ridge, level).alpha, whole)
            torch.testing.assert_close(system.losses(TIMES).values, losses, rtol=1e-9, atol=1e-12)
