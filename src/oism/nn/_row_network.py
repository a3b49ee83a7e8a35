"""A small residual network for rows of tables, with the exact divergence of what it predicts.

For z = αx + σε with α² = 1/(1 + e^{-λ}), σ² = 1 - α² and the logarithm λ of the signal-to-noise
ratio, the network predicts

    ε̂(z, λ) = σz + αF(z, λ)  for rows of ℝ^d,        ε̂(z, λ) = αF(z, λ)  for angles.

The first term is exact for N(0, I), so that F has outputs of order one at all noise levels, and
nothing to learn about a Gaussian. With activations a, weights W and shifts b_k that depend on λ,

    h_0 = W_0 φ(z) + b_0(λ),    h_k = h_{k-1} + W_k a(h_{k-1}) + b_k(λ),    F = V a(h_K).

The divergence is the trace of the Jacobian. It is propagated along with the values: d more vectors
for each row, J_k = J_{k-1} + a'(h_{k-1}) J_{k-1} W_kᵀ, and only the diagonal of the last product.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from oism._core import checks
from oism.storage import storable

TIME_WAVES = 8
TIME_PERIOD = 32.0
"""The longest wave of λ: twice the range of signal-to-noise ratios from 10⁻³ to 10⁴."""

TIME_WIDTH = 64


@storable
class RowNetwork(nn.Module):
    """ε̂(z, λ) for rows ``(n, dim)``, before it is trained that of N(0, I) or of uniform angles.

    Parameters
    ----------
    dim
        The number of columns.
    width, depth
        The size of the hidden layers, and how many there are beside the first.
    waves
        The number of waves that encode each angle; 0 for rows of ℝ^d, which are not encoded.

    Examples
    --------
    >>> z = torch.tensor([[1.0, 2.0]])
    >>> RowNetwork(2)(z, torch.tensor(0.0))  # σ = √½
    tensor([[0.7071, 1.4142]], grad_fn=...)
    """

    stores_state = True

    def __init__(self, dim: int, *, width: int = 128, depth: int = 3, waves: int = 0) -> None:
        super().__init__()
        self.dim = checks.integer(dim, "dim", minimum=1)
        self.width = checks.integer(width, "width", minimum=1)
        self.depth = checks.integer(depth, "depth", minimum=0)
        self.waves = checks.integer(waves, "waves", minimum=0)
        entries = 2 * waves * dim if waves else dim
        self.time = nn.Linear(2 * TIME_WAVES + 1, TIME_WIDTH)
        self.first = nn.Linear(entries, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.shifts = nn.ModuleList(nn.Linear(TIME_WIDTH, width) for _ in range(depth + 1))
        self.last = nn.Linear(width, dim)
        for part in (self.last.weight, self.last.bias):
            nn.init.zeros_(part)

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {name: getattr(self, name) for name in ("dim", "width", "depth", "waves")}

    def forward(self, z: Tensor, log_snr: Tensor) -> Tensor:
        """Return ε̂ at rows ``(n, dim)``; ``log_snr`` is one number or one per row."""
        z, signal, noise, shifts = self._prepared(z, log_snr)
        h = self.first(self._encoded(z)) + shifts[0]
        for layer, shift in zip(self.layers, shifts[1:], strict=True):
            h = h + layer(functional.silu(h)) + shift
        return self._result(z, self.last(functional.silu(h)), signal, noise)

    @torch.no_grad()
    def with_divergence(self, z: Tensor, log_snr: Tensor) -> tuple[Tensor, Tensor]:
        """Return ε̂, ``(n, dim)``, and its divergence in z, ``(n,)``."""
        z, signal, noise, shifts = self._prepared(z, log_snr)
        h = self.first(self._encoded(z)) + shifts[0]
        jacobian = self._first_jacobian(z)  # (n, dim, width)
        for layer, shift in zip(self.layers, shifts[1:], strict=True):
            value, slope = _silu_and_slope(h)
            weight = layer.get_parameter("weight")
            jacobian = jacobian + functional.linear(jacobian * slope[:, None], weight)
            h = h + layer(value) + shift
        value, slope = _silu_and_slope(h)
        trace = ((jacobian * self.last.weight).sum(dim=1) * slope).sum(dim=1)
        trace = signal[:, 0] * trace
        if not self.waves:
            trace = trace + self.dim * noise[:, 0]
        return self._result(z, self.last(value), signal, noise), trace

    def _prepared(self, z: Tensor, log_snr: Tensor) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
        """Return rows in the dtype of the weights, α and σ as columns, and the shifts."""
        if z.ndim != 2 or z.shape[1] != self.dim:
            raise ValueError(f"z must be rows (n, {self.dim}), got {tuple(z.shape)}")
        z = z.to(self.first.weight.dtype)
        level = log_snr.to(z).reshape(-1, 1)  # one row, or one for each of z
        multiples = torch.arange(1, TIME_WAVES + 1, dtype=z.dtype, device=z.device)
        phase = level * (2 * math.pi / TIME_PERIOD * multiples)
        entries = torch.cat((8 * level / TIME_PERIOD, phase.sin(), phase.cos()), dim=1)
        embedded = functional.silu(self.time(entries))
        shifts = [shift(embedded) for shift in self.shifts]
        return z, torch.sigmoid(level).sqrt(), torch.sigmoid(-level).sqrt(), shifts

    def _multiples(self, z: Tensor) -> Tensor:
        return torch.arange(1, self.waves + 1, dtype=z.dtype, device=z.device)

    def _encoded(self, z: Tensor) -> Tensor:
        """Return φ(z): the row, or cos kz and sin kz for k = 1, …, waves, column by column."""
        if not self.waves:
            return z
        phase = z[:, :, None] * self._multiples(z)
        return torch.cat((phase.cos(), phase.sin()), dim=2).flatten(1)

    def _first_jacobian(self, z: Tensor) -> Tensor:
        """Return the derivatives of h_0 along every column: ``(n, dim, width)``."""
        weight = self.first.weight.mT
        if not self.waves:
            return weight.expand(len(z), -1, -1)
        multiples = self._multiples(z)
        phase = z[:, :, None] * multiples
        slopes = torch.cat((-multiples * phase.sin(), multiples * phase.cos()), dim=2)
        parts = weight.reshape(self.dim, 2 * self.waves, self.width)
        return torch.einsum("nda,daw->ndw", slopes, parts)

    def _result(self, z: Tensor, found: Tensor, signal: Tensor, noise: Tensor) -> Tensor:
        return signal * found if self.waves else noise * z + signal * found


def _silu_and_slope(h: Tensor) -> tuple[Tensor, Tensor]:
    """Return h·s and its derivative s(1 + h(1 - s)), with s the logistic function of h."""
    gate = torch.sigmoid(h)
    value = h * gate
    return value, gate * (1 + h - value)
