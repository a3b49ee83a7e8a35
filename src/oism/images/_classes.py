"""Gaussians by class: means and variances of every class along directions in common.

A class has the distribution N(m_c, v_c) along directions V. Noised it remains Gaussian, so that

    ε̂(x, τ | c) = σ Vᵀ(z - α m_c)/(α² v_c + σ²),    z = Vx,

and without a label the distribution is the mixture of all classes, in closed form as well.

The directions are the principal ones *within* classes: of x - (mean of its class). Means and
variances of a class are estimated from its rows alone, which may be few, and are shrunk towards
those of all rows, in each coordinate by factors a and b in [0, 1]:

    m_c ← m + a (m_c - m),    v_c ← v + b n_c/(n_c + 1) (v_c - v).

Cross-validation gives both in closed form. With m_c and m from all folds but one, the squared error
of predicting the rows of that fold is quadratic in a; that of their squared deviations in b:

    a = Σ n_fc (z̄_fc - m)(m_c - m) / Σ n_fc (m_c - m)²,    the sums over folds and classes,

and b likewise; both are clipped to [0, 1]. If classes do not differ, a = b = 0 up to noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from oism._core.labels import labels_of_rows
from oism._core.transforms import per_row
from oism.basis import Frame
from oism.estimation import PairMoments, Spectrum, spectrum
from oism.images._base import _is_on_device
from oism.images._error import LEVELS, error_curve
from oism.images._framed import Directions
from oism.images._mixture import Components, MixturePrior
from oism.images._statistics import PCA, Passes
from oism.process import Clock, OrnsteinUhlenbeck
from oism.score import FLOOR, Curve
from oism.storage import storable

ENTRIES = 2**23
"""The largest number of rows times folds times classes that is held at a time."""


@storable
class ClassPrior(MixturePrior):
    """A Gaussian for every class; without a label their mixture, weighted by their shares.

    Labels are integers from 0; the number of classes itself stands for no label. `expected_error`
    is that of the noise predicted with labels.

    Examples
    --------
    >>> from oism import fit_prior
    >>> x = torch.tensor([[-1.0], [-0.8], [-1.2], [1.0], [0.8], [1.2]]).repeat(20, 1)
    >>> prior = fit_prior(x, labels=(x[:, 0] > 0).long())
    >>> prior.classes
    2
    >>> noisy = torch.zeros(2, 1)
    >>> prior.conditional_noise(noisy, 0.5, torch.tensor([0, 1])).sign()
    tensor([[ 1.],
            [-1.]])
    >>> prior.given(1).sample(3, torch.Generator().manual_seed(0)).round().flatten()
    tensor([1., 1., 1.])
    """

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.log_weights)

    def facts(self) -> dict[str, Any]:
        """Return kind, shape, frame, number of classes and clock."""
        found = super().facts()
        classes = found.pop("components")
        return {**found, "kind": "Gaussians by class", "classes": classes}

    def given(self, label: int) -> MixturePrior:
        """Return the Gaussian of one class, as a prior."""
        cpu = torch.device("cpu")
        label = int(labels_of_rows(label, 1, self.classes, cpu, "label", required=True))
        own = slice(label, label + 1)
        weight = torch.zeros_like(self.log_weights[own])
        components = Components(weight, self.means[own], self.variances[own])
        error = class_error(self.table_clock, components, self.dim, self.rest)
        found = MixturePrior(
            self.spec, self.table_clock, error, self.frame, self.mean, self.rest, components
        )
        return found.to(self.mean.device)

    def conditional_noise(self, x: Tensor, tau: Tensor | float, labels: object) -> Tensor:
        """Return the noise to expect in x at clock time τ given labels, one or one per row."""
        flat, t = self._flat(x), self._clock_time(tau, x)
        chosen = labels_of_rows(labels, len(x), self.classes, x.device)
        z, known = self.analyse(flat), chosen < self.classes
        inner = self._class_score(z, t, chosen.clamp(max=self.classes - 1))
        if _is_on_device(x) or not bool(known.all()):
            inner = torch.where(known[:, None], inner, self._line_score(z, t))
        score = self._with_rest(flat, z, inner, t).reshape(x.shape)
        return per_row(-self.process._variance(t).sqrt(), x, "tau") * score

    def _class_score(self, z: Tensor, t: Tensor, labels: Tensor) -> Tensor:
        """Return the score of coordinates ``(n, k)`` in classes ``(n,)``."""
        alpha = per_row(self.process._alpha(t), z)
        means, variances = (part.to(z)[labels] for part in (self.means, self.variances))
        spread = alpha.square() * variances + per_row(self.process._variance(t), z)
        return (alpha * (self.centre.to(z) + means) - z) / spread


@dataclass(frozen=True, eq=False)
class ClassStatistics:
    """A frame, the mean ``(d,)``, the components, and the variance beyond the frame."""

    frame: Frame
    mean: Tensor
    components: Components
    rest: float | None


class ClassMoments:
    """Σ1, Σz and Σz² by fold and class: ``(F, C)``, ``(F, C, k)`` twice."""

    def __init__(self, folds: int, classes: int, dim: int, device: torch.device) -> None:
        self.first = torch.zeros(folds, classes, dim, dtype=torch.float64, device=device)
        self.second, self.count = torch.zeros_like(self.first), self.first.new_zeros(folds, classes)

    def update(self, z: Tensor, fold: Tensor, labels: Tensor) -> None:
        """Add rows ``(n, k)`` with their folds and classes, a bounded number at a time."""
        # Products, and not `index_add_`, which adds in no fixed order on a GPU.
        cells = torch.arange(self.count.numel(), device=labels.device)[:, None]
        places = fold.to(labels) * self.count.shape[1] + labels
        step = max(1, ENTRIES // len(cells))
        for part, place in zip(torch.split(z, step), torch.split(places, step), strict=True):
            chosen = (cells == place).to(self.count)
            self.count.view(-1).add_(chosen.sum(dim=1))
            for sums, rows in ((self.first, part), (self.second, part.square())):
                sums.view(-1, z.shape[1]).add_(chosen @ rows.to(sums))

    def moments(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return counts ``(C,)``, means and unbiased variances ``(C, k)``, 0 for a single row."""
        return _moments(*(part.sum(dim=0) for part in (self.count, self.first, self.second)))

    def shrinkage(self) -> tuple[Tensor, Tensor]:
        """Return a and b for each coordinate: ``(k,)``, 0 where nothing can be cross-validated."""
        count, first, second = self.count[..., None], self.first, self.second
        sums = [part.sum(dim=0) - part for part in (self.count, first, second)]
        left, means, variances = _moments(*sums)
        total = left.sum(dim=1, keepdim=True)[..., None].clamp(min=1)
        weight = torch.where(left[..., None] > 1, count, 0.0)  # classes with rows on both sides
        mean = (left[..., None] * means).sum(dim=1, keepdim=True) / total
        apart = means - mean
        a = _slope(first - count * mean, apart, weight)
        centre = mean + a * apart
        square = second - 2 * centre * first + count * centre.square()
        variance = (left[..., None] * variances).sum(dim=1, keepdim=True) / total
        return a, _slope(square - count * variance, variances - variance, weight)


