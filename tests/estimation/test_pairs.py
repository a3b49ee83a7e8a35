from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from oism.estimation import PairMoments
from oism.estimation._moments.pairs import EXACT_ROWS

CENTRE = 128


def random_bytes(n: int, dim: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (n, dim), generator=generator).byte()


def normal(n: int, dim: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, dim, generator=generator, dtype=torch.float64) + 3


def folds_of(n: int, folds: int, seed: int = 1) -> Tensor:
    return torch.randint(0, folds, (n,), generator=torch.Generator().manual_seed(seed))


def brute(x: Tensor) -> tuple[np.ndarray, np.ndarray]:
    rows = x.double().numpy()
    return rows.mean(axis=0), np.atleast_2d(np.cov(rows.T, bias=True))


def agrees(moments: PairMoments, x: Tensor, tolerance: float = 1e-12) -> None:
    mean, covariance = moments.covariance()
    expected = brute(x)
    size = float(np.abs(expected[1]).max()) or 1.0
    np.testing.assert_allclose(mean.numpy(), expected[0], rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(covariance.numpy(), expected[1], rtol=0, atol=tolerance * size)


def exact_sums(x: Tensor) -> tuple[list[int], list[list[int]]]:
    """Return Σ(v - 128) and Σ(v - 128)(w - 128) by integer arithmetic."""
    shifted = x.numpy().astype(np.int64) - CENTRE
    return shifted.sum(axis=0).tolist(), (shifted.T @ shifted).tolist()


# --- bytes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 1000, EXACT_ROWS, EXACT_ROWS + 1, 5 * EXACT_ROWS + 7])
def test_sums_of_bytes_are_exact(n: int) -> None:
    x, fold = random_bytes(n, 7), folds_of(n, 3)
    moments = PairMoments(7, 3).update(x, fold)
    for f in range(3):
        first, second = exact_sums(x[fold == f])
        assert moments.count[f] == int((fold == f).sum())
        assert moments.first[f].tolist() == first
        assert moments.second[f].tolist() == second


@pytest.mark.parametrize("values", [(0, 0), (255, 255), (0, 255)])
def test_the_extremes_are_exact_over_many_blocks(values: tuple[int, int]) -> None:
    x = torch.tensor(values, dtype=torch.uint8).repeat(3 * EXACT_ROWS + 5, 1)
    x[1::7] = x[1::7].flip(1)  # odd totals, which rounding would change
    x[0] = torch.tensor([1, 254])
    moments = PairMoments(2, 1).update(x)
    first, second = exact_sums(x)
    assert moments.first[0].tolist() == first
    assert moments.second[0].tolist() == second


def test_bytes_without_folds_are_in_the_first_fold() -> None:
    x = random_bytes(50, 3)
    one, other = PairMoments(3, 4).update(x), PairMoments(3, 4).update(x, torch.zeros(50).long())
    assert torch.equal(one.second, other.second)
    assert one.used() == []
    agrees(one, x)


# --- any data --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_floats(dtype: torch.dtype) -> None:
    x = normal(3000, 4).to(dtype)
    agrees(PairMoments(4, 5).update(x, folds_of(3000, 5)), x)


def test_a_far_mean_does_not_cancel() -> None:
    x = 1e7 + 1e-2 * normal(500, 3)
    mean, covariance = PairMoments(3, 1).update(x).covariance()
    expected = np.cov((x - 1e7).numpy().T, bias=True)
    np.testing.assert_allclose(covariance.numpy(), expected, rtol=1e-5, atol=1e-5 * 1e-4)
    np.testing.assert_allclose(mean.numpy(), x.mean(dim=0).numpy(), rtol=1e-15)


@pytest.mark.parametrize("x", [random_bytes(400, 3), normal(400, 3)], ids=["bytes", "floats"])
def test_covariance_without_one_fold(x: Tensor) -> None:
    fold = folds_of(400, 4)
    moments = PairMoments(3, 4).update(x, fold)
    assert moments.used() == [0, 1, 2, 3]
    for f in range(4):
        mean, covariance = moments.covariance(without=f)
        expected = brute(x[fold != f])
        np.testing.assert_allclose(mean.numpy(), expected[0], rtol=1e-12)
        np.testing.assert_allclose(covariance.numpy(), expected[1], rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("x", [random_bytes(300, 4), normal(300, 4)], ids=["bytes", "floats"])
def test_spread_is_about_the_given_mean(x: Tensor) -> None:
    fold = folds_of(300, 2)
    moments = PairMoments(4, 2).update(x, fold)
    mean, directions = torch.tensor([1.0, 100.0, -3.0, 2.5]).double(), normal(3, 4, seed=2)
    for f in range(2):
        along = (x[fold == f].double() - mean) @ directions.mT
        expected = along.square().mean(dim=0)
        torch.testing.assert_close(
            moments.spread(f, mean, directions), expected, rtol=1e-11, atol=0
        )


def test_used_returns_the_folds_with_rows() -> None:
    x, fold = normal(20, 2), torch.tensor([1, 3]).repeat(10)
    assert PairMoments(2, 5).update(x, fold).used() == [1, 3]
    assert PairMoments(2, 5).update(x, torch.full((20,), 3)).used() == []


@given(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=5), exact=st.booleans())
@example(sizes=[0, 3], exact=False)
@example(sizes=[0, 3, 0], exact=True)
def test_batches_add_up(sizes: list[int], exact: bool) -> None:
    n = sum(sizes)
    x = random_bytes(n, 3) if exact else normal(n, 3)
    fold, moments = folds_of(n, 3), PairMoments(3, 3)
    for rows, own in zip(torch.split(x, sizes), torch.split(fold, sizes), strict=True):
        moments.update(rows, own)
    if n:
        agrees(moments, x)
    else:
        with pytest.raises(ValueError, match="data must hold at least one row, got none"):
            moments.covariance()


# --- merging and mirroring -------------------------------------------------------------------

PARTS = {
    "bytes": (random_bytes(80, 3), random_bytes(50, 3, seed=1)),
    "floats": (normal(80, 3), normal(50, 3, seed=1) - 20),
    "bytes with floats": (random_bytes(80, 3), normal(50, 3)),
    "floats with bytes": (normal(80, 3), random_bytes(50, 3)),
}


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS.keys())
def test_merging_equals_one_pass_over_both(parts: tuple[Tensor, Tensor]) -> None:
    x, fold = torch.cat([part.double() for part in parts]), folds_of(130, 2)
    one = PairMoments(3, 2).update(parts[0], fold[:80])
    other = PairMoments(3, 2).update(parts[1], fold[80:])
    kept = one.second.clone(), other.second.clone()
    for merged in (one.merge(other), other.merge(one)):
        agrees(merged, x)
        for f in range(2):
            assert merged.count[f] == int((fold == f).sum())
            np.testing.assert_allclose(
                merged.covariance(without=f)[1].numpy(),
                brute(x[fold != f])[1],
                rtol=1e-9,
                atol=1e-9,
            )
    assert torch.equal(one.second, kept[0]), "merging does not change its arguments"
    assert torch.equal(other.second, kept[1])


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS.keys())
def test_bytes_and_floats_can_be_added_to_one_accumulator(parts: tuple[Tensor, Tensor]) -> None:
    x = torch.cat([part.double() for part in parts])
    agrees(PairMoments(3, 1).update(parts[0]).update(parts[1]), x)


