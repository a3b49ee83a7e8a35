"""A network that starts from what is already known.

A noise predictor is a function ε̂(x, τ) of noised tensors ``(n, *shape)`` and clock times ``(n,)``.
A network alone is one. Around it, with a prior whose scores are known in closed form,

    ε̂(x, τ) = g(τ)·ε̂_prior(x, τ) + c(τ)·net(x, τ),    ε̂_prior = σ(x - s̃),

so that the network learns the residual only. The paper has g = c = 1. By default the gate g follows
the prior's own expected error, and c is the deviation of what is then left. With ``condition`` the
network is also shown g·ε̂_prior, as further channels: it knows what it adds to, and where the gate
is closed it sees nothing of the prior, whose predictions are large just where they are wrong.

A network that learns the residual has less to learn at high noise, and learns less there that it
needs at the levels in between: `oism.nn._combined` leaves it everything.
"""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn

from oism._core import checks
from oism._core.transforms import per_row
from oism.images import Gate, Open, Prior
from oism.images._gate import GATE
from oism.nn._contexts import full_precision
from oism.nn._embedding import one_per_row


class Informed(nn.Module):
    """A network, which is trained, with a prior beside it, which is not: buffers, no parameters."""

    def __init__(self, net: nn.Module, prior: Prior, *, shown: int = 0) -> None:
        super().__init__()
        checks.instance(net, nn.Module, "net")
        checks.instance(prior, Prior, "prior")
        _demand_fit(net, prior, shown)
        self.net, self.prior = net, prior

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a tensor."""
        return self.prior.shape

    def _known(self, x: Tensor, tau: Tensor) -> Tensor:
        """Return what the prior predicts, in float32 or float64."""
        return self.prior.noise(x if x.dtype == torch.float64 else x.float(), tau)


class OperatorInformed(Informed):
    """A noise predictor around a network ``net(x, tau)``, with a prior beside it.

    Parameters
    ----------
    net
        Any module of noised tensors and clock times. With ``condition`` it is given twice the
        channels: those of the tensor, then the gated prediction of the prior.
    prior
        The prior, which is not trained: it has buffers and no parameters.
    gate
        How far the prior is trusted: by its expected error, or `Open()` for the paper's form.
    condition
        Whether the network is shown what the prior contributes, as ``extra`` channels.

    Examples
    --------
    >>> from oism import fit_prior
    >>> from oism.nn import DDPMpp, OperatorInformed
    >>> images = torch.randint(0, 256, (200, 1, 8, 8), generator=torch.Generator().manual_seed(0))
    >>> prior = fit_prior(images.byte(), order=2)
    >>> net = DDPMpp(prior.shape, width=16, multipliers=(1, 2), blocks=1)
    >>> predictor = OperatorInformed(net, prior)
    >>> x, tau = torch.randn(3, 1, 8, 8), torch.full((3,), 0.9)
    >>> known = prior.gate(tau).reshape(-1, 1, 1, 1) * prior.noise(x, tau)
    >>> torch.allclose(predictor(x, tau), known)  # a network starts by adding nothing
    True
    """

    def __init__(
        self, net: nn.Module, prior: Prior, *, gate: Gate = GATE, condition: bool = False
    ) -> None:
        checks.instance(gate, Gate, "gate")
        super().__init__(net, prior, shown=_channels(prior) if condition else 0)
        self.gate, self.condition = gate, bool(condition)

    @classmethod
    def paper(cls, net: nn.Module, prior: Prior) -> Self:
        """Return the paper's form: ε̂ = σ(x - s̃) + net(x, τ)."""
        return cls(net, prior, gate=Open(), condition=False)

    def forward(self, x: Tensor, tau: Tensor) -> Tensor:
        """Return the predicted noise, in float32 or float64 as ``x`` is.

        ``tau`` is one per row or one number; the network is given one per row.
        """
        with full_precision(x.device):
            error, known = self.prior.skill(tau), self._known(x, tau)
            opening, scale = (
                per_row(f(error), known) for f in (self.gate.opening, self.gate.scale)
            )
            known = opening * known
        shown = torch.cat((x, known), dim=1) if self.condition else x
        left: Tensor = self.net(shown, one_per_row(tau, x))
        return torch.addcmul(known, scale, left.to(known.dtype))


def _channels(prior: object) -> int:
    return prior.shape[0] if isinstance(prior, Prior) else 0  # who checks it comes later


def _demand_fit(net: nn.Module, prior: Prior, shown: int) -> None:
    """Raise where a network says which tensors it takes, and they are not the prior's."""
    shape, extra = getattr(net, "shape", None), getattr(net, "extra", None)
    if shape is not None and tuple(shape) != prior.shape:
        raise ValueError(f"net must take tensors of the prior's shape {prior.shape}, got {shape}")
    if extra is not None and extra != shown:
        raise ValueError(
            f"net must have extra = {shown} channels {'to be' if shown else 'unless it is'} shown "
            f"the prior, got {extra}"
        )
