"""Properties of every accumulator: accepted data, weights, folds and merging."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import scipy.sparse
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from oism import Fourier, Hermite, OrnsteinUhlenbeck, TensorHermite
from oism.basis import Basis, OrthogonalFrame
from oism.estimation import (
    FourierMoments,
    GaussianMoments,
    HermiteFamilyMoments,
    HermiteMoments,
    Moments,
    TensorHermiteMoments,
    fold_of,
    gather,
    moments_of,
)
from oism.estimation._moments.rows import rows

OU = OrnsteinUhlenbeck(theta=0.7, sigma=1.3)
EXACT = 1e-12  # the accuracy of merging, relative to max(1, |value|)


def normal(n: int, dim: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * dim + seed)
    return torch.randn(n, dim, generator=generator, dtype=torch.float64)


def rotated(dim: int) -> OrthogonalFrame:
    return OrthogonalFrame(torch.linalg.qr(normal(dim, dim))[0])


BASES: dict[str, tuple[Basis, bool]] = {
    "fourier, circle, squares": (Fourier.lattice(1, 25), True),
    "fourier, T3": (Fourier.lattice(3, 2), False),
    "fourier, T4": (Fourier.lattice(4, 2), False),
    "hermite": (Hermite(2, 4), False),
    "hermite, rotated, squares": (Hermite(3, 4, OU, rotated(3)), True),
    "hermite, order one": (Hermite(2, 1), False),
    "tensor hermite": (TensorHermite(3, 3), False),
    "tensor hermite, rotated, squares": (TensorHermite(2, 3, OU, rotated(2)), True),
    "gaussian": (TensorHermite(5, 2, OU, rotated(5)), False),
}
kinds = pytest.mark.parametrize(("basis", "squares"), BASES.values(), ids=BASES.keys())
one_of_each = pytest.mark.parametrize(
    "basis",
    [Fourier.lattice(2, 2), Hermite(2, 3), TensorHermite(2, 3), TensorHermite(2, 2)],
    ids=["fourier", "hermite", "tensor hermite", "gaussian"],
)


def sample(n: int, dim: int, seed: int = 0) -> Tensor:
    """Skewed rows with a mean, and a different deviation in each column."""
    z = normal(n, dim, seed)
    return (1 + 0.5 * torch.arange(dim)) * (z + 0.2 * z.square()) - 0.4


def positive(n: int) -> Tensor:
    return 0.1 + torch.rand(n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)


def reported(moments: Moments) -> dict[str, Tensor]:
    """Return everything that an accumulator reports, as real tensors."""
    names = ("total", "training", "heldout", "shares", "counts")
    if isinstance(moments, FourierMoments):
        result = {name: getattr(moments.averages(), name) for name in names}
        if moments.squares:
            result |= {f"doubled {name}": getattr(moments.doubled(), name) for name in names}
        result |= {"low": moments.low, "high": moments.high}
    else:
        assert isinstance(moments, HermiteFamilyMoments)
        standard = moments.standardised()
        result = {name: getattr(standard.averages, name) for name in names}
        for name in ("shift", "scale", "low", "high", "rotation"):
            value = getattr(standard, name)
            if value is not None:
                result[name] = value
    return {k: torch.view_as_real(v) if v.is_complex() else v for k, v in result.items()}


def distance(left: Moments, right: Moments, *without: str) -> float:
    """Return the largest difference of two reports, relative to max(1, |value|)."""
    one, two = reported(left), reported(right)
    assert one.keys() == two.keys()
    worst = 0.0
    for name in one.keys() - set(without):
        assert one[name].shape == two[name].shape, name
        assert bool(one[name].isfinite().all()), name
        if one[name].numel():
            error = (one[name] - two[name]).abs() / two[name].abs().clamp(min=1)
            worst = max(worst, float(error.max()))
    return worst


def merged(accumulators: list[Moments]) -> Moments:
    result = accumulators[0]
    for other in accumulators[1:]:
        result = result.merge(other)
    return result


# --- merging ---------------------------------------------------------------------------------


@kinds
def test_seven_random_splits_merge_to_one_pass(basis: Basis, squares: bool) -> None:
    x, w = sample(1400, basis.dim), positive(1400)
    part = torch.randint(7, (1400,), generator=torch.Generator().manual_seed(3))
    pieces = [
        moments_of(basis, 4, squares=squares).update(x[part == k], w[part == k]) for k in range(7)
    ]
    whole = moments_of(basis, 4, squares=squares).update(x, w)
    assert len(reported(whole)["shares"]) == 4
    for one in (merged(pieces), merged(pieces[::-1])):
        assert one.count == whole.count
        assert distance(one, whole) < EXACT


@kinds
def test_merging_is_associative_and_commutative(basis: Basis, squares: bool) -> None:
    a, b, c = (
        moments_of(basis, squares=squares).update(sample(n, basis.dim, n)) for n in (60, 300, 150)
    )
    assert distance(a.merge(b).merge(c), a.merge(b.merge(c))) < EXACT
    assert distance(a.merge(b), b.merge(a)) < EXACT


@kinds
def test_an_empty_accumulator_is_neutral(basis: Basis, squares: bool) -> None:
    empty = moments_of(basis, squares=squares)
    full = moments_of(basis, squares=squares).update(sample(200, basis.dim), positive(200))
    assert distance(full.merge(empty), full) == 0
    assert distance(empty.merge(full), full) < EXACT
    assert empty.merge(full).count == full.merge(empty).count == 200
    with pytest.raises(ValueError, match="data must hold at least one row"):
        empty.merge(empty).check()


@kinds
@pytest.mark.parametrize("sizes", [(50, 300), (300, 50)])
def test_merging_does_not_change_its_arguments(
    basis: Basis, squares: bool, sizes: tuple[int, int]
) -> None:
    sides = [
        moments_of(basis, squares=squares).update(sample(n, basis.dim, n) + n / 100) for n in sizes
    ]
    before = copy.deepcopy(sides)
    result = sides[0].merge(sides[1])
    result.update(sample(70, basis.dim, 9))  # they share no memory with the result
    for side, was in zip(sides, before, strict=True):
        for name, value in vars(was).items():
            now = vars(side)[name]
            if isinstance(value, Tensor):
                assert torch.equal(now, value), name
            elif name != "basis":
                assert now == value, name


def test_merging_different_accumulators_is_rejected() -> None:
    other = OrthogonalFrame(torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64))
    one = HermiteMoments(Hermite(2, 3))
    for two in (
        HermiteMoments(Hermite(2, 3), 4),
        HermiteMoments(Hermite(2, 3), squares=True),
        HermiteMoments(Hermite(2, 4)),
        HermiteMoments(Hermite(3, 3)),
        HermiteMoments(Hermite(2, 3, OU)),
        HermiteMoments(Hermite(2, 3, frame=other)),
    ):
        with pytest.raises(ValueError, match="other must have the basis, folds and squares"):
            one.merge(two)
    fourier = FourierMoments(Fourier.lattice(2, 2))
    for waves in (FourierMoments(Fourier.lattice(2, 4)), FourierMoments(Fourier.lattice(1, 2))):
        with pytest.raises(ValueError, match="other must have the basis"):
            fourier.merge(waves)
    strangers: tuple[object, ...] = (None, fourier, TensorHermiteMoments(TensorHermite(2, 3)))
    for stranger in strangers:
        with pytest.raises(TypeError, match="other must be of type HermiteMoments"):
            one.merge(stranger)  # type: ignore[arg-type]
    HermiteMoments(Hermite(2, 3)).merge(one)  # an equal basis need not be the same object


# --- batches, blocks and the order of rows ---------------------------------------------------


@kinds
@settings(max_examples=5)
@given(
    sizes=st.lists(st.integers(40, 90), min_size=1, max_size=4),
    step=st.sampled_from([37, 50, 2**17]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_averages_do_not_depend_on_batches_and_blocks(
    basis: Basis, squares: bool, sizes: list[int], step: int, dtype: torch.dtype
) -> None:
    x, w = sample(sum(sizes), basis.dim).to(dtype), positive(sum(sizes))
    whole = moments_of(basis, 2, squares=squares).update(x, w)
    moments = moments_of(basis, 2, squares=squares)
    moments.block = step * basis.dim
    for batch, weights in zip(torch.split(x, sizes), torch.split(w, sizes), strict=True):
        moments.update(batch, weights)
    assert moments.count == sum(sizes)
    assert distance(moments, whole) < EXACT


@kinds
def test_averages_do_not_depend_on_the_order_of_rows(basis: Basis, squares: bool) -> None:
    x = sample(500, basis.dim)
    order = torch.randperm(500, generator=torch.Generator().manual_seed(1))
    left = moments_of(basis, squares=squares).update(x)
    assert distance(moments_of(basis, squares=squares).update(x[order]), left) < EXACT


@one_of_each
@given(
    n=st.integers(1, 7),
    folds=st.integers(1, 6),
    squares=st.booleans(),
    dtype=st.sampled_from([torch.float16, torch.float32, torch.float64, torch.int32, torch.uint8]),
)
@settings(max_examples=10)
def test_shapes_and_dtypes(
    basis: Basis, n: int, folds: int, squares: bool, dtype: torch.dtype
) -> None:
    x = (20 * (normal(n, 2) + 3)).to(dtype)
    moments = gather(x, basis, folds=folds, squares=squares)
    used = len(torch.unique(fold_of(x.double(), folds)))
    f = used if used > 1 else 0
    result = reported(moments)
    assert result["shares"].shape == (f,)
    assert result["counts"].shape == (1 + f,)
    assert result["training"].shape == result["heldout"].shape == (f, *result["total"].shape)
    assert {value.dtype for value in result.values()} == {torch.float64}
    assert all(bool(value.isfinite().all()) for value in result.values())
    assert moments.count == n
    assert float(moments.weight.sum()) == n


def test_moments_of_returns_the_accumulator_of_a_basis() -> None:
    assert type(moments_of(Fourier.lattice(1, 1))) is FourierMoments
    assert type(moments_of(Hermite(2, 2))) is HermiteMoments
    assert type(moments_of(TensorHermite(2, 1))) is TensorHermiteMoments
    assert type(moments_of(TensorHermite(2, 2))) is GaussianMoments
    assert type(moments_of(TensorHermite(2, 3))) is TensorHermiteMoments
    with pytest.raises(TypeError, match="basis must be of type Basis, got int"):
        moments_of(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="abstract"):
        Moments(Hermite(1, 1))  # type: ignore[abstract]


@one_of_each
def test_the_data_are_not_changed(basis: Basis) -> None:
    x, w = sample(50, 2), positive(50)
    was = x.clone(), w.clone()
    gather(x, basis, sample_weight=w)
    assert torch.equal(x, was[0])
    assert torch.equal(w, was[1])
    array = x.numpy().copy()
    array.flags.writeable = False
    assert distance(gather(array, basis), gather(x, basis)) < EXACT


# --- weights ---------------------------------------------------------------------------------


@kinds
def test_integer_weights_are_repeated_rows(basis: Basis, squares: bool) -> None:
    x = sample(300, basis.dim)
    w = torch.randint(0, 4, (300,), generator=torch.Generator().manual_seed(5))
    weighed = moments_of(basis, squares=squares).update(x, w)
    repeated = moments_of(basis, squares=squares).update(x.repeat_interleave(w, dim=0))
    # The effective number of rows differs by definition; the range includes rows of weight zero.
    without = "counts", "doubled counts", "low", "high"
    assert distance(weighed, repeated, *without) < EXACT
    assert torch.equal(weighed.weight, repeated.weight)


@kinds
def test_rows_of_weight_zero_do_not_matter(basis: Basis, squares: bool) -> None:
    x, w = sample(300, basis.dim), positive(300)
    w[torch.rand(300, generator=torch.Generator().manual_seed(2)) < 0.3] = 0
    with_them = moments_of(basis, squares=squares).update(x, w)
    kept = moments_of(basis, squares=squares).update(x[w > 0], w[w > 0])
    assert distance(with_them, kept, "low", "high") < EXACT


@kinds
def test_only_ratios_of_weights_matter(basis: Basis, squares: bool) -> None:
    x, w = sample(200, basis.dim), positive(200)
    left, right = (
        moments_of(basis, squares=squares).update(x, c * w) for c in (1.0, 1e-3 / math.pi)
    )
    assert distance(left, right) < EXACT
    ones = moments_of(basis, squares=squares).update(x, torch.ones(200, dtype=torch.int64))
    assert distance(ones, moments_of(basis, squares=squares).update(x)) < EXACT


@one_of_each
def test_counts_and_shares_equal_their_definitions(basis: Basis) -> None:
    x, w = sample(300, 2), positive(300)
    fold = fold_of(x, 3)
    result = reported(moments_of(basis, 3).update(x, w))
    left_out = [torch.full_like(fold, -1), *[torch.full_like(fold, k) for k in range(3)]]
    counts = [w[fold != k].sum() ** 2 / w[fold != k].square().sum() for k in left_out]
    torch.testing.assert_close(result["counts"], torch.stack(counts), rtol=1e-13, atol=0)
    shares = torch.stack([w[fold == k].sum() for k in range(3)]) / w.sum()
    torch.testing.assert_close(result["shares"], shares, rtol=1e-13, atol=0)


@one_of_each
def test_invalid_weights_are_rejected(basis: Basis) -> None:
    x = sample(5, 2)
    for wrong in ([1, 1, 1, 1, -1e-9], [1, 1, math.nan, 1, 1], [1, 1, math.inf, 1, 1]):
        with pytest.raises(ValueError, match="sample_weight must be finite and not negative"):
            gather(x, basis, sample_weight=wrong)
    for shape in ((4,), (6,), (5, 1), ()):
        with pytest.raises(ValueError, match=r"sample_weight must have one entry per row, \(5,\)"):
            gather(x, basis, sample_weight=torch.ones(shape))
    with pytest.raises(ValueError, match="sample_weight must have a positive sum"):
        gather(x, basis, sample_weight=np.zeros(5))
    with pytest.raises(ValueError, match="sample_weight must have one entry per row"):
        gather([x, x], basis, sample_weight=torch.ones(2))
    with pytest.raises(TypeError, match="sample_weight must be an iterable of one array per batch"):
        gather([x, x], basis, sample_weight=1.0)
    for weights in ([np.ones(5)], [np.ones(5)] * 3):
        with pytest.raises(ValueError):  # noqa: PT011 (the message is that of zip)
            gather([x, x], basis, sample_weight=weights)


# --- folds -----------------------------------------------------------------------------------


def test_equal_rows_share_a_fold_in_any_position() -> None:
    x = normal(200, 3)
    fold = fold_of(x, 7)
    assert fold.dtype == torch.int64
    assert set(fold.tolist()) == set(range(7))
    order = torch.randperm(200, generator=torch.Generator().manual_seed(0))
    assert torch.equal(fold_of(x[order], 7), fold[order])
    assert torch.equal(fold_of(x.repeat(3, 1), 7), fold.repeat(3))
    assert torch.equal(torch.cat([fold_of(row[None], 7) for row in x]), fold)
    assert torch.equal(fold_of(x.mT.contiguous().mT, 7), fold)  # the layout does not matter
    assert not torch.equal(fold_of(x.flip(1), 7), fold)  # the order of the columns matters
    assert not torch.equal(fold_of(x + 1e-15, 7), fold)  # every bit matters


def test_folds_of_zero_and_minus_zero_are_equal() -> None:
    x = normal(60, 2)
    x[::2, 0], x[1::3, 1] = 0.0, 0.0
    negative = torch.where(x == 0, -0.0, x)
    assert bool(negative[0, 0].signbit())
    assert torch.equal(fold_of(negative, 5), fold_of(x, 5))


@one_of_each
@given(seed=st.integers(0, 50), pieces=st.integers(1, 3))
@settings(max_examples=3)
def test_folds_do_not_depend_on_dtype_or_splits(basis: Basis, seed: int, pieces: int) -> None:
    x = normal(90, 2, seed).float()
    weight = torch.bincount(fold_of(x.double(), 5), minlength=5).double()
    for same in (x, x.double(), x.double().numpy(), x.numpy().astype(">f4")):
        moments = moments_of(basis)
        for start in range(pieces):
            moments.update(same[start::pieces])
        assert torch.equal(moments.weight, weight)


def p_value(fold: Tensor, folds: int) -> float:
    counts = torch.bincount(fold, minlength=folds).numpy()
    return float(scipy.stats.chisquare(counts).pvalue)


def pixels(columns: int) -> Tensor:
    generator = torch.Generator().manual_seed(columns)
    return torch.randint(256, (20_000, columns), generator=generator).double()


SPREAD: dict[str, Callable[[], Tensor]] = {
    "a column": lambda: normal(20_000, 1),
    "eight columns": lambda: normal(20_000, 8),
    "float16": lambda: normal(20_000, 1).half().double(),
    "an interval": lambda: torch.linspace(0, 1, 20_001, dtype=torch.float64)[:, None],
    "integers": lambda: torch.arange(-5_000, 5_000, dtype=torch.float64)[:, None],
    "bytes": lambda: torch.arange(256, dtype=torch.float64)[:, None],
    "pairs of bytes": lambda: pixels(2),
    "images": lambda: pixels(64),
    "scaled images": lambda: pixels(3) / 255,
    "bits": lambda: torch.cartesian_prod(*[torch.arange(2.0).double()] * 10),
}


@pytest.mark.parametrize("folds", [2, 3, 5, 8])
@pytest.mark.parametrize("make", SPREAD.values(), ids=SPREAD.keys())
def test_folds_are_balanced(make: Callable[[], Tensor], folds: int) -> None:
    x = torch.unique(make(), dim=0)
    assert p_value(fold_of(x, folds), folds) > 1e-3


def test_simpler_hashes_are_not_balanced() -> None:
    x = torch.unique(pixels(3), dim=0)
    naive = x.view(torch.int64).sum(dim=1) % 8  # small integers have no low bits
    assert p_value(naive, 8) < 1e-6
    sums = fold_of(x.sum(dim=1, keepdim=True), 8)  # rows with equal sums would share a fold
    assert len(torch.unique(sums[x.sum(dim=1) == 300])) == 1
    assert len(torch.unique(fold_of(x[x.sum(dim=1) == 300], 8))) == 8


def test_cross_validation_with_one_fold_is_rejected() -> None:
    moments = gather(sample(10, 1), Fourier.lattice(1, 4), folds=1)
    assert isinstance(moments, FourierMoments)
    averages = moments.averages()
    empty = averages.training, averages.heldout, averages.shares
    assert [tuple(part.shape) for part in empty] == [(0, 4), (0, 4), (0,)]
    assert torch.equal(averages.fitting(), averages.total[None])
    moments.check()
    with pytest.raises(ValueError, match=r"10 row\(s\) are in 1 of folds = 1"):
        moments.check(folds=True)
    equal = gather(torch.ones(9, 1), Fourier.lattice(1, 4))
    with pytest.raises(ValueError, match=r"9 row\(s\) are in 1 of folds = 5"):
        equal.check(folds=True)
    gather(sample(10, 1), Fourier.lattice(1, 4)).check(folds=True)


@kinds
def test_the_total_is_the_mixture_of_held_out_and_training_averages(
    basis: Basis, squares: bool
) -> None:
    result = reported(
        moments_of(basis, 3, squares=squares).update(sample(90, basis.dim), positive(90))
    )
    total, training, heldout = (result[name] for name in ("total", "training", "heldout"))
    share = result["shares"].reshape(-1, *[1] * total.ndim)
    mixed = share * heldout + (1 - share) * training
    torch.testing.assert_close(mixed, total.expand_as(mixed), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close((share * heldout).sum(dim=0), total, rtol=1e-12, atol=1e-12)
    assert float(result["shares"].sum()) == pytest.approx(1, abs=1e-14)


# --- accepted data ---------------------------------------------------------------------------


class Frame:
    """Like a data frame: not an array, but convertible to one."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return self.values


