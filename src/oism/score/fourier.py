"""The score on the torus: s = Σ α_k(t) ∇φ_k, for π is uniform."""

from __future__ import annotations

import torch
from torch import Tensor

from oism.basis import Fourier
from oism.clock import Clock
from oism.moments import Averages, extended
from oism.score.base import Diagnostics, OperatorScore
from oism.score.interpolation import Curve
from oism.solve import Schedule, TorusSystem


class FourierScore(OperatorScore):
    """Coefficients of √2 cos and √2 sin: α is ``(size,)``. ``means`` are E[e^{-iζ·x}]."""

    basis: Fourier
    means: Tensor
    spectral = (*OperatorScore.spectral, "means")

    def __init__(
        self,
        basis: Fourier,
        clock: Clock,
        curve: Curve,
        schedule: Schedule,
        diagnostics: Diagnostics,
        means: Tensor,
    ) -> None:
        super().__init__(basis, clock, curve, schedule, diagnostics)
        self.register_buffer("means", torch.view_as_real(means))

    def system(self) -> TorusSystem:
        """Return the equations, on the CPU in float64."""
        means = torch.view_as_complex(self.means.cpu().double())
        none = means.new_zeros(0, len(means))
        nothing = torch.zeros(0, dtype=torch.float64)
        return TorusSystem(
            self.basis, extended(self.basis), Averages(means, none, none, nothing, nothing)
        )

    def _score(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:  # noqa: ARG002
        return self.basis._series(x, alpha, 1)

    def _divergence(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:  # noqa: ARG002
        return self.basis._series(x, alpha, 2)

    def _log_ratio(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:  # noqa: ARG002
        return self.basis._series(x, alpha, 0)
