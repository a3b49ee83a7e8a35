"""Brownian motion on S³ and on rotations: density, samples, nodes, invariance."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oism.basis import Hyperspherical, Wigner
from oism.process import Rotations, ThreeSphere
from oism.process._three_sphere import QuaternionProcess, left_invariant_frame, log_kernel

PROCESSES = [ThreeSphere(), Rotations()]
processes = pytest.mark.parametrize("process", PROCESSES, ids=["three-sphere", "rotations"])
TIMES = [1e-3, 0.02, 0.3, 1.9, 2.1, 6.0]


def points(n: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(n, 4, generator=generator, dtype=torch.float64)
    unit: Tensor = q / q.norm(dim=1, keepdim=True)
    return unit


def at_angle(theta: Tensor) -> tuple[Tensor, Tensor]:
    """Return the identity and points at distances θ on S³."""
    zero = torch.zeros_like(theta)
    y = torch.stack((theta.cos(), zero, theta.sin(), zero), dim=1)
    x = torch.stack((torch.ones_like(theta), zero, zero, zero), dim=1)
    return x, y


def test_the_two_forms_of_the_kernel_agree() -> None:
    """Against the plain series with many terms, in extended precision, at all distances."""
    theta = torch.cat(
        (torch.linspace(0, math.pi, 41).double(), torch.tensor([1e-7, 3.14159]).double())
    )
    x, y = at_angle(theta)
    for s in (0.06, 0.2, 0.4999, 0.5, 0.9, 3.0):
        cosine = (x * y).sum(dim=1).numpy().astype(np.longdouble)
        before, current, total = 0 * cosine, 0 * cosine + 1, 0 * cosine + 1
        for degree in range(1, 60):
            current, before = 2 * cosine * current - before, current
            total = (
                total + (degree + 1) * np.exp(np.longdouble(-degree * (degree + 2) * s)) * current
            )
        found = log_kernel(x, y, torch.full_like(theta, s)).exp()
        expected = torch.from_numpy(total.astype(np.float64))
        torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-15 * float(expected.max()))


@pytest.mark.parametrize("s", [1e-8, 1e-4, 0.03])
def test_the_kernel_at_small_times(s: float) -> None:
    """θ/sin θ · e^s · the normal density of ℝ³, for distances away from the opposite point."""
    theta = math.sqrt(2 * s) * torch.linspace(0, 6, 13).double()
    x, y = at_angle(theta)
    found = log_kernel(x, y, torch.full_like(theta, s))
    ratio = torch.where(theta > 0, theta / theta.sin(), 1.0)
    normal = -theta.square() / (4 * s) - 1.5 * math.log(4 * math.pi * s)
    torch.testing.assert_close(found, normal + s + ratio.log() + math.log(2 * math.pi**2),
                               rtol=1e-7, atol=1e-7)  # fmt: skip


def test_the_kernel_at_the_opposite_point() -> None:
    """The limit θ → π: √π e^s (π²/2s - 1) e^{-π²/4s} / (2 s^{3/2}), up to e^{-2π²/s}."""
    s = 0.05
    theta = math.pi - torch.tensor([0.0, 1e-9, 1e-5]).double()
    x, y = at_angle(theta)
    value = math.log(math.pi) / 2 + s + math.log(math.pi**2 / (2 * s) - 1) - math.pi**2 / (4 * s)
    value -= math.log(2) + 1.5 * math.log(s)
    found = log_kernel(x, y, torch.full_like(theta, s))
    torch.testing.assert_close(found, torch.full_like(found, value), rtol=0, atol=1e-7)


@processes
@pytest.mark.parametrize("t", TIMES[2:])
def test_densities_integrate_to_one_with_respect_to_volume(
    process: QuaternionProcess, t: float
) -> None:
    nodes, weights = process.invariant.quadrature(4, 40)
    law, x = process.transition(t), points(1)
    log = law.log_density(nodes, x.expand_as(nodes)) - process.invariant.log_density(nodes)
    assert float(weights @ log.exp()) == pytest.approx(1, abs=1e-12)
    volume = {True: 1.0, False: 2 * math.pi**2}[isinstance(process, Rotations)]
    assert float(process.invariant.log_density(x)) == pytest.approx(-math.log(volume))


@processes
def test_densities_are_the_spectral_series(process: QuaternionProcess) -> None:
    basis = Wigner(8) if isinstance(process, Rotations) else Hyperspherical(12)
    x, y = points(20), points(20, seed=1)
    t = torch.linspace(0.8, 3.0, 20).double()
    decay = torch.exp(basis.eigenvalues * t[:, None])
    expected = (1 + (decay * basis(x) * basis(y)).sum(dim=1)).log()
    found = process.transition(t).log_density(y, x) - process.invariant.log_density(y)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    backward = process.transition(t).log_density(x, y)
    forward = process.transition(t).log_density(y, x)
    torch.testing.assert_close(backward, forward, rtol=0, atol=1e-13)


def test_rotations_identify_opposite_quaternions() -> None:
    x, y = points(10), points(10, seed=1)
    law = Rotations().transition(0.3)
    torch.testing.assert_close(law.log_density(-y, x), law.log_density(y, x), rtol=0, atol=1e-14)
    wrapped = Rotations().wrap(-3 * x)
    assert torch.equal(wrapped, Rotations().wrap(x / x.norm(dim=1, keepdim=True))) or bool(
        ((wrapped - Rotations().wrap(x)).abs() < 1e-15).all()
    )
    assert bool((wrapped[:, 0] >= 0).all())
    flat = torch.tensor([[0.0, -1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    assert torch.equal(Rotations().wrap(flat).abs(), Rotations().wrap(flat))
    assert bool(Rotations().domain.contains(-x).all())


@processes
@pytest.mark.parametrize("t", TIMES)
def test_samples_have_the_distances_of_the_density(process: QuaternionProcess, t: float) -> None:
    """Kolmogorov-Smirnov against the integrated density; twice the time must fail."""
    generator = torch.Generator().manual_seed(3)
    x, n = points(1), 4000
    draws = process.transition(t).sample(x.expand(n, -1), generator=generator)
    assert float((draws.norm(dim=1) - 1).abs().max()) < 1e-14
    distance = torch.acos((draws @ x[0]).clamp(-1, 1))
    half = isinstance(process, Rotations)
    distance = torch.minimum(distance, math.pi - distance) if half else distance

    def distribution(t: float) -> np.ndarray:
        end = min(math.pi / 2 if half else math.pi, 12 * math.sqrt(2 * t * process.rate))
        theta = torch.linspace(0, end, 4001).double()[1:]
        origin, y = at_angle(theta)
        law = process.transition(t)
        log = law.log_density(y, origin) - process.invariant.log_density(y)
        density = (log.exp() * theta.sin().square()).numpy() * (4 if half else 2) / math.pi
        total = np.concatenate(
            (
                [0.0],
                scipy.integrate.cumulative_simpson(
                    np.concatenate(([0.0], density)), x=np.concatenate(([0.0], theta))
                ),
            )
        )
        assert total[-1] == pytest.approx(1, abs=1e-6)
        return np.asarray(np.interp(distance.numpy(), np.concatenate(([0.0], theta)), total))

    uniform = scipy.stats.kstest(distribution(t), "uniform")
    assert uniform.pvalue > 1e-3
    if t < 1:
        assert scipy.stats.kstest(distribution(2 * t), "uniform").pvalue < 1e-6


@processes
def test_samples_average_eigenfunctions_within_three_standard_errors(
    process: QuaternionProcess,
) -> None:
    basis = Wigner(2) if isinstance(process, Rotations) else Hyperspherical(3)
    generator = torch.Generator().manual_seed(0)
    n, x = 20_000, points(1)
    t = torch.tensor([0.05, 0.4, 2.5]).double().repeat_interleave(n)
    draws = process.transition(t).sample(x.expand(len(t), -1), generator=generator)
    values = basis(draws).reshape(3, n, -1)
    expected = torch.exp(basis.eigenvalues * t[::n, None]) * basis(x)
    error = (values.mean(dim=1) - expected) / (values.std(dim=1) / math.sqrt(n))
    # 3 standard errors for each of 102 or 87 numbers: their largest is below 4 in all but 0.6%
    assert float(error.abs().max()) < 4
    assert float((error.abs() > 3).double().mean()) < 0.02


@processes
def test_the_equation_of_motion_has_this_transition(process: QuaternionProcess) -> None:
    """Euler's scheme with drift and noise, projected: E φ of degree one within three errors."""
    generator = torch.Generator().manual_seed(1)
    n, steps, t = 20_000, 40, 0.4
    x = points(1).expand(n, -1)
    basis = Wigner(1) if isinstance(process, Rotations) else Hyperspherical(1)
    y = x
    for _ in range(steps):
        noise = process._sample_noise(y, generator)
        y = process._retract(y + (t / steps) * process.drift(y) + math.sqrt(t / steps) * noise)
    values = basis(y)
    expected = math.exp(float(basis.eigenvalues[0]) * t) * basis(x[:1])[0]
    error = (values.mean(dim=0) - expected).abs() / (values.std(dim=0) / math.sqrt(n))
    assert float(error.max()) < 3 + 0.5  # the bias of the scheme is below half a standard error


