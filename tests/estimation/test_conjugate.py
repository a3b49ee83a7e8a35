"""Krylov solvers against direct ones."""

from __future__ import annotations

import gc
import itertools
import weakref
from functools import partial
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oism._core import transforms
from oism.estimation._systems import conjugate, direct
from oism.estimation._systems.conjugate import Operator, RidgePath, Solution, conjugate_gradients
from oism.estimation._systems.direct import DirectPath, solved_for_all

SHIFTS = torch.tensor([1e-3, 0.02, 1.0, 30.0], dtype=torch.float64)


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def matrices(spectra: Tensor, seed: int = 0) -> Tensor:
    """Random symmetric matrices with given eigenvalues (S, n)."""
    modes: Tensor = torch.linalg.qr(normal(*spectra.shape, spectra.shape[-1], seed=seed))[0]
    return (modes * spectra[:, None]) @ modes.mT


def product(matrix: Tensor) -> Operator:
    return lambda y: (matrix @ y[..., None])[..., 0]


def shifted(matrix: Tensor, shift: Tensor) -> Tensor:
    return matrix + shift[..., None, None] * torch.eye(matrix.shape[-1], dtype=torch.float64)


def direct_path(matrix: Tensor, right: Tensor) -> Tensor:
    systems = shifted(matrix[:, None], SHIFTS)
    values: Tensor = torch.linalg.solve(systems, right[:, None].expand(-1, len(SHIFTS), -1))
    return values


class Found(NamedTuple):
    values: Tensor  # (S, E, n)
    residual: Tensor  # (S,), of the smallest shift
    iterations: Tensor


def solved(path: RidgePath | DirectPath, number: int) -> Tensor:
    """The solution for one shift: (S, n)."""
    assert list(path.ready([number])) == [number]
    return path.solve([number])[0]


def whole_path(
    operator: Operator, right: Tensor, shifts: Tensor, tolerance: float, iterations: int
) -> Found:
    """All solutions of a path, the largest shift first, as in a sweep."""
    path = RidgePath(operator, right, shifts, tolerance=tolerance, iterations=iterations)
    values = [solved(path, number) for number in reversed(range(len(shifts)))][::-1]
    return Found(torch.stack(values, dim=1), path.residual[:, 0], path.iterations[:, 0])


def path(matrix: Tensor, right: Tensor, tolerance: float = 1e-14, most: int = 400) -> Found:
    return whole_path(product(matrix), right, SHIFTS, tolerance, most)


def relative(got: Tensor, expected: Tensor) -> float:
    """The largest error of any solution, relative to its norm."""
    return float(((got - expected).norm(dim=-1) / expected.norm(dim=-1)).max())


@pytest.mark.parametrize(("systems", "n"), [(1, 1), (1, 5), (6, 40), (3, 120)])
def test_a_ridge_path_agrees_with_direct_solves(systems: int, n: int) -> None:
    spectra = torch.logspace(-1, 1, n, dtype=torch.float64).expand(systems, n)
    matrix, right = matrices(spectra), normal(systems, n, seed=1)
    found = path(matrix, right)
    assert found.values.shape == (systems, len(SHIFTS), n)
    assert relative(found.values, direct_path(matrix, right)) < 1e-11
    assert bool((found.residual <= 1e-14).all())


@given(seed=st.integers(0, 10**6), n=st.integers(1, 12), decades=st.floats(0, 3))
def test_both_solvers_on_random_systems(seed: int, n: int, decades: float) -> None:
    spectra = 10 ** (-decades * torch.rand(2, n, generator=torch.Generator().manual_seed(seed)))
    matrix, right = matrices(spectra.double(), seed), normal(2, n, seed=seed + 1)
    expected = direct_path(matrix, right)
    assert relative(path(matrix, right).values, expected) < 1e-9
    for i, shift in enumerate(SHIFTS):
        found = conjugate_gradients(
            product(matrix), right, shift.expand(2), tolerance=1e-13, iterations=400
        )
        assert relative(found.values, expected[:, i]) < 1e-9


def test_a_singular_matrix() -> None:
    # Rank 7 of 20, and a right-hand side that is not in the range.
    factor, right = normal(2, 20, 7), normal(2, 20, seed=1)
    matrix = factor @ factor.mT
    expected = direct_path(matrix, right)
    assert relative(path(matrix, right).values, expected) < 1e-11
    found = conjugate_gradients(
        product(matrix), right, SHIFTS[:1].expand(2), tolerance=1e-13, iterations=400
    )
    assert relative(found.values, expected[:, 0]) < 1e-10


