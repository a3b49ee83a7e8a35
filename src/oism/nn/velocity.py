"""From the predicted noise of velocities to the score of a damped process."""

from __future__ import annotations

import torch
from torch import Tensor

from oism import checks
from oism.clock import Clock
from oism.nn.embedding import one_per_row
from oism.nn.score import NoisePredictor
from oism.process import PhaseSpace
from oism.transforms import per_row


class VelocityScore:
    """∇_v log ρ_t = -ε̂(x, v, τ)/ℓ_t for points (x, v), in the form that `oism.flow.Flow` takes.

    ε̂ maps points ``(n, 2·dim)`` and clock times to the noise of their velocities, ``(n, dim)``;
    ℓ_t² is the variance of V_t given X_t and the data, see `oism.objectives.HybridScoreMatching`.
    Along positions, where the process has no noise and the flow does not look, the score is 0.
    """

    def __init__(self, predictor: NoisePredictor, space: PhaseSpace, clock: Clock) -> None:
        checks.instance(space, PhaseSpace, "space")
        checks.instance(clock, Clock, "clock")
        self.predictor, self.space, self.clock = predictor, space, clock

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
