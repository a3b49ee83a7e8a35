"""The expected error of the noise that a prior predicts, at each noise level.

The error of ε̂ = -σs(x_t), per dimension, is by Stein's identity E[ε·s] = σE[∇·s] the implicit
score-matching loss,

    m(t) = E‖ε - ε̂‖²/d = 1 + σ² E[‖s‖² + 2∇·s]/d,

so it follows, like the loss, from averages over clean data that were held out of the fit. For a
polynomial in the standardised coordinate of each direction, with its held-out loss ℓ ≤ 0,

    m(t) = mean over directions of 1 - (σ²/s_t²)(1 - ℓ - e),    e = E[u_t²] - 1,

where e = 0 unless the model's variance is not that of the data (order one). The Gaussian alone has
ℓ = 0 and m = mean of α²s²/s_t².
"""

from __future__ import annotations

import torch
from torch import Tensor

from oism.process import Clock
from oism.score import FLOOR, Coordinates, Curve, HermiteScore

LEVELS = 193
"""The number of noise levels of the table, even in the logarithm of t."""

SMALLEST = 1e-9
"""The smallest error that is tabulated."""

MEASURED_LEVELS = 49
"""The number of levels where the error has to be measured."""


def polynomial_error(
    lines: HermiteScore,
    dim: int,
    rest: tuple[float, float] | None,
    variances: Tensor,
    heldout: Tensor | None = None,
) -> Curve:
    """Return m over the clock of a score, from held-out losses ``(K, k)`` at its times of choice.

    ``variances`` ``(k,)`` are those of the data. ``rest`` are the variances of the model and of the
    data along the ``dim - k`` directions without a polynomial.
    """
    clock, process = lines.clock, lines.basis.process
    tau = torch.linspace(0, clock.horizon, LEVELS, dtype=torch.float64)
    t = clock._time(tau)
    noise = -torch.expm1(-2 * process.theta * t)
    scale = lines.scale.cpu()
    _, spread = Coordinates(process, torch.zeros_like(scale), scale).at(t)
    shares = noise[:, None] / spread.square()
    loss = torch.zeros_like(shares)
    if heldout is not None:
        times = torch.linspace(0, clock.horizon, len(heldout), dtype=torch.float64)
        loss = Curve(times, heldout, order=2)(tau)
    excess = (1 - noise)[:, None] * (variances.cpu() - scale.square()) / spread.square()
    total = (1 - shares * (1 - loss - excess)).sum(dim=1)
    if rest is not None:
        model, data = (max(one, FLOOR) * (1 - noise) + noise for one in rest)
        total += (dim - len(scale)) * (1 - noise / model * (2 - data / model))
    return error_curve(tau, total / dim)


def unit_error(table: Clock) -> Curve:
    """Return the error of predicting no noise: one at every level."""
    ends = torch.tensor([0.0, table.horizon], dtype=torch.float64)
    return error_curve(ends, torch.ones(2, dtype=torch.float64))


def error_curve(tau: Tensor, errors: Tensor) -> Curve:
    """Return the logarithms of errors over a table: for large t errors fall like e^{-2t}."""
    return Curve(tau, errors.clamp(min=SMALLEST).log(), order=4)
