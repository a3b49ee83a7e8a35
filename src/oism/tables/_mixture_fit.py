"""Mixtures of Gaussians fitted to tables, and pooled by cross-validated likelihood.

Mixtures of 1, 2, 3, … components are fitted by expectation maximisation, from several starts. One
of them alone, chosen by a criterion, is fragile: another start or another number of components is
better on other rows. So all of them are *pooled*, p = Σ_i v_i p_i, with the weights v that maximise
the likelihood of rows that were held out (themselves found by expectation maximisation, which is
concave here). The pool is a mixture of Gaussians again.

A step needs two matrix products. With the features Φ = (1, x_i, x_ix_j) of all rows, the
log-densities of all components are ΦB, and the sums over responsibilities R are RᵀΦ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from oism._core import checks
from oism._core.progress import progress_bar
from oism.estimation import fold_of
from oism.tables._mixture import MixtureModel

COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""The numbers of components that are tried."""

ROWS_PER_COMPONENT = 3
STARTS = 3
FOLDS = 5
FEW_ROWS = 3000
"""Up to this number of rows all folds are held out in turn; above, one of them."""

FLOOR = 1e-4
"""The least variance of a component, in units of the whitened columns' variance."""

STEPS = 200
TOLERANCE = 1e-4
"""The largest number of steps, and the gain in mean log-likelihood below which they end."""

CLIP = 100.0
"""Whitened values are cut off here for the fit, so that outliers do not round others away."""

INNER = 10.0
"""Rows within so many robust standard deviations determine the whitening."""

LEAST_WEIGHT = 1e-3
"""Members of the pool below this weight are dropped."""

BACKGROUND_SCALE = 3.0
"""The standard deviations of the background component, in those of the columns."""


class Gaussians(NamedTuple):
    """A mixture in whitened columns."""

    log_weights: Tensor  # (k,)
    means: Tensor  # (k, d)
    covariances: Tensor  # (k, d, d)


