"""The contract of a prior: the scores of all noise levels of tensors, in closed form.

A prior models the law of tensors ``(n, *shape)`` in units in which the Ornstein-Uhlenbeck process
noises them, x_τ = α_τ x + σ_τ ε. Because π = N(0, I), the predicted noise is

    ε̂ = -σ ∇log ρ_t(x) = σ(x - s̃),    s̃ = ∇log(ρ_t/π),

and the denoised tensor E[x_0 | x_τ] = (x_τ - σ ε̂)/α. Times τ are those of the prior's clock, one
number or one per row; ``score`` takes the process's own t, as every score does.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from oism import checks
from oism.basis import CosineFrame, Frame, IdentityFrame, OrthogonalFrame, TransformFrame
from oism.clock import Clock, Noising
from oism.flow import Flow
from oism.prior.pixels import Pixels
from oism.prior.skill import SHARPNESS, gate, output_scale
from oism.process import OrnsteinUhlenbeck
from oism.score.interpolation import Curve, SpectralModule
from oism.transforms import matmul, per_row


class Prior(SpectralModule, ABC):
    """A law of tensors and of all its noised versions.

    ``frame`` holds the directions of the coordinates, all of them or, as a matrix ``(k, d)`` with
    ``rest``, the leading ones; along all others the law is Gaussian with mean and variance
    ``rest``. ``error`` is the expected error of the predicted noise over the clock of its table.
    """

    mean: Tensor
    directions: Tensor | None
    error: Curve
    spectral: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        shape: tuple[int, ...],
        frame: Frame | Tensor,
        mean: Tensor,
        *,
        rest: float | None,
        clock: Clock,
        pixels: Pixels | None,
        table: Clock,
        error: Curve,
    ) -> None:
        super().__init__()
        self.shape, self.clock, self.pixels = shape, clock, pixels
        self.rest, self.table, self.error = rest, table, error
        self.process = OrnsteinUhlenbeck()
        self.frame = frame if isinstance(frame, Frame) else None
        if isinstance(frame, OrthogonalFrame):
            frame, self.frame = frame.matrix, None
        matrix = frame.float() if isinstance(frame, Tensor) else None
        self.register_buffer("directions", matrix)
        self.register_buffer("mean", mean.float())

    @property
    def dim(self) -> int:
        """The number of entries of a tensor."""
        return math.prod(self.shape)

    @property
    def noising(self) -> Noising:
        """The process seen through the prior's clock: α, σ and log-SNR of every τ."""
        return Noising(self.process, self.clock)

    # Coordinates.

    def analyse(self, x: Tensor) -> Tensor:
        """Return the coordinates ⟨v, x⟩ of flat tensors ``(n, d)``: ``(n, k)``."""
        if self.directions is not None:
            return matmul(x, self.directions.to(x).mT)
        assert self.frame is not None
        return self.frame._analyse(x)

    def synthesise(self, z: Tensor) -> Tensor:
        """Return Σ zᵢ vᵢ: ``(n, d)``."""
        if self.directions is not None:
            return matmul(z, self.directions.to(z))
        assert self.frame is not None
        return self.frame._synthesise(z)

    # What a kind of prior states: everything about the coordinates.

    @property
    @abstractmethod
    def facts(self) -> dict[str, object]:
        """What the prior is, in plain words and numbers."""

    @abstractmethod
    def _line_score(self, z: Tensor, t: Tensor) -> Tensor:
        """Return the score of the coordinates ``(n, k)`` at t, one or one per row."""

    @abstractmethod
    def _line_divergence(self, z: Tensor, t: Tensor) -> Tensor:
        """Return its divergence: ``(n,)``."""

    @abstractmethod
    def _line_log_density(self, z: Tensor) -> Tensor:
        """Return the log-density of clean coordinates: ``(n,)``."""

    @abstractmethod
    def _line_sample(self, n: int, generator: torch.Generator | None) -> Tensor:
        """Return clean coordinates ``(n, k)``."""

    # The whole tensor.

    def score(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return ∇ log ρ_t(x), of the shape of ``x``; t is the process's own time."""
        flat, t = self._flat(x), self._time(t, len(x))
        return self._score(flat, t).reshape(x.shape)

    def _score(self, x: Tensor, t: Tensor) -> Tensor:
        z = self.analyse(x)
        inner = self._line_score(z, t)
        if self.rest is None:
            return self.synthesise(inner)
        alpha, precision = self._rest(x, t)
        # Along the directions their own score, along the rest that of a Gaussian.
        away = (x - alpha * self._rest_mean.to(x)) * precision
        return self.synthesise(inner + z * precision) - away

    def score_and_divergence(self, x: Tensor, t: Tensor | float) -> tuple[Tensor, Tensor]:
        """Return the score and its divergence, in closed form."""
        flat, t = self._flat(x), self._time(t, len(x))
        divergence = self._line_divergence(self.analyse(flat), t)
        if self.rest is not None:
            _, precision = self._rest(flat, t)
            divergence = divergence - self._beyond * precision.reshape(-1)
        return self._score(flat, t).reshape(x.shape), divergence

    def forward(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return the score."""
        return self.score(x, t)

    def noise(self, x: Tensor, tau: Tensor | float) -> Tensor:
        """Return ε̂ = σ(x - s̃), the noise to expect in x at clock time τ: of the shape of ``x``."""
        t = self._clock_time(tau, len(x))
        return -per_row(self.process._variance(t).sqrt(), x, "tau") * self.score(x, t)

    def denoise(self, x: Tensor, tau: Tensor | float) -> Tensor:
        """Return E[x_0 | x_τ = x] = (x + σ² ∇log ρ_t)/α."""
        t = self._clock_time(tau, len(x))
        alpha, variance = self.process._alpha(t), self.process._variance(t)
        return (x + per_row(variance, x, "tau") * self.score(x, t)) / per_row(alpha, x, "tau")

    @property
    def flow(self) -> Flow:
        """The probability flow and the reverse SDE of this prior."""
        return Flow(self, self.process, self.clock)

    # What it is worth.

    def skill(self, tau: Tensor | float) -> Tensor:
        """Return the expected mean squared error of the predicted noise, per dimension."""
        t = self.clock._time(self.clock._tau(tau))
        return self.error(self.table._inverse(t)).clamp(0, 1)

    def gate(self, tau: Tensor | float, sharpness: float = SHARPNESS) -> Tensor:
        """Return g(τ) in [0, 1]: how far a network should trust the prior."""
        return gate(self.skill(tau), sharpness)

    def output_scale(self, tau: Tensor | float, sharpness: float = SHARPNESS) -> Tensor:
        """Return c(τ), the deviation of what the gated prior leaves to a network."""
        return output_scale(self.skill(tau), sharpness)

    # Data without noise.

    @torch.no_grad()
    def log_density(self, x: Tensor) -> Tensor:
        """Return log ρ(x) in the model's units: ``(n,)``."""
        flat = self._flat(x)
        z = self.analyse(flat)
        result = self._line_log_density(z)
        if self.rest is not None:
            away = (flat - self._rest_mean.to(flat)) - self.synthesise(z)
            normal = math.log(2 * math.pi * self.rest)
            result = result - 0.5 * (away.square().sum(dim=1) / self.rest + self._beyond * normal)
        return result

    @torch.no_grad()
    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Return n tensors ``(n, *shape)`` in the model's units, through the flow."""
        n = checks.integer(n, "n", minimum=0)
        z = self._line_sample(n, generator)
        x = self.synthesise(z)
        if self.rest is not None:
            noise = torch.empty_like(x).normal_(generator=generator).mul_(math.sqrt(self.rest))
            x = x + self._rest_mean.to(x) + noise - self.synthesise(self.analyse(noise))
        return x.reshape(n, *self.shape)

    def bits_per_dim(self, values: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return -log₂ of the density of dequantised integers, per dimension: ``(n,)``."""
        if self.pixels is None:
            raise ValueError("bits per dimension are known only to a prior of integers (pixels=…)")
        x = self.pixels.units(values)
        nats = self._expected_log_density(x, generator)
        return -(nats / self.dim + math.log(self.pixels.step)) / math.log(2)

    def _expected_log_density(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return E[log ρ] over uniform dequantisation, estimated by one draw."""
        assert self.pixels is not None
        return self.log_density(self.pixels.dequantised(x, generator))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one safetensors file, atomically; `Prior.load` reads it."""
        from oism.prior.storage import save  # noqa: PLC0415 (storage knows every kind of prior)

        save(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str], frame: TransformFrame | None = None) -> Prior:
        """Return the prior in a file, on the CPU. A user's transform must be given again."""
        from oism.prior.storage import load  # noqa: PLC0415

        return load(path, frame)

    # Parts.

    @property
    def _beyond(self) -> int:
        """The number of directions of the rest."""
        assert self.directions is not None
        return self.dim - len(self.directions)

    @property
    def _rest_mean(self) -> Tensor:
        """The mean along the directions of the rest, as a tensor ``(d,)``."""
        mean = self.mean[None]
        return (mean - self.synthesise(self.analyse(mean)))[0]

    def _rest(self, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return α and the precision of the rest at t, shaped for rows of ``x``."""
        assert self.rest is not None
        alpha, variance = self.process._alpha(t), self.process._variance(t)
        precision = 1 / (alpha.square() * self.rest + variance).clamp(min=1e-12)
        return per_row(alpha, x), per_row(precision, x)

    def _flat(self, x: Tensor) -> Tensor:
        x = checks.floating(x, "x")
        if x.ndim < 2 or x.shape[1:].numel() != self.dim:
            raise ValueError(
                f"x must be tensors (n, {', '.join(map(str, self.shape))}), got {tuple(x.shape)}"
            )
        return x.reshape(len(x), self.dim)

    def _clock_time(self, tau: Tensor | float, n: int) -> Tensor:
        return self._shared(self.clock._time(self.clock._tau(tau)), n, "tau")

    def _time(self, t: Tensor | float, n: int) -> Tensor:
        return self._shared(checks.time(t), n, "t")

    def _shared(self, t: Tensor, n: int, name: str) -> Tensor:
        if t.ndim and len(t) != n:
            raise ValueError(f"{name} must be one number or one per row: {n} rows, {len(t)} values")
        return t.to(self.mean.device)


def frame_name(prior: Prior) -> str:
    """Return what a frame is called."""
    names = {IdentityFrame: "pixels", CosineFrame: "cosines", TransformFrame: "a transform"}
    if prior.frame is not None:
        return names.get(type(prior.frame), type(prior.frame).__name__)
    assert prior.directions is not None
    count = len(prior.directions)
    return f"{count} principal directions" + (" and an isotropic rest" if prior.rest else "")