@processes
def test_the_noise_is_tangent_and_isotropic(process: QuaternionProcess) -> None:
    x, v = points(6), points(6, seed=4)
    noise = process.noise_at(x)
    diffusion = 0.5 * noise @ noise.mT
    expected = process.rate * (torch.eye(4).double() - x[:, :, None] * x[:, None])
    torch.testing.assert_close(diffusion, expected, rtol=0, atol=1e-15)
    torch.testing.assert_close(process.diffuse(v, x), (diffusion @ v[..., None])[..., 0],
                               rtol=0, atol=1e-15)  # fmt: skip
    frame = left_invariant_frame(x)
    whole = torch.cat((x[..., None], frame), dim=2)
    torch.testing.assert_close(whole.mT @ whole, torch.eye(4).double().expand(6, 4, 4))


def test_rotations_are_timed_by_the_angle() -> None:
    """For small t the rotation vector is N(0, 2t I) in radians."""
    generator = torch.Generator().manual_seed(0)
    x = torch.tensor([[1.0, 0.0, 0.0, 0.0]]).double().expand(20_000, -1)
    draws = Rotations().transition(1e-3).sample(x, generator=generator)
    angle = 2 * torch.atan2(draws[:, 1:].norm(dim=1), draws[:, 0])
    assert float(angle.square().mean()) == pytest.approx(3 * 2e-3, rel=0.02)


