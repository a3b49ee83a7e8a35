"""The prior of shards is that of the whole: two processes with unequal shards, one with none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from oism import fit_mixture, fit_prior
from oism.basis import CosineFrame, IdentityFrame
from oism.flow import Pixels
from oism.images import PCA, image_statistics

pytestmark = pytest.mark.slow

SHAPE = (1, 4, 4)
ROWS, FIRST = 220, 130
TAUS = (0.02, 0.1, 0.5)

CASES: dict[str, dict[str, Any]] = {
    "pca, order 2": {"order": 2},
    "pca, order 4": {"order": 4},
    "pixels, order 2": {"order": 2, "frame": IdentityFrame()},
    "pixels, order 4": {"order": 4, "frame": IdentityFrame()},
    "flips in pca": {"order": 4, "flip": True},
    "flips in pixels": {"order": 4, "flip": True, "frame": IdentityFrame()},
    "flips of cosines": {"order": 3, "flip": True, "frame": CosineFrame(SHAPE)},
    "not dequantised": {"order": 4, "dequantise": False},
    "the leading directions": {"order": 4, "frame": PCA(5)},
    "a fixed ridge": {"order": 4, "ridge": 0.1},
    "floats": {"order": 4},
    "floats of cosines": {"order": 4, "frame": CosineFrame(SHAPE)},
    "levels": {"order": 3, "pixels": Pixels(-400, 400)},
    "no rows on rank 0": {"order": 4},
    "no rows on rank 1": {"order": 4, "flip": True, "frame": IdentityFrame()},
}


def data(name: str) -> Tensor:
    """Return bytes, or numbers, whose distribution is neither Gaussian nor symmetric."""
    generator = torch.Generator().manual_seed(4)
    u = torch.rand(ROWS, *SHAPE, generator=generator, dtype=torch.float64)
    u = (u + torch.rand(ROWS, 1, 1, 1, generator=generator)) * torch.linspace(0.3, 1, 4)
    if name.startswith("floats"):
        return u.square() - 0.7
    values = (60 * u.square()).round()
    return values.long() - 100 if name == "levels" else values.byte()


def shard(rank: int, name: str) -> list[Tensor]:
    """Batches of unequal size; the second rank has fewer."""
    whole = data(name)
    if name.startswith("no rows"):
        own = whole[: 0 if name.endswith(str(rank)) else ROWS]
    else:
        own = whole[FIRST:] if rank else whole[:FIRST]
    return list(torch.split(own, 50)) if len(own) else []


def points() -> Tensor:
    return torch.randn(20, *SHAPE, generator=torch.Generator().manual_seed(5)).double()


def refused(rank: int, what: Callable[[], object]) -> str:
    try:
        what()
    except (NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def broken(rank: int, name: str) -> list[Tensor]:
    batches = shard(rank, name)
    if rank:
        batches[1][7] = torch.nan
    return batches


def once(rank: int) -> list[Tensor] | Iterator[Tensor]:
    return iter(shard(rank, "")) if rank else shard(rank, "")


def work(rank: int) -> dict[str, Any]:
    """What each of two processes finds."""
    found: dict[str, Any] = {}
    for name, options in CASES.items():
        prior = fit_prior(shard(rank, name), shared=True, **options)
        found[name] = prior.state_dict() | {"rest": torch.tensor(prior.rest or 0.0)}
        found[name] |= {f"noise {tau}": prior.noise(points(), tau) for tau in TAUS}
    statistics = image_statistics(shard(rank, ""), order=3, folds=4, shared=True)
    total = statistics.standard.averages.total
    found["statistics"] = {"mean": statistics.mean, "total": total}
    x, y = shard(rank, ""), shard(rank, "floats")
    flat = [batch.flatten(1) if rank else batch for batch in x]
    errors: dict[str, Callable[[], object]] = {
        "nan": lambda: fit_prior(broken(rank, "floats"), shared=True),
        "late nan": lambda: fit_prior(
            broken(rank, "floats"), frame=CosineFrame(SHAPE), shared=True
        ),
        "nothing": lambda: fit_prior([], shared=True),
        "no batches": lambda: fit_prior(torch.empty(0, *SHAPE), shared=True),
        "shapes": lambda: fit_prior(flat, shared=True),
        "kinds": lambda: fit_prior(y if rank else x, shared=True),
        "no data": lambda: fit_prior(3 if rank else x, shared=True),
        "order": lambda: fit_prior(x, order=2 + 2 * rank, shared=True),
        "bad order": lambda: fit_prior(x, order=2 - 2 * rank, shared=True),
        "flip": lambda: fit_prior(x, flip=rank == 1, shared=True),
        "frame": lambda: fit_prior(x, frame=PCA(3 + rank), shared=True),
        "frames": lambda: fit_prior(x, frame=IdentityFrame() if rank else None, shared=True),
        "once": lambda: fit_prior(once(rank), shared=True),
        "mixture": lambda: fit_mixture(x, shared=True),
    }
    found["errors"] = {name: refused(rank, what) for name, what in errors.items()}
    return found


@pytest.fixture(scope="module")
def ranks(on_ranks: Callable[[str, int], list[Any]]) -> list[Any]:
    return on_ranks(__file__, 2)


@pytest.mark.parametrize("name", CASES)
def test_the_prior_is_that_of_one_process(ranks: list[Any], name: str) -> None:
    whole = fit_prior(data(name), **CASES[name])
    for tau in TAUS:
        expected = whole.noise(points(), tau)
        found = ranks[1][name][f"noise {tau}"]
        off = (found - expected).abs().max() / expected.abs().max()
        assert float(off) < 1e-5
    half = fit_prior(data(name)[:FIRST], **CASES[name])
    away = (half.noise(points(), 0.1) - whole.noise(points(), 0.1)).abs().max()
    assert float(away) > 1e-2, "the prior of a shard alone differs"


@pytest.mark.parametrize("name", [*CASES, "statistics"])
def test_all_ranks_hold_the_same_bits(ranks: list[Any], name: str) -> None:
    one, other = (found[name] for found in ranks)
    assert one.keys() == other.keys()
    for part in one:
        torch.testing.assert_close(one[part], other[part], rtol=0, atol=0, equal_nan=True)


def test_statistics_are_those_of_one_process(ranks: list[Any]) -> None:
    whole = image_statistics(data(""), order=3, folds=4)
    found = ranks[0]["statistics"]
    torch.testing.assert_close(found["mean"], whole.mean, rtol=1e-12, atol=1e-12)
    total = whole.standard.averages.total
    torch.testing.assert_close(found["total"], total, rtol=1e-9, atol=1e-9)


ERRORS = {
    "nan": "ValueError: data must be finite, but row 57 holds NaN or infinity",
    "late nan": "ValueError: data must be finite, but row 57 holds NaN or infinity",
    "no data": "TypeError: data must be an array, a tensor or an iterable of batches, got int",
    "bad order": "ValueError: order must be an integer >= 1, got 0",
    "once": "TypeError: data must be readable twice",
}
SAME = {
    "nothing": "ValueError: data must hold at least one row, got none",
    "no batches": "ValueError: data must hold at least one row, got none",
    "shapes": "ValueError: data must be alike on every rank: rank 0 holds shape (1, 4, 4) and "
    "Pixels(low=0, high=255), rank 1 holds shape (16,) and Pixels(low=0, high=255)",
    "kinds": "ValueError: data must be alike on every rank: rank 0 holds shape (1, 4, 4) and "
    "Pixels(low=0, high=255), rank 1 holds shape (1, 4, 4) and None",
    "order": "ValueError: order must be the same on every rank, got 2 on rank 0 and 4 on rank 1",
    "flip": "ValueError: flip must be the same on every rank, got False on rank 0 and True",
    "frame": "ValueError: frame must be the same on every rank, got 'PCA(3)' on rank 0 and",
    "frames": "ValueError: frame must be the same on every rank, got 'PCA(None)' on rank 0",
    "mixture": "NotImplementedError: shared must be False for a mixture",
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_of_one_rank_ends_all(ranks: list[Any], name: str) -> None:
    first, second = (found["errors"][name] for found in ranks)
    assert second.startswith(ERRORS[name])
    assert first == f"RuntimeError: rank 1 failed: {second}"


@pytest.mark.parametrize("name", SAME)
def test_what_does_not_fit_together_is_refused_on_every_rank(ranks: list[Any], name: str) -> None:
    first, second = (found["errors"][name] for found in ranks)
    assert first == second
    assert first.startswith(SAME[name])


def test_without_other_processes_sharing_makes_no_difference() -> None:
    x = data("")
    alone, shared = fit_prior(x, order=3), fit_prior(x, order=3, shared=True)
    for name, part in alone.state_dict().items():
        assert torch.equal(part.nan_to_num(), shared.state_dict()[name].nan_to_num())
    fit_mixture(x, components=2, shared=True)
    with pytest.raises(ValueError, match="at least one row"):
        fit_prior([], shared=True)
