"""Kernel density estimates on the sphere with many widths: a dictionary for a pool.

The kernel of a point x_i is the von Mises-Fisher density with respect to area,

    k(x; x_i, κ) = κ / (2π (1 - e^{-2κ})) · e^{κ(⟨x, x_i⟩ - 1)}.

A *member* of the dictionary is (1/n) Σ_i k(x; x_i, κ_i), with one κ for all points, or with
κ_i = c/d_i² for the distance d_i to the k-th neighbour: narrow where points are dense. In two
dimensions d_i² is inversely proportional to the density, so this is Abramson's adaptive estimate
with a neighbour estimate as pilot. Which members are used, and with what weights, is decided by
held-out rows (`oism.tables._pool`).
"""

from __future__ import annotations

import math

import torch
from scipy.spatial import cKDTree
from torch import Tensor, nn

from oism.process import tangent_frame
from oism.storage import storable

FIXED = tuple(4.0**power for power in range(1, 10))
NEIGHBOURS = (2, 4, 8, 16, 32, 64, 128)
SHARES = (1.0, 4.0)
"""The members: κ = 4, …, 262,144; and κ_i = c/d_i² for these k and c."""

LEAST_DISTANCE = 0.03
"""Distances are at least this share of their median: equal points have distance 0."""

ENTRIES = 2**22
"""The number of pairs of points held at a time."""


def concentrations(points: Tensor, rows: Tensor) -> Tensor:
    """Return κ of members at points ``(n, 3)``: ``(m, n)``; ``rows`` are their numbers."""
    widest = max(NEIGHBOURS)
    count = len(points)
    found = torch.full((count, widest), 2.0, dtype=torch.float64)  # the largest distance
    if count > 1:
        near = cKDTree(points.numpy()).query(points.numpy(), min(count, widest + 1))[0][:, 1:]
        found[:, : near.shape[1]] = torch.from_numpy(near)
    members = [torch.full((count,), kappa, dtype=torch.float64) for kappa in FIXED]
    for k in NEIGHBOURS:
        distance = found[:, k - 1]
        least = LEAST_DISTANCE * float(distance.median())
        distance = distance.clamp(min=max(least, 1e-9))
        members += [share / distance.square() for share in SHARES]
    return torch.stack(members)[rows]


MEMBERS = len(FIXED) + len(NEIGHBOURS) * len(SHARES)


@storable
class DirectionalKernels(nn.Module):
    """Members of the dictionary at points ``(n, 3)`` with weights ``(n,)``.

    ``members`` ``(m,)`` are the numbers of those that are used, all by default.
    """

    points: Tensor
    weights: Tensor
    members: Tensor
    kappa: Tensor

    def __init__(self, points: Tensor, weights: Tensor, members: Tensor | None = None) -> None:
        super().__init__()
        rows = torch.arange(MEMBERS) if members is None else members
        self.register_buffer("points", points.double())
        self.register_buffer("weights", weights.double() / float(weights.sum()))
        self.register_buffer("members", rows)
        self.register_buffer("kappa", concentrations(points.double(), rows))

    def to_config(self) -> dict[str, Tensor]:
        """Return the arguments of the constructor."""
        return {"points": self.points, "weights": self.weights, "members": self.members}

    def log_densities(self, x: Tensor) -> Tensor:
        """Return the log-densities of all members at points ``(n, 3)``: ``(n, m)``."""
        result = torch.empty(len(x), len(self.members), dtype=torch.float64)
        if not len(self.members):
            return result
        log_scale = torch.log(self.kappa / (2 * math.pi)) - torch.log(-torch.expm1(-2 * self.kappa))
        log_scale = log_scale + self.weights.log()
        step = max(1, ENTRIES // len(self.points))
        for start in range(0, len(x), step):
            # ‖x - y‖²/2 = 1 - ⟨x, y⟩ without cancellation
            apart = (
                -0.5
                * torch.cdist(
                    x[start : start + step].double(),
                    self.points,
                    compute_mode="donot_use_mm_for_euclid_dist",
                ).square_()
            )
            for j, (kappa, scale) in enumerate(zip(self.kappa, log_scale, strict=True)):
                terms = torch.addcmul(scale, apart, kappa)
                result[start : start + step, j] = torch.logsumexp(terms, dim=1)
        return result

    def sample(self, member: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return one point for each entry of ``member`` ``(n,)``: ``(n, 3)``, exact."""
        n = len(member)
        chosen = (
            torch.multinomial(self.weights, n, replacement=True, generator=generator)
            if n
            else member
        )
        kappa, centre = self.kappa[member, chosen], self.points[chosen]
        uniform = torch.empty(n, dtype=torch.float64).uniform_(generator=generator)
        # 1 - cos of the angle, by the inverse distribution function
        depth = -torch.log1p(uniform * torch.expm1(-2 * kappa)) / kappa
        turn = torch.empty(n, 1, dtype=torch.float64).uniform_(0, 2 * math.pi, generator=generator)
        first, second = tangent_frame(centre)
        across = (depth * (2 - depth)).clamp(min=0).sqrt()[:, None]
        moved = (1 - depth)[:, None] * centre + across * (turn.cos() * first + turn.sin() * second)
        found: Tensor = moved / moved.norm(dim=1, keepdim=True)
        return found
