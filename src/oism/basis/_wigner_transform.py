"""Sums over degrees, fast transforms on a grid, and fast sums at scattered quaternions.

A series of the functions of ``oism.basis._wigner_functions`` is for each angle η = β/2 a Fourier
series in two angles, (α, γ) for rotations and (arg z₁, arg z₂) on S³, whose coefficients

    F_ps(η) = Σ_l c_lps R_lab(η),    R_lab = sin^a η cos^b η P_n(cos 2η),    a = |s|, b = |p|,

are sums over degrees: one matrix product per pair (a, b), batched for all pairs with the same
a + b, because those have equally many degrees.

On a grid of Gauss-Legendre nodes in cos β and equally spaced angles the rest is an FFT:
`GridTransform`. R_lab is itself a Fourier sum in β (in η on S³), so a series is a Fourier series
on the three-dimensional torus of the angles. Its coefficients follow from F at equally spaced β by
an FFT, and FINUFFT sums it at any points: `ScatteredWigner`. Averages over points are the adjoint.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.fft
import torch
from torch import Tensor

from oism._core import quadrature
from oism.basis._transform import Transform
from oism.basis._wigner_functions import Harmonics, jacobi_start, jacobi_step

TOLERANCE = 1e-13
"""The relative accuracy of sums and averages at scattered points."""

SINGLE_THREAD = 2**15
"""The number of points up to which one thread is fastest."""


class DegreeSums:
    """F_ps(η) at angles η ``(rings,)`` from coefficients, and the adjoint.

    Spectra are ``(..., rings, 2r + 1, r + 1)``, complex, r the reach: the second angle's frequency
    -r, …, r modulo 2r + 1 (negative ones last), then the first angle's, which is not negative.
    """

    def __init__(self, functions: Harmonics, eta: Tensor) -> None:
        self.size, self.rings, self.reach = functions.size, len(eta), functions.reach
        self.shape = (2 * self.reach + 1, self.reach + 1)
        ell, p, s, part = functions._lattice
        first, second = functions._frequencies(p, s)
        slot = first + self.shape[1] * (second % self.shape[0])
        factor = np.where((p == 0) & (s == 0), 1.0, math.sqrt(0.5))
        a, b, n = abs(s), abs(p), (ell - abs(p) - abs(s)) // 2
        # Functions with the same a and b: at most two half-lattice places, real and imaginary parts
        other = ((p < 0) | (s < 0)).astype(np.int64)
        self._groups = []
        x = eta.double().numpy()
        step = 2 if functions.even else 1
        for total in range(0, functions.degree + 1, step):
            count = (functions.degree - total) // 2 + 1
            inside = np.nonzero(a + b == total)[0]
            index = np.full((total + 1, count, 2, 2), self.size)
            index[a[inside], n[inside], other[inside], part[inside]] = inside
            slots = np.full((total + 1, 2), self.shape[0] * self.shape[1])
            slots[a[inside], other[inside]] = slot[inside]
            scale = np.ones((total + 1, 2))
            scale[a[inside], other[inside]] = factor[inside]
            pairs = np.arange(total + 1)
            table = _radial(pairs, total - pairs, count, x)
            self._groups.append(
                (
                    torch.from_numpy(table),
                    torch.from_numpy(index),
                    torch.from_numpy(slots),
                    torch.from_numpy(scale),
                )
            )
        self._zero_images = self._images()

    def _images(self) -> tuple[Tensor, Tensor]:
        """Return the slots with first frequency 0 and second > 0, and those of their conjugates."""
        g = torch.arange(1, self.reach + 1)
        return self.shape[1] * g, self.shape[1] * (self.shape[0] - g)

    def synthesise(self, coefficients: Tensor) -> Tensor:
        """Return the half spectra of series with coefficients ``(..., size)``."""
        batch = coefficients.shape[:-1]
        flat = coefficients.reshape(-1, self.size)
        padded = torch.cat((flat, flat.new_zeros(len(flat), 1)), dim=1).mT.contiguous()
        slots = self.shape[0] * self.shape[1]
        out = torch.zeros(slots + 1, self.rings, len(flat), dtype=torch.complex128)
        for table, index, places, scale in self._groups:
            right = padded[index].flatten(2)  # (pairs, degrees, 4 · batch)
            found = (table @ right).reshape(*table.shape[:2], 2, 2, len(flat))
            found *= scale[:, None, :, None, None]
            both = torch.complex(found[..., 0, :], -found[..., 1, :])  # Re[(a - ib) Y]
            out[places.flatten()] = both.transpose(1, 2).flatten(0, 1)
        own, image = self._zero_images
        out[image] = out[own].conj()
        return out[:-1].movedim(-1, 0).mT.reshape(*batch, self.rings, *self.shape)

    def analyse(self, spectra: Tensor) -> Tensor:
        """Return ``(..., size)``: Σ_j R_lab(η_j) √2 (Re, -Im) of the spectra at each ring."""
        batch = spectra.shape[:-3]
        flat = spectra.reshape(-1, self.rings, self.shape[0] * self.shape[1])
        flat = torch.cat((flat, flat.new_zeros(len(flat), self.rings, 1)), dim=2).permute(2, 1, 0)
        out = flat.real.new_zeros(self.size + 1, flat.shape[-1])
        for table, index, places, scale in self._groups:
            own = flat[places.flatten()].reshape(*places.shape, *flat.shape[1:])
            # 1 at the origin, √2 elsewhere: scale is 1 and √½
            own = own / scale[..., None, None]
            parts = torch.stack((own.real, -own.imag), dim=2)  # (pairs, 2, 2, rings, batch)
            right = parts.permute(0, 3, 1, 2, 4).flatten(2)
            found = (table.mT @ right).reshape(*index.shape, -1)
            out[index.flatten()] = found.flatten(0, 3)
        return out[:-1].mT.reshape(*batch, self.size)


def _radial(a: np.ndarray, b: np.ndarray, count: int, eta: np.ndarray) -> np.ndarray:
    """Return R of n = 0, …, count - 1 at angles η: ``(pairs, rings, count)``."""
    x, a, b = np.cos(2 * eta), a[:, None], b[:, None]
    with np.errstate(under="ignore"):
        current = jacobi_start(a, b) * np.sin(eta) ** a * np.cos(eta) ** b
        before, found = np.zeros_like(current), [current]
        for n in range(count - 1):
            u, v, w = jacobi_step(n, a, b)
            current, before = (u * x - v) * current - w * before, current
            found.append(current)
    return np.stack(found, axis=2)


class WignerGrid:
    """The points of ``Measure.quadrature``, exact for functions of degree ≤ ``degree``."""

    def __init__(self, degree: int, *, even: bool) -> None:
        reach = degree // 2 if even else degree
        self.angles: int = scipy.fft.next_fast_len(reach + 1)
        nodes, self.weights = quadrature.gauss_legendre((self.angles - 1) // (2 if even else 4) + 1)
        self.eta = torch.asin(nodes.sqrt())
        self.points = len(nodes) * self.angles**2


class GridTransform(Transform):
    """Series and integrals of functions on the points of a grid."""

    def __init__(self, functions: Harmonics, grid: WignerGrid) -> None:
        self._sums, self._grid = DegreeSums(functions, grid.eta), grid
        self.size, self.points = functions.size, grid.points

    def synthesise(self, coefficients: Tensor) -> Tensor:
        """Return the values ``(..., points)`` of series with coefficients ``(..., size)``."""
        half = self._sums.synthesise(coefficients)
        reach, n = self._sums.reach, self._grid.angles
        wide = half.new_zeros(*half.shape[:-2], n, reach + 1)
        wide[..., : reach + 1, :] = half[..., : reach + 1, :]
        wide[..., n - reach :, :] = half[..., reach + 1 :, :]
        wide = torch.fft.ifft(wide, dim=-2, norm="forward")
        field: Tensor = torch.fft.irfft(wide, n=n, norm="forward")
        return field.flatten(-3)

    def analyse(self, values: Tensor) -> Tensor:
        """Return ∫ f φ_k dπ by the rule, ``(..., size)``, for values ``(..., points)``."""
        reach, n, grid = self._sums.reach, self._grid.angles, self._grid
        field = values.reshape(*values.shape[:-1], len(grid.eta), n, n)
        half = torch.fft.rfft(field, norm="forward")[..., : reach + 1]
        half = torch.fft.fft(half, dim=-2, norm="forward")
        half = torch.cat((half[..., : reach + 1, :], half[..., n - reach :, :]), dim=-2)
        return self._sums.analyse(half * grid.weights[:, None, None])


def angles_of(q: Tensor, *, even: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return the angles of unit quaternions ``(n, 4)``: (α, γ, β), or (arg z₁, arg z₂, η) on S³."""
    w, x, y, z = q.unbind(dim=1)
    first, second = torch.atan2(z, w), torch.atan2(-x, y)
    eta = torch.atan2(torch.hypot(x, y), torch.hypot(w, z))
    return (first + second, first - second, 2 * eta) if even else (first, second, eta)


