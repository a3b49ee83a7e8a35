"""Priors evaluated on images: errors and bits by their formulas, however images are batched."""

from __future__ import annotations

import math
from functools import cache

import pytest
import torch
from torch import Tensor

from oism import VariancePreserving, fit_prior
from oism.flow import Pixels, TensorSpec
from oism.images import HermitePrior, as_images, evaluate, image_shape

LEVELS = (0.02, 0.2, 0.7)


def images(n: int = 40, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    u = torch.rand(n, 1, 1, 1, generator=generator) + torch.rand(n, 1, 3, 3, generator=generator)
    return (60 * u.square()).byte()


@cache
def prior() -> HermitePrior:
    return fit_prior(images(), order=2)


def test_batches_do_not_matter() -> None:
    values = images(30, 1)
    whole = evaluate(prior(), [values], LEVELS, seed=3)
    parts = evaluate(prior(), torch.split(values, 7), LEVELS, seed=3)
    assert whole.count == parts.count == 30
    for one, other in zip(whole.levels, parts.levels, strict=True):
        assert one.error.mean == pytest.approx(other.error.mean, rel=1e-5)
        assert one.error.error == pytest.approx(other.error.error, rel=1e-4)
    assert whole.bits is not None
    assert parts.bits is not None
    assert whole.bits.mean == pytest.approx(parts.bits.mean, rel=1e-5)
    reseeded = evaluate(prior(), [values], LEVELS, seed=4)
    assert reseeded.levels[0].error.mean != whole.levels[0].error.mean


def test_errors_are_near_the_expected_ones() -> None:
    found = evaluate(prior(), [images(2000, 1)], LEVELS, bits=False)
    assert found.bits is None
    for level, tau in zip(found.levels, LEVELS, strict=True):
        assert level.tau == tau
        assert level.sigma == pytest.approx(float(prior().noising.sigma(tau)))
        assert level.expected == pytest.approx(float(prior().expected_error(tau)))
        assert level.error.mean == pytest.approx(level.expected, rel=0.2)


def test_bits_are_those_of_the_prior() -> None:
    values = images(30, 1)
    found = evaluate(prior(), [values], ())
    assert found.levels == []
    assert found.bits is not None
    assert found.bits.mean == pytest.approx(float(prior().bits_per_dim(values).mean()), rel=1e-6)
    assert found.count == 30


def test_integers_are_needed() -> None:
    with pytest.raises(ValueError, match="prior must be one of integers"):
        evaluate(fit_prior(torch.randn(40, 2), order=2), [torch.zeros(3, 2)], LEVELS)
    with pytest.raises(ValueError, match=r"data must be in \[0, 255\], but row 0 holds 300"):
        evaluate(prior(), [torch.full((1, 1, 3, 3), 300)], LEVELS)


CLOCK = VariancePreserving()


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((2, 3), (1, 2, 3)), ((1, 2, 3), (1, 2, 3)), ((3, 2, 3), (3, 2, 3))],
)
def test_images_have_one_or_three_channels(shape: tuple[int, ...], expected: object) -> None:
    spec = TensorSpec(shape, CLOCK, Pixels())
    assert image_shape(spec) == expected
    x = torch.linspace(-1.2, 1.2, 4 * spec.dim).reshape(4, *shape)
    found = as_images(spec, x)
    assert found.dtype == torch.uint8
    assert found.shape == (4, *(expected if isinstance(expected, tuple) else ()))
    nearest = (127.5 * (x + 1)).round().clamp(0, 255).byte()
    assert torch.equal(found, nearest.reshape(found.shape))


def test_other_ranges_are_stretched() -> None:
    spec = TensorSpec((1, 1, 2), CLOCK, Pixels(0, 16))
    x = Pixels(0, 16).units(torch.tensor([[[[0.0, 16.0]]]]))
    assert as_images(spec, x).flatten().tolist() == [0, 255]


@pytest.mark.parametrize(
    ("shape", "pixels"), [((4,), Pixels()), ((2, 2, 2), Pixels()), ((1, 2, 2), None)]
)
def test_other_tensors_are_no_images(shape: tuple[int, ...], pixels: Pixels | None) -> None:
    spec = TensorSpec(shape, CLOCK, pixels)
    assert image_shape(spec) is None
    with pytest.raises(ValueError, match="spec must be that of images, 1 or 3 channels of pixels"):
        as_images(spec, torch.zeros(1, *shape))
    assert math.prod(shape) == spec.dim
