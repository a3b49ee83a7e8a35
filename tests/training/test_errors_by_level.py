"""Errors by noise level: against closed forms and the formula itself, paired, in any batches."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oism import fit_prior
from oism.basis import IdentityFrame
from oism.flow import Pixels, TensorSpec
from oism.images import Prior
from oism.nn import MLP, Diffusion
from oism.objectives import UniformLogSNR, errors_by_level

from .small import PIXELS, fitted, images, predictor


def gaussian(n: int, seed: int) -> Tensor:
    x = torch.randn(n, 5, generator=torch.Generator().manual_seed(seed))
    return x * torch.tensor([0.05, 0.2, 0.5, 1.0, 2.0]) + 0.3


def means(model: Diffusion | Prior, values: Tensor, **more: Any) -> list[float]:
    return [one.error.mean for one in errors_by_level(model, values, **more)]


def test_a_gaussian_has_the_error_it_expects() -> None:
    """The mean of the prior's own closed form over an interval, within four standard errors."""
    prior = fit_prior(gaussian(20_000, 0), order=2, frame=IdentityFrame())
    found = errors_by_level(prior, gaussian(8000, 1))
    levels = UniformLogSNR(prior.noising)
    for i, one in enumerate(found):
        u = (i + (torch.arange(2000, dtype=torch.float64) + 0.5) / 2000) / 6
        expected = float(prior.expected_error(levels.at(u)).mean())
        assert one.error.count == 8000
        assert abs(one.error.mean - expected) < 4 * one.error.error + 2e-3 * expected


def test_intervals_cover_the_range_in_equal_parts() -> None:
    prior = fitted()
    found = errors_by_level(prior, images(20), intervals=4, first=1e-3)
    assert found[0].tau[0] == pytest.approx(1e-3)
    assert found[-1].tau[1] == pytest.approx(1.0)
    for one, other in itertools.pairwise(found):
        assert one.tau[1] == other.tau[0]
        assert one.log_snr[1] == pytest.approx(other.log_snr[0])
    widths = [one.log_snr[0] - one.log_snr[1] for one in found]
    assert widths == pytest.approx([widths[0]] * 4)