def _moments(count: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    n = count[..., None]
    means = first / n.clamp(min=1)
    variances = (second - n * means.square()) / (n - 1).clamp(min=1)
    return count, means, variances.clamp(min=0)


def _slope(sums: Tensor, apart: Tensor, weight: Tensor) -> Tensor:
    """Return Σ sums·apart/Σ weight·apart² over folds and classes, clipped to [0, 1]."""
    above = torch.where(weight > 0, sums * apart, 0.0).sum(dim=(0, 1))
    below = (weight * apart.square()).sum(dim=(0, 1))
    return torch.where(below > 0, above / below.where(below > 0, 1.0), 0.0).clamp(0, 1)


def class_statistics(passes: Passes, labels: Tensor, frame: Frame | PCA) -> ClassStatistics:
    """Return what a `ClassPrior` is made of, in three passes, or one for a fixed frame."""
    found: Spectrum | None = None
    known = passes.fixed_frame(frame)
    if known is None:
        passes.check_repeatable()
        passes.check_size()
        found = _within(passes, labels, cast("PCA", frame))
        known = Directions(found.directions)
    matrix = known.stored_directions()
    dim = passes.stream.dim if matrix is None else len(matrix)
    moments = _pass(passes, "moments by class", labels, dim, known._analyse)
    count, means, variances = moments.moments()
    a, b = moments.shrinkage()
    share = (count / count.sum())[:, None]
    mean, variance = ((share * part).sum(dim=0) for part in (means, variances))
    apart = means - mean
    own = b * (count / (count + 1))[:, None]
    # A shrunk mean leaves a part of its distance to the variance.
    spread = variance + own * (variances - variance)
    spread = spread + (1 - a).square() * (share * apart.square()).sum(dim=0)
    if found is None:
        centre, rest = known._synthesise(mean[None])[0], None
    else:  # the shape from the rows, the variances within classes by cross-validation
        usable = found.sample > 1e-12 * found.sample.max()
        scale = torch.where(usable, found.variances / found.sample.where(usable, 1.0), 1.0)
        least = torch.where(usable, 0.0, found.variances)
        spread, centre, rest = spread * scale + least, found.mean, found.rest
    components = Components(share[:, 0].log(), a * apart, spread + passes.noise)
    return ClassStatistics(known, centre, components, None if rest is None else rest + passes.noise)


def _pass(passes: Passes, name: str, labels: Tensor, dim: int, coordinates: Any) -> ClassMoments:  # noqa: ANN401
    """Return the moments of coordinates by class, from one pass."""
    stream = passes.stream
    classes = int(labels.max()) + 1
    moments, seen = ClassMoments(stream.folds, classes, dim, stream.device), 0
    for rows, fold in passes.rows(name):
        own = labels[seen : seen + len(rows)].to(stream.device)
        seen += len(rows)
        if len(own) < len(rows):
            break
        for image in passes.images(stream.units(rows)):
            moments.update(coordinates(image), fold, own)
    if seen != len(labels):
        there = f"{stream.rows} rows" if seen < len(labels) else "more rows"
        raise ValueError(f"labels must be one per row of the data: {len(labels)} labels, {there}")
    return moments


def _within(passes: Passes, labels: Tensor, frame: PCA) -> Spectrum:
    """Return the principal directions within classes, about the mean of all rows.

    The rest, beyond the leading directions, has the variance about that mean.
    """
    stream, seen = passes.stream, 0
    count, means, _ = _pass(passes, "means by class", labels, stream.dim, lambda x: x).moments()
    pairs = PairMoments(stream.dim, stream.folds, device=stream.device)
    for rows, fold in passes.rows("pairs"):
        own = means[labels[seen : seen + len(rows)].to(means.device)]
        seen += len(rows)
        for image in passes.images(stream.units(rows)):
            pairs.update(image - own, fold)
    passes.bar.stage("principal directions")
    found = spectrum(pairs, frame.count, validate=stream.folds > 1)
    share = (count / count.sum())[:, None]
    mean, rest = (share * means).sum(dim=0), found.rest
    if rest is not None:
        apart = means - mean
        beyond = apart - (apart @ found.directions.mT) @ found.directions
        more = float((share * beyond.square()).sum())
        rest += more / (stream.dim - len(found.directions))
    return Spectrum(mean, found.directions, found.sample, found.variances, rest)


def class_error(table: Clock, components: Components, dim: int, rest: float | None = None) -> Curve:
    """Return the error of the noise predicted with labels: the mean of α²v/(α²v + σ²).

    Variances count as at least 1e-12, as in the prior: at t = 0 a zero would be divided by zero.
    """
    process = OrnsteinUhlenbeck()
    tau = torch.linspace(0, table.horizon, LEVELS, dtype=torch.float64)
    weights, variances = (
        part.double().cpu() for part in (components.log_weights.exp(), components.variances)
    )
    variances = variances.clamp(min=FLOOR)
    rest = None if rest is None else max(rest, FLOOR)
    errors = []
    for t in table._time(tau):
        signal, noise = process._alpha(t).square(), process._variance(t)
        total = weights @ (signal * variances / (signal * variances + noise)).sum(dim=1)
        if rest is not None:
            total = total + (dim - variances.shape[1]) * signal * rest / (signal * rest + noise)
        errors.append(total / dim)
    return error_curve(tau, torch.stack(errors))
