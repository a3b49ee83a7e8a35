"""DDPM++: the U-Net of Song et al. (2021) for variance preserving noise in continuous time.

Features of the noised image pass down through levels of coarser and coarser resolution and up
again; on the way up each block also gets the features of the same level on the way down. Every
block is a residual block in the manner of BigGAN,

    h = conv(silu(norm(x))) + linear(silu(time)),    x' = (x + conv(dropout(silu(norm(h)))))/√2,

which halves or doubles the resolution where a level ends, on both branches. At chosen resolutions
every position also attends to every other. The sums are divided by √2 so that the variance of
features stays the same; the last convolution of a block starts at zero, and so does that of the
network, whose first predictions are zero.

At the lowest noise levels the noise is a thousandth of the image: less than the 8 bits of bfloat16,
or the 11 of TF32, resolve. The first convolution therefore gets the image in two parts, its
rounding to bfloat16 and the remainder, and is computed in full precision, as is the last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from oism._core import checks
from oism._core.transforms import one_per_row
from oism.nn._embedding import waves_of_time
from oism.storage import storable

SHRUNK = 1 / math.sqrt(2)

Layer = TypeVar("Layer", nn.Conv2d, nn.Linear)


class Norm(nn.GroupNorm):
    """Group normalisation that keeps channels last where it is compiled.

    Both implementations of PyTorch transpose to channels first and back on a device. Sums over
    positions come before sums over the channels of a group: neighbours in memory are added.
    """

    def __init__(self, channels: int) -> None:
        groups = min(max(1, channels // 4), 32)
        while channels % groups:
            groups -= 1
        super().__init__(groups, channels, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        """Return x with mean zero and variance one in each group, scaled and shifted."""
        return self.by_sums(x) if torch.compiler.is_compiling() else super().forward(x)

    def by_sums(self, x: Tensor) -> Tensor:
        """Return the same from the first two power sums, in float32 or float64."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        grouped = (len(x), self.num_groups, -1)
        mean, square = (
            part.mean(dim=(2, 3)).reshape(grouped).mean(dim=2, keepdim=True)
            for part in (wide, wide.square())
        )
        slope = torch.rsqrt((square - mean.square()).clamp(min=0) + self.eps)
        own = self.weight.reshape(1, self.num_groups, -1) * slope
        shift = self.bias.reshape(1, self.num_groups, -1) - mean * own
        size = (*x.shape[:2], 1, 1)
        found = wide * own.reshape(size) + shift.reshape(size)
        return found if self.weight.dtype == torch.float32 else found.to(self.weight.dtype)


def compute_dtype(weight: Tensor) -> torch.dtype:
    """Return the dtype in which layers compute: that of autocast, or of their weights."""
    kind = weight.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype


def _initialised(layer: Layer) -> Layer:
    """Return a layer that keeps variances in both directions (Glorot's uniform weights, no bias).

    PyTorch's default weights have a third of that variance: over the forty blocks of a large
    network features would vanish.
    """
    nn.init.xavier_uniform_(layer.weight)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer


def _conv(inner: int, outer: int, size: int = 3) -> nn.Conv2d:
    return _initialised(nn.Conv2d(inner, outer, size, padding=size // 2))


def _zero_conv(inner: int, outer: int, size: int = 3) -> nn.Conv2d:
    """Return a convolution with weights of zero."""
    layer = _conv(inner, outer, size)
    nn.init.zeros_(layer.weight)
    return layer


class Attention(nn.Module):
    """Self-attention over positions with one head; a residual branch."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = Norm(channels)
        self.inner = _conv(channels, 3 * channels, 1)
        self.outer = _zero_conv(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return features of the shape of ``x``."""
        projected = self.inner(self.norm(x)).flatten(2).mT
        query, key, value = projected[:, None].chunk(3, dim=3)
        found = functional.scaled_dot_product_attention(query, key, value)[:, 0]
        result: Tensor = (x + self.outer(found.mT.reshape(x.shape))) * SHRUNK
        return result


class Block(nn.Module):
    """A residual block; ``resize`` is ½, 1 or 2, and ``attention`` may follow it."""

    compiles_alone = True

    def __init__(
        self,
        inner: int,
        outer: int,
        time: int,
        *,
        dropout: float,
        resize: float = 1,
        attention: bool = False,
    ) -> None:
        super().__init__()
        self.resize = resize
        self.norm = Norm(inner)
        self.conv = _conv(inner, outer)
        self.time = _initialised(nn.Linear(time, outer))
        self.second_norm = Norm(outer)
        self.dropout = nn.Dropout(dropout)
        self.second_conv = _zero_conv(outer, outer)
        changes = inner != outer or resize != 1
        self.around = _conv(inner, outer, 1) if changes else nn.Identity()
        self.attention = Attention(outer) if attention else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """Return the features after the block; ``time`` are the activated features of τ."""
        h = self._resized(functional.silu(self.norm(x)))
        h = self.conv(h) + self.time(time)[:, :, None, None]
        h = self.second_conv(self.dropout(functional.silu(self.second_norm(h))))
        result: Tensor = self.attention((self.around(self._resized(x)) + h) * SHRUNK)
        return result

    def _resized(self, x: Tensor) -> Tensor:
        if self.resize == 1:
            return x
        if self.resize < 1:
            return functional.avg_pool2d(x, 2)
        return functional.interpolate(x, scale_factor=2.0, mode="nearest")


@storable
class DDPMpp(nn.Module):
    """A noise predictor for images ``(n, channels, height, width)``.

    The defaults are those of the reference for CIFAR-10: 62 million parameters.

    Parameters
    ----------
    shape
        Channels, height and width of an image; the sides must be halvable once per level.
    extra
        The number of further channels of the input, as `OperatorInformed` needs.
    width
        The number of features at full resolution, even.
    multipliers
        The widths of the levels, as multiples of it.
    blocks
        The number of residual blocks of a level on the way down; one more on the way up.
    attention
        The resolutions, by height, at which positions attend to each other; those of no level are
        ignored.
    dropout
        The share of features that is dropped in every block, in [0, 1).
    classes
        The number of classes of a network that takes labels. Each class, and "no class", has a
        vector that is added to the features of τ.

    Examples
    --------
    >>> net = DDPMpp((1, 8, 8), width=16, multipliers=(1, 2), blocks=1, attention=(4,))
    >>> net(torch.randn(5, 1, 8, 8), torch.rand(5)).shape
    torch.Size([5, 1, 8, 8])
    """

    stores_state = True

    def __init__(  # noqa: C901, PLR0913 (the settings of an architecture, by name)
        self,
        shape: Sequence[int] = (3, 32, 32),
        *,
        extra: int = 0,
        width: int = 128,
        multipliers: Sequence[int] = (1, 2, 2, 2),
        blocks: int = 4,
        attention: Sequence[int] = (16,),
        dropout: float = 0.1,
        classes: int | None = None,
    ) -> None:
        super().__init__()
        multipliers = checks.shape(multipliers, "multipliers", minimum=1)
        self.shape = _image_shape(shape, len(multipliers))
        self.extra = checks.integer(extra, "extra", minimum=0)
        self.width = width = checks.integer(width, "width", minimum=4)
        if width % 2:  # half of the waves of time are sines
            raise ValueError(f"width must be even, got {width}")
        blocks = checks.integer(blocks, "blocks", minimum=1)
        dropout = checks.number(dropout, "dropout")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {dropout!r}")
        attended = sorted({checks.integer(a, "attention", minimum=1) for a in attention})
        self._config: dict[str, Any] = {
            "shape": self.shape, "extra": self.extra, "width": width, "blocks": blocks,
            "multipliers": multipliers, "attention": tuple(attended), "dropout": dropout,
        }  # fmt: skip
        self.classes, self.label = classes, None
        height, widths = self.shape[1], [width * multiplier for multiplier in multipliers]
        time = 4 * width
        first, second = _initialised(nn.Linear(width, time)), _initialised(nn.Linear(time, time))
        self.embed = nn.Sequential(first, nn.SiLU(), second)
        self.down, self.up, kept, now = nn.ModuleList(), nn.ModuleList(), [width], width

        def block(inner: int, outer: int, **options: float | bool) -> Block:
            return Block(inner, outer, time, dropout=dropout, **options)  # type: ignore[arg-type]

        for level, wide in enumerate(widths):
            for _ in range(blocks):
                self.down.append(block(now, wide, attention=height >> level in attended))
                now = wide
                kept.append(now)
            if level < len(widths) - 1:
                self.down.append(block(now, now, resize=0.5))
                kept.append(now)
        self.middle = block(now, now, attention=True)
        self.after = block(now, now)
        self.joins: list[bool] = []
        for level, wide in reversed(list(enumerate(widths))):
            for left in reversed(range(blocks + 1)):
                attends = left == 0 and height >> level in attended
                self.up.append(block(now + kept.pop(), wide, attention=attends))
                self.joins.append(True)
                now = wide
            if level:
                self.up.append(block(now, now, resize=2))
                self.joins.append(False)
        self.leave_norm = Norm(now)
        self.leave = _zero_conv(now, self.shape[0])
        self.enter = _widened(_conv(self.shape[0], width), extra)
        # Last, so that networks with and without classes start with the same other weights.
        if classes is not None:
            self._config["classes"] = checks.integer(classes, "classes", minimum=1)
            self.label = nn.Embedding(classes + 1, time)
        # Channels last is fastest for convolutions; torch's types lack the argument.
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return dict(self._config)

    def forward(self, x: Tensor, tau: Tensor, labels: Tensor | None = None) -> Tensor:
        """Return the predicted noise for clock times ``(n,)``, in the dtype of ``x``.

        It is computed in that of the weights; under autocast it is returned in that, too.
        ``labels`` ``(n,)`` are those of a network with classes, by default "no class" for all rows.
        """
        self._check(x)
        kind = self.enter.weight.dtype
        waves = waves_of_time(one_per_row(tau, x), self.width).to(kind)
        with torch.autocast(x.device.type, enabled=False):
            time = functional.silu(self._labelled(self.embed(waves), labels))
        now = self._entered(x)
        kept = [now]
        for part in self.down:
            now = part(now, time)
            kept.append(now)
        now = self.after(self.middle(now, time), time)
        for part, joins in zip(self.up, self.joins, strict=True):
            now = part(torch.cat((now, kept.pop()), dim=1) if joins else now, time)
        with torch.autocast(x.device.type, enabled=False):
            result: Tensor = self.leave(functional.silu(self.leave_norm(now.to(kind))))
        return result if torch.is_autocast_enabled(x.device.type) else result.to(x.dtype)

    def _labelled(self, time: Tensor, labels: Tensor | None) -> Tensor:
        """Return the features of τ with those of the class added."""
        if self.label is None:
            if labels is not None:
                raise ValueError(
                    "labels must not be given to a network without classes: DDPMpp(..., classes=N)"
                )
            return time
        if labels is None:
            return time + self.label.weight[-1]
        embedded: Tensor = self.label(labels)
        return time + embedded

    def _entered(self, x: Tensor) -> Tensor:
        weight, bias = self.enter.weight, self.enter.bias
        assert bias is not None
        kind, wide = compute_dtype(weight), torch.promote_types(weight.dtype, torch.float32)
        x = x.to(wide)
        coarse = x.bfloat16().to(wide)
        with torch.autocast(x.device.type, enabled=False):
            weight, bias = weight.to(wide).repeat(1, 2, 1, 1), bias.to(wide)
            parts = torch.cat((coarse, x - coarse), dim=1)
            parts = parts.contiguous(memory_format=torch.channels_last)
            found = functional.conv2d(parts, weight, bias, padding=1)
        return found.to(kind)

    def _check(self, x: Tensor) -> None:
        channels, height, width = self.shape
        wanted = (channels + self.extra, height, width)
        if tuple(x.shape[1:]) != wanted:
            raise ValueError(
                f"x must be images (n, {', '.join(map(str, wanted))}) for this network, got "
                f"{tuple(x.shape)}"
            )


def compile_blocks(module: nn.Module) -> None:
    """Compile the blocks that repeat in a module: much faster than to compile the whole."""
    # Every width and resolution is a variant of the same code.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 64)
    for part in module.modules():
        if getattr(part, "compiles_alone", False):
            part.compile()


def _widened(layer: nn.Conv2d, extra: int) -> nn.Conv2d:
    """Return a layer with further channels of the input, whose weights are zero.

    Networks with and without such channels then start with the same weights.
    """
    if extra:
        weight = layer.weight.detach()
        more = weight.new_zeros(len(weight), extra, *weight.shape[2:])
        layer.weight = nn.Parameter(torch.cat((weight, more), dim=1))
        layer.in_channels += extra
    return layer


def _image_shape(shape: Sequence[int], levels: int) -> tuple[int, int, int]:
    """Return a shape that can be halved between all levels."""
    found = checks.shape(shape, minimum=1)
    if len(found) != 3:
        raise ValueError(f"shape must be channels, height and width, got {found}")
    factor = 2 ** (levels - 1)
    if found[1] % factor or found[2] % factor:
        raise ValueError(
            f"shape must have sides that are multiples of {factor} for {levels} levels, got "
            f"{found[1]} × {found[2]}"
        )
    return found[0], found[1], found[2]
