"""Missing entries are drawn given the others: against the conditional of a known Gaussian."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from oism import OISM
from oism.tables._joint import JointModel
from oism.tables._mixture import MixtureModel

MEAN, COVARIANCE = torch.tensor([1.0, -2.0, 0.5]), torch.tensor(
    [[1.0, 0.8, 0.0], [0.8, 2.0, -0.5], [0.0, -0.5, 0.7]]
)  # fmt: skip
NAN = float("nan")


@pytest.fixture(scope="module")
def gaussian() -> Any:
    """A model that is one Gaussian, so that conditionals are known."""
    return MixtureModel(
        centre=torch.zeros(3).double(),
        scale=torch.ones(3).double(),
        weights=torch.ones(1).double(),
        means=MEAN[None].double(),
        covariances=COVARIANCE[None].double(),
    )


def test_draws_have_the_conditional_distribution(gaussian: Any) -> None:
    rows = torch.tensor([[2.5, NAN, 1.0]]).double().repeat(4000, 1)
    found = gaussian.completed(rows, torch.Generator().manual_seed(0))
    assert torch.equal(found[:, [0, 2]], rows[:, [0, 2]]), "entries that are there stay"
    known = COVARIANCE[[0, 2]][:, [0, 2]].double()
    gain = torch.linalg.solve(known, COVARIANCE[[0, 2], 1].double())
    mean = MEAN[1] + gain @ (torch.tensor([2.5, 1.0]) - MEAN[[0, 2]]).double()
    variance = COVARIANCE[1, 1] - gain @ COVARIANCE[[0, 2], 1].double()
    expected = stats.norm(float(mean), float(variance) ** 0.5)
    assert stats.kstest(found[:, 1].numpy(), expected.cdf).pvalue > 0.01
    unconditional = stats.norm(float(MEAN[1]), float(COVARIANCE[1, 1]) ** 0.5)
    assert stats.kstest(found[:, 1].numpy(), unconditional.cdf).pvalue < 1e-6


def test_each_row_has_its_own_gaps(gaussian: Any) -> None:
    rows = torch.tensor([[1.0, NAN, NAN], [NAN, NAN, NAN], [1, 2, 3], [NAN, 5, 6]]).double()
    found = gaussian.completed(rows, torch.Generator().manual_seed(0))
    assert bool(found.isfinite().all())
    assert torch.equal(found[~rows.isnan()], rows[~rows.isnan()])
    assert torch.equal(rows.isnan().sum(dim=1), torch.tensor([2, 3, 0, 1])), "rows stay as given"


def test_a_row_is_drawn_from_components_that_suit_its_values() -> None:
    """All rows of a pattern at once, as from the conditional of each."""
    model = MixtureModel(
        centre=torch.tensor([1.0, -1.0]).double(),
        scale=torch.tensor([2.0, 30.0]).double(),
        weights=torch.tensor([0.7, 0.3]).double(),
        means=torch.tensor([[-1.0, -1.0], [1.0, 1.0]]).double(),
        covariances=torch.tensor([[0.3, 0.1], [0.1, 0.2]]).double().expand(2, 2, 2),
    )
    values = torch.tensor([-1.0, 1.4, 3.0]).double()
    rows = torch.stack((values.repeat(3000), torch.full((9000,), NAN).double()), dim=1)
    found = model.completed(rows, torch.Generator().manual_seed(0))
    for k, value in enumerate(values.tolist()):
        exact = model.conditional({0: value}).sample(20_000, torch.Generator().manual_seed(1))[:, 0]
        own = found[k::3, 1]
        assert stats.ks_2samp(own.numpy(), exact.numpy()).pvalue > 0.01, value
        assert stats.ks_2samp(own.numpy(), found[(k + 1) % 3 :: 3, 1].numpy()).pvalue < 1e-6


@pytest.fixture(scope="module")
def towns() -> pd.DataFrame:
    """Two columns: in Oslo sizes are about 0, in Rome about 10."""
    rng = np.random.default_rng(0)
    town = rng.choice(["Oslo", "Rome"], 40)
    size = rng.normal(size=40) + 10 * (town == "Rome")
    return pd.DataFrame({"size": size, "town": town}, index=[f"row {i}" for i in range(40)])


def test_a_frame_is_filled(towns: pd.DataFrame) -> None:
    model = OISM(random_state=0).fit(towns)
    gaps = towns.copy()
    gaps.iloc[:20, 0], gaps.iloc[20:39, 1] = np.nan, None
    found = model.impute(gaps, random_state=1)
    assert list(found.index) == list(towns.index)
    assert dict(found.dtypes) == dict(towns.dtypes)
    assert not found.isna().any().any()
    pd.testing.assert_frame_equal(found.where(gaps.notna()), gaps.where(gaps.notna()))
    # The columns determine each other. Draws without regard to the other entry would agree in half
    # of the 39 filled rows, and in 31 with a probability of 2e-4.
    assert ((found["size"] > 5) == (found["town"] == "Rome"))[:39].sum() >= 31
    pd.testing.assert_frame_equal(found, model.impute(gaps, random_state=1))
    assert (found["size"] != model.impute(gaps, random_state=2)["size"]).sum() == 20
    pd.testing.assert_frame_equal(model.impute(towns), towns)
    assert gaps["size"].isna().sum() == 20, "the argument stays as it is"


def test_names_without_periods_are_refused(towns: pd.DataFrame) -> None:
    for given in ("size", ["size"]):
        with pytest.raises(ValueError, match=r"must be a mapping .*, as \{'hour': 24\}, or one"):
            OISM(periodic=given).fit(towns)  # type: ignore[arg-type]


def test_rows_with_gaps_are_refused_with_a_remedy() -> None:
    rows = np.array([[1.0, 2.0], [np.nan, 1.0], [3.0, 4.0]])
    with pytest.raises(ValueError, match=r"column 0, row 1\. .*or fit with process='joint'"):
        OISM().fit(rows)
    with pytest.raises(ValueError, match=r"row 1\. Leave out rows with missing values$"):
        OISM(sphere=(0, 1)).fit(rows)


def test_an_array_of_few_columns_is_filled() -> None:
    x = np.random.default_rng(0).normal(size=(300, 1)) @ [[1.0, 0.9]]
    x += 0.1 * np.random.default_rng(1).normal(size=x.shape)
    model = OISM(max_eigenvalue=36, flow_steps=8).fit(x)
    found = model.impute([[1.0, np.nan]] * 50 + [[np.nan, np.nan]], random_state=0)
    assert found.shape == (51, 2)
    assert abs(found[:50, 1].mean() - 0.9) < 0.1
    assert np.isfinite(found).all()


def test_a_table_of_many_columns_is_filled_without_a_conditional_for_each_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time grew by 25 ms per row."""
    rng = np.random.default_rng(0)
    town = rng.choice(["Oslo", "Rome"], 60)
    size = rng.normal(size=60) + 10 * (town == "Rome")
    table = pd.DataFrame({"size": size, "rooms": rng.poisson(3, 60), "town": town})
    model = OISM(discrete=["rooms"]).fit(table)
    gaps = table.astype({"rooms": object})
    gaps.loc[:29, "size"], gaps.loc[20:50, "town"], gaps.loc[50:, "rooms"] = np.nan, None, None

    def refuse(*_: object) -> None:
        raise AssertionError("a conditional for each row")

    monkeypatch.setattr(JointModel, "conditional", refuse)
    found = model.impute(gaps, random_state=0)
    assert not found.isna().any().any()
    assert set(found["rooms"]) <= set(table["rooms"])
    there = gaps.notna()
    assert (found.astype(object).where(there) == gaps.where(there))[there].all(axis=None)


def test_values_outside_of_the_bounds_are_refused() -> None:
    rng = np.random.default_rng(0)
    x = np.column_stack((rng.random((40, 3)), rng.normal(size=40)))
    for discrete in ([], [3]):
        x[:, 3] = x[:, 3].round() if discrete else x[:, 3]
        model = OISM(bounds={0: (0, 1)}, process="joint", discrete=discrete).fit(x)
        for row in ([2.0, 0.5, np.nan, 1.0], [2.0, 0.5, 0.5, np.nan]):
            with pytest.raises(ValueError, match="outside of the bounds"):
                model.impute([row])
