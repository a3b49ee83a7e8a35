"""Local terms: functions of filter responses, tied over positions, on top of another prior.

With unit filters w_f at positions p, responses u_{f,p} = (⟨w_f, x_p⟩ - α m_f)/s_{f,t}, and degrees
n, the predicted noise of a prior is corrected by

    ε̂(x) = ε̂_prior(x) + Σ_{f,n} c_{f,n}(t) Σ_p g_n(u_{f,p}) w_{f,p},

a gradient again, with the divergence Σ c Σ_p g_n'(u)/s in closed form because ‖w‖ = 1. With
g_n = φ_{n-1} these would be gradients of eigenfunctions He_n(⟨w, x⟩), and their equations would
follow from moments of clean data. Measured on images, that gains little: responses have heavy
tails, order four gains less than a third of the functions below, and higher orders diverge, because
their moments are dominated by a few edges. So responses are bounded, g_n(u) = φ_n(c tanh(u/c)).
These are no eigenfunctions, but the rest of the closed form remains: at each time the coefficients
are the least squares solution of the normal equations

    E[G_k·G_l] c_l = E[G_k·(ε - ε̂_prior)],    G_{f,n} = Σ_p g_n(u_{f,p}) w_{f,p},

whose averages are taken over noised data, one draw of noise for each tensor. There are a few dozen
unknowns and millions of equations.
"""

from __future__ import annotations

import copy
import math
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional

from oism._core import checks
from oism._core.draws import normal
from oism._core.progress import progress_bar
from oism.basis import recurrence
from oism.estimation import principal_axes
from oism.flow import Flow, RungeKutta4, log_density
from oism.images._base import Prior
from oism.images._error import error_curve
from oism.images._gaussian import GaussianPart
from oism.images._stream import Stream, device_of
from oism.score import FLOOR, Curve
from oism.storage import storable

BEND = 4.0
"""The bound c of responses, in standard deviations."""

STEPS = 96
"""The number of steps of the flow, even in the logarithm of t."""

TIMES = 25
"""The number of times that coefficients are solved for, even in the logarithm of t."""

SHARE = 5
"""One image in so many measures the error, the others fit."""

CHUNK = 512
"""The number of tensors that are convolved at a time."""


