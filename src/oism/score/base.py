"""The fitted object: the scores of all noise levels, a torch module.

`OperatorScore` holds coefficients α(t) on a table of clock times and evaluates the estimate of
∇ log ρ_t, its divergence and log(ρ_t/π) anywhere, at one time or one time per row. Everything it
knows is in its buffers, so ``.to``, ``state_dict`` and ``torch.compile`` work as for any module;
gradients flow to the points and the times.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from oism import checks
from oism.basis import Functions
from oism.clock import Clock
from oism.score.interpolation import Curve, SpectralModule
from oism.solve import Schedule, System

ROWS = 2**22
"""The number of table entries that are evaluated at a time, outside of torch.compile."""


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """What happened in a fit, at the times of choice: tensors ``(K,)`` or ``(K, *batch)``.

    ``loss`` is the cross-validated score-matching loss (NaN without cross-validation), up to the
    constant E‖∇ log ρ_t/π‖². ``level`` is the truncation, 0 for none (torus: the cutoff is
    r·2^{-level/2}; Hermite: the order is lowered by it). ``smallest`` and ``condition`` are the
    smallest eigenvalue and the condition number of the scaled matrix (NaN where there was nothing
    to solve), ``iterations`` those of conjugate gradients. ``interpolation`` is the largest
    relative error of the table between its knots, as tested when they were placed (NaN where it
    was not).
    """

    tau: Tensor
    t: Tensor
    ridge: Tensor
    level: Tensor
    loss: Tensor
    smallest: Tensor
    condition: Tensor
    iterations: Tensor
    interpolation: Tensor


class OperatorScore(SpectralModule, ABC):
    """An estimate of ∇ log ρ_t for every t of a clock, in closed form.

    Points are ``(n, *shape)`` with as many entries a row as the basis has dimensions. Times are the
    process's own, within the range of the clock, one number or one per row.
    """

    basis: Functions
    clock: Clock
    curve: Curve
    diagnostics: Diagnostics
    schedule_tau: Tensor
    schedule_log_ridge: Tensor
    schedule_level: Tensor
    spectral: ClassVar[tuple[str, ...]] = ("schedule_tau", "schedule_log_ridge", "schedule_level")

    def __init__(
        self,
        basis: Functions,
        clock: Clock,
        curve: Curve,
        schedule: Schedule,
        diagnostics: Diagnostics,
    ) -> None:
        super().__init__()
        self.basis, self.clock, self.curve = basis, clock, curve
        self.diagnostics = diagnostics
        for name in ("tau", "log_ridge", "level"):
            self.register_buffer(f"schedule_{name}", getattr(schedule, name))

    @property
    def times(self) -> tuple[float, float]:
        """The first and the last time that can be asked for."""
        ends = self.clock._time(torch.tensor([0.0, self.clock.horizon], dtype=torch.float64))
        return float(ends[0]), float(ends[1])

    @property
    def schedule(self) -> Schedule:
        """Ridge and level over clock time."""
        parts = (self.schedule_tau, self.schedule_log_ridge, self.schedule_level)
        return Schedule(*(part.cpu() for part in parts))

    @abstractmethod
    def system(self) -> System:
        """Return the equations behind the coefficients, to be solved at any time."""

    @abstractmethod
    def _score(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        """Return ∇ log ρ_t at checked points ``(n, dim)``; α is shared or one per row."""

    @abstractmethod
    def _divergence(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        """Return ∇·∇ log ρ_t: ``(n,)``."""

    @abstractmethod
    def _log_ratio(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        """Return log(ρ_t/π) up to a constant: ``(n,)``."""

    def _joint(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        """Return the score and its divergence, ``(n, dim + 1)``."""
        parts = (self._score(x, t, alpha), self._divergence(x, t, alpha)[:, None])
        return torch.cat(parts, dim=1)

    def _rows(self, x: Tensor, t: Tensor) -> int:  # noqa: ARG002
        """Return how many rows are evaluated at a time."""
        return max(1, ROWS // max(1, self.curve.values[0].numel()))

    def coefficients(self, t: Tensor | float, *, exact: bool = False) -> Tensor:
        """Return α(t), of the shape of t followed by that of the coefficients.

        Interpolated from the table, or with ``exact`` from a solve at these very times.
        """
        t = self._time(t)
        if not exact or not self.curve.values.numel():  # a Gaussian has nothing to solve for
            return self.curve(self.clock._inverse(t))  # type: ignore[no-any-return]
        flat = t.detach().reshape(-1).cpu()
        ridge, level = self.schedule.at(self.clock._inverse(flat))
        alpha = self.system().solve(flat, ridge, level).alpha
        return alpha.reshape(*t.shape, *alpha.shape[1:]).to(self.curve.values)

    def score(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return ∇ log ρ_t(x), of the shape of ``x``."""
        return self._evaluate(self._score, x, t).reshape(x.shape)

    def divergence(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return ∇·∇ log ρ_t(x), in closed form: ``(n,)``."""
        return self._evaluate(self._divergence, x, t)

    def score_and_divergence(self, x: Tensor, t: Tensor | float) -> tuple[Tensor, Tensor]:
        """Return both, ``x``'s shape and ``(n,)``, for little more than one of them."""
        both = self._evaluate(self._joint, x, t)
        return both[:, :-1].reshape(x.shape), both[:, -1]

    def log_ratio(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return log(ρ_t/π)(x) up to a constant that depends on t only: ``(n,)``."""
        return self._evaluate(self._log_ratio, x, t)

    def forward(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return the score."""
        return self.score(x, t)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one safetensors file, atomically; `OperatorScore.load` reads it."""
        from oism.score.storage import save  # noqa: PLC0415 (storage knows every kind of score)

        save(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> OperatorScore:
        """Return the score that was saved to a file, on the CPU."""
        from oism.score.storage import load  # noqa: PLC0415

        return load(path)

    def _time(self, t: Tensor | float) -> Tensor:
        """Return times in float64; their range is checked where reading it costs nothing."""
        low, high = self.times
        if isinstance(t, Tensor) and t.device.type != "cpu":
            if not t.is_floating_point() or t.ndim > 1:
                raise ValueError(f"t must be floating point of shape () or (n,), got {t!r}")
            return t if t.device.type == "mps" else t.double()
        # A time that was rounded to its dtype on its way here may have passed the ends by as much.
        kind = t.dtype if isinstance(t, Tensor) and t.is_floating_point() else torch.float64
        return checks.instants(t, "t", low=low, high=high, slack=4 * torch.finfo(kind).eps)

    def _evaluate(
        self, part: Callable[[Tensor, Tensor, Tensor], Tensor], x: Tensor, t: Tensor | float
    ) -> Tensor:
        """Apply a part to rows, a piece at a time, so that tables stay bounded."""
        flat = checks.vectors(x, "x")
        if flat.ndim < 2 or flat.shape[1:].numel() != self.basis.dim:
            raise ValueError(
                f"x must have rows of {self.basis.dim} entries, got shape {tuple(x.shape)}"
            )
        flat, t = flat.flatten(1), self._time(t)
        if t.ndim and len(t) != len(flat):
            raise ValueError(
                f"t must be one number or one per row: {len(flat)} rows, {len(t)} values"
            )
        t = t.to(flat.device)
        step = len(flat) if torch.compiler.is_compiling() else self._rows(flat, t)
        pieces = []
        for start in range(0, max(1, len(flat)), max(1, step)):
            own = t if t.ndim == 0 else t[start : start + step]
            alpha = self.curve(self.clock._inverse(own)).to(flat)
            pieces.append(part(flat[start : start + step], own, alpha))
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)
