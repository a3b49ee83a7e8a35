"""The Hermite prior: one polynomial for each coordinate, in any frame.

Coordinates are independent in this model, so the probability flow moves each of them separately. In
the standardised coordinate u = (z - m_t)/s_t only the polynomial moves them,

    du/dt = -f'(u)/s_t²    (from dz/dt = -z - ∇log ρ_t and ds_t/dt = 1/s_t - s_t),

because the Gaussian part cancels exactly: with order two nothing moves, and densities are those of
the Gaussian. The equation is solved in the logarithm of t, where it is not stiff however small a
variance is, by Runge-Kutta steps of order four; its divergence has a closed form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from oism._core.draws import normal
from oism.basis import Frame
from oism.flow import (
    Divergence,
    OrdinaryMethod,
    Pixels,
    RungeKutta4,
    State,
    TensorSpec,
)
from oism.images._framed import FramedPrior
from oism.process import Clock
from oism.score import Coordinates, Curve, HermiteScore
from oism.storage import storable

COEFFICIENTS = 2**24
"""The number of coefficients that are looked up at a time where every row has its own time."""

STEPS = 64
"""The number of steps from data to noise."""

ENTRIES = 2**22
"""The number of coordinates that are moved at a time."""


@storable
class HermitePrior(FramedPrior):
    """Polynomials of one coordinate each.

    ``lines`` is their score on coordinates ``(n, k)``; its clock is that of the tables.
    """

    def __init__(
        self,
        spec: TensorSpec,
        error: Curve,
        frame: Frame,
        mean: Tensor,
        rest: float | None,
        lines: HermiteScore,
    ) -> None:
        super().__init__(spec, lines.clock, error, frame, mean, rest)
        if lines.basis.dim != self.count:
            raise ValueError(
                f"lines must be those of the {self.count} coordinates of the frame, got "
                f"{lines.basis.dim}"
            )
        self.lines = lines

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        config = {**super().to_config(), "lines": self.lines}
        del config["table_clock"]
        return config

    def _set_table_clock(self, clock: Clock) -> None:
        super()._set_table_clock(clock)
        self.lines._clock = clock

    @property
    def order(self) -> int:
        """The largest degree of the polynomials."""
        return self.lines.basis.order

    def facts(self) -> dict[str, Any]:
        """Return kind, shape, frame, order and clock."""
        return {
            "kind": "Hermite polynomials",
            "shape": list(self.shape),
            "frame": self.frame_name,
            "order": self.order,
            "clock": repr(self.clock),
        }

    def _line_score(self, z: Tensor, t: Tensor) -> Tensor:
        return self._on_lines(self.lines._score, z, t)

    def _line_divergence(self, z: Tensor, t: Tensor) -> Tensor:
        return self._on_lines(self.lines._divergence, z, t)

    def _on_lines(
        self, part: Callable[[Tensor, Tensor, Tensor], Tensor], z: Tensor, t: Tensor
    ) -> Tensor:
        """Apply a part of the score to checked coordinates, a bounded number of rows at a time."""
        curve, clock = self.lines.curve, self.lines.clock
        if t.ndim == 0:
            return part(z, t, curve(clock._inverse(t)).to(z))
        step = max(1, COEFFICIENTS // max(1, curve.values[0].numel()))
        pieces = [
            part(own, times, curve(clock._inverse(times)).to(z))
            for own, times in zip(torch.split(z, step), torch.split(t, step), strict=True)
        ]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    @property
    def is_gaussian(self) -> bool:
        """Whether no polynomial has a degree above two."""
        return not self.lines.curve.values.numel()

    def _start(self) -> tuple[Tensor, Tensor]:
        """Return m and s of clean coordinates."""
        return self._coordinates().at(self.lines.scale.new_zeros(()))

    def _line_moments(self) -> tuple[Tensor, Tensor]:
        shift, scale = self._start()
        return shift, scale.square()

    def _coordinates(self) -> Coordinates:
        return Coordinates(self.process, self.lines.shift, self.lines.scale)

    def _line_log_density(self, z: Tensor) -> Tensor:
        shift, scale = self._start()
        u = (z - shift.to(z)) / scale.to(z)
        volume = scale.log().sum() + 0.5 * z.shape[1] * math.log(2 * math.pi)
        result = z.new_empty(len(z))
        for rows in self._pieces(len(z)):
            last, change = self._carry(u[rows], (0.0, self.lines.clock.horizon))
            result[rows] = change - 0.5 * last.square().sum(dim=1) - float(volume)
        return result

    def _dequantised_log_density(
        self,
        x: Tensor,
        pixels: Pixels,
        generator: torch.Generator | None,
        *,
        method: OrdinaryMethod | None,
        divergence: Divergence | None,
        progress: bool | None,
    ) -> Tensor:
        """Return log ρ at one draw of the dequantisation; for a Gaussian its exact expectation."""
        if not self.is_gaussian or method is not None or divergence is not None:
            return super()._dequantised_log_density(
                x, pixels, generator, method=method, divergence=divergence, progress=progress
            )
        _, scale = self._start()
        precision = float(scale.pow(-2).sum())
        if self.rest is not None:
            precision += self.beyond / self.rest
        return self._log_density(self._flat(x)) - 0.5 * precision * pixels.step**2 / 12

    def _line_sample(self, n: int, generator: torch.Generator | None) -> Tensor:
        shift, scale = self._start()
        size = (n, len(self.lines.scale))
        u = normal(size, generator, device=self.mean.device)
        for rows in self._pieces(n):
            u[rows] = self._carry(u[rows], (self.lines.clock.horizon, 0.0))[0]
        return shift.to(u) + scale.to(u) * u

    def _pieces(self, n: int) -> list[slice]:
        step = max(1, ENTRIES // len(self.lines.scale))
        return [slice(i, min(n, i + step)) for i in range(0, n, step)]

    def _carry(self, u: Tensor, ends: tuple[float, float]) -> tuple[Tensor, Tensor]:
        """Move standardised coordinates along the flow; return them and ∫∇·(du/dt) dt."""
        nothing = u.new_zeros(len(u))
        if self.is_gaussian:
            return u, nothing
        clock, coordinates, lines = self.lines.clock, self._coordinates(), self.lines

        def field(tau: Tensor, state: State) -> State:
            t, rate = clock._time(tau), clock._rate(tau)
            shift, scale = (part.to(u) for part in coordinates.at(t))
            z = shift + scale * state[0]
            first, second = lines.potential(z, t, lines.curve(tau).to(u), shift, scale)
            return -rate.to(u) * first / scale, -rate.to(u) * second.sum(dim=1)

        last, change = RungeKutta4(STEPS).solve(field, (u, nothing), ends)
        return last, change
