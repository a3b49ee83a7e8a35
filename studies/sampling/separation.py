"""How far apart the flow carries paths that differ by a small perturbation at some level.

States of paths are perturbed at a level λ, in standardised coordinates by δξ with ξ ~ N(0, I), and
followed to the end. Without a residual the coordinates stay as they are, so the distance at the end
is δ√c in a direction of variance c: its mean square over all directions is the *base*, δ² mean(c).
Where the flow is smooth, mean squares are a multiple of the base, the same for all δ. Where it has
to decide between images, a share of paths proportional to δ ends at another image: then the mean
square is proportional to δ, and the median is much smaller than the mean.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from oism.images import GaussianPart
from oism.sampling import Denoiser, History, Plan, Polynomial, Span, alpha_sigma
from studies.sampling import networks
from studies.sampling.context import Context, Table
from studies.sampling.networks import COMBINED
from studies.sampling.ours import denoiser_of

LEVELS = 24
"""The number of levels of a path."""

EVERY, LAST = 3, 6
"""Every third level is perturbed, but for the last six."""

PERTURBATIONS = (0.02, 0.05, 0.1, 0.2)
"""δ, in units of the standard deviations of the Gaussian."""


@dataclass(frozen=True, eq=False)
class Separation:
    """A perturbation δ at a level; ``base`` is the mean square without a residual."""

    delta: float
    level: float
    base: float
    end: Callable[[], Tensor]
    unperturbed: Tensor

    def measured(self) -> tuple[float, float]:
        """Return mean and median over paths of the squared distance at the end, per dimension."""
        squares = (self.end() - self.unperturbed).double().square().flatten(1).mean(dim=1)
        return float(squares.mean()), float(squares.median())


@torch.no_grad()
def separations(
    denoiser: Denoiser, part: GaussianPart, span: Span, noise: Tensor
) -> Iterator[Separation]:
    """Yield perturbations of all sizes at all levels; each is followed when it is measured.

    ``noise`` ``(n, *shape)`` is that of the first level, where the n paths begin.
    """
    levels = torch.linspace(span.first, span.last, LEVELS, dtype=torch.float64)
    plan = Polynomial(levels=tuple(levels.tolist())).plan(part, span, LEVELS - 1)
    x, history = plan.start(noise)
    states = []
    for k in range(LEVELS - 1):
        states.append((x, history.residuals.copy()))
        x, history = plan.step(k, x, denoiser(x, levels[k]), history)
    for delta in PERTURBATIONS:
        for k in range(0, LEVELS - LAST, EVERY):
            start, past = states[k]
            moved = start + _perturbation(part, levels[k], start, delta, seed=k)
            end = partial(_followed, denoiser, plan, k, moved, past)
            base = float(delta**2 * part.variances.mean())
            yield Separation(delta, float(levels[k]), base, end, x)


def _perturbation(
    part: GaussianPart, level: Tensor, like: Tensor, delta: float, *, seed: int
) -> Tensor:
    """Return δ s ξ along the directions of a Gaussian, with s² = α²c + σ², of the shape of rows."""
    alpha, sigma = (float(one) for one in alpha_sigma(level))
    scale = (alpha**2 * part.variances + sigma**2).sqrt()
    generator = torch.Generator().manual_seed(seed)
    xi = torch.randn(len(like), len(scale), generator=generator).to(like)
    return part.synthesise(delta * scale.to(like) * xi).reshape(like.shape)


def _followed(denoiser: Denoiser, plan: Plan, first: int, x: Tensor, past: deque[Tensor]) -> Tensor:
    """Return the end of paths that are at x at a level, given the residuals before it."""
    history = History(past.copy())
    for k in range(first, plan.evaluations):
        x, history = plan.step(k, x, denoiser(x, plan.levels[k]), history)
    return x


def measure_separations(context: Context) -> None:
    """Measure how far apart the flow of the combined network carries perturbed paths."""
    nets, samples = context.networks, context.settings.samples
    predictor = nets.predictor(COMBINED, exact=True)
    noise = networks.noise_for(nets.prior.shape, samples, seed=3)
    part, span = nets.prior.gaussian_part(), predictor.model.span
    identity = ("step", "samples", "delta", "level")
    table = Table(context.place / "separation.json", identity, samples=samples)
    same = {"step": context.last, "samples": samples}
    with networks.exactly():  # rounding would look like paths that separate
        for one in separations(denoiser_of(predictor), part, span, noise):
            row = {**same, "delta": one.delta, "level": round(one.level, 3)}  # as it is stored
            if row in table:
                continue
            if context.left < 3:
                break
            mean, median = one.measured()
            table.add(**row, base=one.base, mean=mean, median=median)
            context.say(f"λ {one.level:.2f}, δ {one.delta:g}: {mean / one.base:.2f} of the base")