class Noted(nn.Module):
    """A predictor of nothing that notes what it is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))
        self.shown: list[tuple[Tensor, Tensor]] = []
        self.modes: list[bool] = []

    def forward(self, x: Tensor, tau: Tensor) -> Tensor:
        self.shown.append((x, tau))
        self.modes.append(self.training)
        return torch.zeros_like(x) + self.weight


def noted(spec: TensorSpec, first: float = 1e-5) -> tuple[Noted, Diffusion]:
    net = Noted()
    return net, Diffusion(net, spec, first=first)


def test_what_is_shown_is_the_formula() -> None:
    """x_τ = αx + σε, with one ε for all levels, and the error of predicting nothing is ‖ε‖²/d."""
    spec = fit_prior(gaussian(50, 0), order=2, frame=IdentityFrame()).spec
    net, model = noted(spec)
    x = gaussian(12, 3)
    found = errors_by_level(model, x, intervals=3)
    drawn = []
    for shown, tau in net.shown:
        alpha, sigma = (getattr(model.noising, n)(tau)[:, None] for n in ("alpha", "sigma"))
        drawn.append((shown.double() - alpha * x) / sigma)
    torch.testing.assert_close(drawn[1], drawn[2], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(drawn[0], drawn[2], rtol=1e-2, atol=1e-2)  # σ = 1e-3 in float32
    for one in found:
        assert one.error.mean == pytest.approx(float(drawn[2].square().mean()), rel=1e-4)


def test_times_are_spread_evenly_over_each_interval() -> None:
    spec = fitted().spec
    net, model = noted(spec)
    errors_by_level(model, images(90), intervals=2, batch=90)
    levels = UniformLogSNR(model.noising)
    for i, (_, tau) in enumerate(net.shown):
        u = 2 * (levels.highest - model.noising.log_snr(tau)) / levels.width - i
        gaps = u.sort().values.diff()
        assert float(u.min()) >= -1e-9
        assert float(u.max()) <= 1 + 1e-9
        assert float(gaps.max()) < 3 / 90, "of independent draws the largest is near 5/90"


@pytest.mark.parametrize("batch", [1, 7, 89, 500])
def test_batches_do_not_matter(batch: int) -> None:
    net, model = noted(fitted().spec)
    expected = errors_by_level(model, images(90), batch=90)
    seen = torch.cat([shown for shown, _ in net.shown[::6]])
    net.shown.clear()
    found = errors_by_level(model, images(90), batch=batch)
    again = torch.cat([shown for shown, _ in net.shown[::6]])
    torch.testing.assert_close(again, seen, rtol=0, atol=1e-6)
    for one, other in zip(found, expected, strict=True):
        assert one.error.mean == pytest.approx(other.error.mean, rel=1e-6)
        assert one.error.error == pytest.approx(other.error.error, rel=1e-6)


def test_the_first_rows_are_treated_alike_whatever_follows() -> None:
    net, model = noted(fitted().spec)
    errors_by_level(model, images(90))
    errors_by_level(model, images(90)[:30])
    assert torch.equal(net.shown[0][0][:30], net.shown[6][0])
    torch.testing.assert_close(net.shown[0][1][:30], net.shown[6][1])


def test_predictors_are_compared_in_pairs() -> None:
    """The same noise, times and dequantisation for all: a network and the prior it starts from."""
    prior = fitted()
    model = Diffusion(predictor(prior), prior.spec)
    net, alone = noted(prior.spec)
    errors_by_level(alone, images(20))
    seen: list[Tensor] = []
    real = prior.noise

    def watched(x: Tensor, tau: Tensor | float) -> Tensor:
        seen.append(x)
        return real(x, tau)

    prior.noise = watched  # type: ignore[method-assign]
    for one in (prior, model):
        seen.clear()
        errors_by_level(one, images(20))
        assert all(torch.equal(x, shown) for x, (shown, _) in zip(seen, net.shown, strict=True))


def test_seeds_differ_and_dequantisation_is_drawn() -> None:
    net, model = noted(fitted().spec)
    errors_by_level(model, images(20), seed=0, intervals=1)
    errors_by_level(model, images(20), seed=1, intervals=1)
    assert not torch.equal(net.shown[0][0], net.shown[1][0])
    zeros = torch.zeros(400, 1, 4, 4).byte()
    net.shown.clear()
    errors_by_level(model, zeros, intervals=6)
    (x, tau), *_ = net.shown
    away = (x / model.noising.alpha(tau).to(x).reshape(-1, 1, 1, 1) + 1) / PIXELS.step
    assert float(away.std()) == pytest.approx(1 / math.sqrt(12), abs=0.02)


@pytest.mark.parametrize("mode", [True, False])
def test_dropout_is_off_and_the_mode_comes_back(mode: bool) -> None:
    net, model = noted(fitted().spec)
    net.train(mode)
    errors_by_level(model, images(5))
    assert set(net.modes) == {False}
    assert net.training is mode
    assert net.weight.grad is None


def test_the_model_says_where_its_noise_begins() -> None:
    net, model = noted(fitted().spec, first=1e-2)
    assert errors_by_level(model, images(5))[0].tau[0] == pytest.approx(1e-2)
    assert errors_by_level(fitted(), images(5))[0].tau[0] == pytest.approx(1e-5)
    assert min(float(tau.min()) for _, tau in net.shown) >= 1e-2


def test_numbers_in_double_precision_are_evaluated() -> None:
    x = gaussian(50, 0)
    spec = fit_prior(x, order=2, frame=IdentityFrame()).spec
    model = Diffusion(MLP(5), spec)
    assert means(model, x.double()) == pytest.approx(means(model, x), rel=1e-6)


def test_bad_values() -> None:
    prior = fitted()
    with pytest.raises(
        ValueError, match=r"values must be tensors \(n, \*shape\), got \(0, 1, 4, 4\)"
    ):
        errors_by_level(prior, images(5)[:0])
    with pytest.raises(ValueError, match="intervals must be an integer >= 1, got 0"):
        errors_by_level(prior, images(5), intervals=0)
    with pytest.raises(ValueError, match=r"values must be in \[0, 16\]"):
        errors_by_level(prior, images(5) + 100)
    with pytest.raises(TypeError, match="values must be of type Tensor"):
        errors_by_level(prior, images(5).numpy())  # type: ignore[arg-type]
    assert prior.pixels == Pixels(0, 16)
