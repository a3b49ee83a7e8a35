"""Missing entries are drawn given the others: against the conditional of a known Gaussian."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from scipy import stats

from oism.tables._impute import filled
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
    found = filled(gaussian, rows, torch.Generator().manual_seed(0))
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
    found = filled(gaussian, rows, torch.Generator().manual_seed(0))
    assert bool(found.isfinite().all())
    assert torch.equal(found[~rows.isnan()], rows[~rows.isnan()])
    assert torch.equal(rows.isnan().sum(dim=1), torch.tensor([2, 3, 0, 1])), "rows stay as given"
