"""Estimates of E[φ] with a smaller risk than the sample mean, projected to moments of a density.

Given sample means θ̂_k with variances σ̂_k², a linear estimate γ_kθ̂_k has the risk
Σ γ_k²σ_k² + (1 - γ_k)²θ_k². The estimates differ in γ:

- `SampleMeans`: γ = 1;
- `JamesStein`: one γ for all, (1 - Σσ̂²/Σθ̂²)₊;
- `Modulation`: one γ_k for each k (the paper's), m/(σ̂² + m) with m = (θ̂² - σ̂²)₊;
- `Monotone`: not increasing in -λ (Beran and Dümbgen's monotone modulation): the isotonic
  regression of 1 - σ̂²/θ̂² with weights θ̂², within [0, 1].

With one γ for all, the estimate is a mixture with the invariant distribution (for Hermite: with the
Gaussian of the data), hence a probability distribution. With several γ_k it is not: no density has
these moments, A_t can be indefinite and the score unbounded. So moments are projected:

- on the torus the density is evaluated on a grid, clipped from below and normalised, and its
  moments are computed;
- Hermite moments are mixed with those of the Gaussian until E[φ_kφ_ℓ] is positive. P_t of a square
  is a sum of squares, so a functional that is positive on squares at t = 0 stays so at every t.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import scipy.optimize
import torch
from torch import Tensor


class Shrinkage(ABC):
    """An estimate γθ̂ of means; ``project`` asks for a projection to the moments of a density."""

    needs_variances: ClassVar[bool] = True
    keeps_positivity: ClassVar[bool] = False
    project: bool = True

    @abstractmethod
    def factors(self, means: Tensor, variances: Tensor, eigenvalues: Tensor) -> Tensor:
        """Return γ for means and their variances ``(*batch, size)``: the same shape."""

    def __call__(self, means: Tensor, variances: Tensor, eigenvalues: Tensor) -> Tensor:
        """Return γθ̂."""
        return self.factors(means, variances, eigenvalues) * means


@dataclass(frozen=True)
class SampleMeans(Shrinkage):
    """γ = 1."""

    needs_variances: ClassVar[bool] = False
    keeps_positivity: ClassVar[bool] = True

    def factors(self, means: Tensor, variances: Tensor, eigenvalues: Tensor) -> Tensor:  # noqa: ARG002
        """Return ones."""
        return torch.ones_like(means)


@dataclass(frozen=True)
class JamesStein(Shrinkage):
    """γ = (1 - Σσ̂²/Σθ̂²)₊ for all functions, the minimum of the unbiased estimate of the risk.

    >>> means, variances = torch.tensor([3.0, 0.5]), torch.tensor([1.0, 1.0])
    >>> JamesStein().factors(means, variances, torch.tensor([-1.0, -4.0]))
    tensor([0.7838, 0.7838])
    """

    keeps_positivity: ClassVar[bool] = True

    def factors(self, means: Tensor, variances: Tensor, eigenvalues: Tensor) -> Tensor:  # noqa: ARG002
        """Return one γ, repeated."""
        size = means.square().sum(dim=-1, keepdim=True)
        noise = variances.sum(dim=-1, keepdim=True)
        return (1 - noise / size.where(size > 0, 1.0)).clamp(min=0).expand_as(means)


@dataclass(frozen=True)
class Modulation(Shrinkage):
    """γ_k = m/(σ̂² + m) with m = (θ̂² - σ̂²)₊, the minimum of the paper's estimate of the risk.

    >>> means, variances = torch.tensor([3.0, 0.5]), torch.tensor([1.0, 1.0])
    >>> Modulation().factors(means, variances, torch.tensor([-1.0, -4.0]))
    tensor([0.8889, 0.0000])
    """

    project: bool = True

    def factors(self, means: Tensor, variances: Tensor, eigenvalues: Tensor) -> Tensor:  # noqa: ARG002
        """Return one γ for each function; 1 for functions that do not vary."""
        signal = (means.square() - variances).clamp(min=0)
        total = variances + signal
        return torch.where(total > 0, signal / total.where(total > 0, 1.0), 1.0)


@dataclass(frozen=True)
class Monotone(Shrinkage):
    """The γ with the smallest estimated risk that do not increase with -λ.

    Equal eigenvalues share one γ.

    >>> means, variances = torch.tensor([1.0, 2.0, 0.5]), torch.tensor([0.5, 0.5, 0.5])
    >>> Monotone().factors(means, variances, torch.tensor([-1.0, -4.0, -9.0]))
    tensor([0.8000, 0.8000, 0.0000])
    """

    project: bool = True

    def factors(self, means: Tensor, variances: Tensor, eigenvalues: Tensor) -> Tensor:
        """Return the isotonic regression of 1 - σ̂²/θ̂² on -λ with weights θ̂²."""
        rates, group = torch.unique(-eigenvalues, return_inverse=True)
        index = group.expand_as(means)
        zero = means.new_zeros(*means.shape[:-1], len(rates))
        tiny = torch.finfo(means.dtype).tiny
        weights = zero.scatter_add(-1, index, means.square()).clamp(min=tiny)
        targets = 1 - zero.scatter_add(-1, index, variances) / weights
        fitted = [
            scipy.optimize.isotonic_regression(y, weights=w, increasing=False).x
            for y, w in zip(
                targets.reshape(-1, len(rates)).double().numpy(),
                weights.reshape(-1, len(rates)).double().numpy(),
                strict=True,
            )
        ]
        gamma = torch.stack([torch.from_numpy(one.copy()) for one in fitted]).reshape(targets.shape)
        return gamma.clamp(0, 1).to(means).gather(-1, index)
