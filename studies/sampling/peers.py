"""Schedulers of diffusers, on any noise predictor ε̂(x, τ) and a continuous clock.

A scheduler has discrete training steps, given by β_1, β_2, …, with ᾱ_i = Π(1 - β_j), and works
with σ_i/α_i = √((1 - ᾱ_i)/ᾱ_i). Here the β are those of the clock at chosen τ_i, and the predictor
gets the τ of the ratio that the scheduler has at a call, through the log-SNR, not that of a rounded
step. So a scheduler integrates the same flow as every other method, and its limit for many steps is
the flow's, which a test checks.

A *grid* is how the levels of the evaluations are chosen, by the scheduler's own option:

    EDM        even in (σ/α)^{1/7} (Karras et al., 2022)
    uniform    even in the log-SNR (Lu et al., 2022)

each over the levels of the model, or, *short*, over those of diffusers' own 1,000 steps, whose
smallest σ is 0.01. Methods end at σ = 0, with the denoised tensor of the last evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from oism.process import Noising
from studies import study

Predictor = Callable[[Tensor, float], Tensor]
"""ε̂(x, τ) for tensors ``(n, *shape)`` and one τ."""

STEPS = 1000
SHORTEST = 1 / STEPS
"""The smallest τ of a short grid."""

RHO = 7.0


@dataclass(frozen=True)
class Grid:
    """How the levels of a scheduler are chosen."""

    name: str
    is_even: bool
    is_short: bool


GRIDS = tuple(
    Grid(("uniform" if even else "EDM") + (", short" if short else ""), even, short)
    for short in (False, True)
    for even in (False, True)
)
"""EDM and uniform, over all levels and over those of diffusers."""


@dataclass(frozen=True)
class Peer:
    """A scheduler of diffusers: the name of its class, its settings and its options for grids.

    ``even`` is the option for a grid even in the log-SNR. ``calls`` is the number of evaluations of
    a step. A scheduler without such options (DDIM) takes every one of its training steps, which are
    then those of the grid.
    """

    name: str
    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    even: str | None = "use_exponential_sigmas"
    calls: int = 1

    def steps(self, evaluations: int) -> int:
        """Return the number of steps with at most this many evaluations; the last has one."""
        return (evaluations + self.calls - 1) // self.calls

    def scheduler(self, noising: Noising, first: float, grid: Grid, steps: int) -> Any:  # noqa: ANN401
        """Return the scheduler, with its levels set."""
        import diffusers  # noqa: PLC0415 (only for comparisons)

        if self.even is None:
            tau, options = grid_times(noising, first, grid, steps), {}
        else:
            tau = training_times(noising, first, is_short=grid.is_short)
            options = {self.even if grid.is_even else "use_karras_sigmas": True}
        made = getattr(diffusers, self.kind)(
            num_train_timesteps=len(tau), trained_betas=betas(noising, tau).tolist(),
            **options, **self.settings,
        )  # fmt: skip
        made.set_timesteps(steps)
        return made


PEERS: Mapping[str, Peer] = MappingProxyType(
    {
        peer.name: peer
        for peer in (
            Peer(
                "DPM-Solver++(2M)",
                "DPMSolverMultistepScheduler",
                {"solver_order": 2},
                "use_lu_lambdas",
            ),
            Peer(
                "DPM-Solver++(3M)",
                "DPMSolverMultistepScheduler",
                {"solver_order": 3},
                "use_lu_lambdas",
            ),
            Peer("UniPC-2", "UniPCMultistepScheduler", {"solver_order": 2}),
            Peer("UniPC-3", "UniPCMultistepScheduler", {"solver_order": 3}),
            Peer("DEIS-2", "DEISMultistepScheduler", {"solver_order": 2}),
            Peer("DEIS-3", "DEISMultistepScheduler", {"solver_order": 3}),
            Peer("Heun", "HeunDiscreteScheduler", calls=2),
            Peer(
                "DDIM",
                "DDIMScheduler",
                {"clip_sample": False, "timestep_spacing": "trailing"},
                None,
            ),
        )
    }
)
"""The schedulers by name, with the settings that diffusers recommends otherwise."""


def training_times(noising: Noising, first: float, *, is_short: bool) -> Tensor:
    """Return the clock times of 1,000 training steps or one more, in float64.

    They are even in τ, as those of DDPM, and over all levels ``first`` is one more. Only the two
    ends affect the grids.
    """
    tau = torch.linspace(0, noising.clock.horizon, STEPS + 1, dtype=torch.float64)
    tau[0] = first
    return tau[1:] if is_short or first >= tau[1] else tau


def grid_times(noising: Noising, first: float, grid: Grid, steps: int) -> Tensor:
    """Return the clock times of a grid, increasing, in float64."""
    least = float(training_times(noising, first, is_short=True)[0]) if grid.is_short else first
    highest, lowest = noising.log_snr_range(least)
    if steps == 1:
        return torch.tensor([noising.clock.horizon], dtype=torch.float64)
    if grid.is_even:
        log_snr = torch.linspace(highest, lowest, steps, dtype=torch.float64)
    else:
        low, high = (math.exp(-end / 2 / RHO) for end in (highest, lowest))
        log_snr = -2 * RHO * torch.linspace(low, high, steps, dtype=torch.float64).log()
    return noising.tau_of_log_snr(log_snr)


def betas(noising: Noising, tau: Tensor) -> Tensor:
    """Return β_i = 1 - ᾱ_i/ᾱ_{i-1} at increasing clock times; before the first ᾱ = 1."""
    logs = 2 * noising.alpha(tau).log()
    return -torch.expm1(torch.diff(logs, prepend=torch.zeros(1).to(logs)))


@torch.no_grad()
def sample(  # noqa: PLR0913
    peer: Peer,
    grid: Grid,
    predictor: Predictor,
    noising: Noising,
    noise: Tensor,
    evaluations: int,
    *,
    first: float,
) -> Tensor:
    """Return the tensors that a scheduler makes of noise ``(n, *shape)``.

    The predictor is called at most ``evaluations`` times.
    """
    scheduler = peer.scheduler(noising, first, grid, peer.steps(evaluations))
    ratios = _ratios(scheduler)
    has_index = hasattr(scheduler, "set_begin_index")
    if has_index:
        scheduler.set_begin_index(0)
    x = noise
    if scheduler.init_noise_sigma != 1:  # it works with x/α
        x = x * math.sqrt(1 + ratios[0] ** 2)
    scaled, predicted = x, x
    for step, ratio in zip(scheduler.timesteps, ratios, strict=False):
        scaled = scheduler.scale_model_input(x, step)
        tau = float(noising.tau_of_log_snr(-2 * math.log(ratio)))
        predicted = predictor(scaled, max(tau, first))
        x = scheduler.step(predicted, step, x).prev_sample
    if len(ratios) > len(scheduler.timesteps) and ratios[-1] > 0:
        # Its last step is one from the smallest level to the same: the denoised tensor instead.
        ratio = ratios[len(scheduler.timesteps) - 1]
        return scaled * math.sqrt(1 + ratio**2) - ratio * predicted
    return x


def versions() -> dict[str, str]:
    """Return the versions of the packages that a comparison uses."""
    import diffusers  # noqa: PLC0415 (only for comparisons)

    return {**study.versions(), "diffusers": diffusers.__version__}


def _ratios(scheduler: Any) -> list[float]:  # noqa: ANN401
    """Return σ/α at every call of the predictor, and at the end where the scheduler has it."""
    if hasattr(scheduler, "sigmas"):
        found: list[float] = scheduler.sigmas.double().tolist()
        return found
    kept: Tensor = scheduler.alphas_cumprod.double()[scheduler.timesteps]
    return ((1 - kept) / kept).sqrt().tolist()
