"""The Fokker-Planck residual: zero for the truth, of every process; what is printed is not."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from oism import Brownian, CriticallyDamped, Linear
from oism.nn import MLP
from oism.objectives import FokkerPlanckResidual, Model, Probes
from oism.process import (
    CarreDuChamp,
    Euclidean,
    Gaussian,
    InfinitesimalGenerator,
    IsotropicTransition,
    NotAProbabilityError,
    Process,
)

from .distributions import DISTRIBUTIONS, PLANE, SHARES, SHEARED, Distribution, at, tensor

SYMMETRIC = Linear(tensor([-2.0, 1.0], [1.0, -2.0]), 2 * torch.eye(2).double())
ALL = DISTRIBUTIONS | {
    "damped": Distribution(CriticallyDamped(dim=1), PLANE, SHARES),
    "symmetric": Distribution(SYMMETRIC, PLANE, SHARES),
}
every_distribution = pytest.mark.parametrize("name", ALL)


def points(mixture: Distribution, n: int = 40) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return 1.5 * torch.randn(n, mixture.dim, generator=generator, dtype=torch.float64)


def times(x: Tensor, low: float = 0.1) -> Tensor:
    """Return a time of its own for every row."""
    return torch.linspace(low, 1.5, len(x), dtype=torch.float64)


@every_distribution
def test_the_exact_energy_has_none(name: str) -> None:
    mixture = ALL[name]
    x = points(mixture)
    residual = FokkerPlanckResidual(mixture.process).energy(mixture.energy, x, times(x, 0.3))
    assert residual.shape == (len(x),)
    assert float(residual.abs().max()) < 1e-9


@every_distribution
def test_the_exact_scores_have_none(name: str) -> None:
    mixture = ALL[name]
    x, residual = points(mixture), FokkerPlanckResidual(mixture.process)
    for found in (
        residual.score(mixture.score, x, times(x, 0.3)),
        residual.ratio(mixture.score_of_ratio, x, times(x, 0.3)),
    ):
        assert found.shape == x.shape
        assert float(found.abs().max()) < 1e-8


@pytest.mark.parametrize("name", ["line", "plane", "asymmetric", "damped"])
def test_the_printed_form_does_not_hold_for_the_score_itself(name: str) -> None:
    mixture = ALL[name]
    x, residual = points(mixture), FokkerPlanckResidual(mixture.process)
    assert float(residual.ratio(mixture.score, x, times(x)).abs().max()) > 1
    assert float(residual.score(mixture.score_of_ratio, x, times(x)).abs().max()) > 1


def test_an_asymmetric_process_moves_by_its_adjoint() -> None:
    """∂_t f = Lf + Γ(f), as printed, holds for symmetric processes only."""

    def printed(mixture: Distribution) -> Tensor:
        x = points(mixture)
        t = times(x, 0.3)
        change = mixture.time_score(x, t)
        generated = InfinitesimalGenerator(mixture.process)(lambda y: mixture.energy(y, t))(x)
        return change - generated - CarreDuChamp(mixture.process)(lambda y: mixture.energy(y, t))(x)

    assert float(printed(DISTRIBUTIONS["plane"]).abs().max()) < 1e-9
    assert float(printed(DISTRIBUTIONS["asymmetric"]).abs().max()) > 1


def test_brownian_motion_has_scores_but_no_invariant_distribution() -> None:
    def score(x: Tensor, t: Tensor) -> Tensor:
        return -x / (0.5 + 2 * t)[:, None]

    x = points(DISTRIBUTIONS["plane"])
    for residual in (
        FokkerPlanckResidual(Brownian()).score,
        FokkerPlanckResidual(Brownian()).ratio,
    ):
        assert float(residual(score, x, 0.3).abs().max()) < 1e-13


def test_a_process_without_a_stationary_distribution_has_scores_too() -> None:
    growing = Linear(tensor([0.6, 0.2], [-0.3, -1.0]), torch.eye(2))
    mixture = Distribution(growing, PLANE, SHARES)
    x, residual = points(mixture), FokkerPlanckResidual(growing)
    assert float(residual.score(mixture.score, x, times(x, 0.3)).abs().max()) < 1e-8
    with pytest.raises(NotAProbabilityError, match="drift_matrix must be Hurwitz"):
        residual.ratio(mixture.score, x, 0.3)


@dataclass(frozen=True)
class Quartic(Process):
    """dX = -X³ dt + √2 dW: a drift whose divergence is no number."""

    domain = Euclidean()
    invariant = Gaussian(1.0)  # not its own, and not asked for

    def drift(self, x: Tensor) -> Tensor:
        return -(x**3)

    def noise(self, dim: int) -> Tensor:
        return 2**0.5 * torch.eye(dim, dtype=torch.float64)

    def _transition(self, t: Tensor) -> IsotropicTransition:
        raise NotImplementedError


def test_a_drift_of_any_form() -> None:
    """π ∝ exp(-Σx⁴/4) does not move, and its score -x³ has no residual."""
    x = points(DISTRIBUTIONS["plane"])
    residual = FokkerPlanckResidual(Quartic()).score
    assert float(residual(lambda y, t: -(y**3) + 0 * t[:, None], x, 0.3).abs().max()) < 1e-10
    assert float(residual(lambda y, t: -y + 0 * t[:, None], x, 0.3).abs().max()) > 1


def rotating(x: Tensor, t: Tensor) -> Tensor:
    """A field that is no gradient."""
    a, b = x.unbind(dim=1)
    return torch.stack((b.sin() * t - a, a.square() - 0.5 * b), dim=1)


def by_hand(mixture: Distribution, s: Model, x: Tensor, t: Tensor, *, transposed: bool) -> Tensor:
    """Return ∂_t s - ∇(∇·Gs - ⟨b, s⟩) - 2JᵀGs from whole Jacobians, or with J in its place."""
    assert mixture.process is SHEARED
    G, F = mixture.metric, SHEARED.drift_matrix  # noqa: N806

    def alone(y: Tensor, own: Tensor) -> Tensor:
        return s(y[None], own[None])[0]

    jacobian = torch.func.jacrev(alone)
    each: Tensor = torch.func.vmap(jacobian)(x, t)
    linear: Tensor = torch.func.vmap(
        torch.func.grad(lambda y, own: (G * jacobian(y, own)).sum() - (F @ y) @ alone(y, own))
    )(x, t)
    change: Tensor = torch.func.vmap(torch.func.jacrev(alone, argnums=1))(x, t)
    pushed = s(x, t) @ G
    turned = each.mT if transposed else each
    bent: Tensor = torch.einsum("nij,nj->ni", turned, pushed)
    return change - linear - 2 * bent


def test_a_jacobian_that_is_not_symmetric_is_transposed() -> None:
    mixture = DISTRIBUTIONS["asymmetric"]
    x = points(mixture)
    found = FokkerPlanckResidual(SHEARED).score(rotating, x, times(x))
    torch.testing.assert_close(found, by_hand(mixture, rotating, x, times(x), transposed=True))
    assert (
        float((found - by_hand(mixture, rotating, x, times(x), transposed=False)).abs().max()) > 1
    )


def test_probes_are_right_in_the_mean() -> None:
    mixture = DISTRIBUTIONS["asymmetric"]
    x = points(mixture, 3)
    exact = FokkerPlanckResidual(SHEARED).score(rotating, x, times(x))
    probes = Probes(400, torch.Generator().manual_seed(0))
    few = Probes(1, torch.Generator().manual_seed(0))
    found = FokkerPlanckResidual(SHEARED, probes).score(rotating, x, times(x))
    one = FokkerPlanckResidual(SHEARED, few).score(rotating, x, times(x))
    assert float((found - exact).abs().max()) < 0.2
    assert float((one - exact).abs().max()) > float((found - exact).abs().max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_network_can_be_trained_by_it(dtype: torch.dtype) -> None:
    """The gradient in the parameters is that of differences."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = MLP(2, width=8, depth=1).to(dtype)
    x = points(DISTRIBUTIONS["plane"], 6).to(dtype)
    residual = FokkerPlanckResidual(DISTRIBUTIONS["plane"].process)

    def loss() -> Tensor:
        return residual.score(net, x, 0.4).square().mean()

    value = loss()
    value.backward()  # type: ignore[no-untyped-call]
    assert value.dtype == dtype
    weight = net.first.weight
    assert weight.grad is not None
    if dtype == torch.float64:
        step = 1e-5
        with torch.no_grad():
            weight[0, 0] += step
            above = loss()
            weight[0, 0] -= 2 * step
            below = loss()
        assert float(weight.grad[0, 0]) == pytest.approx(
            float(above - below) / (2 * step), rel=1e-5
        )


