from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oism.flow import Pixels

RANGES = [Pixels(), Pixels(0, 1), Pixels(1, 16), Pixels(-7, 8), Pixels(0, 65535)]
ranges = pytest.mark.parametrize("pixels", RANGES, ids=lambda p: f"{p.low} to {p.high}")


@ranges
def test_units_run_from_minus_one_to_one(pixels: Pixels) -> None:
    levels = torch.arange(pixels.low, pixels.high + 1)
    x = pixels.units(levels.double())
    expected = np.linspace(-1, 1, pixels.high - pixels.low + 1)
    np.testing.assert_allclose(x.numpy(), expected, rtol=0, atol=1e-12)
    assert pixels.step == pytest.approx(float(expected[1] - expected[0]))
    assert pixels.units(levels).dtype == torch.float32, "integers become floats"


@ranges
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_are_the_way_back(pixels: Pixels, dtype: torch.dtype) -> None:
    levels = torch.arange(pixels.low, pixels.high + 1)
    back = pixels.values(pixels.units(levels.to(dtype)))
    assert torch.equal(back.long(), levels)
    small = pixels.low >= 0 and pixels.high <= 255
    assert back.dtype == (torch.uint8 if small else torch.int64)
    ends = torch.tensor([-9.0, 9.0], dtype=dtype)
    assert pixels.values(ends).tolist() == [pixels.low, pixels.high], "beyond the range"


@given(low=st.integers(-500, 500), span=st.integers(1, 600), seed=st.integers(0, 50))
def test_offsets_begin_at_zero(low: int, span: int, seed: int) -> None:
    pixels = Pixels(low, low + span)
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(low, low + span + 1, (4, 3), generator=generator)
    for given_as in (values, values.double(), values.float(), values.int()):
        offsets = pixels.offsets(given_as)
        assert torch.equal(offsets.long(), values - low)
        assert offsets.dtype == (torch.uint8 if span < 256 else torch.float64)


def test_offsets_of_bytes_are_the_bytes() -> None:
    values = torch.arange(256).byte().reshape(-1, 2)
    assert torch.equal(Pixels().offsets(values), values)
    # Bounds that a byte cannot hold are not to wrap around.
    assert torch.equal(Pixels(0, 300).offsets(values), values.double())
    assert torch.equal(Pixels(-9, 300).offsets(values), values.double() + 9)
    with pytest.raises(ValueError, match=r"data must be in \[-9, 200\], but row 100 holds 201"):
        Pixels(-9, 200).offsets(values)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (16.0, "data must be in [0, 15], but row 1 holds 16"),
        (-1.0, "data must be in [0, 15], but row 1 holds -1"),
        (math.nan, "data must be in [0, 15], but row 1 holds nan"),
        (math.inf, "data must be in [0, 15], but row 1 holds inf"),
        (2.5, "data must be whole numbers, but row 1 holds 2.5"),
    ],
)
def test_what_is_no_level_is_refused(value: float, message: str) -> None:
    values = torch.tensor([[1.0, 2.0], [3.0, value], [0.5, value]])
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Pixels(0, 15).offsets(values)
    later = message.replace("row 1", "row 8").replace("data", "values")
    with pytest.raises(ValueError, match=f"^{re.escape(later)}$"):
        Pixels(0, 15).check(values, "values", first=7)


def test_dequantised_values_fill_their_step(generator: torch.Generator) -> None:
    pixels = Pixels(0, 15)
    x = pixels.units(torch.arange(16.0, dtype=torch.float64).repeat(20_000, 1))
    y = pixels.dequantised(x, generator)
    noise = (y - x) / pixels.step
    assert y.dtype == x.dtype
    assert float(noise.min()) >= -0.5
    assert float(noise.max()) <= 0.5
    assert float(noise.mean()) == pytest.approx(0, abs=4 * math.sqrt(1 / 12 / noise.numel()))
    assert float(noise.square().mean()) == pytest.approx(1 / 12, rel=1e-2)
    again = pixels.dequantised(x, torch.Generator().manual_seed(0))
    assert torch.equal(y, again), "randomness is passed in"


def test_bad_ranges() -> None:
    for high in (3, 2):
        with pytest.raises(ValueError, match=f"high must exceed low = 3, got {high}"):
            Pixels(3, high)
    with pytest.raises(TypeError, match=r"low must be an integer >= -2147483648, got float 0\.5"):
        Pixels(0.5, 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="high must be an integer >= -2147483648, got bool True"):
        Pixels(0, True)
