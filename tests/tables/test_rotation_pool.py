"""Kernels and mixtures on rotations, and the pool of a density of rotations."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import oism
from oism.basis import Wigner
from oism.estimation import fit
from oism.process import Rotations
from oism.tables._kernels import (
    MEMBERS,
    DirectionalKernels,
    KernelSums,
    RotationHaar,
    SphereArea,
    vmf_depths,
)
from oism.tables._pool import log_densities
from oism.tables._rotation_mixture import RotationMixture, _kappa_of, fit_mixture, improved
from oism.tables._rotation_pool import RotationPool

KAPPAS = [0.01, 0.5, 4.0, 300.0, 1e6]


def uniform(n: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    found = Rotations().invariant.sample((n, 4), generator=generator, dtype=torch.float64)
    return Rotations().wrap(found)


def one_kernel(kappa: float, centre: Tensor) -> KernelSums:
    one = torch.ones(1).double()
    return KernelSums(centre, one, kappa * one[None], RotationHaar())


@given(seed=st.integers(0, 1000), kappa=st.floats(0.01, 1e5))
def test_the_kernel_is_that_of_scipy_for_both_signs(seed: int, kappa: float) -> None:
    centre, x = uniform(1, seed), uniform(6, seed + 1)
    x[0] = -centre[0]
    cosine = (x @ centre[0]).numpy()
    log_cosh = np.logaddexp(kappa * cosine, -kappa * cosine) - math.log(2)
    expected = math.log(kappa / (2 * scipy.special.ive(1, kappa))) - kappa + log_cosh
    for points in (x, -x):
        found = one_kernel(kappa, centre).log_densities(points)[:, 0]
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kappa", KAPPAS)
def test_the_kernel_has_mass_one_under_the_haar_measure(kappa: float) -> None:
    origin = torch.tensor([[1.0, 0.0, 0.0, 0.0]]).double()
    kernel = one_kernel(kappa, origin)

    def integrand(theta: float) -> float:
        x = torch.tensor([[math.cos(theta), math.sin(theta), 0.0, 0.0]]).double()
        return 4 / math.pi * math.sin(theta) ** 2 * float(kernel.log_densities(x).exp())

    reach = min(math.pi / 2, 12 / math.sqrt(kappa))  # θ ≤ π/2: half of S³
    assert scipy.integrate.quad(integrand, 0, reach)[0] == pytest.approx(1, abs=1e-7)


@pytest.mark.parametrize("kappa", KAPPAS)
@pytest.mark.parametrize("dim", [3, 4])
def test_depths_follow_the_von_mises_fisher_law_and_a_wrong_kappa_fails(
    kappa: float, dim: int
) -> None:
    """Against the distribution function by quadrature of (u(2 - u))^{(d-3)/2} e^{-κu}."""
    u = np.minimum(2, 40 / kappa) * np.linspace(0, 1, 20_001) ** 2
    weight = (u * (2 - u)) ** ((dim - 3) / 2) * np.exp(-kappa * u)
    cdf = scipy.integrate.cumulative_trapezoid(weight, u, initial=0)

    def p_value(used: float) -> float:
        generator = torch.Generator().manual_seed(0)
        drawn = vmf_depths(torch.full((20_000,), used).double(), dim, generator).numpy()
        assert drawn.min() >= 0
        assert drawn.max() <= 2
        return float(scipy.stats.kstest(drawn, lambda v: np.interp(v, u, cdf / cdf[-1])).pvalue)

    assert p_value(kappa) > 1e-3
    if kappa > 1:
        assert p_value(1.1 * kappa) < 1e-4


def test_samples_of_kernels_are_around_their_centres() -> None:
    centres = uniform(3)
    kernels = DirectionalKernels(centres, torch.tensor([1.0, 2.0, 0.0]), space=RotationHaar())
    assert kernels.kappa.shape == (MEMBERS, 3)
    drawn = kernels.sample(torch.full((4000,), 3), torch.Generator().manual_seed(0))  # κ = 256
    near = (drawn @ centres.mT).abs().argmax(dim=1)
    share = torch.bincount(near, minlength=3) / 4000
    assert float((share - torch.tensor([1 / 3, 2 / 3, 0])).abs().max()) < 0.03
    # the mean of tangent parts is 0, and their squares are equal in all directions
    frame = torch.linalg.svd(centres[1:2])[2][1:]
    aside = drawn[near == 1] @ frame.mT
    variance = aside.mT @ aside / len(aside)
    np.testing.assert_allclose(256 * variance, np.eye(3), atol=0.1)


def test_widths_do_not_depend_on_the_sign_of_quaternions() -> None:
    q = uniform(60)
    flipped = q * torch.where(torch.arange(60) % 2 == 0, 1.0, -1.0)[:, None]
    one, two = (
        DirectionalKernels(part, torch.ones(60), space=RotationHaar()) for part in (q, flipped)
    )
    torch.testing.assert_close(one.kappa, two.kappa)
    x = uniform(5, seed=1)
    torch.testing.assert_close(one.log_densities(x), two.log_densities(-x))
    assert type(DirectionalKernels(q[:, :3], torch.ones(60)).space) is SphereArea


@given(kappa=st.floats(0.02, 9e5))
def test_concentrations_are_found_from_mean_depths(kappa: float) -> None:
    depth = 1 - scipy.special.ive(2, kappa) / scipy.special.ive(1, kappa)
    found = _kappa_of(torch.tensor([depth], dtype=torch.float64))
    assert float(found) == pytest.approx(kappa, rel=1e-4)


def test_a_mixture_is_recovered_and_every_step_raises_the_likelihood(tmp_path: Path) -> None:
    centres = uniform(3, seed=5)
    truth = RotationMixture(centres, torch.tensor([0.5, 0.3, 0.2]), torch.tensor([[9.0, 60, 400]]))
    drawn = truth.sample(torch.zeros(4000).long(), torch.Generator().manual_seed(0))
    x, ones = drawn * torch.where(torch.arange(4000) % 3 == 0, -1.0, 1.0)[:, None], torch.ones(4000)
    found = fit_mixture(x, ones.double(), 3)
    order = (centres @ found.points.mT).abs().argmax(dim=1)
    assert float((1 - (centres * found.points[order]).sum(dim=1).abs()).max()) < 1e-3
    torch.testing.assert_close(found.kappa[0, order], truth.kappa[0], rtol=0.12, atol=0)
    torch.testing.assert_close(found.weights[order], truth.weights, rtol=0, atol=0.03)
    start = RotationMixture(x[:3], torch.ones(3), torch.full((1, 3), 20.0))
    better = improved(x, ones.double(), start)
    before, after = (float(m.log_densities(x).mean()) for m in (start, better))
    assert before < after <= float(found.log_densities(x).mean()) + 1e-3
    oism.storage.save(found, tmp_path / "mixture.safetensors")
    again = oism.load(tmp_path / "mixture.safetensors")
    assert torch.equal(again.log_densities(x[:5]), found.log_densities(x[:5]))


def test_a_mixture_of_equal_rows_has_a_width() -> None:
    found = fit_mixture(uniform(1).expand(10, 4).contiguous(), torch.ones(10).double(), 2)
    assert bool(found.log_densities(uniform(3)).isfinite().all())


def test_the_pool_has_mass_one_and_its_samples_follow_it(tmp_path: Path) -> None:
    """With weight on every part; averages of Wigner functions against quadrature."""
    data = (
        Rotations()
        .transition(torch.tensor(0.2))
        .sample(uniform(1).expand(300, 4), generator=torch.Generator().manual_seed(0))
    )
    scores = fit(data, Wigner(2), ridge=0.01)
    kernels = DirectionalKernels(uniform(3, 1), torch.ones(3), torch.arange(1, 3), RotationHaar())
    mixtures = tuple(
        RotationMixture(uniform(2, seed), torch.tensor([0.7, 0.3]), torch.tensor([[8.0, 20.0]]))
        for seed in (2, 3)
    )
    weights = torch.tensor([0.2, 0.1, 0.2, 0.1, 0.25, 0.15]).double()
    pool = RotationPool(scores, kernels, mixtures, weights)
    nodes, mass = Rotations().invariant.quadrature(4, 24)
    parts = log_densities(pool.parts, nodes).exp()
    density = pool.log_density(nodes[:9]).exp()
    torch.testing.assert_close(density, parts[:9] @ weights)
    np.testing.assert_allclose(mass @ parts, 1, atol=1e-4)
    n, basis = 2000, Wigner(3)
    drawn = pool.sample(n, torch.Generator().manual_seed(0))
    assert bool((drawn[:, 0] >= 0).all())

    def mean_square_error(weights: Tensor) -> float:
        values = basis(drawn)
        error = values.mean(dim=0) - (mass * (parts @ weights)) @ basis(nodes)
        return float((error / (values.std(dim=0) / math.sqrt(n))).square().mean())

    assert mean_square_error(weights) < 1.7  # 1 up to correlations
    assert mean_square_error(weights.flip(0)) > 3
    oism.storage.save(pool, tmp_path / "pool.safetensors")
    again = oism.load(tmp_path / "pool.safetensors")
    assert torch.equal(again.log_density(nodes[:9]), pool.log_density(nodes[:9]))
    facts = pool.facts()
    assert (facts["members"], facts.pop("components")) == (2, [2, 2])
    assert facts == pytest.approx(
        {"flow": 0.2, "uniform": 0.1, "kernels": 0.3, "members": 2, "mixtures": 0.4}
    )
    with pytest.raises(ValueError, match=r"weights must be 6, got shape \(3,\)"):
        RotationPool(scores, kernels, mixtures, weights[:3])