def test_images_are_points_too() -> None:
    x = torch.randn(3, 2, 2, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def score(y: Tensor, t: Tensor) -> Tensor:
        return -y / (0.5 + 2 * t).reshape(-1, 1, 1, 1)

    found = FokkerPlanckResidual(Brownian(), Probes(1, torch.Generator().manual_seed(0)))
    assert float(found.score(score, x, 0.3).abs().max()) < 1e-12


def test_what_does_not_move_is_stationary() -> None:
    mixture = DISTRIBUTIONS["asymmetric"]
    x = points(mixture)
    limit = torch.linalg.inv(SHEARED.stationary_covariance)
    found = FokkerPlanckResidual(SHEARED).score(lambda y, t: -y @ limit, x, at(x))
    assert float(found.abs().max()) < 1e-12


def test_bad_arguments_are_named() -> None:
    x = tensor([0.1, 0.2])
    with pytest.raises(TypeError, match="process must be of type Process, got str"):
        FokkerPlanckResidual("ou")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="probes must be of type Probes, got int"):
        FokkerPlanckResidual(SHEARED, 3)  # type: ignore[arg-type]
    residual = FokkerPlanckResidual(SHEARED)
    with pytest.raises(
        ValueError, match=r"score must map .* to the shape of x, \(1, 2\), got \(1,\)"
    ):
        residual.score(lambda y, t: y[:, 0], x, 0.1)
    with pytest.raises(ValueError, match="score must be differentiable in x"):
        residual.score(lambda y, t: y.detach() * t[:, None], x, 0.1)
    with pytest.raises(ValueError, match=r"t must be in \[0, inf\)"):
        residual.score(rotating, x, -0.1)
