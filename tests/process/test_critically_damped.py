"""Positions with velocities: under-damped, critically damped and over-damped."""

from __future__ import annotations

import math

import pytest
import scipy.linalg
import sympy
import torch

from oism import CriticallyDamped, Linear
from oism.process import AdjointGenerator, InfinitesimalGenerator, Quadrature, Semigroup
from oism.process._covariance import spread

from .systems import matrix, normal

DAMPING = [0.3, 1.9, 2.0, 2.1, 7.0]
every = pytest.mark.parametrize("c", DAMPING)


@every
def test_eigenvalues_by_damping(c: float) -> None:
    eigenvalues = torch.linalg.eigvals(CriticallyDamped(1, c=c).drift_matrix)
    root = complex(c * c / 4 - 1) ** 0.5
    expected = sorted((-c / 2 - root, -c / 2 + root), key=lambda z: (z.real, z.imag))
    found = sorted(map(complex, eigenvalues.tolist()), key=lambda z: (z.real, z.imag))
    assert found == pytest.approx(expected, abs=1e-7)  # √ε: at c = 2 the eigenvalue is defective


def test_critical_damping_is_at_two() -> None:
    # One eigenvalue with one eigenvector: e^{Ft} = e^{-t}(I + t(F + I)), the fastest decay.
    drift = CriticallyDamped(1).drift_matrix
    nilpotent = drift + torch.eye(2)
    assert nilpotent.any()
    assert not (nilpotent @ nilpotent).any()
    for t in (1e-3, 1.0, 20.0):
        right = math.exp(-t) * (torch.eye(2).double() + t * nilpotent)
        ours = CriticallyDamped(1).transition(t).means
        assert float((ours - right).norm() / right.norm()) < 1e-13
    rates = {c: float(-scipy.linalg.eigvals(_drift(c)).real.max()) for c in (1.0, 1.9, 2.1, 4.0)}
    assert max(rates.values()) < 0.96


def _drift(c: float) -> torch.Tensor:
    return CriticallyDamped(1, c=c).drift_matrix


@pytest.mark.slow
@every
def test_the_transition_agrees_with_computer_algebra(c: float) -> None:
    # ∫ S Q Sᵀ with S from the closed form of the oscillator, in exact arithmetic.
    s, t = sympy.symbols("s t", positive=True)
    damping = sympy.Rational(str(c))
    omega = sympy.sqrt(damping**2 / 4 - 1)
    ratio = s if omega == 0 else sympy.sinh(omega * s) / omega
    position = sympy.exp(-damping * s / 2) * ratio  # the impulse response of x
    velocity = sympy.diff(position, s)
    for i, j in ((0, 0), (0, 1), (1, 1)):
        integrand = 2 * damping * (position, velocity)[i] * (position, velocity)[j]
        integral = sympy.integrate(sympy.expand(integrand.rewrite(sympy.exp)), (s, 0, t))
        for time in (0.01, 0.7, 6.0):
            exact = complex(integral.evalf(40, subs={t: sympy.Rational(str(time))})).real
            ours = CriticallyDamped(1, c=c).transition(time).covariances[i, j]
            assert float(ours) == pytest.approx(exact, rel=1e-12, abs=1e-14)


@every
def test_short_steps(c: float) -> None:
    # Σ_t = 2c (t³/3, t²/2; t²/2, t)(1 + O(t)): noise acts on positions through velocities.
    for t in (1e-9, 1e-6, 1e-4):
        sigma = CriticallyDamped(1, c=c).transition(t).covariance(2)
        series = 2 * c * matrix([t**3 / 3, t**2 / 2], [t**2 / 2, t])
        torch.testing.assert_close(sigma, series, rtol=3 * (c + 1) * t, atol=0)
        # The density is accurate: correlations converge as t → 0.
        law = CriticallyDamped(1, c=c).transition(t)
        peak = float(law.log_density(*[torch.zeros(1, 2).double()] * 2))
        right = -math.log(2 * math.pi) - 0.5 * math.log(c * c * t**4 / 3)
        assert peak == pytest.approx(right, abs=3 * (c + 1) * t + 1e-14)


@every
def test_the_stationary_distribution_is_standard_normal(c: float) -> None:
    process = CriticallyDamped(3, c=c)
    torch.testing.assert_close(
        process.stationary_covariance, torch.eye(2).double(), rtol=0, atol=1e-14
    )
    x = normal(4, 6)
    torch.testing.assert_close(process.invariant.score(x), -x)
    assert not process.is_symmetric
    # Reversed in time, velocities have the opposite sign: F* = JFJ with J = diag(1, -1).
    flip = torch.diag(torch.tensor([1.0, -1.0]).double())
    torch.testing.assert_close(
        process.adjoint.drift_matrix, flip @ process.drift_matrix @ flip, rtol=0, atol=1e-13
    )


