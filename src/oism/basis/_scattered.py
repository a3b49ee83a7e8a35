"""Fourier series at scattered points: a non-uniform fast Fourier transform of type 2, by FINUFFT.

Fields are real, f(x) = Σ_ξ (F(ξ) e^{iξ·x} + its conjugate) over a half lattice, so two of them
share one complex transform, as f + ig. In d dimensions a gradient with its divergence needs
(d + 1)/2 transforms, rounded up. It runs on the CPU in float64 and is not differentiable.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

NUFFT_DIM = 3
"""The largest dimension that FINUFFT supports."""

TOLERANCE = 1e-10
"""Relative to the coefficients: log-densities must agree with direct sums to 1e-7."""

SINGLE_THREAD = 2**15
"""The number of points up to which one thread is fastest."""


class ScatteredSeries:
    """Values of real Fourier series at points, for integer frequencies ``(m, dim)``."""

    def __init__(self, frequencies: Tensor) -> None:
        xi = frequencies.long()
        reach = xi.abs().amax(dim=0)
        self.modes = tuple((2 * reach + 1).tolist())
        sides = torch.tensor([*self.modes[1:], 1]).flip(0).cumprod(dim=0).flip(0)
        self._slots = ((xi + reach) * sides).sum(dim=1)
        self._images = ((reach - xi) * sides).sum(dim=1)

    def __call__(self, x: Tensor, spectra: Tensor) -> Tensor:
        """Return the fields of spectra ``(k, m)``, complex, at points ``(n, dim)``: ``(k, n)``."""
        import finufft  # noqa: PLC0415 (fitted scores can be used without it)

        transform = getattr(finufft, f"nufft{x.shape[1]}d2")
        columns = [column.contiguous().numpy() for column in x.detach().double().mT]
        pairs = spectra.new_zeros(-(-len(spectra) // 2), self._size)
        for field, spectrum in enumerate(spectra):
            pair, unit = pairs[field // 2], (1, 1j)[field % 2]
            pair[self._slots] += unit * spectrum
            pair[self._images] += unit * spectrum.conj()
        modes = pairs.reshape(-1, *self.modes).numpy()
        threads = 1 if len(x) <= SINGLE_THREAD else torch.get_num_threads()
        found = torch.from_numpy(
            transform(*columns, modes, eps=TOLERANCE, isign=1, nthreads=threads)
        ).reshape(len(pairs), len(x))
        fields = itertools.chain.from_iterable(zip(found.real, found.imag, strict=True))
        return torch.stack(list(fields)[: len(spectra)])

    @property
    def _size(self) -> int:
        return int(torch.tensor(self.modes).prod())
