"""Denoising score matching for scores and energies of any process with a transition density.

Given a clean point x and X_t drawn from ρ_t(·|x), the mean of ∇log ρ_t(X_t|x) given X_t is the
score, so with any metric

    E‖s(X_t, t) - ∇log ρ_t(X_t|X_0)‖² = E_t‖s - ∇log ρ_t‖² + constant.

The gradient is that of the transition density in its second point: -ε/σ where noise is isotropic,
Σ_t⁻¹(S_tx - y) for a linear process, and on the torus that of the wrapped normal distribution. An
energy has to be made a score first (`score_of`), which adds ∇log π. The metric is G, that of Γ:
where noise does not reach every direction only G∇log ρ_t is matched, which is all that flows need.
The variance of the target grows like 1/t; the weights of `DenoisingScoreMatching`, for a noise
predictor, cancel that.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from oism._core import checks
from oism.objectives._models import Model, field, gradient
from oism.objectives._sliced import inner
from oism.process import Process


@dataclass(frozen=True)
class TransitionScoreMatching:
    """E⟨r, Gr⟩ with r = s(X_t, t) - ∇log ρ_t(X_t|X_0), for a score s = ∇log ρ_t.

    Examples
    --------
    >>> from oism import Torus
    >>> x = torch.zeros(4, 2)
    >>> objective = TransitionScoreMatching(Torus())
    >>> objective(lambda y, t: 0 * y, x, 0.5, torch.Generator().manual_seed(0)).shape
    torch.Size([])
    """

    process: Process

    def __post_init__(self) -> None:
        checks.instance(self.process, Process, "process")

    def target(self, y: Tensor, x: Tensor, t: Tensor | float) -> Tensor:
        """Return ∇_y log ρ_t(y|x), of the shape of ``y``; every t must be positive."""
        transition = self.process.transition(t)
        return gradient(lambda z: transition.log_density(z, x))(checks.like(y, checks.points(x)))

    def terms(self, score: Model, x: Tensor, y: Tensor, t: Tensor | float) -> Tensor:
        """Return ⟨r, Gr⟩ for pairs of clean points x and noised points y: ``(n,)``."""
        residual = field(score, t)(y) - self.target(y, x, t)
        return inner(residual, self.process.diffuse(residual, y))

    def __call__(
        self,
        score: Model,
        x: Tensor,
        t: Tensor | float,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return the mean over clean points ``(n, *shape)`` for one draw of the noise of each."""
        noised = self.process.transition(t).sample(checks.points(x), generator=generator)
        return self.terms(score, x, noised, t).mean()
