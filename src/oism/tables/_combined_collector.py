"""A collector of several others, its *parts*: each takes the rows, and one model is made of theirs.

All members of the contract ask the parts here, once. A subclass defines `model`, and what each part
takes of the rows, if that is not all of them.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Generic, Self, TypeVar, cast

from torch import Tensor

from oism.tables._collector import Collector, Settings

P = TypeVar("P", bound=tuple[Collector, ...])


class CombinedCollector(Collector, Generic[P]):
    """The collectors ``parts``; the first one decides the number of rows and their folds."""

    def __init__(self, parts: P, settings: Settings) -> None:
        super().__init__(settings)
        self.parts: P = parts

    def _shared(self, rows: Tensor) -> Sequence[Tensor]:
        """Return what each part takes of rows ``(n, d)``: by default all of them."""
        return [rows] * len(self.parts)

    @property
    def count(self) -> float:
        """The effective number of rows."""
        return self.parts[0].count

    @property
    def choice(self) -> dict[str, Any] | None:
        """What the last model of a part was chosen by: the first choice that there is."""
        return next((one.choice for one in self.parts if one.choice is not None), None)

    def folds_of(self, rows: Tensor) -> Tensor | None:
        """Return the folds of rows by their content."""
        return self.parts[0].folds_of(self._shared(rows)[0])

    def prepare(self, weight: float) -> None:
        """Prepare all parts."""
        for one in self.parts:
            one.prepare(weight)

    def warn_of_outside(self, rows: Tensor) -> None:
        """Warn as the parts do."""
        for one, own in zip(self.parts, self._shared(rows), strict=True):
            one.warn_of_outside(own)

    def update(
        self,
        rows: Tensor,
        weights: Tensor,
        fold: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> None:
        """Add rows to all parts."""
        for one, own in zip(self.parts, self._shared(rows), strict=True):
            one.update(own, weights, fold, positions)

    def across_processes(self) -> Self:
        """Return the collector of the rows of all processes."""
        result = copy.copy(self)
        result.parts = cast("P", tuple(one.across_processes() for one in self.parts))
        return result
