"""Polynomials in λ: multistep methods of orders 1 to 3 that need no knowledge of the model.

The residual is extrapolated by the polynomial in λ through its last p values, and integrated
exactly against the weight of each coordinate,

    u_{k+1} = a u_k + Σ_j R_{k-j} ∫ (1 + η²) a(λ) w(λ) ℓ_j(λ) dλ + √(1 - a²) ξ,
    a(λ) = (w(λ)/w(λ_{k+1}))^{η²},    a = a(λ_k),

with Lagrange's polynomials ℓ_j over [λ_k, λ_{k+1}], by Gauss-Legendre quadrature. For c = 0 this is
DPM-Solver++. The *corrector* computes the step before again when the residual at its end is known,
by the polynomial through one more value, at no further evaluation:

    u_k ← u_k + Σ_j (C_j - P_j) R_{k-j},

P and C being the weights of the predictor and of the corrector. The error at the end is O(h^p), and
O(h^{p+1}) with the corrector, for η = 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from oism._core import checks
from oism._core.quadrature import gauss_legendre
from oism.images import GaussianPart
from oism.sampling._coordinates import weight
from oism.sampling._method import SamplingMethod, checked_levels, checked_part
from oism.sampling._plan import Plan, Span, Step

NODES = 16
"""The number of nodes of the quadrature over one step."""

MOST_ORDER = 3

MOST_SKILL = 0.4
"""The largest part of the variance that may be explained before the first evaluation."""


@dataclass(frozen=True)
class Polynomial(SamplingMethod):
    """A multistep method that extrapolates the residual by a polynomial in λ.

    Parameters
    ----------
    order
        The number p of past residuals of the predictor, 1 to 3.
    corrector
        Whether each step is computed again from the residual at its end.
    eta
        The strength η of the noise of each step: 0 is the probability flow, 1 the reverse SDE.
    start
        The level λ_0 of the first evaluation, by default `start_level`.
    levels
        All levels λ_0 < … < λ_N instead, which determine the number of evaluations.

    Examples
    --------
    >>> from oism.images import GaussianPart
    >>> part, span = GaussianPart.isotropic(2, 1.0), Span(-5.0, 5.0)
    >>> plan = Polynomial(order=2, start=-3.0).plan(part, span, evaluations=4)
    >>> plan.levels.tolist()
    [-3.0, -1.0, 1.0, 3.0, 5.0]
    """

    order: int = 2
    corrector: bool = True
    eta: float = 0.0
    start: float | None = None
    levels: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        order = checks.integer(self.order, "order", minimum=1)
        if order > MOST_ORDER:
            raise ValueError(f"order must be 1 to {MOST_ORDER}, got {order}")
        eta = checks.number(self.eta, "eta")
        if not 0 <= eta < math.inf:
            raise ValueError(f"eta must be at least 0, got {eta:g}")
        checks.instance(self.corrector, bool, "corrector")
        checks.assign(self, order=order, eta=eta)

    def plan(self, part: GaussianPart, span: Span, evaluations: int) -> Plan:
        """Return the plan, at equally spaced levels unless others were given."""
        checked_part(part, span)
        if self.levels is not None:
            levels = checked_levels(torch.tensor(self.levels, dtype=torch.float64), span)
        else:
            count = checks.integer(evaluations, "evaluations", minimum=1)
            start = start_level(part, span, count) if self.start is None else self.start
            even = torch.linspace(start, span.last, count + 1, dtype=torch.float64)
            levels = checked_levels(even, span)
        # No denoised result: the end of a polynomial is less accurate than its integral, and with
        # few evaluations by more than the noise of the last level.
        return Plan(part, span, levels, self._steps(part.variances, levels))

    def _steps(self, variances: Tensor, levels: Tensor) -> list[Step]:
        steps: list[Step] = []
        before: Tensor | None = None  # the predictor's weights of the step before
        for k in range(len(levels) - 1):
            span = levels[k : k + 2]
            decay = None
            if self.eta:
                first, last = weight(variances, span)
                decay = (first / last) ** self.eta**2
            predictor = self._weights(variances, levels[max(0, k + 1 - self.order) : k + 1], span)
            total = predictor
            if self.corrector and before is not None:
                nodes = levels[max(0, k - self.order) : k + 1]
                corrector = self._weights(variances, nodes, levels[k - 1 : k + 1])
                change = corrector.clone()
                change[1 : 1 + len(before)] -= before
                total = _padded_sum(change if decay is None else decay * change, predictor)
            before = predictor
            noise = None if decay is None else (1 - decay.square()).sqrt()
            steps.append(Step(total, decay, noise))
        return steps

    def _weights(self, variances: Tensor, nodes: Tensor, ends: Tensor) -> Tensor:
        """Return the weights of the residuals at nodes, the newest first: ``(q, K)``."""
        points, masses = gauss_legendre(NODES)
        points, masses = torch.lerp(ends[0], ends[1], points), masses * (ends[1] - ends[0])
        w = weight(variances, points.to(variances))
        if self.eta:
            last = weight(variances, ends[1:].to(variances))
            w = (1 + self.eta**2) * w * (w / last) ** self.eta**2
        values = lagrange(nodes.flip(0), points) * masses
        return values.to(w) @ w


def start_level(part: GaussianPart, span: Span, evaluations: int) -> float:
    """Return the level of the first evaluation for a number N of evaluations, in closed form.

    At high noise a Gaussian is nearly all that a denoiser can know, and no evaluation is needed.
    The part of the variance that the Gaussian's denoiser explains,

        skill(λ) = Σ c²/(c + e^{-2λ}) / Σ c,

    bounds what there is to know. The first evaluation is where it reaches min(0.4, (4/N)²): the
    error by starting late decreases with N like that of a method of order two.

    >>> round(start_level(GaussianPart.isotropic(1, 1.0), Span(-5.0, 5.0), 8), 2)  # skill 1/4
    -0.59
    """
    used = part.variances > 0
    c, share = part.variances[used], part.dimensions[used]
    if not len(c):
        return span.first
    wanted = min(MOST_SKILL, (4 / evaluations) ** 2)
    levels = torch.linspace(span.first, span.last, 257, dtype=torch.float64)[:-1]
    noise = torch.exp(-2 * levels.to(c))
    skill = torch.stack([(share * c.square() / (c + one)).sum() for one in noise])
    skill = skill / (share * c).sum()
    return float(levels[int((skill.cpu() < wanted).sum().clamp(min=1)) - 1])


def lagrange(nodes: Tensor, points: Tensor) -> Tensor:
    """Return ℓ_j of each node at each point: ``(q, n)``.

    >>> lagrange(torch.tensor([0.0, 1.0]), torch.tensor([0.25]))
    tensor([[0.7500],
            [0.2500]])
    """
    apart = nodes[:, None] - nodes[None, :] + torch.eye(len(nodes), dtype=nodes.dtype)
    factors = (points[None, None, :] - nodes[None, :, None]) / apart[..., None]
    own = torch.eye(len(nodes), dtype=torch.bool)
    return factors.masked_fill(own[..., None], 1.0).prod(dim=1)


def _padded_sum(a: Tensor, b: Tensor) -> Tensor:
    """Return the sum of weights of different numbers of residuals."""
    rows = max(len(a), len(b))
    total = a.new_zeros(rows, a.shape[1])
    total[: len(a)] += a
    total[: len(b)] += b
    return total
