"""The torus system: its two algorithms compared with each other and with brute force."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest
import torch
from torch import Tensor

from oism import Fourier
from oism.basis import Averages, product_lattice
from oism.estimation import FourierEquations, FourierMoments, TorusSystem, fold_of
from oism.estimation._systems.choice import choose
from oism.estimation._systems.torus import KNOT_TOLERANCE
from oism.score import RIDGES, Losses

FOLDS = 4
CASES = {  # dimension, largest eigenvalue, points and their spread
    "circle": (1, 200.0, 150, 0.5),
    "circle, sharp and many": (1, 81.0, 4000, 0.2),  # here small ridges are best
    "T2": (2, 30.0, 150, 0.5),
    "T3": (3, 6.0, 150, 0.5),
}
cases = pytest.mark.parametrize("case", CASES)
TIMES = torch.tensor([0.0, 1e-3, 0.02, 0.3, 2.0], dtype=torch.float64)


def points(dim: int, n: int = 150, spread: float = 0.5) -> Tensor:
    """Two clusters."""
    generator = torch.Generator().manual_seed(dim)
    noise = torch.randn(n, dim, generator=generator, dtype=torch.float64)
    return torch.where(torch.arange(n)[:, None] % 3 > 0, 1.0, -1.2) + spread * noise


def system(basis: Fourier, x: Tensor, dense: bool | None = None) -> TorusSystem:
    moments = FourierMoments(basis, FOLDS).update(x)
    return TorusSystem(basis, moments.frequencies, moments.averages(), dense=dense)


@lru_cache
def pair(case: str) -> tuple[TorusSystem, TorusSystem]:
    """One system, dense and matrix-free."""
    dim, bound, n, spread = CASES[case]
    basis, x = Fourier.lattice(dim, bound), points(dim, n, spread)
    return system(basis, x, dense=True), system(basis, x, dense=False)


def full(value: float, like: Tensor = TIMES) -> Tensor:
    return torch.full_like(like, value)


def penalised(own: TorusSystem, t: Tensor, ridge: float, level: float, size: int) -> Tensor:
    """Solve (A + ε ΛP) α = -b for the leading functions, time by time."""
    equations = FourierEquations.of(own.basis, own.lattice, own.averages.total)
    rates = -own.basis.eigenvalues[:size]
    cutoff = own.radius * 2 ** (-level / 2)
    diagonal = torch.diag(ridge * rates * rates * (1 + (rates / cutoff**2) ** 6))
    alpha = torch.zeros(len(t), own.basis.size, dtype=torch.float64)
    for i in range(len(t)):
        matrix = equations.dense(t[i : i + 1])[0, :size, :size]
        right = equations.right(t[i : i + 1])[0, :size]
        alpha[i, :size] = torch.linalg.solve(matrix + diagonal, -right)
    return alpha


def apart(one: Tensor, other: Tensor) -> float:
    """The largest difference at any time, relative to the largest coefficient at that time."""
    return float(((one - other).abs().amax(dim=1) / other.abs().amax(dim=1)).max())


def test_cutoffs_and_penalties() -> None:
    own = system(Fourier.lattice(1, 400), points(1))
    assert own.radius == 20
    cutoffs = own.cutoff(torch.tensor([0.0, 1.0, 2.0, 5.0], dtype=torch.float64))
    expected = torch.tensor([20, 20 / math.sqrt(2), 10, 20 / math.sqrt(32)], dtype=torch.float64)
    torch.testing.assert_close(cutoffs, expected, rtol=1e-15, atol=0)
    # c = 10 at level 2: P(ξ) = ξ² (1 + (ξ/10)¹²); without a cutoff P = ξ².
    eigenvalues = -torch.tensor([1.0, 25.0, 100.0, 400.0], dtype=torch.float64)
    levels = torch.tensor([2.0, own.untruncated], dtype=torch.float64)
    penalty = own.penalty(levels, eigenvalues)
    hand = [1 * (1 + 1e-12), 25 * (1 + 2.0**-12), 100 * 2.0, 400 * (1 + 2.0**12)]
    assert penalty[0].tolist() == pytest.approx(hand, rel=1e-14)
    torch.testing.assert_close(penalty[1], -eigenvalues, rtol=1e-14, atol=0)


@pytest.mark.parametrize(
    ("bound", "levels"), [(1, 1), (9, 1), (17, 1), (20, 2), (25, 2), (36, 3), (400, 6)]
)
def test_the_smallest_cutoff_is_three(bound: int, levels: int) -> None:
    basis = Fourier.lattice(2, bound)
    own = system(basis, points(2, 10))
    assert own.levels == levels
    last = torch.tensor([levels - 1.0, levels], dtype=torch.float64)
    smallest, next_one = own.cutoff(last).tolist()
    assert smallest >= 3 - 1e-12 or levels == 1
    assert next_one < 3 + 1e-12


@cases
@pytest.mark.parametrize("ridge", [1e-3, 1e-2, 1.0])
def test_dense_and_matrix_free_solutions_agree(
    case: str, ridge: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    dense, free = pair(case)
    for level in (0.0, 0.5, dense.levels - 1.0, dense.untruncated):
        one = dense.solve(TIMES, full(ridge), full(level))
        other = free.solve(TIMES, full(ridge), full(level))
        assert apart(other.alpha, one.alpha) < 1e-8
        assert bool((one.iterations == 0).all())
        assert bool((other.iterations > 0).all())
    monkeypatch.setattr("oism.estimation._systems.torus.FINAL_TOLERANCE", 1e-13)
    exact = dense.solve(TIMES, full(ridge), full(0.0)).alpha
    assert apart(free.solve(TIMES, full(ridge), full(0.0)).alpha, exact) < 1e-9


@cases
@pytest.mark.parametrize("level", [-32.0, 0.0, 0.7, 1.0, 2.0])
def test_solutions_satisfy_the_penalised_equations(case: str, level: float) -> None:
    dense, _ = pair(case)
    early = TIMES[:3]
    for ridge in (1e-4, 1e-2, 1.0):
        found = dense.solve(early, full(ridge, early), full(level, early)).alpha
        assert apart(found, penalised(dense, early, ridge, level, dense.basis.size)) < 1e-11


def test_beyond_three_times_the_cutoff_functions_are_left_out() -> None:
    own = system(Fourier.lattice(1, 900), points(1), dense=True)
    early = TIMES[:3]
    for level in (4.3, 5.5):
        cutoff = 30 * 2 ** (-level / 2)
        steps = math.floor(4 * level - 8 * math.log2(3))  # bands are 30·2^{-k/8}, to hold 3c
        size = 2 * math.floor(30 * 2 ** (-steps / 8))
        assert 3 * cutoff <= size / 2 + 1 < 3 * 2 ** (1 / 8) * cutoff + 1
        found = own.solve(early, full(0.01, early), full(level, early)).alpha
        assert bool((found[:, size:] == 0).all())
        assert apart(found, penalised(own, early, 0.01, level, size)) < 1e-10
        whole = penalised(own, early, 0.01, level, own.basis.size)
        assert apart(found, whole) < 1e-7


@pytest.mark.parametrize("dense", [True, False])
def test_leaving_out_functions_below_rounding_does_not_change_the_solution(dense: bool) -> None:
    basis, t = Fourier.lattice(1, 900), torch.tensor([1.5, 3.0, 9.0], dtype=torch.float64)
    own = system(basis, points(1), dense=dense)
    for ridge in (1e-3, 1e-2, 0.1):
        found = own.solve(t, full(ridge, t), full(0.0, t)).alpha
        assert bool((found[:, -2:] == 0).all())  # something was left out
        assert apart(found, penalised(own, t, ridge, 0.0, basis.size)) < 1e-8


def test_leaving_out_functions_is_accurate_for_a_point_mass() -> None:
    # The worst case: log ρ_t has coefficients of order e^{-|ξ|t}, and not e^{-ξ²t}.
    basis, t = Fourier.lattice(1, 900), torch.tensor([0.4, 1.5, 3.0], dtype=torch.float64)
    own = system(basis, torch.zeros(5, 1, dtype=torch.float64))
    matrix = FourierEquations.of(basis, own.lattice, own.averages.total).dense(t)
    for ridge in (1e-4, 1e-3, 1e-2, 0.1):
        found = own.solve(t, full(ridge, t), full(0.0, t)).alpha
        whole = penalised(own, t, ridge, 0.0, basis.size)
        change, score = (
            (alpha[:, None] @ matrix @ alpha[..., None]).flatten().sqrt()
            for alpha in (found - whole, whole)
        )
        assert bool((change < 1e-8 * score).all())


@cases
def test_the_norm_is_that_of_the_gradient(case: str) -> None:
    dim, _, n, spread = CASES[case]
    x = points(dim, n, spread)
    for own in pair(case):
        alpha = own.solve(TIMES, full(1e-2), full(0.0)).alpha
        norm = own.norm(TIMES, alpha)
        slopes = own.basis.series(x, alpha[0], derivative=1)  # at t = 0, E|∇f|² over the points
        assert float(norm[0]) == pytest.approx(float(slopes.square().sum(dim=1).mean().sqrt()))
        matrix = FourierEquations.of(own.basis, own.lattice, own.averages.total).dense(TIMES)
        form = (alpha[:, None] @ matrix @ alpha[..., None]).flatten()
        torch.testing.assert_close(norm, form.sqrt(), rtol=1e-9, atol=0)


def test_a_start_at_the_solution_takes_no_steps() -> None:
    _, free = pair("T2")
    arguments = TIMES, full(1e-2), full(1.0)
    cold = free.solve(*arguments)
    warm = free.solve(*arguments, start=cold.alpha)
    assert bool((warm.iterations <= 1).all())
    torch.testing.assert_close(warm.alpha, cold.alpha, rtol=1e-7, atol=1e-9)
    near = free.solve(*arguments, start=1.0001 * cold.alpha)
    assert bool((near.iterations < 0.8 * cold.iterations).all())
    assert apart(near.alpha, cold.alpha) < 10 * KNOT_TOLERANCE, (
        "with a guess the tolerance is larger"
    )


@cases
@pytest.mark.parametrize("ridge", [1e-4, 1e-2])
def test_approximate_solutions_have_errors_of_a_few_tolerances(case: str, ridge: float) -> None:
    dense, free = pair(case)
    for level in (0.0, 1.0):
        arguments = TIMES, full(ridge), full(level)
        exact = dense.solve(*arguments).alpha
        near = free.solve(*arguments, start=0.9 * exact)
        for found in (free.diagnose(*arguments), near):
            error = dense.norm(TIMES, found.alpha - exact) / dense.norm(TIMES, exact)
            assert float(error.max()) < 10 * KNOT_TOLERANCE


def test_the_approximate_inverse_saves_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    own = system(Fourier.lattice(2, 300), points(2, 4000, 0.5), dense=False)
    t = torch.tensor([1e-3, 0.02, 0.1, 0.3], dtype=torch.float64)
    level = torch.tensor([3.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    arguments = t, full(1e-3, t), level
    exact = own.solve(*arguments)
    found = own.solve(*arguments, start=torch.zeros_like(exact.alpha))
    error = own.norm(t, found.alpha - exact.alpha) / own.norm(t, exact.alpha)
    assert float(error.max()) < 1e-4  # of functions beyond the band
    monkeypatch.setattr("oism.estimation._systems.torus.FINAL_TOLERANCE", KNOT_TOLERANCE)
    shares = found.iterations / own.solve(*arguments).iterations
    assert bool((shares < torch.tensor([1.0, 0.7, 0.4, 0.2])).all())


@cases
def test_diagnose_returns_the_extreme_eigenvalues(case: str) -> None:
    dense, free = pair(case)
    early = TIMES[:3]
    arguments = early, full(1e-2, early), full(1.0, early)
    one, other = dense.diagnose(*arguments), free.diagnose(*arguments)
    equations = FourierEquations.of(dense.basis, dense.lattice, dense.averages.total)
    penalty = dense.penalty(full(1.0, early), dense.basis.eigenvalues)
    scale = (-dense.basis.eigenvalues * penalty).rsqrt()
    values = torch.linalg.eigvalsh(scale[..., None] * equations.dense(early) * scale[:, None])
    torch.testing.assert_close(one.smallest, values[:, 0], rtol=0, atol=1e-13)
    torch.testing.assert_close(one.largest, values[:, -1], rtol=1e-12, atol=0)
    assert apart(one.alpha, dense.solve(*arguments).alpha) < 1e-12
    assert bool((other.smallest >= values[:, 0] - 1e-10).all())
    assert bool((other.largest <= values[:, -1] + 1e-10).all())
    torch.testing.assert_close(other.largest, values[:, -1], rtol=1e-3, atol=0)


def brute_force(basis: Fourier, x: Tensor, level: int, radius: float) -> Tensor:
    """Fit on the training rows, evaluate E|∇f|² + 2EΔf on the others: (folds, ridges), t = 0."""
    cutoff = radius * 2 ** (-level / 2)
    band = 2 ** (5 / 8) * cutoff * (1 + 1e-12)  # the next one of eight per octave above 1.5c
    inside = (basis.frequencies.norm(dim=1) <= max(4, band)).repeat_interleave(2)
    rates = torch.where(inside, -basis.eigenvalues, math.inf)
    fold, losses = fold_of(x, FOLDS), []
    for held in torch.unique(fold):
        jet = basis.jet(x[fold != held])
        flat = jet.gradients.movedim(1, 2).flatten(0, 1)
        matrix = flat.mT @ flat / len(jet.values)
        right = jet.laplacians.mean(dim=0)
        penalty = rates.square() * (1 + (rates / cutoff**2) ** 6)
        keep = inside.nonzero()[:, 0]
        for ridge in RIDGES:
            own = matrix[keep][:, keep] + torch.diag(ridge * penalty[keep])
            alpha = torch.zeros(basis.size, dtype=torch.float64)
            alpha[keep] = torch.linalg.solve(own, -right[keep])
            rest = x[fold == held]
            slopes, bends = basis.series(rest, alpha, 1), basis.series(rest, alpha, 2)
            losses.append(slopes.square().sum(dim=1).mean() + 2 * bends.mean())
    return torch.stack(losses).reshape(-1, len(RIDGES))


@pytest.mark.parametrize(("n", "judged"), [(5000, FOLDS), (5001, 3), (20_000, 3), (20_001, 2)])
def test_fewer_folds_are_judged_of_many_rows(n: int, judged: int) -> None:
    own = system(Fourier.lattice(1, 9), points(1, n, 0.5))
    losses = own.losses(torch.tensor([0.1], dtype=torch.float64))
    assert len(losses.values) == len(losses.shares) == judged
    assert float(losses.shares.sum()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("dim", "bound", "n", "spread", "levels"),
    [(1, 81, 60, 0.5, 4), (1, 81, 4000, 0.2, 4), (2, 25, 200, 0.5, 2), (3, 3, 60, 0.5, 1)],
)
def test_losses_agree_with_brute_force(
    dim: int, bound: int, n: int, spread: float, levels: int
) -> None:
    basis, x = Fourier.lattice(dim, bound), points(dim, n, spread)
    own = system(basis, x, dense=True)
    assert own.levels == levels
    losses = own.losses(torch.zeros(1, dtype=torch.float64))
    fold = fold_of(x, FOLDS)
    assert losses.shares.tolist() == pytest.approx(
        [float((fold == one).double().mean()) for one in torch.unique(fold)]
    )
    assert losses.values.shape == (len(torch.unique(fold)), 1, levels, len(RIDGES))
    tried = losses.values[0, 0].isfinite().any(dim=1).nonzero()[:, 0].tolist()
    assert tried == list(range(levels))[-len(tried) :]  # the smallest cutoffs
    assert len(tried) >= min(2, levels)
    for level in tried:
        got, expected = losses.values[:, 0, level], brute_force(basis, x, level, own.radius)
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-12)


def levels_to_try(own: TorusSystem, losses: Losses, place: int) -> list[int]:
    """Return the levels that are tried at a time, the smallest cutoff first, from all losses."""
    mean = torch.einsum("f,fle->le", losses.shares, losses.values[:, place])
    ridge = mean.argmin(dim=1)
    folds = [losses.values[:, place, level, one] for level, one in enumerate(ridge.tolist())]
    cutoffs = own.cutoff(torch.arange(own.levels, dtype=torch.float64))
    noise = own.averages.total.abs().square() * float(own.averages.counts[0])
    structure = own.lattice.norm(dim=1)[noise > math.log(len(noise) / 0.01)]
    tried: list[int] = []
    best, worse, idle, gains = None, 0, 0, True
    for level in reversed(range(own.levels)):
        smoothed = float(cutoffs[level].square() * TIMES[place]) > 0.3
        if (smoothed and (level or not gains)) or max(worse, idle) == 2:
            continue
        tried.append(level)
        if best is None:
            best = folds[level]
            continue
        gap, size = folds[level] - best, abs(float(losses.shares @ best))
        centre = float(losses.shares @ gap)
        error = math.sqrt(float(losses.shares @ (gap - centre).square()) / (len(gap) - 1))
        worse = worse + 1 if centre > max(0.02 * size, 2 * error) else 0
        gains = centre < -1e-3 * abs(float(losses.shares @ folds[level]))
        finer = bool((structure > cutoffs[level]).any())
        idle = 0 if gains or finer else idle + 1
        best = folds[level] if centre < 0 else best
    return tried


@cases
def test_levels_are_tried_until_they_are_no_better(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dense, _ = pair(case)
    losses = dense.losses(TIMES)
    finite = losses.values.isfinite()
    assert not bool(losses.values.isnan().any())
    assert torch.equal(finite, finite[:1, :, :, :1].expand_as(finite))  # all folds and ridges
    monkeypatch.setattr("oism.estimation._systems.torus_sweep.PATIENCE", 99)
    monkeypatch.setattr("oism.estimation._systems.torus_sweep.SMOOTHED", math.inf)
    every = dense.losses(TIMES)
    assert bool(every.values.isfinite().all())
    for place in range(len(TIMES)):
        tried = finite[0, place, :, 0].nonzero()[:, 0].tolist()
        assert tried == sorted(levels_to_try(dense, every, place)), place


def test_fine_structure_is_not_missed_behind_coarse_levels_without_gain() -> None:
    # A density 1 + cos(40 x) has no structure below 40: eight cutoffs in a row are no better.
    grid = torch.linspace(-math.pi, math.pi, 4001, dtype=torch.float64)[:-1]
    x = grid.repeat_interleave((100 * (1 + (40 * grid).cos())).round().long())[:, None]
    own = system(Fourier.lattice(1, 60**2), x)
    _, level, _ = choose(own.losses(torch.tensor([1e-4], dtype=torch.float64)))
    assert float(own.cutoff(level)) > 28


@cases
def test_small_ridges_are_tried_while_the_loss_falls(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, free = pair(case)
    monkeypatch.setattr("oism.estimation._systems.torus_sweep.LEAST_RIDGE", 0.0)
    monkeypatch.setattr("oism.estimation._systems.torus_bands.CHUNK", 1)  # every time for itself
    losses = free.losses(TIMES)
    finite = losses.values.isfinite()
    assert torch.equal(finite.all(dim=0), finite.any(dim=0))
    mean = torch.einsum("f,ftle->tle", losses.shares, losses.values)
    large = int((RIDGES < 9e-4).sum())  # from here up all are tried
    last = set()
    for path in mean[finite[0, ..., -1]]:
        first = int(path.isfinite().int().argmax())
        assert bool(path[first:].isfinite().all())
        assert first < large
        falls = path[1:] - path[:-1] > 1e-4 * path[:-1].abs()
        assert bool(falls[first + 1 : large - 1].all()), "all but the last are better"
        assert first == 0 or not bool(falls[first])
        last.add(first)
    assert min(last) < 4 or "sharp" not in case


@cases
def test_dense_and_matrix_free_losses_agree(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dense, free = pair(case)
    monkeypatch.setattr("oism.estimation._systems.torus_sweep.LEAST_RIDGE", 0.0)
    exact, swept = dense.losses(TIMES), free.losses(TIMES)
    offered = swept.values.isfinite()  # with dense algebra all ridges are tried
    assert torch.equal(offered[..., 8:], exact.values.isfinite()[..., 8:])
    assert bool(exact.values[offered].isfinite().all())
    exact = replace(exact, values=exact.values.where(offered, math.inf))
    scale = exact.values.abs().where(offered, 0).amax(dim=(0, 2), keepdim=True)
    error = ((exact.values - swept.values).abs() / scale)[offered]
    assert float(error.max()) < 2e-4
    error = ((exact.values - swept.values).abs() / scale)[..., 8:][offered[..., 8:]]
    assert float(error.max()) < 5e-5
    # The choices are the same.
    (ridge, level, loss), (other_ridge, other_level, other_loss) = choose(exact), choose(swept)
    assert torch.equal(level, other_level)
    torch.testing.assert_close(ridge, other_ridge, rtol=0, atol=0.05)
    torch.testing.assert_close(loss, other_loss, rtol=1e-3, atol=0)
    # With a smaller tolerance the losses agree.
    monkeypatch.setattr("oism.estimation._systems.torus_sweep.SWEEP_TOLERANCE", 1e-12)
    monkeypatch.setattr("oism.estimation._systems.torus_sweep.SWEEP_ITERATIONS", 1000)
    found = free.losses(TIMES).values
    both = found.isfinite() & offered
    assert float(((exact.values - found).abs() / scale)[both].max()) < 1e-9


@pytest.mark.parametrize("n", [600, 6000])
@pytest.mark.parametrize("spread", [0.15, 0.5])
def test_short_paths_of_many_rows_have_the_same_levels_and_losses(spread: float, n: int) -> None:
    basis, x = Fourier.lattice(2, 100), points(2, n, spread)
    t = torch.tensor([1e-4, 0.01, 0.5], dtype=torch.float64)
    every, short = (system(basis, x, dense=dense).losses(t) for dense in (True, None))
    tried = short.values.isfinite().sum()
    assert int(tried) < 0.8 * int(every.values.isfinite().sum())
    (_, level, loss), (_, other_level, other_loss) = choose(every), choose(short)
    assert torch.equal(level, other_level)
    torch.testing.assert_close(other_loss, loss, rtol=3e-3, atol=0)


@pytest.mark.parametrize(
    ("n", "bound", "judged"),
    [(500, 100, 9), (600, 100, 5), (5001, 100, 3), (600, 25, 9), (5001, 25, 3)],
)
def test_fewer_times_are_judged_at_first_in_large_systems(
    n: int, bound: int, judged: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 316 functions, or with 80."""
    own, counts, losses = system(Fourier.lattice(2, bound), points(2, n)), [], TorusSystem.losses

    def counted(self: TorusSystem, t: Tensor, *args: Tensor, **rest: Any) -> Losses:
        counts.append(len(t))
        return losses(self, t, *args, **rest)

    monkeypatch.setattr(TorusSystem, "losses", counted)
    found = own.choices(torch.linspace(0.01, 1, 9, dtype=torch.float64))
    assert counts[0] == judged
    assert sum(counts) <= 9
    assert all(len(part) == 9 and bool(part.isfinite().all()) for part in found)


