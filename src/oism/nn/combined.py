"""A network and a prior, each by itself, and of both what is best at every noise level.

A network that learns the whole of the noise is at first wrong everywhere, and at high noise for
long; the prior is right there from the start, and never learns. Of all affine combinations

    ε̂ = ε̂_prior + c(τ)·(net - ε̂_prior),    c = E⟨ε - ε̂_prior, net - ε̂_prior⟩ / E‖net - ε̂_prior‖²

has the least error at τ: at most that of either, whatever the network. Both expectations are sample
averages, so the share c of the network is known in closed form whenever it is wanted; it is told in
equal intervals of the log-SNR and interpolated. Nothing changes for the network in training.

That is also the reason for it. Trained on the rest that a prior leaves, a network no longer sees
the noise it would have learned from at high levels, and falls behind at those in between.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from oism import checks
from oism.nn.embedding import one_per_row
from oism.nn.informed import Informed, full_precision
from oism.prior.base import Prior
from oism.transforms import per_row

INTERVALS = 48
"""The number of intervals of the log-SNR, each half of its unit wide for the default clock."""


class Combined(Informed):
    """A noise predictor: the affine combination of a network and a prior with the least error.

    Parameters
    ----------
    net
        Any module ``net(x, tau)``; it is trained by itself.
    prior
        The prior, which is not trained.
    first
        The least clock time of the network.
    intervals
        The number of intervals of the log-SNR, from ``first`` to the horizon of the clock.

    Examples
    --------
    >>> from oism import fit_prior
    >>> from oism.nn import Combined, DDPMpp
    >>> images = torch.randint(0, 256, (200, 1, 8, 8), generator=torch.Generator().manual_seed(0))
    >>> prior = fit_prior(images.byte(), order=2)
    >>> predictor = Combined(DDPMpp(prior.shape, width=16, multipliers=(1, 2), blocks=1), prior)
    >>> x, tau = torch.randn(3, 1, 8, 8), torch.full((3,), 0.9)
    >>> torch.equal(predictor(x, tau), prior.noise(x, tau))  # until it is told what the network can
    True
    """

    share: Tensor
    ends: Tensor

    def __init__(
        self, net: nn.Module, prior: Prior, *, first: float = 1e-5, intervals: int = INTERVALS
    ) -> None:
        super().__init__(net, prior)
        self.first = checks.positive(first, "first")
        times = torch.tensor([self.first, prior.clock.horizon], dtype=torch.float64)
        if self.first >= prior.clock.horizon:
            raise ValueError(
                f"first must be less than the clock's horizon {prior.clock.horizon:g}, got "
                f"{first!r}"
            )
        count = checks.integer(intervals, "intervals", minimum=1)
        self.register_buffer("share", torch.zeros(count, dtype=torch.float64))
        self.register_buffer("ends", prior.noising.log_snr(times))

    def forward(self, x: Tensor, tau: Tensor) -> Tensor:
        """Return the predicted noise, in float32 or float64 as ``x`` is."""
        with full_precision(x.device):
            known, share = self._known(x, tau), self._share_at(tau)
        found: Tensor = self.net(x, one_per_row(tau, x))
        return torch.lerp(known, found.to(known.dtype), per_row(share, known))

    @torch.no_grad()
    def weigh(self, draws: Iterable[tuple[Tensor, Tensor, Tensor]]) -> None:
        """Settle the share of the network, from noised tensors, their times and their noise."""
        sums = torch.zeros(2, len(self.share), dtype=torch.float64, device=self.share.device)
        for x, tau, noise in draws:
            with full_precision(x.device):
                known = self._known(x, tau)
            step = self.net(x, one_per_row(tau, x)).to(known.dtype) - known
            products = torch.stack(((noise - known) * step, step.square())).flatten(2).sum(dim=2)
            place = self._place(tau).floor().long().clamp(0, len(self.share) - 1)
            sums.index_add_(1, place, products.double())
        if not bool(sums[1].isfinite().all()):
            raise ValueError("net must predict finite noise to be combined with a prior")
        seen = sums[1] > 0  # elsewhere both say the same, or nothing was drawn
        share = torch.where(seen, sums[0] / sums[1].where(seen, 1.0), self.share)
        self.share.copy_(share.clamp(0.0, 1.0))

    def _share_at(self, tau: Tensor) -> Tensor:
        """Return c(τ), linear between the midpoints of intervals."""
        place = (self._place(tau) - 0.5).clamp(0.0, len(self.share) - 1)
        low = place.floor().long()
        high = (low + 1).clamp(max=len(self.share) - 1)
        return torch.lerp(self.share[low], self.share[high], place - low)

    def _place(self, tau: Tensor) -> Tensor:
        """Return where τ lies, in intervals of the log-SNR from the least noise."""
        tau = torch.as_tensor(tau, dtype=torch.float64, device=self.share.device)
        noising = self.prior.noising
        t = noising.clock._time(tau)
        log_snr = 2 * noising.process._alpha(t).log() - noising.process._variance(t).log()
        return (self.ends[0] - log_snr) / (self.ends[0] - self.ends[1]) * len(self.share)
