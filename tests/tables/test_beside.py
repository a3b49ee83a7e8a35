"""`OISM(network=…)`: networks beside closed-form models, pooled by what held-out rows say."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oism import OISM, load
from oism.tables import MixtureModel, _beside, _joint_fit, _network, _rows, fit_mixtures
from oism.tables._beside import (
    FEW_SECONDS,
    MANY_SECONDS,
    PooledModel,
    Training,
    WarpedModel,
    best_pool,
    joint_with_network,
    torus_with_network,
)
from oism.tables._blended_table import BlendedTable
from oism.tables._candidates import Candidates
from oism.tables._column import Column
from oism.tables._joint_fit import cross_fit_joint
from oism.tables._network import Part
from oism.tables._part import to_normal

FEW = Candidates(("plain",), counts=(1,), local=False)
"""Closed-form candidates that a network improves on."""


def source(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rings(n: int, seed: int) -> Tensor:
    """Return a noisy circle, an angle that is uniform, and positive numbers."""
    g = source(seed)
    angle, turn = 360 * torch.rand(2, n, generator=g, dtype=torch.float64)
    noise = torch.randn(n, 3, generator=g, dtype=torch.float64)
    x = torch.stack((turn.deg2rad().cos(), turn.deg2rad().sin()), dim=1) + 0.1 * noise[:, :2]
    return torch.cat((x, angle[:, None], (0.3 * noise[:, 2:]).exp()), dim=1)


def mixture_of(x: Tensor) -> MixtureModel:
    """Return the normal distribution of rows."""
    mean, one = x.mean(dim=0), torch.ones(1, dtype=torch.float64)
    return MixtureModel(mean, torch.ones_like(mean), one, 0 * mean[None], x.mT.cov()[None])


COLUMNS = (Column(), Column(), Column(period=360.0), Column(low=0.0))


def halves(rows: Tensor) -> Tensor:
    """Return two problems that hold out a half of the rows each, and one with all of them."""
    first = torch.arange(len(rows)) % 2 == 0
    return torch.stack((first, ~first, torch.ones_like(first)))


@pytest.fixture(autouse=True, scope="module")
def _quick() -> Iterator[None]:
    """Two folds, one network for each, few draws to judge it by, and poor closed-form models."""
    fit = fit_mixtures
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_network, "CHECKED", 1500)
        patch.setattr(_network, "MEMBERS", 1)
        patch.setattr(_beside, "fit_mixtures", lambda y, **kw: fit(y, **{**kw, "counts": (1,)}))
        patch.setattr(_rows, "Candidates", lambda _: FEW)
        patch.setattr(_joint_fit, "problems_of", halves)
        patch.setattr(_beside, "FOLDS", 2)
        yield


@pytest.fixture
def by_steps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the seconds that are asked for; training has 120 steps instead."""
    asked: list[float] = []

    def fixed(reference: Any, parts: Any, *, seconds: float, **rest: Any) -> Any:
        asked.append(seconds)
        return _network.cross_fit_network(reference, parts, **{**rest, "steps": 120})

    monkeypatch.setattr(_beside, "cross_fit_network", fixed)
    return asked


@pytest.fixture(scope="module")
def pooled() -> PooledModel:
    model, held_out = cross_fit_joint(rings(400, 0), COLUMNS, candidates=FEW, progress=False)
    found = joint_with_network(model, held_out, Training(steps=200, progress=False))
    assert isinstance(found, PooledModel)
    return found


# Pools ------------------------------------------------------------------------------------------


def test_the_share_of_a_pool_maximises_the_held_out_likelihood() -> None:
    logs = torch.randn(200, 2, generator=source(), dtype=torch.float64)
    share, gain, error = best_pool(logs)
    grid = torch.linspace(0.001, 0.999, 999).double()
    both = torch.stack((1 - grid, grid), dim=1).log()
    means = torch.logsumexp(logs[:, None] + both, dim=2) - logs[:, :1]
    assert share == pytest.approx(float(grid[means.mean(dim=0).argmax()]), abs=2e-3)
    assert gain == pytest.approx(float(means.mean(dim=0).max()), abs=1e-5)
    assert error == pytest.approx(
        float(means.std(dim=0)[means.mean(dim=0).argmax()]) / 200**0.5, rel=0.01
    )


