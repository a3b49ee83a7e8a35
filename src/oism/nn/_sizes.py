"""The size of a U-Net by the number of entries of an image.

                          width  levels   blocks  parameters
    from 3 × 32 × 32 on   128    1 2 2 2  4       62 million, the reference for CIFAR-10
    from 20 × 20 on       64     1 2 2    2       7 million for 28 × 28
    below                 32     1 2      1       0.7 million for 8 × 8

There are at most as many levels as the sides can be halved, and the finest one of at most 16 rows
has attention, as that of 16 × 16 in the reference.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from oism._core import checks
from oism.nn._ddpmpp import DDPMpp

ATTENDED = 16
"""The most rows of a level whose positions attend to each other."""

DROPOUT = 0.1


@dataclass(frozen=True)
class Size:
    """The width of a U-Net, the widths of its levels as multiples of it, and blocks of each."""

    width: int
    multipliers: tuple[int, ...]
    blocks: int


SIZES = {
    3072: Size(128, (1, 2, 2, 2), 4),
    400: Size(64, (1, 2, 2), 2),
    0: Size(32, (1, 2), 1),
}
"""By the smallest number of entries, in descending order."""


def unet_for(  # noqa: PLR0913 (the arguments of the network)
    shape: Sequence[int],
    *,
    extra: int = 0,
    width: int | None = None,
    multipliers: Sequence[int] | None = None,
    blocks: int | None = None,
    attention: Sequence[int] | None = None,
    dropout: float | None = None,
    classes: int | None = None,
) -> DDPMpp:
    """Return a `DDPMpp` for images of a shape; arguments that are given replace the defaults.

    ``extra`` is the number of channels beside those of the image, as many as these for an
    `OperatorInformed` with ``condition``; ``classes`` that of the classes of a network that takes
    labels.

    >>> [unet_for(shape).to_config()["multipliers"] for shape in ((1, 28, 28), (3, 30, 30))]
    [(1, 2, 2), (1, 2)]
    >>> unet_for((1, 8, 8), width=16).to_config()["attention"]
    (8,)
    """
    shape = checks.shape(shape, minimum=1)
    if len(shape) != 3:
        raise ValueError(f"shape must be channels, height and width, got {shape}")
    size = next(size for least, size in SIZES.items() if math.prod(shape) >= least)
    if multipliers is None:
        multipliers = size.multipliers[: 1 + halvings(shape[1:])]
    rows = [shape[1] >> level for level in range(len(multipliers))]
    if attention is None:
        attention = [height for height in rows if height <= ATTENDED][:1]
    for height in attention:
        if height not in rows:
            known = ", ".join(map(str, rows))
            raise ValueError(f"attention must name rows of the levels, {known}, got {height!r}")
    return DDPMpp(
        shape,
        extra=extra,
        width=size.width if width is None else width,
        multipliers=multipliers,
        blocks=size.blocks if blocks is None else blocks,
        attention=attention,
        dropout=DROPOUT if dropout is None else dropout,
        classes=classes,
    )


def halvings(sides: Sequence[int]) -> int:
    """Return how often all of several sides can be halved.

    >>> halvings((28, 12))
    2
    """
    return next(k for k in itertools.count() if any(side % 2 ** (k + 1) for side in sides))
