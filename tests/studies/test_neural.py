"""The network that the closed form is compared with: its scores, its time, its units."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor

from oism.data.toys import WrappedMixture
from oism.flow import ExactTrace, Flow, NoiseScore, RungeKutta4, log_density
from oism.nn import MLP
from oism.process import (
    IdentityClock,
    Noising,
    OrnsteinUhlenbeck,
    Torus,
    VarianceExploding,
    VariancePreserving,
)
from studies import neural
from studies.neural import DDPM, train

pytestmark = pytest.mark.slow

OU = Noising(OrnsteinUhlenbeck(), VariancePreserving())
MEAN = torch.tensor([1.0, -0.5], dtype=torch.float64)
VARIANCE = torch.tensor([0.25, 1.0], dtype=torch.float64)


@contextmanager
def one_second_per_call() -> Iterator[None]:
    """Let every call of the clock take a second: then ``seconds`` are steps, on any machine."""
    with pytest.MonkeyPatch.context() as patch:
        count = itertools.count()
        patch.setattr(neural, "time", SimpleNamespace(perf_counter=lambda: float(next(count))))
        yield


def trained(data: Tensor, noising: Noising, steps: int, seed: int = 0, **more: Any) -> NoiseScore:
    generator = torch.Generator().manual_seed(seed)
    with one_second_per_call():
        score, taken = train(data, noising, seconds=steps, generator=generator, **more)
    assert taken == steps
    return score


def test_a_network_learns_the_scores_of_an_angle(generator: torch.Generator) -> None:
    truth = WrappedMixture((1.0,), (0.0,), (0.5,))
    noising = Noising(Torus(), VarianceExploding(sigma_max=5.0))
    score = trained(truth.sample(2000, generator), noising, 500, angular=4)
    x = torch.linspace(-math.pi, math.pi, 513, dtype=torch.float64)[:-1, None]
    for t in (0.02, 0.1, 0.5):
        weights, exact = truth.density(x, t) / truth.density(x, t).sum(), truth.score(x, t)
        loss, nothing = (
            float(weights @ (guess - exact).square()[:, 0]) for guess in (score(x, t), 0 * exact)
        )
        assert loss < 0.05 * nothing
    flow = Flow(score, noising.process, noising.clock)
    log = log_density(flow, x, method=RungeKutta4(64), divergence=ExactTrace())
    assert float(log.exp().mean()) * 2 * math.pi == pytest.approx(1, abs=1e-3)


def test_a_network_learns_the_scores_of_the_plane(generator: torch.Generator) -> None:
    noise = torch.randn(4000, 2, generator=generator, dtype=torch.float64)
    score = trained(MEAN + VARIANCE.sqrt() * noise, OU, 500)
    fresh = torch.randn(4000, 2, generator=generator, dtype=torch.float64)
    for t in (0.05, 0.3, 1.0):
        alpha, variance = math.exp(-t), -math.expm1(-2 * t)
        spread = alpha**2 * VARIANCE + variance
        x = alpha * MEAN + spread.sqrt() * fresh
        exact = -(x - alpha * MEAN) / spread
        loss = float((score(x, t) - exact).square().sum(dim=1).mean())
        assert loss < 0.05 * float(exact.square().sum(dim=1).mean())
    side = torch.linspace(-4, 4, 41, dtype=torch.float32)
    x = torch.cartesian_prod(side, side)
    flow = Flow(score, OU.process, OU.clock, span=(1e-2, 1.0))
    log = log_density(flow, x, method=RungeKutta4(16), divergence=ExactTrace())
    assert float(log.exp().sum()) * 0.2**2 == pytest.approx(1, abs=5e-3)


def test_a_network_is_evaluated_at_the_times_of_its_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For any horizon of the clock: else it would be trained on a third of its times."""
    seen: list[Tensor] = []

    class Watched(MLP):
        def forward(self, x: Tensor, tau: Tensor) -> Tensor:
            seen.append(tau / self.horizon)
            return super().forward(x, tau)

    monkeypatch.setattr(neural, "MLP", Watched)
    noising = Noising(OrnsteinUhlenbeck(), IdentityClock(3.0))
    score = trained(torch.zeros(10, 1), noising, 2)
    low, high = (float(end) for end in torch.cat(seen).aminmax())
    seen.clear()
    for t in (0.0003, 2.9997):
        score(torch.zeros(1, 1), t)
    assert float(seen[0][0]) == pytest.approx(low, abs=5e-3)
    assert float(seen[1][0]) == pytest.approx(high, abs=5e-3)
    assert 0 <= low < 0.01
    assert 0.99 < high <= 1


