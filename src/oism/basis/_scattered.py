"""Fourier series at scattered points, by FINUFFT or by products of waves of single coordinates.

Fields are real, f(x) = Σ_ξ (F(ξ) e^{iξ·x} + its conjugate) over a half lattice.

A non-uniform fast Fourier transform of type 2, by FINUFFT, runs on the CPU in float64. Two fields
share one complex transform, as f + ig: in d dimensions a gradient with its divergence needs
(d + 1)/2 transforms, rounded up.

Products serve few points, and other devices: e^{iξ·x} = Π_j e^{iξ_j x_j}, so f is the contraction
of F, in a box of frequencies, with one table per coordinate. The first is a matrix product, and no
more sines are needed than for the sides of the box. Neither is differentiable.
"""

from __future__ import annotations

import itertools
import math
from functools import cached_property

import torch
from torch import Tensor

from oism._core.transforms import on_host

NUFFT_DIM = 3
"""The largest dimension that FINUFFT supports."""

TOLERANCE = 1e-10
"""Relative to the coefficients: log-densities must agree with direct sums to 1e-7."""

SINGLE_THREAD = 2**15
"""The number of points up to which one thread is fastest."""

ENTRIES, DEVICE_ENTRIES = 2**16, 2**26
"""The number of complex entries of a block of products, on the CPU and on other devices."""