@processes
@given(rows=st.integers(0, 4), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_shapes_and_dtypes(process: QuaternionProcess, rows: int, dtype: torch.dtype) -> None:
    x = torch.full((rows, 4), 0.5, dtype=dtype)
    law = process.transition(torch.full((rows,), 0.3))
    assert law.sample(x).shape == law.mean(x).shape == x.shape
    assert law.sample(x).dtype == law.log_density(x, x).dtype == dtype
    assert torch.equal(process.transition(0.0).sample(x), process.wrap(x))
    assert process.invariant.sample((rows, 4), dtype=dtype).shape == (rows, 4)


@processes
def test_bad_arguments(process: QuaternionProcess) -> None:
    x = points(2)
    with pytest.raises(ValueError, match="t must be positive for a density"):
        process.transition(0.0).log_density(x, x)
    with pytest.raises(ValueError, match="t must be one number or one per row: 2 rows, 3 values"):
        process.transition(torch.ones(3)).sample(x)
    with pytest.raises(ValueError, match="x must have no row of zeros"):
        process.wrap(torch.zeros(1, 4))
    with pytest.raises(ValueError, match=r"x must have shape \(n, 4\), got \(2, 3\)"):
        process.drift(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="t must be one number"):
        process.transition(torch.ones(2)).nodes(x, 8)
    with pytest.raises(ValueError, match="dim must be 4, got 3"):
        process.invariant.quadrature(3, 8)
    with pytest.raises(ValueError, match=r"shape must be \(n, 4\), got \(2, 3\)"):
        process.invariant.sample((2, 3))
    with pytest.raises(TypeError, match="no constant noise"):
        process.noise(4)