def net_of(score: NoiseScore) -> MLP:
    assert isinstance(score.predictor, MLP)
    return score.predictor


def weights(score: NoiseScore) -> Tensor:
    return torch.cat([part.flatten() for part in net_of(score).parameters()])


def test_training_depends_on_the_generator_only_and_restores_the_global_one() -> None:
    data = torch.linspace(-1, 1, 50)[:, None]
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, two, other = (weights(trained(data, OU, 6, seed)) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one, two)
    assert not torch.allclose(one, other)


def test_initial_weights_are_seeded_by_the_first_draw() -> None:
    """The rate of the first step is zero."""
    found = weights(trained(torch.zeros(5, 2), OU, 1, seed=3))
    seed = int(torch.randint(2**31, (), generator=torch.Generator().manual_seed(3)))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        expected = MLP(2)
    assert torch.equal(found, weights(NoiseScore(expected, OU)))
    assert not any(
        part.requires_grad for part in net_of(trained(torch.zeros(5, 2), OU, 1)).parameters()
    )


def test_the_number_of_threads_is_restored() -> None:
    seen = []

    class Watched(VariancePreserving):
        def _time(self, tau: Tensor) -> Tensor:
            seen.append(torch.get_num_threads())
            return super()._time(tau)

    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        trained(torch.zeros(5, 1), Noising(OrnsteinUhlenbeck(), Watched()), 2)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)
    assert set(seen) == {1}


def test_training_ends_after_its_time() -> None:
    """With half a second per call of the clock; and after one step at least."""
    with pytest.MonkeyPatch.context() as patch:
        ticks = itertools.count(step=0.5)
        patch.setattr(neural, "time", SimpleNamespace(perf_counter=lambda: next(ticks)))
        _, steps = train(torch.zeros(5, 1), OU, seconds=2.0, generator=torch.Generator())
    assert steps == 4
    _, steps = train(torch.zeros(5, 1), OU, seconds=1e-9, generator=torch.Generator())
    assert steps == 1


class Standard(torch.nn.Module):
    """The noise predictor of N(0, I): ε̂ = σ_τ x."""

    def forward(self, x: Tensor, tau: Tensor) -> Tensor:
        return OU.sigma(tau).to(x)[:, None] * x


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let training return the exact predictor of standardised normal data."""
    net: Any = Standard()
    monkeypatch.setattr(neural, "train", lambda *_, **__: (NoiseScore(net, OU), 7))


@pytest.mark.usefixtures("exact")
def test_densities_and_samples_are_in_the_units_of_the_data() -> None:
    x = np.random.default_rng(0).normal([3.0, -50.0], [0.1, 20.0], size=(400, 2))
    y = np.random.default_rng(1).normal([3.0, -50.0], [0.1, 20.0], size=(50, 2))
    normal = scipy.stats.norm(x.mean(axis=0), x.std(axis=0))
    model = DDPM(seconds=1).fit(x)
    assert model.steps_ == 7
    np.testing.assert_allclose(model.score_samples(y), normal.logpdf(y).sum(axis=1), atol=1e-4)
    wide = DDPM(seconds=1).fit(10 * x)
    gap = wide.score_samples(10 * y) - model.score_samples(y)
    np.testing.assert_allclose(gap, -2 * math.log(10), atol=1e-4)
    drawn = model.sample(2000, random_state=1)
    np.testing.assert_allclose((drawn.mean(axis=0) - normal.mean()) / normal.std(), 0, atol=0.1)
    np.testing.assert_allclose(drawn.std(axis=0), normal.std(), rtol=0.06)
    np.testing.assert_array_equal(drawn, model.sample(2000, random_state=1))


def test_a_model_is_trained_on_standardised_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def watched(data: Tensor, noising: Noising, **settings: Any) -> tuple[NoiseScore, int]:
        seen.update(settings, data=data)
        net: Any = Standard()
        return NoiseScore(net, noising), 1

    monkeypatch.setattr(neural, "train", watched)
    DDPM(seconds=2.5, random_state=9).fit(np.random.default_rng(0).gamma(3, 7, size=(300, 2)))
    np.testing.assert_allclose(seen["data"].mean(dim=0), 0, atol=1e-12)
    np.testing.assert_allclose(seen["data"].std(dim=0, correction=0), 1)
    assert seen["seconds"] == 2.5
    assert seen["generator"].initial_seed() == 9
