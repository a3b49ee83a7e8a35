"""U-Nets by the size of images."""

from __future__ import annotations

import pytest
import torch

from oism.nn import DDPMpp, unet_for
from oism.nn._sizes import halvings

CASES = [
    ((3, 32, 32), 128, [1, 2, 2, 2], 4, [16]),
    ((3, 64, 48), 128, [1, 2, 2, 2], 4, [16]),
    ((1, 64, 64), 128, [1, 2, 2, 2], 4, [16]),
    ((3, 256, 256), 128, [1, 2, 2, 2], 4, []),
    ((1, 32, 32), 64, [1, 2, 2], 2, [16]),
    ((1, 28, 28), 64, [1, 2, 2], 2, [14]),
    ((3, 30, 30), 64, [1, 2], 2, [15]),
    ((1, 8, 8), 32, [1, 2], 1, [8]),
    ((1, 19, 21), 32, [1], 1, []),
]


@pytest.mark.parametrize(("shape", "width", "multipliers", "blocks", "attention"), CASES)
def test_a_size_for_every_shape(
    shape: tuple[int, ...],
    width: int,
    multipliers: list[int],
    blocks: int,
    attention: list[int],
) -> None:
    with torch.device("meta"):  # shapes only
        found = unet_for(shape, extra=2).to_config()
    assert found == {
        "shape": shape, "extra": 2, "width": width, "multipliers": tuple(multipliers),
        "blocks": blocks, "attention": tuple(attention), "dropout": 0.1,
    }  # fmt: skip


def test_large_images_have_the_reference() -> None:
    with torch.device("meta"):
        assert unet_for((3, 32, 32)).to_config() == DDPMpp().to_config()


def test_arguments_replace_the_defaults() -> None:
    net = unet_for(
        (1, 8, 8), width=6, multipliers=(1, 1, 1, 2), blocks=2, attention=(2,), dropout=0
    )
    x, tau = torch.randn(3, 1, 8, 8), torch.rand(3)
    assert net(x, tau).shape == x.shape
    assert net.to_config()["multipliers"] == (1, 1, 1, 2)
    assert (net.to_config()["attention"], net.to_config()["dropout"]) == ((2,), 0)
    assert unet_for((1, 8, 8), attention=()).to_config()["attention"] == ()


def test_halvings() -> None:
    assert [halvings(sides) for sides in ((7, 8), (12, 8), (32, 32), (1, 1))] == [0, 2, 5, 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shape": (8, 8)}, "shape must be channels, height and width"),
        ({"multipliers": (1,) * 5}, "multiples of 16 for 5 levels, got 8 × 8"),
        ({"multipliers": ()}, "multipliers must have at least one axis"),
        ({"attention": (16,)}, "attention must name rows of the levels, 8, 4, got 16"),
        ({"width": 7}, "width must be even, got 7"),
        ({"dropout": float("nan")}, "dropout must be a finite number"),
    ],
)
def test_mistakes(arguments: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        unet_for(**{"shape": (1, 8, 8), **arguments})  # type: ignore[arg-type]
