"""Networks and their share at every noise level, beside a reference.

Of all combinations of the noise ε̂_ref that a reference predicts and the mean ε̂_net of what some
networks predict,

    ε̂ = ε̂_ref + c(λ) (ε̂_net - ε̂_ref),    0 ≤ c ≤ 1,

that with the smallest error at the log signal-to-noise ratio λ has

    c = E⟨ε - ε̂_ref, ε̂_net - ε̂_ref⟩ / E‖ε̂_net - ε̂_ref‖², clipped to [0, 1].

Both expectations are averages over rows that neither has seen. They are computed on a grid of λ,
smoothed by (¼, ½, ¼), and c is interpolated linearly. Outside of the grid c = 0. The log-likelihood
of a model is an integral over λ of its error (Kingma and others, 2021), so that the blend gains

    ½ ∫ (2c E⟨…⟩ - c² E‖…‖²) dλ

nats, as far as its errors are those of a score.

For columns that are reflected at 0 and π, the distribution on the torus is even: ε̂_j changes its
sign with z_j, and the other entries do not. A network gets this symmetry by averaging over signs.
"""

from __future__ import annotations

import itertools
from typing import Any, cast

import torch
from torch import Tensor, nn

from oism.nn import RowNetwork
from oism.storage import storable
from oism.tables._tensors import check_tensor

LEVELS = 25
"""The number of noise levels at which the share is computed: the flow's steps end at them."""


@storable
class Blend(nn.Module):
    """The mean of networks, and their share over noise levels.

    The networks are not trained any more: none of their parameters requires gradients.

    Parameters
    ----------
    networks
        At least one, all of the same number of columns.
    share
        c at the levels of a grid from the first, of least noise, to the last: ``(levels,)``.
    ends
        The log signal-to-noise ratios at the first and at the last level, decreasing.
    reflections
        Which columns are reflected: ``(d,)``, boolean.
    """

    share: Tensor

    def __init__(
        self,
        networks: tuple[RowNetwork, ...],
        share: Tensor,
        ends: tuple[float, float],
        reflections: Tensor,
    ) -> None:
        super().__init__()
        if not networks:
            raise ValueError("networks must hold at least one network")
        check_tensor(share, "share", (len(share),))
        check_tensor(reflections, "reflections", (networks[0].dim,), torch.bool)
        if len(share) < 2 or not bool(((share >= 0) & (share <= 1)).all()):
            raise ValueError("share must hold at least two numbers from 0 to 1")
        if not ends[0] > ends[1]:
            raise ValueError(f"ends must decrease, got {ends!r}")
        # Parameters of networks from a file are new, and new parameters require gradients.
        self.networks = nn.ModuleList(networks).requires_grad_(False)
        self.ends, self.reflections = ends, reflections
        self.register_buffer("share", share)
        signs = [(1.0, -1.0) if mirrored else (1.0,) for mirrored in reflections.tolist()]
        self._signs = [torch.tensor(one) for one in itertools.product(*signs)]

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            "networks": tuple(self.networks),
            "share": self.share,
            "ends": self.ends,
            "reflections": self.reflections,
        }

    @property
    def levels(self) -> Tensor:
        """The log signal-to-noise ratios of the grid."""
        return level_grid(self.ends, len(self.share))

    def share_at(self, level: Tensor) -> Tensor:
        """Return c at log signal-to-noise ratios, 0 outside of the grid."""
        first, last = self.ends
        place = (first - level) / (first - last) * (len(self.share) - 1)
        low = place.clamp(0, len(self.share) - 2).long()
        share = torch.lerp(self.share[low], self.share[low + 1], (place - low).to(self.share))
        return torch.where((level <= first) & (level >= last), share, 0.0)

    def network_noise(self, z: Tensor, level: Tensor) -> Tensor:
        """Return the mean of what the networks predict: ``(n, d)``, in the dtype of z."""
        parts = [
            sign.to(z) * network(sign.to(z) * z, level).to(z)
            for network in self.networks
            for sign in self._signs
        ]
        return torch.stack(parts).mean(dim=0)

    def network_noise_and_divergence(self, z: Tensor, level: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean of what the networks predict, and its divergence ``(n,)``."""
        noise, divergence = torch.zeros_like(z), torch.zeros_like(z[:, 0])
        for network, sign in itertools.product(self.networks, self._signs):
            one = cast("RowNetwork", network)
            found, trace = one.with_divergence(sign.to(z) * z, level)
            noise += sign.to(z) * found.to(z)
            divergence += trace.to(z)
        count = len(self.networks) * len(self._signs)
        return noise / count, divergence / count


def level_grid(ends: tuple[float, float], count: int = LEVELS) -> Tensor:
    """Return log signal-to-noise ratios from the first end to the second, equally spaced."""
    return torch.linspace(*ends, count, dtype=torch.float64)


def best_share(products: Tensor) -> Tensor:
    """Return c from averages of ⟨ε - ε̂_ref, ε̂_net - ε̂_ref⟩ and ‖ε̂_net - ε̂_ref‖²: ``(levels,)``.

    >>> best_share(torch.tensor([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]]))
    tensor([0.5000, 0.5000, 0.5000])
    """
    ends = torch.cat((products[:, :1], products, products[:, -1:]), dim=1)
    smooth = 0.25 * ends[:, :-2] + 0.5 * ends[:, 1:-1] + 0.25 * ends[:, 2:]
    tiny = torch.finfo(products.dtype).tiny
    return (smooth[0] / smooth[1].clamp(min=tiny)).clamp(0.0, 1.0)


def expected_gain(products: Tensor, ends: tuple[float, float]) -> float:
    """Return the gain in mean log-likelihood that the best share promises, in nats."""
    share = best_share(products)
    gain = 2 * share * products[0] - share.square() * products[1]
    return 0.5 * (ends[0] - ends[1]) * float(gain.mean())
