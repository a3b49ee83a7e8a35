"""The contract between equations and what is chosen about them.

A *system* holds the averages of one family of functions and can do two things at any times: report
the held-out loss αᵀAα + 2bᵀα of every candidate regularisation, fold by fold, and solve for one
that was chosen. A candidate is a pair (level, ridge): a level is a truncation of the family, the
richest first, a ridge ε a number ≥ 0. Both may lie between the candidates when they are solved for,
so that they, and with them α(t), can vary smoothly with t.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor

RIDGES = torch.logspace(-6, 1, 15, dtype=torch.float64)
"""The candidates for ε, two a decade."""


@dataclass(frozen=True, eq=False)
class Solved:
    """Coefficients with their diagnostics, ``(T, *shape)``.

    ``smallest`` and ``largest`` are the extreme eigenvalues of the scaled matrix without its ridge,
    or NaN (see `System.diagnose`); ``iterations`` is 0 for direct solves.
    """

    alpha: Tensor
    smallest: Tensor
    largest: Tensor
    iterations: Tensor


@dataclass(frozen=True, eq=False)
class Losses:
    """Held-out losses ``(folds, T, *batch, levels, ridges)``; +∞ or NaN where there is none."""

    values: Tensor
    shares: Tensor
    ridges: Tensor = field(default_factory=lambda: RIDGES)


class System(ABC):
    """The equations of one family, their candidates and their solution."""

    levels: int
    """The number of truncations, the richest first."""

    batch: tuple[int, ...] = ()
    """The shape of independent choices: one for all, or one per coordinate."""

    untruncated: float = 0.0
    """The level at which nothing is cut off."""

    @abstractmethod
    def losses(self, t: Tensor) -> Losses:
        """Return the held-out losses of all candidates at times ``(T,)``."""

    @abstractmethod
    def solve(self, t: Tensor, ridge: Tensor, level: Tensor, start: Tensor | None = None) -> Solved:
        """Return α at times ``(T,)`` for ridges and real-valued levels ``(T, *batch)``.

        ``start`` is a guess for α that iterative solvers begin with.
        """

    def diagnose(self, t: Tensor, ridge: Tensor, level: Tensor) -> Solved:
        """Return the solution with the extreme eigenvalues of the matrix."""
        return self.solve(t, ridge, level)

    @property
    def has_choice(self) -> bool:
        """Whether ridge and level make any difference."""
        return True

    @abstractmethod
    def norm(self, t: Tensor, alpha: Tensor) -> Tensor:
        """Return (αᵀA_tα)^½, the size of a score in L²(ρ_t): ``(T,)``."""
