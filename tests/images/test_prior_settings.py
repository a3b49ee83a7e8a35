"""Shrinkage, knots and the clock of a prior."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from oism import VarianceExploding, fit_mixture, fit_prior
from oism.basis import Frame, Hermite, IdentityFrame
from oism.estimation import (
    EvenKnots,
    HermiteMoments,
    JamesStein,
    Modulation,
    Monotone,
    SampleMeans,
    Shrinkage,
)
from oism.images import PCA, image_statistics

RULES: list[Shrinkage] = [JamesStein(), Modulation(), Monotone()]


def skewed(n: int = 300, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(n, 4, generator=generator, dtype=torch.float64)
    return (0.5 * z).exp() * 0.4 - 0.5


def pixels(n: int = 300) -> Tensor:
    return (100 + 80 * skewed(n)).clamp(0, 255).round().byte().reshape(n, 1, 2, 2)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_averages_are_shrunk_as_by_the_accumulator(rule: Shrinkage) -> None:
    x = skewed()
    moments = HermiteMoments(Hermite(4, 4), 5, squares=True).update(x)
    wanted = moments.shrunk(rule).averages.total
    found = image_statistics(x, order=4, frame=IdentityFrame(), shrinkage=rule).standard.averages
    torch.testing.assert_close(found.total, wanted)
    plain = image_statistics(x, order=4, frame=IdentityFrame()).standard.averages.total
    torch.testing.assert_close(found.total[:3], plain[:3])  # means and variances are kept
    assert (found.total[3:].square().sum(dim=0) < plain[3:].square().sum(dim=0)).all()


def test_sample_means_of_bytes_are_those_of_histograms() -> None:
    data = pixels()
    ways = [image_statistics(data, order=4, frame=IdentityFrame(), shrinkage=rule)
            for rule in (None, SampleMeans())]  # fmt: skip
    assert torch.equal(*(way.standard.averages.total for way in ways))


@pytest.mark.parametrize("frame", [PCA(), IdentityFrame()], ids=["principal", "pixels"])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_priors_of_bytes_with_shrinkage(rule: Shrinkage, frame: Frame | PCA) -> None:
    plain, found = (fit_prior(pixels(), order=4, frame=frame, shrinkage=r) for r in (None, rule))
    x = torch.randn(20, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    a, b = (prior.noise(x, 0.2) for prior in (plain, found))
    assert not torch.equal(a, b)
    assert float((a - b).square().mean()) < 0.05
    assert float((found.expected_error(0.2) - plain.expected_error(0.2)).abs()) < 0.02


def test_a_thousand_even_knots_agree_with_placed_ones() -> None:
    x = skewed()
    placed, even = (fit_prior(x, order=4, knots=knots) for knots in (None, EvenKnots()))
    assert len(even.lines.curve.values) == 1000
    assert len(placed.lines.curve.values) < 200
    noisy = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    for tau in (0.01, 0.1, 0.5):
        torch.testing.assert_close(
            placed.noise(noisy, tau), even.noise(noisy, tau), atol=0.02, rtol=0
        )


def test_noise_that_explodes_is_refused() -> None:
    clock = VarianceExploding()
    for fit in (fit_prior, fit_mixture):
        with pytest.raises(ValueError, match=r"clock must end .* Use a variance preserving clock"):
            fit(skewed(), clock=clock)
    with pytest.raises(ValueError, match="Use a variance preserving clock"):
        fit_prior(skewed(), labels=torch.arange(300) % 2, clock=clock)


def test_wrong_settings_are_named() -> None:
    with pytest.raises(TypeError, match="shrinkage must be of type Shrinkage"):
        fit_prior(skewed(), order=4, shrinkage=0.5)  # type: ignore[call-overload]
    others: dict[str, Any] = {"shrinkage": JamesStein(), "knots": EvenKnots()}
    for name, value in others.items():
        with pytest.raises(ValueError, match=f"{name} must not be given with labels"):
            fit_prior(skewed(), labels=torch.arange(300) % 2, **{name: value})


def test_images_with_channels_last_are_not_mirrored() -> None:
    x = torch.zeros(60, 5, 5, 3)
    x[..., 0] = torch.rand(60, 5, 5, generator=torch.Generator().manual_seed(0))
    for fit in (fit_prior, fit_mixture):
        with pytest.raises(ValueError, match=r"images must be channels first, .* or flip=False"):
            fit(x, flip=True)
    red = fit_prior(x.permute(0, 3, 1, 2), flip=True, order=2).sample(300)
    assert float(red[:, 0].mean()) > 0.4
    assert float(red[:, 1:].abs().max()) < 0.01
    assert fit_prior(x, order=2).shape == (5, 5, 3)
    assert fit_prior(x.permute(0, 3, 1, 2)[..., :3], flip=True, order=2).shape == (3, 5, 3)
