"""A trained noise predictor with what it was trained on: a generative model of tensors.

Its flow runs over a clock that is even in log t, from the least noise it was trained on: there the
probability flow is smooth, dx/d(log t) ≈ √t ε̂ for small t, and a few dozen steps of a method of
order four are enough. Data are taken to be those of the least noise.
"""

from __future__ import annotations

import itertools
import os
from typing import Self

import torch
from torch import Tensor, nn

from oism._core import checks
from oism.basis import TransformFrame
from oism.flow import Flow, Hutchinson, OrdinaryMethod, RungeKutta4, log_density
from oism.images import Gate
from oism.images._base import Setting, TensorModel
from oism.nn._contexts import at_rest, half_precision, no_gradients_of, precision_of
from oism.nn._embedding import one_per_row
from oism.nn._informed import Informed
from oism.nn._score import NoiseScore
from oism.process import Logarithmic, first_time

METHOD: OrdinaryMethod = RungeKutta4(24)
"""How the flow is followed: 96 evaluations."""

CHUNK = 250
"""The number of tensors that are moved at a time, unless a model is told another."""


class Diffusion(TensorModel):
    """A noise predictor as a model that draws, scores and is saved.

    Parameters
    ----------
    predictor
        The module ε̂(x, τ).
    setting
        Shape, clock and pixels of the data.
    first
        The least clock time that it was trained on.
    precision
        "bf16" for layers in bfloat16, or "no".

    Examples
    --------
    >>> from oism import VariancePreserving
    >>> from oism.nn import MLP
    >>> model = Diffusion(MLP(2), Setting((2,), VariancePreserving(), VariancePreserving()))
    >>> model.sample(5, torch.Generator().manual_seed(0)).shape
    torch.Size([5, 2])
    """

    def __init__(
        self,
        predictor: nn.Module,
        setting: Setting,
        *,
        first: float = 1e-5,
        precision: str = "no",
    ) -> None:
        checks.instance(predictor, nn.Module, "predictor")
        checks.instance(setting, Setting, "setting")
        _demand_alike(predictor, setting)
        self.predictor, self.setting = predictor, setting
        self.first, self.precision = first_time(first, self.clock), precision_of(precision)
        self.chunk = CHUNK

    @property
    def device(self) -> torch.device:
        """Where the predictor is."""
        parts = itertools.chain(self.predictor.parameters(), self.predictor.buffers())
        return next((part.device for part in parts), torch.device("cpu"))

    def to(self, device: torch.device | str) -> Self:
        """Move the predictor to a device."""
        self.predictor.to(checks.device(device))
        return self

    def noise(self, x: Tensor, tau: Tensor | float) -> Tensor:
        """Return ε̂(x, τ) with dropout off; τ is one number or one per row."""
        tau = torch.as_tensor(tau, dtype=torch.float64, device=x.device)
        with at_rest(self.predictor), half_precision(self.device, self.precision):
            result: Tensor = self.predictor(x, one_per_row(tau, x))
        return result.to(x.dtype)

    @property
    def flow(self) -> Flow:
        """The probability flow and the reverse SDE, over a clock that is even in log t."""
        ends = torch.tensor([self.first, self.clock.horizon], dtype=torch.float64)
        first, last = self.clock._time(ends).tolist()
        even = Logarithmic(first=first, last=last)
        start = float(even.inverse(first))
        score = NoiseScore(self.noise, self.noising)
        return Flow(score, self.process, even, span=(start, even.horizon))

    @torch.no_grad()
    def sample(
        self,
        n: int,
        generator: torch.Generator | None = None,
        *,
        method: OrdinaryMethod = METHOD,
        progress: bool | None = None,
    ) -> Tensor:
        """Return n tensors ``(n, *shape)`` in the model's units, drawn by the flow.

        Noise is drawn on the CPU, so that a seed means the same on every device.
        """
        n = checks.integer(n, "n", minimum=0)
        z = self.process.invariant.sample((n, *self.shape), generator=generator).to(self.device)
        return self.flow.pull(z, method=method, chunk=self.chunk, progress=progress)

    def log_density(
        self,
        x: Tensor,
        generator: torch.Generator | None = None,
        *,
        method: OrdinaryMethod = METHOD,
        probes: int = 1,
        progress: bool | None = None,
    ) -> Tensor:
        """Return log ρ(x) in the model's units, with Hutchinson's estimate of divergences."""
        source = _source(generator, x.device)
        with no_gradients_of(self.predictor):
            return log_density(
                self.flow,
                x,
                method=method,
                divergence=Hutchinson(source, probes),
                chunk=self.chunk,
                progress=progress,
            )

    def bits_per_dim(
        self,
        values: Tensor,
        generator: torch.Generator | None = None,
        *,
        method: OrdinaryMethod = METHOD,
        probes: int = 1,
        progress: bool | None = None,
    ) -> Tensor:
        """Return -log₂ of the density of uniformly dequantised integers, per dimension: ``(n,)``.

        The generator of both, by default one with a seed, must be on the predictor's device.
        """
        if self.pixels is None:
            raise ValueError("bits per dimension are known only to a model of integers (pixels=…)")
        self.pixels.demand(values, "values")
        source = _source(generator, self.device)
        x = self.pixels.dequantised(self.pixels.units(values.to(self.device)), source)
        nats = self.log_density(x, source, method=method, probes=probes, progress=progress)
        return self.pixels.bits(nats, self.dim)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write network, prior and settings to one safetensors file, atomically."""
        from oism.nn._storage import save  # noqa: PLC0415 (storage knows every kind of network)

        save(self, path)

    @staticmethod
    def load(
        path: str | os.PathLike[str],
        frame: TransformFrame | None = None,
        *,
        net: nn.Module | None = None,
        gate: Gate | None = None,
    ) -> Diffusion:
        """Return the model in a file, on the CPU.

        A transform, network or gate of a user's own must be given again; the network is filled with
        the weights of the file.
        """
        from oism.nn._storage import load  # noqa: PLC0415

        return load(path, frame, net=net, gate=gate)


def _source(generator: torch.Generator | None, device: torch.device) -> torch.Generator:
    return torch.Generator(device).manual_seed(0) if generator is None else generator


def _demand_alike(predictor: nn.Module, setting: Setting) -> None:
    """Raise unless a predictor is one of the tensors and of the clock of a setting."""
    shape = getattr(predictor, "shape", None)
    if shape is not None and tuple(shape) != setting.shape:
        raise ValueError(
            f"predictor must take tensors of the shape {setting.shape} of the setting, got "
            f"{tuple(shape)}"
        )
    if isinstance(predictor, Informed) and predictor.prior.clock != setting.clock:
        raise ValueError(
            f"predictor must have a prior with the clock of the setting, {setting.clock!r}, got "
            f"{predictor.prior.clock!r}"
        )
