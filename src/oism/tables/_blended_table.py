"""Models on the torus whose scores are blended with those of networks.

The fitted scores are not those of one exact density at all noise levels, as those of a mixture are
(`oism.tables._network_model`): the flow is integrated from the uniform distribution on, as in
`TableModel`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from oism._core.transforms import per_row
from oism.flow import Flow
from oism.process import Clock, Process
from oism.score import OperatorScore
from oism.storage import storable
from oism.tables._background import Background
from oism.tables._chart import Chart
from oism.tables._model import TableModel
from oism.tables._network_blend import Blend
from oism.tables._network_model import BlendedModel


@dataclass(frozen=True, eq=False)
class BlendedScore:
    """The scores of a model on the torus, blended with networks; as `Flow` takes them."""

    reference: OperatorScore
    blend: Blend

    @property
    def process(self) -> Process:
        """The noising process."""
        return self.reference.process

    @property
    def clock(self) -> Clock:
        """The noise levels."""
        return self.reference.clock

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a point."""
        return self.reference.shape

    def _level(self, t: Tensor | float, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the log signal-to-noise ratio 1/(2t), σ and the share, the latter two for x."""
        time = torch.as_tensor(t, dtype=torch.float64, device=x.device)
        level = -(2 * time).log()
        share = self.blend.share_at(level)
        return level, per_row((2 * time).sqrt().to(x), x), per_row(share.to(x), x)

    def score(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return the blended ∇ log ρ_t(x)."""
        known = self.reference.score(x, t)
        level, sigma, share = self._level(t, x)
        if not bool((share > 0).any()):
            return known
        return torch.lerp(known, -self.blend.network_noise(x, level) / sigma, share)

    def score_and_divergence(self, x: Tensor, t: Tensor | float) -> tuple[Tensor, Tensor]:
        """Return the blended score and its divergence ``(n,)``."""
        known, trace = self.reference.score_and_divergence(x, t)
        level, sigma, share = self._level(t, x)
        if not bool((share > 0).any()):
            return known, trace
        found, change = self.blend.network_noise_and_divergence(x, level)
        flat = (one.reshape(-1) for one in (share, sigma))
        weight, size = (one if len(one) > 1 else one[0] for one in flat)
        return torch.lerp(known, -found / sigma, share), torch.lerp(trace, -change / size, weight)


@storable
class BlendedTable(TableModel, BlendedModel):
    """A model on the torus and networks, blended at each noise level: see `TableModel`.

    ``blend`` are the networks and their share, in the coordinates of the chart.
    """

    def __init__(
        self,
        operator_score: OperatorScore,
        chart: Chart,
        background: Background | None,
        span: tuple[float, float],
        steps: int,
        blend: Blend,
    ) -> None:
        super().__init__(operator_score, chart, background, span, steps)
        self.blend = blend

    def to_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().to_config(), "blend": self.blend}

    @property
    def _blended(self) -> BlendedScore:
        return BlendedScore(self.operator_score, self.blend)

    @property
    def process_flow(self) -> Flow:
        """The probability flow of the blend, in the process's coordinates."""
        return Flow(self._blended, span=self.span)

    def score(self, x: Tensor, t: Tensor | float) -> Tensor:
        """Return the blended ∇ log ρ_t(x) in the data's units: ``(n, d)``."""
        u = self._coordinates(x)
        return self.chart.pull_score(self._blended.score(u, t).to(x.device))

    def noise(self, x: Tensor, tau: Tensor | float) -> Tensor:
        """Return the expected noise in units of the coordinates: ``(n, d)``."""
        u, t = self._coordinates(x), self.clock.time(tau)
        return -per_row((2 * t).sqrt().to(u), u, "tau") * self._blended.score(u, t)

    def denoise(self, x: Tensor, tau: Tensor | float) -> Tensor:
        """Return E[x_0 | x_τ = x]; not where columns are reflected."""
        if bool(self.chart.reflections.any()):
            raise TypeError("denoise(x, tau) has no closed form for columns with bounds")
        u, t = self._coordinates(x), self.clock.time(tau)
        moved = u + per_row((2 * t).to(u), u, "tau") * self._blended.score(u, t)
        return self.chart.to_data(moved.to(x.device))

    def facts(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Return the facts of the reference, the number of networks and their largest share."""
        network = {"share": float(self.blend.share.max()), "networks": len(self.blend.networks)}
        return {**super().facts(names), "network": network}
