"""The pinwheel: normal features wound into five arms.

Features f = (a, b), a ~ N(1, 0.3²) and b ~ N(0, 0.1²) with density φ, are turned clockwise by
2πk/5 + e^a/4, k uniform on 0, …, 4, and doubled. In polar coordinates f = r(cos ψ, sin ψ) the map
keeps r and takes ψ to θ = ψ - 2πk/5 - e^a/4. So the preimages of x = 2r(cos θ, sin θ) under all
five arms are the roots ψ, on one turn of the circle, of

    h(ψ) = ψ - e^{r cos ψ}/4 ∈ θ + (2π/5)ℤ,

and since the determinant of f ↦ x/2 is 1 + b e^a/4 = h'(ψ),

    p(x) = Σ φ(a, b) / (5 · 4 · |h'(ψ)|).

For b ≪ 0 the map folds (h' < 0), with a probability of 1.4e-9; at a fold p is infinite and
integrable. On [0, π] h' ≥ 1; on (-π, 0) it falls once and rises once. So one turn splits into two
arcs on which h is monotone, the one between the folds and the rest, each with one root for every
level that h passes there. Bisection finds folds and roots.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from oism.data.toys import _base as base

HALVINGS = 60  # from 2π to below the rounding of float64
# At r = 6 the arms wind so fast that an arc has 80 roots; p is below e⁻¹³⁰ there. Further out the
# density is averaged over θ.
FURTHEST = 6.0


def bisect(there: Callable[[Tensor], Tensor], start: Tensor, end: Tensor) -> Tensor:
    """Return where ``there`` turns true on the way from ``start``, or ``end`` if it never does."""
    for _ in range(HALVINGS):
        middle = (start + end) / 2
        reached = there(middle)
        start, end = torch.where(reached, start, middle), torch.where(reached, middle, end)
    return end


@dataclass(frozen=True)
class Pinwheel(base.PlaneDistribution):
    """The distribution of 2 R(-2πk/5 - e^a/4) (a, b)."""

    arms: int = 5
    rate: float = 0.25
    mean: float = 1.0
    deviations: tuple[float, float] = (0.3, 0.1)
    scale: float = 2.0

    def _features(self, z: Tensor) -> Tensor:
        """Return (a, b) from standard normal numbers ``(n, 2)``."""
        z = z * torch.tensor(self.deviations, dtype=torch.float64)
        return z + torch.tensor([self.mean, 0.0], dtype=torch.float64)

    def _place(self, features: Tensor, arm: Tensor) -> Tensor:
        """Return the points of features ``(n, 2)`` on their arms ``(n,)``."""
        a, b = features.unbind(dim=1)
        angle = 2 * math.pi / self.arms * arm + self.rate * a.exp()
        cos, sin = angle.cos(), angle.sin()
        return self.scale * torch.stack([cos * a + sin * b, cos * b - sin * a], dim=1)

    def _draw(self, n: int, generator: torch.Generator) -> Tensor:
        features = self._features(base.normal(n, generator))
        return self._place(features, torch.randint(self.arms, (n,), generator=generator))

    def _log_feature(self, psi: Tensor, r: Tensor) -> Tensor:
        """Return log φ."""
        wide, narrow = self.deviations
        z = torch.stack([(r * psi.cos() - self.mean) / wide, r * psi.sin() / narrow], dim=-1)
        return base.log_normal(z, 1.0) - math.log(wide * narrow)

    def _height(self, psi: Tensor, r: Tensor) -> Tensor:
        """Return h."""
        return psi - self.rate * (r * psi.cos()).exp()

    def _slope(self, psi: Tensor, r: Tensor) -> Tensor:
        """Return h'."""
        return 1 + self.rate * r * psi.sin() * (r * psi.cos()).exp()

    def _folds(self, r: Tensor) -> tuple[Tensor, Tensor]:
        """Return the ends of the arc on which h falls; where there is none they agree."""
        lowest = -torch.acos(2 * r / (1 + (1 + 4 * r.square()).sqrt()))  # h'' = 0
        starts = torch.full_like(r, -math.pi), torch.zeros_like(r)
        left, right = (bisect(lambda psi: self._slope(psi, r) < 0, s, lowest) for s in starts)
        return left, right

    def _arc(self, r: Tensor, theta: Tensor, ends: tuple[Tensor, Tensor]) -> Tensor:
        """Return log Σ φ/|h'| over the roots on an arc on which h is monotone; all ``(n, 1)``."""
        spacing = 2 * math.pi / self.arms
        passed = [(self._height(psi, r) - theta) / spacing for psi in ends]
        low, high = torch.minimum(*passed), torch.maximum(*passed)
        most = max([0, *(high.floor() - low.ceil() + 1).flatten().int().tolist()])
        levels = low.ceil() + torch.arange(most, dtype=torch.float64)
        sign, target = (passed[1] - passed[0]).sign(), theta + spacing * levels
        start, end = (psi.expand_as(levels) for psi in ends)
        psi = bisect(lambda psi: sign * (self._height(psi, r) - target) >= 0, start, end)
        terms = self._log_feature(psi, r) - self._slope(psi, r).abs().log()
        return terms.masked_fill(levels > high, -math.inf).logsumexp(dim=1)

    def _near(self, r: Tensor, theta: Tensor) -> Tensor:
        """Return the log-density of x/2, summed over preimages."""
        left, right = self._folds(r)
        arcs = [(left, right), (right, left + 2 * math.pi)]
        sums = torch.stack([self._arc(r, theta, arc) for arc in arcs])
        return sums.logsumexp(dim=0) - math.log(self.arms)

    def _far(self, r: Tensor) -> Tensor:
        """Return the logarithm of the mean of φ over a circle; it sits within 0.1/r of ψ = 0."""
        z = torch.linspace(-10, 10, 161, dtype=torch.float64)
        unit = self.deviations[1] / r
        log = self._log_feature(unit * z, r).logsumexp(dim=1)
        return log + (unit[:, 0] * (z[1] - z[0]) / (2 * math.pi)).log()

    def _log_density(self, x: Tensor) -> Tensor:
        r, theta = x.norm(dim=1, keepdim=True) / self.scale, torch.atan2(x[:, 1:], x[:, :1])
        near = r[:, 0] <= FURTHEST
        log = torch.empty_like(r[:, 0])
        log[near] = self._near(r[near], theta[near])
        log[~near] = self._far(r[~near])
        return log - 2 * math.log(self.scale)

    def entropy(self) -> float:
        """Return -E log p over the features of one arm: the others are rotations of it."""
        z = torch.arange(-160, 161, dtype=torch.float64) * (base.REACH / 160)
        grid = torch.cartesian_prod(z, z)
        weights = torch.softmax(-grid.square().sum(dim=1) / 2, dim=0)
        log = self._log_density(self._place(self._features(grid), torch.zeros(len(grid))))
        return -float(weights @ log)
