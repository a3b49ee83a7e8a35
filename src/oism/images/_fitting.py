"""Fitting a prior: passes over tensors, then the closed form of all noise levels.

data ─► law (a frame, averages) ─► order, ridge ─► α(t) ─► skill
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from oism._core import checks
from oism._core.progress import progress_bar
from oism.basis import Frame, Hermite, Standardised
from oism.estimation import CrossValidation, HermiteSystem, PlacedKnots, fit_standardised
from oism.estimation._moments.sharing import demand_same, processes, together
from oism.images._base import Setting
from oism.images._hermite import HermitePrior
from oism.images._mixture import Components, MixturePrior, maximise
from oism.images._pixels import Pixels
from oism.images._skill import expected_error, measured_error, unknown_error
from oism.images._statistics import PCA, Law, Passes
from oism.images._stream import Stream, device_of
from oism.process import Clock, Logarithmic, VariancePreserving
from oism.score import HermiteScore

CHOICES = CrossValidation(folds=5, times=33)
"""How order and ridge are chosen: a few dozen times are enough."""

KNOTS = PlacedKnots(tolerance=1e-2, most=200)
"""How densely coefficients are tabulated over the logarithm of t."""

MOST_ORDER = 9

RESOLVED = 1e-10
"""The least variance, of the largest, that coordinates in float32 can tell from rounding."""

MEASURED = 1000
"""The number of rows that the error of a mixture is measured on."""

RESOLUTION = 0.01
"""From which share of the least variance on a table is even in log t: edges are finer than it."""

FIRST = 1e-8
"""The least time at which the table of coefficients begins to be even in log t."""


def fit_prior(  # noqa: PLR0913 (the one place where everything is tied together)
    data: object,
    *,
    order: int = 4,
    frame: Frame | PCA | None = None,
    pixels: Pixels | None = None,
    flip: bool = False,
    dequantise: bool | None = None,
    ridge: CrossValidation | float | None = None,
    clock: Clock | None = None,
    device: torch.device | str | None = None,
    shared: bool = False,
    progress: bool | None = None,
) -> HermitePrior:
    """Return the Hermite prior of tensors of any shape.

    Parameters
    ----------
    data
        Tensors ``(n, *shape)``, or an iterable of batches of them that can be read again from its
        beginning where the frame is learnt; batches may come with labels, as those of a DataLoader
        do. Bytes are pixels from 0 to 255, which the model sees from -1 to 1; floating point data
        are taken as they are, and best have about that size, unless ``pixels`` is given.
    order
        The largest degree of the polynomials, 1 to 9: 1 fits the mean, 2 the Gaussian. What is used
        of it is chosen by cross-validation for each coordinate and noise level.
    frame
        `PCA()`, the default; `PCA(count)` for the leading directions; `IdentityFrame()` for the
        entries themselves; `CosineFrame`, `OrthogonalFrame` or `TransformFrame`.
    pixels
        The range of integer data.
    flip
        Count every tensor together with its mirror image along the last axis.
    dequantise
        Add uniform noise of one step to integers, as densities need; by default for pixels.
    ridge
        `CrossValidation`, the default, or a number for all coordinates and times; the prior's
        `skill` is then that on the data themselves.
    clock
        The noise levels that the prior is asked for; `VariancePreserving` by default.
    device
        Where sums and solves are done; by default where the data are.
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
    folds = 1 if isinstance(ridge, int | float) else (ridge or CHOICES).folds
    law = learn_law(
        data, order=order, frame=frame, pixels=pixels, flip=flip, dequantise=dequantise,
        folds=folds, device=device, shared=shared, progress=progress,
    )  # fmt: skip
    return prior_of(law, order=order, ridge=ridge, clock=clock, progress=progress)


def learn_law(  # noqa: PLR0913
    data: object,
    *,
    order: int = 4,
    frame: Frame | PCA | None = None,
    pixels: Pixels | None = None,
    flip: bool = False,
    dequantise: bool | None = None,
    folds: int = 5,
    device: torch.device | str | None = None,
    shared: bool = False,
    progress: bool | None = None,
) -> Law:
    """Return what `fit_prior` learns before it solves: enough for every order up to this one.

    With one fold nothing can be cross-validated: `prior_of` then needs a ridge.
    """
    frame = PCA() if frame is None else frame
    with together(shared):
        order, folds = max(2, _order(order)), checks.integer(folds, "folds", minimum=1)
        checks.optional(pixels, Pixels, "pixels")
        place = device_of(data, device)
    if shared:
        named = (
            frame if isinstance(frame, PCA) else (type(frame).__name__, getattr(frame, "dim", None))
        )
        demand_same(order=order, folds=folds, flip=flip, dequantise=dequantise, frame=named)
    stream = Stream(data, pixels, folds, place, shared)
    with progress_bar(progress) as bar:
        passes = Passes(stream, order, flip=flip, dequantise=dequantise, bar=bar)
        return passes.law(frame)