def test_matrix_free_ridges_far_below_one_row_are_not_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dense, free = pair("circle, sharp and many")
    every = dense.losses(TIMES).values.isfinite()
    assert bool(every[..., :3].any())
    monkeypatch.setattr("oism.estimation._systems.torus_sweep.RIDGE_GAIN", -math.inf)
    for share in (0.0, 0.041, 0.41):  # of 4000 rows: above 1e-5 and 1e-4
        monkeypatch.setattr("oism.estimation._systems.torus_sweep.LEAST_RIDGE", share)
        finite = free.losses(TIMES).values.isfinite()
        least = int((share / 4000 > RIDGES).sum())
        assert not bool(finite[..., :least].any())
        assert torch.equal(finite[..., least], finite[..., -1])
    monkeypatch.setattr("oism.estimation._systems.torus_sweep.LEAST_RIDGE", 1e9)
    assert torch.equal(dense.losses(TIMES).values.isfinite(), every), (
        "dense algebra gives all ridges at once"
    )


def test_batches_of_times_do_not_change_the_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    dense, free = pair("circle")
    level = torch.linspace(0, 1, len(TIMES), dtype=torch.float64)
    wholes = [own.solve(TIMES, full(0.01), level).alpha for own in (dense, free)]
    losses = dense.losses(TIMES).values
    monkeypatch.setattr("oism.estimation._systems.torus_bands.CHUNK", 1)
    for own, whole in zip((dense, free), wholes, strict=True):
        assert apart(own.solve(TIMES, full(0.01), level).alpha, whole) < 1e-8
    torch.testing.assert_close(dense.losses(TIMES).values, losses, rtol=1e-9, atol=1e-12)


