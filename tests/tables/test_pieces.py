"""Work on rows in pieces: the same results, with arrays of bounded size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from oism.tables import _pieces
from oism.tables._candidates import System
from oism.tables._column import Column
from oism.tables._gaussians import features
from oism.tables._joint import JointModel
from oism.tables._mixture import MixtureModel
from oism.tables._part import Identity, Part
from oism.tables._pieces import in_pieces, multiplied
from oism.tables._training_rows import TrainingRows

DIM, COMPONENTS, ROWS = 8, 3, 600
LIMIT = 6000


def source(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def mixture() -> MixtureModel:
    root = torch.randn(COMPONENTS, DIM, DIM, generator=source(), dtype=torch.float64)
    return MixtureModel(
        torch.zeros(DIM).double(),
        torch.ones(DIM).double(),
        torch.tensor([0.25, 0.25, 0.5]).double(),
        torch.randn(COMPONENTS, DIM, generator=source(1), dtype=torch.float64),
        0.2 * root @ root.mT + 0.1 * torch.eye(DIM).double(),
    )


def joint() -> JointModel:
    part = Part("plain", tuple(Identity() for _ in range(DIM)), mixture(), ())
    return JointModel(tuple(Column(str(j)) for j in range(DIM)), torch.ones(1).double(), (part,))


class Sizes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the largest number of entries of a tensor that an operation returns."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result._base is None:
            self.largest = max(self.largest, result.numel())
        return result


def rest_of(model: MixtureModel, x: Tensor) -> Tensor:
    which = torch.arange(len(x)) % COMPONENTS
    return model.draw_rest([0, 1], x[:, :2], which, source(2))


WORK: dict[str, Callable[[Tensor], Tensor]] = {
    "densities": lambda x: mixture().log_density(x),
    "log-terms": lambda x: mixture().log_terms(x),
    "scores": lambda x: mixture().score(x, 0.3),
    "samples": lambda x: mixture().sample(len(x), source()),
    "the other columns": lambda x: rest_of(mixture(), x),
    "densities of a pool": lambda x: joint().log_density(x),
}


@pytest.mark.parametrize("name", WORK)
def test_no_array_is_larger_than_a_piece(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole, the features of the rows have 45 columns, matrices of the rows up to 64 entries."""
    x = torch.randn(ROWS, DIM, generator=source(3), dtype=torch.float64)
    expected = WORK[name](x)
    monkeypatch.setattr(_pieces, "ENTRIES", LIMIT)
    with Sizes() as sizes:
        found = WORK[name](x)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    assert x.numel() <= sizes.largest <= LIMIT


@pytest.mark.parametrize("n", [0, 1, 7])
def test_pieces_of_any_number_of_rows(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_pieces, "ENTRIES", 6)
    x, t = torch.arange(2.0 * n).reshape(n, 2), torch.tensor(2.0)
    assert torch.equal(in_pieces(lambda x, t: x * t, 3, x, t), 2 * x)
    matrices, which = torch.randn(3, 4, 2, generator=source()), torch.arange(n) % 3
    expected = [matrices[k] @ row for k, row in zip(which, x, strict=True)]
    found = multiplied(matrices, which, x)
    assert found.shape == (n, 4)
    torch.testing.assert_close(found, torch.cat([row[None] for row in expected] or [found]))


def test_a_fit_holds_the_features_of_one_problem_at_a_time() -> None:
    """Of many rows; those of all problems together would be twice as many entries."""
    n, dim = 3200, 12
    x = torch.randn(n, dim, generator=source(), dtype=torch.float64)
    columns = tuple(Column(str(j)) for j in range(dim))
    train = torch.stack((torch.arange(n) % 5 > 0, torch.ones(n, dtype=torch.bool)))
    rows = TrainingRows(x, torch.zeros(n, 0).long(), torch.ones(n).double(), columns, (), train)
    with Sizes() as sizes:
        member = System("plain", rows).many_rows(2, 1e-4, 0)[0]
    assert len(member.held_out) == n // 5
    count = 1 + dim + dim * (dim + 1) // 2
    assert sizes.largest == n * count


def test_features_are_products_of_columns() -> None:
    z = torch.randn(2, 5, 3, generator=source(), dtype=torch.float64)
    levels = torch.nn.functional.one_hot(torch.arange(5) % 2)
    found = features(z, levels)
    first, second = torch.triu_indices(3, 3)
    parts = (torch.ones(2, 5, 1), z, z[..., first] * z[..., second], levels.expand(2, 5, 2))
    assert torch.equal(found, torch.cat(parts, dim=-1))
    assert torch.autograd.gradcheck(lambda z: features(z, levels), z.requires_grad_())
