"""Functions on unit quaternions: order, values, and derivatives along left-invariant fields.

A quaternion q = w + xi + yj + zk is the pair z₁ = w + iz, z₂ = y - ix with |z₁|² + |z₂|² = 1. In
Euler angles, q = e^{kα/2} e^{jβ/2} e^{kγ/2}, it is z₁ = cos(β/2) e^{i(α+γ)/2} and
z₂ = sin(β/2) e^{i(α-γ)/2}. For integers p, s and n ≥ 0, with b = |p| and a = |s|,

    Y_lps(q) = z₁^p z₂^s P_n(|z₁|² - |z₂|²),    l = a + b + 2n,    (z^{-k} is the conjugate of z^k)

where the P_n are the Jacobi polynomials that are orthonormal for ((1-x)/2)^a ((1+x)/2)^b dx/2.
These are the Wigner functions √(l+1) D^{l/2}_{mm'} up to sign, with m = (p + s)/2 and
m' = (p - s)/2: orthonormal under the uniform probability, harmonic polynomials of degree l, and
ΔY = -l(l + 2)Y on the unit sphere S³. There are (l + 1)² of each degree. Functions of even degree
are functions of rotations, for they have the same value at q and -q.

Real functions are √2 Re Y and √2 Im Y over half of the lattice, and Y_l00. They are sorted by l.

The fields E_a f(q) = d/dε f(q e^{εa}), a = i, j, k, are an orthonormal frame of the tangent space:
∇f = Σ_a E_a f(q) qa. They map each degree to itself, E_k Y_lps = i(p - s) Y_lps and

    (E_j ± iE_i) Y_lps = ±κ Y_{l, p±1, s∓1},    |κ| = 2 √((l/2 ∓ m')(l/2 ± m' + 1)),

so gradients have no poles and are again sums of the functions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from oism.process import left_invariant_frame

Array = np.ndarray[Any, Any]


def jacobi_start(a: Array, b: Array) -> Array:
    """Return P_0 = ((a + b + 1)! / (a! b!))^½."""
    squares = np.vectorize(lambda a, b: (a + b + 1) * math.comb(a + b, a), otypes=[float])
    return np.asarray(np.sqrt(squares(a, b)))


def jacobi_step(n: int, a: Array, b: Array) -> tuple[Array, Array, Array]:
    """Return u, v, w with P_{n+1} = (x u - v) P_n - w P_{n-1}."""
    c = 2 * n + a + b
    centre = (b * b - a * a) / np.maximum(c * (c + 2), 1)  # 0 / 0 for n = a = b = 0

    def beside(k: int) -> Array:
        c = 2.0 * k + a + b
        squares = 4 * k * (k + a) * (k + b) * (k + a + b) / (c * c * (c + 1) * (c - 1))
        return np.asarray(np.sqrt(squares))

    u = 1 / beside(n + 1)
    return u, u * centre, u * (beside(n) if n else 0.0)


@dataclass(frozen=True)
class Harmonics:
    """The real functions of degree 1 to ``degree`` on S³, of even degree only if ``even``.

    Half of the lattice: p > 0, or p = 0 and s > 0; for even degrees the same with m = (p + s)/2
    and m' = (p - s)/2 instead of p and s, so that one half is a half of the Fourier spectrum in the
    Euler angles.
    """

    degree: int
    even: bool

    @cached_property
    def _lattice(self) -> tuple[Array, Array, Array, Array]:
        """l, p, s and part (0 real, 1 imaginary) of all functions."""
        rows = []
        for ell in range(2 if self.even else 1, self.degree + 1, 2 if self.even else 1):
            side = np.arange(-ell, ell + 1)
            p, s = np.repeat(side, len(side)), np.tile(side, len(side))
            first, second = self._frequencies(p, s)
            inside = (abs(p) + abs(s) <= ell) & ((p + s + ell) % 2 == 0)
            inside &= (first > 0) | ((first == 0) & (second >= 0))
            p, s = np.repeat(p[inside], 2), np.repeat(s[inside], 2)
            part = np.arange(len(p)) % 2
            there = (p != 0) | (s != 0) | (part == 0)
            rows.append(np.stack((np.full_like(p, ell), p, s, part))[:, there])
        ell, p, s, part = np.concatenate(rows, axis=1)
        return ell, p, s, part

    def _frequencies(self, p: Array, s: Array) -> tuple[Array, Array]:
        """Return the frequencies of the two angles of the torus: (m, m') or (p, s)."""
        return ((p + s) // 2, (p - s) // 2) if self.even else (p, s)

    @property
    def size(self) -> int:
        """The number of functions."""
        return len(self._lattice[0])

    @property
    def degrees(self) -> Array:
        """The degree l of each function."""
        return self._lattice[0]

    @property
    def reach(self) -> int:
        """The largest frequency of an angle of the torus."""
        return self.degree // 2 if self.even else self.degree

    @cached_property
    def _pairs(self) -> tuple[Array, Array, Array]:
        """The pairs a, b in order of a + b, and the place of a pair: ``[a, b]``."""
        step = 2 if self.even else 1
        found = [(a, c - a) for c in range(0, self.degree + 1, step) for a in range(c + 1)]
        a, b = np.array(found).T
        place = np.full((self.degree + 1, self.degree + 1), -1)
        place[a, b] = np.arange(len(a))
        return a, b, place

    @cached_property
    def _plan(self) -> tuple[list[tuple[Tensor, Tensor, Tensor]], Tensor, Tensor, Tensor]:
        """Coefficients of the recurrence, and where each function finds its factors."""
        a, b, place = self._pairs
        steps, offsets = [], [0]
        for n in range(self.degree // 2 + 1):
            inside, after = (int((a + b + 2 * k <= self.degree).sum()) for k in (n, n + 1))
            offsets.append(offsets[-1] + inside)  # pairs are sorted by a + b: these are the first
            if after:
                coefficients = jacobi_step(n, a[:after], b[:after])
                steps.append(tuple(torch.from_numpy(part)[:, None] for part in coefficients))
        ell, p, s, part = self._lattice
        pair = place[abs(s), abs(p)]
        radial = np.array(offsets)[(ell - abs(p) - abs(s)) // 2] + pair
        # Re and Im of z₁^b z₂^a, then of z₁^b conj(z₂)^a; p < 0 conjugates the latter
        angular = pair + len(a) * (part + 2 * (p * s < 0))
        sign = np.where((part == 1) & (p < 0), -1.0, 1.0)
        factor = sign * np.where((p == 0) & (s == 0), 1.0, math.sqrt(2))
        found = (torch.from_numpy(radial), torch.from_numpy(angular), torch.from_numpy(factor))
        return steps, *found  # type: ignore[return-value]

    def values(self, q: Tensor) -> Tensor:
        """Return the functions at unit quaternions ``(n, 4)``: ``(n, size)``."""
        steps, radial, angular, factor = self._plan
        a, b, _ = self._pairs
        w, x, y, z = q.unbind(dim=1)
        first, second = torch.complex(w, z), torch.complex(y, -x)
        ones = torch.ones_like(first)
        powers = []
        for base in (first, second):
            own = [ones]
            for _ in range(self.degree):
                own.append(own[-1] * base)
            powers.append(torch.stack(own))
        z1, z2 = powers[0][torch.from_numpy(b)], powers[1][torch.from_numpy(a)]
        same, opposite = z1 * z2, z1 * z2.conj()
        waves = torch.cat((same.real, same.imag, opposite.real, opposite.imag))
        height = w * w + z * z - x * x - y * y
        start = torch.from_numpy(jacobi_start(a, b)).to(q)
        current = start[:, None].expand(-1, len(q))
        before, table = torch.zeros_like(current), [current]
        for coefficients in steps:
            u, v, c = (part.to(q) for part in coefficients)
            new = (u * height - v) * current[: len(u)] - c * before[: len(u)]
            current, before = new, current
            table.append(new)
        radials = torch.cat(table)
        found = radials[radial.to(q.device)] * waves[angular.to(q.device)]
        return (found * factor.to(q)[:, None]).mT

    @cached_property
    def fields(self) -> tuple[Tensor, Tensor]:
        """Indices and factors, ``(3, size, 2)``: E_a φ_k = Σ_r factor[a,k,r] φ_{index[a,k,r]}."""
        ell, p, s, part = self._lattice
        reach = self.degree
        place = np.zeros((reach + 1, 2 * reach + 3, 2 * reach + 3, 2), dtype=np.int64)
        place[ell, p + reach + 1, s + reach + 1, part] = np.arange(len(ell))
        own = np.where((p == 0) & (s == 0), 1 / math.sqrt(2), 1.0)

        def raised(p: Array, s: Array) -> Array:
            """Return κ of E_j + iE_i."""
            m = (p - s) / 2
            size = 2 * np.sqrt(np.maximum((ell / 2 - m) * (ell / 2 + m + 1), 0.0))
            return np.where(s > 0, size, -size)

        def target(p: Array, s: Array, part: Array) -> tuple[Array, Array]:
            """Return index and factor of √2 Re Y or √2 Im Y at any place of the lattice."""
            first, second = self._frequencies(p, s)
            negative = (first < 0) | ((first == 0) & (second < 0))
            sign = np.where(negative, -1, 1)
            origin = (p == 0) & (s == 0)
            factor = np.where(origin, np.where(part == 0, math.sqrt(2), 0.0), 1.0)
            factor = factor * np.where(negative & (part == 1), -1.0, 1.0)
            where = np.where(origin, 0, part)
            return place[ell, sign * p + reach + 1, sign * s + reach + 1, where], factor

        up, down = raised(p, s), -raised(p - 1, s + 1)
        index, factor = np.zeros((3, len(ell), 2), dtype=np.int64), np.zeros((3, len(ell), 2))
        turn = np.where(part == 0, 1.0, -1.0)  # -i times Re is Im, and -i times Im is -Re
        for r, (kappa, dp, flip) in enumerate(((up, 1, 1.0), (down, -1, -1.0))):
            index[0, :, r], scale = target(p + dp, s - dp, 1 - part)
            factor[0, :, r] = 0.5 * own * scale * kappa * flip * turn
            index[1, :, r], scale = target(p + dp, s - dp, part)
            factor[1, :, r] = 0.5 * own * scale * kappa
        index[2, :, 0], scale = target(p, s, 1 - part)
        factor[2, :, 0] = -own * scale * (p - s) * turn
        index[factor == 0] = 0
        return torch.from_numpy(index), torch.from_numpy(factor)

    def gradients(self, values: Tensor, q: Tensor) -> Tensor:
        """Return tangent gradients ``(n, size, 4)`` from the values at unit quaternions."""
        index, factor = self.fields
        found = torch.zeros(*values.shape, 4, dtype=values.dtype, device=values.device)
        frame = left_invariant_frame(q).unbind(dim=2)
        for field, places, factors in zip(frame, index, factor, strict=True):
            terms = values[:, places.to(values.device)] * factors.to(values)
            found = found + terms.sum(dim=2)[..., None] * field[:, None]
        return found

    def derivatives(self, alpha: Tensor) -> Tensor:
        """Return the coefficients of E_i f, E_j f, E_k f for those of f: ``(3, ..., size)``.

        The fields are antisymmetric in L², so this is minus the transposed sum.
        """
        index, factor = self.fields
        places = index.to(alpha.device)
        return torch.stack(
            [
                -(alpha[..., own] * by.to(alpha)).sum(dim=-1)
                for own, by in zip(places, factor, strict=True)
            ]
        )


@lru_cache(maxsize=16)
def harmonics(degree: int, even: bool) -> Harmonics:
    """Return the functions, with their tables kept between calls."""
    return Harmonics(degree, even)
