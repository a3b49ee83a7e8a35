"""Brownian motion on the rotations SO(3), as unit quaternions of which q and -q are one point.

Time is that of the angle: the distance of two rotations is the angle ω of the rotation between
them, L = Δ in this metric, and for small t the rotation vector from X_0 to X_t is N(0, 2tI), in
radians. An angle ω is the distance ω/2 of quaternions on the unit sphere S³, so L = ¼Δ there
(g = ¼ in ``oism.process._three_sphere``), and the eigenvalues are -ℓ(ℓ + 1), as on the sphere S².

The transition density with respect to the Haar measure, normalised to 1,

    ρ_t(y|x) = Σ_{ℓ≥0} (2ℓ + 1) e^{-ℓ(ℓ+1)t} sin((2ℓ + 1)ω/2)/sin(ω/2) = ½(k_s(ω/2) + k_s(π - ω/2))

with s = t/4, is known as the isotropic Gaussian IGSO(3) with ε² = 2t (a variance of ε² for each
component of the rotation vector).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from oism._core import checks
from oism.process._base import Nodes
from oism.process._domain import Domain
from oism.process._three_sphere import (
    QuaternionProcess,
    QuaternionTransition,
    UniformQuaternions,
    is_unit,
    quaternions,
    unit,
)
from oism.storage import storable


def representative(q: Tensor) -> Tensor:
    """Return of q and -q the one whose first non-zero entry is positive: ``(n, 4)``."""
    entries = q.detach()
    first = entries.gather(1, (entries != 0).int().argmax(dim=1, keepdim=True))
    return torch.where(first < 0, -q, q)


@dataclass(frozen=True)
class RotationGroup(Domain):
    """Rotations as unit quaternions (w, x, y, z); `wrap` returns that of ±q with w > 0.

    If w = 0 the first other entry that is not zero is positive.

    >>> RotationGroup().wrap(torch.tensor([[-1.0, 0.0, 1.0, 0.0]]))
    tensor([[ 0.7071, -0.0000, -0.7071, -0.0000]])
    """

    def wrap(self, x: Tensor) -> Tensor:
        """Return ±x/‖x‖."""
        return self._wrap(quaternions(x))

    def _wrap(self, x: Tensor) -> Tensor:
        return representative(unit(x))

    def contains(self, x: Tensor) -> Tensor:
        """Return whether the norm is 1 up to 1e-4; both quaternions of a rotation are inside."""
        return is_unit(checks.points(x, dim=4))


@dataclass(frozen=True, eq=False)
class RotationTransition(QuaternionTransition):
    """X_t given X_0 = x; the mean is that of the path of quaternions on S³."""

    def sample(self, x: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Return one exact sample per row, with w ≥ 0."""
        return representative(super().sample(x, generator=generator))

    def log_density(self, y: Tensor, x: Tensor) -> Tensor:
        """Return log ρ_t(y|x) with respect to the Haar measure, ``(n,)``."""
        return torch.logaddexp(self._relative(y, x), self._relative(-y, x)) - math.log(2)

    def nodes(self, x: Tensor, count: int) -> Nodes:
        """Return the nodes on S³, with w ≥ 0: exact for Wigner degrees up to count/2 - 11."""
        points, weights = super().nodes(x, count)
        return representative(points.flatten(0, 1)).view_as(points), weights


@storable
@dataclass(frozen=True)
class Rotations(QuaternionProcess):
    """Brownian motion on SO(3): λ_ℓ = -ℓ(ℓ + 1), densities with respect to Haar measure (mass 1).

    >>> turn = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    >>> Rotations().transition(5.0).log_density(-turn, turn)  # nearly uniform: e^{-2t} = 5e-5
    tensor([0.0004])
    """

    domain = RotationGroup()
    invariant = UniformQuaternions(volume=1.0, even=True)
    rate = 0.25

    def _transition(self, t: Tensor) -> RotationTransition:
        return RotationTransition(self.rate * t)
