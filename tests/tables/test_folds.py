"""Folds by content: neither the units nor the order of the columns change a fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from oism import OISM
from oism.tables import fit_rotations
from oism.tables._folds import (
    canonical_order,
    folds_by_content,
    folds_of_points,
    folds_of_rotations,
    sorted_cells,
)

Array = NDArray[np.float64]
NO = torch.zeros(2, dtype=torch.bool)


def skewed(n: int, dim: int, seed: int) -> Array:
    x = np.random.default_rng(seed).normal(size=(n, dim))
    x[:, 0] = np.exp(x[:, 0])
    return x


def change(n: int, dim: int, **settings: Any) -> dict[str, float]:
    """Return the largest change of log-densities, per unit of the old columns, by what is done."""
    x, y = skewed(n, dim, 0), skewed(30, dim, 1)
    shift, unit = 11 + 3.7 * np.arange(dim), np.array([2.54, 0.3048, 1e3, 7.0])[:dim]
    order = np.random.default_rng(2).permutation(n)
    own = OISM(**settings).fit(x).score_samples(y)
    others = {
        "shift": OISM(**settings).fit(x + shift).score_samples(y + shift),
        "unit": OISM(**settings).fit(x * unit).score_samples(y * unit) + np.log(unit).sum(),
        "columns": OISM(**settings).fit(x[:, ::-1]).score_samples(y[:, ::-1]),
        "rows": OISM(**settings).fit(x[order]).score_samples(y),
    }
    return {name: float(np.abs(found - own).max()) for name, found in others.items()}


@pytest.mark.parametrize(
    ("n", "dim", "settings"),
    [
        (150, 1, {}),
        (150, 2, {"max_eigenvalue": 9, "flow_steps": 16}),
        (150, 3, {"process": "ou", "order": 4, "flow_steps": 16}),
        (24, 2, {"process": "mixture"}),
    ],
)
def test_units_and_order_do_not_change_densities(
    n: int, dim: int, settings: dict[str, Any]
) -> None:
    found = change(n, dim, **settings)
    assert max(found.values()) < 1e-6, found


@pytest.mark.slow
@pytest.mark.parametrize("dim", [2, 3, 4])
def test_units_and_order_do_not_change_densities_of_defaults(dim: int) -> None:
    """In the plane steps of the flow are found by trials."""
    found = change(150, dim, **({"flow_steps": 64} if dim == 2 else {}))
    assert max(found.values()) < 1e-6, found


@pytest.mark.slow
@pytest.mark.parametrize(("n", "dim"), [(2000, 2), (2000, 3), (6000, 2)])
def test_units_and_order_do_not_change_densities_of_many_rows(n: int, dim: int) -> None:
    """The systems of many functions are solved by iterations, to a tolerance.

    Their vectors are kept orthogonal: otherwise rounding would change solutions by the tolerance.
    """
    found = change(n, dim, flow_steps=32)
    assert max(found.values()) < 1e-6, found


def test_folds_are_balanced_and_shared_by_equal_rows() -> None:
    x = torch.rand(5000, 2, generator=torch.Generator().manual_seed(0)).double()
    fold = folds_by_content(x, torch.zeros(2), torch.ones(2), NO, 5)
    counts = torch.bincount(fold, minlength=5)
    assert float(((counts - 1000).square() / 1000).sum()) < 18.5  # 99.9% of χ² with 4 degrees
    again = folds_by_content(x.repeat(2, 1), torch.zeros(2), torch.ones(2), NO, 5)
    assert torch.equal(again, fold.repeat(2))


def test_regular_values_keep_their_cells_under_rounding() -> None:
    """Without the offset, values on edges of cells would move with every rounding error."""
    x = torch.linspace(0, 1, 257, dtype=torch.float64)[:, None]
    args = torch.zeros(1), torch.ones(1), NO[:1]
    cells = sorted_cells(x, *args)
    for error in (1e-12, -1e-12):
        assert torch.equal(sorted_cells(x + error, *args), cells)
    assert not torch.equal(sorted_cells(x + 1e-6, *args), cells)  # yet small changes are seen


def test_periods_and_far_values() -> None:
    low, width, periodic = torch.zeros(2), torch.full((2,), 360.0), torch.tensor([True, False])
    x = torch.tensor([[-1.0, 5.0], [359.0, 5.0], [3.0, 1e300], [3.0, 1e12]]).double()
    cells = sorted_cells(x, low, width, periodic)
    assert torch.equal(cells[0], cells[1])
    assert torch.equal(cells[2], cells[3])
    assert bool(cells.isfinite().all())


def test_canonical_order_is_lexicographic() -> None:
    cells = torch.randint(3, (40, 3), generator=torch.Generator().manual_seed(0)).double()
    found = cells[canonical_order(cells)].tolist()
    assert found == sorted(cells.tolist())


def test_one_column_with_a_negative_stride() -> None:
    """NumPy calls such an array contiguous, and torch refuses it."""
    x = skewed(50, 1, 0)
    settings: dict[str, Any] = {"max_eigenvalue": 9, "flow_steps": 4}
    expected = OISM(**settings).fit(x).score_samples(x)
    found = OISM(**settings).fit(x[:, ::-1]).score_samples(x[:, ::-1])
    assert np.array_equal(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("bounds", [(0.0, 1.0), (0.0, None)])
def test_units_do_not_change_densities_of_columns_with_bounds(
    bounds: tuple[float, float | None],
) -> None:
    source = np.random.default_rng(0)
    x = source.beta(0.6, 2.0, size=(150, 1)) if bounds[1] else source.gamma(0.8, size=(150, 1))
    y, order = np.linspace(0.01, 0.9, 25)[:, None], source.permutation(150)
    own = OISM(bounds={0: bounds}).fit(x).score_samples(y)
    end = None if bounds[1] is None else 7 + 2.54 * bounds[1]
    turned = OISM(bounds={0: (7.0, end)}).fit(7 + 2.54 * x).score_samples(7 + 2.54 * y)
    np.testing.assert_allclose(turned + np.log(2.54), own, atol=1e-6)
    mixed = OISM(bounds={0: bounds}).fit(x[order]).score_samples(y)
    np.testing.assert_allclose(mixed, own, atol=1e-6)


def test_folds_of_points_do_not_depend_on_units_and_are_shared_by_equal_points() -> None:
    source = torch.Generator().manual_seed(0)
    x = torch.randn(4000, 3, generator=source).double()
    x = x / x.norm(dim=1, keepdim=True)
    fold = folds_of_points(x, 5)
    latitude, longitude = torch.asin(x[:, 2]), torch.atan2(x[:, 1], x[:, 0])
    flat = latitude.cos()
    again = torch.stack((flat * longitude.cos(), flat * longitude.sin(), latitude.sin()), dim=1)
    assert torch.equal(folds_of_points(again, 5), fold)
    counts = torch.bincount(fold, minlength=5)
    assert float(((counts - 800).square() / 800).sum()) < 18.5
    poles = torch.tensor([[6e-17, 0.0, 1.0], [0.0, 0.0, 1.0], [-4e-17, 4e-17, 1.0]]).double()
    assert len(torch.unique(folds_of_points(poles, 97))) == 1


def test_folds_of_rotations_are_those_of_both_quaternions() -> None:
    q = torch.randn(4000, 4, generator=torch.Generator().manual_seed(0)).double()
    q = q / q.norm(dim=1, keepdim=True)
    fold = folds_of_rotations(q, 5)
    assert torch.equal(folds_of_rotations(-q, 5), fold)
    counts = torch.bincount(fold, minlength=5)
    assert float(((counts - 800).square() / 800).sum()) < 18.5


@pytest.mark.slow
def test_the_form_of_rotations_does_not_change_densities() -> None:
    turns = Rotation.from_rotvec(0.8 * np.random.default_rng(0).normal(size=(120, 3)))
    new = Rotation.from_rotvec(0.8 * np.random.default_rng(1).normal(size=(20, 3)))
    matrices = fit_rotations(turns.as_matrix(), degree=3).log_density(new)
    quaternions = -turns.as_quat()
    found = fit_rotations(quaternions, degree=3, scalar_first=False).log_density(new)
    np.testing.assert_allclose(found, matrices, atol=1e-6)
