"""The schedulers of diffusers integrate the same flow: their limit is that of the exact one."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from oism.process import Noising, OrnsteinUhlenbeck, VariancePreserving
from studies.sampling.peers import (
    GRIDS,
    PEERS,
    SHORTEST,
    Grid,
    betas,
    grid_times,
    sample,
    training_times,
)

pytest.importorskip("diffusers")
# A name on its own: diffusers warns of optional packages that it would rather have.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

NOISING, FIRST, DIM = Noising(OrnsteinUhlenbeck(), VariancePreserving()), 1e-5, 4
EVEN, SHORT = GRIDS[1], GRIDS[3]


class Mixture:
    """ε̂(x, τ) of a mixture of Gaussians with diagonal covariances, exact, with calls counted."""

    def __init__(self) -> None:
        source = torch.Generator().manual_seed(0)
        self.means = 0.6 * torch.randn(3, DIM, generator=source, dtype=torch.float64)
        self.variances = 0.02 + 0.2 * torch.rand(3, DIM, generator=source, dtype=torch.float64)
        self.log_weights = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).log()
        self.times: list[float] = []

    def __call__(self, x: Tensor, tau: float) -> Tensor:
        self.times.append(tau)
        alpha, sigma = float(NOISING.alpha(tau)), float(NOISING.sigma(tau))
        variance = alpha**2 * self.variances + sigma**2
        apart = x.double()[:, None] - alpha * self.means
        density = self.log_weights - 0.5 * (apart.square() / variance + variance.log()).sum(-1)
        score = -(density.softmax(-1)[..., None] * apart / variance).sum(1)
        return (-sigma * score).to(x.dtype)


def exact_flow(predictor: Callable[[Tensor, float], Tensor], noise: Tensor, steps: int) -> Tensor:
    """Return the end of the flow dy = -e^{-λ} ε̂ dλ of y = x/α, by a method of order four in λ."""
    ends = [float(NOISING.log_snr(tau)) / 2 for tau in (1.0, FIRST)]
    width = (ends[1] - ends[0]) / steps

    def slope(level: float, y: Tensor) -> Tensor:
        tau = float(NOISING.tau_of_log_snr(2 * level))
        return -math.exp(-level) * predictor(y * NOISING.alpha(tau), tau)

    y = noise.double() / NOISING.alpha(1.0)
    for k in range(steps):
        level = ends[0] + k * width
        first = slope(level, y)
        second = slope(level + width / 2, y + width / 2 * first)
        third = slope(level + width / 2, y + width / 2 * second)
        last = slope(level + width, y + width * third)
        y = y + width / 6 * (first + 2 * second + 2 * third + last)
    return y - math.exp(-ends[1]) * predictor(y * NOISING.alpha(FIRST), FIRST)


@pytest.fixture(scope="module")
def noise() -> Tensor:
    return torch.randn(100, DIM, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def end(noise: Tensor) -> Tensor:
    found, half = (exact_flow(Mixture(), noise, steps) for steps in (200, 100))
    assert rms(found - half) < 1e-5
    return found


def rms(x: Tensor) -> float:
    return float(x.double().square().mean().sqrt())


LIMITS = {
    "DPM-Solver++(2M)": (4e-3, 2), "DPM-Solver++(3M)": (2e-3, 2), "UniPC-2": (2e-3, 2),
    "UniPC-3": (2e-3, 2), "DEIS-2": (8e-3, 1.5), "DEIS-3": (2e-3, 2), "Heun": (2e-2, 2),
    "DDIM": (4e-2, 1),
}  # fmt: skip
"""The largest distance from the flow after 80 evaluations, and the least order of convergence."""


@pytest.mark.parametrize("grid", GRIDS[1:3], ids=lambda grid: grid.name)
@pytest.mark.parametrize("name", PEERS)
def test_the_limit_is_the_exact_flow(name: str, grid: Grid, noise: Tensor, end: Tensor) -> None:
    most, order = LIMITS[name]
    errors = [
        rms(sample(PEERS[name], grid, Mixture(), NOISING, noise, n, first=FIRST) - end)
        for n in (20, 80)
    ]
    assert errors[1] < most
    assert math.log(errors[0] / errors[1], 4) > 0.75 * order


def test_a_wrong_time_has_another_limit(noise: Tensor, end: Tensor) -> None:
    """A predictor that is given times 10% off does not converge to the flow."""
    exact = Mixture()
    wrong = [
        rms(sample(PEERS["UniPC-2"], SHORT, moved, NOISING, noise, 80, first=FIRST) - end)
        for moved in (exact, lambda x, tau: exact(x, min(1.0, 1.1 * tau)))
    ]
    assert wrong[0] < 2e-3
    assert wrong[1] > 10 * wrong[0]


@pytest.mark.parametrize("evaluations", [5, 8, 10, 15, 20])
@pytest.mark.parametrize("name", PEERS)
def test_evaluations_are_counted_and_cover_the_levels(
    name: str, evaluations: int, noise: Tensor
) -> None:
    predictor = Mixture()
    found = sample(PEERS[name], EVEN, predictor, NOISING, noise[:2], evaluations, first=FIRST)
    assert bool(found.isfinite().all())
    times = predictor.times
    assert len(times) == evaluations - (name == "Heun" and evaluations % 2 == 0)
    assert times[0] == pytest.approx(1.0, abs=1e-4)
    assert times[-1] == pytest.approx(FIRST, rel=0.1)
    assert times == sorted(times, reverse=True)


def test_training_steps_are_those_of_ddpm() -> None:
    tau = training_times(NOISING, FIRST, is_short=True)
    assert len(tau) == 1000
    assert float(tau[0]) == SHORTEST
    found = betas(NOISING, tau)
    linear = torch.linspace(1e-4, 0.02, 1000, dtype=torch.float64)
    # That of DDPM is β/1000 at the steps; here it is the integral of β over a step.
    assert float((found - linear).abs().max()) < 2.5e-4
    kept = torch.cumprod(1 - found, 0)
    torch.testing.assert_close(kept, NOISING.alpha(tau) ** 2)


def test_training_steps_over_all_levels_have_the_first() -> None:
    tau = training_times(NOISING, FIRST, is_short=False)
    assert float(tau[0]) == FIRST
    torch.testing.assert_close(tau[1:], training_times(NOISING, FIRST, is_short=True))
    # A model whose first level is that of DDPM has no longer grid.
    same = training_times(NOISING, SHORTEST, is_short=False)
    torch.testing.assert_close(same, training_times(NOISING, FIRST, is_short=True))


def test_grids_are_even_in_their_variable() -> None:
    edm, even = (grid_times(NOISING, FIRST, grid, 9) for grid in GRIDS[:2])
    levels = NOISING.log_snr(even) / 2
    torch.testing.assert_close(torch.diff(levels), (levels[-1] - levels[0]).expand(8) / 8)
    roots = torch.exp(-NOISING.log_snr(edm) / 2 / 7)
    torch.testing.assert_close(torch.diff(roots), (roots[-1] - roots[0]).expand(8) / 8)
    for tau in (edm, even):
        assert tau[[0, -1]].tolist() == pytest.approx([FIRST, 1.0])


def test_a_scheduler_has_the_levels_of_its_grid() -> None:
    for grid in GRIDS:
        ratios = torch.exp(-NOISING.log_snr(grid_times(NOISING, FIRST, grid, 6)) / 2).flip(0)
        for name in ("DPM-Solver++(2M)", "UniPC-3", "DEIS-2", "DDIM"):
            made = PEERS[name].scheduler(NOISING, FIRST, grid, 6)
            if name == "DDIM":
                kept = made.alphas_cumprod.double()[made.timesteps]
                own = ((1 - kept) / kept).sqrt()
            else:
                own = made.sigmas[:6].double()
            torch.testing.assert_close(own, ratios, rtol=0.05, atol=0)  # float32 at the low end