def test_the_number_of_functions_selects_the_algorithm() -> None:
    own = system(Fourier.lattice(1, 300**2), points(1, 9))
    assert [own.is_dense(band) for band in (4.0, 150.0, 151.0, math.inf)] == [1, 1, 0, 0]
    assert [own.is_dense(band, 512) for band in (151.0, 256.0, 257.0)] == [1, 1, 0]
    forced = [system(own.basis, points(1, 9), dense=dense) for dense in (True, False)]
    assert [one.is_dense(band) for one in forced for band in (4.0, math.inf)] == [1, 1, 0, 0]


def test_moments_that_no_density_has_give_a_warning() -> None:
    basis = Fourier.lattice(1, 25)
    lattice = product_lattice(basis)
    generator = torch.Generator().manual_seed(0)
    means = 2 * torch.randn(len(lattice), generator=generator, dtype=torch.complex128)
    none = torch.zeros(0, dtype=torch.float64)
    own = TorusSystem(basis, lattice, Averages(means, none, none, none, none), dense=False)
    zero = torch.zeros(1, dtype=torch.float64)
    with pytest.warns(
        RuntimeWarning, match="the ridge is too small, or the moments are not those of a density"
    ):
        own.solve(zero + 1e-3, zero, zero)
    with pytest.warns(RuntimeWarning, match="the ridge is too small"):  # for interpolation too
        own.diagnose(zero + 1e-3, zero, zero)


