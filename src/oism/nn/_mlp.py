"""A residual network of fully connected layers, for points and angles."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from oism._core import checks
from oism._core.transforms import one_per_row
from oism.storage import storable

TIME_WAVES = 8


def waves(x: Tensor, count: int) -> Tensor:
    """Return cos kx and sin kx for k = 1, …, count and every column: ``(n, 2 · count · d)``."""
    multiples = torch.arange(1, count + 1, dtype=x.dtype, device=x.device)
    phase = (x[:, None] * multiples[:, None]).flatten(1)
    return torch.cat((phase.cos(), phase.sin()), dim=1)


@storable
class MLP(nn.Module):
    """ε̂(x, τ) for vectors ``(n, dim)``.

    Parameters
    ----------
    dim
        The number of entries of a vector.
    extra
        The number of further entries of the input, as `OperatorInformed` needs.
    width, depth
        The size of the hidden layers, and how many there are beside the first.
    angular
        The number of waves that encode each angle of a point on the torus; 0 for points of ℝ^d,
        which are not encoded.
    horizon
        The last clock time.

    Examples
    --------
    >>> MLP(2)(torch.zeros(5, 2), torch.rand(5)).shape
    torch.Size([5, 2])
    """

    stores_state = True

    def __init__(
        self,
        dim: int,
        *,
        extra: int = 0,
        width: int = 128,
        depth: int = 3,
        angular: int = 0,
        horizon: float = 1.0,
    ) -> None:
        super().__init__()
        dim = checks.integer(dim, "dim", minimum=1)
        width = checks.integer(width, "width", minimum=1)
        depth = checks.integer(depth, "depth", minimum=0)
        self.shape = (dim,)
        self.extra = checks.integer(extra, "extra", minimum=0)
        self.angular = checks.integer(angular, "angular", minimum=0)
        self.horizon = checks.positive(horizon, "horizon")
        self._config: dict[str, Any] = {
            "dim": dim, "extra": self.extra, "width": width, "depth": depth,
            "angular": self.angular, "horizon": self.horizon,
        }  # fmt: skip
        entries = (2 * angular * dim if angular else dim) + extra
        self.first = nn.Linear(entries + 2 * TIME_WAVES + 1, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.last = nn.Linear(width, dim)

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return dict(self._config)

    def forward(self, x: Tensor, tau: Tensor) -> Tensor:
        """Return ε̂ at points ``(n, dim + extra)`` and clock times ``(n,)``, in the weights' dtype.

        The times are one per row, or one number.
        """
        dim, wanted = self.shape[0], self.shape[0] + self.extra
        if x.ndim != 2 or x.shape[1] != wanted:
            raise ValueError(f"x must be vectors (n, {wanted}), got {tuple(x.shape)}")
        share = (one_per_row(tau, x) / self.horizon)[:, None]
        x, share = x.to(self.first.weight.dtype), share.to(self.first.weight)
        own, more = x[:, :dim], x[:, dim:]
        own = waves(own, self.angular) if self.angular else own
        parts = (own, more, share, waves(math.pi * share, TIME_WAVES))
        h = self.first(torch.cat(parts, dim=1))
        for layer in self.layers:
            h = h + functional.silu(layer(functional.silu(h)))
        result: Tensor = self.last(h)
        return result
