"""Clock times as features of a network: sines and cosines of many frequencies."""

from __future__ import annotations

import math

import torch
from torch import Tensor

LONGEST = 1e4
"""The ratio of the longest wave to the shortest."""

SCALE = 999.0
"""The phase of the fastest wave at τ = 1: as if τ counted a thousand steps."""


def waves_of_time(tau: Tensor, count: int) -> Tensor:
    """Return sines and cosines of 999τ/10⁴^{k/(m-1)} for k < m = ``count``/2: ``(n, 2m)``.

    >>> waves_of_time(torch.tensor([0.0]), 4)
    tensor([[0., 0., 1., 1.]])
    """
    half = count // 2
    exponents = torch.arange(half, dtype=torch.float32, device=tau.device) / max(1, half - 1)
    phase = SCALE * tau.float()[:, None] * torch.exp(-math.log(LONGEST) * exponents)
    return torch.cat((phase.sin(), phase.cos()), dim=1)