def test_rows_of_every_real_dtype_are_read() -> None:
    x = torch.randint(0, 100, (30, 2), generator=torch.Generator().manual_seed(0))
    exact = gather(x.double(), Hermite(2, 3))
    array = x.numpy()
    for dtype in ("f2", "f4", "f8", "g", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"):
        for given_dtype in {np.dtype(dtype), np.dtype(dtype).newbyteorder(">")}:
            moments = gather(array.astype(given_dtype), Hermite(2, 3))
            assert distance(moments, exact) == 0, given_dtype
    for kind in (torch.float16, torch.bfloat16, torch.float32, torch.int16, torch.uint8):
        assert distance(gather(x.to(kind), Hermite(2, 3)), exact) == 0, kind


def test_extended_precision_is_rounded_to_float64() -> None:
    x = np.array([[1], [3]], dtype=np.longdouble) / 3
    assert rows(x, 1).tolist() == [[1 / 3], [1.0]]
    # Values beyond the range of float64 become infinite.
    with (
        pytest.raises(ValueError, match="data must be finite, but row 0"),
        np.errstate(all="ignore"),
    ):
        gather(np.array([[np.longdouble("1e400")]]), Hermite(1, 2))


def in_batches(x: Tensor, read: list[int]) -> Iterator[Tensor]:
    for k, batch in enumerate(x.chunk(3)):
        read.append(k)
        yield batch


@one_of_each
def test_all_types_of_data_give_the_same_rows(basis: Basis) -> None:
    x = sample(120, 2)
    array, exact = x.numpy(), gather(x, basis)
    same: dict[str, object] = {
        "array": array,
        "columns together": np.asfortranarray(array),
        "data frame": Frame(array),
        "one batch": (array,),
        "one batch of a loader": [[x]],
        "images": x.reshape(120, 1, 2, 1),
        "with a graph": x.clone().requires_grad_(),
        "loader": DataLoader(TensorDataset(x), batch_size=40),
        "batches": [x[:40], array[40:80], Frame(array[80:])],
        "iterator": iter(x.chunk(2)),
    }
    for name, data in same.items():
        assert distance(gather(data, basis), exact) < EXACT, name


def test_an_iterable_is_read_once_and_in_order() -> None:
    x = sample(120, 2)
    read: list[int] = []
    told: list[int] = []
    moments = gather(in_batches(x, read), Hermite(2, 3), after_batch=told.append)
    assert read == [0, 1, 2]
    assert told == [40, 80, 120]
    assert moments.count == 120
    weights = (w for w in positive(120).chunk(3))
    weighed = gather(x.chunk(3), Hermite(2, 3), sample_weight=weights)
    assert distance(weighed, gather(x, Hermite(2, 3), sample_weight=positive(120))) < EXACT


def test_batches_without_rows_are_allowed_among_others() -> None:
    x = sample(30, 2)
    moments = gather([torch.zeros(0, 2), x, np.zeros((0, 2))], Hermite(2, 3))
    assert distance(moments, gather(x, Hermite(2, 3))) == 0


def test_rows_keep_their_dtype_and_are_detached() -> None:
    x = torch.ones(3, 2, 2, requires_grad=True)
    flat = rows(x, 4)
    assert (flat.shape, flat.dtype, flat.requires_grad) == ((3, 4), torch.float32, False)
    assert rows(np.ones((3, 4), dtype=np.uint8), 4).dtype == torch.uint8
    assert rows([x], 4).shape == (3, 4)


REFUSED: dict[str, tuple[object, type[Exception], str]] = {
    "NaN": ([[0.0, math.nan]], ValueError, r"data must be finite, but row 0 holds"),
    "a vector": ([1.0, 2.0], ValueError, r"data must have rows of 2 entries.*got \(2,\)"),
    "wide": ([[1.0] * 3], ValueError, r"data must have rows of 2 entries.*got \(1, 3\)"),
    "narrow": ([[1.0]], ValueError, r"data must have rows of 2 entries.*got \(1, 1\)"),
    "images": (
        [[[1.0, 2.0]] * 2],
        ValueError,
        r"data must have rows of 2 entries.*got \(1, 2, 2\)",
    ),
    "a number": (1.0, ValueError, r"data must have rows of 2 entries.*got \(\)"),
    "no columns": ([[], []], ValueError, r"data must have rows of 2 entries.*got \(2, 0\)"),
    "complex": ([[1j, 0]], TypeError, "data must be real numbers, got dtype .*complex"),
    "bool": ([[True, False]], TypeError, "data must be real numbers, got dtype .*bool"),
}


@one_of_each
@pytest.mark.parametrize(("values", "error", "match"), REFUSED.values(), ids=REFUSED.keys())
def test_invalid_rows_are_rejected(
    basis: Basis, values: object, error: type[Exception], match: str
) -> None:
    for data in (torch.tensor(values), np.array(values), Frame(np.array(values))):
        with pytest.raises(error, match=match):
            gather(data, basis)
        with pytest.raises(error, match=match):
            gather([data], basis)
        with pytest.raises(error, match=match):
            moments_of(basis).update(data)


@one_of_each
def test_invalid_data_are_rejected(basis: Basis) -> None:
    for none in ("rows", b"rows", {"x": [1.0]}, None, 3, 2.5):
        with pytest.raises(TypeError, match=f"data must be .*got {type(none).__name__}"):
            gather(none, basis)
    for batch in ("rows", None, 3, [1.0, 2.0], [torch.ones(2, 2), torch.ones(2)]):
        with pytest.raises(TypeError, match="data must be arrays or tensors, got"):
            gather([torch.ones(2, 2), batch], basis)
    for array in (
        np.array([["a", "b"]]),
        np.array([[1, 2]], dtype=object),
        np.zeros((1, 2), "M8[s]"),
    ):
        with pytest.raises(TypeError, match="data must be real numbers, got dtype"):
            gather(array, basis)
    with pytest.raises(TypeError, match=r"data must be dense, got layout torch\.sparse_coo"):
        gather(torch.eye(2).to_sparse(), basis)
    with pytest.raises(TypeError, match="data must be arrays or tensors, got csr_array"):
        gather(scipy.sparse.csr_array(np.eye(2)), basis)


@one_of_each
def test_data_without_rows_are_rejected(basis: Basis) -> None:
    for empty in ([], (), iter(()), torch.zeros(0, 2), np.zeros((0, 2)), [np.zeros((0, 2))]):
        with pytest.raises(ValueError, match="data must hold at least one row, got none"):
            gather(empty, basis)
    with pytest.raises(ValueError, match="data must hold at least one row, got none"):
        reported(moments_of(basis))


@one_of_each
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_the_error_contains_the_first_row_that_is_not_finite(basis: Basis, value: float) -> None:
    x = sample(50, 2)
    x[[31, 40], 1] = value
    for dtype in (torch.float64, torch.float32):
        with pytest.raises(ValueError, match="data must be finite, but row 31 holds NaN or inf"):
            gather(x.to(dtype), basis)
        with pytest.raises(ValueError, match="but row 31 holds"):  # counted over batches
            gather(x.to(dtype).tensor_split([20, 40]), basis)
    moments = moments_of(basis)
    moments.block = 14  # seven rows at a time
    with pytest.raises(ValueError, match="but row 31 holds"):
        moments.update(x)


def test_rows_whose_sum_overflows_are_accepted() -> None:
    x = torch.full((4, 1), 1e308, dtype=torch.float64)  # their sum is not
    assert gather(x, Fourier.lattice(1, 1)).count == 4


@one_of_each
def test_batches_of_another_width_are_rejected(basis: Basis) -> None:
    for second in (torch.ones(3, 3), torch.ones(3, 1), torch.ones(0, 3)):
        with pytest.raises(ValueError, match="data must have rows of 2 entries"):
            gather([torch.ones(3, 2), second], basis)


@one_of_each
def test_invalid_numbers_of_folds_are_rejected(basis: Basis) -> None:
    for number in (0, -1):
        with pytest.raises(ValueError, match=f"folds must be an integer >= 1, got {number}"):
            gather(torch.ones(3, 2), basis, folds=number)
    wrong: tuple[object, ...] = (2.0, "5", True, None)
    for value in wrong:
        with pytest.raises(TypeError, match="folds must be an integer >= 1"):
            moments_of(basis, value)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="folds must be an integer >= 1"):
        fold_of(torch.ones(3, 2, dtype=torch.float64), 0)


