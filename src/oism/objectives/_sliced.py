"""Hyvärinen's objective of a score, exact or sliced: one random direction in the place of all.

For a score s and J = ∂s/∂x, integration by parts gives, without the invariant measure,

    E_t[⟨s - s*, G(s - s*)⟩] = E_t[⟨s, Gs⟩ + 2 ∇·(Gs)] + constant,    ∇·(Gs) = tr(GJ) + ⟨∇·G, s⟩,

and ∇·G = 0 for constant noise.
A random direction ℓ = Lv/√2 with random signs v has E[ℓℓᵀ] = ½LLᵀ = G, so that without bias

    ⟨s, Gs⟩ = E⟨ℓ, s⟩²,    tr(GJ) = E⟨ℓ, Jℓ⟩ :

two derivatives along ℓ instead of all. The first of the two can be computed exactly, which is the
form of less variance (Song et al., 2019).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from dataclasses import field as stored

import torch
from torch import Tensor

from oism._core import checks
from oism._core.draws import filled
from oism._core.transforms import matmul
from oism.objectives._base import Objective
from oism.objectives._models import Model, field
from oism.process import Function, Process
from oism.process._operators import directional, over_noise


def inner(a: Tensor, b: Tensor) -> Tensor:
    """Return ⟨a, b⟩ row by row: ``(n,)``."""
    return (a * b).flatten(1).sum(dim=1)


@dataclass(frozen=True)
class Probes:
    """Random directions ℓ = Lv/√2, ``count`` for each point; v are random signs."""

    count: int = 1
    generator: torch.Generator | None = stored(default=None, compare=False)

    def __post_init__(self) -> None:
        checks.assign(self, count=checks.integer(self.count, "count", minimum=1))
        checks.optional(self.generator, torch.Generator, "generator")

    def draw(self, process: Process, x: Tensor) -> Tensor:
        """Return directions for points ``(n, *shape)``: ``(count, n, *shape)``."""
        dim, diffusivity = x.shape[1:].numel(), process.diffusivity
        noise = None if diffusivity is not None else process.noise_at(x)
        columns = dim if noise is None else noise.shape[2]
        signs = filled(
            lambda empty: empty.bernoulli_(generator=self.generator).mul_(2).sub_(1),
            (self.count, len(x), columns), self.generator, dtype=x.dtype, device=x.device,
        )  # fmt: skip
        if diffusivity is not None:  # G = gI: for images a matrix would be large
            return (math.sqrt(diffusivity) * signs).reshape(self.count, *x.shape)
        assert noise is not None
        moved = matmul(noise / math.sqrt(2), signs[..., None])
        return moved.reshape(self.count, *x.shape)


def weighted_divergence(
    process: Process, s: Function, x: Tensor, directions: Tensor | None
) -> Tensor:
    """Return ∇·(Gs), ``(n,)``: exact, or with the mean of ⟨ℓ, Jℓ⟩ over directions for tr(GJ)."""

    def along(column: Tensor) -> Tensor:
        return inner(directional(s, x, column), column.expand_as(x))

    if directions is None:
        trace = over_noise(process, x, along)
    else:
        trace = torch.stack([along(own) for own in directions]).mean(dim=0)
    if process.has_constant_noise:
        return trace
    return trace + inner(s(x), process.drift(x) - process.flow_drift(x))  # ⟨∇·G, s⟩


@dataclass(frozen=True)
class SlicedScoreMatching(Objective):
    """E_t[⟨s, Gs⟩ + 2 ∇·(Gs)] of a score s = ∇log ρ_t; `score_of` makes one of an energy.

    Parameters
    ----------
    process
        The noising process.
    probes
        Random directions for the trace, or None for the exact one, Hyvärinen's objective.
    reduced
        Whether ⟨s, Gs⟩ is computed exactly (less variance) or along the probes too.

    Examples
    --------
    >>> from oism import OrnsteinUhlenbeck
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> SlicedScoreMatching(OrnsteinUhlenbeck())(lambda y, t: -y, x, t=0.1)  # ‖x‖² - 2d
    tensor(-3.0...)
    """

    probes: Probes | None = None
    reduced: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.optional(self.probes, Probes, "probes")
        if not self.reduced and self.probes is None:
            raise ValueError("reduced must be True without probes: there is nothing to estimate")

    def _terms(self, model: Model, x: Tensor, t: Tensor | float) -> Tensor:
        s = field(model, t)
        directions = None if self.probes is None else self.probes.draw(self.process, x)
        values = s(x)
        if directions is None or self.reduced:
            size = inner(values, self.process.diffuse(values, x))
        else:
            size = (directions * values).flatten(2).sum(dim=2).square().mean(dim=0)
        return size + 2 * weighted_divergence(self.process, s, x, directions)
