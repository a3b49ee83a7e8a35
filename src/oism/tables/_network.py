"""Networks beside a closed-form model: trained alone, blended by what held-out rows say.

A network is trained by denoising, to predict the noise of αz + σε at levels λ = log α²/σ² that are
drawn uniformly: the sum of squared errors over λ is then twice the loss in log-likelihood. It knows
nothing of the reference. Its share c(λ), see `_network_blend`, is computed on rows that neither the
network nor the reference has seen. With few rows the best network has 50 to 400 steps, and then
learns its rows by heart; so the gain that the blend promises on held-out rows is watched, and the
averaged weights of the best step are kept. While there is time, further networks from other starts
follow; each is kept if the mean of all predicts better.

Rows are held out in *parts*. One part is enough for thousands of rows. For fewer, the parts are the
folds of a cross-validation, each with a reference and networks of its own: every row is held out
once, and the final model averages the networks of all parts, beside the reference of all rows.

The blend minimises errors of noise, not the likelihood: it is accepted only if the mean
log-likelihood of held-out rows, along the flow, exceeds that of the reference by more than the
standard error of their difference.
"""

from __future__ import annotations

import copy
import itertools
import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from oism._core import checks
from oism._core.draws import seeded
from oism._core.progress import progress_bar
from oism._core.transforms import in_parallel, threads_apart
from oism._core.user_warnings import warn
from oism.flow import FittedModel
from oism.nn import RowNetwork
from oism.tables._network_blend import (
    LEVELS,
    Blend,
    best_share,
    expected_gain,
    level_grid,
)
from oism.tables._network_model import BlendedModel
from oism.tables._network_space import NoiseSpace, noise_space

FEW_ROWS = 3000
"""Up to this number of rows networks are small, and several are trained on each part."""

MEMBERS = 3
"""The largest number of networks of each part, for few rows; one for many."""

LARGEST_DECAY = 0.999
"""Weights are averaged with the decay (1 + k)/(10 + k) after k steps, at most this."""

CHECKED = 24_000
"""The number of noised held-out rows by which networks are judged, over all parts and levels."""

JUDGED = 1000
"""The largest number of held-out rows of a part whose log-likelihood is computed."""

PILOTS = 128
TOLERANCE = 1e-2
"""The number of steps is large enough when the next one changes log-densities of so many held-out
rows by less than this, in the mean square.
"""


@dataclass(frozen=True, eq=False)
class Part:
    """Rows ``(n, d)`` to train on, and held-out rows, which the reference has not seen either."""

    reference: FittedModel
    train: Tensor
    held: Tensor


@dataclass(frozen=True, eq=False)
class NetworkFit:
    """A blended model with what held-out rows say of it.

    ``held`` has one tensor ``(m, 2)`` for each part: log-densities, by the part's reference and by
    its blend, of the first m of its held-out rows. ``gain`` and ``error`` are the mean of their
    differences, in nats, and its standard error.
    """

    model: BlendedModel
    held: tuple[Tensor, ...]
    gain: float
    error: float


@dataclass(frozen=True)
class Size:
    """The size of networks, and how they are trained."""

    width: int
    depth: int
    rate: float
    batch: int
    members: int
    stops: bool  # where the gain has not grown for long; with many rows it grows late

    @classmethod
    def of(cls, rows: int, *, angles: bool) -> Size:
        """Return the size for a number of rows; ``angles`` for rows that are encoded by waves."""
        if rows <= FEW_ROWS:
            return cls(width=128, depth=3, rate=2e-3, batch=256, members=MEMBERS, stops=True)
        if angles:  # at most three columns: many steps matter more than many weights
            return cls(width=128, depth=3, rate=3e-3, batch=512, members=1, stops=False)
        return cls(width=256, depth=3, rate=1e-3, batch=512, members=1, stops=False)


class Budget:
    """What one part may use: seconds from the first question on, or steps of each network."""

    def __init__(
        self, seconds: float | None, steps: int | None, report: Callable[[float], None]
    ) -> None:
        self._seconds, self._steps, self._report = seconds, steps, report
        self._start: float | None = None  # the first optimiser of a process takes seconds to make
        self._done = 0.0

    def leaves(self, step: int) -> bool:
        """Return whether another step may follow, and report progress."""
        if self._steps is not None:
            return step < self._steps
        now = time.monotonic()
        self._start = now if self._start is None else self._start
        share = min(1.0, (now - self._start) / (self._seconds or 1.0))
        self.reach(share)
        return share < 1

    def reach(self, share: float) -> None:
        """Report the share that is used."""
        if share > self._done + 1e-3 or share >= 1 > self._done:
            self._report(share - self._done)
            self._done = share


