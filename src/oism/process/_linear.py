"""Linear SDEs dX = FX dt + L dW with any drift matrix F and any noise matrix L.

The transition is N(S_t x, Σ_t), see ``oism.process._propagator``. If F is Hurwitz (every eigenvalue
has a negative real part), the stationary distribution is N(0, Σ∞) with Lyapunov's equation

    FΣ∞ + Σ∞Fᵀ + LLᵀ = 0.

The time-reversed stationary process is linear, with the same noise and the drift matrix

    F* = Σ∞FᵀΣ∞⁻¹ = -LLᵀΣ∞⁻¹ - F,

so the process is symmetric if and only if FΣ∞ = Σ∞Fᵀ. This is not a property of F only, and
positive definite -F and L are not sufficient (see docs/errata.md). π has a density if noise acts in
every direction: the matrix (L, FL, …, F^{m-1}L) has rank m, (F, L) is controllable.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import scipy.linalg
import torch
from torch import Tensor

from oism._core import checks
from oism._core.draws import normal
from oism._core.transforms import matmul
from oism.process._base import Process
from oism.process._correlated import CorrelatedGaussian, LinearTransition
from oism.process._covariance import act, entries, spread
from oism.process._domain import Euclidean
from oism.process._measure import Lebesgue, Measure, NotAProbabilityError
from oism.process._propagator import Propagator
from oism.storage import storable

ASYMMETRY = 1e-10
"""The largest relative difference of FΣ∞ and its transpose that is attributed to rounding."""


@storable
@dataclass(frozen=True, eq=False)
class Linear(Process):
    """dX = FX dt + L dW for F ``(m, m)`` and L ``(m, k)``; both are copied in float64.

    With ``copies`` the process is that of F ⊗ I and L ⊗ I: points have m·copies entries, and as a
    matrix ``(m, copies)`` their columns are independent. No cost grows with copies².

    >>> F, L = torch.tensor([[0.0, 1.0], [-1.0, -2.0]]), torch.tensor([[0.0], [2.0]])
    >>> Linear(F, L).stationary_covariance.round(decimals=12)
    tensor([[1., 0.],
            [0., 1.]], dtype=torch.float64)
    """

    drift_matrix: Tensor
    noise_matrix: Tensor
    copies: int = 1
    _propagator: Propagator = field(init=False, repr=False)

    domain = Euclidean()

    def __post_init__(self) -> None:
        drift = checks.floating(self.drift_matrix, "drift_matrix").detach().cpu().double().clone()
        noise = checks.floating(self.noise_matrix, "noise_matrix").detach().cpu().double().clone()
        if drift.ndim != 2 or drift.shape[0] != drift.shape[1] or not len(drift):
            raise ValueError(f"drift_matrix must be square, got shape {tuple(drift.shape)}")
        if noise.ndim != 2 or len(noise) != len(drift) or not noise.shape[1]:
            raise ValueError(
                f"noise_matrix must have shape ({len(drift)}, k), with the rows of drift_matrix "
                f"and k >= 1, got {tuple(noise.shape)}"
            )
        copies = checks.integer(self.copies, "copies", minimum=1)
        checks.assign(self, drift_matrix=drift, noise_matrix=noise, copies=copies)
        checks.assign(self, _propagator=Propagator(drift, noise))

    def __eq__(self, other: object) -> bool:
        """Return whether two processes have the same matrices."""
        if not isinstance(other, Linear):
            return NotImplemented
        pairs = zip(self._matrices, other._matrices, strict=True)
        return self.copies == other.copies and all(torch.equal(a, b) for a, b in pairs)

    def __hash__(self) -> int:
        return hash((self.copies, *(tuple(part.flatten().tolist()) for part in self._matrices)))

    @property
    def _matrices(self) -> tuple[Tensor, Tensor]:
        return self.drift_matrix, self.noise_matrix

    @property
    def size(self) -> int:
        """The number of entries of a point."""
        return len(self.drift_matrix) * self.copies

    @property
    def dynamics(self) -> Linear:
        """The process of the points: this one. `PhaseSpace` has the same property."""
        return self

    @property
    def data_dim(self) -> int:
        """The number of entries of a row of data: all of them."""
        return self.size

    def unseen_covariance(self) -> Tensor:
        """Return the covariance of entries that are not in the data: zero, ``(size, size)``."""
        return torch.zeros(self.size, self.size, dtype=torch.float64)

    def width_hint(self, columns: int) -> str:  # noqa: ARG002
        """Return a hint for an error message about data with another number of columns."""
        return ""

    @cached_property
    def stationary_covariance(self) -> Tensor:
        """The solution Σ∞ of Lyapunov's equation, ``(m, m)``; an error if F is not Hurwitz."""
        eigenvalues = torch.linalg.eigvals(self.drift_matrix)
        slowest = eigenvalues[eigenvalues.real.argmax()]
        rounding = len(self.drift_matrix) * torch.finfo(torch.float64).eps
        if float(slowest.real) >= -rounding * float(self.drift_matrix.norm()):
            raise NotAProbabilityError(
                "drift_matrix must be Hurwitz for a stationary distribution (all eigenvalues have "
                f"negative real parts), but it has the eigenvalue {slowest.item():.6g}"
            )
        squared = self.noise_matrix @ self.noise_matrix.mT
        solution = scipy.linalg.solve_continuous_lyapunov(self.drift_matrix.numpy(), -squared)
        return 0.5 * torch.from_numpy(solution + solution.T)

    @cached_property
    def invariant(self) -> Measure:
        """The distribution N(0, Σ∞), or Lebesgue measure if there is no drift."""
        if not self.drift_matrix.any():
            return Lebesgue()
        return CorrelatedGaussian(self.stationary_covariance, self.copies)

    @cached_property
    def is_symmetric(self) -> bool:
        """Whether FΣ∞ = Σ∞Fᵀ: the stationary process is reversible."""
        if not self.drift_matrix.any():
            return True
        scale = self.stationary_covariance.diagonal().sqrt()
        scale = torch.where(scale > 0, scale, 1.0)  # independent of units
        product = self.drift_matrix @ self.stationary_covariance / (scale[:, None] * scale)
        return bool((product - product.mT).norm() <= ASYMMETRY * product.norm())

    @cached_property
    def adjoint(self) -> Linear:
        """The time-reversed stationary process: F* = Σ∞FᵀΣ∞⁻¹ and the same L."""
        if not self.drift_matrix.any():
            return self
        precision = CorrelatedGaussian(self.stationary_covariance).precision
        # Not as Σ∞FᵀΣ∞⁻¹, which has two inexact factors instead of one.
        backwards = -self.noise_matrix @ (self.noise_matrix.mT @ precision) - self.drift_matrix
        return Linear(backwards, self.noise_matrix, self.copies)

    def drift(self, x: Tensor) -> Tensor:
        """Return Fx."""
        return act(self.drift_matrix, checks.points(x), self.copies)

    def drift_divergence(self, dim: int) -> float:
        """Return ∇·b = copies · tr F."""
        entries(dim, len(self.drift_matrix), self.copies)
        return self.copies * float(self.drift_matrix.trace())

    def _flow_drift_divergence(self, x: Tensor) -> float:
        return self.drift_divergence(x.shape[1:].numel())

    def noise(self, dim: int) -> Tensor:
        """Return L ⊗ I: ``(m·copies, k·copies)``."""
        entries(dim, len(self.drift_matrix), self.copies)
        return spread(self.noise_matrix, self.copies)

    def _diffuse(self, v: Tensor, x: Tensor) -> Tensor:  # noqa: ARG002
        return act(0.5 * self.noise_matrix @ self.noise_matrix.mT, v, self.copies, "v")

    def _sample_noise(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        sources = self.noise_matrix.shape[1]
        draws = normal((len(x), sources, self.copies), generator, dtype=x.dtype, device=x.device)
        return matmul(self.noise_matrix.to(x), draws).view_as(x)

    def _transition(self, t: Tensor) -> LinearTransition:
        mean, covariance = self._propagator(t)
        if not checks.holds(mean.isfinite() & covariance.isfinite()):
            raise ValueError(
                f"t must be so small that S_t and Σ_t are finite, got {float(t.detach().max()):g}"
            )
        return LinearTransition(t, mean, covariance, self.copies)

    def transition(self, t: Tensor | float) -> LinearTransition:
        """Return the distribution N(S_t x, Σ_t) of X_t given X_0 = x."""
        return self._transition(checks.time(t))
