"""Models of the library as denoisers of azula, and the other way round.

azula noises by x_t = α_t x + σ_t ε with a schedule t ↦ (α_t, σ_t) for t from 0 to 1; a denoiser
returns E[x | x_t] as the mean of a posterior. The library noises by z = αx + σε with α² + σ² = 1.
The two have the same denoiser at the same ratio, α_t/σ_t = α/σ = e^λ, where x_t = (α_t/α) z:

    ε̂(z, τ) = (z - α D)/σ,    D = E[x | x_t = (α_t/α) z].
"""

from __future__ import annotations

from typing import Any

import torch
from azula.denoise import Denoiser, DiracPosterior
from azula.noise import Schedule
from torch import Tensor, nn

from oism._core import checks
from oism._core.transforms import per_row
from oism.flow import TensorModel
from oism.process import Clock, OrnsteinUhlenbeck, VariancePreserving
from oism.storage import External, storable

PROCESS = OrnsteinUhlenbeck()
HALVINGS = 52
"""Of the interval [0, 1] of azula's times: to the last bit of float64."""


class ClockSchedule(Schedule):
    """The noise levels of a clock as a schedule of azula: t = 0 is ``first``, t = 1 the horizon.

    >>> schedule = ClockSchedule(VariancePreserving())
    >>> schedule(torch.tensor([0.0, 1.0]))
    (tensor([1.0000, 0.0066]), tensor([0.0010, 1.0000]))
    """

    def __init__(self, clock: Clock, first: float = 1e-5) -> None:
        checks.instance(clock, Clock, "clock")
        self.clock, self.first = clock, checks.positive(first, "first")

    def __call__(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return α and σ, of the shape and dtype of ``t``."""
        time = self.clock._time(self.tau(t))
        return PROCESS._alpha(time).to(t.dtype), PROCESS._variance(time).sqrt().to(t.dtype)

    def tau(self, t: Tensor) -> Tensor:
        """Return the clock time of a time of azula: float64."""
        return self.first + (self.clock.horizon - self.first) * t.double()


class ModelDenoiser(Denoiser):
    """A model of the library, a prior or a trained model, for the samplers of azula.

    >>> from azula.sample import DDIMSampler
    >>> from oism import fit_prior
    >>> prior = fit_prior(torch.randn(200, 2, generator=torch.Generator().manual_seed(0)), order=2)
    >>> sampler = DDIMSampler(ModelDenoiser(prior), steps=8, silent=True)
    >>> sampler(sampler.init((5, 2))).shape
    torch.Size([5, 2])
    """

    def __init__(self, model: TensorModel) -> None:
        super().__init__()
        checks.instance(model, TensorModel, "model")
        self.model, self.schedule = model, ClockSchedule(model.clock, model.first)

    def forward(self, x_t: Tensor, t: Tensor, **_: object) -> DiracPosterior:
        """Return E[x | x_t] as a posterior; t is one number or one per row."""
        return DiracPosterior(mean=self.model.denoise(x_t, self.schedule.tau(t)))


@storable
class DenoiserPredictor(nn.Module):
    """A denoiser of azula as a noise predictor ε̂(x, τ) of the library.

    A file holds its weights and the name of its class: `oism.load(path, given={"denoiser": …})`
    needs an instance. Levels outside of the denoiser's schedule have the prediction at its ends.

    Parameters
    ----------
    denoiser
        The denoiser, with its schedule.
    clock
        The noise levels, by default `VariancePreserving()`; beside a prior those of the prior.
    """

    def __init__(self, denoiser: Denoiser, clock: Clock | None = None) -> None:
        super().__init__()
        checks.instance(denoiser, Denoiser, "denoiser")
        checks.optional(clock, Clock, "clock")
        self.denoiser = denoiser
        self.clock = VariancePreserving() if clock is None else clock

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {"denoiser": External(self.denoiser), "clock": self.clock}

    def forward(self, x: Tensor, tau: Tensor) -> Tensor:
        """Return ε̂ for clock times, one or one per row, in the dtype of ``x``."""
        time = self.clock._time(tau.double())
        alpha, sigma = PROCESS._alpha(time), PROCESS._variance(time).sqrt()
        t = self._time_of(sigma / alpha)
        scale, _ = self.denoiser.schedule(t)
        mean: Tensor = self.denoiser(per_row(scale / alpha, x) * x, t.to(x.dtype)).mean
        return (x - per_row(alpha, x) * mean) / per_row(sigma, x)

    def _time_of(self, ratio: Tensor) -> Tensor:
        """Return the times at which σ_t/α_t, which increases, has given values, by bisection."""
        low, high = torch.zeros_like(ratio), torch.ones_like(ratio)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            alpha, sigma = self.denoiser.schedule(middle)
            below = sigma < ratio * alpha
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return high
