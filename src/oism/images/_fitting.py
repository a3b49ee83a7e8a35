"""Fitting a prior: passes over tensors, then the closed form of all noise levels.

data ─► statistics (a frame, averages) ─► order, ridge ─► α(t) ─► expected error
"""

from __future__ import annotations

from dataclasses import replace
from typing import overload

import torch
from torch import Tensor

from oism._core import checks
from oism._core.labels import training_labels
from oism._core.progress import progress_bar
from oism.basis import Frame, Hermite, Standardised
from oism.estimation import (
    CrossValidation,
    HermiteSystem,
    Knots,
    PlacedKnots,
    Shrinkage,
    fit_standardised,
)
from oism.estimation._moments.sharing import check_same, processes, together
from oism.flow import Pixels, TensorSpec, checked_clock
from oism.images._classes import ClassPrior, class_error, class_statistics
from oism.images._error import polynomial_error, unit_error
from oism.images._framed import Directions
from oism.images._hermite import HermitePrior
from oism.images._mixture import Components, MixturePrior, maximise
from oism.images._statistics import PCA, ImageStatistics, Passes
from oism.images._stream import Stream, device_of
from oism.process import Clock, Logarithmic, VariancePreserving
from oism.score import HermiteScore

CHOICES = CrossValidation(folds=5, times=33)
"""The cross-validation that chooses order and ridge by default."""

KNOTS = PlacedKnots(tolerance=1e-2, most=200)
"""The spacing of the table of coefficients over the logarithm of t."""

ORDER = 4
"""The order of a prior by default."""

MOST_ORDER = 9
"""The largest order of a prior."""

RESOLVED = 1e-10
"""The smallest variance, relative to the largest, that exceeds the rounding of float32."""

MEASURED = 1000
"""The number of rows that the error of a mixture is measured on."""

RESOLUTION = 0.01
"""The time, as a share of the smallest variance, from which a table is even in log t."""

FIRST = 1e-8
"""The smallest time from which a table is even in log t."""


@overload
def fit_prior(
    data: object,
    *,
    labels: None = None,
    order: int | None = None,
    frame: Frame | PCA | None = None,
    pixels: Pixels | None = None,
    flip: bool = False,
    dequantise: bool | None = None,
    shrinkage: Shrinkage | None = None,
    ridge: CrossValidation | float | None = None,
    knots: Knots | None = None,
    clock: Clock | None = None,
    device: torch.device | str | None = None,
    shared: bool = False,
    progress: bool | None = None,
) -> HermitePrior: ...


@overload
def fit_prior(
    data: object,
    *,
    labels: object,
    order: int | None = None,
    frame: Frame | PCA | None = None,
    pixels: Pixels | None = None,
    flip: bool = False,
    dequantise: bool | None = None,
    shrinkage: Shrinkage | None = None,
    ridge: CrossValidation | float | None = None,
    knots: Knots | None = None,
    clock: Clock | None = None,
    device: torch.device | str | None = None,
    shared: bool = False,
    progress: bool | None = None,
) -> ClassPrior: ...