def test_noise_acts_on_velocities_only() -> None:
    process, v = CriticallyDamped(2, c=3.0), normal(5, 4)
    torch.testing.assert_close(
        process.diffuse(v, v), v * torch.tensor([0.0, 0.0, 3.0, 3.0]).double()
    )
    assert process.diffusion(4).diagonal().tolist() == pytest.approx([0, 0, 3, 3])
    drift = torch.cat((v[:, 2:], -v[:, :2] - 3 * v[:, 2:]), dim=1)
    torch.testing.assert_close(process.drift(v), drift)
    backwards = torch.cat((-v[:, 2:], v[:, :2] - 3 * v[:, 2:]), dim=1)
    torch.testing.assert_close(process.adjoint_drift(v), backwards)
    torch.testing.assert_close(process.noise(4)[:2], torch.zeros(2, 2).double())


def test_copies_agree_with_one_large_system() -> None:
    process = CriticallyDamped(3, c=1.1)
    large = Linear(spread(process.drift_matrix, 3), spread(process.noise_matrix, 3))
    x, y = normal(5, 6), normal(5, 6, seed=1)
    t = torch.tensor([0.01, 0.4, 1.0, 3.0, 9.0], dtype=torch.float64)
    ours, theirs = process.transition(t), large.transition(t)
    torch.testing.assert_close(ours.mean(x), theirs.mean(x))
    torch.testing.assert_close(ours.covariance(6), theirs.covariance(6))
    torch.testing.assert_close(ours.log_density(y, x), theirs.log_density(y, x))
    torch.testing.assert_close(process.adjoint_drift(x), large.adjoint_drift(x))
    torch.testing.assert_close(process.drift(x), large.drift(x))
    assert process.drift_divergence(6) == pytest.approx(large.drift_divergence(6))
    draws = [law.sample(x, generator=torch.Generator().manual_seed(0)) for law in (ours, theirs)]
    torch.testing.assert_close(*draws)


@every
def test_the_generator_maps_linear_functions_to_linear_functions(c: float) -> None:
    # Lx = Fx as functions, so P_t x = S_t x; and L* x = F* x.
    process, x = CriticallyDamped(1, c=c), normal(6, 2)
    generated = InfinitesimalGenerator(process)(lambda y: y)(x)
    torch.testing.assert_close(generated, x @ process.drift_matrix.mT)
    averaged = Semigroup(process, 0.9, Quadrature(4))(lambda y: y)(x)
    torch.testing.assert_close(averaged, process.transition(0.9).mean(x))
    adjoint = AdjointGenerator(process)(lambda y: y)(x)
    torch.testing.assert_close(adjoint, x @ process.adjoint.drift_matrix.mT, rtol=0, atol=1e-13)


def test_images_with_velocities_have_twice_the_channels(generator: torch.Generator) -> None:
    process = CriticallyDamped(3 * 8 * 8)
    x = torch.randn(2, 6, 8, 8, generator=generator)
    y = process.transition(torch.tensor([1e-3, 2.0])).sample(x, generator=generator)
    assert y.shape == x.shape
    # After a short time the noise is small in positions and large in velocities.
    moved = (y - x)[0].unflatten(0, (2, 3))  # type: ignore[no-untyped-call]
    assert float(moved[0].abs().max()) < 0.01
    assert float(moved[1].std()) == pytest.approx(math.sqrt(4e-3), rel=0.15)


def test_processes_with_equal_parameters_are_equal() -> None:
    assert CriticallyDamped(2) == CriticallyDamped(2, c=2)
    assert CriticallyDamped(2) != CriticallyDamped(2, c=1.0)
    assert len({CriticallyDamped(2), CriticallyDamped(2), CriticallyDamped(3)}) == 2
    assert repr(CriticallyDamped(2, c=1)) == "CriticallyDamped(dim=2, c=1.0)"


def test_invalid_arguments_are_rejected() -> None:
    for c in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="c must be a positive finite number, got"):
            CriticallyDamped(1, c=c)
    with pytest.raises(ValueError, match="dim must be an integer >= 1, got 0"):
        CriticallyDamped(0)
    with pytest.raises(ValueError, match=r"x must have 4 entries per point, got shape \(3, 2\)"):
        CriticallyDamped(2).drift(torch.zeros(3, 2))