class Responses:
    """Unit filters ``(F, channels, h, w)``, and mean and deviation of their clean responses."""

    def __init__(self, filters: Tensor, mean: Tensor, deviation: Tensor) -> None:
        self.filters, self.mean, self.deviation = filters, mean, deviation

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise unless the filters are those of images of a shape, each with its statistics."""
        filters, mean, deviation = (
            tuple(part.shape) for part in (self.filters, self.mean, self.deviation)
        )
        is_image = len(shape) == 3 and len(filters) == 4 and filters[1] == shape[0]
        if not is_image or {mean, deviation} != {filters[:1]}:
            raise ValueError(
                f"filters must be those of images {shape}, (F, channels, height, width), with one "
                f"mean and one deviation each, got {filters}, {mean} and {deviation}"
            )


def local_filters(images: Tensor, side: int = 3) -> Responses:
    """Return the principal directions of patches as filters, the largest variance first."""
    patches = functional.unfold(images, side)  # (n, channels · side², positions)
    rows = patches.movedim(1, 2).flatten(0, 1).double()
    mean = rows.mean(dim=0)
    centred = rows - mean
    values, directions = principal_axes(centred.mT @ centred / len(rows))
    filters = directions.reshape(-1, images.shape[1], side, side)
    deviation = values.clamp(min=FLOOR).sqrt()
    return Responses(filters.to(images), (directions @ mean).to(images), deviation.to(images))


@storable
class ConvolutionalPrior(Prior):
    """Another prior with local terms: coefficients c are ``(F, degrees)`` over the table.

    Tensors are images, ``(channels, height, width)``.
    """

    filters: Tensor
    filter_mean: Tensor
    filter_deviation: Tensor

    def __init__(
        self, base: Prior, error: Curve, responses: Responses, coefficients: Curve
    ) -> None:
        super().__init__(base.spec, base.table_clock, error)
        responses.check(self.shape)
        if coefficients.values.ndim != 3 or coefficients.values.shape[1] != len(responses.filters):
            raise ValueError(
                f"coefficients must be (K, {len(responses.filters)}, degrees), got "
                f"{tuple(coefficients.values.shape)}"
            )
        self.base, self.coefficients = base, coefficients
        self.register_buffer("filters", responses.filters)
        self.register_buffer("filter_mean", responses.mean)
        self.register_buffer("filter_deviation", responses.deviation)

    @property
    def degrees(self) -> int:
        """The number of functions of each response."""
        return self.coefficients.values.shape[-1]

    def facts(self) -> dict[str, Any]:
        """Return the facts of the base, and the number and size of the filters."""
        count, _, height, width = self.filters.shape
        local = f"{count} filters of {height} by {width}, {self.degrees} degrees"
        return {**self.base.facts(), "local terms": local}

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of `from_config`."""
        return {
            "base": self.base,
            "error": self.error,
            "filters": self.filters,
            "filter_mean": self.filter_mean,
            "filter_deviation": self.filter_deviation,
            "coefficients": self.coefficients,
        }

    @classmethod
    def from_config(
        cls,
        *,
        base: Prior,
        error: Curve,
        filters: Tensor,
        filter_mean: Tensor,
        filter_deviation: Tensor,
        coefficients: Curve,
    ) -> Self:
        """Return the prior with these filters."""
        responses = Responses(filters, filter_mean, filter_deviation)
        return cls(base, error, responses, coefficients)

    def _responses(self, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return bounded responses v = c tanh(u/c), ``(n, F, …)``, and dv/d⟨w, x⟩."""
        shape = (-1, 1) if t.ndim else (1, 1)
        alpha = self.process._alpha(t).to(x).reshape(shape)
        variance = self.process._variance(t).to(x).reshape(shape)
        mean = alpha * self.filter_mean.to(x)
        deviation = (alpha.square() * self.filter_deviation.to(x).square() + variance).sqrt()
        raw = functional.conv2d(x.reshape(-1, *self.shape), self.filters.to(x))
        bent = torch.tanh((raw - mean[..., None, None]) / (BEND * deviation[..., None, None]))
        return BEND * bent, (1 - bent.square()) / deviation[..., None, None]

    def fields(self, x: Tensor, t: Tensor) -> Tensor:
        """Return G_{f,n} at flat tensors ``(n, d)``, filter by filter: ``(F · degrees, n, d)``."""
        values, _ = self._responses(x, t)
        table = torch.stack(list(recurrence(values, self.degrees))[1:], dim=2).flatten(1, 2)
        own = self.filters.to(x).repeat_interleave(self.degrees, dim=0)
        # Every function of every response has a channel, and every channel a filter, of its own.
        image = functional.conv_transpose2d(table, own, groups=len(own))
        return image.reshape(len(x), len(own), self.dim).movedim(1, 0)

    def _local(self, x: Tensor, t: Tensor, *, divergence: bool) -> Tensor:
        """Return Σ c G at flat tensors, ``(n, d)``, or its divergence, ``(n,)``."""
        tau = torch.maximum(self.table_clock._inverse(t), self.coefficients.knots[1])
        c = self.coefficients(tau).to(x)  # (F, degrees) or per row
        c = c[..., None, None] if c.ndim == 3 else c[None, ..., None, None]
        values, slopes = self._responses(x, t)
        total = torch.zeros_like(values)
        table = list(recurrence(values, self.degrees))
        for n in range(1, self.degrees + 1):
            term = math.sqrt(n) * table[n - 1] if divergence else table[n]
            total = torch.addcmul(total, c[:, :, n - 1], term)
        if divergence:
            return (total * slopes).flatten(1).sum(dim=1)
        return functional.conv_transpose2d(total, self.filters.to(x)).flatten(1)

    def _corrected(self, x: Tensor, t: Tensor, *, divergence: bool) -> Tensor:
        """Return Σ c G/σ, or its divergence; c/σ is held below the first time solved for."""
        pieces, first = [], self.table_clock._time(self.coefficients.knots[1]).to(t)
        for start in range(0, max(1, len(x)), CHUNK):
            rows = slice(start, start + CHUNK)
            own = t[rows] if t.ndim else t
            sigma = self.process._variance(torch.maximum(own, first)).sqrt().to(x)
            local = self._local(x[rows], own, divergence=divergence)
            shape = (-1, *[1] * (local.ndim - 1)) if t.ndim else ()
            pieces.append(local / sigma.reshape(shape))
        return torch.cat(pieces)

    def gaussian_part(self) -> GaussianPart:
        """Return that of the base."""
        return self.base.gaussian_part()

    def _score(self, x: Tensor, t: Tensor) -> Tensor:
        return self.base._score(x, t) - self._corrected(x, t, divergence=False)

    def _divergence(self, x: Tensor, t: Tensor) -> Tensor:
        return self.base._divergence(x, t) - self._corrected(x, t, divergence=True)

    @property
    def flow(self) -> Flow:
        """The probability flow, over the clock of the table."""
        return Flow(self, clock=self.table_clock)

    def _log_density(self, x: Tensor) -> Tensor:
        return log_density(self.flow, x, method=RungeKutta4(STEPS), chunk=CHUNK)

    def _sample(self, n: int, generator: torch.Generator | None) -> Tensor:
        x = normal((n, self.dim), generator, device=self.filters.device)
        return self.flow.pull(x, method=RungeKutta4(STEPS), chunk=CHUNK)


@torch.no_grad()
def add_local_terms(  # noqa: PLR0913
    data: object,
    base: Prior,
    *,
    side: int = 3,
    degrees: int = 7,
    limit: int = 4096,
    ridge: float = 1e-4,
    seed: int = 0,
    device: torch.device | str | None = None,
    progress: bool | None = None,
) -> ConvolutionalPrior:
    """Return a prior with local terms.

    Parameters
    ----------
    data
        The images that the base was fitted to, or batches of them.
    base
        The prior that the terms are added to.
    side, degrees
        The side of the filters, which are the principal directions of patches, and the number of
        functions of each response.
    limit
        The number of images to use, spread evenly over the data; a fifth of them measure the error.
    ridge
        The number that is added to the diagonal of the normal equations, scaled to one.
    seed
        The seed of the noise, one draw for each image, the same at all times.
    device
        The device of all computations; by default that of the data.
    """
    checks.instance(base, Prior, "base")
    if base.classes is not None:
        raise ValueError(
            "base must be a prior without classes, because local terms do not depend on them: "
            "base.given(label) is that of one class"
        )
    if len(base.shape) != 3:
        raise ValueError(
            f"base must be a prior of images (channels, height, width), got shape {base.shape}"
        )
    if checks.integer(side, "side", minimum=1) > min(base.shape[1:]):
        raise ValueError(f"side must be at most that of images {base.shape}, got {side}")
    images = _spread(base, data, checks.integer(limit, "limit", minimum=10), device)
    if len(images) < SHARE:
        raise ValueError(f"data must hold at least {SHARE} images, got {len(images)}")
    device, generator = images.device, torch.Generator().manual_seed(seed)
    if base.pixels is not None and base.spec.dequantised:
        spread = torch.rand(images.shape, generator=generator).sub_(0.5).mul_(base.pixels.step)
        images = images + spread.to(images)
    responses = local_filters(images[:: max(1, len(images) // CHUNK)], side)
    table = base.table_clock
    tau = torch.linspace(0, table.horizon, TIMES, dtype=torch.float64)
    shape = (len(responses.filters), checks.integer(degrees, "degrees", minimum=1))
    curve = Curve(tau, torch.zeros(TIMES, *shape), order=2)
    own = copy.deepcopy(base)  # it is moved below
    prior = ConvolutionalPrior(own, base.error, responses, curve).to(device)
    flat = images.flatten(1)
    judged = torch.arange(len(flat), device=device) % SHARE == SHARE - 1
    errors = [1.0]
    with progress_bar(progress) as bar:
        bar.stage("local terms", TIMES - 1)
        for place in range(1, TIMES):
            t = table._time(tau[place].to(device))
            matrix, right, _ = _equations(prior, flat[~judged], t, seed + 1)
            scale = matrix.diagonal().clamp(min=1e-12).rsqrt()
            scaled = scale[:, None] * matrix * scale + ridge * torch.eye(len(scale)).to(matrix)
            c = scale * torch.linalg.solve(scaled, scale * right)
            matrix, right, rest = _equations(prior, flat[judged], t, seed + 2)
            gain = float(2 * c @ right - c @ matrix @ c)
            if gain > 0:  # otherwise the coefficients remain zero at this level
                curve.values[place] = c.reshape(shape).to(curve.values)
            errors.append(float(rest) - max(0.0, gain))
            bar.advance(1)
    prior.error = error_curve(tau, torch.tensor(errors, dtype=torch.float64))
    return prior.cpu()


def _spread(base: Prior, data: object, limit: int, device: torch.device | str | None) -> Tensor:
    """Return up to ``limit`` images of the data in the model's units, spread evenly over them."""
    stream = Stream(data, base.pixels, 1, device_of(data, device))
    if stream.shape != base.shape:
        raise ValueError(f"data must have the shape {base.shape} of the base, got {stream.shape}")
    kept: list[Tensor] = []
    stride, seen = 1, 0
    for rows, _ in stream:
        kept.extend(rows[-seen % stride :: stride].clone())  # a view would keep the whole batch
        seen += len(rows)
        while len(kept) > limit:  # twice as far apart
            kept, stride = kept[::2], 2 * stride
    return stream.units(torch.stack(kept)).float().reshape(-1, *base.shape)


def _equations(
    prior: ConvolutionalPrior, flat: Tensor, t: Tensor, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return E[G·G], E[G·r] and E[r²] per dimension, r = ε - ε̂ the residual of the base."""
    alpha, sigma = prior.process._alpha(t).to(flat), prior.process._variance(t).sqrt().to(flat)
    generator = torch.Generator().manual_seed(seed)  # the same noise at all times
    nothing = torch.zeros((), dtype=torch.float64, device=flat.device)
    matrix, right, rest = nothing, nothing, nothing
    step = CHUNK if flat.device.type != "cpu" else CHUNK // 8
    for piece in torch.split(flat, step):
        noise = torch.randn(piece.shape, generator=generator).to(piece)
        x = alpha * piece + sigma * noise
        left = (noise + sigma * prior.base._score(x, t)).flatten()
        fields = prior.fields(x, t).flatten(1)
        matrix = matrix + (fields @ fields.mT).double()
        right = right + (fields @ left).double()
        rest = rest + left.double().square().sum()
    return matrix / flat.numel(), right / flat.numel(), rest / flat.numel()
