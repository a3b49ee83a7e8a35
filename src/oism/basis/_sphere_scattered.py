"""Harmonic series at scattered points: the sphere as half of a torus, and FINUFFT.

Along a great circle through the poles every F_m(θ) is a trigonometric polynomial of the degree of
the series, even in θ for even m and odd for odd m. So f(θ, φ), continued to θ in [0, 2π) by
f(2π - θ, φ) = f(θ, φ + π), is a Fourier series of two angles. Its coefficients follow from the
values at equally spaced θ by a fast Fourier transform; a non-uniform transform of type 2 sums it at
points, and one of type 1, its adjoint, gives averages of all harmonics over data.

Two real series share one complex transform, as f + ig.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from oism.basis._sphere_legendre import LegendreTable

TOLERANCE = 1e-13
"""The relative accuracy of sums and averages."""

SINGLE_THREAD = 2**15
"""The number of points up to which one thread is fastest."""


@functools.lru_cache(maxsize=24)
def scattered_of(degree: int) -> ScatteredHarmonics:
    """Return the sums of a degree, cached: its tables are large."""
    return ScatteredHarmonics(degree)


def angles_of(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return colatitude θ and longitude φ of points ``(n, 3)``."""
    return torch.atan2(torch.hypot(x[:, 0], x[:, 1]), x[:, 2]), torch.atan2(x[:, 1], x[:, 0])


class ScatteredHarmonics:
    """Sums of harmonics of degree 0 to ``degree`` at points, and the adjoint."""

    def __init__(self, degree: int) -> None:
        self.degree = degree
        steps = degree + 1
        theta = math.pi / steps * torch.arange(steps + 1, dtype=torch.float64)
        z = theta.cos()
        self.table = LegendreTable(degree, 0.5 * (z - z.flip(0)))
        self._signs = 1.0 - 2.0 * (torch.arange(degree + 1) % 2)  # (-1)^m: F_m(2π - θ) = ± F_m(θ)
        self._steps = steps

    def _fourier(self, coefficients: Tensor) -> Tensor:
        """Return the Fourier coefficients (p, m) of real series, ``(k, 2L + 1, L + 1)``."""
        rings = self.table.synthesise(coefficients)  # θ from 0 to π
        mirrored = rings[:, 1:-1].flip(1) * self._signs
        spectrum = torch.fft.fft(torch.cat((rings, mirrored), dim=1), dim=1, norm="forward")
        return self._centred(spectrum)

    def _centred(self, spectrum: Tensor) -> Tensor:
        """Return frequencies -L, …, L of θ from the order of the FFT, without the largest."""
        return torch.cat((spectrum[:, -self.degree :], spectrum[:, : self.degree + 1]), dim=1)

    def sums(self, x: Tensor, coefficients: Tensor) -> Tensor:
        """Return real series ``(k, (L + 1)²)`` at points ``(n, 3)``: ``(k, n)``, float64."""
        import finufft  # noqa: PLC0415 (a model of another space does not need it)

        half = self._fourier(coefficients)
        # The coefficient of (-p, -m) is the conjugate of that of (p, m).
        modes = torch.cat((half[..., 1:].flip(1, 2).conj(), half), dim=2)
        if len(modes) % 2:
            modes = torch.cat((modes, torch.zeros_like(modes[:1])))
        pairs = (modes[::2] + 1j * modes[1::2]).contiguous().numpy()
        found = torch.from_numpy(
            finufft.nufft2d2(
                *self._angles(x), pairs, eps=TOLERANCE, isign=1, nthreads=self._threads(x)
            )
        ).reshape(len(pairs), len(x))
        return torch.stack((found.real, found.imag), dim=1).flatten(0, 1)[: len(coefficients)]

    def averages(self, x: Tensor, weights: Tensor) -> Tensor:
        """Return Σ_i w_i Y_lm(x_i) for weights ``(k, n)``: ``(k, (L + 1)²)``, float64."""
        import finufft  # noqa: PLC0415

        modes = (2 * self.degree + 1,) * 2
        strengths = weights.to(torch.complex128).contiguous().numpy()
        found = torch.from_numpy(
            finufft.nufft2d1(
                *self._angles(x),
                strengths,
                modes,
                eps=TOLERANCE,
                isign=-1,
                nthreads=self._threads(x),
            )
        ).reshape(len(weights), *modes)
        half = found[..., self.degree :]  # Σ w e^{-i(pθ + mφ)} for m ≥ 0
        # The adjoint of `_fourier`, step by step.
        spectrum = half.new_zeros(len(half), 2 * self._steps, self.degree + 1)
        spectrum[:, -self.degree :] = half[:, : self.degree]
        spectrum[:, : self.degree + 1] = half[:, self.degree :]
        rings = torch.fft.ifft(spectrum, dim=1, norm="backward")
        inner = rings[:, 1 : self._steps] + rings[:, self._steps + 1 :].flip(1) * self._signs
        whole = torch.cat((rings[:, :1], inner, rings[:, self._steps : self._steps + 1]), dim=1)
        return self.table.analyse(whole)

    @staticmethod
    def _angles(x: Tensor) -> list[object]:
        return [part.contiguous().numpy() for part in angles_of(x.detach().double())]

    @staticmethod
    def _threads(x: Tensor) -> int:
        return 1 if len(x) <= SINGLE_THREAD else torch.get_num_threads()