@dataclass(frozen=True, eq=False)
class Features:
    """φ(x) = (1, x_i, x_ix_j) for i ≤ j, of rows ``(n, d)``."""

    values: Tensor
    rows: Tensor
    columns: Tensor

    @classmethod
    def of(cls, x: Tensor) -> Features:
        """Return the features of rows."""
        rows, columns = torch.triu_indices(x.shape[1], x.shape[1])
        return cls(torch.cat((torch.ones_like(x[:, :1]), x, x[:, rows] * x[:, columns]), dim=1),
                   rows, columns)  # fmt: skip

    def log_terms(self, mixture: Gaussians) -> Tensor:
        """Return log(w_k N_k) at all rows: ``(n, k)``."""
        means, dim = mixture.means, mixture.means.shape[1]
        factor = torch.linalg.cholesky(mixture.covariances)
        precision = torch.cholesky_inverse(factor)
        linear = (precision @ means[..., None])[..., 0]
        log_det = factor.diagonal(dim1=-2, dim2=-1).log().sum(dim=1)
        constant = mixture.log_weights - log_det - 0.5 * (linear * means).sum(dim=1)
        constant = constant - 0.5 * dim * math.log(2 * math.pi)
        twice = torch.where(self.rows == self.columns, 1.0, 2.0)
        square = -0.5 * precision[:, self.rows, self.columns] * twice
        return self.values @ torch.cat((constant[:, None], linear, square), dim=1).mT

    def maximised(self, share: Tensor) -> Gaussians:
        """Return the mixture of largest likelihood for responsibilities ``(n, k)``."""
        sums = share.mT @ self.values
        dim = int((math.isqrt(1 + 8 * len(self.rows)) - 1) // 2)
        mass = sums[:, :1].clamp(min=1e-10)
        means, second = sums[:, 1 : dim + 1] / mass, sums[:, dim + 1 :] / mass
        covariances = sums.new_zeros(len(sums), dim, dim)
        covariances[:, self.rows, self.columns] = second
        covariances[:, self.columns, self.rows] = second
        covariances = covariances - means[:, :, None] * means[:, None]
        covariances = covariances + FLOOR * torch.eye(dim).to(sums)
        return Gaussians((mass[:, 0] / len(share)).log(), means, covariances)


def fit_gaussians(x: Tensor, count: int, generator: torch.Generator) -> Gaussians:
    """Return a mixture of ``count`` Gaussians by expectation maximisation, of whitened rows."""
    features, last = Features.of(x), -math.inf
    mixture = features.maximised(clusters(x, count, generator))
    for _ in range(STEPS):
        terms = features.log_terms(mixture)
        total = torch.logsumexp(terms, dim=1, keepdim=True)
        reached = float(total.mean())
        if reached - last < TOLERANCE:
            break
        last, mixture = reached, features.maximised((terms - total).exp())
    return mixture


def clusters(x: Tensor, count: int, generator: torch.Generator, rounds: int = 5) -> Tensor:
    """Return the clusters of k-means++ after a few rounds, as responsibilities ``(n, count)``."""
    first = int(torch.randint(len(x), (), generator=generator))
    centres = [x[first]]
    nearest = (x - centres[0]).square().sum(dim=1)
    for _ in range(count - 1):
        # Rows that stand on a centre are not drawn again while there are others.
        chance = nearest + 1e-12 * nearest.max().clamp(min=1e-300)
        centres.append(x[int(torch.multinomial(chance, 1, generator=generator))])
        nearest = torch.minimum(nearest, (x - centres[-1]).square().sum(dim=1))
    middle = torch.stack(centres)
    for _ in range(rounds):
        own = torch.cdist(x, middle).argmin(dim=1)
        share = torch.nn.functional.one_hot(own, count).to(x)
        mass = share.sum(dim=0)[:, None]
        middle = torch.where(mass > 0, share.mT @ x / mass.clamp(min=1), middle)
    return share


def pool_weights(log_densities: Tensor, steps: int = 1000) -> Tensor:
    """Return the weights of models that maximise the likelihood of their pool, from ``(n, m)``.

    >>> pool_weights(torch.tensor([[0.0, -1.0], [0.0, -1.0], [-1.0, 0.0]]))
    tensor([0.8607, 0.1393])
    """
    weights = torch.full_like(log_densities[0], 1 / log_densities.shape[1])
    for _ in range(steps):
        share = torch.softmax(log_densities + weights.log(), dim=1).mean(dim=0)
        if float((share - weights).abs().max()) < 1e-7:
            break
        weights = share
    return weights


@dataclass(frozen=True, eq=False)
class Whitened:
    """Rows in whitened columns: z = (u - mean) rotation / deviations, u = (x - centre)/scale."""

    rows: Tensor
    centre: Tensor
    scale: Tensor
    mean: Tensor
    forth: Tensor  # z = (u - mean) @ forth
    back: Tensor  # u = z @ back + mean

    @classmethod
    def of(cls, x: Tensor) -> Whitened:
        """Return rows whose inner part has mean 0 and covariance I; outliers do not matter."""
        centre = x.median(dim=0).values
        low, high = torch.quantile(x, torch.tensor([0.1587, 0.8413]).to(x), dim=0)
        scale = 0.5 * (high - low)
        spread = x.std(dim=0, correction=0)
        # A column with more than two thirds of its rows at one value has no such width.
        scale = torch.where(scale > 1e-3 * spread.clamp(max=1e30), scale, spread)
        value = torch.where(centre != 0, centre.abs(), 1.0)
        scale = torch.where(scale > 1e-13 * centre.abs(), scale, value)
        u = (x - centre) / scale
        inner = u[(u.abs() < INNER).all(dim=1)]
        inner = inner if len(inner) > 1 else u
        mean = inner.mean(dim=0)
        values, vectors = torch.linalg.eigh((inner - mean).mT @ (inner - mean) / len(inner))
        deviations = values.clamp(min=0).sqrt()
        deviations = deviations.clamp(min=1e-6 * float(deviations.max().clamp(min=1e-6)))
        forth, back = vectors / deviations, (vectors * deviations).mT
        rows = ((u - mean) @ forth).clamp(-CLIP, CLIP)
        return cls(rows, centre, scale, mean, forth, back)

    def model(self, members: list[tuple[float, Gaussians]]) -> MixtureModel:
        """Return the pool of mixtures with its background, in the data's units."""
        n, dim = self.rows.shape
        wide = (BACKGROUND_SCALE**2) * torch.eye(dim).to(self.rows)
        share = 1 / (n + 1)
        weights = [(1 - share) * weight * one.log_weights.exp() for weight, one in members]
        covariances = [self.back.mT @ one.covariances @ self.back for _, one in members]
        joined = torch.cat((*weights, self.rows.new_full((1,), share)))
        means = torch.cat((*(one.means @ self.back for _, one in members), wide[:1] * 0))
        kept = joined > 1e-12
        return MixtureModel(
            self.centre,
            self.scale,
            joined[kept] / joined[kept].sum(),
            (means + self.mean)[kept],
            torch.cat((*covariances, (self.back.mT @ wide @ self.back)[None]))[kept],
        )


def fit_mixtures(
    data: Tensor,
    *,
    counts: tuple[int, ...] = COUNTS,
    starts: int = STARTS,
    seed: int = 0,
    progress: bool | None = None,
) -> MixtureModel:
    """Return a pool of Gaussian mixtures, weighted by the likelihood of held-out rows.

    Parameters
    ----------
    data
        Rows ``(n, d)``, finite.
    counts
        The numbers of components that are tried, as far as there are three rows for each.
    starts
        The number of random starts of each.
    seed
        Of the random starts.
    progress
        Show a progress bar; by default on a terminal, when a fit takes more than a second.

    Examples
    --------
    >>> rows = torch.randn(300, 4, generator=torch.Generator().manual_seed(0)).double()
    >>> model = fit_mixtures(rows, counts=(1, 2), starts=1)
    >>> model.log_density(torch.zeros(1, 4).double())  # the truth is -2 log 2π = -3.68
    tensor([-3.6...], dtype=torch.float64)
    """
    x = checks.points(data, "data").flatten(1).double()
    if not len(x):
        raise ValueError("data must hold at least one row, got none")
    white = Whitened.of(x)
    tried = [k for k in counts if k * ROWS_PER_COMPONENT <= len(x)] or [1]
    cases = [(k, start) for k in tried for start in range(starts if k > 1 else 1)]
    fold = fold_of(x, FOLDS)
    held = [one for one in range(FOLDS if len(x) <= FEW_ROWS else 1) if bool((fold == one).any())]
    held = [one for one in held if bool((fold != one).any())]

    def fitted(rows: Tensor, case: tuple[int, int]) -> Gaussians:
        source = torch.Generator().manual_seed(checks.integer(seed, "seed", minimum=0) + case[1])
        return fit_gaussians(rows, min(case[0], len(rows)), source)

    with progress_bar(progress) as bar:
        weights = torch.full((len(cases),), 1 / len(cases), dtype=torch.float64)
        if held and len(cases) > 1:
            bar.stage("mixtures of Gaussians", len(cases) * len(held))
            table = []
            for case in cases:
                parts = []
                for one in held:
                    mixture = fitted(white.rows[fold != one], case)
                    terms = Features.of(white.rows[fold == one]).log_terms(mixture)
                    parts.append(torch.logsumexp(terms, dim=1))
                    bar.advance(1)
                table.append(torch.cat(parts))
            weights = pool_weights(torch.stack(table, dim=1))
        members = [(float(w), case) for w, case in zip(weights, cases, strict=True)]
        members = [
            (w, case) for w, case in members if w > min(LEAST_WEIGHT, float(weights.max()))
        ] or (members)
        total = sum(w for w, _ in members)
        bar.stage("all rows", len(members))
        pool = []
        for weight, case in members:
            pool.append((weight / total, fitted(white.rows, case)))
            bar.advance(1)
    return white.model(pool)