class ScatteredWigner:
    """Series at scattered quaternions and averages over them, by FINUFFT on the CPU in float64."""

    def __init__(self, functions: Harmonics) -> None:
        self.even, self.reach = functions.even, functions.reach
        self.modes = 2 * self.reach + 1
        turn = math.pi if self.even else 2 * math.pi  # β = 2η runs through a full turn
        eta = torch.arange(self.modes, dtype=torch.float64) * (turn / self.modes)
        self._sums = DegreeSums(functions, eta)

    def _angles(self, q: Tensor) -> list[np.ndarray]:
        first, second, third = angles_of(q.detach().double(), even=self.even)
        return [part.contiguous().numpy() for part in (third, second, first)]

    def series(self, q: Tensor, coefficients: Tensor) -> Tensor:
        """Return real series with coefficients ``(k, size)`` at points ``(n, 4)``: ``(k, n)``."""
        import finufft  # noqa: PLC0415 (fitted scores can be used without it)

        half = self._sums.synthesise(coefficients.detach().double().cpu())
        half = torch.fft.fft(half, dim=-3, norm="forward")
        full = _full(half)
        odd = len(full) % 2
        if odd:
            full = torch.cat((full, torch.zeros_like(full[:1])))
        pairs = (full[::2] + 1j * full[1::2]).contiguous().numpy()
        found = torch.from_numpy(
            finufft.nufft3d2(
                *self._angles(q), pairs, eps=TOLERANCE, isign=1, modeord=1, nthreads=_threads(q)
            )
        ).reshape(len(pairs), len(q))
        return torch.stack((found.real, found.imag), dim=1).flatten(0, 1)[: len(full) - odd]

    def averages(self, q: Tensor, weights: Tensor) -> Tensor:
        """Return Σ_i w_fi φ_k(q_i) for weights ``(f, n)``: ``(f, size)``."""
        import finufft  # noqa: PLC0415

        strengths = weights.detach().cpu().to(torch.complex128).contiguous().numpy()
        shape = (self.modes,) * 3
        found = finufft.nufft3d1(
            *self._angles(q),
            strengths,
            shape,
            eps=TOLERANCE,
            isign=-1,
            modeord=1,
            nthreads=_threads(q),
        )
        spectra = torch.from_numpy(found).reshape(len(weights), *shape)[..., : self.reach + 1]
        return self._sums.analyse(torch.fft.ifft(spectra, dim=-3))


def _full(half: Tensor) -> Tensor:
    """Return the full spectra of real fields from those with non-negative first frequency."""
    mirrored = torch.roll(half[..., 1:].flip(-1, -2, -3), (1, 1), (-2, -3)).conj()
    return torch.cat((half, mirrored), dim=-1)


def _threads(q: Tensor) -> int:
    return 1 if len(q) <= SINGLE_THREAD else torch.get_num_threads()