def fit_prior(  # noqa: PLR0913 (the one place where everything is tied together)
    data: object,
    *,
    labels: object = None,
    order: int | None = None,
    frame: Frame | PCA | None = None,
    pixels: Pixels | None = None,
    flip: bool = False,
    dequantise: bool | None = None,
    shrinkage: Shrinkage | None = None,
    ridge: CrossValidation | float | None = None,
    knots: Knots | None = None,
    clock: Clock | None = None,
    device: torch.device | str | None = None,
    shared: bool = False,
    progress: bool | None = None,
) -> HermitePrior | ClassPrior:
    """Return the Hermite prior of tensors of any shape, or with labels a Gaussian by class.

    Parameters
    ----------
    data
        Tensors ``(n, *shape)``, or an iterable of batches of them that can be read again from its
        beginning where the frame is learned; batches may come with labels, as those of a DataLoader
        do. Bytes are pixels from 0 to 255, which become [-1, 1] in the model; floating point data
        are not rescaled, and best lie in about that range, unless ``pixels`` is given.
    labels
        The class of each row, integers from 0: ``(n,)``. Means and variances of every class along
        directions in common are shrunk towards those of all rows by cross-validation; see
        `ClassPrior`. The order is then 2, and all rows must be in one process.
    order
        The largest degree of the polynomials, 1 to 9: 1 fits the mean, 2 the Gaussian. By default
        4. The degree for each coordinate and noise level is chosen by cross-validation.
    frame
        `PCA()`, the default; `PCA(count)` for the leading directions; `IdentityFrame()` for the
        entries themselves; `CosineFrame`, `OrthogonalFrame` or `TransformFrame`.
    pixels
        The range of integer data.
    flip
        Count every tensor together with its mirror image along the last axis.
    dequantise
        Add uniform noise of one step to integers, as densities need; by default for pixels.
    shrinkage
        The estimator of the averages of degree three and more, `SampleMeans` by default;
        `JamesStein`, `Modulation` and `Monotone` are the paper's.
    ridge
        `CrossValidation`, the default, or a number for all coordinates and times; then the degree
        is the order everywhere, and `Prior.expected_error` is that on the data themselves.
    knots
        The times at which coefficients are tabulated, over the logarithm of t: by default
        `PlacedKnots`, 60 to 120; `EvenKnots()` are 1,000 with linear interpolation.
    clock
        The noise levels; `VariancePreserving` by default. It must end at a time t ≤ 20.
    device
        The device of sums and solves; by default that of the data.
    shared
        Whether the processes of `torch.distributed`, each with a shard of the data, are to have the
        prior of the whole: all call it with the same arguments but for the data, and all get the
        same prior. A shard may be empty. Where there is one process it makes no difference.

    Examples
    --------
    >>> from oism import fit_prior
    >>> images = torch.randint(0, 256, (200, 1, 4, 4), generator=torch.Generator().manual_seed(0))
    >>> prior = fit_prior(images.byte(), order=3)
    >>> prior.noise(torch.randn(8, 1, 4, 4), tau=0.5).shape
    torch.Size([8, 1, 4, 4])
    """
    clock = _clock(clock)
    if labels is not None:
        _check_classes(order, shared=shared, shrinkage=shrinkage, ridge=ridge, knots=knots)
        checks.optional(pixels, Pixels, "pixels")
        stream = Stream(data, pixels, CHOICES.folds, device_of(data, device))
        with progress_bar(progress) as bar:
            passes = Passes(stream, MOST_ORDER, flip=flip, dequantise=dequantise, bar=bar)
            return _class_prior(passes, labels, PCA() if frame is None else frame, clock)
    order = ORDER if order is None else order
    folds = 1 if isinstance(ridge, int | float) else (ridge or CHOICES).folds
    statistics = image_statistics(
        data, order=order, frame=frame, pixels=pixels, flip=flip, dequantise=dequantise,
        shrinkage=shrinkage, folds=folds, device=device, shared=shared, progress=progress,
    )  # fmt: skip
    return prior_from_statistics(
        statistics, order=order, ridge=ridge, knots=knots, clock=clock, progress=progress
    )


def _check_classes(order: int | None, *, shared: bool, **others: object) -> None:
    """Raise for arguments that Gaussians by class do not have."""
    if order not in (None, 2):
        raise ValueError(f"order must be 2 with labels, a Gaussian for every class, got {order!r}")
    for name, value in others.items():
        if value is not None:
            raise ValueError(f"{name} must not be given with labels, got {value!r}")
    if shared and processes() > 1:
        raise NotImplementedError(
            "shared must be False with labels, whose moments are summed in one process: fit to all "
            "data on every rank, or on one, and load its file on the others"
        )


