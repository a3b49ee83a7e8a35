"""A network and a prior, each by itself, and of both what is best at every noise level.

A network that learns the whole of the noise is at first wrong everywhere, and at high noise for
long; the prior is right there from the start, and never learns. Of all mixtures

    ε̂ = ε̂_prior + c(τ)·(net - ε̂_prior),    0 ≤ c ≤ 1,

that with the least error at τ has

    c = E⟨ε - ε̂_prior, net - ε̂_prior⟩ / E‖net - ε̂_prior‖², or the nearest of 0 and 1 beyond,

and its error is at most that of either. Both expectations are sample averages, so the share c of
the network is known in closed form whenever it is wanted. It is told in equal intervals of the
log-SNR, where it is the best constant, and interpolated between their midpoints. What is lost by
that is of second order in how much c changes from one interval to the next, where it is not cut.

Nothing changes for the network in training, and that is the reason for it. A network that is
trained on what a prior leaves (`OperatorInformed`) no longer sees at high noise what it would have
learned from there, and falls behind at the levels in between.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from oism._core import checks
from oism._core.transforms import per_row
from oism.images import Prior
from oism.nn._contexts import at_rest, full_precision
from oism.nn._embedding import one_per_row
from oism.nn._informed import Informed
from oism.process import first_time

INTERVALS = 48
"""The number of intervals of the log-SNR, each half of its unit wide for the default clock."""


class Combined(Informed):
    """A noise predictor: the mixture of a network and a prior with the least error.

    The network is trained by itself, ``loss(predictor.net, x)`` in a loop of one's own; then
    `weigh` settles what it counts. `oism.training` does both.

    Parameters
    ----------
    net
        Any module ``net(x, tau)``.
    prior
        The prior, which is not trained.
    first
        The least clock time that the network is trained on.
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

    def __init__(
        self, net: nn.Module, prior: Prior, *, first: float = 1e-5, intervals: int = INTERVALS
    ) -> None:
        super().__init__(net, prior)
        self.first = first_time(first, prior.clock)
        ends = torch.tensor([self.first, prior.clock.horizon], dtype=torch.float64)
        self._highest, self._lowest = prior.noising.log_snr(ends).tolist()
        count = checks.integer(intervals, "intervals", minimum=1)
        self.register_buffer("share", torch.zeros(count, dtype=torch.float64))

    def forward(self, x: Tensor, tau: Tensor) -> Tensor:
        """Return the predicted noise, in float32 or float64 as ``x`` is.

        ``tau`` is one per row or one number; the network is given one per row.
        """
        with full_precision(x.device):
            known, share = self._known(x, tau), self._share_at(tau)
        found: Tensor = self.net(x, one_per_row(tau, x))
        return torch.lerp(known, found.to(known.dtype), per_row(share, known))

    @torch.no_grad()
    def weigh(self, draws: Iterable[tuple[Tensor, Tensor, Tensor]]) -> None:
        """Settle the share of the network, from noised tensors, their times and their noise.

        Dropout is off. Where nothing was drawn the share stays what it was. Raises
        `FloatingPointError` where the network predicts what is no number.
        """
        sums = torch.zeros(2, len(self.share), dtype=torch.float64, device=self.share.device)
        with at_rest(self):
            for x, tau, noise in draws:
                times = one_per_row(tau, x)
                with full_precision(x.device):
                    known = self._known(x, times)
                step = self.net(x, times).to(known.dtype) - known
                products = torch.stack(((noise - known) * step, step.square())).double()
                place = self._place(times).clamp(0.0, len(self.share) - 1).long()
                sums.index_add_(1, place, products.flatten(2).sum(dim=2))
        if not bool(sums.isfinite().all()):
            raise FloatingPointError("net must predict finite noise to be combined with a prior")
        seen = sums[1] > 0  # elsewhere both say the same, or nothing was drawn
        share = torch.where(seen, sums[0] / sums[1].where(seen, 1.0), self.share)
        self.share.copy_(share.clamp(0.0, 1.0))

    def _share_at(self, tau: Tensor) -> Tensor:
        """Return c(τ), linear between the midpoints of intervals."""
        last = len(self.share) - 1
        place = (self._place(tau) - 0.5).clamp(0.0, last)
        low = place.long()
        high = (low + 1).clamp(max=last)
        return torch.lerp(self.share[low], self.share[high], place - low)

    def _place(self, tau: Tensor) -> Tensor:
        """Return where τ lies, in intervals from the least noise; the prior has checked it."""
        process, t = self.prior.process, self.prior.clock._time(tau.to(self.share))
        log_snr = 2 * process._alpha(t).log() - process._variance(t).log()
        part: Tensor = (self._highest - log_snr) / (self._highest - self._lowest)
        return part * len(self.share)
