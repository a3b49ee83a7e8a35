"""Mixtures of Gaussians for tables: densities, scores of all noise levels, conditionals, fits."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import torch
from torch import Tensor

from oism import OISM, Flow, VariancePreserving, load
from oism.flow import ExactTrace, RungeKutta4, log_density
from oism.tables import MixtureModel, fit_mixtures


def mixture(dim: int = 3, count: int = 4, seed: int = 0) -> MixtureModel:
    g = torch.Generator().manual_seed(seed)
    root = torch.randn(count, dim, dim, generator=g, dtype=torch.float64)
    weights = torch.rand(count, generator=g, dtype=torch.float64) + 0.2
    return MixtureModel(
        centre=torch.randn(dim, generator=g, dtype=torch.float64),
        scale=torch.rand(dim, generator=g, dtype=torch.float64) + 0.5,
        weights=weights / weights.sum(),
        means=1.5 * torch.randn(count, dim, generator=g, dtype=torch.float64),
        covariances=0.3 * root @ root.mT + 0.05 * torch.eye(dim).double(),
    )


def terms(model: MixtureModel) -> list[tuple[float, np.ndarray, np.ndarray]]:
    """Return weight, mean and covariance of each component, in the data's units."""
    scale = model.scale.numpy()
    return [
        (float(w), model.centre.numpy() + scale * m.numpy(), scale[:, None] * c.numpy() * scale)
        for w, m, c in zip(model.weights, model.means, model.covariances, strict=True)
    ]


def density(model: MixtureModel, x: Tensor) -> np.ndarray:
    """Return p(x) by SciPy."""
    parts = [
        w * scipy.stats.multivariate_normal(mean, cov).pdf(x.numpy())
        for w, mean, cov in terms(model)
    ]
    return np.asarray(np.sum(parts, axis=0))


def test_densities_are_those_of_scipy() -> None:
    model, x = mixture(), mixture().sample(50, torch.Generator().manual_seed(1))
    np.testing.assert_allclose(model.log_density(x).exp().numpy(), density(model, x), rtol=1e-10)


def test_scores_are_gradients_and_divergences_exact_traces() -> None:
    model = mixture()
    x, t = model.sample(5, torch.Generator().manual_seed(1)), torch.tensor(0.3).double()
    own = x.clone().requires_grad_()
    log_terms = model._terms(model._rows(own), t)[0]
    (gradient,) = torch.autograd.grad(torch.logsumexp(log_terms, dim=1).sum(), own)
    torch.testing.assert_close(model.score(x, t), gradient)
    joint, spread = model.score_and_diffused_divergence(x, t)
    torch.testing.assert_close(joint, gradient)
    exact = ExactTrace().bind(Flow(model), x)(x, t)[1]
    torch.testing.assert_close(spread, exact)


def test_noised_densities_are_those_of_noised_rows() -> None:
    """ρ_t against an average of transition densities over many rows."""
    model, t = mixture(dim=2), 0.4
    rows = model.sample(200_000, torch.Generator().manual_seed(0))
    points = model.sample(6, torch.Generator().manual_seed(2))
    law = model.process.transition(t)
    average = torch.stack(
        [law.log_density(point.expand_as(rows), rows).exp().mean() for point in points]
    )
    u = model._rows(points)
    exact = torch.logsumexp(model._terms(u, torch.tensor(t).double())[0], dim=1).exp()
    torch.testing.assert_close(average, exact / model.scale.prod(), rtol=0.02, atol=0)


def test_the_flow_leads_to_the_same_density() -> None:
    model = mixture(dim=2)
    x = model.sample(5, torch.Generator().manual_seed(1))
    # Until t = 15: at the default end, 5, the means still differ from those of the start.
    flow = Flow(model, clock=VariancePreserving(0.1, 60.0))
    along = log_density(flow, x, method=RungeKutta4(200))
    torch.testing.assert_close(along, model.log_density(x), rtol=0, atol=1e-4)


def test_samples_follow_the_density() -> None:
    model = mixture(dim=2)
    x = model.sample(4000, torch.Generator().manual_seed(0))
    for column in range(2):
        values = x[:, column].numpy()
        cdf = lambda v, j=column: sum(  # noqa: E731
            w * scipy.stats.norm(m[j], math.sqrt(c[j, j])).cdf(v) for w, m, c in terms(model)
        )
        assert scipy.stats.kstest(values, cdf).pvalue > 1e-3
        assert scipy.stats.kstest(values + 0.3, cdf).pvalue < 1e-6, "a shift is found"


def test_marginals_and_conditionals_are_integrals_of_the_joint() -> None:
    model = mixture(dim=3)
    given = {2: float(model.centre[2])}
    point = model.sample(1, torch.Generator().manual_seed(3))[0]

    def joint(y: float, x: float) -> float:
        row = torch.tensor([[x, y, given[2]]]).double()
        return float(model.log_density(row).exp())

    lows = [model.centre[j] - 12 * model.scale[j] for j in range(2)]
    highs = [model.centre[j] + 12 * model.scale[j] for j in range(2)]
    # Of x alone at the given z: the mass over y, divided by the mass over x and y.
    along = scipy.integrate.quad(lambda y: joint(y, float(point[0])), lows[1], highs[1], limit=200)
    edge = float(model.marginal([2]).log_density(torch.tensor([[given[2]]]).double()).exp())
    found = model.conditional(given).marginal([0]).log_density(point[None, :1]).exp()
    assert float(found) == pytest.approx(along[0] / edge, rel=1e-6)
    pair = model.marginal([0, 2]).log_density(torch.tensor([[point[0], given[2]]]).double())
    assert float(pair.exp()) == pytest.approx(along[0], rel=1e-6)


