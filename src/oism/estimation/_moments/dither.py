"""Averages of data with added uniform noise, exactly.

Dequantisation adds to each of d coordinates an independent variable U, uniform on an interval of
width h around 0. Along a unit direction v this adds W = Σ_j v_j U_j, independent of the data, with
variance h²/12 and cumulants Σ_j v_jᵏ κ_k(U), κ_k(U) = hᵏ B_k/k with Bernoulli numbers B_k. For
V = W/√Var W, and u the standardised data, the standardised sum is u' = γu + √(1 - γ²) V, and
because E[exp(xu' - x²/2)] factorises,

    E[φ_n(u')] = Σ_j √C(n, j) γʲ (1 - γ²)^{(n-j)/2} E[φ_j(u)] E[φ_{n-j}(V)],
    E[He_n(V)] = Σ_{k≥3} C(n-1, k-1) κ_k(V) E[He_{n-k}(V)].

Nothing is sampled, and nothing cancels. For a Gaussian W only the term j = n remains: the decay of
the eigenfunctions.
"""

from __future__ import annotations

import math
from dataclasses import replace

import scipy.special
import torch
from torch import Tensor

from oism.basis import Standardised

REACH = 3.0
"""The largest widening of the range of the data, in standard deviations of the noise."""


def uniform_averages(powers: Tensor) -> Tensor:
    """Return E[φ_n(V)], n ≤ degree, from the sums Σ_j|v_j|ⁿ of unit directions: float64.

    Both are ``(degree + 1, k)``; `oism.basis._frame.power_sums` and `Frame.power_sums` return the
    sums.

    >>> axis = torch.ones(5, 1, dtype=torch.float64)
    >>> uniform_averages(axis)[4] * math.sqrt(24)  # the excess kurtosis of U
    tensor([-1.2000], dtype=torch.float64)
    """
    degree = len(powers) - 1
    bernoulli = scipy.special.bernoulli(max(2, degree))
    averages, nothing = [torch.ones_like(powers[0])], torch.zeros_like(powers[0])
    cumulants = [  # odd ones vanish
        bernoulli[k] / k * 12 ** (k / 2) * powers[k] if k and k % 2 == 0 else nothing
        for k in range(degree + 1)
    ]
    for n in range(1, degree + 1):
        terms = [math.comb(n - 1, k - 1) * cumulants[k] * averages[n - k] for k in range(3, n + 1)]
        averages.append(torch.stack(terms).sum(dim=0) if terms else nothing)
    roots = [math.sqrt(math.factorial(n)) for n in range(degree + 1)]
    return torch.stack([mean / root for mean, root in zip(averages, roots, strict=True)])


def uniform_reach(powers: Tensor) -> Tensor:
    """Return the bound on |W| along directions, in standard deviations of W: ``(k,)``, at most 3.

    |W| ≤ ½h Σ|v_j|, which is √3 Σ|v_j| deviations: 1.7 along an axis.
    """
    return (math.sqrt(3) * powers[1]).clamp(max=REACH)


def dithered(
    standard: Standardised, noise: Tensor, variance: float, reach: Tensor | float = REACH
) -> Standardised:
    """Return the averages of the data plus noise, from `uniform_averages` and its variance.

    ``reach`` is the widening of the range of the data, in standard deviations of the noise.
    """
    scale = (standard.scale.square() + variance).sqrt()
    keep, rest = standard.scale / scale, math.sqrt(variance) / scale
    noise = noise.to(scale)

    def mixed(means: Tensor) -> Tensor:
        result = []
        for n in range(means.shape[-2]):
            terms = [
                math.sqrt(math.comb(n, j)) * keep**j * rest ** (n - j)
                * means[..., j, :] * noise[n - j]
                for j in range(n + 1)
            ]  # fmt: skip
            result.append(torch.stack(terms).sum(dim=0))
        return torch.stack(result, dim=-2)

    parts = {
        name: mixed(getattr(standard.averages, name)) for name in ("total", "training", "heldout")
    }
    wider = torch.as_tensor(reach).to(scale) * math.sqrt(variance)
    return replace(
        standard,
        scale=scale,
        low=standard.low - wider,
        high=standard.high + wider,
        averages=replace(standard.averages, **parts),
    )
