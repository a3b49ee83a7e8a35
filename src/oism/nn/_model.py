"""A trained noise predictor with the tensors it was trained on: a generative model.

Its flow runs over a clock that is even in log t, from the smallest noise level of training: there
the probability flow is smooth, dx/d(log t) ≈ √t ε̂ for small t, and a few dozen steps of a method
of order four are enough. The flow starts at the smallest noise level.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from oism._core import checks
from oism._core.transforms import one_per_row, per_row
from oism.flow import (
    FIRST,
    Divergence,
    Flow,
    Hutchinson,
    NoiseScore,
    OrdinaryMethod,
    RungeKutta4,
    StochasticMethod,
    TensorModel,
    TensorSpec,
    log_density,
)
from oism.nn._contexts import checked_precision, eval_mode, half_precision, no_gradients_of
from oism.nn._informed import Informed, as_informed, described, trained_network
from oism.process import Logarithmic, first_time
from oism.storage import External, storable


@storable
class Diffusion(TensorModel):
    """A noise predictor as a model with samples, densities and a file.

    Parameters
    ----------
    predictor
        The module ε̂(x, τ).
    spec
        Shape, clock and pixels of the data; by default those of the predictor's prior.
    first
        The smallest clock time that it was trained on.
    precision
        "bf16" for layers in bfloat16, or "no".

    Examples
    --------
    >>> from oism import VariancePreserving
    >>> from oism.flow import TensorSpec
    >>> from oism.nn import MLP
    >>> model = Diffusion(MLP(2), TensorSpec((2,), VariancePreserving()))
    >>> model.sample(5, torch.Generator().manual_seed(0)).shape
    torch.Size([5, 2])
    """

    method: ClassVar[OrdinaryMethod] = RungeKutta4(24)
    """The default method of the flow: 96 evaluations."""

    chunk: int = 250
    """The number of tensors that are moved at a time."""

    def __init__(
        self,
        predictor: nn.Module,
        spec: TensorSpec | None = None,
        *,
        first: float = FIRST,
        precision: str = "no",
    ) -> None:
        checks.instance(predictor, nn.Module, "predictor")
        informed = as_informed(predictor)
        if spec is None:
            if informed is None:
                raise TypeError("spec must be given for a predictor without a prior")
            spec = informed.spec
        super().__init__(spec)
        _check_alike(predictor, spec)
        self.predictor: nn.Module = predictor
        self.first, self.precision = first_time(first, self.clock), checked_precision(precision)

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            "predictor": External(self.predictor),
            "spec": self.spec,
            "first": self.first,
            "precision": self.precision,
        }

    @classmethod
    def from_config(
        cls, *, predictor: nn.Module, spec: TensorSpec, first: float, precision: str
    ) -> Diffusion:
        """Return the model, in evaluation mode."""
        return cls(predictor, spec, first=first, precision=precision).eval()

    def facts(self) -> dict[str, Any]:
        """Return shape, pixels, network, prior, clock and precision."""
        informed, net = self.informed, self.net
        found = {
            "kind": "trained model",
            "shape": list(self.shape),
            "pixels": None if self.pixels is None else [self.pixels.low, self.pixels.high],
            "dequantised": self.spec.dequantised,
            "network": described(net),
            "parameters": sum(part.numel() for part in net.parameters()),
            "prior": None if informed is None else informed.prior.facts(),
            "clock": described(self.clock),
            "first": self.first,
            "precision": self.precision,
        }
        return found if informed is None else {**found, "form": informed.facts()}

    @property
    def net(self) -> nn.Module:
        """The network that is trained: that beside a prior, or the predictor itself."""
        return trained_network(self.predictor)

    @property
    def informed(self) -> Informed | None:
        """The predictor if it combines a network with a prior, otherwise None."""
        return as_informed(self.predictor)

    def noise(self, x: Tensor, tau: Tensor | float) -> Tensor:
        """Return ε̂(x, τ) with dropout off; τ is one number or one per row."""
        x = checks.vectors(x, "x")
        tau = torch.as_tensor(tau, dtype=torch.float64, device=x.device)
        if tau.device.type == "cpu":
            tau = self.clock._tau(tau)
        with eval_mode(self.predictor), half_precision(self.device, self.precision):
            result: Tensor = self.predictor(x, one_per_row(tau, x))
        return result.to(x.dtype)

    def denoise(self, x: Tensor, tau: Tensor | float) -> Tensor:
        """Return E[x_0 | x_τ = x] = (x - σ ε̂)/α."""
        tau = torch.as_tensor(tau, dtype=torch.float64, device=x.device)
        t = self.clock._time(tau)
        alpha, sigma = self.process._alpha(t), self.process._variance(t).sqrt()
        clean = x - per_row(sigma, x, "tau") * self.noise(x, tau)
        return clean / per_row(alpha, x, "tau")

    def score(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return ∇ log ρ_t(x) = -ε̂(x, τ(t))/σ_t; t is the process's own time."""
        return NoiseScore(self.noise, self.noising)(x, t)

    @property
    def flow(self) -> Flow:
        """The probability flow and the reverse SDE, over a clock that is even in log t."""
        ends = torch.tensor([self.first, self.clock.horizon], dtype=torch.float64)
        first, last = self.clock._time(ends).tolist()
        even = Logarithmic(first=first, last=last)
        start = float(even.inverse(first))
        return Flow(self, clock=even, span=(start, even.horizon))

    @torch.no_grad()
    def sample(
        self,
        n: int,
        generator: torch.Generator | None = None,
        *,
        method: OrdinaryMethod | StochasticMethod | None = None,
        progress: bool | None = None,
    ) -> Tensor:
        """Return n tensors ``(n, *shape)`` in the model's units.

        Along the flow, by default with `Diffusion.method`, or by the reverse SDE. For the flow the
        noise is drawn on the CPU, so that a seed gives the same on every device.
        """
        method = self.method if method is None else method
        if method.is_random:
            return super().sample(n, generator, method=method, progress=progress)
        flow = self.flow
        z = flow.start(n, generator=generator).to(self.device)
        return flow.pull(z, method=method, chunk=self.chunk, progress=progress)  # type: ignore[arg-type]

    def log_density(
        self,
        x: Tensor,
        *,
        method: OrdinaryMethod | None = None,
        divergence: Divergence | None = None,
        progress: bool | None = None,
    ) -> Tensor:
        """Return log ρ(x) in the model's units: ``(n,)``.

        By default with `Diffusion.method` and `Hutchinson`'s estimate of divergences, of seed 0.
        """
        if divergence is None:
            divergence = Hutchinson(_seeded(x.device))
        with no_gradients_of(self.predictor):
            return log_density(
                self.flow,
                x,
                method=self.method if method is None else method,
                divergence=divergence,
                chunk=self.chunk,
                progress=progress,
            )

    def bits_per_dim(
        self,
        values: Tensor,
        generator: torch.Generator | None = None,
        *,
        method: OrdinaryMethod | None = None,
        divergence: Divergence | None = None,
        progress: bool | None = None,
    ) -> Tensor:
        """Return -log₂ of the density of uniformly dequantised integers, per dimension: ``(n,)``.

        The generator, by default of seed 0, draws the dequantisation, then the probes of the
        divergence unless another is given. It must be on the model's device.
        """
        generator = _seeded(self.device) if generator is None else generator
        divergence = Hutchinson(generator) if divergence is None else divergence
        return super().bits_per_dim(
            values, generator, method=method, divergence=divergence, progress=progress
        )


def _seeded(device: torch.device) -> torch.Generator:
    return torch.Generator(device).manual_seed(0)


def _check_alike(predictor: nn.Module, spec: TensorSpec) -> None:
    """Raise where a predictor states its tensors or its clock, and they are not the spec's."""
    shape, informed = getattr(predictor, "shape", None), as_informed(predictor)
    if shape is not None and tuple(shape) != spec.shape:
        raise ValueError(
            f"predictor must take tensors of the shape {spec.shape} of the spec, got {tuple(shape)}"
        )
    if informed is not None and informed.spec.clock != spec.clock:
        raise ValueError(
            f"predictor must have a prior with the clock of the spec, {spec.clock!r}, got "
            f"{informed.spec.clock!r}"
        )