def test_marginals_keep_the_order_of_columns() -> None:
    model = mixture(dim=3)
    x = model.sample(4, torch.Generator().manual_seed(0))
    swapped = model.marginal([2, 0, 1])
    torch.testing.assert_close(swapped.log_density(x[:, [2, 0, 1]]), model.log_density(x))


def test_files_give_the_same_model(tmp_path: Path) -> None:
    model = mixture()
    model.save(tmp_path / "m.safetensors")
    x = model.sample(3, torch.Generator().manual_seed(0))
    assert torch.equal(load(tmp_path / "m.safetensors").log_density(x), model.log_density(x))


def test_memory_is_bounded_by_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = mixture(), mixture().sample(40, torch.Generator().manual_seed(0))
    t = torch.linspace(0.1, 1, 40).double()
    whole = model.log_density(x), model.score(x, t)
    monkeypatch.setattr("oism.tables._pieces.ENTRIES", 24)
    torch.testing.assert_close(model.log_density(x), whole[0])
    torch.testing.assert_close(model.score(x, t), whole[1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": torch.tensor([0.5, 0.6]).double()}, "weights must be positive with a sum"),
        ({"scale": torch.zeros(2).double()}, "scale must be positive"),
        ({"covariances": -torch.eye(2).double().expand(2, 2, 2)}, "positive definite"),
        ({"means": torch.zeros(2, 3).double()}, "means must be"),
    ],
)
def test_bad_components_are_named(change: dict[str, Tensor], message: str) -> None:
    parts = {
        "centre": torch.zeros(2).double(),
        "scale": torch.ones(2).double(),
        "weights": torch.tensor([0.5, 0.5]).double(),
        "means": torch.zeros(2, 2).double(),
        "covariances": torch.eye(2).double().expand(2, 2, 2),
    }
    with pytest.raises(ValueError, match=message):
        MixtureModel(**{**parts, **change})


@pytest.mark.parametrize("columns", [[], [0, 0], [3], [-1]])
def test_bad_columns_are_named(columns: list[int]) -> None:
    with pytest.raises(ValueError, match="columns must be"):
        mixture().marginal(columns)
    with pytest.raises(ValueError, match="given must leave"):
        mixture().conditional({0: 0.0, 1: 0.0, 2: 0.0})


def test_a_fit_comes_close_to_the_truth() -> None:
    truth = mixture(dim=4, count=3)
    train, test = (truth.sample(n, torch.Generator().manual_seed(n)) for n in (2000, 2001))
    fitted = fit_mixtures(train, counts=(1, 2, 3, 4, 6), starts=2, progress=False)
    gap = truth.log_density(test) - fitted.log_density(test)
    assert float(gap.mean()) < 0.05
    single = fit_mixtures(train, counts=(1,), progress=False)
    assert float((truth.log_density(test) - single.log_density(test)).mean()) > 0.3


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_few_rows(n: int) -> None:
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(0)).double()
    model = fit_mixtures(x, progress=False)
    assert bool(model.log_density(x).isfinite().all())
    assert bool(model.log_density(x + 100).isfinite().all())


@pytest.mark.slow
def test_one_outlier_does_not_matter() -> None:
    x = torch.randn(200, 4, generator=torch.Generator().manual_seed(0)).double()
    test = torch.randn(500, 4, generator=torch.Generator().manual_seed(1)).double()
    plain = fit_mixtures(x, progress=False).log_density(test).mean()
    x[0] += 1e6
    model = fit_mixtures(x, progress=False)
    assert float(model.log_density(test).mean()) == pytest.approx(float(plain), abs=0.1)
    near = (model.sample(500, torch.Generator().manual_seed(0)).abs() < 10).all(dim=1)
    assert float(near.double().mean()) > 0.97


def test_units_and_constant_columns() -> None:
    x = torch.randn(300, 3, generator=torch.Generator().manual_seed(0)).double()
    x[:, 2] = 7.0
    scale = torch.tensor([1e-6, 1e6, 1.0]).double()
    model = fit_mixtures(x * scale, counts=(1, 2), starts=1, progress=False)
    samples = model.sample(200, torch.Generator().manual_seed(0)) / scale
    assert float((samples[:, 2] - 7).abs().max()) < 1.0
    assert float(samples[:, 0].std()) == pytest.approx(1, abs=0.3)
    assert float(samples[:, 1].std()) == pytest.approx(1, abs=0.3)


def test_no_rows_is_an_error() -> None:
    with pytest.raises(ValueError, match="data must hold at least one row"):
        fit_mixtures(torch.zeros(0, 3))


def test_columns_that_are_not_free_are_named() -> None:
    x = np.random.default_rng(0).uniform(size=(30, 2))
    with pytest.raises(ValueError, match=r"process='mixture' .* column 1 is bounded: process="):
        OISM(process="mixture", bounds={1: (0.0, 1.0)}).fit(x)
