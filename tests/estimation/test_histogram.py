from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oism import Hermite
from oism.basis import Standardised
from oism.estimation import HermiteMoments, HistogramMoments

VALUES = 2 * torch.arange(256, dtype=torch.float64) / 255 - 1
FOLDS = 3


def draw(n: int, dim: int, seed: int = 0) -> Tensor:
    """Return bytes of several distributions: skewed, of two values, over the whole range."""
    generator = torch.Generator().manual_seed(seed)
    u = torch.rand(n, dim, generator=generator)
    x = (255 * u ** (1 + torch.arange(dim))).round().byte()
    x[:, -1] = (u[:, -1] < 0.3).byte() * 200
    return x


def folds_of(n: int, seed: int = 1) -> Tensor:
    return torch.randint(0, FOLDS, (n,), generator=torch.Generator().manual_seed(seed))


def from_values(x: Tensor, order: int, fold: Tensor) -> Standardised:
    """Return the same averages from the values, without counts."""
    moments = HermiteMoments(Hermite(x.shape[1], order), FOLDS)
    return moments.update(VALUES[x.long()], fold=fold).standardised()


def agree(one: Standardised, other: Standardised) -> None:
    for name in ("shift", "scale", "low", "high"):
        expected = getattr(other, name)
        torch.testing.assert_close(getattr(one, name), expected, rtol=1e-10, atol=1e-10)
    for name in ("total", "training", "heldout", "shares", "counts"):
        found, expected = getattr(one.averages, name), getattr(other.averages, name)
        assert found.shape == expected.shape
        off = (found - expected).abs() / expected.abs().clamp(min=1)
        assert float(off.max() if off.numel() else 0) < 1e-10, name


@pytest.mark.parametrize("order", range(1, 10))
def test_averages_are_those_of_the_rows(order: int) -> None:
    x, fold = draw(500, 4), folds_of(500)
    agree(
        HistogramMoments(4, FOLDS).update(x, fold).standardised(order, VALUES),
        from_values(x, order, fold),
    )


@given(
    n=st.integers(2, 60), dim=st.integers(1, 4), order=st.integers(1, 5), seed=st.integers(0, 99)
)
def test_small_data(n: int, dim: int, order: int, seed: int) -> None:
    x, fold = draw(n, dim, seed), folds_of(n, seed)
    agree(
        HistogramMoments(dim, FOLDS).update(x, fold).standardised(order, VALUES),
        from_values(x, order, fold),
    )


def test_constant_columns() -> None:
    x, fold = draw(100, 3), folds_of(100)
    x[:, 0], x[:, 1] = 0, 255
    standard = HistogramMoments(3, FOLDS).update(x, fold).standardised(4, VALUES)
    assert standard.scale[:2].tolist() == [0, 0]
    assert standard.shift[:2].tolist() == pytest.approx([-1, 1], abs=1e-15)
    assert standard.low[:2].tolist() == standard.high[:2].tolist() == [-1, 1]
    assert not bool(standard.averages.total[1:, :2].any())
    agree(standard, from_values(x, 4, fold))


def test_one_row() -> None:
    x = torch.tensor([[7, 9]]).byte()
    standard = HistogramMoments(2, 1).update(x).standardised(3, VALUES)
    assert standard.scale.tolist() == [0, 0]
    torch.testing.assert_close(standard.shift, VALUES[[7, 9]])
    assert len(standard.averages.training) == 0


def test_mirrored_counts_include_the_mirror_images() -> None:
    x, fold = draw(200, 6), folds_of(200)
    mirror = torch.arange(6).reshape(2, 3).flip(-1).flatten()
    moments = HistogramMoments(6, FOLDS).update(x, fold)
    images = x.reshape(-1, 2, 3).flip(-1).reshape(-1, 6)
    both = HistogramMoments(6, FOLDS).update(x, fold).update(images, fold)
    assert torch.equal(moments.mirrored(mirror).counts, both.counts)
    agree(
        moments.mirrored(mirror).standardised(5, VALUES),
        from_values(torch.cat((x, images)), 5, torch.cat((fold, fold))),
    )


def test_merging_equals_one_pass_over_both(monkeypatch: pytest.MonkeyPatch) -> None:
    x, fold = draw(200, 3), folds_of(200)
    whole = HistogramMoments(3, FOLDS).update(x, fold)
    monkeypatch.setattr("oism.estimation._moments.histogram.ENTRIES", 30)  # ten rows at a time
    parts = [HistogramMoments(3, FOLDS).update(x[i::2], fold[i::2]) for i in range(2)]
    merged = parts[0].merge(parts[1])
    assert torch.equal(merged.counts, whole.counts)
    assert int(parts[0].counts.sum()) == 300, "merging does not change its arguments"
    assert torch.equal(merged.merge(HistogramMoments(3, FOLDS)).counts, whole.counts)


def test_counts_equal_the_number_of_occurrences() -> None:
    x, fold = draw(300, 3), folds_of(300)
    counts = HistogramMoments(3, FOLDS).update(x, fold).counts
    for f in range(FOLDS):
        for column in range(3):
            own = torch.bincount(x[fold == f, column].long(), minlength=256)
            assert torch.equal(counts[f, column], own)


def test_invalid_arguments_are_rejected() -> None:
    moments = HistogramMoments(2, FOLDS)
    for wrong in (torch.zeros(3, 2), torch.zeros(3, 3).byte(), torch.zeros(2).byte()):
        with pytest.raises(ValueError, match=r"x must be uint8 of shape \(n, 2\), got torch\."):
            moments.update(wrong)
    with pytest.raises(ValueError, match="data must hold at least one row, got none"):
        moments.standardised(2, VALUES)
    with pytest.raises(ValueError, match="other must have the dim and folds"):
        moments.merge(HistogramMoments(2, 1))
    with pytest.raises(TypeError, match="other must be of type HistogramMoments, got str"):
        moments.merge("a")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="folds must be an integer >= 1, got 0"):
        HistogramMoments(2, 0)