def _class_prior(passes: Passes, labels: object, frame: Frame | PCA, clock: Clock) -> ClassPrior:
    """Return the prior of a stream of rows with labels."""
    found = class_statistics(passes, training_labels(labels), frame)
    stream, components, rest = passes.stream, found.components, found.rest
    table = _table(clock, components.variances)
    spec = TensorSpec(stream.shape, clock, stream.pixels, passes.noise > 0)
    error = class_error(table, components, stream.dim, rest)
    prior = ClassPrior(spec, table, error, found.frame, found.mean, rest, components)
    return prior.cpu()


def image_statistics(  # noqa: PLR0913
    data: object,
    *,
    order: int = 4,
    frame: Frame | PCA | None = None,
    pixels: Pixels | None = None,
    flip: bool = False,
    dequantise: bool | None = None,
    shrinkage: Shrinkage | None = None,
    folds: int = 5,
    device: torch.device | str | None = None,
    shared: bool = False,
    progress: bool | None = None,
) -> ImageStatistics:
    """Return the statistics that `fit_prior` solves with: enough for every order up to this one.

    With one fold nothing can be cross-validated: `prior_from_statistics` then needs a ridge.
    """
    frame = PCA() if frame is None else frame
    with together(shared):
        order, folds = max(2, _order(order)), checks.integer(folds, "folds", minimum=1)
        checks.optional(pixels, Pixels, "pixels")
        place = device_of(data, device)
    if shared:
        size = getattr(frame, "count", getattr(frame, "dim", None))
        named = f"{type(frame).__name__}({size})"
        check_same(
            order=order, folds=folds, flip=flip, dequantise=dequantise, frame=named,
            shrinkage=repr(shrinkage),
        )  # fmt: skip
    stream = Stream(data, pixels, folds, place, shared)
    with progress_bar(progress) as bar:
        passes = Passes(
            stream, order, flip=flip, dequantise=dequantise, bar=bar, shrinkage=shrinkage
        )
        return passes.statistics(frame)


def prior_from_statistics(
    statistics: ImageStatistics,
    *,
    order: int | None = None,
    ridge: CrossValidation | float | None = None,
    knots: Knots | None = None,
    clock: Clock | None = None,
    progress: bool | None = None,
) -> HermitePrior:
    """Return the prior that follows from statistics, of their order or a lower one."""
    checks.instance(statistics, ImageStatistics, "statistics")
    order = statistics.order if order is None else _order(order)
    if order > statistics.order:
        raise ValueError(
            f"order must be at most {statistics.order}, that of the statistics, got {order}"
        )
    clock, standard, rest = _clock(clock), statistics.standard, statistics.rest
    variances = standard.scale.square()
    if order == 1:  # the mean alone: all deviations are those of the invariant measure
        standard = replace(standard, scale=torch.ones_like(standard.scale))
        rest = None if rest is None else 1.0
    table = _table(clock, standard.scale.square())
    basis = Hermite(len(standard.scale), order)
    lines = fit_standardised(
        basis,
        standard,
        clock=table,
        ridge=CHOICES if ridge is None else ridge,
        knots=KNOTS if knots is None else knots,
        progress=progress,
    )
    beyond = None if rest is None or statistics.rest is None else (rest, statistics.rest)
    heldout = _heldout(lines, basis, standard)
    error = polynomial_error(lines, len(statistics.mean), beyond, variances, heldout)
    lines.curve = lines.curve.float()  # solved in float64, evaluated in float32
    spec = TensorSpec(statistics.shape, clock, statistics.pixels, statistics.dequantised)
    return HermitePrior(spec, error, statistics.frame, statistics.mean, rest, lines).cpu()


