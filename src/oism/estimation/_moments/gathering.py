"""From data to moments: the accumulator of a basis, and the pass over the data.

Bases do not depend on estimation, so the accumulator of a basis is registered here, with
``@moments_of.register``. The default, `ProductMoments`, is for every basis with ``doubled()`` and
``rule()``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from typing import TypeVar

from oism._core import checks
from oism.basis import (
    Basis,
    Eigenfunctions,
    Fourier,
    Hermite,
    OrthogonalFrame,
    QuaternionBasis,
    SphericalHarmonics,
    TensorHermite,
)
from oism.estimation._moments.base import Moments
from oism.estimation._moments.fourier import FourierMoments
from oism.estimation._moments.hermite import HermiteMoments
from oism.estimation._moments.products import ProductMoments
from oism.estimation._moments.rows import batches
from oism.estimation._moments.splines import SplineMoments
from oism.estimation._moments.tensor_hermite import (
    GaussianMoments,
    TensorHermiteMoments,
    tensor_moments,
)
from oism.estimation._moments.transforms import TransformMoments

Accumulator = TypeVar("Accumulator", bound=Moments)


@singledispatch
def moments_of(basis: Basis, folds: int = 5, *, squares: bool = False) -> Moments:
    """Return an empty accumulator for a basis; ``squares`` are for variances of averages."""
    checks.instance(basis, Basis, "basis")
    return ProductMoments(basis, folds, squares=squares)


@moments_of.register
def _(basis: Fourier, folds: int = 5, *, squares: bool = False) -> FourierMoments:
    return FourierMoments(basis, folds, squares=squares)


@moments_of.register
def _(basis: Hermite, folds: int = 5, *, squares: bool = False) -> HermiteMoments:
    return HermiteMoments(basis, folds, squares=squares)


@moments_of.register
def _(
    basis: TensorHermite, folds: int = 5, *, squares: bool = False
) -> TensorHermiteMoments | GaussianMoments:
    return tensor_moments(basis, folds, squares=squares)


@moments_of.register
def _(basis: Eigenfunctions, folds: int = 5, *, squares: bool = False) -> Moments:
    # One histogram gives all averages, but not their variances.
    return ProductMoments(basis, folds, squares=True) if squares else SplineMoments(basis, folds)


@moments_of.register
def _(basis: SphericalHarmonics, folds: int = 5, *, squares: bool = False) -> TransformMoments:
    return TransformMoments(basis, folds, squares=squares)


@moments_of.register
def _(basis: QuaternionBasis, folds: int = 5, *, squares: bool = False) -> TransformMoments:
    return TransformMoments(basis, folds, squares=squares)


def principal_frame(data: object, dim: int, *, sample_weight: object = None) -> OrthogonalFrame:
    """Return the principal directions of data as a frame, the largest variance first.

    >>> import torch
    >>> principal_frame(torch.tensor([[0.0, 0.0], [1.0, 2.0], [2.0, 4.1]]), dim=2).matrix[0]
    tensor([0.4384, 0.8988], dtype=torch.float64)
    """
    moments = gather_into(GaussianMoments(TensorHermite(dim, 2)), data, sample_weight)
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

    ``after_batch`` is called after each batch with the number of rows so far.
    """
    moments = moments_of(basis, folds, squares=squares)
    return gather_into(moments, data, sample_weight, after_batch)


def gather_into(
    moments: Accumulator,
    data: object,
    sample_weight: object = None,
    after_batch: Callable[[int], None] | None = None,
) -> Accumulator:
    """Return an accumulator after adding the rows of data."""
    for batch, weights in batches(data, sample_weight):
        moments.update(batch, weights)
        if after_batch is not None:
            after_batch(moments.count)
    moments.check()
    return moments
