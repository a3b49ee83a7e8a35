"""The score on the torus: s = Σ α_k(t) ∇φ_k, because π is uniform.

For points with one common time in at most three dimensions the series are summed by
`oism.basis.ScatteredSeries`: by FINUFFT for many points on the CPU, otherwise by products of waves
of single coordinates. For one time per row, more dimensions, and under differentiation, they are
summed wave by wave.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from oism._core.transforms import is_differentiated, on_host
from oism.basis import NUFFT_DIM, Fourier, ScatteredSeries
from oism.score._base import OperatorScore
from oism.storage import storable

POINTS, DEVICE_POINTS = 2**18, 2**20
"""The number of points per sum, on the CPU and on other devices."""

TRANSFORM_COST = {1: (100_000, 10), 2: (1_600_000, 140), 3: (4_000_000, 800)}
"""The cost of transforms by dimension: fixed, and per point and field.

The unit is the cost of one term of a product, for one point and field; measured by
benchmarks/scattered.py.
"""

WAVE_COST = 25
"""The cost of a wave of a single coordinate at a point, in the same unit."""

NEGLIGIBLE = 1e-10
"""On the CPU, frequencies whose coefficients of the score are all below this share of the largest
are left out: late times need few."""


@storable
class FourierScore(OperatorScore):
    """Coefficients of √2 cos and √2 sin: α is ``(size,)``."""

    basis: Fourier

    @property
    def is_recordable(self) -> bool:
        """Whether the series are summed by products of waves."""
        return self.basis.dim <= NUFFT_DIM and self.basis.is_integral

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
    def _norms(self) -> Tensor:
        """‖ξ‖, increasing: ``(m,)``."""
        norms: Tensor = self.basis.frequencies.norm(dim=1)
        return norms

    @functools.cached_property
    def _known(self) -> dict[tuple[int, torch.device], tuple[ScatteredSeries, Tensor]]:
        return {}

    def _scattered(self, reach: int, device: torch.device) -> tuple[ScatteredSeries, Tensor]:
        """Return the series of ‖ξ‖ ≤ reach, and factors iξ_j, -‖ξ‖² and 1: ``(dim + 2, m)``."""
        if (reach, device) not in self._known:
            self._known[reach, device] = self._make_series(reach, device)
        return self._known[reach, device]

    def _make_series(self, reach: int, device: torch.device) -> tuple[ScatteredSeries, Tensor]:
        xi = self.basis.frequencies[: int((self._norms <= reach).sum())]
        square = -xi.square().sum(dim=1)[None]
        parts = [part.to(torch.complex128) for part in (1j * xi.mT, square, square / square)]
        return ScatteredSeries(xi, device), torch.cat(parts).to(device)

    def _is_fast(self, x: Tensor, t: Tensor) -> bool:
        """Return whether the series are those of one time, and products of waves."""
        return (
            t.ndim == 0
            and self.is_recordable
            and not is_differentiated(x)
            and not is_differentiated(t)
        )

    def _transform_is_faster(self, n: int, modes: Sequence[int], fields: int) -> bool:
        once, per_point = TRANSFORM_COST[self.basis.dim]
        half = (modes[0] + 1) // 2
        products = fields * half * math.prod(modes[1:]) + WAVE_COST * (half + sum(modes[1:]))
        return n * products > once + per_point * n * fields and _has_finufft()

    def _rows(self, x: Tensor, t: Tensor) -> int:
        points = POINTS if on_host(x) else DEVICE_POINTS
        return points if self._is_fast(x, t) else super()._rows(x, t)

    def _fields(self, x: Tensor, alpha: Tensor, which: slice) -> Tensor:
        """Return real fields ``(n, k)``: derivatives of log ρ_t/π by number, its Laplacian, it."""
        on_cpu = on_host(x)
        parts = (alpha.double() if on_cpu else alpha).reshape(-1, 2)
        # √2 (a cos + b sin)(ξ·x) = c e^{iξ·x} + its conjugate with c = (a - ib)/√2
        spectrum = torch.complex(parts[:, 0], -parts[:, 1]) / math.sqrt(2)
        reach = math.ceil(float(self._norms[-1]))
        if on_cpu:
            size = spectrum.abs() * self._norms
            kept = (size > NEGLIGIBLE * size.max()).nonzero()
            reach = math.ceil(float(self._norms[kept[-1]])) if len(kept) else 1
        series, factors = self._scattered(reach, x.device)
        waves = factors[which].to(spectrum) * spectrum[: factors.shape[1]]
        fast = on_cpu and self._transform_is_faster(len(x), series.modes, len(waves))
        return (series(x, waves) if fast else series.products(x, waves)).mT.to(x.dtype)

    def _score(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        if self._is_fast(x, t):
            return self._fields(x, alpha, slice(0, -2))
        return self.basis._series(x, alpha, 1)

    def _divergence(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        if self._is_fast(x, t):
            return self._fields(x, alpha, slice(-2, -1))[:, 0]
        return self.basis._series(x, alpha, 2)

    def _joint(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        if self._is_fast(x, t):
            return self._fields(x, alpha, slice(0, -1))
        return self.basis._gradient_and_laplacian(x, alpha)

    def _log_ratio(self, x: Tensor, t: Tensor, alpha: Tensor) -> Tensor:
        if self._is_fast(x, t):
            return self._fields(x, alpha, slice(-1, None))[:, 0]
        return self.basis._series(x, alpha, 0)


@functools.lru_cache(maxsize=1)
def _has_finufft() -> bool:
    return importlib.util.find_spec("finufft") is not None
