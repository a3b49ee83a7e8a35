"""Fourier transforms between values on a grid of the torus and coefficients."""

from __future__ import annotations

import math
from functools import cached_property

import scipy.fft
import torch
from torch import Tensor

from oism._core.transforms import on_host
from oism.basis._transform import Transform


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
        return (xi.remainder(self.points) * torch.tensor(strides, device=xi.device)).sum(dim=1)

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


class TorusTransform(Transform):
    """√2 cos(ξ·x) and √2 sin(ξ·x), next to each other, on a grid; on the device of ξ.

    ``frequencies`` ``(m, dim)`` are of a half lattice: ξ₁ ≥ 0, and one of ±ξ. With the complex
    numbers a = α_cos + iα_sin, f = √2 Re Σ_ξ conj(a_ξ) e^{iξ·x}. Products with a field of
    frequencies up to k have no aliases among those up to r if there are more than 2r + k points.
    """

    def __init__(self, frequencies: Tensor, points: int) -> None:
        reach = int(frequencies[:, 0].max())
        self.grid = TorusGrid(frequencies.shape[1], points, reach)
        self.size, self.points = 2 * len(frequencies), self.grid.points**self.grid.dim
        self._slots, self._mirrored, self._images = self.grid.place(frequencies)
        self._conjugate = math.sqrt(2) * frequencies.new_tensor((1.0, -1.0))

    def synthesise(self, coefficients: Tensor) -> Tensor:
        """Return the values ``(..., points)`` of series with coefficients ``(..., size)``."""
        spectrum = (self._scattered if on_host(coefficients) else self._gathered)(coefficients)
        return self.grid.synthesise(spectrum).flatten(-self.grid.dim)

    def _scattered(self, coefficients: Tensor) -> Tensor:
        """Return the half spectrum: conj(a)/√2 at ξ, and its conjugate at an image."""
        pairs = coefficients.reshape(*coefficients.shape[:-1], -1, 2)
        waves = torch.view_as_complex(pairs).conj() * math.sqrt(0.5)
        spectrum = waves.new_zeros(*waves.shape[:-1], self.grid.slots)
        spectrum[..., self._slots] = waves
        spectrum[..., self._images] = waves[..., self._mirrored].conj()
        return spectrum

    def _gathered(self, coefficients: Tensor) -> Tensor:
        """Return the same in two operations over all slots: a GPU waits for launches."""
        source, weights = self._sources
        parts = coefficients.index_select(-1, source).mul_(weights)
        return torch.view_as_complex(parts.reshape(*parts.shape[:-1], -1, 2))

    @cached_property
    def _sources(self) -> tuple[Tensor, Tensor]:
        """For the real and imaginary parts of all slots: which coefficient, and its factor."""
        root = math.sqrt(0.5)
        source = torch.zeros(self.grid.slots, 2, dtype=torch.int64, device=self._slots.device)
        weights = torch.zeros_like(source, dtype=torch.float64)
        own = torch.arange(self.size, device=source.device).reshape(-1, 2)
        source[self._slots], source[self._images] = own, own[self._mirrored]
        weights[self._slots] = weights.new_tensor((root, -root))
        weights[self._images] = root
        return source.flatten(), weights.flatten()

    def analyse(self, values: Tensor) -> Tensor:
        """Return ∫ f φ_k dπ by the trapezoidal rule, ``(..., size)``."""
        waves = self.grid.analyse(values.reshape(*values.shape[:-1], *self.grid.shape))
        parts = torch.view_as_real(waves[..., self._slots])
        return (parts * self._conjugate).flatten(-2)