def test_merging_with_an_empty_accumulator() -> None:
    x = normal(30, 3)
    full, empty = PairMoments(3, 2).update(x, folds_of(30, 2)), PairMoments(3, 2)
    agrees(full.merge(empty), x)
    agrees(empty.merge(full), x)
    agrees(empty.merge(full).update(x), torch.cat((x, x)))
    with pytest.raises(ValueError, match="data must hold at least one row, got none"):
        empty.merge(PairMoments(3, 2)).covariance()


def test_merging_different_accumulators_is_rejected() -> None:
    moments = PairMoments(3, 2)
    for other in (PairMoments(2, 2), PairMoments(3, 3)):
        with pytest.raises(ValueError, match="other must have the dim and folds"):
            moments.merge(other)
    with pytest.raises(TypeError, match="other must be of type PairMoments, got int"):
        moments.merge(1)  # type: ignore[arg-type]


@pytest.mark.parametrize("x", [random_bytes(200, 6), normal(200, 6)], ids=["bytes", "floats"])
def test_mirrored_moments_include_the_mirror_images(x: Tensor) -> None:
    mirror = torch.arange(6).reshape(2, 3).flip(-1).flatten()
    fold = folds_of(200, 3)
    moments = PairMoments(6, 3).update(x, fold).mirrored(mirror)
    flipped = x.reshape(-1, 2, 3).flip(-1).reshape(-1, 6)
    agrees(moments, torch.cat((x, flipped)))
    both, also = torch.cat((x, flipped)), torch.cat((fold, fold))
    for f in range(3):
        np.testing.assert_allclose(
            moments.covariance(without=f)[1].numpy(),
            brute(both[also != f])[1],
            rtol=1e-9,
            atol=1e-9,
        )


def test_sizes_are_checked() -> None:
    with pytest.raises(ValueError, match="dim must be an integer >= 1, got 0"):
        PairMoments(0)
    with pytest.raises(ValueError, match="folds must be an integer >= 1, got 0"):
        PairMoments(2, 0)
    with pytest.raises(TypeError, match=r"folds must be an integer >= 1, got float 1.5"):
        PairMoments(2, 1.5)  # type: ignore[arg-type]
