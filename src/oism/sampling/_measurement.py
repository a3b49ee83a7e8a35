"""The residual of a model along its paths, measured once, and the method that follows from it."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from oism._core import checks
from oism._core.progress import progress_bar
from oism.images import GaussianPart
from oism.sampling._method import SamplingMethod, checked_part
from oism.sampling._plan import Denoiser, Span
from oism.sampling._polynomial import Polynomial
from oism.sampling._prediction import MOST_PREDICTED, Prediction
from oism.sampling._statistics import ResidualStatistics, band_edges, bands_of, second_moments

LEVELS = 48
"""The number of levels of the measurement."""

PATHS = 64
"""The number of paths on which models measure their residual, by default."""

TRIED = 20
"""The number of evaluations of the trial."""


@torch.no_grad()
def measure_residual(  # noqa: PLR0913
    denoiser: Denoiser,
    part: GaussianPart,
    span: Span,
    noise: Tensor,
    *,
    levels: int = LEVELS,
    trial: bool = True,
    progress: bool | None = None,
) -> ResidualStatistics:
    """Return the statistics of a denoiser's residual along its probability flow.

    Predictions assume that the residual of a path with an error is close to that of the path. The
    trial tests it: the ends of paths are compared with those of the measurement.

    Parameters
    ----------
    denoiser
        D(x, λ), clean tensors to expect at a level.
    part
        The Gaussian whose residual is measured.
    span
        The range of levels.
    noise
        Noise ``(n, *shape)`` of the first level, where the n paths begin.
    levels
        The number of levels: as many evaluations of n tensors each.
    trial
        Whether both methods are then tried with 20 evaluations each on a quarter of the paths.
    """
    checked_part(part, span)
    count = checks.integer(levels, "levels", minimum=6)
    grid = torch.linspace(span.first, span.last, count, dtype=torch.float64)
    plan = Polynomial(levels=tuple(grid.tolist())).plan(part, span, count - 1)
    x, history = plan.start(checks.floating(noise, "noise"))
    found: list[Tensor] = []
    with progress_bar(progress) as bar:
        bar.stage("residual of the prior", count)
        for k, level in enumerate(grid):
            denoised = denoiser(x, level)
            found.append(plan.residual(k, x, denoised, history)[1].float())
            if not bool(found[-1].isfinite().all()):
                raise FloatingPointError(
                    f"denoiser must return finite tensors, and does not at level {float(level):g}"
                )
            if k + 1 < count:
                x, history = plan.step(k, x, denoised, history)
            bar.advance(1)
    residuals = torch.stack(found)  # (L, n, K)
    edges = band_edges(part.variances)
    covariance = second_moments(residuals, bands_of(part.variances, edges), len(edges) + 1)
    measured = ResidualStatistics(grid, edges, covariance, len(noise))
    if not trial:
        return measured
    tried = max(1, len(noise) // 4)
    errors = [
        (plan.sample(denoiser, noise[:tried], denoise=False, progress=progress) - x[:tried])
        for plan in (
            Prediction(measured).plan(part, span, TRIED),
            Polynomial().plan(part, span, TRIED),
        )
    ]
    roots = torch.stack([error.double().square().mean().sqrt().cpu() for error in errors])
    return replace(measured, trial=roots)


def best_method(
    statistics: ResidualStatistics | None, evaluations: int, polynomial: Polynomial | None = None
) -> SamplingMethod:
    """Return `Prediction` where statistics allow it, otherwise `Polynomial` or the one given."""
    if statistics is None or evaluations > MOST_PREDICTED or not statistics.is_predictable:
        return Polynomial() if polynomial is None else polynomial
    return Prediction(statistics)