@pytest.mark.parametrize("dim", [1, 2])
def test_an_even_density_needs_cosines_only(dim: int) -> None:
    basis = Fourier.lattice(dim, 40)
    moments = FourierMoments(basis, FOLDS).update(points(dim))
    even = moments.reflected(torch.ones(dim, dtype=torch.bool))
    equations = FourierEquations.of(basis, even.frequencies, even.averages().total)
    assert equations.active == slice(None, None, 2)
    matrix = equations.dense(TIMES)
    torch.testing.assert_close(equations.active_matrix(TIMES), matrix[..., ::2, ::2])
    assert float(matrix[..., ::2, 1::2].abs().max()) == 0
    assert float(equations.right(TIMES)[..., 1::2].abs().max()) == 0
    other = FourierEquations.of(basis, moments.frequencies, moments.averages().total)
    torch.testing.assert_close(other.active_matrix(TIMES), other.dense(TIMES))
    dense, free = (
        TorusSystem(basis, even.frequencies, even.averages(), dense=one) for one in (True, False)
    )
    first, second = (own.solve(TIMES, full(0.01), full(1.0)).alpha for own in (dense, free))
    assert apart(first, second) < 1e-8
    assert float(first[:, 1::2].abs().max()) == 0
    exact, swept = (own.losses(TIMES).values for own in (dense, free))
    both = swept.isfinite() & (RIDGES > 1e-3)
    torch.testing.assert_close(exact[both], swept[both], rtol=1e-2, atol=1e-3)
