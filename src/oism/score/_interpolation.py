"""Interpolation of coefficients between the times at which they were solved for.

`Curve` is a table of values at knots in clock time, interpolated linearly (order 2) or by a cubic
spline (order 4, twice continuously differentiable). SciPy computes the slopes of the spline once,
so evaluation needs only the two neighbouring knots and runs on any device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import scipy.interpolate
import torch
from torch import Tensor, nn

from oism._core.devices import has_float64
from oism._core.transforms import is_differentiated, on_host
from oism.storage import storable


class SpectralModule(nn.Module):
    """A module whose ``spectral`` buffers move between devices but stay float64.

    These are times, averages and coordinates: small tensors that need the precision. After
    ``Module.half`` neighbouring knots would be equal.
    """

    spectral: ClassVar[tuple[str, ...]] = ()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        exact = {name: getattr(self, name) for name in self.spectral}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, before in exact.items():
            now = getattr(self, name)
            if now is not None and now.dtype != before.dtype and has_float64(now.device):
                setattr(self, name, before.to(now.device))
        return self


@storable
class Curve(SpectralModule):
    """A function of clock time with values of any shape, from a table ``(K, *shape)``.

    ``knots`` ``(K,)`` increase. ``order``, 2 or 4, is that of the error in the distance of the
    knots. ``slopes`` are the derivatives at the knots for order 4, by default the spline's.
    """

    spectral = ("knots",)

    knots: Tensor
    values: Tensor
    slopes: Tensor | None

    def __init__(
        self, knots: Tensor, values: Tensor, *, order: int, slopes: Tensor | None = None
    ) -> None:
        super().__init__()
        if order not in (2, 4):
            raise ValueError(f"order must be 2 (linear) or 4 (cubic), got {order!r}")
        if len(knots) < 2 or not bool((knots.diff() > 0).all()):
            raise ValueError("knots must be at least two increasing times")
        if len(values) != len(knots):
            raise ValueError(f"values must be one per knot, {len(knots)}, got {len(values)}")
        if slopes is not None and (order != 4 or slopes.shape != values.shape):
            raise ValueError("slopes must have the shape of values, for a curve of order 4")
        if order == 4 and slopes is None:
            slopes = spline_slopes(knots, values)
        self.order = order
        self.register_buffer("knots", knots.double())
        self.register_buffer("values", values)
        self.register_buffer("slopes", slopes)

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        # The slopes too: computed again from rounded values they would differ.
        return {name: getattr(self, name) for name in ("knots", "values", "order", "slopes")}

    def forward(self, tau: Tensor) -> Tensor:
        """Return the value at clock times () or ``(n,)``: ``(*shape)`` or ``(n, *shape)``."""
        knots = self.knots
        if tau.ndim == 0 and on_host(knots) and on_host(tau) and not is_differentiated(tau):
            return self._at(float(tau))
        tau = tau.to(knots).clamp(knots[0], knots[-1])
        right = torch.searchsorted(knots, tau.detach(), right=True).clamp(1, len(knots) - 1)
        left = right - 1
        step = knots.take(right) - knots.take(left)
        place = (tau - knots.take(left)) / step
        shape = (*tau.shape, *[1] * (self.values.ndim - 1))
        place, step = (part.to(self.values).reshape(shape) for part in (place, step))
        low, high = _rows(self.values, left), _rows(self.values, right)
        if self.slopes is None:
            return torch.lerp(low, high, place)
        # Cubic Hermite interpolation; the weights are the same for all entries.
        inner = place * (1 - place)
        share = place.square() * (3 - 2 * place)
        value = torch.lerp(low, high, share)
        value = torch.addcmul(value, step * inner * (1 - place), _rows(self.slopes, left))
        return torch.addcmul(value, -step * inner * place, _rows(self.slopes, right))

    def _at(self, tau: float) -> Tensor:
        """Return the value at one time by the formula above, in a fifth of its time."""
        knots = self.knots.numpy()
        right = min(max(int(knots.searchsorted(tau, side="right")), 1), len(knots) - 1)
        left, step = right - 1, float(knots[right] - knots[right - 1])
        place = min(max((tau - float(knots[left])) / step, 0.0), 1.0)
        low, high = self.values[left], self.values[right]
        if self.slopes is None:
            return torch.lerp(low, high, place)
        inner = step * place * (1 - place)
        value = torch.lerp(low, high, place**2 * (3 - 2 * place))
        value = torch.add(value, self.slopes[left], alpha=inner * (1 - place))
        return torch.add(value, self.slopes[right], alpha=-inner * place)


def _rows(table: Tensor, index: Tensor) -> Tensor:
    """Return rows of a table; plain indexing by one number would synchronise with a GPU."""
    return table.index_select(0, index.reshape(-1)).reshape((*index.shape, *table.shape[1:]))


def spline_slopes(knots: Tensor, values: Tensor) -> Tensor:
    """Return the slopes at the knots of the not-a-knot cubic spline."""
    spline = scipy.interpolate.CubicSpline(
        knots.double().cpu().numpy(), values.double().cpu().numpy()
    )
    return torch.from_numpy(spline(knots.double().cpu().numpy(), 1)).to(values)
