"""A_t and b_t in standardised coordinates, compared with averages over noised points."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oism import Hermite, OrnsteinUhlenbeck, TensorHermite
from oism._core.quadrature import gauss_hermite, product
from oism.basis import HermiteFamily, OrthogonalFrame, Standardised
from oism.estimation import (
    HermiteEquations,
    HermiteMoments,
    TensorHermiteEquations,
    TensorHermiteMoments,
    fold_of,
)
from oism.process._operators import directional
from oism.score import Coordinates

FOLDS = 3
TIMES = torch.tensor([0.0, 0.05, 0.8], dtype=torch.float64)
OTHER = OrnsteinUhlenbeck(theta=0.6, sigma=1.7)
FRAME = OrthogonalFrame(
    torch.tensor([[0.6, 0.8], [-0.8, 0.6]], dtype=torch.float64),
)
LINES = {
    "line": Hermite(1, 6),
    "order 1": Hermite(2, 1, OTHER),
    "order 2": Hermite(1, 2, OTHER),
    "rotated plane": Hermite(2, 5, OTHER, FRAME),
}
TENSORS = {
    "line": TensorHermite(1, 5, OTHER),
    "order 1": TensorHermite(2, 1, OTHER),
    "plane": TensorHermite(2, 4),
    "rotated plane": TensorHermite(2, 3, OTHER, FRAME),
    "space": TensorHermite(3, 3, OTHER),
}
lines = pytest.mark.parametrize("basis", LINES.values(), ids=LINES.keys())
tensors = pytest.mark.parametrize("basis", TENSORS.values(), ids=TENSORS.keys())


def points(dim: int, n: int = 15) -> Tensor:
    generator = torch.Generator().manual_seed(dim)
    x = torch.randn(n, dim, generator=generator, dtype=torch.float64)
    mixing = torch.eye(dim, dtype=torch.float64) + 0.4 * torch.ones(dim, dim).triu(1)
    return 0.7 + (x + 0.3 * x.square()) @ mixing * torch.arange(1, dim + 1)


def moved(basis: HermiteFamily, standard: Standardised, x: Tensor) -> Tensor:
    """The coordinates Vz of the points, in units of the invariant distribution."""
    z = basis.frame.analyse(x) / math.sqrt(basis.process.stationary_variance)
    return z if standard.rotation is None else z @ standard.rotation.mT


def noised(basis: HermiteFamily, z: Tensor, t: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Noised points (n, q, dim), standardised by their own mean and deviation, and q weights.

    The rule with order + 1 nodes per axis is exact for products of gradients (degree 2·order - 2).
    """
    nodes, weights = product(*gauss_hermite(basis.order + 1), z.shape[1])
    theta = basis.process.theta
    later = math.exp(-theta * t) * z[:, None] + math.sqrt(-math.expm1(-2 * theta * t)) * nodes
    mass = weights[:, None] / len(z)
    mean = (mass * later).sum(dim=(0, 1))
    deviation = (mass * (later - mean).square()).sum(dim=(0, 1)).sqrt()
    if basis.order == 1:  # only the mean is fitted
        deviation = torch.ones_like(deviation)
    return (later - mean) / deviation, weights, mean, deviation


def groups(x: Tensor, part: str) -> list[Tensor]:
    """The rows of each average."""
    fold = fold_of(x, FOLDS)
    return {
        "total": [fold >= 0],
        "training": [fold != one for one in torch.unique(fold)],
        "heldout": [fold == one for one in torch.unique(fold)],
    }[part]


def assert_near(got: Tensor, expected: Tensor, relative: float = 1e-12) -> None:
    torch.testing.assert_close(got, expected, rtol=0, atol=relative * float(expected.abs().max()))


def twice(f: TensorHermite, u: Tensor, axis: Tensor) -> Tensor:
    """∂²f/∂uᵢ² by autodiff."""
    return directional(lambda y: directional(f, y, axis), u, axis)


