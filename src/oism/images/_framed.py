"""Priors in a frame: a law of coordinates, and a Gaussian along all other directions.

With directions V, coordinates z = Vx, and along the rest the mean r and one variance s²,

    ∇log ρ_t(x) = Vᵀ(∇log ρ_t(z) + z/s_t²) - (x - αr)/s_t²,    s_t² = α²s² + σ²,

one analysis and one synthesis whatever the number of directions; without a rest Vᵀ∇log ρ_t(z).
"""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from torch import Tensor

from oism._core.transforms import matmul, per_row
from oism.basis import CosineFrame, Frame, IdentityFrame, OrthogonalFrame, TransformFrame
from oism.estimation._moments.fourier import FLOOR
from oism.images._base import Prior, Setting
from oism.score import Curve

NAMES = {IdentityFrame: "pixels", CosineFrame: "cosines", TransformFrame: "a transform"}


class FramedPrior(Prior):
    """A prior that is stated in coordinates.

    ``directions`` is a frame, or orthonormal rows ``(k, d)``, which move with the module. ``mean``
    is that of the tensors, ``rest`` the variance along directions beyond the k, not below 1e-12.
    """

    mean: Tensor
    directions: Tensor | None

    def __init__(
        self,
        setting: Setting,
        error: Curve,
        directions: Frame | Tensor,
        mean: Tensor,
        rest: float | None = None,
    ) -> None:
        super().__init__(setting, error)
        self.rest = None if rest is None else max(rest, FLOOR)
        if isinstance(directions, OrthogonalFrame):
            directions = directions.matrix
        self.frame = directions if isinstance(directions, Frame) else None
        matrix = directions.float() if isinstance(directions, Tensor) else None
        self.register_buffer("directions", matrix)
        self.register_buffer("mean", mean.float())

    @property
    def frame_name(self) -> str:
        """What the frame is called."""
        if self.directions is None:
            return NAMES.get(type(self.frame), type(self.frame).__name__)  # type: ignore[arg-type]
        rest = "" if self.rest is None else " and an isotropic rest"
        return f"{len(self.directions)} principal directions{rest}"

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

    def _score(self, x: Tensor, t: Tensor) -> Tensor:
        z = self.analyse(x)
        inner = self._line_score(z, t)
        if self.rest is None:
            return self.synthesise(inner)
        alpha, precision = per_row(self.process._alpha(t), x), self._precision(x, t)
        away = (x - alpha * self._rest_mean.to(x)) * precision
        return self.synthesise(inner + z * precision) - away

    def _divergence(self, x: Tensor, t: Tensor) -> Tensor:
        inner = self._line_divergence(self.analyse(x), t)
        if self.rest is None:
            return inner
        return inner - self.beyond * self._precision(x, t).reshape(-1)

    def _log_density(self, x: Tensor) -> Tensor:
        z = self.analyse(x)
        inner = self._line_log_density(z)
        if self.rest is None:
            return inner
        away = x - self._rest_mean.to(x) - self.synthesise(z)
        normal = self.beyond * math.log(2 * math.pi * self.rest)
        return inner - 0.5 * (away.square().sum(dim=1) / self.rest + normal)

    def _sample(self, n: int, generator: torch.Generator | None) -> Tensor:
        x = self.synthesise(self._line_sample(n, generator))
        if self.rest is None:
            return x
        noise = torch.empty_like(x).normal_(generator=generator).mul_(math.sqrt(self.rest))
        return x + self._rest_mean.to(x) + noise - self.synthesise(self.analyse(noise))

    @property
    def beyond(self) -> int:
        """The number of directions of the rest."""
        return 0 if self.directions is None else self.dim - len(self.directions)

    @property
    def _rest_mean(self) -> Tensor:
        """The mean along the rest, as a tensor ``(d,)``."""
        mean = self.mean[None]
        return (mean - self.synthesise(self.analyse(mean)))[0]

    def _precision(self, x: Tensor, t: Tensor) -> Tensor:
        """Return 1/s_t² of the rest, shaped for rows of ``x``."""
        assert self.rest is not None
        signal = self.process._alpha(t).square() * self.rest
        return per_row(1 / (signal + self.process._variance(t)), x)
