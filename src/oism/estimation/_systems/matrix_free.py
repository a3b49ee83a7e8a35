"""What matrix-free systems share.

In preconditioned coordinates Λ^{½}α, where A_t tends to the identity as t grows, the penalty εP is
diagonal. With D = (ΛP)^{-½} the scaled system is (D A D + εI) y = -D b, α = D y, and all ridges
share one Krylov space.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from oism._core.user_warnings import warn
from oism.estimation._systems.conjugate import Operator, Solution
from oism.score import Solved, System

E = TypeVar("E")
"""Equations."""

KEPT = 64
"""The number of sets of equations that a system keeps."""

UNSOLVED = 1e-5
"""The relative residual above which there is a warning."""


@dataclass(frozen=True, eq=False)
class Scaled:
    """y ↦ D A D y."""

    operator: Operator
    scale: Tensor

    def __call__(self, y: Tensor) -> Tensor:
        """Return the product."""
        return self.scale * self.operator(self.scale * y)


class Solutions:
    """Solutions of several times with their diagnostics, filled in by runs of times."""

    def __init__(self, times: int, size: int) -> None:
        self.alpha = torch.zeros(times, size, dtype=torch.float64)
        self.smallest, self.largest, self._residual = torch.full(
            (3, times), torch.nan, dtype=torch.float64
        )
        self._iterations = torch.zeros(times, dtype=torch.int64)

    def record(self, run: list[int], found: Solution, weight: float = 1.0) -> None:
        """Keep the diagnostics of an iterative solution, its residuals with a weight."""
        self.smallest[run], self.largest[run] = found.smallest.cpu(), found.largest.cpu()
        self._iterations[run] = found.iterations.cpu()
        self._residual[run] = weight * found.residual.cpu()

    def solved(self, t: Tensor) -> Solved:
        """Return the solutions; warn if the equations of some time were not solved."""
        residual = self._residual.nan_to_num(nan=0.0)  # direct solutions have none
        if float(residual.max()) > UNSOLVED:
            worst = int(residual.argmax())
            warn(
                f"conjugate gradients stopped at a residual of {float(residual[worst]):.1e} at "
                f"t = {float(t[worst]):.3g}: the ridge is too small, or the moments are not those "
                "of a density",
                RuntimeWarning,
            )
        return Solved(self.alpha, self.smallest, self.largest, self._iterations)


class MatrixFreeSystem(System, Generic[E]):
    """A system that makes equations for averages and bands of functions, and keeps them."""

    caches: ClassVar[tuple[str, ...]] = ("_equations",)
    """The attributes that `_forget` makes, and that are not pickled."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        """Start with empty caches."""
        self._equations = lru_cache(maxsize=KEPT)(self._make_equations)

    @abstractmethod
    def _make_equations(self, part: str, band: float) -> E:
        """Return the equations of a part of the averages, for functions within a band."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without what is only kept for speed."""
        return {name: part for name, part in vars(self).items() if name not in self.caches}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget()
