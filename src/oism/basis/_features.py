"""Any smooth functions under any process: a callable, differentiated automatically.

P_t does not map their span to itself, so averages at a later time do not follow from those of the
data: ``oism.estimation.fit_simulated`` computes them by quadrature or from simulated transitions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, jvp

from oism._core import checks
from oism.basis._base import Functions
from oism.process import Process
from oism.storage import External, storable


@storable
@dataclass(frozen=True, eq=False)
class Features(Functions):
    """``count`` functions of points ``(n, dim)``: ``function`` returns ``(n, count)``, row by row.

    It must be differentiable twice in forward mode (`torch.func.jvp`), without in-place writes. On
    a manifold it is any extension to the space around it. A file holds a registered class
    (`oism.storage.storable`) or module; other callables have to be given again on loading:
    ``load(path, given={"function": f})``.

    >>> from oism import OrnsteinUhlenbeck
    >>> powers = Features(lambda x: torch.cat((x, x**2), dim=1), OrnsteinUhlenbeck(), 1, 2)
    >>> powers.generated(torch.tensor([[3.0]]))  # -x and 2 - 2x²
    tensor([[ -3., -16.]])
    """

    function: Callable[[Tensor], Tensor]
    process: Process
    dim: int
    count: int

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(f"function must be a function of points, got {self.function!r}")
        checks.instance(self.process, Process, "process")
        checks.assign(self, dim=checks.integer(self.dim, "dim", minimum=1))
        checks.assign(self, count=checks.integer(self.count, "count", minimum=1))

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            "function": External(self.function),
            "process": self.process,
            "dim": self.dim,
            "count": self.count,
        }

    @property
    def size(self) -> int:
        """The number of functions."""
        return self.count

    def _table(self, x: Tensor) -> Tensor:
        """Return the points: other functions than the values are derivatives at them."""
        return x

    def _values(self, table: Tensor) -> Tensor:
        values: object = self.function(table)
        if not isinstance(values, Tensor) or values.shape != (len(table), self.count):
            got = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise ValueError(
                f"function must map points {tuple(table.shape)} to a tensor of shape "
                f"({len(table)}, {self.count}), got {got}"
            )
        return values

    def _along(self, table: Tensor, axis: int) -> Tensor:
        direction = torch.zeros_like(table)
        direction[:, axis] = 1.0
        derivative: Tensor = jvp(self._values, (table,), (direction,))[1]
        return derivative

    def _gradients(self, table: Tensor) -> Tensor:
        return torch.stack([self._along(table, axis) for axis in range(self.dim)], dim=-1)

    def _laplacians(self, table: Tensor) -> Tensor:
        total = torch.zeros_like(self._values(table))
        for axis in range(self.dim):
            direction = torch.zeros_like(table)
            direction[:, axis] = 1.0

            def slope(x: Tensor, axis: int = axis) -> Tensor:
                return self._along(x, axis)

            total = total + jvp(slope, (table,), (direction,))[1]
        return total

    def _series(self, x: Tensor, alpha: Tensor, derivative: int) -> Tensor:
        if derivative == 0:
            return super()._series(x, alpha, derivative)
        # One backward pass for the sum, instead of the derivatives of every function.
        slope = grad(lambda y: (self._values(y) * alpha).sum())
        if derivative == 1:
            gradient: Tensor = slope(x)
            return gradient
        total = torch.zeros_like(x[:, 0])
        for axis in range(self.dim):
            direction = torch.zeros_like(x)
            direction[:, axis] = 1.0
            total = total + jvp(slope, (x,), (direction,))[1][:, axis]
        return total
