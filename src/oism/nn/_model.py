"""A trained noise predictor with the tensors it was trained on: a generative model.

Its flow runs over a clock that is even in log t, from the smallest noise level of training: there
the probability flow is smooth, dx/d(log t) ≈ √t ε̂ for small t, and a few dozen steps of a method
of order four are enough. The flow starts at the smallest noise level.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from oism._core import checks
from oism._core.progress import progress_bar
from oism._core.transforms import one_per_row, per_row
from oism.flow import (
    FIRST,
    Adams,
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
from oism.images import GaussianPart
from oism.nn._contexts import checked_precision, eval_mode, half_precision, no_gradients_of
from oism.nn._informed import Informed, as_informed, described, trained_network
from oism.nn._likelihood import StandardisedFlow
from oism.process import Logarithmic, first_time
from oism.sampling import (
    PATHS,
    Denoiser,
    Plan,
    Polynomial,
    ResidualStatistics,
    SamplingMethod,
    Span,
    best_method,
    measure_residual,
    start_level,
)
from oism.storage import External, storable

EVALUATIONS = 20
"""The number of evaluations of the predictor for samples, by default."""


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
        "bf16" or "fp16" for layers in bfloat16 or float16, or "no". Networks are trained in
        bfloat16; samples of few evaluations are more accurate in float16.
    statistics
        Those of the residual beside the prior, from which samplers choose levels and weights;
        `measure_residual` sets them.

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
        statistics: ResidualStatistics | None = None,
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
        checks.optional(statistics, ResidualStatistics, "statistics")
        self.statistics = statistics
        self._plans: dict[object, Plan] = {}

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            "predictor": External(self.predictor),
            "spec": self.spec,
            "first": self.first,
            "precision": self.precision,
            "statistics": self.statistics,
        }

    @classmethod
    def from_config(
        cls,
        *,
        predictor: nn.Module,
        spec: TensorSpec,
        first: float,
        precision: str,
        statistics: ResidualStatistics | None,
    ) -> Diffusion:
        """Return the model, in evaluation mode."""
        model = cls(predictor, spec, first=first, precision=precision, statistics=statistics)
        return model.eval()

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

    @property
    def span(self) -> Span:
        """The range of levels λ = log(α/σ), from the horizon of the clock to ``first``."""
        ends = torch.tensor([self.clock.horizon, self.first], dtype=torch.float64)
        return Span(*(self.noising.log_snr(ends) / 2).tolist())

    def gaussian_part(self) -> GaussianPart:
        """Return that of the prior; without one N(0, 0), which contains nothing about the data."""
        if self.informed is None:
            return GaussianPart.isotropic(self.dim, 0.0, self.device)
        return self.informed.prior.gaussian_part()

    def denoise_at(self, x: Tensor, level: Tensor) -> Tensor:
        """Return E[x_0 | x] at a level λ, one number: the denoiser of `oism.sampling`."""
        return self.denoise(x, self.noising.tau_of_log_snr(2 * level))

    def plan(self, evaluations: int = EVALUATIONS, sampler: SamplingMethod | None = None) -> Plan:
        """Return levels and weights of a method with a number of evaluations.

        By default `Prediction` if statistics of the residual allow it, otherwise `Polynomial`.
        """
        if sampler is not None:
            checks.instance(sampler, SamplingMethod, "sampler")
            return sampler.plan(self.gaussian_part(), self.span, evaluations)
        key = (evaluations, self.device, self.statistics)
        if key not in self._plans:  # the search for levels takes time: the last plan is kept
            method = best_method(self.statistics, evaluations, self._polynomial(evaluations))
            self._plans = {key: method.plan(self.gaussian_part(), self.span, evaluations)}
        return self._plans[key]

    def _polynomial(self, evaluations: int) -> Polynomial:
        """Return the method without statistics, which begins where the network has a part."""
        part, span, informed = self.gaussian_part(), self.span, self.informed
        start = start_level(part, span, evaluations)
        if informed is not None and informed.prior.is_gaussian:
            # Where the network has no part in the prediction, the residual is zero.
            used = torch.tensor(informed.first_used, dtype=torch.float64)
            start = max(start, float(self.noising.log_snr(used)) / 2)
        return Polynomial(start=min(start, 0.5 * (span.first + span.last)))

    @torch.no_grad()
    def sample(
        self,
        n: int,
        generator: torch.Generator | None = None,
        *,
        evaluations: int | None = None,
        sampler: SamplingMethod | None = None,
        method: OrdinaryMethod | StochasticMethod | None = None,
        progress: bool | None = None,
    ) -> Tensor:
        """Return n tensors ``(n, *shape)`` in the model's units.

        Parameters
        ----------
        n
            The number of tensors.
        generator
            The source of noise. Noise is drawn on the CPU, so that a seed gives the same on every
            device, except by a method of the reverse SDE.
        evaluations
            The number of evaluations of the predictor, 20 by default. Without a prior and without
            this number, `Diffusion.method` is used.
        sampler
            A method of `oism.sampling`, by default that of `plan`.
        method
            A method of `oism.flow` instead, for the probability flow or the reverse SDE.
        """
        if method is not None and (evaluations is not None or sampler is not None):
            raise TypeError("method must not be given together with evaluations or sampler")
        if method is None and sampler is None and evaluations is None and self.informed is None:
            method = self.method
        if method is not None and method.is_random:
            return super().sample(n, generator, method=method, progress=progress)
        flow = self.flow
        noise = flow.start(n, generator=generator).to(self.device)
        if method is not None:
            return flow.pull(noise, method=method, chunk=self.chunk, progress=progress)  # type: ignore[arg-type]
        count = EVALUATIONS if evaluations is None else evaluations
        plan = self.plan(checks.integer(count, "evaluations", minimum=1), sampler)
        return self._sampled(plan, noise, generator, progress)

    def _sampled(
        self, plan: Plan, noise: Tensor, generator: torch.Generator | None, progress: bool | None
    ) -> Tensor:
        """Return the results of a plan, a bounded number of tensors at a time."""
        parts = torch.split(noise, self.chunk)
        with progress_bar(progress) as bar:
            bar.stage("sampling", plan.evaluations * len(parts))

            def denoiser(x: Tensor, level: Tensor) -> Tensor:
                bar.advance(1)
                return self.denoise_at(x, level)

            found = [plan.sample(denoiser, part, generator, progress=False) for part in parts]
        return torch.cat(found)

    def measure_residual(
        self,
        count: int = PATHS,
        generator: torch.Generator | None = None,
        *,
        progress: bool | None = None,
    ) -> ResidualStatistics:
        """Measure the residual beside the prior along ``count`` paths; return and keep the result.

        It takes 48 evaluations of so many tensors, once for a trained model. Samplers then choose
        levels and weights for any number of evaluations (`oism.sampling.Prediction`).
        """
        generator = _seeded(torch.device("cpu")) if generator is None else generator
        noise = self.flow.start(checks.integer(count, "count", minimum=1), generator=generator)
        self.statistics = measure_residual(
            self._chunked_denoiser(), self.gaussian_part(), self.span, noise.to(self.device),
            progress=progress,
        )  # fmt: skip
        return self.statistics

    def _chunked_denoiser(self) -> Denoiser:
        def denoiser(x: Tensor, level: Tensor) -> Tensor:
            return torch.cat([self.denoise_at(part, level) for part in torch.split(x, self.chunk)])

        return denoiser

    def log_density(
        self,
        x: Tensor,
        *,
        method: OrdinaryMethod | None = None,
        divergence: Divergence | None = None,
        progress: bool | None = None,
    ) -> Tensor:
        """Return log ρ(x) in the model's units: ``(n,)``.

        By default with `likelihood_method` and `divergence` of a generator with seed 0. Beside a
        prior only its residual is integrated, in standardised coordinates.
        """
        method = self.likelihood_method() if method is None else method
        divergence = self.divergence(_seeded(x.device)) if divergence is None else divergence
        known = self.informed
        along = (
            partial(log_density, self.flow)
            if known is None
            else StandardisedFlow(self, known.prior.gaussian_part()).log_density
        )
        with no_gradients_of(self.predictor):
            return along(
                x, method=method, divergence=divergence, chunk=self.chunk, progress=progress
            )

    def likelihood_method(self, evaluations: int | None = None) -> OrdinaryMethod:
        """Return how densities are computed with a number of evaluations of the predictor.

        By default 32 beside a prior, and 96 without one.
        """
        if evaluations is not None:
            return Adams(checks.integer(evaluations, "evaluations", minimum=2) - 1)
        return RungeKutta4(24) if self.informed is None else Adams(31)

    def divergence(
        self, generator: torch.Generator, probes: int = 1, *, fixed: bool = False
    ) -> Hutchinson:
        """Return Hutchinson's estimate of divergences, beside a prior that of its residual only."""
        known = None if self.informed is None else self.informed.prior
        return Hutchinson(generator, probes, known, fixed)

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
        divergence = self.divergence(generator) if divergence is None else divergence
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
    clock = getattr(predictor, "clock", spec.clock)
    if clock != spec.clock:
        raise ValueError(
            f"predictor must have the clock of the spec, {spec.clock!r}, got {clock!r}"
        )
    if informed is not None and informed.spec.clock != spec.clock:
        raise ValueError(
            f"predictor must have a prior with the clock of the spec, {spec.clock!r}, got "
            f"{informed.spec.clock!r}"
        )
