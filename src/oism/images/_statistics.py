"""The statistics of tensors that a prior is made of, by passes over the data.

    data ─► pairs ─► directions ─► moments along them ─► dequantisation
            for a learned frame

Bytes in their own frame need no second pass and no coordinates: their histograms suffice. Where
processes share the data, each reads its own, and the sums of a pass are merged before use.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from oism._core import checks
from oism._core.progress import Progress
from oism.basis import Averages, Frame, Hermite, Standardised
from oism.estimation import (
    Accumulator,
    HermiteMoments,
    HistogramMoments,
    PairMoments,
    SampleMeans,
    Shrinkage,
    Spectrum,
    dithered,
    spectrum,
    uniform_averages,
    uniform_reach,
)
from oism.estimation._moments.sharing import across_processes, of_first, together
from oism.flow import Pixels
from oism.images._framed import Directions
from oism.images._stream import Stream

BYTES = 256

MOST_ENTRIES = 2**14
"""The largest number of entries of tensors whose directions are learned."""

HELD = 2**28
"""The number of coordinates that are held in memory to find components."""


@dataclass(frozen=True)
class PCA:
    """Principal directions, learned from the data: all of them, or the leading ``count``.

    Along the others the model is a Gaussian with one variance.
    """

    count: int | None = None

    def __post_init__(self) -> None:
        if self.count is not None:
            checks.assign(self, count=checks.integer(self.count, "count", minimum=1))


@dataclass(frozen=True, eq=False)
class ImageStatistics:
    """A frame, and the averages of its coordinates over the data up to an order.

    ``mean`` is that of the data, ``standard`` the averages in standardised coordinates, ``rest``
    the variance along directions that are not in the frame. `prior_from_statistics` makes priors
    of them.
    """

    shape: tuple[int, ...]
    pixels: Pixels | None
    dequantised: bool
    order: int
    frame: Frame
    mean: Tensor
    standard: Standardised
    rest: float | None = None


class Passes:
    """The passes over the data that `ImageStatistics` take."""

    def __init__(
        self,
        stream: Stream,
        order: int,
        *,
        flip: bool,
        dequantise: bool | None,
        bar: Progress,
        shrinkage: Shrinkage | None = None,
    ) -> None:
        self.shrinkage = SampleMeans() if shrinkage is None else shrinkage
        checks.instance(self.shrinkage, Shrinkage, "shrinkage")
        self.stream, self.order, self.flip, self.bar = stream, order, bool(flip), bar
        if flip:
            checks.mirrored(stream.shape)
        pixels = stream.pixels
        if dequantise and pixels is None:
            raise ValueError("dequantise must be False for data that are not integers (pixels=…)")
        wanted = pixels is not None and dequantise is not False
        self.noise = pixels.step**2 / 12 if pixels is not None and wanted else 0.0

    def statistics(self, frame: Frame | PCA) -> ImageStatistics:
        """Return the statistics in a frame."""
        fixed = self.fixed_frame(frame)
        if fixed is None:
            return self._principal(cast("PCA", frame))
        frame = fixed
        pixels = self.stream.pixels
        exact = pixels is not None and pixels.are_bytes and not self.shrinkage.needs_variances
        if frame.is_identity and exact:
            assert pixels is not None
            standard = self._histograms(pixels)
        else:
            standard = self._moments(frame)
        mean = frame._synthesise(standard.shift[None])[0]
        return self._result(frame, mean, self._dithered(standard, frame))

    def fixed_frame(self, frame: Frame | PCA) -> Frame | None:
        """Return a frame that suits the tensors, or None for directions that are to be learned."""
        if isinstance(frame, PCA):
            return None
        if not isinstance(frame, Frame):
            raise TypeError(f"frame must be PCA(...) or a Frame, got {type(frame).__name__}")
        if frame.dim not in (None, self.stream.dim):
            raise ValueError(
                f"frame must serve tensors of {self.stream.dim} entries, got one for {frame.dim}"
            )
        return frame

    def _principal(self, frame: PCA) -> ImageStatistics:
        found, unit = self.spectrum(frame)
        mean, scale = self.stream.units(found.mean), found.variances.sqrt() * unit
        if self.order == 2:
            standard = _without_moments(found.directions @ mean, scale)
        else:
            # The shape of the distribution from the averages, its variances by cross-validation.
            standard = self._moments(Directions(found.directions))
            standard = replace(standard, scale=scale.to(standard.scale))
        standard = self._dithered(standard, Directions(found.directions))
        rest = None if found.rest is None else found.rest * unit**2 + self.noise
        return self._result(Directions(found.directions), mean, standard, rest)

    def _result(
        self, frame: Frame, mean: Tensor, standard: Standardised, rest: float | None = None
    ) -> ImageStatistics:
        stream, dequantised = self.stream, self.noise > 0
        return ImageStatistics(
            stream.shape, stream.pixels, dequantised, self.order, frame, mean, standard, rest
        )

    def spectrum(self, frame: PCA) -> tuple[Spectrum, float]:
        """Return the principal directions from one pass, in units of the data, and that unit."""
        stream = self.stream
        with together(stream.shared):
            self.check_repeatable()
        self.check_size()
        sums, one = PairMoments(stream.dim, stream.folds, device=stream.device), stream.folds == 1
        pairs = self._pass("pairs", sums, lambda x, fold: sums.update(x, None if one else fold))
        if self.flip:
            pairs = pairs.mirrored(self._mirror())
        self.bar.stage("principal directions")
        found = spectrum(pairs, frame.count, validate=stream.folds > 1)
        # Machines of different kinds may find directions of opposite sign: all take rank 0's.
        found = of_first(found) if stream.shared else found
        return found, 1.0 if stream.pixels is None else stream.pixels.step

    def check_size(self) -> None:
        """Raise if tensors are too large to learn directions."""
        if self.stream.dim > MOST_ENTRIES:
            stream = self.stream
            size = 8e-9 * stream.dim**2 * (stream.folds + 3)
            raise ValueError(
                f"tensors of {stream.dim} entries are too large to learn directions, which takes "
                f"at most {MOST_ENTRIES}: covariances would take {size:.0f} GB. Polynomials in a "
                "fixed frame need none (CosineFrame, IdentityFrame; `oism fit-images --frame "
                "cosine`, `oism train --prior pixel`)"
            )

    def check_repeatable(self) -> None:
        """Raise if a frame is learned and the data can be read once only."""
        if self.order > 2 and not self.stream.is_repeatable:
            raise TypeError(
                "data must be readable twice for a frame that is learned, and an iterator can be "
                "read once: give a list, an array, a DataLoader, or a fixed frame"
            )

    def coordinates(self, directions: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
        """Return standardised coordinates of the rows, at most `HELD` numbers."""
        images = 2 if self.flip else 1
        stride = math.ceil(images * self.stream.rows * len(directions) / HELD)
        matrix, seen = (directions / scale[:, None]).float(), 0
        kept: list[Tensor] = []
        offset = (shift / scale).float()
        for rows, _ in self.rows("coordinates"):
            first = -seen % stride
            seen += len(rows)
            x = self.stream.units(rows[first::stride].float())
            kept.extend(image @ matrix.mT - offset for image in self.images(x))
        return torch.cat(kept)

    def images(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return rows, and with flips their mirror images."""
        return (x, x[:, self._mirror()]) if self.flip else (x,)

    def rows(self, name: str) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the rows of one pass with their folds, and show its progress."""
        self.bar.stage(name, self.stream.rows or None)
        for rows, fold in self.stream:
            yield rows, fold
            self.bar.advance(len(rows))

    def _pass(
        self, name: str, empty: Accumulator, update: Callable[[Tensor, Tensor], object]
    ) -> Accumulator:
        """Return an accumulator that was updated with all rows, those of other processes too."""
        with together(self.stream.shared):
            for rows, fold in self.rows(name):
                update(rows, fold)
        return across_processes(empty) if self.stream.shared else empty

    def _histograms(self, pixels: Pixels) -> Standardised:
        stream = self.stream
        counts = HistogramMoments(stream.dim, stream.folds, device=stream.device)
        counts = self._pass("histograms", counts, counts.update)
        if self.flip:
            counts = counts.mirrored(self._mirror())
        values = torch.arange(BYTES, dtype=torch.float64) * pixels.step - 1
        return counts.standardised(self.order, values)

    def _moments(self, frame: Frame) -> Standardised:
        stream, matrix = self.stream, frame.stored_directions()
        count = stream.dim if matrix is None else len(matrix)
        squares = self.shrinkage.needs_variances and self.order > 2
        moments = HermiteMoments(Hermite(count, self.order), stream.folds, squares=squares)

        def update(rows: Tensor, fold: Tensor) -> None:
            for image in self.images(stream.units(rows)):
                moments.update(frame._analyse(image), fold=fold)

        found = self._pass("moments", moments, update).shrunk(self.shrinkage)
        averages = found.averages  # variances of averages took twice the degree
        heldout = averages.heldout[:, : len(averages.total)]
        return _moved(replace(found, averages=replace(averages, heldout=heldout)), stream.device)

    def _dithered(self, standard: Standardised, frame: Frame) -> Standardised:
        """Return the averages of the data with uniform noise added."""
        if not self.noise:
            return standard
        degree = len(standard.averages.total) - 1
        powers = frame.power_sums(self.stream.dim, degree)
        return dithered(standard, uniform_averages(powers), self.noise, uniform_reach(powers))

    def _mirror(self) -> Tensor:
        """Return the places of the entries in a mirror image, flipped along the last axis."""
        places = torch.arange(self.stream.dim).reshape(self.stream.shape)
        return places.flip(-1).flatten().to(self.stream.device)


def _without_moments(shift: Tensor, scale: Tensor) -> Standardised:
    """Return the statistics of a Gaussian, mean and deviation alone."""
    means = torch.zeros(3, len(shift), dtype=torch.float64, device=shift.device)
    means[0] = 1
    none, nothing = means.new_zeros(0, *means.shape), means.new_zeros(0)
    return Standardised(shift, scale, shift, shift, Averages(means, none, none, nothing, nothing))


def _moved(standard: Standardised, device: torch.device) -> Standardised:
    """Return averages on a device, where the equations are to be solved."""
    parts = vars(standard.averages).items()
    averages = Averages(**{name: part.to(device) for name, part in parts})
    moved = {name: getattr(standard, name).to(device) for name in ("shift", "scale", "low", "high")}
    return Standardised(**moved, averages=averages)
