"""Bits per dimension with estimates of their errors: by probes and by steps."""

from __future__ import annotations

import math
import warnings
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from oism import Combined, Diffusion, fit_prior
from oism.flow import Adams, Pixels, RungeKutta4, TensorSpec
from oism.images import Prior
from oism.training import Bits, bits_per_dim

SHAPE = (1, 2, 3)


def images(n: int = 400) -> Tensor:
    """Return correlated integers from 0 to 16, of two kinds."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(n, 6, generator=generator)
    z = z + 0.8 * z.roll(1, dims=1) + 6.0 * (torch.arange(n) % 2)[:, None]
    return (5 + z).round().clamp(0, 16).reshape(n, *SHAPE)


class Bent(nn.Module):
    """The noise that a Gaussian predicts, and a smooth function of neighbouring entries."""

    def __init__(self, prior: Prior) -> None:
        super().__init__()
        self.prior = prior

    def forward(self, x: Tensor, tau: Tensor) -> Tensor:
        level = 0.5 * float(self.prior.noising.log_snr(tau[:1].double()))
        wave = torch.sin(3 * (x + x.roll(1, dims=-1)))
        return self.prior.noise(x, tau[0].double()) - 0.2 * math.exp(-0.5 * level**2) * wave


@cache
def model() -> Diffusion:
    prior = fit_prior(images(), order=2, pixels=Pixels(0, 16))
    combined = Combined(Bent(prior), prior)
    combined.share.fill_(1.0)
    return Diffusion(combined)


def test_the_deviation_that_is_due_to_probes() -> None:
    """Compared with many draws of the signs for the same dequantised tensors."""
    values, method = images()[:64], Adams(20)
    found = bits_per_dim(model(), values, method=method, checked=64)
    many = torch.stack(
        [
            model().bits_per_dim(
                values,
                torch.Generator().manual_seed(0),
                method=method,
                divergence=model().divergence(torch.Generator().manual_seed(seed)),
            )
            for seed in range(12)
        ]
    )
    expected = float(many.double().var(dim=0).mean().sqrt())
    assert expected > 0.01
    assert found.probe_deviation == pytest.approx(expected, rel=0.25)
    more = bits_per_dim(model(), values, method=method, probes=9, checked=64)
    assert more.probes == 9
    assert more.probe_deviation == pytest.approx(expected / 3, rel=0.35)


def measured(steps: int, values: Tensor) -> Bits:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return bits_per_dim(model(), values, method=Adams(steps), checked=32, probes=4)


def test_the_error_that_is_due_to_steps() -> None:
    values = images()[:32]
    fine, errors = measured(95, values), []
    for steps in (3, 7, 15, 31):
        found = measured(steps, values)
        assert found.discretisation is not None
        errors.append(abs(found.discretisation))
        error = found.bits.mean - fine.bits.mean
        noise = 4 * (found.probe_deviation or 0.0) / 32**0.5
        assert found.discretisation == pytest.approx(error, abs=0.35 * abs(error) + noise)
    assert errors[0] > 0.1
    assert errors[3] < 0.002


def test_too_few_steps_draw_a_warning() -> None:
    values = images()[:20]
    with pytest.warns(UserWarning, match=r"too low: 3 evaluations .* are too few, use") as w:
        few = bits_per_dim(model(), values, method=Adams(2))
    assert w[0].filename == __file__
    assert not few.is_accurate
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        enough = bits_per_dim(model(), values)
        unchecked = bits_per_dim(model(), values, method=Adams(2), checked=0)
    assert (enough.evaluations, enough.is_accurate) == (32, True)
    assert unchecked.bits == few.bits
    assert (unchecked.probe_deviation, unchecked.discretisation) == (None, None)


def test_a_network_without_a_prior() -> None:
    informed = model().informed
    assert informed is not None
    bare = Diffusion(informed.net, TensorSpec(SHAPE, model().clock, Pixels(0, 16)))
    values = images()[:12]
    found = bits_per_dim(bare, values, probes=8)
    assert found.evaluations == 96
    ours = bits_per_dim(model(), values, probes=8)
    noise = (found.probe_deviation or 0.0) + (ours.probe_deviation or 0.0)
    assert found.bits.mean == pytest.approx(ours.bits.mean, abs=4 * noise / 12**0.5 + 0.005)
    with pytest.warns(UserWarning, match="bits per dimension are about"):
        bits_per_dim(bare, values, method=RungeKutta4(4))


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="checked must be an integer >= 0, got -1"):
        bits_per_dim(model(), images()[:2], checked=-1)
    with pytest.raises(ValueError, match="probes must be an integer >= 1, got 0"):
        bits_per_dim(model(), images()[:2], probes=0)
