"""Scores of linear SDEs: a Gaussian that moves with the process, and a polynomial beside it.

    log ρ_t = log N(x; m_t, C_t) + f(u),    u = W_t(c(x) - m_t),    f = Σ α_m(t) φ_m,

in the coordinates of ``oism.equations.linear``. As for the Ornstein-Uhlenbeck process f sees x
through a soft clamp c, the identity within the range of the noised data: a polynomial says nothing
beyond (``oism.score.hermite``).

Derivatives of f are polynomials of a lower degree, ∂ᵢf = Σ_j (aᵢᵀα)_j φ_j: a gradient is one
product with a table of functions of degree n - 1, the second derivatives one with those of n - 2.
"""

from __future__ import annotations

import torch
from torch import Tensor

from oism.basis import Ladder, Polynomials
from oism.basis.hermite import products
from oism.clock import Clock
from oism.equations.linear import LinearLaw, Metric
from oism.moments import Averages
from oism.score.base import Diagnostics, OperatorScore
from oism.score.hermite import NOISE_REACH, WIDTH, soft_clamp
from oism.score.interpolation import Curve
from oism.solve import LinearSystem, Schedule, System
from oism.transforms import matmul


class LinearScore(OperatorScore):
    """The estimate for a linear process; α is ``(size,)``, empty for order two, the Gaussian.

    What was matched is R^{½}∇ log ρ_t in the metric R. Where R is singular, as the diffusion matrix
    G of a damped process is, the score is given in its range only: the derivative along velocities,
    and 0 along positions. That is all the flow needs.
    """

    basis: Polynomials
    shift: Tensor
    factor: Tensor
    noise: Tensor
    low: Tensor
    high: Tensor
    metric: Tensor
    means: Tensor
    spectral = (
        *OperatorScore.spectral,
        *("shift", "factor", "noise", "low", "high", "metric", "means"),
    )

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        basis: Polynomials,
        clock: Clock,
        curve: Curve,
        schedule: Schedule,
        diagnostics: Diagnostics,
        law: LinearLaw,
        metric: Tensor,
        means: Tensor,
    ) -> None:
        super().__init__(basis, clock, curve, schedule, diagnostics)
        for name in ("shift", "factor", "noise", "low", "high"):
            self.register_buffer(name, getattr(law, name))
        self.register_buffer("metric", metric)
        self.register_buffer("means", means)
        self._metric = Metric(metric)
        self._ladder = Ladder(basis.dim, basis.order) if basis.order > 2 else None
        if self._ladder is not None:
            self._kept = (self._ladder.indices[:, self._metric.hidden :] > 0).any(dim=1)

    def law(self) -> LinearLaw:
        """Return mean and covariance of X_t as functions of time."""
        parts = (self.shift, self.factor, self.noise, self.low, self.high)
        return LinearLaw(self.basis.process, *(part.double() for part in parts))

    def system(self) -> System:
        """Return the equations, on the CPU in float64."""
        nothing = self.means.new_zeros(0).cpu()
        averages = Averages(self.means.cpu(), nothing, nothing, nothing, nothing)
        return LinearSystem(self.basis.order, self.law(), self._metric, averages)

    def _place(self, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return x - m_t, W_t and the deviations of X_t, in the dtype of ``x``."""
        mean, covariance = self.law().at(t)
        whiten, _ = self._metric.whiten(covariance)
        deviations = covariance.diagonal(dim1=-2, dim2=-1).sqrt()
        return x - mean.to(x), whiten.to(x), deviations.to(x)

    def _clamped(self, x: Tensor, t: Tensor, deviations: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        low, high = (end.to(x) for end in self.law().range(t, NOISE_REACH))
        return soft_clamp(x, low, high, WIDTH * deviations)

    def _project(self, score: Tensor) -> Tensor:
        if not self._metric.hidden:
            return score
        return matmul(score, self._metric.projection.to(score))

    def _lowered(self, alpha: Tensor, times: int) -> Tensor:
        """Return the coefficients of all derivatives of f of an order: ``(..., l, d[, d])``."""
        ladder = self._ladder
        assert ladder is not None
        steps = ladder.slopes(torch.eye(self.basis.dim).to(alpha))
        kept = steps[:, self._kept.to(alpha.device)]
        first = matmul(alpha[..., None, None, :], kept)[..., 0, :].mT
        if times == 1:
            return first
        lower = ladder.count(ladder.degree - 1)
        below = ladder.count(ladder.degree - 2)
        second = matmul(first.mT[..., None, :, :], steps[:, :lower]).movedim(-1, -3)
        return second[..., :below, :, :]

    def _derivatives(self, u: Tensor, alpha: Tensor, times: int) -> Tensor:
        """Return ∇f, ``(n, d)``, or the matrix of second derivatives, ``(n, d, d)``, in u."""
        weights = self._lowered(alpha, times)
        assert self._ladder is not None
        few = weights.shape[-1 - times]
        table = _row(products(u, self._ladder.indices[:few].to(u.device)))
        return matmul(table, weights.flatten(-times)).reshape(len(u), *weights.shape[-times:])

    def _score(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        apart, whiten, deviations = self._place(x, t)
        total = -_back(whiten, _along(whiten, apart))
        if alpha.shape[-1]:
            inner, slope, _ = self._clamped(x, t, deviations)
            u = _along(whiten, apart + (inner - x))
            total = total + slope * _back(whiten, self._derivatives(u, alpha, 1))
        return self._project(total)

    def _second(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        """Return all second derivatives of log ρ_t: ``(n, d, d)``."""
        apart, whiten, deviations = self._place(x, t)
        total = -matmul(whiten.mT, whiten).expand(len(x), -1, -1)
        if alpha.shape[-1]:
            inner, slope, bend = self._clamped(x, t, deviations)
            u = _along(whiten, apart + (inner - x))
            first = _back(whiten, self._derivatives(u, alpha, 1))
            second = matmul(matmul(whiten.mT, self._derivatives(u, alpha, 2)), whiten)
            second = slope[:, :, None] * second * slope[:, None, :]
            total = total + second + torch.diag_embed(bend * first)
        return total

    def _divergence(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        along = self._metric.projection.to(x)
        return (along * self._second(x, t, alpha)).sum(dim=(1, 2))

    def _diffused(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        """Return the score and ∇·G∇ log ρ_t, ``(n, d + 1)``."""
        diffusion = self.basis.process.diffusion(self.basis.dim).to(x)
        spread = (diffusion * self._second(x, t, alpha)).sum(dim=(1, 2))
        return torch.cat((self._score(x, t, alpha), spread[:, None]), dim=1)

    def score_and_diffused_divergence(self, x: Tensor, t: Tensor | float) -> tuple[Tensor, Tensor]:
        """Return the score and ∇·G∇ log ρ_t, ``(n,)``, in closed form: what densities need."""
        both = self._evaluate(self._diffused, x, t)
        return both[:, :-1].reshape(x.shape), both[:, -1]

    def _log_ratio(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        if self._metric.hidden:
            raise ValueError(
                "metric must be definite for log(ρ_t/π), which the metric G of the flow leaves "
                f"open up to functions of {self._metric.hidden} coordinates: fit with whole=True"
            )
        apart, whiten, deviations = self._place(x, t)
        diagonal = torch.linalg.slogdet(whiten)[1]
        total: Tensor = diagonal - 0.5 * _along(whiten, apart).square().sum(dim=1)
        if alpha.shape[-1]:
            inner, _, _ = self._clamped(x, t, deviations)
            assert self._ladder is not None
            indices = self._ladder.indices[self._kept].to(x.device)
            total = total + (products(_along(whiten, apart + (inner - x)), indices) * alpha).sum(1)
        return total - self.basis.process.invariant.log_density(x)


def _row(x: Tensor) -> Tensor:
    """Return vectors as rows: ``(n, 1, d)``."""
    return x[:, None]


def _along(matrix: Tensor, x: Tensor) -> Tensor:
    """Return Wx for W ``(d, d)``, or one per row."""
    return matmul(_row(x), matrix.mT)[:, 0] if matrix.ndim == 3 else matmul(x, matrix.mT)


def _back(matrix: Tensor, u: Tensor) -> Tensor:
    """Return Wᵀu."""
    return _along(matrix.mT, u)