def prior_of(
    law: Law,
    *,
    order: int | None = None,
    ridge: CrossValidation | float | None = None,
    clock: Clock | None = None,
    progress: bool | None = None,
) -> HermitePrior:
    """Return the prior of a law, of its order or a lower one: the solves, and their worth."""
    order = law.order if order is None else _order(order)
    if order > law.order:
        raise ValueError(f"order must be at most {law.order}, that of the law, got {order}")
    clock, standard, rest = _clock(clock), law.standard, law.rest
    variances = standard.scale.square()
    if order == 1:  # the mean alone: all deviations are those of the invariant law
        standard = replace(standard, scale=torch.ones_like(standard.scale))
        rest = None if rest is None else 1.0
    table = _table(clock, standard.scale.square())
    basis = Hermite(len(standard.scale), order)
    lines = fit_standardised(
        basis,
        standard,
        clock=table,
        ridge=CHOICES if ridge is None else ridge,
        knots=KNOTS,
        progress=progress,
    )
    beyond = None if rest is None or law.rest is None else (rest, law.rest)
    held = _held_out(lines, basis, standard)
    error = expected_error(lines, len(law.mean), beyond, variances, held)
    lines.curve = lines.curve.float()  # the solves are over, and a table is evaluated in float32
    directions = law.directions
    directions = directions.cpu() if isinstance(directions, Tensor) else directions
    setting = Setting(law.shape, clock, table, law.pixels, law.dequantised)
    return HermitePrior(setting, error, directions, law.mean.cpu(), rest, lines)


def _held_out(lines: HermiteScore, basis: Hermite, standard: Standardised) -> Tensor | None:
    """Return the losses at the times of choice: held-out, or without folds those of the data."""
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
            "process: fit it to all data on one rank, and load the file that it saves on the others"
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
        known = total > RESOLVED * total.max()
        scale = torch.where(known, total, torch.inf).sqrt()
        u = passes.coordinates(found.directions, found.directions @ mean, scale)
        if components > len(u):
            raise ValueError(
                f"components must be at most the number of rows, {len(u)}, got {components}"
            )
        bar.stage("components")
        extra = torch.where(known, noise / total, 1.0).float()  # of what the rows do not tell: all
        parts = maximise(u, components, extra)
    # The shapes of the components from the rows, their size from what new rows will show.
    expected = found.variances * unit**2 + noise
    size = expected.sqrt().float()
    sized = Components(parts.log_weights, parts.means * size, parts.variances * size.square())
    rest = None if found.rest is None else found.rest * unit**2 + noise
    table = _table(clock, expected)
    setting = Setting(stream.shape, clock, table, stream.pixels, noise > 0)
    prior = MixturePrior(setting, unknown_error(table), found.directions, mean, rest, sized)
    shown = u[:: max(1, len(u) // MEASURED)]
    # What the rows do not show, dequantisation and directions without spread, new ones will.
    draw = torch.randn(shown.shape, generator=torch.Generator().manual_seed(1)).to(u)
    prior.error = measured_error(prior, (shown + extra.sqrt() * draw) * size)
    return prior.cpu()


def _clock(clock: Clock | None) -> Clock:
    clock = VariancePreserving() if clock is None else clock
    checks.instance(clock, Clock, "clock")
    return clock


def _table(clock: Clock, variances: Tensor) -> Logarithmic:
    """Return the pace at which coefficients and errors are tabulated."""
    last = float(clock._time(torch.tensor(clock.horizon, dtype=torch.float64)))
    spread = variances[variances > 0]
    least = float(spread.min()) if len(spread) else 1.0
    return Logarithmic(first=min(max(RESOLUTION * least, FIRST), 0.01 * last), last=last)


def _order(order: int) -> int:
    order = checks.integer(order, "order", minimum=1)
    if order > MOST_ORDER:
        raise ValueError(f"order must be at most {MOST_ORDER}, got {order}")
    return order