@lines
@pytest.mark.parametrize("part", ["total", "training", "heldout"])
def test_equations_of_each_direction_are_averages_over_noised_points(
    basis: Hermite, part: str
) -> None:
    x = points(basis.dim)
    standard = HermiteMoments(basis, FOLDS).update(x).standardised()
    coordinates = Coordinates(basis.process, standard.shift, standard.scale)
    own = HermiteEquations(basis.order, coordinates, getattr(standard.averages, part))
    matrix, right = own.at(TIMES)
    rows = groups(x, part)
    batch = () if part == "total" else (len(rows),)
    assert matrix.shape == (3, *batch, basis.dim, basis.order, basis.order)
    assert right.shape == matrix.shape[:-1]
    plain = Hermite(1, basis.order)  # φ in standardised coordinates
    for i, t in enumerate(TIMES.tolist()):
        u, weights, _, _ = noised(basis, moved(basis, standard, x), t)
        for group, (a, b) in enumerate(
            zip(
                matrix[i].reshape(len(rows), *matrix.shape[-3:]),
                right[i].reshape(len(rows), *right.shape[-2:]),
                strict=True,
            )
        ):
            for j in range(basis.dim):
                chosen = u[rows[group], :, j]
                mass = weights.expand_as(chosen).flatten() / len(chosen)
                jet = plain.jet(chosen.reshape(-1, 1))
                slopes = jet.gradients[..., 0]
                expected = (mass[:, None] * slopes).mT @ slopes
                assert_near(a[j], expected, 1e-11)
                # The loss E[(g' - u)² + 2(g' - u)'] is E[g'²] + 2E[g'' - u g'] up to a constant.
                pull = jet.laplacians - chosen.reshape(-1, 1) * slopes
                scale = float((mass[:, None] * pull.abs()).sum(dim=0).max())
                torch.testing.assert_close(b[j], mass @ pull, rtol=0, atol=1e-12 * scale)


@tensors
@pytest.mark.parametrize("part", ["total", "training"])
def test_equations_of_products_are_averages_over_noised_points(
    basis: TensorHermite, part: str
) -> None:
    x = points(basis.dim, 10)
    standard = TensorHermiteMoments(basis, FOLDS).update(x).standardised()
    coordinates = Coordinates(basis.process, standard.shift, standard.scale)
    own = TensorHermiteEquations(basis.order, coordinates, getattr(standard.averages, part))
    matrix, right = own.at(TIMES)
    rows = groups(x, part)
    batch = () if part == "total" else (len(rows),)
    assert matrix.shape == (3, *batch, basis.size, basis.size)
    assert right.shape == matrix.shape[:-1]
    plain = TensorHermite(basis.dim, basis.order)
    axes = torch.eye(basis.dim, dtype=torch.float64)
    for i, t in enumerate(TIMES.tolist()):
        u, weights, _, deviation = noised(basis, moved(basis, standard, x), t)
        flat = u.flatten(0, 1)
        slopes = plain.gradients(flat)
        bends = torch.stack([twice(plain, flat, axis) for axis in axes], dim=-1)
        pull = (bends - flat[:, None] * slopes) @ deviation.pow(-2)
        scaled = slopes / deviation
        for group, (a, b) in enumerate(
            zip(
                matrix[i].reshape(len(rows), *matrix.shape[-2:]),
                right[i].reshape(len(rows), -1),
                strict=True,
            )
        ):
            mass = (rows[group].double()[:, None] * weights / rows[group].sum()).flatten()
            expected = torch.einsum("n,nki,nli->kl", mass, scaled, scaled)
            assert_near(a, expected, 1e-10)
            scale = float((mass[:, None] * pull.abs()).sum(dim=0).max())
            torch.testing.assert_close(b, mass @ pull, rtol=0, atol=1e-11 * scale)


def test_in_one_dimension_both_equations_agree_up_to_the_metric() -> None:
    x = points(1)
    single = HermiteMoments(Hermite(1, 6, OTHER), FOLDS).update(x).standardised()
    tensor = TensorHermiteMoments(TensorHermite(1, 6, OTHER), FOLDS).update(x).standardised()
    coordinates = Coordinates(OTHER, single.shift, single.scale)
    one = HermiteEquations(6, coordinates, single.averages.training).at(TIMES)
    all_ = TensorHermiteEquations(6, coordinates, tensor.averages.training).at(TIMES)
    metric = coordinates.at(TIMES)[1].pow(-2)  # (T, 1)
    assert_near(all_[0], metric[..., None, None] * one[0][:, :, 0], 1e-11)
    assert_near(all_[1], metric[..., None] * one[1][:, :, 0], 1e-11)


