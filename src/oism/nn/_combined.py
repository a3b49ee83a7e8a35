"""A network and a prior, fitted separately, and at every noise level their best combination.

A network that learns the whole noise is at first wrong everywhere, and at high noise for long; the
prior is right there from the start, and does not improve. Of all combinations

    ε̂ = ε̂_prior + c(τ)·(net - ε̂_prior),    0 ≤ c ≤ 1,

that with the smallest error at τ has

    c = E⟨ε - ε̂_prior, net - ε̂_prior⟩ / E‖net - ε̂_prior‖², clipped to [0, 1],

and its error is at most that of either. Both expectations are sample averages, so the share c of
the network has a closed form at any stage of training. It is the best constant in each of a number
of equal intervals of the log-SNR, and is interpolated between their midpoints. The loss by that is
of second order in the change of c from one interval to the next, where c is not clipped.

The training of the network does not change, and that is the purpose. A network that is trained on
the residual of a prior (`OperatorInformed`) has nothing to learn from at high noise, and is worse
at the levels in between.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from oism._core import checks
from oism._core.transforms import one_per_row, per_row
from oism.images import Prior
from oism.nn._contexts import eval_mode, full_precision
from oism.nn._informed import Draws, Informed
from oism.nn._labels import with_labels
from oism.process import first_time
from oism.storage import External, storable

INTERVALS = 48
"""The number of intervals of the log-SNR, each about half a unit wide for the default clock."""

LEAST_SHARE = 0.01
"""The smallest share for which the network counts as having a part in the prediction."""


@storable
class Combined(Informed):
    """A noise predictor: the combination of a network and a prior with the smallest error.

    The network is trained alone, ``loss(predictor.net, x)`` in a loop of one's own; then
    `calibrate` sets its share. `oism.training` does both.

    Parameters
    ----------
    net
        Any module ``net(x, tau)``.
    prior
        The prior, which is not trained.
    first
        The smallest clock time that the network is trained on.
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
    >>> torch.equal(predictor(x, tau), prior.noise(x, tau))  # the share is 0 before `calibrate`
    True
    """

    share: Tensor
    trains_net_alone: ClassVar[bool] = True

    def __init__(
        self, net: nn.Module, prior: Prior, *, first: float = 1e-5, intervals: int = INTERVALS
    ) -> None:
        super().__init__(net, prior)
        self.first = first_time(first, prior.clock)
        self._highest, self._lowest = prior.noising.log_snr_range(self.first)
        count = checks.integer(intervals, "intervals", minimum=1)
        self.register_buffer("share", torch.zeros(count, dtype=torch.float64))

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of `from_config`."""
        return {
            "net": External(self.net),
            "prior": None if _prior_of(self.net) is self.prior else self.prior,
            "first": self.first,
            "share": self.share,
        }

    @classmethod
    def from_config(
        cls, *, net: nn.Module, prior: Prior | None, first: float, share: Tensor
    ) -> Self:
        """Return the combination with a share of the network in each interval.

        Without a prior it is that of the network (`oism.nn.Parametrised`): stored once.
        """
        prior = _prior_of(net) if prior is None else prior
        assert prior is not None
        combined = cls(net, prior, first=first, intervals=len(share))
        combined.share.copy_(share)
        return combined

    def facts(self) -> dict[str, Any]:
        """Return the smallest clock time and the number of intervals."""
        return {"kind": "Combined", "first": self.first, "intervals": len(self.share)}

    def forward(self, x: Tensor, tau: Tensor | float, labels: Tensor | None = None) -> Tensor:
        """Return the predicted noise, in float32 or float64 as ``x`` is.

        ``tau`` is one per row or one number; the network gets one per row. ``labels`` ``(n,)`` are
        those of a network that takes them.
        """
        with full_precision(x.device):
            known, share = self._prior_noise(x, tau, labels), self._share_at(tau)
        found: Tensor = self.net(x, one_per_row(tau, x), *with_labels(labels))
        return torch.lerp(known, found.to(known.dtype), per_row(share, known))

    @torch.no_grad()
    def calibrate(self, draws: Draws) -> None:
        """Set the share of the network from noised tensors, their times, noise and any labels.

        Dropout is off. The share of an interval without draws does not change. Raises
        `FloatingPointError` where the network's predictions are not finite.
        """
        sums = torch.zeros(2, len(self.share), dtype=torch.float64, device=self.share.device)
        with eval_mode(self):
            for x, tau, noise, *labels in draws:
                times = one_per_row(tau, x)
                with full_precision(x.device):
                    known = self._prior_noise(x, times, *labels)
                step = self.net(x, times, *labels).to(known.dtype) - known
                products = torch.stack(((noise - known) * step, step.square())).double()
                place = self._place(times).clamp(0.0, len(self.share) - 1).long()
                sums.index_add_(1, place, products.flatten(2).sum(dim=2))
        if not bool(sums.isfinite().all()):
            raise FloatingPointError("net must predict finite noise to be combined with a prior")
        seen = sums[1] > 0  # elsewhere network and prior agree, or nothing was drawn
        share = torch.where(seen, sums[0] / sums[1].where(seen, 1.0), self.share)
        self.share.copy_(share.clamp(0.0, 1.0))

    @property
    def first_used(self) -> float:
        """The clock time at the upper end of the highest interval where the share exceeds 0.01."""
        used = (self.share > LEAST_SHARE).nonzero()
        # Shares are interpolated: that of an interval reaches the middle of the next.
        last = min(int(used[-1, 0]) + 1.5, len(self.share)) if len(used) else 0.5
        log_snr = self._highest + (self._lowest - self._highest) * last / len(self.share)
        return float(self.prior.noising.tau_of_log_snr(log_snr))

    def _share_at(self, tau: Tensor | float) -> Tensor:
        """Return c(τ), linear between the midpoints of intervals."""
        last = len(self.share) - 1
        place = (self._place(tau) - 0.5).clamp(0.0, last)
        low = place.long()
        high = (low + 1).clamp(max=last)
        return torch.lerp(self.share[low], self.share[high], place - low)

    def _place(self, tau: Tensor | float) -> Tensor:
        """Return the place of a checked τ in units of intervals, from the lowest noise."""
        time = torch.as_tensor(tau).to(self.share)
        process, t = self.prior.process, self.prior.clock._time(time)
        log_snr = 2 * process._alpha(t).log() - process._variance(t).log()
        part: Tensor = (self._highest - log_snr) / (self._highest - self._lowest)
        return part * len(self.share)


def _prior_of(net: nn.Module) -> Prior | None:
    """Return the prior by which a network is preconditioned, if there is one."""
    found: Prior | None = getattr(net, "prior", None)
    return found
