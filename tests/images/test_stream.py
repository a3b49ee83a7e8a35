"""Data in any form: the same prior however they are batched, and errors that name the row."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from oism import fit_mixture, fit_prior
from oism.basis import CosineFrame, Frame, IdentityFrame
from oism.flow import Pixels
from oism.images import PCA, HermitePrior
from oism.images._stream import Stream

SHAPE = (2, 2, 3)


def images(n: int = 90, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    u = torch.rand(n, 1, 1, 1, generator=generator) + torch.rand(n, *SHAPE, generator=generator)
    return (60 * u.square()).round().byte()


def stream(data: object, pixels: Pixels | None = None, folds: int = 1) -> Stream:
    return Stream(data, pixels, folds, torch.device("cpu"))


def same(one: HermitePrior, other: HermitePrior) -> None:
    assert one.shape == other.shape == SHAPE
    assert one.pixels == other.pixels == Pixels()
    x = torch.randn(5, *SHAPE, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    for tau in (0.05, 0.5):
        torch.testing.assert_close(one.noise(x, tau), other.noise(x, tau), rtol=1e-5, atol=1e-5)
        assert float(one.expected_error(tau)) == pytest.approx(
            float(other.expected_error(tau)), abs=1e-9
        )


FORMS: dict[str, Callable[[Tensor], object]] = {
    "array": lambda x: x.numpy(),
    "int64": lambda x: [x.long()],
    "floats": lambda x: x.float(),
    "uint16": lambda x: x.numpy().astype(np.uint16),
    "uneven batches": lambda x: [x[:1], x[1:50], x[50:50], x[50:]],
    "an empty batch first": lambda x: [x[:0], x],
    "arrays in a tuple": lambda x: (x[:40].numpy(), x[40:].numpy()),
    "loader": lambda x: DataLoader(TensorDataset(x), batch_size=17),
    "loader of rows": lambda x: DataLoader(x, batch_size=32, shuffle=True),  # type: ignore[arg-type]
    "other order": lambda x: x.flip(0),
    "not contiguous": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
}
FRAMES: dict[str, Frame | PCA] = {
    "pca": PCA(),
    "top": PCA(3),
    "pixels": IdentityFrame(),
    "cosines": CosineFrame(SHAPE),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("frame", FRAMES)
def test_the_same_prior_from_data_in_any_form(form: str, frame: str) -> None:
    x = images()
    pixels = Pixels() if form in {"int64", "floats", "uint16"} else None
    whole = fit_prior(x, order=3, frame=FRAMES[frame])
    same(fit_prior(FORMS[form](x), order=3, frame=FRAMES[frame], pixels=pixels), whole)


@pytest.mark.parametrize("form", ["array", "uneven batches", "loader"])
def test_the_same_mixture(form: str) -> None:
    x = images()
    one, other = (fit_mixture(data, components=2) for data in (x, FORMS[form](x)))
    torch.testing.assert_close(one.variances, other.variances, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(one.mean, other.mean)


@pytest.mark.parametrize(
    ("order", "frame"), [(2, PCA()), (4, IdentityFrame()), (3, CosineFrame(SHAPE))]
)
def test_an_iterator_serves_where_one_pass_does(order: int, frame: Frame | PCA) -> None:
    x = images()

    def batches() -> Iterator[Tensor]:
        for start in range(0, len(x), 25):
            yield x[start : start + 25]

    same(fit_prior(batches(), order=order, frame=frame), fit_prior(x, order=order, frame=frame))


@pytest.mark.parametrize("fit", [fit_prior, fit_mixture])
def test_an_iterator_cannot_learn_a_frame(fit: Callable[[object], object]) -> None:
    with pytest.raises(TypeError, match="data must be readable twice for a frame that is learned"):
        fit(iter([images()]))


@given(
    cuts=st.lists(st.integers(1, 29), max_size=4).map(lambda c: sorted({0, *c, 30})),
    entries=st.sampled_from([1, 30, 10**6]),
)
def test_rows_and_folds_do_not_depend_on_the_cuts(cuts: list[int], entries: int) -> None:
    x = images(30)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oism.images._stream.ENTRIES", entries)
        parts = [x[a:b] for a, b in itertools.pairwise(cuts)]
        cut = stream(parts, folds=4)
        rows, folds = (torch.cat(list(part)) for part in zip(*cut, strict=True))
    whole = stream(x, folds=4)
    ((expected, expected_folds),) = whole
    assert cut.rows == whole.rows == 30
    assert torch.equal(rows, expected)
    assert torch.equal(folds, expected_folds)
    assert torch.equal(rows, x.flatten(1))
    torch.testing.assert_close(cut.units(rows), x.flatten(1).double() / 127.5 - 1)


def test_a_stream_can_be_read_again_and_counts_anew() -> None:
    many = stream([images(10), images(20)])
    for _ in range(2):
        assert sum(len(rows) for rows, _ in many) == 30
        assert many.rows == 30
    assert many.is_repeatable
    assert not stream(iter([images(10)])).is_repeatable


def test_a_row_in_any_form_is_in_the_same_fold() -> None:
    x = images(40)
    ((_, folds),) = stream(x, folds=5)
    for other, pixels in ((x.float(), Pixels()), (x.long(), Pixels()), (x.double(), Pixels())):
        ((_, found),) = stream(other, pixels, folds=5)
        assert torch.equal(found, folds)
    assert set(folds.tolist()) == set(range(5))


ROW = torch.zeros(2, 3)
BAD: dict[str, tuple[object, type[Exception], str]] = {
    "no batches": ([], ValueError, "data must hold at least one row, got none"),
    "no rows": (torch.zeros(0, 3), ValueError, "data must hold at least one row, got none"),
    "empty batches": ([ROW[:0], ROW[:0]], ValueError, "data must hold at least one row, got none"),
    "mixed shapes": (
        [ROW, torch.zeros(2, 4)],
        ValueError,
        "data must have one shape: row 0 is (3,), row 2 is (4,)",
    ),
    "NaN": (
        [ROW, ROW, torch.tensor([[0.0, 1, 2], [0, torch.nan, 0]])],
        ValueError,
        "data must be finite, but row 5 holds NaN or infinity",
    ),
    "one axis": (torch.zeros(5), ValueError, "data must be batches of tensors, (n, *shape)"),
    "no entries": (torch.zeros(5, 0), ValueError, "data must be batches of tensors, (n, *shape)"),
    "text": (
        "abc",
        TypeError,
        "data must be an array, a tensor or an iterable of batches, got str",
    ),
    "a number": (
        5,
        TypeError,
        "data must be an array, a tensor or an iterable of batches, got int",
    ),
    "lists": ([[1.0, 2.0]], TypeError, "data must be arrays or tensors, got list"),
    "truths": (
        torch.ones(3, 3).bool(),
        TypeError,
        "data must be real numbers, got dtype torch.bool",
    ),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("frame", [PCA(), IdentityFrame()], ids=["pca", "pixels"])
def test_bad_data(case: str, frame: Frame | PCA) -> None:
    data, error, message = BAD[case]
    with pytest.raises(error, match=re.escape(message)):
        fit_prior(data, order=3, frame=frame)


@pytest.mark.parametrize("frame", [PCA(), IdentityFrame()], ids=["pca", "pixels"])
def test_values_out_of_range_name_their_row(frame: Frame | PCA) -> None:
    batches = [torch.zeros(4, 2).long(), torch.tensor([[1, 2], [3, 256], [999, 0]])]
    with pytest.raises(ValueError, match=r"data must be in \[0, 255\], but row 5 holds 256"):
        fit_prior(batches, frame=frame, pixels=Pixels())
    with pytest.raises(ValueError, match=r"data must be whole numbers, but row 1 holds 2\.5"):
        fit_prior(torch.tensor([[1.0, 2.0], [2.5, 0.0]]), frame=frame, pixels=Pixels())
    with pytest.raises(ValueError, match=r"data must be in \[0, 255\], but row 0 holds nan"):
        fit_prior(torch.tensor([[1.0, torch.nan]]), frame=frame, pixels=Pixels())