def test_right_hand_sides_vanish_up_to_degree_two() -> None:
    x = points(3, 40)
    basis, tensor = Hermite(3, 4, OTHER), TensorHermite(3, 3, OTHER)
    standard = HermiteMoments(basis, FOLDS).update(x).standardised()
    coordinates = Coordinates(OTHER, standard.shift, standard.scale)
    _, right = HermiteEquations(4, coordinates, standard.averages.total).at(TIMES)
    assert float(right[..., :2].abs().max()) < 1e-13
    assert float(right[..., 2:].abs().max()) > 0.1
    standard = TensorHermiteMoments(tensor, FOLDS).update(x).standardised()
    coordinates = Coordinates(OTHER, standard.shift, standard.scale)
    own = TensorHermiteEquations(3, coordinates, standard.averages.total)
    low = own.indices.sum(dim=1) <= 2
    _, right = own.at(TIMES)
    assert float(right[..., low].abs().max()) < 1e-13
    assert float(right[..., ~low].abs().max()) > 0.1


def test_rates_are_the_diagonal_of_a_gaussian() -> None:
    coordinates = Coordinates(OTHER, torch.zeros(2).double(), torch.tensor([0.5, 3.0]).double())
    means = torch.zeros(15, dtype=torch.float64)
    means[0] = 1.0
    own = TensorHermiteEquations(3, coordinates, means)
    matrix, right = own.at(TIMES)
    assert_near(matrix, torch.diag_embed(own.rates(TIMES)), 1e-13)
    assert bool((right == 0).all())
    variances = coordinates.at(TIMES)[1].square()
    cubic = own.indices.tolist().index([2, 1])
    expected = 2 / variances[:, 0] + 1 / variances[:, 1]
    torch.testing.assert_close(own.rates(TIMES)[:, cubic], expected, rtol=1e-14, atol=0)


@given(theta=st.floats(0.1, 5), sigma=st.floats(0.1, 5), s=st.floats(0.01, 20), t=st.floats(0, 3))
def test_coordinates_are_standardised_at_every_time(
    theta: float, sigma: float, s: float, t: float
) -> None:
    process = OrnsteinUhlenbeck(theta, sigma)
    shift = torch.tensor([2.0, -1.0], dtype=torch.float64)
    scale = torch.tensor([s, 1.0], dtype=torch.float64)
    coordinates = Coordinates(process, shift, scale)
    mean, deviation = coordinates.at(torch.tensor([t], dtype=torch.float64))
    assert mean.shape == deviation.shape == (1, 2)
    # In units of the invariant distribution: the process's α and σ_t².
    alpha = float(process.alpha(t))
    noise = float(process.variance(t)) / process.stationary_variance
    expected = [math.sqrt(alpha**2 * one**2 + noise) for one in (s, 1.0)]
    assert mean[0].tolist() == pytest.approx([2 * alpha, -alpha], rel=1e-12)
    assert deviation[0].tolist() == pytest.approx(expected, rel=1e-12)
    decay = coordinates.decay(torch.tensor([t], dtype=torch.float64))[0]
    ratio = [alpha * one / spread for one, spread in zip((s, 1.0), expected, strict=True)]
    assert decay.tolist() == pytest.approx(ratio, rel=1e-12)
    assert float(decay.max()) <= 1 + 1e-15
    alone = coordinates.at(torch.tensor(t, dtype=torch.float64))
    assert torch.equal(torch.stack(alone), torch.stack((mean[0], deviation[0])))


def test_the_deviation_of_a_constant_grows_with_time() -> None:
    zero = torch.zeros(1, dtype=torch.float64)
    coordinates = Coordinates(OTHER, zero, zero)
    mean, deviation = coordinates.at(TIMES)
    assert bool((mean == 0).all())
    assert float(deviation[0]) == pytest.approx(1e-6)
    expected = (-torch.expm1(-2 * OTHER.theta * TIMES[1:])).sqrt()
    torch.testing.assert_close(deviation[1:, 0], expected, rtol=1e-14, atol=0)
    assert bool((coordinates.decay(TIMES) == 0).all())


@lines
def test_evolved_averages_are_powers_of_the_decay(basis: Hermite) -> None:
    standard = HermiteMoments(basis, FOLDS).update(points(basis.dim)).standardised()
    coordinates = Coordinates(basis.process, standard.shift, standard.scale)
    own = HermiteEquations(basis.order, coordinates, standard.averages.training)
    evolved, decay = own.evolved(TIMES), coordinates.decay(TIMES)
    assert evolved.shape[-1] == max(basis.order, 2 * basis.order - 2) + 1
    for n in range(evolved.shape[-1]):
        expected = decay[:, None] ** n * standard.averages.training[None, :, n]
        torch.testing.assert_close(evolved[..., n], expected, rtol=1e-13, atol=1e-15)
