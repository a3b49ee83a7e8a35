"""The score on the torus: s = Σ α_k(t) ∇φ_k, because π is uniform.

For many points with one common time on the CPU, the series are summed by FINUFFT (see
`oism.basis._scattered`). For few points, one time per row, other devices and under
differentiation, they are summed by matrix products.
"""

from __future__ import annotations

import functools
import importlib.util
import math

import torch
from torch import Tensor

from oism._core.transforms import is_differentiated
from oism.basis import NUFFT_DIM, Fourier, ScatteredSeries
from oism.score._base import OperatorScore
from oism.storage import storable

POINTS = 2**18
"""The number of points per transform."""

TRANSFORM_COST = {1: (15_000, 1.5, 0.0), 2: (20_000, 8.0, 3.6), 3: (30_000, 80.0, 38.0)}
"""The cost of a transform by dimension: fixed, per point and per mode.

The unit is the cost of one wave at one point by matrix products, for a score with its divergence;
measured by benchmarks/scattered.py.
"""


@storable
class FourierScore(OperatorScore):
    """Coefficients of √2 cos and √2 sin: α is ``(size,)``."""

    basis: Fourier

    @property
    def bandwidth(self) -> int:
        """The largest frequency of a coordinate."""
        return int(self.basis.frequencies.abs().max())

    def noise_error(self) -> Tensor:
        """Return 1 + σ²(E‖ŝ‖² - 2E⟨ŝ, s⟩)/d on held-out rows: 1 for a score of zero."""
        found = self.diagnostics
        variance: Tensor = self.basis.process.variance(found.t)
        return 1 + variance * found.loss / self.basis.dim

    @functools.cached_property
    def _slopes(self) -> Tensor:
        """The factors iξ_j and -‖ξ‖² of the derivatives of a spectrum: ``(dim + 1, m)``.

        On the CPU, like all arguments of FINUFFT.
        """
        xi = self.basis.frequencies.cpu()
        return torch.cat((1j * xi.mT, -xi.square().sum(dim=1)[None].to(torch.complex128)))

    @functools.cached_property
    def _scattered(self) -> ScatteredSeries:
        return ScatteredSeries(self.basis.frequencies)

    def _is_fast(self, x: Tensor, t: Tensor) -> bool:
        """Return whether a transform is possible and faster than matrix products."""
        return (
            x.device.type == "cpu"
            and t.ndim == 0
            and self.basis.dim <= NUFFT_DIM
            and self.basis.is_integral
            and not is_differentiated(x)
            and not is_differentiated(t)
            and self._transform_is_faster(len(x))
            and _has_finufft()
        )

    def _transform_is_faster(self, n: int) -> bool:
        once, per_point, per_mode = TRANSFORM_COST[self.basis.dim]
        transform = once + per_point * n + per_mode * math.prod(self._scattered.modes)
        return bool(n * len(self.basis.frequencies) > transform)

    def _rows(self, x: Tensor, t: Tensor) -> int:
        return POINTS if self._is_fast(x, t) else super()._rows(x, t)

    def _fields(self, x: Tensor, alpha: Tensor, waves: Tensor) -> Tensor:
        """Return the real fields whose spectra are ``waves`` ``(k, m)`` times that of log ρ_t."""
        parts = alpha.double().reshape(-1, 2)
        # √2 (a cos + b sin)(ξ·x) = c e^{iξ·x} + its conjugate with c = (a - ib)/√2
        spectrum = torch.complex(parts[:, 0], -parts[:, 1]) / math.sqrt(2)
        return self._scattered(x, waves * spectrum).mT.to(x.dtype)

    def _score(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        if self._is_fast(x, t):
            return self._fields(x, alpha, self._slopes[:-1])
        return self.basis._series(x, alpha, 1)

    def _divergence(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        if self._is_fast(x, t):
            return self._fields(x, alpha, self._slopes[-1:])[:, 0]
        return self.basis._series(x, alpha, 2)

    def _joint(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        if self._is_fast(x, t):
            return self._fields(x, alpha, self._slopes)
        return self.basis._gradient_and_laplacian(x, alpha)

    def _log_ratio(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        if self._is_fast(x, t):
            return self._fields(x, alpha, torch.ones_like(self._slopes[:1]))[:, 0]
        return self.basis._series(x, alpha, 0)


@functools.lru_cache(maxsize=1)
def _has_finufft() -> bool:
    return importlib.util.find_spec("finufft") is not None
