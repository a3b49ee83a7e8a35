"""From the predicted noise of velocities to the score of a damped process."""

from __future__ import annotations

import torch
from torch import Tensor

from oism._core import checks
from oism._core.transforms import per_row
from oism.flow import Flow
from oism.nn._embedding import one_per_row
from oism.nn._score import NoisePredictor
from oism.process import Clock, PhaseSpace, first_time

FIRST = 1e-3
"""The least clock time: at t = 0 the velocity's own noise vanishes."""


class VelocityScore:
    """∇_v log ρ_t = -ε̂(x, v, τ)/ℓ_t for points (x, v), in the form that `oism.flow._flow.Flow` takes.

    ε̂ maps points ``(n, 2·dim)`` and clock times to the noise of their velocities, ``(n, dim)``;
    ℓ_t² is the variance of V_t given X_t and the data, see `oism.objectives.HybridScoreMatching`.
    Along positions, where the process has no noise and the flow does not look, the score is 0.
    ``first`` is the least clock time that the predictor was trained on, where `flow` ends.

    >>> from oism import CriticallyDamped, Logarithmic
    >>> from oism.nn import MLP
    >>> space = PhaseSpace(CriticallyDamped(dim=2))
    >>> score = VelocityScore(MLP(2, extra=2), space, Logarithmic(first=0.05, last=12.0))
    >>> score.flow.sample(5, (4,), generator=torch.Generator().manual_seed(0)).shape
    torch.Size([5, 4])
    """

    def __init__(
        self, predictor: NoisePredictor, space: PhaseSpace, clock: Clock, first: float = FIRST
    ) -> None:
        checks.instance(space, PhaseSpace, "space")
        checks.instance(clock, Clock, "clock")
        self.predictor, self.space, self.clock = predictor, space, clock
        self.first = first_time(first, clock)

    @property
    def flow(self) -> Flow:
        """The probability flow and the reverse SDE, from the least time that was trained on."""
        span = (self.first, self.clock.horizon)
        return Flow(self, self.space.process, self.clock, span=span)

    def __call__(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return (0, ∇_v log ρ_t), in the dtype of ``x``; t is one number or one per row."""
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
