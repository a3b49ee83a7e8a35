"""Ridge and truncation over time, chosen by cross-validation in closed form.

The score-matching loss of any coefficients on held-out rows, αᵀAα + 2bᵀα, needs only the averages
of those rows: K folds need K sets of averages and no second pass over the data. At each time

1. the loss is averaged over the folds, weighted by their shares of the rows;
2. the simplest level is chosen whose best ridge is within one standard error of the overall best,
   the standard error being that of the paired difference over folds;
3. at that level the ridge is the minimum of the loss in log ε, refined by a parabola.

Separate choices at each time would make α(t) discontinuous. So they are averaged over neighbouring
times with a Gaussian kernel (`oism.score.Schedule`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from oism.score import Losses

TIE = 1.0
"""The number of standard errors within which a simpler level is preferred."""

ROUNDING = 1e-9
"""The relative difference of losses that rounding may cause: at late times levels differ by less,
and the choice must not depend on the units or the order of the rows.
"""


def _parabola(values: Tensor, index: Tensor) -> Tensor:
    """Return the minimum of the parabola through the smallest entry and its neighbours.

    As a real-valued index.
    """
    inner = index.clamp(1, values.shape[-1] - 2)
    left, middle, right = (
        values.gather(-1, (inner + side)[..., None])[..., 0] for side in (-1, 0, 1)
    )
    bend = left + right - 2 * middle
    offset = 0.5 * (left - right) / bend.where(bend > 0, torch.inf)
    fits = (inner == index) & offset.isfinite() & (offset.abs() <= 1)
    return index + torch.where(fits, offset, 0.0)


def choose(losses: Losses) -> tuple[Tensor, Tensor, Tensor]:
    """Return log ridge, level and loss of the chosen candidates, ``(T, *batch)`` each."""
    values, folds = losses.values, len(losses.values)
    shares = losses.shares.reshape(-1, *[1] * (values.ndim - 1))
    mean = torch.where(values.isfinite().all(dim=0), (shares * values).sum(dim=0), torch.inf)
    mean = mean.nan_to_num(nan=torch.inf, posinf=torch.inf)
    lowest, ridge = mean.min(dim=-1)  # (T, *batch, levels)
    own = values.gather(-1, ridge.expand(folds, *ridge.shape)[..., None])[..., 0]
    best = lowest.argmin(dim=-1, keepdim=True)
    apart = own - own.gather(-1, best.expand(folds, *best.shape))
    centred = apart - (shares[..., 0] * apart).sum(dim=0)
    error = ((shares[..., 0] * centred.square()).sum(dim=0) / max(1, folds - 1)).sqrt()
    gap = lowest - lowest.gather(-1, best)
    equal = ROUNDING * lowest.gather(-1, best).abs()
    tied = (gap <= TIE * error) | (gap <= equal)  # False for NaN: the level is not allowed
    order = torch.arange(mean.shape[-2], device=mean.device).expand_as(tied)
    level = torch.where(tied, order, -1).amax(dim=-1, keepdim=True)
    level = level.where(level >= 0, mean.shape[-2] - 1)  # no finite loss: the simplest level
    path = mean.gather(-2, level[..., None].expand(*level.shape, mean.shape[-1]))[..., 0, :]
    lost = ~path.isfinite().any(dim=-1)  # no finite loss: the largest ridge
    place = _parabola(path, path.argmin(dim=-1).where(~lost, path.shape[-1] - 1))
    grid = losses.ridges.log()
    step = grid[1] - grid[0]
    return grid[0] + step * place, level[..., 0].double(), path.amin(dim=-1)