@one_of_each
def test_folds_can_be_given(basis: Basis) -> None:
    x, w = normal(90, basis.dim), 0.5 + torch.rand(90, generator=torch.Generator().manual_seed(0))
    fold = torch.arange(90) % 3
    given_folds = moments_of(basis, 3).update(x, w, fold=fold)
    separate = [moments_of(basis, 1).update(x[fold == k], w[fold == k]) for k in range(3)]
    shares = torch.stack([one.weight[0] for one in separate])
    torch.testing.assert_close(given_folds.weight, shares)
    by_content = moments_of(basis, 3).update(x, w, fold=fold_of(x, 3))
    torch.testing.assert_close(by_content.weight, moments_of(basis, 3).update(x, w).weight)
    assert not torch.allclose(by_content.weight, given_folds.weight)


def test_given_folds_hold_their_rows() -> None:
    basis, x = Fourier.lattice(1, 4), normal(50, 1)
    fold = (x[:, 0] > 0).long()
    weights = torch.ones(50)
    weights[::7] = 0  # rows of weight zero do not change the folds of the others
    found = FourierMoments(basis, 2).update(x, weights, fold=fold).averages()
    for k in (0, 1):
        inside = (fold == k) & (weights > 0)
        exact = FourierMoments(basis, 1).update(x[inside]).averages().total
        torch.testing.assert_close(found.heldout[k], exact)
        torch.testing.assert_close(found.training[1 - k], exact)


def test_given_folds_are_split_into_blocks_like_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    basis, x, fold = Fourier.lattice(1, 4), normal(50, 1), torch.arange(50) % 4
    whole = FourierMoments(basis, 4).update(x, fold=fold).averages().heldout
    monkeypatch.setattr(FourierMoments, "block", 7)
    torch.testing.assert_close(
        FourierMoments(basis, 4).update(x, fold=fold).averages().heldout, whole
    )


@pytest.mark.parametrize(
    "fold",
    [
        torch.zeros(4, dtype=torch.int64),
        torch.zeros(5),
        torch.full((5,), 3),
        torch.full((5,), -1),
        torch.zeros(5, 1, dtype=torch.int64),
    ],
    ids=["too few", "floats", "too large", "negative", "two axes"],
)
def test_invalid_folds_are_rejected(fold: Tensor) -> None:
    moments = FourierMoments(Fourier.lattice(1, 1), 3)
    with pytest.raises(ValueError, match=r"fold must hold one int64 in \[0, 3\) per row, \(5,\)"):
        moments.update(normal(5, 1), fold=fold)
    assert moments.count == 0