class ScatteredSeries:
    """Values of real Fourier series at points, for integer frequencies ``(m, dim)``.

    Spectra and points are on a ``device``, by default that of the frequencies.
    """

    def __init__(self, frequencies: Tensor, device: torch.device | None = None) -> None:
        xi = frequencies.long()
        reach = xi.abs().amax(dim=0)
        self.modes = tuple((2 * reach + 1).tolist())
        self._reach = reach.tolist()
        sides = torch.tensor([*self.modes[1:], 1]).flip(0).cumprod(dim=0).flip(0).to(xi)
        slots, images = ((side * sides).sum(dim=1) for side in (xi + reach, reach - xi))
        self._slots, self._images = slots.to(device), images.to(device)
        # For the half box of ξ₁ ≥ 0: the frequencies of ξ₁ ≥ 0 and their slots, those of ξ₁ ≤ 0 and
        # the slots of -ξ, and a factor: 1 for ξ₁ = 0, otherwise 2.
        self._offset = self._reach[0] * math.prod(self.modes[1:])
        own, other = ((sign * xi[:, 0] >= 0).nonzero()[:, 0] for sign in (1, -1))
        twice = 1.0 + (xi[:, :1] != 0)
        parts = own, slots[own] - self._offset, other, images[other] - self._offset, twice
        self._half = tuple(part.to(device) for part in parts)

    def _boxes(self, spectra: Tensor) -> Tensor:
        """Return F(ξ), and its conjugate at -ξ, on the box of all frequencies: ``(k, *modes)``."""
        boxes = spectra.new_zeros(len(spectra), self._size)
        boxes[:, self._slots] += spectra
        boxes[:, self._images] += spectra.conj()
        return boxes.reshape(-1, *self.modes)

    def __call__(self, x: Tensor, spectra: Tensor) -> Tensor:
        """Return the fields of spectra ``(k, m)``, complex, at points ``(n, dim)``: ``(k, n)``."""
        import finufft  # noqa: PLC0415 (fitted scores can be used without it)

        transform = getattr(finufft, f"nufft{x.shape[1]}d2")
        columns = [column.contiguous().numpy() for column in x.detach().double().mT]
        boxes = self._boxes(spectra)
        pairs = boxes[::2].clone()
        pairs[: len(spectra) // 2] += 1j * boxes[1::2]
        threads = 1 if len(x) <= SINGLE_THREAD else torch.get_num_threads()
        eps = TOLERANCE
        found = torch.from_numpy(
            transform(*columns, pairs.numpy(), eps=eps, isign=1, nthreads=threads)
        ).reshape(len(pairs), len(x))
        fields = itertools.chain.from_iterable(zip(found.real, found.imag, strict=True))
        return torch.stack(list(fields)[: len(spectra)])

    def products(self, x: Tensor, spectra: Tensor) -> Tensor:
        """Return the same by products, on the device of the points and in their precision."""
        half = self._half_box(spectra.to(_complex_like(x)))
        block = ENTRIES if on_host(x) else DEVICE_ENTRIES
        step = max(1, block // max(1, half[0].numel()))
        parts = [self._block(part, half) for part in torch.split(x, step)]
        return (parts[0] if len(parts) == 1 else torch.cat(parts)).mT

    def _half_box(self, spectra: Tensor) -> Tensor:
        """Return G with f = Re Σ G(ξ) e^{iξ·x} over ξ₁ ≥ 0: ``(1 + r₁, *other modes, k)``.

        F and its conjugate at -ξ are both taken to ξ₁ ≥ 0: G(ξ) is 2F(ξ), or twice the conjugate of
        F(-ξ), for ξ₁ > 0, and the sum of F(ξ) and the conjugate of F(-ξ) for ξ₁ = 0.
        """
        own, slots, other, images, twice = self._half
        sides = (self._reach[0] + 1, *self.modes[1:])
        weighted = twice.to(spectra) * spectra.mT
        half = spectra.new_zeros(math.prod(sides), len(spectra))
        half[slots] = weighted if len(own) == len(weighted) else weighted[own]
        half[images] += weighted[other].conj()
        return half.reshape(*sides, -1)

    def sums(self, x: Tensor, weights: Tensor) -> Tensor:
        """Return Σ_i w_i e^{-iξ·x_i} by products, for weights ``(f, n)``: ``(f, m)``, complex.

        The frequencies must have ξ₁ ≥ 0.
        """
        half = (self._reach[0] + 1, *self.modes[1:])
        total = torch.zeros(len(weights), math.prod(half), dtype=torch.complex128, device=x.device)
        block = ENTRIES if on_host(x) else DEVICE_ENTRIES
        step = max(1, block // max(math.prod(half[1:]), len(weights) * half[0]))
        blocks = torch.split(x, step), torch.split(weights, step, dim=1)
        for part, own in zip(*blocks, strict=True):
            first = self._waves(-part[:, 0], 0)
            rest = torch.ones_like(first[:, :1])
            for j in range(1, len(half)):
                rest = (rest[..., None] * self._waves(-part[:, j], j)[:, None]).flatten(1)
            weighted = (own[..., None] * first).mT.flatten(0, 1)  # (f (1 + r₁), n)
            total += (weighted @ rest).reshape(len(weights), -1)
        return total[:, self._slots - self._offset]

    def _block(self, x: Tensor, half: Tensor) -> Tensor:
        rest = half.shape[1:]
        field = self._waves(x[:, 0], 0) @ half.flatten(1)
        for j, side in enumerate(rest[:-1], start=1):
            field = field.reshape(len(x), side, math.prod(rest[j:]))
            waves = self._waves(x[:, j], j)
            if on_host(x):
                field = (waves[:, None] @ field)[:, 0]
            else:  # a million products of small matrices are slow on a GPU
                field = (waves[..., None] * field).sum(dim=1)
        return field.real

    @cached_property
    def _orders(self) -> list[Tensor]:
        """The sides of the half box: 0, …, r₁ and -r_j, …, r_j."""
        ends = [(0, self._reach[0]), *((-reach, reach) for reach in self._reach[1:])]
        return [torch.arange(low, high + 1, device=self._slots.device) for low, high in ends]

    def _waves(self, x: Tensor, axis: int) -> Tensor:
        """Return e^{ikx} for all k of a side of the half box: ``(n, count)``."""
        phase = x[:, None] * self._orders[axis]
        return torch.complex(phase.cos(), phase.sin())

    @property
    def _size(self) -> int:
        return math.prod(self.modes)


def _complex_like(x: Tensor) -> torch.dtype:
    return torch.complex128 if x.dtype == torch.float64 else torch.complex64
