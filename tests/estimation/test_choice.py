"""The choice of ridge and level from given losses, and schedules."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oism.estimation._systems.choice import choose
from oism.score import RIDGES, Losses, Schedule

GRID = RIDGES.log()
STEP = float(GRID[1] - GRID[0])


def bowl(centre: float, height: float = 0.0, width: float = 4.0) -> Tensor:
    """A parabola in log ε: (ridges,)."""
    return height + ((GRID - centre) / width).square()


def losses(values: Tensor, shares: Tensor | None = None) -> Losses:
    if shares is None:
        shares = torch.full((len(values),), 1 / len(values), dtype=torch.float64)
    return Losses(values, shares)


def folds(*levels: Tensor, noise: Tensor | None = None) -> Tensor:
    """(folds, 1, levels, ridges): the same in every fold, plus noise (folds, levels)."""
    noise = torch.zeros(3, len(levels), dtype=torch.float64) if noise is None else noise
    return torch.stack(levels)[None, None] + noise[:, None, :, None]


def test_candidate_ridges() -> None:
    assert len(RIDGES) == 15
    assert float(RIDGES[0]) == pytest.approx(1e-6)
    assert float(RIDGES[-1]) == pytest.approx(10)
    torch.testing.assert_close(GRID.diff(), torch.full((14,), math.log(10) / 2).double())


@given(level=st.integers(0, 3), ridge=st.integers(0, 14), seed=st.integers(0, 10**6))
def test_the_candidate_with_the_smallest_loss_is_chosen(level: int, ridge: int, seed: int) -> None:
    # One candidate is by far the best in every fold; the losses of the others are larger noise.
    values = torch.rand(4, 2, 4, 15, generator=torch.Generator().manual_seed(seed)).double()
    values[..., level, ridge] = -1.0
    found = choose(losses(values))
    assert found[1].tolist() == [level, level]
    assert found[2].tolist() == pytest.approx([-1.0, -1.0])
    # A parabola through noise may shift the ridge by half a step, and not at all at the ends.
    assert float((found[0] - GRID[ridge]).abs().max()) <= 0.5 * STEP + 1e-12
    if ridge in (0, 14):
        assert float((found[0] - GRID[ridge]).abs().max()) < 1e-12


@given(centre=st.floats(-13, 1.5), width=st.floats(0.5, 20))
def test_the_minimum_of_a_parabola_is_exact(centre: float, width: float) -> None:
    log_ridge, _, loss = choose(losses(folds(bowl(centre, width=width))))
    assert float(log_ridge) == pytest.approx(centre, abs=1e-6 * max(1, width) ** 2)
    nearest = float(bowl(centre, width=width).min())
    assert float(loss) == pytest.approx(nearest, abs=1e-15)


@pytest.mark.parametrize(("centre", "edge"), [(-20.0, 0), (5.0, 14)])
def test_a_monotone_loss_gives_the_first_or_last_ridge(centre: float, edge: int) -> None:
    log_ridge, _, _ = choose(losses(folds(bowl(centre))))
    assert float(log_ridge) == pytest.approx(float(GRID[edge]), abs=1e-12)


def test_a_constant_loss_is_not_refined() -> None:
    log_ridge, level, loss = choose(losses(torch.ones(3, 1, 1, 15, dtype=torch.float64)))
    assert float(log_ridge) in [pytest.approx(float(one)) for one in GRID]
    assert (float(level), float(loss)) == (0, 1)


# Level 1 is worse by a gap ± 1 in alternating folds: over four equal folds the standard error of
# the paired difference is √(1/3) = 0.577.
SIGNS = torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)
ERROR = math.sqrt(1 / 3)


@pytest.mark.parametrize(("gap", "level"), [(0.0, 1), (0.99, 1), (1.01, 0), (3.0, 0)])
def test_within_a_standard_error_the_simpler_level_is_chosen(gap: float, level: int) -> None:
    noise = torch.stack((torch.zeros_like(SIGNS), SIGNS), dim=1)
    values = folds(bowl(-6.0), bowl(-2.0, gap * ERROR), noise=noise)
    log_ridge, chosen, loss = choose(losses(values))
    assert float(chosen) == level
    assert float(log_ridge) == pytest.approx((-6.0, -2.0)[level], abs=1e-9)  # that level's own
    assert float(loss) == pytest.approx(float(values.mean(dim=0)[0, level].min()))


def test_the_simplest_of_several_tied_levels_is_chosen() -> None:
    noise = torch.stack((torch.zeros_like(SIGNS), SIGNS, SIGNS, SIGNS), dim=1)
    levels = [bowl(-6.0), bowl(-6.0, 0.1), bowl(-6.0, 0.5), bowl(-6.0, 0.7)]
    assert float(choose(losses(folds(*levels, noise=noise)))[1]) == 2


def test_the_error_is_that_of_the_paired_difference() -> None:
    # Folds differ much, but equally for both levels: the worse level is not tied.
    noise = 10 * torch.stack((SIGNS, SIGNS), dim=1)
    assert float(choose(losses(folds(bowl(-6.0), bowl(-6.0, 0.01), noise=noise)))[1]) == 0


def test_a_simpler_level_that_is_better_is_chosen() -> None:
    noise = torch.stack((SIGNS, torch.zeros_like(SIGNS)), dim=1)
    assert float(choose(losses(folds(bowl(-6.0, 0.5), bowl(-6.0), noise=noise)))[1]) == 1
    # A richer level within the standard error of it is not chosen.
    assert float(choose(losses(folds(bowl(-6.0, 0.01), bowl(-6.0), noise=noise)))[1]) == 1


def test_folds_are_weighted_by_their_share() -> None:
    # Fold 0 has nearly all rows and prefers the first candidate.
    values = torch.ones(2, 1, 1, 15, dtype=torch.float64)
    values[0, 0, 0, 3], values[1, 0, 0, 9] = 0.0, -5.0
    shares = torch.tensor([0.9, 0.1], dtype=torch.float64)
    log_ridge, _, loss = choose(losses(values, shares))
    assert float(log_ridge) == pytest.approx(float(GRID[3]))
    assert float(loss) == pytest.approx(0.1)
    shares = torch.tensor([0.1, 0.9], dtype=torch.float64)
    assert float(choose(losses(values, shares))[0]) == pytest.approx(float(GRID[9]))


@pytest.mark.parametrize("bad", [math.inf, math.nan, -math.inf])
@pytest.mark.parametrize("in_all_folds", [True, False])
def test_candidates_with_infinite_losses_are_not_chosen(bad: float, in_all_folds: bool) -> None:
    values = folds(bowl(-6.0), bowl(-6.0, 0.3), bowl(-6.0))
    where = slice(None) if in_all_folds else slice(1, 2)
    values[where, 0, 2] = bad  # the simplest level, a tie otherwise
    best = int(bowl(-6.0).argmin())
    values[where, 0, 0, best] = bad  # the best candidate of the best level
    log_ridge, level, loss = choose(losses(values))
    assert float(level) == 0
    second = float(bowl(-6.0).sort().values[1])
    assert float(loss) == pytest.approx(second)
    # With a neighbour that is not finite the ridge is not refined.
    assert float(log_ridge) == pytest.approx(float(GRID[int(bowl(-6.0).argsort()[1])]))


def test_choices_of_coordinates_and_times_are_independent() -> None:
    centres = torch.tensor([[-10.0, -2.0, 0.5], [-7.0, -4.0, -12.0]], dtype=torch.float64)
    values = torch.full((3, 2, 3, 2, 15), 10.0, dtype=torch.float64)
    for t in range(2):
        for j in range(3):
            values[:, t, j, (t + j) % 2] = bowl(float(centres[t, j]), height=t + j)
    log_ridge, level, loss = choose(losses(values))
    torch.testing.assert_close(log_ridge, centres, rtol=0, atol=1e-8)
    assert level.tolist() == [[0, 1, 0], [1, 0, 1]]
    assert level.dtype == torch.float64
    for t in range(2):
        for j in range(3):
            alone = choose(losses(values[:, t : t + 1, j : j + 1]))
            assert [float(one) for one in alone] == pytest.approx(
                [float(log_ridge[t, j]), float(level[t, j]), float(loss[t, j])], rel=1e-12
            )


def schedule(log_ridge: Tensor, level: Tensor) -> Schedule:
    return Schedule(torch.linspace(0, 2, len(level), dtype=torch.float64), log_ridge, level)


def test_a_schedule_reproduces_constants() -> None:
    ones = torch.ones(21, 3, dtype=torch.float64)
    own = schedule(-4.0 * ones, 2.5 * ones)
    tau = torch.linspace(-1, 3, 57, dtype=torch.float64)
    ridge, level = own.at(tau)
    assert ridge.shape == level.shape == (57, 3)
    torch.testing.assert_close(ridge, torch.full_like(ridge, math.exp(-4)), rtol=1e-13, atol=0)
    torch.testing.assert_close(level, torch.full_like(level, 2.5), rtol=1e-13, atol=0)


@pytest.mark.parametrize(
    ("count", "width"), [(41, 1.5), (81, 3.0), (161, 6.0), (21, 1.0), (11, 1.0)]
)
def test_a_schedule_is_a_gaussian_average_over_neighbours(count: int, width: float) -> None:
    # A single different choice is smoothed, in the logarithm of the ridge, over a share of the
    # range that does not depend on the number of choices, and over at least one step.
    tau = torch.linspace(0, 2, count, dtype=torch.float64)
    spike, middle = torch.zeros(count, dtype=torch.float64), count // 2
    spike[middle] = 1.0
    ridge, level = Schedule(tau, spike, spike).at(tau)
    offsets = torch.arange(count, dtype=torch.float64) - middle
    weights = torch.exp(-0.5 * (offsets / width).square())
    peak = 1 / float(weights.sum())
    torch.testing.assert_close(ridge.log(), level, rtol=1e-12, atol=1e-14)
    assert float(level[middle]) == pytest.approx(peak, rel=1e-6)
    near = offsets.abs() <= count // 4
    torch.testing.assert_close(level[near], peak * weights[near], rtol=1e-3, atol=1e-12)


@given(seed=st.integers(0, 10**6))
def test_a_schedule_is_smooth_and_within_the_choices(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    jumps = torch.randint(0, 2, (21,), generator=generator).double()  # the roughest choices
    own = schedule(jumps, jumps)
    step, width = 0.1 / 50, 0.1  # finely sampled; the kernel's deviation, a step of 21
    tau = torch.arange(0, 2, step, dtype=torch.float64)
    ridge, level = own.at(tau)
    torch.testing.assert_close(ridge.log(), level, rtol=0, atol=1e-13)
    assert float(level.min()) >= 0
    assert float(level.max()) <= 1
    # Derivatives of a mean with weights w ∝ e^{-(τ-k)²/2h²} are cumulants of k and the choice c:
    # the first is Cov(k, c)/h² ≤ 1/2h, the second a third cumulant over h⁴, of order 1/h².
    assert float(level.diff().abs().max()) < 0.6 * step / width
    assert float(level.diff(n=2).abs().max()) < 1.0 * (step / width) ** 2


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("ridge", [0.0, 1e-5, 2.0])
def test_one_ridge_for_all_times(batch: tuple[int, ...], ridge: float) -> None:
    own = Schedule.constant(ridge, -32.0, batch)
    found, level = own.at(torch.tensor([0.0, 0.3, 7.0], dtype=torch.float64))
    assert found.shape == level.shape == (3, *batch)
    torch.testing.assert_close(found, torch.full_like(found, ridge), rtol=1e-14, atol=0)
    assert bool((level == -32).all())


def test_without_finite_losses_the_simplest_level_is_chosen() -> None:
    values = torch.full((3, 2, 4, len(RIDGES)), torch.inf, dtype=torch.float64)
    values[:, 1, 2] = torch.nan
    log_ridge, level, _ = choose(losses(values))
    assert level.tolist() == [3, 3]
    torch.testing.assert_close(log_ridge, RIDGES[-1].log().expand(2))
