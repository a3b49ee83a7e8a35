"""Moments: one pass over the data gives every average that the equations of all times need."""

from __future__ import annotations

from collections.abc import Callable

from oism.basis import Basis, Fourier, Hermite, OrthogonalFrame, TensorHermite
from oism.moments.base import Averages, Moments
from oism.moments.dither import dithered, uniform_averages, uniform_reach
from oism.moments.fourier import FourierMoments, extended
from oism.moments.hermite import (
    GaussianMoments,
    HermiteFamilyMoments,
    HermiteMoments,
    Standardised,
    TensorHermiteMoments,
    principal,
)
from oism.moments.histogram import HistogramMoments
from oism.moments.pairs import PairMoments
from oism.moments.rows import batches, fold_of, rows
from oism.moments.sharing import across_processes
from oism.moments.spectrum import Spectrum, principal_axes, spectrum

__all__ = [
    "Averages",
    "FourierMoments",
    "GaussianMoments",
    "HermiteFamilyMoments",
    "HermiteMoments",
    "HistogramMoments",
    "Moments",
    "PairMoments",
    "Spectrum",
    "Standardised",
    "TensorHermiteMoments",
    "accumulator",
    "across_processes",
    "batches",
    "dithered",
    "extended",
    "fold_of",
    "gather",
    "principal",
    "principal_axes",
    "principal_frame",
    "rows",
    "spectrum",
    "uniform_averages",
    "uniform_reach",
]


def accumulator(basis: Basis, folds: int = 5, *, squares: bool = False) -> Moments:
    """Return an empty accumulator for a basis."""
    if isinstance(basis, Fourier):
        return FourierMoments(basis, folds, squares=squares)
    if isinstance(basis, Hermite):
        return HermiteMoments(basis, folds, squares=squares)
    if isinstance(basis, TensorHermite):
        kind = GaussianMoments if basis.order == 2 else TensorHermiteMoments
        return kind(basis, folds, squares=squares)
    raise TypeError(
        f"basis must be Fourier, Hermite or TensorHermite, got {type(basis).__name__}: nothing is "
        "known about the products of its gradients"
    )


def principal_frame(data: object, dim: int, *, sample_weight: object = None) -> OrthogonalFrame:
    """Return the principal directions of data as a frame, the largest variance first.

    >>> import torch
    >>> principal_frame(torch.tensor([[0.0, 0.0], [1.0, 2.0], [2.0, 4.1]]), dim=2).matrix[0]
    tensor([0.4384, 0.8988], dtype=torch.float64)
    """
    moments = gather(data, TensorHermite(dim, 2), folds=1, sample_weight=sample_weight)
    assert isinstance(moments, GaussianMoments)
    rotation = moments.standardised().rotation
    assert rotation is not None
    return OrthogonalFrame(rotation)


def gather(
    data: object,
    basis: Basis,
    *,
    folds: int = 5,
    sample_weight: object = None,
    squares: bool = False,
    after_batch: Callable[[int], None] | None = None,
) -> Moments:
    """Return the moments of data: an array, a tensor, or an iterable of batches of rows.

    ``after_batch`` is told the number of rows so far.
    """
    moments = accumulator(basis, folds, squares=squares)
    for batch, weights in batches(data, sample_weight):
        moments.update(batch, weights)
        if after_batch is not None:
            after_batch(moments.count)
    moments.demand()
    return moments
