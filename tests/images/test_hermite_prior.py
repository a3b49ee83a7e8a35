from __future__ import annotations

import itertools
import math
from functools import cache

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from torch import Tensor

from oism import fit_prior
from oism.basis import CosineFrame, Frame, IdentityFrame, OrthogonalFrame
from oism.estimation import HermiteSystem
from oism.flow import Adaptive, Pixels, log_density
from oism.images import PCA, HermitePrior

NODES, WEIGHTS = np.polynomial.legendre.leggauss(10)  # exact for degrees below 20


def skewed(n: int, dim: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(n, dim, generator=generator, dtype=torch.float64)
    return (0.5 * z).exp() - 1.1


def images(n: int, shape: tuple[int, ...], seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    u = torch.rand(n, *shape, generator=generator) + torch.rand(
        n, *[1] * len(shape), generator=generator
    )
    return (60 * u.square()).round().byte()


@cache
def line(order: int) -> HermitePrior:
    return fit_prior(skewed(3000, 1), order=order)


# --- the density and the flow --------------------------------------------------------------------

GRID = torch.linspace(-3.0, 9.0, 3001, dtype=torch.float64)[:, None]
CELL = float(GRID[1] - GRID[0])


@pytest.mark.parametrize("order", [1, 2, 3, 5, 9])
def test_a_density_on_the_line_integrates_to_one(order: int) -> None:
    total = float(line(order).log_density(GRID).exp().sum()) * CELL
    assert total == pytest.approx(1, abs=1e-5 if order > 1 else 3e-3)  # N(0, 1) reaches beyond -3


def test_a_density_in_the_plane_integrates_to_one() -> None:
    x = skewed(2000, 2)
    prior = fit_prior(torch.stack((x[:, 0], 0.5 * x[:, 0] + x[:, 1]), dim=1), order=4)
    axis = torch.linspace(-4, 8, 121, dtype=torch.float64)
    cells = torch.cartesian_prod(axis, axis)
    total = float(prior.log_density(cells).exp().sum() * (axis[1] - axis[0]) ** 2)
    assert total == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("order", [3, 4, 9])
def test_the_density_is_that_along_the_flow(order: int) -> None:
    """The general solver begins at N(0, I), this one at N(m, s²) of the last time."""
    x = torch.linspace(-0.9, 2.0, 20, dtype=torch.float64)[:, None]
    tight = Adaptive(1e-6, 1e-6)
    expected = log_density(line(order).flow, x, method=tight)
    torch.testing.assert_close(line(order).log_density(x), expected, rtol=0, atol=3e-3)


@pytest.mark.parametrize("frame", [PCA(), PCA(2), CosineFrame((2, 2))], ids=["all", "top", "cos"])
def test_the_density_is_that_along_the_flow_in_a_frame(frame: Frame | PCA) -> None:
    x = skewed(400, 4).reshape(-1, 2, 2)
    x[:, 1] += 0.5 * x[:, 0]
    prior = fit_prior(x, order=4, frame=frame)
    tight = Adaptive(1e-6, 1e-6)
    expected = log_density(prior.flow, x[:20], method=tight)
    torch.testing.assert_close(prior.log_density(x[:20]), expected, rtol=0, atol=5e-3)


@pytest.mark.slow
@pytest.mark.parametrize("order", [3, 4, 5])
def test_the_flow_is_of_order_four(order: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.linspace(-0.9, 2.0, 30, dtype=torch.float64)[:, None]
    found = {}
    for steps in (16, 64, 512):
        monkeypatch.setattr("oism.images._hermite.STEPS", steps)
        found[steps] = line(order).log_density(x)
    coarse, fine = (float((found[steps] - found[512]).abs().max()) for steps in (16, 64))
    measured = math.log2(coarse / fine) / 2
    assert measured > 3.6
    assert fine < 1e-6


@pytest.mark.parametrize("order", [3, 5])
def test_samples_have_the_moments_of_the_density(order: int, generator: torch.Generator) -> None:
    prior, n = line(order), 50_000
    density = prior.log_density(GRID).exp() * CELL
    mean = float(density @ GRID[:, 0])
    centred = GRID[:, 0] - mean
    moments = [float(density @ centred**k) for k in range(7)]
    x = prior.sample(n, generator).double()[:, 0]
    assert float(x.mean()) == pytest.approx(mean, abs=5 * math.sqrt(moments[2] / n))
    for k in (2, 3):
        found = float(((x - mean) ** k).mean())
        error = math.sqrt((moments[2 * k] - moments[k] ** 2) / n)
        assert found == pytest.approx(moments[k], abs=5 * error)
    assert moments[3] > 0.1, "and they are skewed"


def test_pieces_of_a_batch_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    prior = line(4)
    x = torch.linspace(-0.9, 2.0, 7, dtype=torch.float64)[:, None]
    whole = prior.log_density(x), prior.sample(7, torch.Generator().manual_seed(0))
    monkeypatch.setattr("oism.images._hermite.ENTRIES", 3)
    parts = prior.log_density(x), prior.sample(7, torch.Generator().manual_seed(0))
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other)


def test_a_higher_order_gives_new_rows_a_higher_density() -> None:
    new = skewed(2000, 1, seed=1)
    densities = [float(line(order).log_density(new).mean()) for order in (1, 2, 3, 5)]
    assert densities == sorted(densities)
    truth = scipy.stats.lognorm(s=0.5, loc=-1.1).logpdf(new.numpy()).mean()
    assert truth - 0.05 < densities[-1] < truth + 0.02


# --- integers ------------------------------------------------------------------------------------


def spread_out(data: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return the nodes of data ``(n, d)`` plus dequantisation in units, and their weights."""
    dim, step = data.shape[1], 2 / 255
    noise = np.array(list(itertools.product(NODES, repeat=dim))) * step / 2
    weights = np.prod(list(itertools.product(WEIGHTS / 2, repeat=dim)), axis=1)
    x = data.double().numpy() / 127.5 - 1
    return (x[:, None] + noise).reshape(-1, dim), np.tile(weights / len(x), len(x))


def standard_averages(
    z: np.ndarray, weights: np.ndarray, degree: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mean, deviation, and E[φ_n] of the standardised columns, by SciPy's polynomials."""
    mean = weights @ z
    scale = np.sqrt(weights @ np.square(z - mean))
    n = np.arange(degree + 1)[:, None, None]
    values = scipy.special.eval_hermitenorm(n, (z - mean) / scale)
    return (
        mean,
        scale,
        np.einsum("n,knd->kd", weights, values) / np.sqrt(scipy.special.factorial(n[..., 0])),
    )


FRAMES: dict[str, Frame | PCA] = {
    "pixels": IdentityFrame(),
    "principal": PCA(),
    "leading": PCA(1),
    "cosines": CosineFrame((2,)),
    "rotated": OrthogonalFrame(torch.tensor([[0.6, 0.8], [-0.8, 0.6]], dtype=torch.float64)),
}
frames = pytest.mark.parametrize("frame", FRAMES)


@frames
@pytest.mark.parametrize("order", [2, 3, 5])
def test_dequantisation_is_included_exactly(frame: str, order: int) -> None:
    """The averages are those of all values of the noise, by a product rule of quadrature."""
    data = torch.tensor([[1, 3], [2, 2], [4, 1], [3, 5], [2, 4], [7, 6]]).byte()
    prior = fit_prior(data, order=order, frame=FRAMES[frame], ridge=0.01)
    x, weights = spread_out(data)
    directions = prior.analyse(torch.eye(2, dtype=torch.float64)).numpy()  # a column for each
    degree = max(order, 2 * order - 2)
    mean, scale, averages = standard_averages(x @ directions, weights, degree)
    np.testing.assert_allclose(prior.lines.shift.numpy(), mean, rtol=1e-6)
    np.testing.assert_allclose(prior.lines.scale.numpy(), scale, rtol=1e-6)
    np.testing.assert_allclose(prior.mean.numpy(), weights @ x, rtol=1e-6)
    if order > 2:
        system = prior.lines.system
        assert isinstance(system, HermiteSystem)
        found = system.standard.averages.total.numpy()
        np.testing.assert_allclose(found, averages, rtol=2e-5, atol=2e-5)
    if prior.rest is not None:
        whole = np.trace(np.cov(x.T, aweights=weights, bias=True))
        assert prior.rest == pytest.approx(whole - float(scale[0]) ** 2, rel=1e-5)


def test_without_dequantisation_the_noise_is_missing() -> None:
    data = images(300, (4,))
    with_noise, without = (
        fit_prior(data, order=4, frame=IdentityFrame(), dequantise=d) for d in (True, False)
    )
    variance = (data.double() / 127.5).var(dim=0, correction=0)
    torch.testing.assert_close(without.lines.scale.square(), variance)
    more = (2 / 255) ** 2 / 12
    torch.testing.assert_close(with_noise.lines.scale.square(), variance + more)


def test_other_ranges_are_only_other_units() -> None:
    data = images(200, (3,)) // 16
    shifted = data.long() - 8
    pixels, other = Pixels(0, 15), Pixels(-8, 7)
    one = fit_prior(data, order=3, pixels=pixels)
    two = fit_prior(shifted, order=3, pixels=other)
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(one.score(x, 0.1), two.score(x, 0.1))
    draws = [torch.Generator().manual_seed(0) for _ in range(2)]
    torch.testing.assert_close(
        one.bits_per_dim(data, draws[0]), two.bits_per_dim(shifted, draws[1])
    )
    wide = fit_prior(data, order=3, frame=IdentityFrame(), pixels=Pixels(0, 1000))
    assert wide.pixels == Pixels(0, 1000)
    expected = (data.double().mean(dim=0) / 500 - 1).float()
    torch.testing.assert_close(wide.mean, expected)


# --- mirror images -------------------------------------------------------------------------------

MIRRORED: dict[str, Frame | PCA] = {
    "pixels": IdentityFrame(),
    "principal": PCA(),
    "leading": PCA(3),
    "cosines": CosineFrame((2, 2, 3)),
}


@pytest.mark.parametrize("frame", MIRRORED)
@pytest.mark.parametrize("order", [2, 4])
@pytest.mark.parametrize("kind", ["bytes", "floats"])
def test_flips_are_mirror_images_in_the_data(frame: str, order: int, kind: str) -> None:
    data = images(120, (2, 2, 3))
    data = data if kind == "bytes" else data.double() / 127.5 - 1
    both = torch.cat((data, data.flip(-1)))
    flipped = fit_prior(data, order=order, frame=MIRRORED[frame], flip=True, ridge=0.01)
    doubled = fit_prior(both, order=order, frame=MIRRORED[frame], ridge=0.01)
    plain = fit_prior(data, order=order, frame=MIRRORED[frame], ridge=0.01)
    x = torch.randn(6, 2, 2, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for tau in (0.02, 0.2, 0.7):
        found = flipped.noise(x, tau)
        torch.testing.assert_close(found, doubled.noise(x, tau), rtol=1e-4, atol=1e-4)
        assert float((found - plain.noise(x, tau)).abs().max()) > 1e-3
        assert float(flipped.expected_error(tau)) == pytest.approx(
            float(doubled.expected_error(tau)), rel=1e-6
        )
        mirrored = flipped.noise(x.flip(-1), tau).flip(-1)
        torch.testing.assert_close(found, mirrored, rtol=1e-4, atol=1e-4)


# --- bits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("frame", [PCA(), PCA(3), IdentityFrame()], ids=["all", "top", "pixels"])
def test_bits_of_a_gaussian_are_the_mean_over_dequantisation(frame: Frame | PCA) -> None:
    data = images(100, (2, 3)) // 8  # few levels: the noise matters
    prior = fit_prior(data, order=2, frame=frame, pixels=Pixels(0, 31))
    exact = prior.bits_per_dim(data[:5])
    generator, n = torch.Generator().manual_seed(0), 4000
    x = Pixels(0, 31).units(data[:5]).repeat(n, 1, 1).double()
    noise = torch.rand(x.shape, generator=generator, dtype=torch.float64) - 0.5
    densities = prior.log_density(x + noise * 2 / 31).reshape(n, 5)
    bits = -(densities / 6 + math.log(2 / 31)) / math.log(2)
    error = bits.std(dim=0) / math.sqrt(n)
    assert bool(((exact - bits.mean(dim=0)).abs() < 5 * error).all())
    assert torch.equal(exact, prior.bits_per_dim(data[:5])), "nothing is drawn"


def test_bits_follow_from_the_density_of_a_draw() -> None:
    data = images(200, (2, 3))
    prior = fit_prior(data, order=4)
    bits = prior.bits_per_dim(data[:9], torch.Generator().manual_seed(3))
    x = Pixels().dequantised(Pixels().units(data[:9]), torch.Generator().manual_seed(3))
    expected = -(prior.log_density(x) / 6 + math.log(2 / 255)) / math.log(2)
    assert bits.shape == (9,)
    torch.testing.assert_close(bits, expected)
    other = prior.bits_per_dim(data[:9], torch.Generator().manual_seed(4))
    assert not torch.equal(bits, other)


def test_a_uniform_distribution_costs_eight_bits(generator: torch.Generator) -> None:
    train, test = (torch.randint(0, 256, (n, 2), generator=generator) for n in (20_000, 4000))
    costs = []
    for order in (2, 5, 9):
        prior = fit_prior(train.byte(), order=order, frame=IdentityFrame())
        bits = prior.bits_per_dim(test.byte(), generator)
        costs.append(float(bits.mean()))
        assert costs[-1] > 8 - 0.02, "no code is shorter than the entropy"
    assert costs == sorted(costs, reverse=True)
    assert costs[0] == pytest.approx(0.5 * math.log2(2 * math.pi * math.e / 12) + 8, abs=0.02)
    assert costs[-1] < 8.04


def test_bits_need_integers() -> None:
    prior = fit_prior(images(50, (2, 3)), order=2)
    with pytest.raises(ValueError, match=r"values must be in \[0, 255\], but row 1 holds 256"):
        prior.bits_per_dim(torch.tensor([0, 256]).reshape(2, 1, 1).expand(2, 2, 3))
    with pytest.raises(ValueError, match=r"values must be whole numbers, but row 0 holds 0\.5"):
        prior.bits_per_dim(torch.full((1, 2, 3), 0.5))


# --- choices -------------------------------------------------------------------------------------


def test_coefficients_are_chosen_for_each_coordinate() -> None:
    """A Gaussian column is left Gaussian where a skewed one is not."""
    generator = torch.Generator().manual_seed(0)
    x = torch.cat((skewed(1500, 1), torch.randn(1500, 1, generator=generator).double()), dim=1)
    prior = fit_prior(x, order=5, frame=IdentityFrame())
    size = prior.lines.curve.values.abs().amax(dim=(0, 2))
    assert float(size[1]) < 0.2 * float(size[0])


def test_the_table_is_fine_enough() -> None:
    """Between knots the coefficients are those of an exact solve."""
    lines = line(5).lines
    t = lines.clock.time(torch.linspace(0.01, 0.99, 50, dtype=torch.float64))
    exact = lines.coefficients(t, exact=True).double()
    off = lines.system.norm(t, exact - lines.coefficients(t).double())
    assert float((off / (lines.system.norm(t, exact) + 1e-2)).max()) < 1e-2
