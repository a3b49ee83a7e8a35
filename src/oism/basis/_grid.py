"""Fourier transforms between values on a grid of the torus and coefficients."""

from __future__ import annotations

import scipy.fft
import torch
from torch import Tensor


class TorusGrid:
    """Real fields on a grid of the torus and their half spectra.

    ``points`` is the number of points per axis, rounded up to one with small prime factors. Fields
    are real, so half of a spectrum is sufficient: ξ₁ ≥ 0. Only ξ₁ ≤ ``reach`` is stored, so that
    transforms along the other axes skip columns of zeros. The axes are in the reverse order of the
    coordinates, so that the halved axis is the last.
    """

    def __init__(self, dim: int, points: int, reach: int) -> None:
        self.dim = dim
        self.points = scipy.fft.next_fast_len(points, real=True)
        self.half = reach + 1
        self.shape = (self.points,) * dim
        self.slots = self.points ** (dim - 1) * self.half
        self._rest = tuple(range(-dim, -1))

    def place(self, frequencies: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the slots of frequencies, the indices of those with an image, and its slots.

        On the plane ξ₁ = 0 both ξ and its image -ξ are stored; its coefficient is the conjugate.
        """
        xi = frequencies.long()
        mirrored = (xi[:, 0] == 0).nonzero()[:, 0]
        return self._slot(xi), mirrored, self._slot(-xi[mirrored])

    def _slot(self, xi: Tensor) -> Tensor:
        strides = [1] + [self.half * self.points**j for j in range(self.dim - 1)]
        return (xi.remainder(self.points) * torch.tensor(strides)).sum(dim=1)

    def synthesise(self, spectrum: Tensor) -> Tensor:
        """Return the real fields ``(..., *shape)`` of half spectra ``(..., slots)``."""
        half = spectrum.reshape(*spectrum.shape[:-1], *self.shape[1:], self.half)
        if self._rest:
            half = torch.fft.ifftn(half, dim=self._rest, norm="forward")
        field: Tensor = torch.fft.irfft(half, n=self.points, norm="forward")
        return field

    def analyse(self, field: Tensor) -> Tensor:
        """Return the half spectra ``(..., slots)`` of real fields."""
        half = torch.fft.rfft(field, norm="forward")[..., : self.half]
        if self._rest:
            half = torch.fft.fftn(half, dim=self._rest, norm="forward")
        flat: Tensor = half.flatten(-self.dim)
        return flat

    def density(self, means: Tensor, placed: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """Return 1 + Σ_ζ (c(ζ) e^{iζ·x} + its conjugate) for c = E[e^{-iζ·x}], ``(..., m)``."""
        slots, mirrored, images = placed
        spectrum = means.new_zeros(*means.shape[:-1], self.slots)
        spectrum[..., slots] = means
        spectrum[..., images] = means[..., mirrored].conj()
        spectrum[..., 0] = 1
        return self.synthesise(spectrum)