def _heldout(lines: HermiteScore, basis: Hermite, standard: Standardised) -> Tensor | None:
    """Return the losses at the times of choice: held-out ones, or without folds all rows'."""
    diagnostics = lines.diagnostics
    if basis.order <= 2:
        return None
    if bool(diagnostics.loss.isfinite().all()):
        return diagnostics.loss
    alpha = lines.curve(diagnostics.tau)
    return HermiteSystem(basis, standard).loss(diagnostics.t, alpha)


def fit_mixture(  # noqa: PLR0913
    data: object,
    *,
    components: int = 32,
    frame: PCA | None = None,
    pixels: Pixels | None = None,
    flip: bool = False,
    dequantise: bool | None = None,
    clock: Clock | None = None,
    device: torch.device | str | None = None,
    shared: bool = False,
    progress: bool | None = None,
) -> MixturePrior:
    """Return a mixture of Gaussians with principal directions in common.

    ``components`` is their number; the rest is as for `fit_prior`. The coordinates of up to
    2²⁸/dim rows are held in memory, in float32, while the components are found, so that one process
    must see all rows: ``shared`` is refused where there are more.
    """
    if shared and processes() > 1:
        raise NotImplementedError(
            "shared must be False for a mixture, whose components are found in the memory of one "
            "process: fit it to all data on one rank, and load its file on the others"
        )
    checks.integer(components, "components", minimum=1)
    frame = PCA() if frame is None else frame
    checks.instance(frame, PCA, "frame")
    clock = _clock(clock)
    checks.optional(pixels, Pixels, "pixels")
    stream = Stream(data, pixels, CHOICES.folds, device_of(data, device))
    with progress_bar(progress) as bar:
        passes = Passes(stream, MOST_ORDER, flip=flip, dequantise=dequantise, bar=bar)
        found, unit = passes.spectrum(frame)
        mean, noise = stream.units(found.mean), passes.noise
        total = found.sample * unit**2 + noise
        resolved = total > RESOLVED * total.max()
        scale = torch.where(resolved, total, torch.inf).sqrt()
        u = passes.coordinates(found.directions, found.directions @ mean, scale)
        if components > len(u):
            raise ValueError(
                f"components must be at most the number of rows, {len(u)}, got {components}"
            )
        bar.stage("components")
        # Directions without variance in the rows get the variance one.
        extra = torch.where(resolved, noise / total, 1.0).float()
        parts = maximise(u, components, extra)
    # The shapes of the components from the rows, their variances by cross-validation.
    expected = found.variances * unit**2 + noise
    size = expected.sqrt().float()
    sized = Components(parts.log_weights, parts.means * size, parts.variances * size.square())
    rest = None if found.rest is None else found.rest * unit**2 + noise
    table = _table(clock, expected)
    spec = TensorSpec(stream.shape, clock, stream.pixels, noise > 0)
    leading = Directions(found.directions)
    prior = MixturePrior(spec, table, unit_error(table), leading, mean, rest, sized)
    measured = u[:: max(1, len(u) // MEASURED)]
    # Rows have no dequantisation, and no spread along directions without variance: add both.
    draw = torch.randn(measured.shape, generator=torch.Generator().manual_seed(1)).to(u)
    prior.error = prior.measured_error((measured + extra.sqrt() * draw) * size)
    return prior.cpu()


def _clock(clock: Clock | None) -> Clock:
    return checked_clock(VariancePreserving() if clock is None else clock)


def _table(clock: Clock, variances: Tensor) -> Logarithmic:
    """Return the clock over which coefficients and errors are tabulated."""
    last = float(clock._time(torch.tensor(clock.horizon, dtype=torch.float64)))
    spread = variances[variances > 0]
    least = float(spread.min()) if len(spread) else 1.0
    return Logarithmic(first=min(max(RESOLUTION * least, FIRST), 0.01 * last), last=last)


def _order(order: int) -> int:
    order = checks.integer(order, "order", minimum=1)
    if order > MOST_ORDER:
        raise ValueError(f"order must be at most {MOST_ORDER}, got {order}")
    return order
