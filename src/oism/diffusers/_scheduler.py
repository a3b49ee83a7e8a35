"""A scheduler of diffusers that samples in the coordinates of a prior.

Pipelines hold x = αx_0 + σε with α² + σ² = 1; λ = log(α/σ) is the level of a timestep, half its
log-SNR. At levels λ_0 < … < λ_{N-1} the network predicts ε, v or x_0, from which

    D = (x - σε)/α,    D = αx - σv,    D = x_0,

and `oism.sampling` moves x to the next level by the residual of D and of the prior's own denoiser.
D is linear in the prediction, so that a guided prediction, ε_0 + w(ε_1 - ε_0), gives the guided D.
It is not clipped: a clipped Gaussian is not one.

A pipeline gives its network pure noise at the first timestep. A method whose first level is a later
one has no use for that evaluation: the first step then only moves the noise to λ_0, along the
prior's flow, and N - 1 evaluations are left. `OperatorPipeline` has all N.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import torch
from diffusers import ConfigMixin, SchedulerMixin
from diffusers.configuration_utils import register_to_config
from diffusers.schedulers.scheduling_utils import KarrasDiffusionSchedulers, SchedulerOutput
from diffusers.utils.torch_utils import randn_tensor
from torch import Tensor

from oism._core import checks
from oism._core.devices import has_float64
from oism._core.transforms import per_row
from oism.diffusers._components import OperatorPrior
from oism.diffusers._predictor import PROCESS
from oism.diffusers._timesteps import BETAS, PREDICTIONS, Timesteps
from oism.images import GaussianPart, Prior
from oism.sampling import (
    PATHS,
    History,
    Plan,
    Polynomial,
    ResidualStatistics,
    SamplingMethod,
    Span,
    alpha_sigma,
    best_method,
    measure_residual,
)

Network = Callable[..., Any]
"""A network of a pipeline: noised tensors and a timestep to an object with ``sample``."""


class OperatorScheduler(SchedulerMixin, ConfigMixin):
    """A multistep method in the coordinates of a prior, in which the flow of the prior is exact.

    The first arguments are those of `DDPMScheduler`, so that ``from_config`` takes the settings of
    any scheduler that preserves variance.

    Parameters
    ----------
    prediction_type
        What the network predicts: "epsilon", "v_prediction" or "sample".
    solver_order
        The order of the method, 1 to 3, where no statistics of the residual are known.
    corrector
        Whether its steps are corrected by the prediction after them.
    eta
        The strength of new noise: 0 for the probability flow, 1 for the reverse SDE.
    lowest_timestep
        The timestep of the result: 0, the lowest of the network, or down to -1, without noise.
    thresholding
        False: predictions are not clipped.
    prior
        The prior, which `from_config` also takes. It is not in the settings: a pipeline stores it
        as a part of its own, `OperatorPrior`, with statistics of the residual (`measure`).

    Examples
    --------
    >>> import torch
    >>> from diffusers import DDPMScheduler
    >>> from oism import fit_prior
    >>> prior = fit_prior(torch.randn(200, 1, 4, 4), order=2)
    >>> scheduler = OperatorScheduler.from_config(DDPMScheduler().config, prior=prior)
    >>> scheduler.set_timesteps(5)
    >>> len(scheduler.timesteps)
    5
    """

    _compatibles: ClassVar[list[str]] = [one.name for one in KarrasDiffusionSchedulers]
    ignore_for_config: ClassVar[list[str]] = ["prior"]
    order = 1
    init_noise_sigma = 1.0

    @register_to_config  # type: ignore[untyped-decorator]
    def __init__(  # noqa: PLR0913 (the settings of a scheduler, by name)
        self,
        num_train_timesteps: int = 1000,
        beta_start: float = 0.0001,
        beta_end: float = 0.02,
        beta_schedule: str = "linear",
        trained_betas: Sequence[float] | None = None,
        *,
        rescale_betas_zero_snr: bool = False,
        prediction_type: str = "epsilon",
        solver_order: int = 2,
        corrector: bool = True,
        eta: float = 0.0,
        lowest_timestep: float = 0.0,
        thresholding: bool = False,
        prior: Prior | OperatorPrior | None = None,
    ) -> None:
        if prediction_type not in PREDICTIONS:
            raise ValueError(
                f"prediction_type must be one of {', '.join(PREDICTIONS)}, got {prediction_type!r}"
            )
        if thresholding:
            raise ValueError("thresholding must be False: predictions are not clipped")
        if not -1 < lowest_timestep <= 0:
            raise ValueError(f"lowest_timestep must be in (-1, 0], got {lowest_timestep!r}")
        self.polynomial = Polynomial(order=solver_order, corrector=corrector, eta=eta)
        self.table = Timesteps({name: self.config[name] for name in BETAS})
        self.alphas_cumprod = torch.exp(-2 * self.table.times[1:]).float()
        self.timesteps = torch.arange(self.table.last, -1, -1, dtype=torch.float64)
        self.prior: Prior | None = None
        self.part: GaussianPart | None = None
        self.statistics: ResidualStatistics | None = None
        self._plans: dict[int, Plan] = {}
        self._parts: dict[str, GaussianPart] = {}
        """The Gaussian part on the device of the last timesteps, by the name of the device."""
        self.num_inference_steps: int | None = None
        self._plan: Plan | None = None
        self._history = History()
        self._before = 0
        """The number of steps of a pipeline before the first of the plan."""
        self._step_index: int | None = None
        self._begin_index: int | None = None
        self.set_prior(prior)

    @classmethod
    def from_config(
        cls,
        config: Any = None,
        *,
        prior: Prior | OperatorPrior | None = None,
        **more: Any,
    ) -> Self:
        """Return the scheduler with the settings of another one, and a prior."""
        found = super().from_config(config, **more)
        (found[0] if isinstance(found, tuple) else found).set_prior(prior)
        made: Self = found
        return made

    def set_prior(
        self,
        prior: Prior | OperatorPrior | None,
        statistics: ResidualStatistics | None = None,
    ) -> None:
        """Set the prior, of tensors as the pipeline holds them, and statistics of the residual."""
        own: Any = getattr(prior, "prior", prior)  # that of a part of a pipeline
        checks.optional(own, Prior, "prior")
        checks.optional(statistics, ResidualStatistics, "statistics")
        self.prior, self.part, self._plans, self._parts = own, None, {}, {}
        if own is not None:
            self.part = own.gaussian_part()
        self.statistics = getattr(prior, "statistics", None) if statistics is None else statistics

    def set_part(self, part: GaussianPart) -> None:
        """Set a Gaussian instead of a prior, as an isotropic one for a network alone."""
        checks.instance(part, GaussianPart, "part")
        self.prior, self.part, self.statistics = None, part, None
        self._plans, self._parts = {}, {}

    @property
    def span(self) -> Span:
        """The range of levels, from the last timestep of the network to that of the result."""
        ends = torch.tensor([self.table.last, self.config.lowest_timestep], dtype=torch.float64)
        time = self.table.time(ends)
        return Span(*(-0.5 * torch.log(torch.expm1(2 * time))).tolist())

    def method(self, evaluations: int) -> SamplingMethod:
        """Return the method: by the statistics of the residual, or polynomials, as with noise."""
        statistics = None if self.config.eta > 0 else self.statistics
        return best_method(statistics, evaluations, self.polynomial)

    @torch.no_grad()
    def measure(
        self,
        network: Network,
        count: int = PATHS,
        generator: torch.Generator | None = None,
        *,
        progress: bool | None = None,
    ) -> ResidualStatistics:
        """Measure the residual of a network once, and return the statistics, which are also set.

        With them the levels and the weights of all numbers of evaluations are chosen. ``count``
        tensors are followed along the flow, 48 evaluations each.

        Parameters
        ----------
        network
            The network of the pipeline, or a function of noised tensors and a timestep that
            returns an object with the prediction ``sample``, with its conditions and guidance.
            A network with classes is given each of them in turn.
        count
            The number of tensors.
        generator
            The source of their noise.
        """
        part = self._known_part()
        if self.prior is None:
            raise ValueError("prior must be set: a residual is that beside a prior")
        shape = (checks.integer(count, "count", minimum=2), *self.prior.shape)
        device = getattr(network, "device", part.mean.device)
        # The paths are in float32, whatever the network computes in.
        noise = randn_tensor(shape, generator=generator, device=device)
        dtype = getattr(network, "dtype", noise.dtype)
        classes = getattr(getattr(network, "config", None), "num_class_embeds", None)

        def denoiser(x: Tensor, level: Tensor) -> Tensor:
            labels = {}
            if classes is not None:
                labels["class_labels"] = torch.arange(len(x), device=x.device) % classes
            output = network(x.to(dtype), self._timesteps(level), **labels).sample
            return self._denoised(output, x, level)

        self.statistics = measure_residual(denoiser, part, self.span, noise, progress=progress)
        self._plans = {}
        return self.statistics

    def __len__(self) -> int:
        """Return the number of timesteps of the network."""
        return int(self.config.num_train_timesteps)

    def set_timesteps(
        self,
        num_inference_steps: int,
        device: torch.device | str | None = None,
        *,
        from_noise: bool = True,
    ) -> None:
        """Set the timesteps at which the network is evaluated: fractional, in float64.

        ``from_noise`` is whether the network gets pure noise at the first of them, as in the
        pipelines of diffusers; otherwise it gets what `start` makes of the noise.
        """
        count = checks.integer(num_inference_steps, "num_inference_steps", minimum=1)
        plan = self._plan_for(count)
        late = float(plan.levels[0]) > plan.span.first + 1e-6
        self._before = int(from_noise and late and count > 1)
        if self._before:
            plan = self._plan_for(count - 1)
        elif from_noise and late:
            method = dataclasses.replace(self.polynomial, start=plan.span.first)
            plan = method.plan(plan.part, plan.span, count)
        top = torch.full((self._before,), self.table.last, dtype=torch.float64)
        timesteps = torch.cat((top, self._timesteps(plan.levels[:-1])))
        self.timesteps = (timesteps if has_float64(device) else timesteps.float()).to(device)
        self._plan = plan if device is None else plan.to(device, self._part_on(device))
        self.num_inference_steps, self._history = count, History()
        self._step_index = self._begin_index = None

    def start(self, noise: Tensor) -> Tensor:
        """Return noised tensors at the first level, which the prior's flow makes of pure noise."""
        x, self._history = self._known_plan().start(_single(noise))
        return x.to(noise.dtype)

    def scale_model_input(self, sample: Tensor, timestep: Tensor | float | None = None) -> Tensor:
        """Return the sample: the input of the network is what pipelines hold."""
        return sample

    def step(
        self,
        model_output: Tensor,
        timestep: Tensor | float,
        sample: Tensor,
        generator: torch.Generator | list[torch.Generator] | None = None,
        *,
        return_dict: bool = True,
        **_: object,
    ) -> Any:
        """Return a `SchedulerOutput` or a tuple with the tensors at the next timestep.

        Further arguments, as ``eta`` of `DDIMPipeline`, are ignored: it is a setting here.
        """
        k = self._index(timestep)
        x = _single(sample)
        if k < self._before:
            x = self.start(x)
        else:
            x = self._moved(k - self._before, x, model_output, generator)
        self._step_index = k + 1
        x = x.to(sample.dtype)
        return SchedulerOutput(prev_sample=x) if return_dict else (x,)

    def _moved(
        self,
        k: int,
        x: Tensor,
        output: Tensor,
        generator: torch.Generator | list[torch.Generator] | None,
    ) -> Tensor:
        """Return tensors at the level after the k-th evaluation."""
        plan = self._known_plan()
        denoised = self._denoised(output, x, plan.levels[k])
        noise = None
        if plan.steps[k].noise is not None:
            noise = randn_tensor(x.shape, generator=generator, device=x.device, dtype=x.dtype)
        x, self._history = plan.step(k, x, denoised, self._history, noise)
        is_last = k + 1 == plan.evaluations
        return plan.finish(x, self._history) if is_last else x

    def _denoised(self, output: Tensor, x: Tensor, level: Tensor) -> Tensor:
        """Return D, the denoised x = αx_0 + σε, from what the network predicts."""
        alpha, sigma = (per_row(part, x) for part in alpha_sigma(level))
        output = output[:, : x.shape[1]].to(x.dtype)  # without variances, if it has them
        if self.config.prediction_type == "epsilon":
            return (x - sigma * output) / alpha
        is_velocity = self.config.prediction_type == "v_prediction"
        return alpha * x - sigma * output if is_velocity else output

    def _timesteps(self, levels: Tensor) -> Tensor:
        """Return the timesteps of levels, not below the lowest."""
        times = PROCESS._time_of_log_snr(2 * levels)
        return self.table.timestep(times).clamp(min=self.config.lowest_timestep)

    def add_noise(self, original_samples: Tensor, noise: Tensor, timesteps: Tensor) -> Tensor:
        """Return αx + σε at timesteps, one for each sample."""
        time = self.table.time(timesteps.cpu()).reshape(-1)
        alpha, sigma = PROCESS._alpha(time), PROCESS._variance(time).sqrt()
        x = original_samples
        alpha, sigma = (part.expand(len(x)) if len(part) == 1 else part for part in (alpha, sigma))
        return per_row(alpha, x) * x + per_row(sigma, x) * noise

    @property
    def step_index(self) -> int | None:
        """The number of the present step, None before the first."""
        return self._step_index

    @property
    def begin_index(self) -> int | None:
        """The number of the first step, where a pipeline has set it."""
        return self._begin_index

    def set_begin_index(self, begin_index: int = 0) -> None:
        """Set the number of the first step: pipelines that begin in the middle call it."""
        self._begin_index = begin_index

    def _index(self, timestep: Tensor | float) -> int:
        """Return the number of the step: the next one, or that of the first timestep."""
        if self._step_index is not None:
            return self._step_index
        k = self._begin_index
        if k is None:
            k = int((self.timesteps.cpu() - float(timestep)).abs().argmin())
        # The first step of a plan may contain the residual before its first level, which is that
        # of noise moved by `start`, and not that of tensors noised to this level.
        is_noised = self._before > 0 and self._history.x is None
        if k > self._before or (k == self._before and is_noised):
            self._begin_at(k)
        return k

    def _begin_at(self, k: int) -> None:
        """Replace the plan by one that begins at step k: it has no residuals of steps before."""
        plan = self._known_plan()
        levels = plan.levels[k - self._before :]
        method = dataclasses.replace(self.polynomial, levels=tuple(levels.tolist()))
        self._plan, self._before = method.plan(plan.part, plan.span, len(levels) - 1), k

    def _plan_for(self, count: int) -> Plan:
        """Return the plan for a number of evaluations, which is made once."""
        if count not in self._plans:
            self._plans[count] = self.method(count).plan(self._known_part(), self.span, count)
        return self._plans[count]

    def _part_on(self, device: torch.device | str) -> GaussianPart:
        """Return the Gaussian part on a device, to which it is copied once."""
        if str(device) not in self._parts:
            self._parts = {str(device): self._known_part().to(device)}
        return self._parts[str(device)]

    def _known_part(self) -> GaussianPart:
        if self.part is None:
            raise ValueError(
                "the scheduler needs a prior: give it one by scheduler.set_prior(prior), or by "
                "OperatorScheduler.from_config(config, prior=prior)"
            )
        return self.part

    def _known_plan(self) -> Plan:
        if self._plan is None:
            raise ValueError("set_timesteps must be called before the first step")
        return self._plan


def _single(x: Tensor) -> Tensor:
    """Return tensors of half precision in float32, others as they are."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
