"""From the predicted noise of velocities to the score of a damped process."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from oism._core import checks
from oism._core.transforms import one_per_row, per_row
from oism.flow import FittedModel, Flow, NoisePredictor
from oism.nn._informed import described
from oism.objectives import FIRST_WITH_VELOCITIES
from oism.process import Clock, CriticallyDamped, PhaseSpace, first_time
from oism.storage import External, storable


@storable
class VelocityScore(FittedModel):
    """∇_v log ρ_t = -ε̂(x, v, τ)/ℓ_t for points (x, v), from a predictor of the velocities' noise.

    ε̂ maps points ``(n, 2·dim)`` and clock times to the noise of their velocities, ``(n, dim)``;
    ℓ_t² is the variance of V_t given X_t and the data, see `oism.objectives.HybridScoreMatching`.
    Along positions, where the process has no noise and which the flow does not read, the score is
    0. ``first`` is the smallest clock time that the predictor was trained on, where `flow` ends.

    >>> from oism import CriticallyDamped, Logarithmic
    >>> from oism.nn import MLP
    >>> space = PhaseSpace(CriticallyDamped(dim=2))
    >>> model = VelocityScore(MLP(2, extra=2), space, Logarithmic(first=0.05, last=12.0))
    >>> model.sample(5, torch.Generator().manual_seed(0)).shape
    torch.Size([5, 4])
    """

    def __init__(
        self,
        predictor: NoisePredictor,
        space: PhaseSpace,
        clock: Clock,
        first: float = FIRST_WITH_VELOCITIES,
    ) -> None:
        super().__init__()
        checks.instance(space, PhaseSpace, "space")
        checks.instance(clock, Clock, "clock")
        self.predictor, self.space, self._clock = predictor, space, clock
        self.first = first_time(first, clock)

    @property
    def process(self) -> CriticallyDamped:
        """The damped process."""
        return self.space.process

    @property
    def clock(self) -> Clock:
        """The noise levels."""
        return self._clock

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a point: positions and velocities."""
        return (self.space.size,)

    @property
    def velocity_variance(self) -> float:
        """The variance γ of initial velocities."""
        return self.space.gamma

    @property
    def flow(self) -> Flow:
        """The probability flow and the reverse SDE, from the smallest time of training."""
        return Flow(self, span=(self.first, self.clock.horizon))

    def facts(self) -> dict[str, Any]:
        """Return process, clock and predictor."""
        return {
            "kind": "VelocityScore",
            "process": repr(self.process),
            "clock": repr(self.clock),
            "dim": self.space.dim,
            "gamma": self.space.gamma,
            "first": self.first,
            "network": described(self.predictor),
        }

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            "predictor": External(self.predictor),
            "space": self.space,
            "clock": self.clock,
            "first": self.first,
        }

    def score(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return (0, ∇_v log ρ_t), in the dtype of ``x``; t is one number or one per row."""
        x = checks.vectors(x, "x", dim=self.space.size)
        t = torch.as_tensor(t, dtype=torch.float64, device=x.device)
        if not checks.holds(t > 0):
            raise ValueError(
                "t must be positive, where velocities have noise of their own: give the flow a "
                f"span that begins later, got t = {float(t.min()):g}"
            )
        tau = self.clock._inverse(t).clamp(0.0, self.clock.horizon)
        noise = self.predictor(x, one_per_row(tau, x)).to(x.dtype)
        _, root = self.space._law(t)
        along = noise / per_row(-root[..., 1, 1], noise)
        return torch.cat((torch.zeros_like(along), along), dim=1)