def test_the_closed_form_model_keeps_the_weight_of_a_row() -> None:
    logs = torch.tensor([[-5.0, 0.0]] * 8 + [[-1e5, 0.0]]).double()
    assert best_pool(logs)[0] == pytest.approx(0.9)
    share, gain, _ = best_pool(logs.flip(1))
    assert share == pytest.approx(0, abs=1e-9)
    assert gain == pytest.approx(0, abs=1e-9)


def test_densities_of_a_pool_are_those_of_its_models(pooled: PooledModel) -> None:
    x = rings(30, 1)
    y, log_jacobian = to_normal(pooled.blend.coordinates, x)
    blend = pooled.blend.inner.log_density(y) + log_jacobian
    expected = (
        (1 - pooled.share) * pooled.joint.log_density(x).exp() + pooled.share * blend.exp()
    ).log()
    torch.testing.assert_close(pooled.log_density(x), expected)


def test_jacobians_are_those_of_the_coordinates(pooled: PooledModel) -> None:
    """By finite differences of y, which a margin interpolates."""
    x, step = rings(30, 1), 1e-5
    _, found = to_normal(pooled.blend.coordinates, x)
    high, low = (to_normal(pooled.blend.coordinates, x + s * step)[0] for s in (0.5, -0.5))
    torch.testing.assert_close(found, ((high - low) / step).log().sum(dim=1), atol=1e-3, rtol=0)


def test_the_mass_of_a_pool_is_one(pooled: PooledModel) -> None:
    """By importance sampling from a wider density that covers it."""
    x = pooled.joint.sample(1500, source())
    ratio = (pooled.log_density(x) - pooled.joint.log_density(x)).exp()
    error = float(ratio.std()) / math.sqrt(len(x))
    assert error < 0.04
    assert abs(float(ratio.mean()) - 1) < 3 * error


def test_samples_of_a_pool_are_within_bounds_and_on_the_ring(pooled: PooledModel) -> None:
    drawn, plain = pooled.sample(1000, source()), pooled.joint.sample(1000, source())
    assert drawn[:, 3].min() >= 0
    assert drawn[:, 2].min() >= 0
    assert drawn[:, 2].max() < 360
    truth = rings(1000, 3)[:, :2].norm(dim=1)
    off, plain_off = ((one[:, :2].norm(dim=1) - 1).abs().mean() for one in (drawn, plain))
    assert off < 0.7 * plain_off
    assert (truth - 1).abs().mean() < off
    assert pooled.sample(0).shape == (0, 4)


def test_a_network_that_helps_is_kept_and_better_on_new_rows(pooled: PooledModel) -> None:
    new = rings(300, 2)
    gain = pooled.log_density(new) - pooled.joint.log_density(new)
    expected, error = pooled.notes["gain"], pooled.notes["error"]
    assert float(gain.mean()) > 0.2
    assert abs(float(gain.mean()) - expected) < 5 * error


def test_rows_beyond_bounds_have_no_density(pooled: PooledModel) -> None:
    x = rings(2, 1)
    x[0, 3] = -1.0
    found = pooled.log_density(x)
    assert found[0] == -math.inf
    assert found[1].isfinite()


def test_pools_have_no_marginals(pooled: PooledModel) -> None:
    with pytest.raises(TypeError, match="fit without network"):
        pooled.marginal([0])
    with pytest.raises(TypeError, match="fit without network"):
        pooled.conditional({0: 1.0})
    with pytest.raises(TypeError, match="no single noising process"):
        pooled.score(rings(2, 1), 0.1)