def test_a_right_hand_side_of_zero_among_others() -> None:
    spectra = torch.linspace(0.5, 4, 10, dtype=torch.float64).expand(3, 10)
    matrix, right = matrices(spectra), normal(3, 10, seed=1)
    right[1] = 0
    found = path(matrix, right)
    assert bool((found.values[1] == 0).all())
    others = [0, 2]
    expected = direct_path(matrix, right)[others]
    assert relative(found.values[others], expected) < 1e-12
    single = conjugate_gradients(
        product(matrix), right, torch.full((3,), 0.1).double(), tolerance=1e-13, iterations=50
    )
    assert bool((single.values[1] == 0).all())
    assert int(single.iterations[1]) == 0
    for field in (found.values, found.residual, single.values, single.residual):
        assert bool(field.isfinite().all())
    for field in (single.smallest, single.largest):
        assert field.isnan().tolist() == [False, True, False], "its spectrum is unknown"


def test_zero_right_hand_sides_need_no_iterations() -> None:
    zero = torch.zeros(2, 4, dtype=torch.float64)
    matrix = torch.eye(4, dtype=torch.float64).expand(2, 4, 4)
    assert bool((path(matrix, zero).values == 0).all())
    found = conjugate_gradients(
        product(matrix), zero, torch.ones(2).double(), tolerance=1e-9, iterations=9
    )
    assert bool((found.values == 0).all())
    assert found.iterations.tolist() == [0, 0]


def test_few_distinct_eigenvalues_end_the_space_early() -> None:
    # The Krylov space of the first is exhausted after three steps, that of the second after one;
    # the third has distinct eigenvalues and continues.
    spectra = torch.stack(
        (
            torch.tensor([1.0, 2.0, 5.0]).repeat(10),
            torch.full((30,), 3.0),
            torch.linspace(0.1, 6, 30),
        )
    ).double()
    matrix, right = matrices(spectra), normal(3, 30, seed=1)
    found = path(matrix, right)
    assert relative(found.values, direct_path(matrix, right)) < 1e-12
    assert found.iterations[:2].tolist() == [3, 1]
    assert int(found.iterations[2]) > 15
    alone = path(matrix[:1], right[:1])
    assert int(alone.iterations) == 3
    single = conjugate_gradients(
        product(matrix), right, torch.full((3,), 0.5).double(), tolerance=1e-12, iterations=400
    )
    assert single.iterations[:2].tolist() == [3, 1]
    assert float(single.smallest[0]) == pytest.approx(1.0, rel=1e-12)
    assert float(single.largest[0]) == pytest.approx(5.0, rel=1e-12)


def test_solutions_of_a_path_do_not_depend_on_rounding() -> None:
    """By the recurrence alone they do, by as much as the tolerance: large eigenvalues come back."""
    spectrum = torch.logspace(-4, 0, 150, dtype=torch.float64)
    spectrum[-5:] = torch.logspace(2, 4, 5, dtype=torch.float64)  # found at once
    matrix, right = matrices(spectrum[None]), normal(1, 150, seed=1)
    one = path(matrix, right, tolerance=1e-3)
    error = 1e-14 * float(matrix.abs().max()) * normal(1, 150, 150, seed=2)
    other = path(matrix + 0.5 * (error + error.mT), right, tolerance=1e-3)
    assert int(one.iterations.max()) > 20
    assert torch.equal(one.iterations, other.iterations)
    assert relative(other.values, one.values) < 1e-6


