from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from torch import Tensor

from oism import OISM
from oism.tables import Columns
from oism.tables._hints import warn_of_atoms, warn_of_rows, warn_of_shape


def rows(n: int, dim: int) -> Tensor:
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def columns(dim: int, names: list[str] | None = None, periodic: object = None) -> Columns:
    return Columns.of(dim, names, periodic, None, None)  # type: ignore[arg-type]


def test_ordinary_rows_give_no_warning() -> None:
    warn_of_rows(columns(3), rows(30, 3))  # warnings are errors here
    x = 1e12 + rows(300, 1)
    warn_of_rows(columns(1), x)


def test_constant_columns() -> None:
    x = rows(30, 2)
    x[:, 1] = 3.0
    x[4, 1] = torch.nan
    with pytest.warns(UserWarning, match="column 'k' is constant in all rows"):
        warn_of_rows(columns(2, ["x", "k"]), x)
    x[:, 0] = 0.0
    with pytest.warns(UserWarning, match="columns 0, 1 are constant in all rows"):
        warn_of_rows(columns(2), x)


def test_collinear_columns() -> None:
    x = rows(50, 4)
    x[:, 3] = 2 * x[:, 0] - 1e3 * x[:, 1] + 7
    with pytest.warns(
        UserWarning, match="columns 'a', 'b', 'd' are linear functions of each other"
    ):
        warn_of_rows(columns(4, list("abcd")), x)
    x[:, 3] += 1e-4 * x[:, 2].sin()
    warn_of_rows(columns(4), x)  # no warning: it has a density


@pytest.mark.parametrize(("low", "high"), [(-180, 180), (0, 360), (-179, 176), (5, 355)])
def test_angles_without_a_period(low: float, high: float) -> None:
    x = rows(30, 2)
    x[:, 1] = torch.linspace(low, high, 30).double() + 0.01 * torch.sin(40 * x[:, 0])
    x[:, 1] = x[:, 1].clamp(low, high)
    message = re.escape("looks like an angle: give periodic={'phi': 360}")
    with pytest.warns(UserWarning, match=message) as found:
        warn_of_rows(columns(2, ["x", "phi"]), x)
    assert len(found) == 1
    warn_of_rows(columns(2, ["x", "phi"], {"phi": 360.0}), x)
    x[:, 1] *= 0.9
    warn_of_rows(columns(2, ["x", "phi"]), x)


def test_fewer_rows_than_columns_and_many_columns() -> None:
    with pytest.warns(UserWarning, match="3 rows are fewer than the 4 columns"):
        warn_of_rows(columns(4), rows(3, 4))
    with pytest.warns(UserWarning, match="21 columns are more than 20"):
        warn_of_rows(columns(21), rows(40, 21))
    warn_of_rows(columns(20), rows(20, 20))


def test_a_fit_warns_once() -> None:
    x = np.linspace(0, 360, 50)[:, None]
    with pytest.warns(
        UserWarning, match=r"column 0 reaches from 0 to 360 .* periodic=\{0: 360\}"
    ) as w:
        OISM(max_eigenvalue=4, flow_steps=4).fit(x)
    assert len(w) == 1


@pytest.mark.parametrize("dim", [1, 2])
def test_one_value_of_many_rows(dim: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.exponential(size=(200, dim))
    x[rng.random(200) < 0.3, 0] = 0
    share = f"{(x[:, 0] == 0).mean():.0%}"
    message = f"column 0 has the value 0 in {share} of the rows.*process='joint'"
    with pytest.warns(UserWarning, match=message) as found:
        OISM(bounds={0: (0, None)}).fit(x)
    assert len(found) == 1
    with pytest.warns(UserWarning, match="give bounds and process='joint', for a narrow peak"):
        OISM().fit(x)
    model = OISM(bounds={0: (0, None)}, process="joint").fit(x)  # no warning
    samples = model.sample(2000, random_state=0)[:, 0]
    assert np.mean(samples < 1e-3) > 0.15


def test_values_that_all_repeat_are_no_single_value() -> None:
    x = rows(200, 1)
    warn_of_atoms(columns(1), x)
    warn_of_atoms(columns(1), x.round())
    x[:9] = 0.0  # too few
    warn_of_atoms(columns(1), x)
    x[:12] = torch.nan
    warn_of_atoms(columns(1), x)


def test_one_row_is_singular() -> None:
    with pytest.warns(UserWarning, match="1 row is fewer than the 2 columns"):
        warn_of_shape(columns(2), 1)
