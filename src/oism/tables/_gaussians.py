"""Mixtures of Gaussians times tables of levels, by expectation maximisation or around the rows.

A component has a Gaussian for the continuous columns z, and for each categorical column its own
probabilities of the levels, independent within the component:

    p(z, c) = Σ_k w_k N(z; m_k, S_k) Π_j π_kj(c_j).

With the features Φ = (1, z_i, z_iz_j, [c_j = l]) of all rows, the log-densities of all components
are ΦB, and the sums over responsibilities R are RᵀΦ. So a step of expectation maximisation is two
matrix products. Leading dimensions are independent problems, for example folds and starts.

*Local Gaussians* have a component for every row, with C = h((1 - s) C_local + s tr(C_local)/d I) +
floor. C_local is the covariance of the nearest other rows, about the row or about their common
mean, which is then the mean of the component. They follow curved, narrow structure that no small
number of Gaussians covers, without a fit. About the mean, a curved surface is thinner than about
the row, which lies on one side of its chords; about the row, kernels can be narrow.

Continuous columns are whitened before, so that a floor has the same meaning in every direction.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

LEVEL_PRIOR = 1.0
"""Rows with the frequencies of the whole table that are added to each component's levels."""

LEVEL_DISTANCE = 2.0
"""The distance between two levels, in standard deviations of the continuous columns."""

LEAST_LOG = -700.0
"""The log-weight of a component that does not count."""

ENTRIES = 2**22
"""The number of log-densities, rows times components, held at a time."""


class Gaussians(NamedTuple):
    """Components in whitened columns; leading dimensions are problems."""

    log_weights: Tensor  # (..., k)
    means: Tensor  # (..., k, d)
    covariances: Tensor  # (..., k, d, d)
    log_levels: Tensor  # (..., k, l), of all categorical columns one after the other

    @property
    def coefficients(self) -> Tensor:
        """B: the log-densities w_k N_k π_k of all components are ΦB: ``(..., F, k)``."""
        dim = self.means.shape[-1]
        factor = torch.linalg.cholesky(self.covariances)
        precision = torch.cholesky_inverse(factor)
        linear = (precision @ self.means[..., None])[..., 0]
        log_det = factor.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)
        constant = self.log_weights - log_det - 0.5 * (linear * self.means).sum(dim=-1)
        constant = constant - 0.5 * dim * math.log(2 * math.pi)
        rows, columns = pairs(dim)
        twice = torch.where(rows == columns, 1.0, 2.0)
        square = -0.5 * precision[..., rows, columns] * twice.to(precision)
        return torch.cat((constant[..., None], linear, square, self.log_levels), dim=-1).mT

    def without(self, least: float) -> Gaussians:
        """Return the mixture without components of less weight, of which at least one is left.

        A component that has fewer than two rows is a peak of the height that the floor allows.
        """
        largest = self.log_weights.amax(dim=-1, keepdim=True)
        kept = (self.log_weights >= math.log(least)) | (self.log_weights == largest)
        logs = torch.where(kept, self.log_weights, LEAST_LOG)
        return self._replace(log_weights=logs - torch.logsumexp(logs, dim=-1, keepdim=True))

    def one(self, *index: int) -> Gaussians:
        """Return one of the problems."""
        return Gaussians(*(part[index] for part in self))


def pairs(dim: int) -> tuple[Tensor, Tensor]:
    """Return the indices i ≤ j of products of two columns."""
    rows, columns = torch.triu_indices(dim, dim)
    return rows, columns


def features(z: Tensor, levels: Tensor) -> Tensor:
    """Return Φ for whitened rows ``(..., n, d)`` and indicators of their levels ``(n, l)``."""
    dim = z.shape[-1]
    count = 1 + dim + dim * (dim + 1) // 2
    result = z.new_empty(*z.shape[:-1], count + levels.shape[-1])
    result[..., 0], result[..., 1 : dim + 1] = 1.0, z
    first = dim + 1
    for i in range(dim):  # without copies of the factors, which are as large as the result
        last = first + dim - i
        result[..., first:last] = z[..., i, None] * z[..., i:]
        first = last
    result[..., count:] = levels
    return result


