"""Priors in a frame: a distribution of coordinates, and a Gaussian along all other directions.

With directions V, coordinates z = Vx, and along the rest the mean r and one variance s²,

    ∇log ρ_t(x) = Vᵀ(∇log ρ_t(z) + z/s_t²) - (x - αr)/s_t²,    s_t² = α²s² + σ²,

one analysis and one synthesis whatever the number of directions; without a rest Vᵀ∇log ρ_t(z).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from oism._core import checks
from oism._core.devices import moved
from oism._core.draws import normal_like
from oism._core.transforms import matmul, per_row
from oism.basis import Frame
from oism.basis._frame import power_sums
from oism.flow import TensorSpec
from oism.images._base import Prior
from oism.images._error import MEASURED_LEVELS, error_curve
from oism.images._gaussian import GaussianPart, Rest
from oism.process import Clock
from oism.score import FLOOR, Curve
from oism.storage import External, storable


@storable
@dataclass(frozen=True, eq=False)
class Directions(Frame):
    """Orthonormal rows ``(k, d)``, k ≤ d: the leading directions of a frame. They are not checked.

    >>> Directions(torch.tensor([[0.6, 0.8]])).analyse(torch.tensor([[3.0, 4.0]]))
    tensor([[5.]])
    """

    matrix: Tensor

    @property
    def dim(self) -> int:
        """The number of entries of a vector."""
        return self.matrix.shape[1]

    @property
    def label(self) -> str:
        """The name of the frame in summaries."""
        return f"{len(self.matrix)} principal directions"

    def stored_directions(self) -> Tensor:
        """Return the matrix."""
        return self.matrix

    def to(self, device: torch.device | str) -> Self:
        """Return the frame with its matrix on a device; the same object where nothing changes."""
        return checks.changed(self, matrix=moved(self.matrix, device))

    def synthesise(self, z: Tensor) -> Tensor:
        """Return Σ zᵢ vᵢ along the last axis, from k coordinates: ``(..., d)``."""
        return self._synthesise(checks.vectors(z, "z", dim=len(self.matrix)))

    def directions(self, dim: int) -> Tensor:
        """Return the matrix in float64."""
        if dim != self.dim:
            raise ValueError(f"dim must be {self.dim}, that of the directions, got {dim!r}")
        return self.matrix.double()

    def power_sums(self, dim: int, degree: int) -> Tensor:
        """Return Σ_j |v_j|ⁿ of every direction, n ≤ degree: ``(degree + 1, k)``, float64."""
        if dim != self.dim:
            raise ValueError(f"dim must be {self.dim}, that of the directions, got {dim!r}")
        return power_sums(self.matrix, degree)

    def _analyse(self, x: Tensor) -> Tensor:
        return matmul(x, self.matrix.to(x).mT)

    def _synthesise(self, z: Tensor) -> Tensor:
        return matmul(z, self.matrix.to(z))


class FramedPrior(Prior):
    """A prior that is stated in coordinates.

    The matrix of a frame that holds one moves with the module, in float32. ``mean`` is that of the
    tensors, ``rest`` the variance along the directions that are not in the frame, at least 1e-12.
    """

    mean: Tensor
    directions: Tensor | None

    def __init__(
        self,
        spec: TensorSpec,
        table_clock: Clock,
        error: Curve,
        frame: Frame,
        mean: Tensor,
        rest: float | None = None,
    ) -> None:
        super().__init__(spec, table_clock, error)
        checks.instance(frame, Frame, "frame")
        if frame.dim not in (None, self.dim) or mean.shape != (self.dim,):
            raise ValueError(
                f"frame and mean must be those of tensors of {self.dim} entries, got a frame for "
                f"{frame.dim} and a mean of shape {tuple(mean.shape)}"
            )
        self.rest = None if rest is None else max(rest, FLOOR)
        matrix = frame.stored_directions()
        self._frame = frame if matrix is None else None
        self.register_buffer("directions", None if matrix is None else matrix.float())
        self.register_buffer("mean", mean.float())

    def get_extra_state(self) -> Tensor:
        """Return the variance of the rest if there is one, and the numbers of the table's clock."""
        numbers = super().get_extra_state()
        return (
            numbers if self.rest is None else torch.cat((numbers.new_tensor([self.rest]), numbers))
        )

    def set_extra_state(self, state: Tensor) -> None:
        """Set these numbers; raise `ValueError` where they are of another kind of prior."""
        if len(state) != len(self.get_extra_state()):
            raise ValueError(
                f"state_dict must be that of a prior in a frame of {self.count} of {self.dim} "
                "directions, with as many numbers beside its tensors, "
                f"{len(self.get_extra_state())}, got {len(state)}: fit the prior with the same "
                "frame, or load it from a file (oism.load)"
            )
        super().set_extra_state(state if self.rest is None else state[1:])
        self.rest = None if self.rest is None else float(state[0])

    @property
    def frame(self) -> Frame:
        """The directions of the coordinates."""
        if self.directions is not None:
            return Directions(self.directions)
        assert self._frame is not None
        return self._frame

    @property
    def count(self) -> int:
        """The number of coordinates."""
        return self.dim if self.directions is None else len(self.directions)

    @property
    def frame_name(self) -> str:
        """The name of the frame in summaries."""
        return self.frame.label + ("" if self.rest is None else " and an isotropic rest")

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            "spec": self.spec,
            "table_clock": self.table_clock,
            "error": self.error,
            "frame": External(self.frame),
            "mean": self.mean,
            "rest": self.rest,
        }

    def analyse(self, x: Tensor) -> Tensor:
        """Return the coordinates ⟨v, x⟩ of flat tensors ``(n, d)``: ``(n, k)``."""
        return self.frame._analyse(x)

    def synthesise(self, z: Tensor) -> Tensor:
        """Return Σ zᵢ vᵢ: ``(n, d)``."""
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
    def _line_moments(self) -> tuple[Tensor, Tensor]:
        """Return means and variances of clean coordinates: ``(k,)`` each."""

    @abstractmethod
    def _line_sample(self, n: int, generator: torch.Generator | None) -> Tensor:
        """Return clean coordinates ``(n, k)``."""

    def gaussian_part(self) -> GaussianPart:
        """Return the Gaussian with the means and variances of the coordinates and of the rest."""
        rest = None if self.rest is None else Rest(self._rest_mean, self.rest)
        return GaussianPart.of(self.frame, self.dim, self._line_moments(), rest)

    def _score(self, x: Tensor, t: Tensor) -> Tensor:
        z = self.analyse(x)
        return self._with_rest(x, z, self._line_score(z, t), t)

    def _with_rest(self, x: Tensor, z: Tensor, inner: Tensor, t: Tensor) -> Tensor:
        """Return the score of tensors from that of their coordinates z."""
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
        noise = normal_like(x, generator).mul_(math.sqrt(self.rest))
        return x + self._rest_mean.to(x) + noise - self.synthesise(self.analyse(noise))

    @property
    def beyond(self) -> int:
        """The number of directions that are not in the frame."""
        return self.dim - self.count

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

    @torch.no_grad()
    def measured_error(self, z: Tensor, seed: int = 0) -> Curve:
        """Return the error of the predicted noise over the table, on centred clean coordinates.

        For priors without a closed form of it: one draw of noise for each row of ``z`` ``(n, k)``,
        from a seed, the same at all levels.
        """
        table, process = self.table_clock, self.process
        tau = torch.linspace(
            0, table.horizon, MEASURED_LEVELS, dtype=torch.float64, device=z.device
        )
        centre = self.analyse(self.mean[None])[0].to(z)
        noise = torch.randn(z.shape, generator=torch.Generator().manual_seed(seed)).to(z)
        errors = []
        for t in table._time(tau):
            alpha, sigma = process._alpha(t).to(z), process._variance(t).sqrt().to(z)
            score = self._line_score(alpha * (z + centre) + sigma * noise, t)
            total = (noise + sigma * score).square().mean(dim=0).double().sum()
            if self.rest is not None:
                signal = self.rest * alpha.double().square()
                total = total + self.beyond * signal / (signal + sigma.double().square())
            errors.append(total / self.dim)
        return error_curve(tau.cpu(), torch.stack(errors).cpu())