def test_pools_are_stored(pooled: PooledModel, tmp_path: Path) -> None:
    pooled.save(tmp_path / "model.safetensors")
    again, x = load(tmp_path / "model.safetensors"), rings(5, 1)
    torch.testing.assert_close(again.log_density(x), pooled.log_density(x), rtol=0, atol=0)
    assert again.facts() == pooled.facts()


def test_facts_and_repr_name_the_network(pooled: PooledModel) -> None:
    network = pooled.facts()["network"]
    assert network["share"] == pooled.share
    assert network["networks"] == 2
    assert pooled.facts()["held_out"] > pooled.joint.facts()["held_out"]
    assert "share of the networks" in repr(pooled)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.2])
def test_bad_pools_are_refused(pooled: PooledModel, share: float) -> None:
    with pytest.raises(ValueError, match="share"):
        PooledModel(pooled.joint, pooled.blend, share)
    with pytest.raises(ValueError, match="coordinates"):
        WarpedModel(pooled.blend.coordinates[:2], pooled.blend.inner)


# Fits -------------------------------------------------------------------------------------------


def test_without_a_gain_the_closed_form_model_remains() -> None:
    x = torch.randn(200, 4, generator=source(), dtype=torch.float64)
    model, held_out = cross_fit_joint(x, [Column()] * 4, candidates=FEW, progress=False)
    assert joint_with_network(model, held_out, Training(steps=30, progress=False)) is model


def test_few_rows_have_no_network() -> None:
    x = rings(15, 0)
    model, held_out = cross_fit_joint(x, COLUMNS, candidates=FEW, progress=False)
    assert joint_with_network(model, held_out, Training(steps=1)) is model


def test_held_out_densities_are_those_of_models_without_the_rows() -> None:
    """One candidate: a Gaussian of the training rows of each fold, in fixed coordinates."""
    x = rings(150, 0)[:, :2]
    model, held_out = cross_fit_joint(x, [Column()] * 2, candidates=FEW, progress=False)
    assert model.facts()["held_out"] == pytest.approx(float(held_out.log_density.mean()))
    for used in held_out.train[:-1]:
        own, rest = x[used], x[~used]
        covariance = own.mT.cov(correction=0)
        normal = scipy.stats.multivariate_normal(own.mean(dim=0).numpy(), covariance.numpy())
        # The background: a Gaussian of three times the spread, with the weight of one row.
        wide = scipy.stats.multivariate_normal(x.mean(dim=0).numpy(), 9 * x.mT.cov(correction=0))
        n, at = len(own), rest.numpy()
        logs = np.logaddexp(
            normal.logpdf(at) + math.log(n / (n + 1)), wide.logpdf(at) - math.log(n + 1)
        )
        expected = torch.from_numpy(logs)
        torch.testing.assert_close(held_out.log_density[~used], expected, atol=5e-3, rtol=0)
    some = held_out.select(torch.arange(150) % 2 == 0)
    assert torch.equal(some.log_density, held_out.log_density[::2])
    assert some.train.shape == (3, 75)


@pytest.mark.parametrize(("n", "parts"), [(100, 2), (3100, 1)])
def test_all_folds_of_few_rows_are_held_out_and_one_of_many(
    n: int, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Part] = []
    monkeypatch.setattr(_beside, "cross_fit_network", lambda _, parts, **__: seen.extend(parts))
    x = torch.randn(n, 2, generator=source(), dtype=torch.float64)
    model = mixture_of(x)
    found = torus_with_network(model, x, None, lambda used: mixture_of(x[used]), Training(steps=1))
    assert found is model
    assert len(seen) == parts
    for part in seen:
        assert len(part.train) + len(part.held) == n
        torch.testing.assert_close(
            part.reference.log_density(x), mixture_of(part.train).log_density(x)
        )


@given(seconds=st.floats(0.1, 1e4), rows=st.integers(1, 10**6))
def test_seconds_are_those_given_or_follow_from_the_rows(seconds: float, rows: int) -> None:
    assert Training.of(seconds, rows).seconds == seconds
    expected = FEW_SECONDS if rows <= 3000 else MANY_SECONDS
    assert Training.of("auto", rows).seconds == expected