def log_densities(phi: Tensor, mixture: Gaussians) -> Tensor:
    """Return the log-density of a mixture at rows with features ``(n, F)``: ``(n,)``."""
    matrix = mixture.coefficients
    step = max(1, ENTRIES // matrix.shape[-1])
    return torch.cat([torch.logsumexp(part @ matrix, dim=1) for part in torch.split(phi, step)])


def maximised(phi: Tensor, share: Tensor, dim: int, floor: float | Tensor) -> Gaussians:
    """Return the components of largest likelihood for responsibilities ``(..., n, k)``.

    ``floor`` is added to all variances: one number, or one for each problem.
    """
    sums = share.mT @ phi
    mass = sums[..., :1].clamp(min=1e-10)
    rows, columns = pairs(dim)
    count = 1 + dim + len(rows)
    means, second = sums[..., 1 : dim + 1] / mass, sums[..., dim + 1 : count] / mass
    covariances = sums.new_zeros(*sums.shape[:-1], dim, dim)
    covariances[..., rows, columns] = second
    covariances[..., columns, rows] = second
    covariances = covariances - means[..., :, None] * means[..., None, :]
    floors = torch.as_tensor(floor, dtype=sums.dtype)[..., None, None, None]
    covariances = covariances + floors * torch.eye(dim).to(sums)
    counts = sums[..., count:]
    total = mass.sum(dim=-2, keepdim=True)
    usual = (counts.sum(dim=-2, keepdim=True) / total).clamp(min=1e-12)
    levels = ((counts + LEVEL_PRIOR * usual) / (mass + LEVEL_PRIOR)).log()
    return Gaussians((mass / total)[..., 0].log(), means, covariances, levels)


def expectation_maximisation(
    phi: Tensor,
    start: Gaussians,
    weights: Tensor,
    *,
    floor: float | Tensor,
    steps: int,
    tolerance: float,
) -> Gaussians:
    """Return components after steps of expectation maximisation, for rows of these weights.

    ``phi`` is ``(..., n, F)`` and ``weights`` ``(..., n)``. The steps end when the mean
    log-likelihood of no problem grows by more than ``tolerance``.
    """
    mixture, dim = start, start.means.shape[-1]
    whole = weights.sum(dim=-1)
    last = torch.full(weights.shape[:-1], -math.inf, dtype=phi.dtype)
    for _ in range(steps):
        terms = phi @ mixture.coefficients
        total = torch.logsumexp(terms, dim=-1, keepdim=True)
        reached = (weights * total[..., 0]).sum(dim=-1) / whole
        if not bool((reached - last > tolerance).any()):
            break
        last = reached
        share = terms.sub_(total).exp_().mul_(weights[..., None])
        mixture = maximised(phi, share, dim, floor)
    return mixture


def clusters(z: Tensor, count: int, generator: torch.Generator, rounds: int = 5) -> Tensor:
    """Return the clusters of k-means++ after a few rounds, as responsibilities ``(n, count)``."""
    first = int(torch.randint(len(z), (), generator=generator))
    centres = [z[first]]
    nearest = (z - centres[0]).square().sum(dim=1)
    for _ in range(count - 1):
        # Rows that stand on a centre are not drawn again while there are others.
        chance = nearest + 1e-12 * nearest.max().clamp(min=1e-300)
        centres.append(z[int(torch.multinomial(chance, 1, generator=generator))])
        nearest = torch.minimum(nearest, (z - centres[-1]).square().sum(dim=1))
    middle = torch.stack(centres)
    for _ in range(rounds):
        own = torch.cdist(z, middle).argmin(dim=1)
        share = torch.nn.functional.one_hot(own, count).to(z)
        mass = share.sum(dim=0)[:, None]
        middle = torch.where(mass > 0, share.mT @ z / mass.clamp(min=1), middle)
    return share


def with_levels(z: Tensor, levels: Tensor) -> Tensor:
    """Return points whose distances count levels too: ``(n, d + l)``."""
    return torch.cat((z, LEVEL_DISTANCE / math.sqrt(2) * levels.to(z)), dim=1)


def neighbours(points: Tensor, count: int) -> Tensor:
    """Return the indices of the nearest other rows, nearest first: ``(n, count)``."""
    found = []
    step = max(1, ENTRIES // len(points))
    for first in range(0, len(points), step):
        distance = torch.cdist(points[first : first + step], points)
        own = torch.arange(len(distance))
        distance[own, first + own] = math.inf
        found.append(distance.topk(count, largest=False).indices)
    return torch.cat(found)


class Neighbourhood(NamedTuple):
    """How local Gaussians are made: from ``rows`` neighbours, with shrinkage s and width h.

    They are about the rows themselves, or about the means of their neighbourhoods.
    """

    rows: int
    shrinkage: float
    width: float
    about_mean: bool = False


def local_gaussians(
    z: Tensor, levels: Tensor, weights: Tensor, near: Tensor, how: Neighbourhood, floor: float
) -> Gaussians:
    """Return a component for each row; ``near`` are its nearest others, as by `neighbours`."""
    n, dim = z.shape
    near, eye = near[:, : how.rows], torch.eye(dim).to(z)
    means, covariances = torch.empty_like(z), z.new_empty(n, dim, dim)
    step = max(1, ENTRIES // (how.rows * dim))
    for k in range(0, n, step):
        part = slice(k, k + step)
        points = torch.cat((z[near[part]], z[part, None]), dim=1)
        means[part] = points.mean(dim=1) if how.about_mean else z[part]
        gap = points - means[part, None]
        local = gap.mT @ gap / near.shape[1]
        size = local.diagonal(dim1=1, dim2=2).mean(dim=1)[:, None, None]
        mixed = (1 - how.shrinkage) * local + how.shrinkage * size * eye
        covariances[part] = how.width * mixed + floor * eye
    weights = weights / weights.sum()
    own = levels.to(z)
    usual = (weights @ own).clamp(min=1e-12)
    counts = own + own[near].sum(dim=1) + LEVEL_PRIOR * usual
    log_levels = (counts / (near.shape[1] + 1 + LEVEL_PRIOR)).log()
    return Gaussians(weights.log(), means, covariances, log_levels)
