"""Kernel density estimates of directions and rotations with many widths: a dictionary for a pool.

The kernel of a point x_i of the unit sphere of ℝ^d is the von Mises-Fisher density

    k(x; x_i, κ) = C(κ) e^{κ(⟨x, x_i⟩ - 1)},

on S² per area, C = κ / (2π (1 - e^{-2κ})). Rotations are unit quaternions of which q and -q are one
point: the kernel is the mean of those of both on S³, with respect to the Haar measure of mass 1

    ½(k(x; q, κ) + k(x; -q, κ)) = κ/(2 I₁(κ)) cosh(κ⟨x, q⟩),    C = κ / (2 e^{-κ} I₁(κ)).

A *member* of the dictionary is (1/n) Σ_i k(x; x_i, κ_i), with one κ for all points, or with
κ_i = c/d_i² for the distance d_i to the k-th neighbour: narrow where points are dense. In two
dimensions d_i² is inversely proportional to the density, so this is Abramson's adaptive estimate
with a neighbour estimate as pilot. Which members are used, and with what weights, is decided by
held-out rows (`oism.tables._pool`).

*Samples are exact*: the depth 1 - ⟨x, x_i⟩ is drawn by the rejection of Ulrich and Wood, whose
proposal is a Möbius map of a Beta variable; more than two thirds of them are accepted.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from scipy.spatial import cKDTree
from torch import Tensor

from oism._core import draws
from oism.storage import storable
from oism.tables._pool import Densities

FIXED = tuple(4.0**power for power in range(1, 10))
NEIGHBOURS = (2, 4, 8, 16, 32, 64, 128)
SHARES = (1.0, 4.0)
"""The members: κ = 4, …, 262,144; and κ_i = c/d_i² for these k and c."""

LEAST_DISTANCE = 0.03
"""Distances are at least this share of their median: equal points have distance 0."""

ENTRIES = 2**22
"""The number of pairs of points held at a time."""


class KernelSpace(ABC):
    """The unit vectors of ℝ^dim; x and -x are one point if ``signs`` has both."""

    dim: ClassVar[int]
    signs: ClassVar[tuple[float, ...]] = (1.0,)

    @abstractmethod
    def log_scale(self, kappa: Tensor) -> Tensor:
        """Return log C(κ), the log-density of a kernel at its centre (for one sign)."""


@storable
@dataclass(frozen=True)
class SphereArea(KernelSpace):
    """The sphere S² with its area."""

    dim = 3

    def log_scale(self, kappa: Tensor) -> Tensor:
        """Return log κ/(2π(1 - e^{-2κ}))."""
        return torch.log(kappa / (2 * math.pi)) - torch.log(-torch.expm1(-2 * kappa))


@storable
@dataclass(frozen=True)
class RotationHaar(KernelSpace):
    """Rotations as unit quaternions with the Haar measure of mass 1."""

    dim = 4
    signs = (1.0, -1.0)

    def log_scale(self, kappa: Tensor) -> Tensor:
        """Return log κ/(2e^{-κ}I₁(κ))."""
        found: Tensor = torch.log(kappa / 2) - torch.special.i1e(kappa).log()
        return found


def concentrations(points: Tensor, rows: Tensor, signs: tuple[float, ...] = (1.0,)) -> Tensor:
    """Return κ of members at points ``(n, d)``: ``(m, n)``; ``rows`` are their numbers."""
    widest = max(NEIGHBOURS)
    count = len(points)
    if not len(rows):
        return torch.zeros(0, count, dtype=torch.float64)
    found = torch.full((count, widest), 2.0, dtype=torch.float64)  # the largest distance
    if count > 1:
        tree = cKDTree(torch.cat([sign * points for sign in signs]).numpy())
        near = tree.query(points.numpy(), min(count, widest + 1))[0][:, 1:]
        found[:, : near.shape[1]] = torch.from_numpy(near)
    members = [torch.full((count,), kappa, dtype=torch.float64) for kappa in FIXED]
    for k in NEIGHBOURS:
        distance = found[:, k - 1]
        least = LEAST_DISTANCE * float(distance.median())
        distance = distance.clamp(min=max(least, 1e-9))
        members += [share / distance.square() for share in SHARES]
    return torch.stack(members)[rows]


MEMBERS = len(FIXED) + len(NEIGHBOURS) * len(SHARES)


def vmf_depths(kappa: Tensor, dim: int, generator: torch.Generator | None) -> Tensor:
    """Return draws of 1 - ⟨x, centre⟩ for von Mises-Fisher x in ℝ^dim, one for each κ."""
    out, rows, power = torch.empty_like(kappa), torch.arange(len(kappa)), dim - 1
    b = power / (2 * kappa + torch.sqrt(4 * kappa.square() + power**2))
    while len(rows):
        flat = draws.normal_like(kappa.new_empty(len(rows), dim), generator)
        level = draws.uniform_like(kappa[rows], generator)
        # Beta((dim - 1)/2, (dim - 1)/2), the law of a coordinate of uniform directions
        share, own = 0.5 + 0.5 * flat[:, 0] / flat.norm(dim=1), b[rows]
        depth = 2 * own * share / (1 - (1 - own) * share)
        # with the cosine w and x₀ = (1 - b)/(1 + b): κ(w - x₀) + (dim - 1) log (1 - x₀w)/(1 - x₀²)
        ratio = 0.5 * (1 + own) * (1 + (1 - own) * depth / (2 * own))
        gain = kappa[rows] * (2 * own / (1 + own) - depth) + power * ratio.log()
        accepted = level.log() <= gain
        out[rows[accepted]] = depth[accepted]
        rows = rows[~accepted]
    return out


class KernelSums(Densities):
    """Σ_i w_i k(x; x_i, κ_ji) for unit vectors ``(n, d)``, weights ``(n,)`` and κ ``(m, n)``."""

    points: Tensor
    weights: Tensor
    kappa: Tensor

    def __init__(self, points: Tensor, weights: Tensor, kappa: Tensor, space: KernelSpace) -> None:
        super().__init__()
        self.register_buffer("points", points.double())
        weights, total = weights.double(), float(weights.double().sum())
        exact = abs(total - 1) < 1e-12  # dividing again would change a loaded object
        self.register_buffer("weights", weights if exact else weights / total)
        self.register_buffer("kappa", kappa.double())
        self.space = space

    @property
    def count(self) -> int:
        """The number of members."""
        return len(self.kappa)

    def log_densities(self, x: Tensor, **settings: Any) -> Tensor:  # noqa: ANN401, ARG002
        """Return the log-densities of all members at points ``(n, d)``: ``(n, m)``."""
        signs = self.space.signs
        result = torch.empty(len(signs), len(x), len(self.kappa), dtype=torch.float64)
        log_scale = self.space.log_scale(self.kappa) + self.weights.log()
        step = max(1, ENTRIES // len(self.points)) if len(self.kappa) else len(x) + 1
        for start in range(0, len(x), step):
            rows = slice(start, start + step)
            for s, sign in enumerate(signs):
                # ‖x - y‖²/2 = 1 - ⟨x, y⟩ without cancellation
                apart = (
                    -0.5
                    * torch.cdist(
                        sign * x[rows].double(),
                        self.points,
                        compute_mode="donot_use_mm_for_euclid_dist",
                    ).square_()
                )
                for j, (kappa, scale) in enumerate(zip(self.kappa, log_scale, strict=True)):
                    terms = torch.addcmul(scale, apart, kappa)
                    result[s, rows, j] = torch.logsumexp(terms, dim=1)
        return torch.logsumexp(result, dim=0) - math.log(len(signs))

    def sample(
        self,
        member: Tensor,
        generator: torch.Generator | None,
        **settings: Any,  # noqa: ANN401, ARG002
    ) -> Tensor:
        """Return one point for each entry of ``member`` ``(n,)``: ``(n, d)``, exact."""
        chosen = draws.multinomial(self.weights, len(member), generator)
        centre = self.points[chosen]
        depth = vmf_depths(self.kappa[member, chosen], self.space.dim, generator)[:, None]
        aside = draws.normal_like(centre, generator)
        aside = aside - (aside * centre).sum(dim=1, keepdim=True) * centre
        aside = aside / aside.norm(dim=1, keepdim=True)
        moved = (1 - depth) * centre + (depth * (2 - depth)).clamp(min=0).sqrt() * aside
        found: Tensor = moved / moved.norm(dim=1, keepdim=True)
        return found


@storable
class DirectionalKernels(KernelSums):
    """Members of the dictionary at points ``(n, d)`` with weights ``(n,)``.

    ``members`` ``(m,)`` are the numbers of those that are used, all by default.
    """

    members: Tensor

    def __init__(
        self,
        points: Tensor,
        weights: Tensor,
        members: Tensor | None = None,
        space: KernelSpace = SphereArea(),  # noqa: B008 (frozen)
    ) -> None:
        rows = torch.arange(MEMBERS) if members is None else members
        super().__init__(points, weights, concentrations(points.double(), rows, space.signs), space)
        self.register_buffer("members", rows)

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {name: getattr(self, name) for name in ("points", "weights", "members", "space")}
