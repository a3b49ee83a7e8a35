"""A noise predictor as a model of tensors: its scores, its flow and its densities.

The flow runs over a clock that is even in log t, from the smallest noise level of training: there
the probability flow is smooth, dx/d(log t) ≈ √t ε̂ for small t, and a few dozen steps of a method
of order four are enough. The flow starts at the smallest noise level.

A predictor that takes labels is a model without labels, and `PredictorModel.given` returns that of
one class, or that of rows with a label each.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from typing import Self

import torch
from torch import Tensor, nn

from oism._core import checks
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
    TensorModel,
    TensorSpec,
    log_density,
)
from oism.images import GaussianPart
from oism.nn._contexts import checked_precision, eval_mode, half_precision, no_gradients_of
from oism.nn._informed import Informed, as_informed, check_spec, trained_network
from oism.nn._labels import Condition, classes_of
from oism.nn._likelihood import StandardisedFlow
from oism.process import Logarithmic, first_time


class PredictorModel(TensorModel):
    """A noise predictor ε̂(x, τ) with the tensors that it was trained on."""

    chunk: int = 250
    """The number of tensors that are moved at a time."""

    def __init__(
        self, predictor: nn.Module, spec: TensorSpec | None, *, first: float = FIRST, precision: str
    ) -> None:
        checks.instance(predictor, nn.Module, "predictor")
        informed = as_informed(predictor)
        if spec is None:
            if informed is None:
                raise TypeError("spec must be given for a predictor without a prior")
            spec = informed.spec
        super().__init__(spec)
        check_spec(predictor, spec)
        self.predictor: nn.Module = predictor
        self.first, self.precision = first_time(first, self.clock), checked_precision(precision)
        self._condition: Condition | None = None

    @property
    def net(self) -> nn.Module:
        """The network that is trained: that beside a prior, or the predictor itself."""
        return trained_network(self.predictor)

    @property
    def informed(self) -> Informed | None:
        """The predictor if it combines a network with a prior, otherwise None."""
        return as_informed(self.predictor)

    @property
    def classes(self) -> int | None:
        """The number of classes of a predictor that takes labels, otherwise None."""
        return classes_of(self.predictor)

    def given(self, labels: object, guidance: float = 1.0) -> Self:
        """Return the model of one class, or for n rows that of the class of each: ``(n,)``.

        It has the same network. Labels per row are those of tensors with as many rows. With
        ``guidance`` w it is that of ρ(x) (ρ(x | c)/ρ(x))^w at each noise level. The number of
        classes is the label of no class.
        """
        view = copy.copy(self)
        view._condition = Condition.of(self.predictor, labels, guidance)
        return view

    def conditional_noise(self, x: Tensor, tau: Tensor | float, labels: object) -> Tensor:
        """Return ε̂ given labels; a model without classes predicts the same for all of them."""
        return (self if self.classes is None else self.given(labels)).noise(x, tau)

    @property
    def _is_uniform(self) -> bool:
        """Whether all rows have the same label, or none."""
        return self._condition is None or not self._condition.has_rows

    def _chunks(self, n: int) -> Iterator[tuple[slice, Self]]:
        """Yield slices of n rows, with the model of the labels of each."""
        own = self._condition
        uniform = own is None or not own.has_rows
        if own is not None and not uniform and len(own.labels) != n:
            raise ValueError(
                f"labels must be one number or one per row: {n} rows, {len(own.labels)} labels"
            )
        for first in range(0, n, self.chunk):
            rows, view = slice(first, first + self.chunk), self
            if own is not None and not uniform:
                view = copy.copy(self)
                view._condition = own.rows(rows)
            yield rows, view

    def noise(self, x: Tensor, tau: Tensor | float) -> Tensor:
        """Return ε̂(x, τ) with dropout off; τ is one number or one per row."""
        x = checks.vectors(x, "x")
        tau = torch.as_tensor(tau, dtype=torch.float64, device=x.device)
        if tau.device.type == "cpu":
            tau = self.clock._tau(tau)
        with eval_mode(self.predictor), half_precision(self.device, self.precision):
            times, given = one_per_row(tau, x), self._condition
            result: Tensor = (
                self.predictor(x, times) if given is None else given(self.predictor, x, times)
            )
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

    def gaussian_part(self) -> GaussianPart:
        """Return that of the prior; without one N(0, 0), which contains nothing about the data."""
        if self.informed is None:
            return GaussianPart.isotropic(self.dim, 0.0, self.device)
        return self.informed.prior.gaussian_part()

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
        divergence = self.divergence(seeded(x.device)) if divergence is None else divergence
        known = self.informed

        def along(model: Self, x: Tensor) -> Tensor:
            way = (
                partial(log_density, model.flow)
                if known is None
                else StandardisedFlow(model, known.prior.gaussian_part()).log_density
            )
            return way(x, method=method, divergence=divergence, chunk=self.chunk, progress=progress)

        with eval_mode(self.predictor), no_gradients_of(self.predictor):
            if self._is_uniform:
                return along(self, x)
            return torch.cat([along(own, x[rows]) for rows, own in self._chunks(len(x))])

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
        divergence unless another is given. Numbers are drawn on its device and moved.
        """
        generator = seeded(self.device) if generator is None else generator
        divergence = self.divergence(generator) if divergence is None else divergence
        return super().bits_per_dim(
            values, generator, method=method, divergence=divergence, progress=progress
        )


def seeded(device: torch.device) -> torch.Generator:
    """Return a generator with seed 0."""
    return torch.Generator(device).manual_seed(0)
