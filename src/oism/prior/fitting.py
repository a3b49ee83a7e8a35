"""Fitting a prior: passes over tensors, a frame, averages, and the closed form.

    data ─► pairs ─► directions ─► moments along them ─► dequantisation ─► α(t) ─► skill
            first pass, where a frame is learnt   the pass of the moments

Bytes in their own frame need no second pass and no coordinates: their histograms hold everything.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from oism import checks
from oism.basis import Frame, Hermite, IdentityFrame
from oism.clock import Clock, Logarithmic, VariancePreserving
from oism.estimation import CrossValidation, PlacedKnots, fit_standardised
from oism.moments import (
    Averages,
    HermiteMoments,
    HistogramMoments,
    PairMoments,
    Spectrum,
    Standardised,
    dithered,
    spectrum,
    uniform_averages,
)
from oism.prior.base import Setting
from oism.prior.hermite import HermitePrior
from oism.prior.mixture import Components, MixturePrior, maximise
from oism.prior.pixels import BYTES, Pixels
from oism.prior.skill import expected_error, measured_error, unknown_error
from oism.prior.stream import Stream
from oism.progress import Progress, progress_bar
from oism.score import HermiteScore
from oism.solve import HermiteSystem

CHOICES = CrossValidation(folds=5, times=25)
"""How order and ridge are chosen: a few dozen times are enough."""

KNOTS = PlacedKnots(tolerance=1e-2, most=200)
"""How densely coefficients are tabulated over the logarithm of t."""

MOST_ORDER = 9

HELD = 2**28
"""The number of coordinates that are held in memory to find components."""

RESOLVED = 1e-10
"""The least variance, of the largest, that coordinates in float32 can tell from rounding."""

MEASURED = 1000
"""The number of rows that the error of a mixture is measured on."""

FIRST = 1e-8
"""The least time at which the table of coefficients begins to be even in log t."""


@dataclass(frozen=True)
class PCA:
    """Principal directions, learnt from the data: all of them, or the leading ``count``.

    Along those left out the law is Gaussian with one variance.
    """

    count: int | None = None

    def __post_init__(self) -> None:
        if self.count is not None:
            checks.settle(self, count=checks.integer(self.count, "count", minimum=1))


@dataclass(frozen=True, eq=False)
class Law:
    """What is known of the data: a frame, and the averages of its coordinates.

    ``directions`` are a frame or the rows of a matrix ``(k, d)``; ``mean`` is that of the data,
    ``rest`` the variance along all other directions.
    """

    directions: Frame | Tensor
    mean: Tensor
    standard: Standardised
    rest: float | None = None


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
    progress: bool | None = None,
) -> HermitePrior:
    """Return the Hermite prior of tensors of any shape.

    Parameters
    ----------
    data
        Tensors ``(n, *shape)``, or an iterable of batches of them that can be read again from its
        beginning where the frame is learnt. Bytes are pixels from 0 to 255; other data are taken to
        be in the model's units unless ``pixels`` is given.
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
        `CrossValidation`, the default, or a number for all coordinates and times.
    clock
        The noise levels that the prior is asked for; `VariancePreserving` by default.
    device
        Where sums and solves are done; by default where the data are.

    Examples
    --------
    >>> from oism import fit_prior
    >>> images = torch.randint(0, 256, (200, 1, 4, 4), generator=torch.Generator().manual_seed(0))
    >>> prior = fit_prior(images.byte(), order=3)
    >>> prior.noise(torch.randn(8, 1, 4, 4), tau=0.5).shape
    torch.Size([8, 1, 4, 4])
    """
    ridge = CHOICES if ridge is None else ridge
    folds = ridge.folds if isinstance(ridge, CrossValidation) else 1
    stream = _stream(data, pixels, folds, device)
    clock = _clock(clock)
    with progress_bar(progress) as bar:
        fitting = Fitting(stream, _order(order), flip=flip, dequantise=dequantise, bar=bar)
        law = fitting.law(PCA() if frame is None else frame)
    return _prior(stream, law, fitting.order, ridge, clock, progress)


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
    progress: bool | None = None,
) -> MixturePrior:
    """Return a mixture of Gaussians with principal directions in common.

    ``components`` is their number; the rest is as for `fit_prior`. The coordinates of up to
    2²⁸/dim rows are held in memory, in float32, while the components are found.
    """
    checks.integer(components, "components", minimum=1)
    frame = PCA() if frame is None else frame
    checks.instance(frame, PCA, "frame")
    stream = _stream(data, pixels, CHOICES.folds, device)
    clock = _clock(clock)
    with progress_bar(progress) as bar:
        fitting = Fitting(stream, 3, flip=flip, dequantise=dequantise, bar=bar)
        found, unit = fitting.spectrum(frame)
        mean = fitting.units(found.mean)
        sample, expected = found.sample * unit**2, found.variances * unit**2 + fitting.noise
        total = sample + fitting.noise
        known = total > RESOLVED * total.max()
        scale = torch.where(known, total, torch.inf).sqrt()
        u = fitting.coordinates(found.directions, found.directions @ mean, scale)
        bar.stage("components")
        if components > len(u):
            raise ValueError(
                f"components must be at most the number of rows, {len(u)}, got {components}"
            )
        extra = torch.where(known, fitting.noise / total, 1.0)  # the rows say nothing: all of it
        parts = maximise(u, components, extra.float())
    size = expected.sqrt().float()
    parts = Components(
        parts.log_weights.cpu(),
        (parts.means * size).cpu(),
        (parts.variances * size.square()).cpu(),
    )
    rest = None if found.rest is None else found.rest * unit**2 + fitting.noise
    table = _table(clock, expected)
    setting = Setting(stream.shape, clock, table, stream.pixels)
    nothing, directions = unknown_error(table), found.directions.cpu()
    prior = MixturePrior(setting, nothing, directions, mean.cpu(), rest, parts)
    shown = u[:: max(1, len(u) // MEASURED)]
    # What the rows do not show, dequantisation and directions without spread, new ones will.
    draw = torch.randn(shown.shape, generator=torch.Generator().manual_seed(1)).to(u)
    shown = (shown + extra.sqrt().to(u) * draw) * size.to(u)
    prior.error = measured_error(prior.to(stream.device), shown)
    return prior.cpu()


def _stream(
    data: object, pixels: Pixels | None, folds: int, device: torch.device | str | None
) -> Stream:
    checks.optional(pixels, Pixels, "pixels")
    return Stream(data, pixels, folds, _device(data, device))


def _clock(clock: Clock | None) -> Clock:
    clock = VariancePreserving() if clock is None else clock
    checks.instance(clock, Clock, "clock")
    return clock


def _table(clock: Clock, variances: Tensor) -> Logarithmic:
    """Return the pace at which coefficients and errors are tabulated."""
    last = float(clock._time(torch.tensor(clock.horizon, dtype=torch.float64)))
    spread = variances[variances > 0]
    least = float(spread.min()) if len(spread) else 1.0
    return Logarithmic(first=min(max(least / 4, FIRST), 0.01 * last), last=last)


def _prior(
    stream: Stream,
    law: Law,
    order: int,
    ridge: CrossValidation | float,
    clock: Clock,
    progress: bool | None,
) -> HermitePrior:
    """Solve for the coefficients of all times, and tell what they are worth."""
    standard = law.standard
    table = _table(clock, standard.scale.square())
    basis = Hermite(len(standard.scale), order)
    lines = fit_standardised(
        basis, standard, clock=table, ridge=ridge, knots=KNOTS, progress=progress
    )
    error = expected_error(lines, stream.dim, law.rest, _held_out(lines, basis, standard))
    lines.curve = lines.curve.float()  # the solves are over, and a table is evaluated in float32
    directions = law.directions
    directions = directions.cpu() if isinstance(directions, Tensor) else directions
    setting = Setting(stream.shape, clock, table, stream.pixels)
    return HermitePrior(setting, error, directions, law.mean.cpu(), law.rest, lines)


def _held_out(lines: HermiteScore, basis: Hermite, standard: Standardised) -> Tensor | None:
    """Return the losses at the times of choice: held-out, or without folds those of the data."""
    diagnostics = lines.diagnostics
    if basis.order <= 2:
        return None
    if bool(diagnostics.loss.isfinite().all()):
        return diagnostics.loss
    alpha = lines.curve(diagnostics.tau)
    return HermiteSystem(basis, standard).loss(diagnostics.t, alpha)


class Fitting:
    """The passes over the data that lead to a `Law`."""

    def __init__(
        self,
        stream: Stream,
        order: int,
        *,
        flip: bool,
        dequantise: bool | None,
        bar: Progress,
    ) -> None:
        self.stream, self.order, self.flip, self.bar = stream, order, bool(flip), bar
        pixels = stream.pixels
        if dequantise and pixels is None:
            raise ValueError("dequantise must be False for data that are not integers (pixels=…)")
        wanted = pixels is not None and dequantise is not False
        self.noise = pixels.step**2 / 12 if pixels is not None and wanted else 0.0

    def law(self, frame: Frame | PCA) -> Law:
        """Return the law in a frame."""
        if isinstance(frame, PCA):
            return self._principal(frame)
        if not isinstance(frame, Frame):
            raise TypeError(f"frame must be PCA(...) or a Frame, got {type(frame).__name__}")
        if frame.dim not in (None, self.stream.dim):
            raise ValueError(
                f"frame must serve tensors of {self.stream.dim} entries, got one for {frame.dim}"
            )
        pixels = self.stream.pixels
        if isinstance(frame, IdentityFrame) and pixels is not None and pixels.are_bytes:
            standard = self._histograms(pixels)
        else:
            standard = self._moments(frame)
        mean = frame._synthesise(standard.shift[None])[0]
        return Law(frame, mean, self._dithered(standard, frame))

    def _principal(self, frame: PCA) -> Law:
        found, unit = self.spectrum(frame)
        mean, scale = self.units(found.mean), found.variances.sqrt() * unit
        if self.order <= 2:
            standard = _without_moments(found.directions @ mean, scale, self.order)
        else:
            # The shape of the law from the averages, its size from what new rows will show.
            standard = self._moments(found.directions)
            standard = replace(standard, scale=scale.to(standard.scale))
        standard = self._dithered(standard, found.directions)
        rest = None if found.rest is None else found.rest * unit**2 + self.noise
        return Law(found.directions, mean, standard, rest)

    def spectrum(self, frame: PCA) -> tuple[Spectrum, float]:
        """Return the principal directions from one pass, in units of the data, and that unit."""
        stream = self.stream
        if self.order > 2 and not stream.is_repeatable:
            raise TypeError(
                "data must be readable twice for a frame that is learnt, and an iterator can be "
                "read once: give a list, an array, a DataLoader, or a fixed frame"
            )
        pairs = PairMoments(stream.dim, stream.folds, device=stream.device)
        for rows, fold in self._rows("pairs"):
            pairs.update(rows, fold if stream.folds > 1 else None)
        if self.flip:
            pairs = pairs.mirrored(self._mirror())
        self.bar.stage("principal directions")
        found = spectrum(pairs, frame.count, validate=stream.folds > 1)
        return found, 1.0 if stream.pixels is None else stream.pixels.step

    def units(self, offsets: Tensor) -> Tensor:
        """Return what a pass yields in the model's units."""
        pixels = self.stream.pixels
        return offsets if pixels is None else offsets * pixels.step - 1

    def coordinates(self, directions: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
        """Return standardised coordinates of the rows, as many as memory is meant for."""
        images = 2 if self.flip else 1
        stride = math.ceil(images * self.stream.rows * len(directions) / HELD)
        matrix, seen = (directions / scale[:, None]).float(), 0
        kept: list[Tensor] = []
        offset = (shift / scale).float()
        for rows, _ in self._rows("coordinates"):
            first = -seen % stride
            seen += len(rows)
            x = self.units(rows[first::stride].float())
            kept.extend(image @ matrix.mT - offset for image in self._images(x))
        return torch.cat(kept)

    def _images(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return rows, and with flips their mirror images."""
        return (x, x[:, self._mirror()]) if self.flip else (x,)

    def _rows(self, name: str) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the rows of one pass with their folds, and show how far it is."""
        self.bar.stage(name, self.stream.rows or None)
        for rows, fold in self.stream:
            yield rows, fold
            self.bar.advance(len(rows))

    def _histograms(self, pixels: Pixels) -> Standardised:
        stream = self.stream
        counts = HistogramMoments(stream.dim, stream.folds, device=stream.device)
        for rows, fold in self._rows("histograms"):
            counts.update(rows, fold)
        if self.flip:
            counts = counts.mirrored(self._mirror())
        values = torch.arange(BYTES, dtype=torch.float64) * pixels.step - 1
        return counts.standardised(self.order, values)

    def _moments(self, directions: Frame | Tensor) -> Standardised:
        stream = self.stream
        count = len(directions) if isinstance(directions, Tensor) else stream.dim
        moments = HermiteMoments(Hermite(count, self.order), stream.folds)
        for rows, fold in self._rows("moments"):
            x = stream.units(rows)
            for image in self._images(x):
                if isinstance(directions, Tensor):
                    z = image @ directions.mT
                else:
                    z = directions._analyse(image)
                moments.update(z, fold=fold)
        standard = moments.standardised()
        return _moved(standard, stream.device)

    def _dithered(self, standard: Standardised, directions: Frame | Tensor) -> Standardised:
        """Return the averages with those of uniform noise folded in; order one has no variance."""
        if not self.noise or self.order == 1:
            return standard
        degree = len(standard.averages.total) - 1
        matrix = directions if isinstance(directions, Tensor) else None
        if matrix is None and not isinstance(directions, IdentityFrame):
            assert isinstance(directions, Frame)
            matrix = directions.directions(self.stream.dim)
        return dithered(standard, uniform_averages(matrix, degree), self.noise)

    def _mirror(self) -> Tensor:
        """Return where the entries of a mirror image stand: flipped along the last axis."""
        places = torch.arange(self.stream.dim).reshape(self.stream.shape)
        return places.flip(-1).flatten().to(self.stream.device)


def _without_moments(shift: Tensor, scale: Tensor, order: int) -> Standardised:
    """Return what is known of a Gaussian: nothing beyond mean and deviation."""
    scale = torch.ones_like(scale) if order == 1 else scale
    means = torch.zeros(order + 1, len(shift), dtype=torch.float64, device=shift.device)
    means[0] = 1
    none, nothing = means.new_zeros(0, *means.shape), means.new_zeros(0)
    return Standardised(shift, scale, shift, shift, Averages(means, none, none, nothing, nothing))


def _moved(standard: Standardised, device: torch.device) -> Standardised:
    """Return averages on a device, where the equations are to be solved."""
    parts = vars(standard.averages).items()
    averages = Averages(**{name: part.to(device) for name, part in parts})
    moved = {name: getattr(standard, name).to(device) for name in ("shift", "scale", "low", "high")}
    return Standardised(**moved, averages=averages)


def _order(order: int) -> int:
    order = checks.integer(order, "order", minimum=1)
    if order > MOST_ORDER:
        raise ValueError(f"order must be at most {MOST_ORDER}, got {order}")
    return order


def _device(data: object, device: torch.device | str | None) -> torch.device:
    if device is not None:
        return torch.device(device)
    return data.device if isinstance(data, Tensor) else torch.device("cpu")
