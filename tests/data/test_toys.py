from __future__ import annotations

import itertools
import math
from functools import cache

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import sklearn.datasets
import torch
from torch import Tensor
from torch.func import jacrev, vmap

from oism.data.toys import (
    BART_SIMPSON,
    PLANE,
    Circles,
    Moon,
    Pinwheel,
    PlaneDistribution,
    Reflected,
    Spiral,
    SwissRoll,
)

names = pytest.mark.parametrize("name", PLANE)
SIDE, CELLS = 10.0, 160  # the square [-5, 5]², which holds all but 1e-6 of every distribution


@cache
def entropy(name: str) -> float:
    return PLANE[name].entropy()


@cache
def density(name: str) -> Tensor:
    """Return p at the middles of the cells of a grid."""
    axis = (torch.arange(CELLS, dtype=torch.float64) + 0.5) * (SIDE / CELLS) - SIDE / 2
    log = PLANE[name].log_density(torch.cartesian_prod(axis, axis))
    return log.exp().reshape(CELLS, CELLS)


def misfit(name: str, x: Tensor) -> float:
    """Return the p-value of χ²: points counted on a coarse board against the density."""
    board = 20
    expected = density(name).reshape(board, CELLS // board, board, CELLS // board).sum(dim=(1, 3))
    expected = expected / expected.sum() * len(x)
    edges = torch.linspace(-SIDE / 2, SIDE / 2, board + 1, dtype=torch.float64)
    counts = np.histogram2d(x[:, 0].numpy(), x[:, 1].numpy(), bins=[edges.numpy()] * 2)[0]
    full = (expected > 5).numpy()
    seen = np.append(counts[full], len(x) - counts[full].sum())
    hoped = np.append(expected.numpy()[full], len(x) - expected.numpy()[full].sum())
    return float(scipy.stats.chisquare(seen[hoped > 1e-6], hoped[hoped > 1e-6], sum_check=False)[1])


def ffjord(name: str, n: int) -> Tensor:
    """Return n points as FFJORD draws them: in classes of equal size, angles on a grid."""
    rng = np.random.default_rng(0)
    if name == "swissroll":
        x = sklearn.datasets.make_swiss_roll(n, noise=1.0, random_state=0)[0][:, [0, 2]] / 5
    elif name == "circles":
        x = 3 * sklearn.datasets.make_circles(n, factor=0.5, noise=0.08, random_state=0)[0]
    elif name == "rings":
        angle = np.linspace(0, 2 * np.pi, n // 4, endpoint=False)
        circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        x = 3 * np.concatenate([radius * circle for radius in (1, 0.75, 0.5, 0.25)])
        x += rng.normal(scale=0.08, size=x.shape)
    elif name == "moons":
        x = 2 * sklearn.datasets.make_moons(n, noise=0.1, random_state=0)[0] + np.array([-1, -0.2])
    elif name == "8gaussians":
        turn = np.pi / 4 * rng.integers(8, size=n)
        x = 0.5 * rng.normal(size=(n, 2)) + 4 * np.stack([np.cos(turn), np.sin(turn)], axis=1)
        x /= 1.414
    elif name == "pinwheel":
        features = rng.normal(size=(n, 2)) * np.array([0.3, 0.1]) + np.array([1.0, 0.0])
        angles = 2 * np.pi / 5 * (np.arange(n) % 5) + 0.25 * np.exp(features[:, 0])
        turns = np.stack([np.cos(angles), -np.sin(angles), np.sin(angles), np.cos(angles)])
        x = 2 * np.einsum("ti,tij->tj", features, turns.T.reshape(-1, 2, 2))
    elif name == "2spirals":
        turn = np.sqrt(rng.random((n // 2, 1))) * 540 * (2 * np.pi) / 360
        across = -np.cos(turn) * turn + rng.random((n // 2, 1)) * 0.5
        up = np.sin(turn) * turn + rng.random((n // 2, 1)) * 0.5
        arm = np.hstack([across, up])
        x = np.vstack([arm, -arm]) / 3 + 0.1 * rng.normal(size=(n, 2))
    else:
        across = rng.random(n) * 4 - 2
        up = rng.random(n) - rng.integers(0, 2, n) * 2 + np.floor(across) % 2
        x = 2 * np.stack([across, up], axis=1)
    return torch.from_numpy(x)


@pytest.mark.slow
@names
def test_densities_integrate_to_one_and_entropies_to_what_is_said(name: str) -> None:
    p, area = density(name), (SIDE / CELLS) ** 2
    assert float(p.sum()) * area == pytest.approx(1, abs=2e-6)
    assert entropy(name) == pytest.approx(-float(torch.xlogy(p, p).sum()) * area, abs=1e-4)


@pytest.mark.slow
@names
def test_draws_follow_the_density(name: str, generator: torch.Generator) -> None:
    toy = PLANE[name]
    x = toy.sample(40_000, generator)
    assert misfit(name, x) > 1e-4
    assert misfit(name, 1.03 * x) < 1e-9  # the test can fail
    log = toy.log_density(x)
    error = float(log.std()) / math.sqrt(len(log))
    assert float(log.mean()) == pytest.approx(-entropy(name), abs=4 * error + 1e-9)


@names
def test_the_distributions_are_those_of_ffjord(name: str) -> None:
    x = ffjord(name, 40_000)
    assert misfit(name, x) > 1e-4  # its strata can only lessen the misfit


def test_known_entropies() -> None:
    assert PLANE["checkerboard"].entropy() == math.log(32)
    apart = math.log(8) + math.log(2 * math.pi * math.e * (0.5 / 1.414) ** 2)
    assert apart - 0.01 < PLANE["8gaussians"].entropy() < apart  # the clusters hardly touch


@pytest.mark.slow
@pytest.mark.parametrize("toy", [SwissRoll(), Moon(), Spiral()], ids=repr)
def test_curves_agree_with_adaptive_quadrature(
    toy: SwissRoll | Moon | Spiral, generator: torch.Generator
) -> None:
    x = toy.sample(4, generator)
    x[2:] += 0.5  # off the curve

    def integrand(s: float, point: Tensor) -> float:
        gap = (point - toy.path(torch.tensor([s], dtype=torch.float64))[0]).tolist()
        kernel = scipy.stats.norm(scale=toy.deviation)
        if isinstance(toy, Spiral):
            noise = math.prod((kernel.cdf(z) - kernel.cdf(z - 1 / 6)) * 6 for z in gap)
            return float(2 * s * noise)
        return float(math.prod(map(kernel.pdf, gap)))

    for point, log in zip(x, toy.log_density(x), strict=True):
        pieces = np.linspace(0, 1, 41)
        exact = sum(
            scipy.integrate.quad(integrand, a, b, args=(point,), epsrel=1e-9)[0]
            for a, b in itertools.pairwise(pieces)
        )
        assert float(log) == pytest.approx(math.log(exact), abs=1e-7)


def test_circles_agree_with_a_sum_over_angles(generator: torch.Generator) -> None:
    toy = Circles((1.0, 0.4), deviation=0.2)
    x = toy.sample(50, generator) * 1.5
    angle = torch.arange(400, dtype=torch.float64) * (2 * math.pi / 400)
    circle = torch.stack([angle.cos(), angle.sin()], dim=1)
    centres = torch.cat([circle, 0.4 * circle])
    squares = (x[:, None] - centres).square().sum(dim=2)
    expected = (-squares / 0.08).exp().mean(dim=1) / (0.08 * math.pi)
    torch.testing.assert_close(toy.log_density(x), expected.log(), rtol=0, atol=1e-12)


def test_the_pinwheel_counts_every_preimage() -> None:
    toy, zero = Pinwheel(), torch.zeros(1)
    x = torch.tensor([[0.3, 0.1], [2.0, 1.0], [-1.9, 3.3], [4.0, -4.0], [0.0, 6.5], [-9.0, 0.4]])
    for point, log in zip(x.double(), toy.log_density(x), strict=True):
        # All features on the circle of the point, on a fine grid; a preimage lies where the angle
        # of the image crosses that of the point.
        psi = torch.linspace(-math.pi, math.pi, 2_000_001, dtype=torch.float64)
        r, theta = float(point.norm()) / 2, math.atan2(point[1], point[0])
        turns = (psi - 0.25 * (r * psi.cos()).exp() - theta) * (5 / (2 * math.pi))
        crossed = (turns[1:].floor() != turns[:-1].floor()).nonzero()[:, 0]
        at = (psi[crossed] + psi[crossed + 1]) / 2
        features = r * torch.stack([at.cos(), at.sin()], dim=1)
        jacobian = vmap(jacrev(lambda f: toy._place(f[None], zero)[0]))(features)
        weight = scipy.stats.norm(1, 0.3).pdf(features[:, 0]) * scipy.stats.norm(0, 0.1).pdf(
            features[:, 1]
        )
        expected = float((torch.from_numpy(weight) / jacobian.det().abs()).sum()) / 5
        assert float(log) == pytest.approx(math.log(expected), abs=1e-2)


def test_the_folds_of_the_pinwheel_are_where_its_determinant_vanishes() -> None:
    toy = Pinwheel()
    r = torch.tensor([[0.5], [2.0], [3.0], [5.0]], dtype=torch.float64)
    left, right = toy._folds(r)
    assert left[0] == right[0]  # too close to the centre to fold
    assert (left[1:] < right[1:]).all()
    for psi in (left[1:], right[1:]):
        assert float(toy._slope(psi, r[1:]).abs().max()) < 1e-10


@names
def test_far_points_have_a_finite_logarithm_or_none(name: str) -> None:
    x = torch.tensor([[30.0, -40.0], [0.0, 13.0], [0.0, 0.0]], dtype=torch.float64)
    log = PLANE[name].log_density(x)
    assert log.dtype == torch.float64
    if name == "checkerboard":
        assert log.tolist() == [-math.inf, -math.inf, -math.log(32)]
    else:
        assert torch.isfinite(log).all()
        assert (log[:2] < -100).all()


def test_the_checkerboard_ends_where_it_ends() -> None:
    inside = torch.tensor([[-4.0, -4.0], [3.99, 3.99], [-0.01, -0.01], [1.0, -3.0]])
    outside = torch.tensor([[4.0, 0.5], [-4.01, -4.0], [0.01, -0.01], [1.0, 3.0], [5.0, 5.0]])
    assert torch.isfinite(PLANE["checkerboard"].log_density(inside)).all()
    assert (PLANE["checkerboard"].log_density(outside) == -math.inf).all()


@names
def test_seeds_reproduce(name: str) -> None:
    toy = PLANE[name]
    first, second = (toy.sample(7, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first, second)
    assert first.shape == (7, 2)
    assert first.dtype == torch.float64
    assert toy.sample(0, torch.Generator()).shape == (0, 2)
    assert toy.log_density(first[:0]).shape == (0,)
    single = toy.log_density(first.float())
    assert single.dtype == torch.float64
    assert torch.equal(single, toy.log_density(first.float().double()))


def test_a_reflection_is_symmetric(generator: torch.Generator) -> None:
    toy = Reflected(Spiral(), centre=(0.5, -1.0))
    x = toy.sample(100, generator)
    mirrored = torch.tensor([1.0, -2.0], dtype=torch.float64) - x
    torch.testing.assert_close(toy.log_density(x), toy.log_density(mirrored))


@names
def test_bad_arguments(name: str) -> None:
    toy: PlaneDistribution = PLANE[name]
    with pytest.raises(ValueError, match="n must be an integer >= 0, got -1"):
        toy.sample(-1, torch.Generator())
    with pytest.raises(TypeError, match="generator must be of type Generator, got int"):
        toy.sample(1, 0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"x must have shape \(n, 2\), got \(4, 3\)"):
        toy.log_density(torch.zeros(4, 3))
    with pytest.raises(ValueError, match="x must be finite, but x"):
        toy.log_density(torch.tensor([[0.0, math.nan]]))


@pytest.mark.parametrize("t", [0.0, 0.02, 1.0, 1.49, 1.51, 3.0, 1250.0])
def test_the_wrapped_mixture_is_a_density_with_its_score_and_moments(t: float) -> None:
    x = torch.linspace(-math.pi, math.pi, 513, dtype=torch.float64)[:-1, None]
    density = BART_SIMPSON.density(x, t)
    assert float(density.mean()) * 2 * math.pi == pytest.approx(1, abs=1e-12)
    y = x.clone().requires_grad_(True)
    (slope,) = torch.autograd.grad(BART_SIMPSON.density(y, t).log().sum(), y)
    torch.testing.assert_close(BART_SIMPSON.score(x, t), slope, rtol=1e-9, atol=1e-9)
    xi = torch.tensor([[1.0], [7.0], [20.0]], dtype=torch.float64)
    waves = 2 * math.pi * (torch.exp(-1j * (x @ xi.mT)) * density[:, None]).mean(dim=0)
    torch.testing.assert_close(BART_SIMPSON.characteristic(xi, t), waves, rtol=0, atol=1e-13)


def test_both_series_of_the_wrapped_mixture_agree_where_they_meet() -> None:
    x = torch.linspace(-math.pi, math.pi, 100, dtype=torch.float64)[:, None]
    before, after = (BART_SIMPSON.density(x, t) for t in (1.5 - 1e-12, 1.5))
    torch.testing.assert_close(before, after, rtol=1e-11, atol=0)
    before, after = (BART_SIMPSON.score(x, t) for t in (1.5 - 1e-12, 1.5))
    torch.testing.assert_close(before, after, rtol=0, atol=1e-11)


def test_draws_of_the_wrapped_mixture_have_its_moments() -> None:
    xi = torch.tensor([[1.0], [7.0], [20.0]], dtype=torch.float64)
    drawn = BART_SIMPSON.sample(100_000, torch.Generator().manual_seed(0))
    assert float(drawn.abs().max()) <= math.pi
    means = torch.exp(-1j * (drawn @ xi.mT)).mean(dim=0)
    assert float((means - BART_SIMPSON.characteristic(xi)).abs().max()) < 4 / math.sqrt(100_000)
