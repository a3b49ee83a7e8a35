"""Density ratios as integrals of a fitted time score.

Time score matching in closed form (``oism.estimation._equations.products``) gives, for every t,

    g_t = Σ a_k(t) φ_k ≈ ∂_t log ρ_t,    M_t a = b_t,

with the constant among the φ_k, so that E_t[g_t] = 0: mass is conserved. Its integral is

    log(ρ_t/π) = log(ρ_T/π) - ∫_t^T g_s ds = Σ α_k(t) φ_k,    α(t) = α(T) - ∫_t^T a(s) ds,

again a sum of eigenfunctions, already normalised. A log-density is one series, without a flow and
without a divergence. At the last time T the ratio is close to 1, so its logarithm has
α_k(T) = e^{λ_kT}E[φ_k] to first order. The integral is computed in log s, so that short and long
times are resolved equally, by Gauss's rule on equal panels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from oism._core import checks
from oism._core.quadrature import gauss_legendre
from oism.basis import Basis
from oism.estimation._equations.products import ProductEquations
from oism.estimation._moments.gathering import gather_into
from oism.estimation._moments.products import ProductMoments
from oism.estimation._systems.nested import nested_solve
from oism.flow import FittedModel, Flow
from oism.process import Clock, Logarithmic, Process
from oism.score import SpectralModule
from oism.storage import storable

LAST_DECAY = 1e-6
"""The slowest decay e^{λT} at the default last time."""

FIRST = 1e-3
"""The default time of the data."""

RIDGE = 1e-3
"""The default ridge, for a few thousand rows; exact averages need none."""


@storable
@dataclass(frozen=True)
class GaussPanels:
    """Gauss's rule with ``nodes`` points on each of ``panels`` equal panels.

    For smooth integrands the error is O(panels^(-order)) with order = 2·nodes.
    """

    panels: int = 16
    nodes: int = 4

    def __post_init__(self) -> None:
        panels = checks.integer(self.panels, "panels", minimum=1)
        checks.assign(self, panels=panels, nodes=checks.integer(self.nodes, "nodes", minimum=1))

    @property
    def order(self) -> int:
        """The order of the rule."""
        return 2 * self.nodes

    def on_unit(self) -> tuple[Tensor, Tensor]:
        """Return points and weights on [0, 1]: ``(panels · nodes,)``, float64."""
        points, weights = gauss_legendre(self.nodes)
        starts = torch.arange(self.panels, dtype=torch.float64)[:, None]
        return ((starts + points) / self.panels).flatten(), weights.repeat(
            self.panels
        ) / self.panels


@storable
class DensityRatio(SpectralModule, FittedModel):
    """log(ρ_t/π) for every t in (0, last], from a fitted time score.

    Parameters
    ----------
    equations
        M_t and b_t of the data in a basis.
    last
        The time at which log(ρ_t/π) is taken to first order; by default the time at which the
        slowest function has decayed to 1e-6.
    rule
        The quadrature in log t.
    ridge
        Added to the diagonal of M_t, whose limit is the identity, except for the constant.
    first
        The time of the data: `sample` and, by default, `log_density` use ρ_first.
    """

    means: Tensor
    spectral = ("means",)

    def __init__(
        self,
        equations: ProductEquations,
        *,
        last: float | None = None,
        rule: GaussPanels | None = None,
        ridge: float = RIDGE,
        first: float = FIRST,
    ) -> None:
        super().__init__()
        checks.instance(equations, ProductEquations, "equations")
        rule = GaussPanels() if rule is None else rule
        checks.instance(rule, GaussPanels, "rule")
        slowest = -float(equations.basis.eigenvalues[0])
        last = math.log(1 / LAST_DECAY) / slowest if last is None else checks.positive(last, "last")
        if checks.number(ridge, "ridge") < 0:
            raise ValueError(f"ridge must be a finite number >= 0, got {ridge!r}")
        if not checks.positive(first, "first") < last:
            raise ValueError(f"first must be less than last = {last:g}, got {first!r}")
        self.equations, self.rule, self.last, self.ridge = equations, rule, last, float(ridge)
        self.first = first
        self.register_buffer("means", equations.means)

    @property
    def process(self) -> Process:
        """The noising process."""
        return self.basis.process

    @property
    def clock(self) -> Clock:
        """Noise levels evenly spaced in log t."""
        return Logarithmic(self.first, self.last)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a point, one axis."""
        return (self.basis.dim,)

    @property
    def flow(self) -> Flow:
        """The probability flow, starting at the time of the data."""
        clock = self.clock
        return Flow(self, clock=clock, span=(float(clock.inverse(self.first)), clock.horizon))

    def facts(self) -> dict[str, Any]:
        """Return basis, process and settings."""
        return {
            "kind": "DensityRatio",
            "process": repr(self.process),
            "basis": type(self.basis).__name__,
            "dim": self.basis.dim,
            "functions": self.basis.size,
            "times": [self.first, self.last],
            "ridge": self.ridge,
        }

    def to_config(self) -> dict[str, Any]:
        """Return the basis, the averages and the settings."""
        return {
            "basis": self.basis,
            "means": self.equations.means,
            "last": self.last,
            "rule": self.rule,
            "ridge": self.ridge,
            "first": self.first,
        }

    @classmethod
    def from_config(
        cls,
        *,
        basis: Basis,
        means: Tensor,
        last: float,
        rule: GaussPanels,
        ridge: float,
        first: float,
    ) -> DensityRatio:
        """Return the ratio for stored averages."""
        equations = ProductEquations(basis, means)
        return cls(equations, last=last, rule=rule, ridge=ridge, first=first)

    @property
    def basis(self) -> Basis:
        """The eigenfunctions."""
        return self.equations.basis

    def _times(self, t: Tensor | float) -> Tensor:
        t = checks.instants(t, "t", low=0.0, high=self.last, slack=1e-12)
        if not checks.holds(t > 0):
            raise ValueError(
                f"t must be in (0, {self.last:g}], where ρ_t has a density and log t is defined, "
                f"got {float(t.detach().min())!r}"
            )
        return t.cpu()  # spectral quantities are on the CPU

    def time_coefficients(self, t: Tensor | float) -> Tensor:
        """Return a(t), the constant's first: of the shape of t, followed by ``(1 + size,)``."""
        t = self._times(t)
        return self._solve(t.reshape(-1)).reshape(*t.shape, -1)

    def _solve(self, t: Tensor) -> Tensor:
        matrix, right = self.equations.gram(t), self.equations.right(t)
        penalty = torch.full((right.shape[1],), self.ridge, dtype=torch.float64)
        penalty[0] = 0.0
        return nested_solve(matrix + penalty.diag(), right, [right.shape[1]])[..., 0, :]

    def coefficients(self, t: Tensor | float) -> Tensor:
        """Return α(t), the constant's first: of the shape of t, followed by ``(1 + size,)``.

        Each time needs ``panels · nodes`` solves.
        """
        t = self._times(t)
        flat = t.reshape(-1, 1)
        share, weights = self.rule.on_unit()
        width = torch.log(self.last / flat)
        s = flat * torch.exp(width * share)
        rates = self._solve(s.reshape(-1)).reshape(*s.shape, -1)
        passed = ((weights * width * s)[..., None] * rates).sum(dim=1)
        return (self._final() - passed).reshape(*t.shape, -1)

    def _final(self) -> Tensor:
        """Return α(T), to first order in ρ_T/π - 1."""
        end = torch.tensor([self.last], dtype=torch.float64)
        averages = self.equations.gram(end)[0, 0].clone()
        averages[0] = 0.0
        return averages

    def time_score(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return ∂_t log ρ_t at points ``(n, dim)``: ``(n,)``; t is one number or one per row."""
        return self._series(x, self._matched(self.time_coefficients(t), x))

    def log_ratio(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return log(ρ_t/π), normalised: ``(n,)``."""
        return self._series(x, self._matched(self.coefficients(t), x))

    def log_density(self, x: Tensor, t: Tensor | float | None = None) -> Tensor:  # type: ignore[override]  # without a flow
        """Return log ρ_t as one series: ``(n,)``; by default at the time of the data."""
        t = self.first if t is None else t
        return self.log_ratio(x, t) + self.basis.process.invariant.log_density(x)

    def score(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return ∇ log ρ_t = ∇ log π + Σ α_k ∇φ_k, of the shape of ``x``."""
        return self.score_and_divergence(x, t)[0]

    def score_and_divergence(self, x: Tensor, t: Tensor | float) -> tuple[Tensor, Tensor]:
        """Return the score and its divergence, of the shape of ``x`` and ``(n,)``."""
        alpha = self._matched(self.coefficients(t), x)[..., 1:]
        invariant = self.process.invariant
        score = invariant.score(x) + self.basis.series(x, alpha, 1)
        return score, invariant.score_divergence(x) + self.basis.series(x, alpha, 2)

    @staticmethod
    def _matched(alpha: Tensor, x: Tensor) -> Tensor:
        """Return coefficients of one time, or of one time per row of ``x``."""
        if alpha.ndim == 2 and len(alpha) != len(x):
            raise ValueError(
                f"t must be one number or one per row: {len(x)} rows, {len(alpha)} values"
            )
        return alpha

    def _series(self, x: Tensor, alpha: Tensor) -> Tensor:
        return self.basis.series(x, alpha[..., 1:]) + alpha[..., 0].to(x)


def fit_ratio(  # noqa: PLR0913
    data: object,
    basis: Basis,
    *,
    last: float | None = None,
    rule: GaussPanels | None = None,
    ridge: float = RIDGE,
    first: float = FIRST,
    sample_weight: object = None,
) -> DensityRatio:
    """Return log(ρ_t/π) of data for every t, by time score matching in closed form.

    Parameters
    ----------
    data
        Rows, or an iterable of batches of rows, as for `oism.fit`. Polynomials are orthogonal under
        the invariant distribution: standardise data to its mean and variance.
    basis
        `TensorHermite`, `Fourier` on the torus, or any other basis with `Basis.doubled` and
        `Basis.rule`.
    last, rule, ridge, first
        See `DensityRatio`.
    sample_weight
        One weight per row, or for batches an iterable of them.

    Examples
    --------
    >>> from oism import Fourier
    >>> angles = 0.8 * torch.randn(20_000, 1, generator=torch.Generator().manual_seed(0)).double()
    >>> ratio = fit_ratio(angles, Fourier.lattice(dim=1, max_eigenvalue=36))
    >>> ratio.log_density(torch.zeros(1, 1).double(), 0.1)  # the truth: -½log(2π·0.84) = -0.832
    tensor([-0.83...], dtype=torch.float64)
    """
    checks.instance(basis, Basis, "basis")
    moments = gather_into(ProductMoments(basis, folds=1), data, sample_weight)
    equations = ProductEquations(basis, moments.averages().total)
    return DensityRatio(equations, last=last, rule=rule, ridge=ridge, first=first)
