"""Principal directions, and the expected variances of new data along them.

The eigenvalues of a sample covariance are biased, because the directions depend on the same rows:
the largest are too large and the smallest too small, by a factor of about (1 ± √(d/n))², and some
are zero if d > n. A model needs the variances of *new* rows along the directions. Cross-validation
gives them in closed form: for each fold, the variances of its rows along the directions of all
other folds. The estimate is the mean over folds, made decreasing by isotonic regression (Bartz
2016). It needs no further pass over the data and no assumption about d/n.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.optimize
import torch
from torch import Tensor

from oism._core import checks
from oism.estimation._moments.pairs import PairMoments


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Mean ``(d,)``, directions ``(k, d)`` by decreasing variance, and variances along them.

    ``sample`` ``(k,)`` are those of the rows, ``variances`` ``(k,)`` those expected of new rows.
    ``rest`` is the mean variance along all other directions, or None if k = d.
    """

    mean: Tensor
    directions: Tensor
    sample: Tensor
    variances: Tensor
    rest: float | None


def spectrum(pairs: PairMoments, count: int | None = None, *, validate: bool = True) -> Spectrum:
    """Return the ``count`` leading principal directions (all by default).

    With ``validate``, and rows in more than one fold, variances are cross-validated.
    """
    count = pairs.dim if count is None else checks.integer(count, "count", minimum=1)
    if count > pairs.dim:
        raise ValueError(f"count must be at most the dimension, {pairs.dim}, got {count}")
    mean, covariance = pairs.covariance()
    values, directions = principal_axes(covariance)
    del covariance
    expected, folds = values, pairs.used() if validate else []
    if folds:
        shares = pairs.count[folds] / pairs.count[folds].sum()
        expected = torch.zeros_like(values)
        for share, fold in zip(shares, folds, strict=True):
            centre, own = pairs.covariance(without=fold)
            expected += share * pairs.spread(fold, centre, principal_axes(own)[1])
        expected = _decreasing(expected)
    rest = float(expected[count:].mean()) if count < pairs.dim else None
    kept = directions[:count].clone() if count < pairs.dim else directions
    return Spectrum(mean, kept, values[:count], expected[:count], rest)


def principal_axes(covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues, the largest first and none negative, and eigenvectors as rows.

    Signs are fixed: the largest entry of each direction is positive.
    """
    values, vectors = torch.linalg.eigh(covariance)
    rows = vectors.mT.flip(0)
    signs = rows.gather(1, rows.abs().argmax(dim=1, keepdim=True)).sign()
    return values.flip(0).clamp(min=0), rows.mul_(signs)


def _decreasing(values: Tensor) -> Tensor:
    fitted = scipy.optimize.isotonic_regression(values.cpu().numpy(), increasing=False).x
    return torch.from_numpy(np.array(fitted)).to(values).clamp(min=0)
