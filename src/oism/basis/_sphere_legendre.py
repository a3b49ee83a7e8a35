"""Tables of normalised Legendre functions, and sums over degrees: one matrix product per order.

With P̄_lm = √((2l+1)(l-m)!/(l+m)!) P_l^m, without the sign (-1)^m, the harmonics are

    Y_l0 = P̄_l0(cos θ),    (Y_lm, Y_l,-m) = √2 P̄_lm(cos θ) (cos mφ, sin mφ),    m = 1, …, l,

orthonormal under the uniform probability of the sphere. In l the recurrence

    P̄_lm = a_lm (z P̄_l-1,m - P̄_l-2,m / a_l-1,m),    a_lm = √((4l² - 1)/(l² - m²)),

is stable. Its start P̄_mm ∝ sin^m θ underflows near the poles. A start below 1e-200 is replaced by
0: up to degree 512, functions grow from there by less than 1e111 along the recurrence.

P̄_lm(-z) = (-1)^{l-m} P̄_lm(z): for nodes that are symmetric about the equator, tables hold the
northern half, and even and odd l - m are summed apart. A block of neighbouring orders is one
batched product, padded to the number of degrees of its lowest order.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

BLOCK = 16
"""The number of orders per block."""

LEAST = 1e-200
"""The smallest start of a recurrence that is not replaced by 0."""

MOST_DEGREE = 512
"""The largest degree for which the range of float64 suffices: see above."""


def index_of(degree: int, order: int) -> int:
    """Return the position of Y_lm among all harmonics without the constant one.

    >>> [index_of(1, m) for m in (-1, 0, 1)], index_of(2, -2)
    ([0, 1, 2], 3)
    """
    return degree * degree + degree + order - 1


def degrees_of(degree: int) -> tuple[Tensor, Tensor]:
    """Return degree l and order m of all harmonics up to a degree, without the constant one."""
    counts = 2 * torch.arange(1, degree + 1) + 1
    l = torch.repeat_interleave(torch.arange(1, degree + 1), counts)  # noqa: E741
    return l, torch.arange(1, len(l) + 1) - l * l - l


def _block(first: int, orders: int, degree: int, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return P̄_lm(z) for m = first, …, split by the parity of l - m: ``(orders, nodes, degrees)``.

    The last axis is (l - m) // 2, with zeros beyond the largest degree.
    """
    m = np.arange(first, first + orders)[:, None]
    s = np.sqrt((1 - z) * (1 + z))  # 1 - z is exact near the pole, 1 - z² is not
    ratios = 1 + 0.5 / np.arange(1, first + orders)  # P̄_mm² = sin^2m θ Π (2k + 1)/2k, k ≤ m
    scale = np.sqrt(np.concatenate(([1.0], np.cumprod(ratios))))[first:, None]
    with np.errstate(under="ignore"):
        current = scale * s**m
    current[current < LEAST] = 0.0
    before, inverse = np.zeros_like(current), np.zeros_like(m, dtype=float)
    most = degree - first
    tables = [np.zeros((orders, len(z), n)) for n in (most // 2 + 1, (most + 1) // 2)]
    for step in range(most + 1):  # l = m + step
        inside = (m + step <= degree)[:, 0]
        tables[step % 2][inside, :, step // 2] = current[inside]
        l = (m + step + 1).astype(float)  # noqa: E741
        a = np.sqrt((4 * l * l - 1) / (l * l - m * m))
        current, before = a * (z * current - inverse * before), current
        inverse = 1 / a
    return tables[0], tables[1]


class LegendreTable:
    """Sums over degrees at colatitudes that are symmetric about the equator.

    ``z`` ``(R,)`` are the cosines, decreasing, z_{R-1-j} = -z_j. Coefficients are those of the
    harmonics of degree 0 to ``degree`` (the constant one first): ``(..., (degree + 1)²)``. For each
    order m ≥ 0 the half spectrum is F_m(θ) with f = Σ_m Re[(2 - δ_m0) F_m e^{imφ}].
    """

    def __init__(self, degree: int, z: Tensor) -> None:
        self.degree, self.rings = degree, len(z)
        self.half = (len(z) + 1) // 2
        north = z[: self.half].double().numpy()
        self._blocks: list[tuple[int, int, list[tuple[Tensor, Tensor]]]] = []
        for first in range(0, degree + 1, BLOCK):
            orders = min(BLOCK, degree + 1 - first)
            tables = _block(first, orders, degree, north)
            m = torch.arange(first, first + orders)[:, None]
            parts = []
            for parity, table in enumerate(tables):
                table[0 if first else 1 :] /= math.sqrt(2)
                l = m + parity + 2 * torch.arange(table.shape[2])  # noqa: E741
                there = l <= degree
                cosine = torch.where(there, l * l + l + m, (degree + 1) ** 2)
                sine = torch.where(there & (m > 0), l * l + l - m, (degree + 1) ** 2)
                parts.append((torch.from_numpy(table), torch.stack((cosine, sine))))
            self._blocks.append((first, orders, parts))

    def synthesise(self, coefficients: Tensor) -> Tensor:
        """Return F_m(θ_j): ``(..., rings, degree + 1)``, complex."""
        batch = coefficients.shape[:-1]
        flat = coefficients.reshape(-1, coefficients.shape[-1])
        padded = torch.cat((flat, flat.new_zeros(len(flat), 1)), dim=1).mT.contiguous()
        out = flat.new_empty(2, self.rings, self.degree + 1, len(flat))
        south = self.rings - self.half
        for first, orders, parts in self._blocks:
            both = []
            for table, index in parts:
                if not table.shape[2]:
                    continue
                right = padded[index]  # (2, orders, degrees, batch)
                right = right.permute(1, 2, 0, 3).reshape(orders, table.shape[2], -1)
                both.append((table @ right).reshape(orders, self.half, 2, -1))
            even = both[0]
            odd = both[1] if len(both) > 1 else torch.zeros_like(even)
            where = slice(first, first + orders)
            out[:, : self.half, where] = (even + odd).permute(2, 1, 0, 3)
            out[:, self.half :, where] = (even - odd)[:, :south].flip(1).permute(2, 1, 0, 3)
        # f = Σ Re[(a - ib) …]: the sine has the negative sign
        spectrum = torch.complex(out[0], -out[1]).movedim(-1, 0)
        return spectrum.reshape(*batch, self.rings, self.degree + 1)

    def analyse(self, spectrum: Tensor) -> Tensor:
        """Return the adjoint: Σ_j Re[conj(F_m(θ_j)) Y_lm/e^{imφ}], ``(..., (degree + 1)²)``.

        For F_m = w_j · mean of f e^{-imφ} over a ring these are the coefficients of f.
        """
        batch = spectrum.shape[:-2]
        flat = spectrum.reshape(-1, self.rings, self.degree + 1).permute(2, 1, 0)
        parts_of = torch.stack((flat.real, -flat.imag), dim=2)  # (orders, rings, 2, batch)
        north = parts_of[:, : self.half].clone()
        mirrored = torch.zeros_like(north)
        south = self.rings - self.half
        mirrored[:, :south] = parts_of[:, self.half :].flip(1)
        out = flat.real.new_zeros((self.degree + 1) ** 2 + 1, flat.shape[-1])
        for first, orders, parts in self._blocks:
            where = slice(first, first + orders)
            for parity, (table, index) in enumerate(parts):
                if not table.shape[2]:
                    continue
                side = north[where] + (1 - 2 * parity) * mirrored[where]
                found = table.mT @ side.reshape(orders, self.half, -1)
                found = found.reshape(orders, table.shape[2], 2, -1)
                found *= 2.0
                if first == 0:
                    found[0] *= 0.5
                out[index] = found.permute(2, 0, 1, 3)
        return out[:-1].mT.reshape(*batch, -1)