def test_fast_and_slow_systems_share_a_batch() -> None:
    n = 200
    spectra = torch.stack(
        [torch.logspace(-decades, 0, n, dtype=torch.float64) for decades in (0.2, 1.5, 3.0)]
    )
    matrix, right = matrices(spectra), normal(3, n, seed=1)
    found = path(matrix, right, tolerance=1e-13)
    assert relative(found.values, direct_path(matrix, right)) < 1e-9
    assert bool((found.iterations.diff() > 10).all())
    shift = SHIFTS[:1].expand(3)
    single = conjugate_gradients(product(matrix), right, shift, tolerance=1e-12, iterations=400)
    assert relative(single.values, direct_path(matrix, right)[:, 0]) < 1e-9
    assert bool((single.iterations.diff() > 10).all())
    for i in range(3):  # each system is independent of the others
        own = product(matrix[i : i + 1])
        alone = conjugate_gradients(
            own, right[i : i + 1], shift[:1], tolerance=1e-12, iterations=400
        )
        assert abs(int(alone.iterations) - int(single.iterations[i])) <= 2  # rounding
        torch.testing.assert_close(alone.values[0], single.values[i], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("most", [1, 4, 9])
def test_iterations_are_bounded_and_the_residual_is_reported(most: int) -> None:
    spectra = torch.logspace(-2, 0, 50, dtype=torch.float64).expand(2, 50)
    matrix, right = matrices(spectra), normal(2, 50, seed=1)
    calls = []

    def counted(y: Tensor) -> Tensor:
        calls.append(len(y))
        return product(matrix)(y)

    found = whole_path(counted, right, SHIFTS, 1e-12, most)
    assert len(calls) == most
    assert found.iterations.tolist() == [most, most]
    left = right[:, None] - (shifted(matrix[:, None], SHIFTS) @ found.values[..., None])[..., 0]
    size = left.norm(dim=-1) / right.norm(dim=-1, keepdim=True)
    torch.testing.assert_close(found.residual, size[:, 0], rtol=1e-9, atol=0)
    assert bool((size.diff(dim=1) < 0).all())  # larger ridges have converged further
    single = conjugate_gradients(
        product(matrix), right, SHIFTS[:1].expand(2), tolerance=1e-12, iterations=most
    )
    assert single.iterations.tolist() == [most, most]
    torch.testing.assert_close(single.values, found.values[:, 0], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(single.residual, found.residual, rtol=1e-9, atol=0)


@pytest.mark.parametrize("tolerance", [1e-2, 1e-5, 1e-8])
def test_the_residual_is_just_below_the_tolerance(tolerance: float) -> None:
    spectra = torch.logspace(-2, 0, 80, dtype=torch.float64).expand(2, 80)
    matrix, right = matrices(spectra), normal(2, 80, seed=1)
    found = path(matrix, right, tolerance=tolerance)
    systems = shifted(matrix, SHIFTS[:1].expand(2))
    left = right - (systems @ found.values[:, 0, :, None])[..., 0]
    size = left.norm(dim=-1) / right.norm(dim=-1)
    assert float(size.max()) <= tolerance * (1 + 1e-6)
    assert float(size.max()) > 0.1 * tolerance


def test_ritz_values_lie_in_the_spectrum_and_converge_to_its_ends() -> None:
    spectra = torch.linspace(0.3, 7, 40, dtype=torch.float64).expand(3, 40)
    matrix, right = matrices(spectra), normal(3, 40, seed=1)
    shift = torch.tensor([0.0, 0.1, 2.0]).double()
    found, few = (
        conjugate_gradients(product(matrix), right, shift, tolerance=1e-14, iterations=most)
        for most in (400, 4)
    )
    assert bool((found.smallest >= 0.3 - 1e-9).all())
    assert bool((found.largest <= 7 + 1e-9).all())
    assert float((found.smallest[:2] - 0.3).max()) < 1e-3
    assert float((7 - found.largest[:2]).max()) < 1e-3
    assert bool((few.smallest > found.smallest).all())
    assert bool((few.largest < found.largest).all())


def test_a_start_at_the_solution_is_returned_unchanged() -> None:
    spectra = torch.linspace(0.5, 4, 10, dtype=torch.float64).expand(3, 10)
    matrix, right = matrices(spectra), normal(3, 10, seed=1)
    shift = torch.tensor([0.1, 1.0, 10.0], dtype=torch.float64)
    solution = torch.linalg.solve(shifted(matrix, shift), right)
    found = conjugate_gradients(
        product(matrix), right, shift, start=solution, tolerance=1e-12, iterations=50
    )
    assert found.iterations.tolist() == [0, 0, 0]
    assert torch.equal(found.values, solution)
    assert found.values.data_ptr() != solution.data_ptr()


def test_a_close_start_saves_steps_and_any_start_converges() -> None:
    spectra = torch.logspace(-2, 0, 60, dtype=torch.float64).expand(2, 60)
    matrix, right = matrices(spectra), normal(2, 60, seed=1)
    shift = torch.full((2,), 1e-3, dtype=torch.float64)
    solution = torch.linalg.solve(shifted(matrix, shift), right)
    near = solution + 1e-6 * normal(2, 60, seed=2)
    far = 100 * normal(2, 60, seed=3)
    kept = far.clone()
    starts = [None, near, far]
    runs = [
        conjugate_gradients(
            product(matrix), right, shift, start=start, tolerance=1e-11, iterations=400
        )
        for start in starts
    ]
    for run in runs:
        assert relative(run.values, solution) < 1e-8
    assert bool((runs[1].iterations < 0.7 * runs[0].iterations).all())
    assert torch.equal(far, kept)


def test_every_system_has_its_own_shift() -> None:
    spectra = torch.linspace(0.0, 4, 12, dtype=torch.float64).expand(4, 12)
    matrix, right = matrices(spectra), normal(4, 12, seed=1)
    found = conjugate_gradients(product(matrix), right, SHIFTS, tolerance=1e-13, iterations=400)
    expected = torch.linalg.solve(shifted(matrix, SHIFTS), right)
    assert relative(found.values, expected) < 1e-10


@pytest.mark.parametrize("size", [1e-90, 1e-150, 1e-300])
def test_tiny_right_hand_sides(size: float) -> None:
    spectra = torch.linspace(0.5, 4, 10, dtype=torch.float64).expand(2, 10)
    matrix, unit = matrices(spectra), normal(2, 10, seed=1)
    right = unit.clone()
    right[0] *= size
    shift = torch.full((2,), 0.1, dtype=torch.float64)
    expected = torch.linalg.solve(shifted(matrix, shift), unit)
    found = conjugate_gradients(product(matrix), right, shift, tolerance=1e-12, iterations=50)
    many = path(matrix, right)
    for field in (found.values, found.residual, many.values):
        assert bool(field.isfinite().all())
    assert relative(found.values[1:], expected[1:]) < 1e-11
    if size > 1e-160:  # the path scales its right-hand sides
        ridges = direct_path(matrix, unit)
        assert relative(many.values[:1] / size, ridges[:1]) < 1e-11
    if size > 1e-100:  # below, its square underflows: the solution is zero
        assert relative(found.values[:1] / size, expected[:1]) < 1e-11
    else:
        assert bool((found.values[0] == 0).all())


def test_an_indefinite_system_stops_with_a_large_residual() -> None:
    matrix = torch.diag(torch.tensor([2.0, 1.0, -3.0], dtype=torch.float64)).expand(2, 3, 3).clone()
    matrix[1] = torch.eye(3)
    right = torch.ones(2, 3, dtype=torch.float64)
    found = conjugate_gradients(
        product(matrix), right, torch.zeros(2).double(), tolerance=1e-12, iterations=5000
    )
    assert int(found.iterations.max()) < 10
    assert float(found.residual[0]) > 1e-3
    assert bool(found.values.isfinite().all())
    torch.testing.assert_close(found.values[1], right[1])


def test_a_ridge_path_with_ridge_zero() -> None:
    matrix = torch.diag(torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)).expand(3, 3, 3)
    right = torch.tensor([[0.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    shifts = torch.tensor([0.0, 1.0], dtype=torch.float64)
    found = whole_path(product(matrix), right, shifts, 1e-13, 10)
    expected = right[:, None] / (torch.tensor([1.0, 2.0, 3.0]) + shifts[:, None])
    torch.testing.assert_close(found.values, expected, rtol=1e-12, atol=1e-12)


def test_a_path_is_extended_no_further_than_asked() -> None:
    spectra = torch.logspace(-3, 0, 60, dtype=torch.float64).expand(2, 60)
    matrix, right = matrices(spectra), normal(2, 60, seed=1)
    calls = []

    def counted(y: Tensor) -> Tensor:
        calls.append(len(y))
        return product(matrix)(y)

    path = RidgePath(counted, right, SHIFTS, tolerance=1e-6, iterations=400)
    taken, expected = [], direct_path(matrix, right)
    for number in reversed(range(len(SHIFTS))):
        assert relative(solved(path, number), expected[:, number]) < 1e-3
        taken.append(len(calls))
    assert taken[0] < 6
    assert all(more > 1.5 * less for less, more in itertools.pairwise(taken))
    assert relative(solved(path, 3), expected[:, 3]) < 1e-11, "the whole space serves all shifts"
    assert len(calls) == taken[-1]


def test_a_path_is_freed_when_it_is_no_longer_used() -> None:
    """Its vectors may take half a gigabyte, so it must not wait for the garbage collector."""
    matrix, right = matrices(torch.ones(2, 5).double()), normal(2, 5, seed=1)
    path = RidgePath(product(matrix), right, SHIFTS, tolerance=1e-6, iterations=5)
    solved(path, 0)
    vectors = weakref.ref(path._space.vectors)
    gc.disable()
    try:
        del path
        assert vectors() is None
    finally:
        gc.enable()


def test_elsewhere_shifts_that_have_converged_are_solved_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same solutions, in no more steps than the smallest shift needs, rounded up."""
    spectra = torch.logspace(-3, 0, 60, dtype=torch.float64).expand(2, 60)
    matrix, right = matrices(spectra), normal(2, 60, seed=1)
    shifts = torch.logspace(-4, 1, 11, dtype=torch.float64)
    monkeypatch.setattr(transforms, "HOST", "none")
    path = RidgePath(product(matrix), right, shifts, tolerance=1e-9, iterations=100)
    left, groups = list(range(len(shifts)))[::-1], []
    while left:
        groups.append(list(path.ready(left)))
        found = path.solve(groups[-1])
        for number, own in zip(groups[-1], found, strict=True):
            exact = torch.linalg.solve(shifted(matrix, shifts[[number]].expand(2)), right)
            assert relative(own, exact) < 1e-6, "1e-9 times the condition number"
        left = left[len(groups[-1]) :]
    assert [number for group in groups for number in group] == list(range(len(shifts)))[::-1]
    assert 1 < len(groups) < len(shifts)
    numbers = list(range(len(shifts)))[::-1]
    assert len(path.ready(numbers)) == len(shifts), "the whole space serves all shifts"
    monkeypatch.setattr(conjugate, "ENTRIES", 3 * 2 * path._count**2)
    assert path.ready(numbers) == numbers[:3], "no more than memory allows"


def test_elsewhere_as_many_matrices_are_factored_together_as_memory_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    matrix = matrices(torch.logspace(-1, 1, 12, dtype=torch.float64).expand(3, 12))
    right, numbers = normal(3, 12, seed=1), list(range(len(SHIFTS)))
    path = DirectPath(matrix, right, SHIFTS, slice(None))
    assert path.ready(numbers) == numbers[:1]
    monkeypatch.setattr(transforms, "HOST", "none")
    assert path.ready(numbers) == numbers
    monkeypatch.setattr(direct, "FACTORS", 2 * matrix.numel())
    assert path.ready(numbers) == numbers[:2]
    found = solved_for_all(matrix, right, SHIFTS)
    assert relative(found, direct_path(matrix, right)) < 1e-12


def test_a_path_has_no_solution_where_the_matrix_is_not_positive() -> None:
    matrix = torch.diag(torch.tensor([2.0, 1.0, -0.5], dtype=torch.float64)).expand(2, 3, 3).clone()
    matrix[1] = torch.eye(3)
    right, shifts = torch.ones(2, 3).double(), torch.tensor([0.1, 1.0]).double()
    found = whole_path(product(matrix), right, shifts, 1e-13, 10).values
    assert bool(found[0, 0].isnan().all())
    torch.testing.assert_close(found[0, 1], 1 / torch.tensor([3.0, 2.0, 0.5]).double())
    torch.testing.assert_close(found[1], right[1:] / (1 + shifts[:, None]))


def test_a_preconditioner_saves_steps_and_measures_the_error() -> None:
    spectra = torch.logspace(-4, 0, 200, dtype=torch.float64).expand(3, 200)
    matrix, right = matrices(spectra), normal(3, 200, seed=1)
    shift = torch.tensor([1e-4, 1e-3, 1e-2], dtype=torch.float64)
    whole = shifted(matrix, shift)
    exact = torch.linalg.solve(whole, right)
    near = spectra * (1.25 + 0.25 * normal(200, seed=2).sin())
    rough = torch.linalg.inv(matrices(near) + whole) * 2
    solved = partial(
        conjugate_gradients,
        product(matrix),
        right,
        shift,
        preconditioner=product(rough),
        tolerance=1e-4,
        iterations=999,
    )

    def error(y: Tensor) -> Tensor:
        """In the norm of B + εI, relative to that of the solution."""
        form = [
            ((part[:, None] @ whole) @ part[..., None]).flatten() for part in (y - exact, exact)
        ]
        found: Tensor = (form[0] / form[1]).sqrt()
        return found

    plain = conjugate_gradients(product(matrix), right, shift, tolerance=1e-4, iterations=999)
    for start in (None, torch.zeros_like(right), 0.9 * exact):
        found = solved(start=start)
        assert bool((found.iterations < plain.iterations / 4).all())
        assert bool((found.residual <= 1e-4).all())
        torch.testing.assert_close(error(found.values), found.residual, rtol=0.5, atol=0)
        assert bool((found.smallest >= spectra[:, 0] - 1e-12).all())
        assert bool((found.largest <= spectra[:, -1] + 1e-12).all())
    done = solved(start=exact)
    assert done.iterations.tolist() == [0, 0, 0]
    assert bool(done.smallest.isnan().all())


@pytest.mark.parametrize("preconditioned", [False, True])
def test_orthogonal_residuals_make_solutions_independent_of_rounding(preconditioned: bool) -> None:
    """A few large eigenvalues are found first, and then orthogonality to them is lost."""
    spectra = torch.cat((torch.logspace(-3, 0, 194), torch.logspace(2, 5, 6))).double()
    matrix, right = matrices(spectra[None]), normal(1, 200, seed=1)
    other = torch.randperm(200, generator=torch.Generator().manual_seed(0))
    turned = matrix[:, other][:, :, other]
    scale = 1 + normal(200, seed=2).square()

    def solve(matrix: Tensor, right: Tensor, scale: Tensor, orthogonal: int) -> Solution:
        return conjugate_gradients(
            product(matrix),
            right,
            SHIFTS[:1],
            preconditioner=(lambda y: scale * y) if preconditioned else None,
            tolerance=1e-3,
            iterations=999,
            orthogonal=orthogonal,
        )

    changes = []
    for orthogonal in (0, 128):
        own = solve(matrix, right, scale, orthogonal)
        assert bool((own.residual <= 1e-3).all())
        again = solve(turned, right[:, other], scale[other], orthogonal)
        changes.append(relative(again.values, own.values[:, other]))
    assert changes[1] < 1e-9
    assert changes[0] > 1e-6, "without it, the solution depends on the order of summation"


def test_a_direct_path_leaves_out_unknowns_and_reports_what_is_not_positive() -> None:
    spectra = torch.logspace(-1, 1, 12, dtype=torch.float64).repeat(2, 1)
    spectra[1, 0] = -0.5  # positive with the two largest shifts only
    matrix, right = matrices(spectra), normal(2, 24, seed=1)
    own = DirectPath(matrix, right, SHIFTS, slice(None, None, 2))
    expected = direct_path(matrix, right[:, ::2])
    for number in range(len(SHIFTS)):
        found = solved(own, number)
        assert relative(found[:1, ::2], expected[:1, number]) < 1e-12
        assert bool((found[:, 1::2] == 0).all())
        if number < 2:
            assert bool(found[1, ::2].isnan().all())
        else:
            assert relative(found[1:, ::2], expected[1:, number]) < 1e-12


def test_orthogonal_residuals_of_systems_that_end_at_different_steps() -> None:
    """One is solved in a step, one in many more than are kept, and one is not positive."""
    n = 60
    spectra = torch.stack((torch.ones(n), torch.logspace(-1, 2, n), torch.linspace(-5, 40, n)))
    matrix, right = matrices(spectra.double()), normal(3, n, seed=4)
    shift = SHIFTS[:1].expand(3)
    found = conjugate_gradients(
        product(matrix), right, shift, tolerance=1e-6, iterations=500, orthogonal=8
    )
    left = (shifted(matrix, shift) @ found.values[..., None])[..., 0] - right
    measured = left.norm(dim=1) / right.norm(dim=1)
    torch.testing.assert_close(measured[:2], found.residual[:2], rtol=0.01, atol=1e-12)
    assert found.iterations[0] == 1
    assert found.iterations[1] > 8
    assert bool((found.residual[:2] <= 1e-6).all())
    assert found.residual[2] > 1e-3