@dataclass(frozen=True, eq=False)
class Draws:
    """Noised held-out rows at every level: ``(levels, m, d)``, and what the reference predicts."""

    noised: Tensor
    levels: Tensor
    noise: Tensor
    known: Tensor

    @classmethod
    def of(cls, space: NoiseSpace, held: Tensor, count: int, generator: torch.Generator) -> Draws:
        """Return about ``count`` draws, each row equally often at every level."""
        levels = level_grid(space.ends)
        m = max(1, count // len(levels))
        turn = torch.randperm(len(held), generator=generator).repeat(-(-m // len(held)))[:m]
        noise = torch.randn(len(levels), m, held.shape[1], generator=generator).to(held)
        alpha, sigma = (one[:, None, None].to(held) for one in space.scales(levels))
        noised = alpha * held[turn] + sigma * noise
        known = torch.stack(
            [space.noise(z, level) for z, level in zip(noised, levels, strict=True)]
        )
        return cls(noised.float(), levels.float(), noise.float(), known.float())

    def predicted(self, network: RowNetwork) -> Tensor:
        """Return what a network predicts: ``(levels, m, d)``."""
        with torch.no_grad():
            pairs = zip(self.noised, self.levels, strict=True)
            return torch.stack([network(z, level) for z, level in pairs])

    def products(self, predicted: Tensor) -> Tensor:
        """Return the averages that the share is made of: ``(2, levels)``."""
        gap = predicted - self.known
        both = torch.stack(((self.noise - self.known) * gap, gap.square()))
        return both.sum(dim=3).double().mean(dim=2)


def train_networks(  # noqa: PLR0913, PLR0917
    space: NoiseSpace,
    networks: Sequence[RowNetwork],
    rows: Tensor,
    draws: Draws,
    size: Size,
    budget: Budget,
    generator: torch.Generator,
) -> tuple[list[RowNetwork], Tensor]:
    """Return the trained networks that are kept, at least one, and the products of their mean."""
    kept: list[RowNetwork] = []
    total = torch.zeros_like(draws.known)
    best, products = -math.inf, torch.zeros(2, LEVELS, dtype=torch.float64)
    for network in networks:
        if kept and not budget.leaves(0):
            break
        count = len(kept) + 1

        def gain(found: RowNetwork, total: Tensor = total, count: int = count) -> float:
            mean = (total + draws.predicted(found)) / count
            return expected_gain(draws.products(mean), space.ends)

        found, reached = _train(space, network, rows, gain, size, budget, generator)
        if kept and reached <= best:
            continue
        kept.append(found)
        total, best = total + draws.predicted(found), reached
        products = draws.products(total / count)
    budget.reach(1.0)
    return kept, products


@torch.enable_grad()
def _train(  # noqa: PLR0913, PLR0917
    space: NoiseSpace,
    network: RowNetwork,
    rows: Tensor,
    gain: Callable[[RowNetwork], float],
    size: Size,
    budget: Budget,
    generator: torch.Generator,
) -> tuple[RowNetwork, float]:
    """Return the averaged network of the step with the largest gain, and this gain."""
    averaged = copy.deepcopy(network).requires_grad_(False)
    optimiser = torch.optim.Adam(network.parameters(), lr=size.rate)
    signs = space.reflections.any()
    best, best_step, kept = -math.inf, 0, copy.deepcopy(averaged)
    step, check = 0, 25
    while budget.leaves(step):
        x = rows[torch.randint(len(rows), (size.batch,), generator=generator)]
        if signs:
            flips = torch.rand(x.shape, generator=generator) < 0.5
            x = torch.where(flips & space.reflections, -x, x)
        # One level in each of as many intervals as there are rows.
        offset = torch.rand((), generator=generator)
        place = (torch.arange(size.batch) + offset) / size.batch
        level = torch.lerp(torch.tensor(space.ends[0]), torch.tensor(space.ends[1]), place)
        alpha, sigma = (one[:, None] for one in space.scales(level))
        noise = torch.randn(x.shape, generator=generator)
        loss = (network(alpha * x + sigma * noise, level) - noise).square().mean()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        step += 1
        decay = min(LARGEST_DECAY, (1 + step) / (10 + step))
        with torch.no_grad():
            for own, other in zip(averaged.parameters(), network.parameters(), strict=True):
                own.lerp_(other, 1 - decay)
        if step < check and budget.leaves(step):
            continue
        check = max(step + 25, int(1.15 * step))
        reached = gain(averaged)
        if reached > best:
            best, best_step, kept = reached, step, copy.deepcopy(averaged)
        elif size.stops and step > 1.6 * best_step + 100:
            break
    return kept, best


def fit_network(  # noqa: PLR0913
    reference: FittedModel,
    train: Tensor,
    held: Tensor,
    *,
    seconds: float | None = None,
    steps: int | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> BlendedModel | None:
    """Return a reference with a network beside it, or None where held-out rows do not gain.

    Parameters
    ----------
    reference
        A `MixtureModel`, or a `TableModel` on the torus, fitted to the rows to train on.
    train, held
        Rows ``(n, d)`` to train on, and rows that the reference has not seen.
    seconds, steps
        The time for training; or the largest number of steps of each network, which gives the same
        model on every machine. One of them must be given.
    seed
        Of the networks' weights, and of all noise.
    progress
        Show a progress bar; by default on a terminal, when it takes more than a second.
    """
    part = Part(reference, train, held)
    fit = cross_fit_network(
        reference, [part], seconds=seconds, steps=steps, seed=seed, progress=progress
    )
    return None if fit is None else fit.model


def cross_fit_network(
    reference: FittedModel,
    parts: Sequence[Part],
    *,
    seconds: float | None = None,
    steps: int | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> NetworkFit | None:
    """Return a reference with the networks of several parts beside it, or None without a gain.

    ``reference`` is fitted to all rows, those of the parts to the rows that they do not hold out.
    Other arguments are those of `fit_network`; the seconds are those of all parts together.
    """
    if (seconds is None) == (steps is None):
        raise ValueError("either seconds or steps must be given, and not both")
    seconds = None if seconds is None else checks.positive(seconds, "seconds")
    steps = None if steps is None else checks.integer(steps, "steps", minimum=1)
    seed = checks.integer(seed, "seed", minimum=0)
    if not parts:
        raise ValueError("parts must hold at least one part")
    parts = [
        Part(
            part.reference,
            checks.points(part.train, "train", dim=reference.dim).double(),
            checks.points(part.held, "held", dim=reference.dim).double(),
        )
        for part in parts
    ]
    every = torch.cat((parts[0].train, parts[0].held))
    space = noise_space(reference, every)
    spaces = [space.of_part(part.reference, part.train) for part in parts]
    train = [own.coordinates(part.train) for own, part in zip(spaces, parts, strict=True)]
    held = [own.coordinates(part.held) for own, part in zip(spaces, parts, strict=True)]
    if min(map(len, train)) < 2 or min(map(len, held)) < 2:
        return None  # nothing to train on, or nothing to judge by
    size = Size.of(len(every), angles=space.waves > 0)
    with seeded(seed):
        made = [
            [
                RowNetwork(reference.dim, width=size.width, depth=size.depth, waves=space.waves)
                for _ in range(size.members)
            ]
            for _ in parts
        ]
    workers = min(len(parts), torch.get_num_threads())
    each = None if seconds is None else seconds / math.ceil(len(parts) / workers)

    with progress_bar(progress) as bar:
        advance = bar.shares("networks")

        def trained(k: int) -> tuple[list[RowNetwork], Tensor]:
            generator = torch.Generator().manual_seed(seed + k)
            draws = Draws.of(spaces[k], held[k], CHECKED // len(parts), generator)
            budget = Budget(each, steps, lambda share: advance(share / len(parts)))
            return train_networks(
                spaces[k], made[k], train[k].float(), draws, size, budget, generator
            )

        # A part for each thread, or all threads for the only part.
        with threads_apart() if len(parts) > 1 else nullcontext():
            found = in_parallel(trained, range(len(parts)))

    weights = torch.tensor([len(rows) for rows in held], dtype=torch.float64)
    products = torch.stack([products for _, products in found])
    share = best_share((weights[:, None, None] * products).sum(dim=0) / weights.sum())
    if not bool((share > 0).any()):
        return None
    background = 1 / (len(every) + 1)

    def blended(space: NoiseSpace, networks: Sequence[RowNetwork], steps: int) -> BlendedModel:
        whole = Blend(tuple(networks), share, space.ends, space.reflections)
        return space.blended(whole.eval(), steps, background)

    flow_steps = _converged_steps(
        space.steps(), lambda count: blended(spaces[0], found[0][0], count), parts[0].held
    )
    tables = []
    for part, own, (networks, _) in zip(parts, spaces, found, strict=True):
        model, rows = blended(own, networks, flow_steps), part.held[:JUDGED]
        pair = part.reference.log_density(rows), model.log_density(rows, progress=progress)
        tables.append(torch.stack(pair, dim=1))
    change = torch.cat(tables).diff(dim=1)[:, 0]
    gain, error = float(change.mean()), float(change.std() / math.sqrt(len(change)))
    if not gain > error:  # also where one of them is NaN
        return None
    model = blended(space, [one for networks, _ in found for one in networks], flow_steps)
    return NetworkFit(model.eval(), tuple(tables), gain, error)


def _converged_steps(
    tried: Sequence[int], make: Callable[[int], BlendedModel], rows: Tensor
) -> int:
    """Return the first number of steps that the next one changes by less than the tolerance."""
    pilots = rows[:PILOTS]
    before = make(tried[0]).log_density(pilots, progress=False)
    for few, many in itertools.pairwise(tried):
        now = make(many).log_density(pilots, progress=False)
        change = float((now - before).square().mean().sqrt())
        if change < TOLERANCE:
            return few
        before = now
    warn(
        f"log-densities along the flow of the network still change by {change:.2g} nats between "
        f"{tried[-2]} and {tried[-1]} steps: columns that determine each other almost exactly "
        "need more; leave one of them out, or do without the network"
    )
    return tried[-1]
