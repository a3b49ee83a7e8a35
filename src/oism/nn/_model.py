"""A trained noise predictor with the tensors it was trained on: a generative model.

Samples take few evaluations, by methods of `oism.sampling` with the Gaussian part of the prior.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from oism._core import checks
from oism._core.progress import progress_bar
from oism.flow import FIRST, OrdinaryMethod, RungeKutta4, StochasticMethod, TensorSpec
from oism.images import Prior
from oism.nn._contexts import eval_mode
from oism.nn._informed import described
from oism.nn._predictor import PredictorModel, seeded
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
class Diffusion(PredictorModel):
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

    def __init__(
        self,
        predictor: nn.Module,
        spec: TensorSpec | None = None,
        *,
        first: float = FIRST,
        precision: str = "no",
        statistics: ResidualStatistics | None = None,
    ) -> None:
        super().__init__(predictor, spec, first=first, precision=precision)
        checks.optional(statistics, ResidualStatistics, "statistics")
        self.statistics = statistics
        self._plans: dict[object, Plan] = {}

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        if self._condition is not None:
            raise ValueError("labels must not be given to a model that is saved: save the whole")
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
    def span(self) -> Span:
        """The range of levels λ = log(α/σ), from the horizon of the clock to ``first``."""
        highest, lowest = self.noising.log_snr_range(self.first)
        return Span(lowest / 2, highest / 2)

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
        informed = self.informed
        known = None if informed is None else (informed.first_used, *_version(informed.prior))
        key = (evaluations, self.device, self.statistics, known)
        plan = self._plans.get(key)
        if plan is None:  # the search for levels takes time: the last plan is kept
            method = best_method(self.statistics, evaluations, self._polynomial(evaluations))
            plan = method.plan(self.gaussian_part(), self.span, evaluations)
            self._plans.clear()  # in place: models of `given` have the same dictionary
            self._plans[key] = plan
        return plan

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
    def sample(  # noqa: PLR0913
        self,
        n: int,
        generator: torch.Generator | None = None,
        *,
        labels: object = None,
        guidance: float | None = None,
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
            The source of noise. Numbers are drawn on its device and moved to the model's, so that
            a generator of the CPU gives the same noise for every device.
        labels
            The class of all tensors, or one for each, of a predictor that takes labels.
        guidance
            The weight of classifier-free guidance, 1 by default; see `given`.
        evaluations
            The number of evaluations of the predictor, 20 by default. Guidance other than 1 takes
            two for one. Without a prior and without this number, `Diffusion.method` is used.
        sampler
            A method of `oism.sampling`, by default that of `plan`.
        method
            A method of `oism.flow` instead, for the probability flow or the reverse SDE.
        """
        if labels is not None:
            given = self.given(labels, 1.0 if guidance is None else guidance)
            return given.sample(
                n, generator, evaluations=evaluations, sampler=sampler, method=method,
                progress=progress,
            )  # fmt: skip
        if guidance is not None:
            raise TypeError("guidance must not be given without labels, towards which it guides")
        if method is not None and (evaluations is not None or sampler is not None):
            raise TypeError("method must not be given together with evaluations or sampler")
        if method is None and sampler is None and evaluations is None and self.informed is None:
            method = self.method
        with eval_mode(self.predictor):
            if method is not None and method.is_random:
                return self._simulated(n, generator, method, progress)
            noise = self.flow.start(n, generator=generator).to(self.device)
            if method is not None:
                return self._carried(noise, method, progress)
            count = EVALUATIONS if evaluations is None else evaluations
            plan = self.plan(checks.integer(count, "evaluations", minimum=1), sampler)
            return self._sampled(plan, noise, generator, progress)

    def _simulated(
        self,
        n: int,
        generator: torch.Generator | None,
        method: OrdinaryMethod | StochasticMethod,
        progress: bool | None,
    ) -> Tensor:
        """Return samples of the reverse SDE, a bounded number of tensors at a time."""

        def along(model: Self, count: int) -> Tensor:
            return model.flow.sample(
                count, method=method, generator=generator, device=self.device, chunk=self.chunk,
                progress=progress,
            )  # fmt: skip

        if self._is_uniform:
            return along(self, n)
        found = [along(own, len(range(n)[rows])) for rows, own in self._chunks(n)]
        return torch.cat(found) if found else along(self, 0)

    def _carried(
        self, noise: Tensor, method: OrdinaryMethod | StochasticMethod, progress: bool | None
    ) -> Tensor:
        """Return the ends of the probability flow, a bounded number of tensors at a time."""
        n = len(noise)
        parts = [(slice(0, n), self)] if self._is_uniform else self._chunks(n)
        found = [
            own.flow.pull(noise[rows], method=method, chunk=self.chunk, progress=progress)  # type: ignore[arg-type]
            for rows, own in parts
        ]
        return torch.cat(found) if found else noise

    def _sampled(
        self, plan: Plan, noise: Tensor, generator: torch.Generator | None, progress: bool | None
    ) -> Tensor:
        """Return the results of a plan, a bounded number of tensors at a time."""
        found, parts = [noise[:0]], list(self._chunks(len(noise)))
        with progress_bar(progress) as bar:
            bar.stage("sampling", plan.evaluations * len(parts))

            def denoiser(model: Self, x: Tensor, level: Tensor) -> Tensor:
                bar.advance(1)
                return model.denoise_at(x, level)

            for rows, own in parts:
                denoise = partial(denoiser, own)
                found.append(plan.sample(denoise, noise[rows], generator, progress=False))
        return torch.cat(found)

    def measure_residual(
        self,
        count: int = PATHS,
        generator: torch.Generator | None = None,
        *,
        progress: bool | None = None,
    ) -> ResidualStatistics:
        """Measure the residual beside the prior along ``count`` paths; return and keep the result.

        It takes 48 evaluations of so many tensors, once for a trained model; a model with classes
        is given each class in turn. Samplers then choose levels and weights for any number of
        evaluations (`oism.sampling.Prediction`).
        """
        generator = seeded(torch.device("cpu")) if generator is None else generator
        noise = self.flow.start(checks.integer(count, "count", minimum=1), generator=generator)
        with eval_mode(self.predictor):
            self.statistics = measure_residual(
                self._chunked_denoiser(), self.gaussian_part(), self.span, noise.to(self.device),
                progress=progress,
            )  # fmt: skip
        return self.statistics

    def _chunked_denoiser(self) -> Denoiser:
        """Return the denoiser of many tensors; a model with classes is given each in turn."""

        def denoiser(x: Tensor, level: Tensor) -> Tensor:
            model, classes = self, self.classes
            if self._condition is None and classes is not None:
                model = self.given(torch.arange(len(x)) % classes)
            parts = model._chunks(len(x))
            return torch.cat([own.denoise_at(x[rows], level) for rows, own in parts])

        return denoiser


def _version(prior: Prior) -> tuple[Prior, int]:
    """Return what differs once a prior is another one, or has got the tensors of another one."""
    return prior, prior.loads
