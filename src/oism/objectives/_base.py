"""The contract of an objective: terms at noised points, their mean, and their P_t form.

An objective is E_t[h(X_t)] for a function h made of a model and the operators of the process. It is
estimated from clean data in two ways: by the mean over draws of X_t, or by the mean of P_th over
the clean points, since E[h(X_t)] = E[P_th(X_0)].
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor

from oism._core import checks
from oism.objectives._models import Model
from oism.process import Process, Rule, Semigroup


@dataclass(frozen=True)
class Objective(ABC):
    """An objective of a process, which is minimised over models."""

    process: Process

    def __post_init__(self) -> None:
        checks.instance(self.process, Process, "process")

    @abstractmethod
    def _terms(self, model: Model, x: Tensor, t: Tensor | float) -> Tensor:
        """Return the terms at checked points."""

    def terms(self, model: Model, x: Tensor, t: Tensor | float) -> Tensor:
        """Return h at noised points ``(n, *shape)``: ``(n,)``; t is one number or one per row."""
        return self._terms(model, checks.points(x), t)

    def __call__(self, model: Model, x: Tensor, t: Tensor | float) -> Tensor:
        """Return the mean over draws of X_t, as ``process.transition(t).sample`` makes them."""
        terms = self.terms(model, x, t)
        if not len(terms):
            raise ValueError("x must have at least one point to average over, got none")
        return terms.mean()

    def on_clean(
        self, model: Model, x: Tensor, t: Tensor | float, rule: Rule | None = None
    ) -> Tensor:
        """Return P_th at clean points ``(n, *shape)``: ``(n,)``, for one time t.

        ``rule`` is quadrature in at most three dimensions and Monte Carlo above, unless given; see
        `oism.process.Semigroup`.
        """
        semigroup = Semigroup(self.process, t, rule)
        return semigroup(lambda y: self.terms(model, y, t))(x)