# The estimator ----------------------------------------------------------------------------------


def squares(n: int, seed: int) -> np.ndarray:
    """Return rows of [0, 1]² with a density of 2 on two quadrants."""
    rng = np.random.default_rng(seed)
    return 0.5 * (rng.random((n, 2)) + rng.integers(0, 2, n)[:, None])


def test_a_network_beside_a_table_of_two_columns(by_steps: list[float], tmp_path: Path) -> None:
    estimator = OISM(network=7, max_eigenvalue=4, flow_steps=16).fit(squares(500, 0))
    assert by_steps == [7.0]
    assert isinstance(estimator.model_, BlendedTable)
    assert "network     share" in estimator.summary()
    plain = OISM(max_eigenvalue=4, flow_steps=16).fit(squares(500, 0))
    new = squares(300, 1)
    gain = estimator.score_samples(new) - plain.score_samples(new)
    assert gain.mean() > 2 * gain.std() / math.sqrt(300)
    estimator.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    np.testing.assert_allclose(
        again.score_samples(new[:5]), estimator.score_samples(new[:5]), rtol=1e-6
    )  # networks compute in float32
    assert again.network == 7


def test_a_network_beside_a_table_of_four_columns(by_steps: list[float], tmp_path: Path) -> None:
    x = rings(300, 0).numpy()
    x[:5, 1] = np.nan  # not trained on
    x[:, 3] = np.round(4 * x[:, 3])
    frame = pd.DataFrame(x, columns=["a", "b", "phi", "size"])
    settings: dict[str, Any] = {"periodic": {"phi": 360}, "bounds": {"size": (0, None)}}
    estimator = OISM(network="auto", **settings).fit(frame)
    assert by_steps == [30.0]
    facts = estimator.facts()
    assert facts["network"]["share"] > 0.05
    assert facts["columns"][3]["kind"] == "discrete"
    drawn = estimator.sample(50, random_state=0)
    assert list(drawn.columns) == list(frame.columns)
    assert set(drawn["size"]) <= set(frame["size"])
    rows = frame.iloc[10:14]
    estimator.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    np.testing.assert_allclose(again.score_samples(rows), estimator.score_samples(rows), rtol=1e-6)
    with pytest.raises(TypeError, match="fit without network"):
        estimator.score_samples(frame.iloc[:2])
    with pytest.raises(TypeError, match="fit without network"):
        estimator.sample(1, given={"a": 0.0})


def test_batches_have_no_network() -> None:
    x = squares(50, 0)
    with pytest.raises(ValueError, match=r"partial_fit cannot train a network.*use fit"):
        OISM(network=1).partial_fit(x)
    with pytest.raises(ValueError, match=r"fit_batches cannot train a network.*use fit"):
        OISM(network=1).fit_batches(lambda: [x])


def test_categories_have_no_network() -> None:
    frame = pd.DataFrame({"x": np.arange(40.0) ** 1.1, "sex": ["f", "m"] * 20})
    with pytest.raises(ValueError, match="categorical: 'sex'; leave network out"):
        OISM(network=1).fit(frame)


@pytest.mark.parametrize("process", ["ou", "mixture"])
def test_other_processes_have_no_network(process: str) -> None:
    x = torch.randn(40, 4, generator=source()).double().numpy()
    with pytest.raises(ValueError, match="leave process or network out"):
        OISM(network=1, process=process).fit(x)


def test_rows_of_different_weights_have_no_network() -> None:
    with pytest.raises(ValueError, match="equal weight"):
        OISM(network=1).fit(squares(30, 0), sample_weight=np.arange(30.0))


@pytest.mark.parametrize("network", [0, -1.0, "long", [3]])
def test_bad_times_are_refused(network: Any) -> None:
    with pytest.raises(ValueError, match="network"):
        OISM(network=network).fit(squares(30, 0))
