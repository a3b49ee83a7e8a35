"""Accumulators across processes: the sums of all shards, bit-identical on every rank."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from oism import Fourier, Hermite, TensorHermite
from oism.estimation import (
    FourierMoments,
    GaussianMoments,
    HermiteMoments,
    HistogramMoments,
    PairMoments,
    Spectrum,
    TensorHermiteMoments,
)
from oism.estimation._moments.sharing import (
    _backend_device,
    across_processes,
    check_same,
    gathered,
    of_first,
    processes,
    together,
)

RANKS = 3
DIM = 2
ROWS = (70, 0, 41)  # one rank has none
TENSORS: dict[str, Callable[[], Any]] = {
    "polynomials": lambda: HermiteMoments(Hermite(DIM, 4), 3),
    "products": lambda: TensorHermiteMoments(TensorHermite(DIM, 3), 3),
    "gaussian": lambda: GaussianMoments(TensorHermite(DIM, 2)),
    "waves": lambda: FourierMoments(Fourier.lattice(DIM, 4), 3, squares=True),
    "pairs": lambda: PairMoments(DIM, 1),
}
BYTES: dict[str, Callable[[], Any]] = {
    "pairs of bytes": lambda: PairMoments(DIM, 1),
    "counts": lambda: HistogramMoments(DIM, 1),
}


def shard(rank: int, kind: str) -> Tensor:
    """Rows of one rank, with its own centre and scale."""
    generator = torch.Generator().manual_seed(rank)
    x = torch.randn(ROWS[rank], DIM, generator=generator, dtype=torch.float64).exp()
    return (20 * x).clamp(max=255).byte() if kind in BYTES else (1 + rank) * x - 3 * rank


def gather(kind: str, rows: Tensor) -> Any:
    return (BYTES | TENSORS)[kind]().update(rows)


def state(accumulator: object) -> dict[str, Tensor | float]:
    return {
        name: part
        for name, part in vars(accumulator).items()
        if isinstance(part, Tensor | int | float)
    }


def refused(what: Callable[[], object]) -> str:
    try:
        what()
    except (ValueError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def fail_on(rank: int) -> None:
    with together():
        if rank == 1:
            raise ValueError("a row")


def work(rank: int) -> dict[str, Any]:
    """Return the results of one of three processes."""
    found: dict[str, Any] = {}
    for kind in BYTES | TENSORS:
        own = gather(kind, shard(rank, kind))
        before = copy.deepcopy(state(own))
        found[kind] = state(across_processes(own))
        for name, part in state(own).items():
            assert torch.equal(torch.as_tensor(part), torch.as_tensor(before[name])), name
    found["nothing"] = state(across_processes(PairMoments(DIM)))
    a, b, c, d = (torch.full((n,), float(rank)) for n in (3, 0, 2, 1))
    found["first"] = state(of_first(Spectrum(a, b, c, d, rest=float(rank))))
    found["gathered"] = gathered(rank**2)
    found["folds"] = refused(lambda: across_processes(PairMoments(DIM, 1 + (rank == 2))))
    found["kind"] = refused(lambda: across_processes(HermiteMoments(Hermite(DIM, 3 + rank))))
    mixed = HistogramMoments(DIM) if rank else PairMoments(DIM)
    found["type"] = refused(lambda: across_processes(mixed))
    found["failure"] = refused(lambda: fail_on(rank))
    found["same"] = refused(lambda: check_same(order=4, frame=None))
    found["other"] = refused(lambda: check_same(order=4, frame=2 * rank))
    # All ranks can still communicate after the errors.
    found["size"] = processes() * (gathered(rank) == [0, 1, 2])
    return found


@pytest.fixture(scope="module")
def ranks(on_ranks: Callable[[str, int], list[Any]]) -> list[Any]:
    return on_ranks(__file__, RANKS)


def equal(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, part in one.items():
        expected = torch.as_tensor(other[name])
        torch.testing.assert_close(torch.as_tensor(part), expected, rtol=0, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*BYTES, *TENSORS])
def test_every_rank_has_the_sums_in_the_order_of_ranks(ranks: list[Any], kind: str) -> None:
    first, *others = (gather(kind, shard(rank, kind)) for rank in range(RANKS))
    for other in others:
        first = first.merge(other)
    for found in ranks:
        equal(found[kind], state(first))


@pytest.mark.parametrize("kind", [*BYTES, *TENSORS])
def test_the_sums_agree_with_those_of_all_rows(ranks: list[Any], kind: str) -> None:
    whole = gather(kind, torch.cat([shard(rank, kind) for rank in range(RANKS)]))
    merged = gather(kind, shard(1, kind))  # of no rows
    vars(merged).update({name: ranks[2][kind][name] for name in state(whole)})
    if kind == "counts":
        assert torch.equal(merged.counts, whole.counts)
    elif kind.startswith("pairs"):
        for one, other in zip(merged.covariance(), whole.covariance(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    else:
        read = "averages" if kind == "waves" else "standardised"
        one, other = getattr(merged, read)(), getattr(whole, read)()
        if kind != "waves":
            torch.testing.assert_close(one.scale, other.scale, rtol=1e-10, atol=0)
            torch.testing.assert_close(one.shift, other.shift, rtol=1e-10, atol=1e-10)
            one, other = one.averages, other.averages
        torch.testing.assert_close(one.total, other.total, rtol=1e-9, atol=1e-9)


def test_no_rows_anywhere(ranks: list[Any]) -> None:
    for found in ranks:
        equal(found["nothing"], state(PairMoments(DIM)))


def test_numbers_and_none_are_shared(ranks: list[Any]) -> None:
    for found in ranks:
        assert found["gathered"] == [0, 1, 4]
        assert found["first"]["rest"] == 0.0
        assert [len(found["first"][name]) for name in ("mean", "directions", "sample")] == [3, 0, 2]
        assert float(found["first"]["mean"].abs().max()) == 0.0


def test_different_arguments_are_rejected_on_every_rank(ranks: list[Any]) -> None:
    kind = "ValueError: accumulator must be the same on every rank, but "
    for found in ranks:
        assert found["folds"].startswith(kind)
        assert found["folds"].endswith("on rank 2")
        assert found["kind"].startswith(f"{kind}_sums is torch.float64 (5, 5, 2) on rank 0 and")
        assert found["type"].startswith("ValueError: accumulator must be the same on every rank")
        assert found["same"] == "nothing"
        expected = "ValueError: frame must be the same on every rank, got 0 on rank 0 and 2 on rank"
        assert found["other"] == f"{expected} 1"
        assert found["size"] == RANKS


def test_an_error_on_one_rank_is_raised_on_all(ranks: list[Any]) -> None:
    told = [found["failure"] for found in ranks]
    failed = "RuntimeError: rank 1 failed: ValueError: a row"
    assert told == [failed, "ValueError: a row", failed]


def test_one_process_gets_its_arguments_back() -> None:
    assert not dist.is_initialized()
    assert processes() == 1
    for make in (BYTES | TENSORS).values():
        alone: Any = make()
        assert across_processes(alone) is alone
    value = object()
    assert of_first(value) is value
    assert gathered(value) == [value]
    check_same(order=object())
    with pytest.raises(KeyError, match="x"), together():
        raise KeyError("x")
    with pytest.raises(KeyError, match="x"), together(shared=False):
        raise KeyError("x")


@pytest.mark.parametrize(
    ("config", "device"),
    [("cpu:gloo,cuda:gloo", "cpu"), ("cpu:gloo,cuda:nccl", "cpu"), ("cuda:nccl", "cuda")],
)
def test_sums_are_sent_from_the_device_of_the_backend(
    monkeypatch: pytest.MonkeyPatch, config: str, device: str
) -> None:
    monkeypatch.setattr(dist, "get_backend_config", lambda: config)
    assert _backend_device().type == device
