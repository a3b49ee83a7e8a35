"""A U-Net of 59 million parameters, as diffusion models of CIFAR-10 are: priors are timed by it.

128 channels, multipliers 1, 2, 2, 2, four residual blocks a level, attention at 16 by 16.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    """Normalise, convolve, add the embedded time, normalise, convolve; and a way around."""

    def __init__(self, inner: int, outer: int, time: int, *, attention: bool) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.GroupNorm(32, inner), nn.SiLU(), nn.Conv2d(inner, outer, 3, padding=1)
        )
        self.time = nn.Linear(time, outer)
        self.second = nn.Sequential(
            nn.GroupNorm(32, outer),
            nn.SiLU(),
            nn.Dropout(0.1),
            nn.Conv2d(outer, outer, 3, padding=1),
        )
        self.around = nn.Conv2d(inner, outer, 1) if inner != outer else nn.Identity()
        self.attention = Attention(outer) if attention else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """Return the features after the block."""
        inner = self.first(x) + self.time(time)[:, :, None, None]
        result: Tensor = self.attention(self.around(x) + self.second(inner))
        return result


class Attention(nn.Module):
    """Every position looks at every other."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm, self.inner = nn.GroupNorm(32, channels), nn.Conv2d(channels, 3 * channels, 1)
        self.outer = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the features after attention."""
        query, key, value = self.inner(self.norm(x)).flatten(2).mT.chunk(3, dim=2)
        found = functional.scaled_dot_product_attention(query, key, value)
        result: Tensor = x + self.outer(found.mT.reshape(x.shape))
        return result


class UNet(nn.Module):
    """A noise predictor for images ``(n, 3, 32, 32)``."""

    def __init__(self, channels: int = 128, blocks: int = 4) -> None:
        super().__init__()
        time, widths = 4 * channels, [channels, 2 * channels, 2 * channels, 2 * channels]
        self.embed = nn.Sequential(nn.Linear(channels, time), nn.SiLU(), nn.Linear(time, time))
        self.channels, self.enter = channels, nn.Conv2d(3, channels, 3, padding=1)
        self.down, self.up, kept, now = nn.ModuleList(), nn.ModuleList(), [channels], channels
        for level, width in enumerate(widths):
            for _ in range(blocks):
                self.down.append(Block(now, width, time, attention=level == 1))
                now = width
                kept.append(now)
            if level < 3:
                self.down.append(nn.Conv2d(now, now, 3, stride=2, padding=1))
                kept.append(now)
        self.middle = Block(now, now, time, attention=True)
        self.after = Block(now, now, time, attention=False)
        for level, width in reversed(list(enumerate(widths))):
            for _ in range(blocks + 1):
                self.up.append(Block(now + kept.pop(), width, time, attention=level == 1))
                now = width
            if level:
                self.up.append(nn.Conv2d(now, now, 3, padding=1))
        self.leave = nn.Sequential(
            nn.GroupNorm(32, now), nn.SiLU(), nn.Conv2d(now, 3, 3, padding=1)
        )

    def forward(self, x: Tensor, tau: Tensor) -> Tensor:
        """Return the predicted noise."""
        rates = torch.exp(
            -math.log(1e4) * torch.arange(self.channels // 2, device=x.device) / self.channels * 2
        )
        phase = 1000 * tau[:, None] * rates
        time = functional.silu(self.embed(torch.cat((phase.sin(), phase.cos()), dim=1)))
        now = self.enter(x)
        kept = [now]
        for part in self.down:
            now = part(now, time) if isinstance(part, Block) else part(now)
            kept.append(now)
        now = self.after(self.middle(now, time), time)
        for part in self.up:
            if isinstance(part, Block):
                now = part(torch.cat((now, kept.pop()), dim=1), time)
            else:
                now = part(functional.interpolate(now, scale_factor=2.0))
        result: Tensor = self.leave(now)
        return result
