"""A trained noise predictor with what it was trained on: a generative model of tensors.

Its flow runs over a clock that is even in log t, from the least noise it was trained on: there the
probability flow is smooth, dx/d(log t) ≈ √t ε̂ for small t, and a few dozen steps of a method of
order four are enough. Data are taken to be those of the least noise.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

import torch
from torch import Tensor, nn

from oism import checks
from oism.clock import Clock, Logarithmic, Noising
from oism.flow import Flow, OrdinaryMethod, RungeKutta4
from oism.likelihood import Hutchinson, log_density
from oism.nn.score import NoiseScore
from oism.prior.base import Setting
from oism.prior.pixels import Pixels
from oism.process import OrnsteinUhlenbeck

METHOD: OrdinaryMethod = RungeKutta4(24)
"""How the flow is followed: 96 evaluations."""

CHUNK = 250
"""The number of tensors that are moved at a time, unless a model is told another."""


class Diffusion:
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

    process = OrnsteinUhlenbeck()

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
        self.predictor, self.setting = predictor, setting
        self.first, self.precision = checks.positive(first, "first"), precision
        self.chunk = CHUNK

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a tensor."""
        return self.setting.shape

    @property
    def dim(self) -> int:
        """The number of entries of a tensor."""
        return math.prod(self.shape)

    @property
    def clock(self) -> Clock:
        """The noise levels."""
        return self.setting.clock

    @property
    def pixels(self) -> Pixels | None:
        """The range of integer data."""
        return self.setting.pixels

    @property
    def noising(self) -> Noising:
        """The process seen through the clock."""
        return Noising(self.process, self.clock)

    @property
    def device(self) -> torch.device:
        """Where the predictor is."""
        return next(self.predictor.parameters()).device

    def to(self, device: torch.device | str) -> Self:
        """Move the predictor to a device."""
        self.predictor.to(checks.device(device))
        return self

    def noise(self, x: Tensor, tau: Tensor | float) -> Tensor:
        """Return ε̂(x, τ) with dropout off; τ is one number or one per row."""
        tau = torch.as_tensor(tau, dtype=torch.float64, device=x.device)
        with self._at_rest():
            result: Tensor = self.predictor(x, tau.expand(len(x)))
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
        source = torch.Generator(x.device).manual_seed(0) if generator is None else generator
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

        The generator must be on the predictor's device.
        """
        if self.pixels is None:
            raise ValueError("bits per dimension are known only to a model of integers (pixels=…)")
        self.pixels.demand(values, "values")
        x = self.pixels.dequantised(self.pixels.units(values.to(self.device)), generator)
        nats = self.log_density(x, generator, method=method, probes=probes, progress=progress)
        return -(nats / self.dim + math.log(self.pixels.step)) / math.log(2)

    def prepare(self, values: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return data as the model knows them: in its units, dequantised if its law is."""
        return self.setting.prepare(values, generator)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write network, prior and settings to one safetensors file, atomically."""
        from oism.nn.storage import save  # noqa: PLC0415 (storage knows every kind of network)

        save(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Diffusion:
        """Return the model in a file, on the CPU."""
        from oism.nn.storage import load  # noqa: PLC0415

        return load(path)

    @contextmanager
    def _at_rest(self) -> Iterator[None]:
        """Within, dropout is off and layers work in the model's precision."""
        was = self.predictor.training
        self.predictor.eval()
        try:
            with half_precision(self.device, self.precision):
                yield
        finally:
            self.predictor.train(was)


@contextmanager
def half_precision(device: torch.device, precision: str) -> Iterator[None]:
    """Within, layers work in bfloat16 for "bf16"; "no" changes nothing."""
    if precision not in ("no", "bf16"):
        raise ValueError(f"precision must be 'no' or 'bf16', got {precision!r}")
    if precision == "no":
        yield
        return
    with torch.autocast(device.type, torch.bfloat16):
        yield


@contextmanager
def no_gradients_of(module: nn.Module) -> Iterator[None]:
    """Within, the parameters of a module ask for no gradients; its inputs still may."""
    wanted = [part for part in module.parameters() if part.requires_grad]
    for part in wanted:
        part.requires_grad_(False)
    try:
        yield
    finally:
        for part in wanted:
            part.requires_grad_(True)
