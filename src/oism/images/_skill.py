"""What a prior is worth at each noise level, and what a network should make of it.

The error of the noise that a score predicts, ε̂ = -σs(x_t), per dimension, is by Stein's identity
E[ε·s] = σE[∇·s] the implicit score-matching loss,

    m(t) = E‖ε - ε̂‖²/d = 1 + σ² E[‖s‖² + 2∇·s]/d,

so that it follows, like the loss, from averages over clean data that the prior has not seen. For
a polynomial in the standardised coordinate of each direction, with its held-out loss ℓ ≤ 0,

    m(t) = mean over directions of 1 - (σ²/s_t²)(1 - ℓ - e),    e = E[u_t²] - 1,

where e = 0 unless the model's variance is not that of the data (order one). The Gaussian alone has
ℓ = 0 and m = mean of α²s²/s_t².
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from oism.estimation._moments.fourier import FLOOR
from oism.process import Clock, Logarithmic, OrnsteinUhlenbeck
from oism.score import Coordinates, Curve, HermiteScore

if TYPE_CHECKING:
    from oism.images._framed import FramedPrior

LEVELS = 193
"""The number of noise levels of the table, even in the logarithm of t."""


LEAST = 1e-9
"""The least error that is told apart from none."""

MEASURED_LEVELS = 49
"""The number of levels where the error has to be measured."""


def expected_error(
    lines: HermiteScore,
    dim: int,
    rest: tuple[float, float] | None,
    variances: Tensor,
    held: Tensor | None = None,
) -> Curve:
    """Return m over the clock of a score, from held-out losses ``(K, k)`` at its times of choice.

    ``variances`` ``(k,)`` are those of the data. ``rest`` are the variances of the model and of the
    data along the ``dim - k`` directions without a polynomial.
    """
    clock, process = lines.clock, lines.basis.process
    assert isinstance(clock, Logarithmic)
    assert isinstance(process, OrnsteinUhlenbeck)
    tau = torch.linspace(0, clock.horizon, LEVELS, dtype=torch.float64)
    t = clock._time(tau)
    noise = -torch.expm1(-2 * process.theta * t)
    scale = lines.scale.cpu()
    _, spread = Coordinates(process, torch.zeros_like(scale), scale).at(t)
    shares = noise[:, None] / spread.square()
    loss = torch.zeros_like(shares)
    if held is not None:
        times = torch.linspace(0, clock.horizon, len(held), dtype=torch.float64)
        loss = Curve(times, held, order=2)(tau)
    excess = (1 - noise)[:, None] * (variances.cpu() - scale.square()) / spread.square()
    total = (1 - shares * (1 - loss - excess)).sum(dim=1)
    if rest is not None:
        model, data = (max(one, FLOOR) * (1 - noise) + noise for one in rest)
        total += (dim - len(scale)) * (1 - noise / model * (2 - data / model))
    return error_curve(tau, total / dim)


def unknown_error(table: Clock) -> Curve:
    """Return the error of a prior of which nothing is known: that of predicting no noise."""
    ends = torch.tensor([0.0, table.horizon], dtype=torch.float64)
    return error_curve(ends, torch.ones(2, dtype=torch.float64))


def error_curve(tau: Tensor, errors: Tensor) -> Curve:
    """Return errors over a table as a curve of their logarithms: at last they fall like e^{-2t}."""
    return Curve(tau, errors.clamp(min=LEAST).log(), order=4)


@torch.no_grad()
def measured_error(prior: FramedPrior, z: Tensor, seed: int = 0) -> Curve:
    """Return m over the table of a prior, measured on clean coordinates ``(n, k)``, centred.

    Where no closed form is known: one draw of noise for each row at every level, from a seed, the
    same draws at all levels.
    """
    table, process = prior.setting.table, prior.process
    tau = torch.linspace(0, table.horizon, MEASURED_LEVELS, dtype=torch.float64, device=z.device)
    centre = prior.analyse(prior.mean[None])[0].to(z)
    noise = torch.randn(z.shape, generator=torch.Generator().manual_seed(seed)).to(z)
    errors = []
    for t in table._time(tau):
        alpha, sigma = process._alpha(t).to(z), process._variance(t).sqrt().to(z)
        score = prior._line_score(alpha * (z + centre) + sigma * noise, t)
        total = (noise + sigma * score).square().mean(dim=0).double().sum()
        if prior.rest is not None:
            signal = prior.rest * alpha.double().square()
            total = total + prior.beyond * signal / (signal + sigma.double().square())
        errors.append(total / prior.dim)
    return error_curve(tau.cpu(), torch.stack(errors).cpu())
