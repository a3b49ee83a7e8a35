"""A collector of collectors: what its parts are asked, and that nothing is left out."""

from __future__ import annotations

from typing import Any, Self

import pytest
import torch
from torch import Tensor

from oism.process import Torus
from oism.tables import Columns
from oism.tables._collector import Collector, Settings
from oism.tables._combined_collector import CombinedCollector
from oism.tables._joint_family import JointFamily, MixtureFamily
from oism.tables._torus import TorusFamily
from oism.tables._torus_or_mixture import TorusOrMixtureFamily


class Noted(Collector):
    """A part that notes what it is asked."""

    def __init__(self, size: float, choice: dict[str, Any] | None = None) -> None:
        super().__init__(Settings())
        self.size, self.found, self.asked = size, choice, dict[str, Any]()

    @property
    def count(self) -> float:
        return self.size

    @property
    def choice(self) -> dict[str, Any] | None:
        return self.found

    def folds_of(self, rows: Tensor) -> Tensor:
        return rows[:, 0].long()

    def prepare(self, weight: float) -> None:
        self.asked["prepare"] = weight

    def warn_of_outside(self, rows: Tensor) -> None:
        self.asked["warn_of_outside"] = rows

    def update(
        self,
        rows: Tensor,
        weights: Tensor,
        fold: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> None:
        self.asked["update"] = rows, weights, fold, positions

    def across_processes(self) -> Self:
        return type(self)(10 * self.size)

    def model(self) -> Any:
        raise NotImplementedError


class Halves(CombinedCollector[tuple[Noted, Noted]]):
    """One column for each part."""

    def _shared(self, rows: Tensor) -> list[Tensor]:
        return [rows[:, :1], rows[:, 1:]]

    def model(self) -> Any:
        raise NotImplementedError


@pytest.fixture
def halves() -> Halves:
    return Halves((Noted(3.0), Noted(4.0, {"taken": "second"})), Settings())


def test_all_parts_are_asked(halves: Halves) -> None:
    rows, weights = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.ones(2)
    fold, positions = torch.tensor([0, 1]), torch.tensor([8, 9])
    halves.prepare(5.0)
    halves.warn_of_outside(rows)
    halves.update(rows, weights, fold, positions)
    for j, part in enumerate(halves.parts):
        own = rows[:, j : j + 1]
        assert part.asked["prepare"] == 5.0
        assert torch.equal(part.asked["warn_of_outside"], own)
        given = part.asked["update"]
        assert torch.equal(given[0], own)
        assert given[1:] == (weights, fold, positions)


def test_the_first_part_has_the_rows(halves: Halves) -> None:
    assert halves.count == 3.0
    fold = halves.folds_of(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert fold is not None
    assert fold.tolist() == [1, 3]
    assert halves.choice == {"taken": "second"}  # the first that there is


def test_parts_are_those_of_all_processes(halves: Halves) -> None:
    whole = halves.across_processes()
    assert [part.size for part in whole.parts] == [30.0, 40.0]
    assert [part.size for part in halves.parts] == [3.0, 4.0]


def test_the_contract_says_whether_a_mixture_may_take_the_place() -> None:
    class Renamed(TorusFamily):
        name = "waves"

    columns = Columns.of(2, None, None, None, None)
    family = Renamed(Torus())
    assert isinstance(TorusOrMixtureFamily.of(family, columns), TorusOrMixtureFamily)
    for kind in (JointFamily, MixtureFamily):
        other = kind(kind.process_type())
        assert TorusOrMixtureFamily.of(other, columns) is other
