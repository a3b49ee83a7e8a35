"""A spline flow of zuko for tables, with its size and weight decay chosen on held-out rows.

Several forms are trained one after another within the given time; the weights with the lowest loss
on a held-out sixth of the training rows are used. Each form is trained by AdamW, and the rate falls
to zero along a cosine over the time that is left when it is begun. The held-out loss is computed
after every epoch, but at least 20 steps apart. Where it has not fallen for 10 computations,
training continues from the best weights with a third of the rate, and ends the third time. So
tables with few rows, where an epoch is one step, are not stopped too early. A form is begun only if
a third of the time is left.

The forms for few rows were chosen by held-out training rows of a split that no table of results
uses; the first for many rows has the size, rate and batch that `density.py` uses.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
import zuko
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]

HELD_OUT = 6
APART = 20
PATIENCE = 10
DROPS = 3


@dataclass(frozen=True)
class Form:
    """The size of a flow and its optimiser's settings."""

    transforms: int
    hidden: int
    bins: int
    rate: float
    decay: float
    batch: int = 256


FEW = (
    Form(2, 16, 4, 2e-3, 1e-1),
    Form(3, 64, 8, 1e-3, 1e-2),
    Form(3, 128, 8, 1e-3, 1.0),
    Form(5, 32, 8, 1e-3, 1e-1),
)
MANY = (Form(3, 64, 16, 5e-3, 1e-4, 512), Form(5, 128, 8, 1e-3, 1e-4))
"""Forms for up to and for more than 2,000 rows."""

FEW_ROWS = 2000


class TableFlow:
    """A trained flow, in the units of the data."""

    def __init__(self, x: Array, periodic: Mapping[int, float] | None) -> None:
        self.circular = bool(periodic)
        if periodic and set(periodic) != set(range(x.shape[1])):
            raise ValueError(f"periodic must name all {x.shape[1]} columns or none, got {periodic}")
        self.shift, self.scale = x.mean(axis=0), x.std(axis=0)
        if periodic:
            self.shift = np.zeros(x.shape[1])
            self.scale = np.array([periodic[j] for j in range(x.shape[1])]) / (2 * math.pi)
        self.flow: Any = None
        self.loss = math.inf
        self.notes: dict[str, object] = {}

    def scaled(self, x: Array) -> Tensor:
        """Return standardised columns, or angles in [-π, π)."""
        z = (x - self.shift) / self.scale
        if self.circular:
            z = np.remainder(z + math.pi, 2 * math.pi) - math.pi
        return torch.from_numpy(z).float()

    @torch.no_grad()
    def score_samples(self, x: Array) -> Array:
        """Return log-densities in the units of the data."""
        pieces = torch.split(self.scaled(x), 10_000)
        logs = torch.cat([self.flow().log_prob(piece) for piece in pieces]).double().numpy()
        result: Array = logs - np.log(self.scale).sum()
        return result

    def offer(self, form: Form, train: Tensor, held: Tensor, end: float) -> float:
        """Train one form, keep it where its held-out loss is the lowest, and return this loss."""
        kind = zuko.flows.NCSF if self.circular else zuko.flows.NSF
        flow = kind(
            features=train.shape[1],
            transforms=form.transforms,
            hidden_features=(form.hidden, form.hidden),
            bins=form.bins,
        )
        loss, steps, best_step = train_flow(flow, form, train, held, end)
        if loss < self.loss:
            self.flow, self.loss = flow, loss
            self.notes = {**asdict(form), "steps": steps, "best step": best_step}
        return loss


def train_flow(
    flow: Any,  # noqa: ANN401
    form: Form,
    train: Tensor,
    held: Tensor,
    end: float,
) -> tuple[float, int, int]:
    """Return the lowest held-out loss, the steps and the best step, and load its weights."""
    optimiser = torch.optim.AdamW(flow.parameters(), lr=form.rate, weight_decay=form.decay)
    best, kept, best_step = math.inf, flow.state_dict(), 0
    steps = computed = waited = drops = 0
    begin, passed = time.perf_counter(), 0.0
    while drops < DROPS and passed < 1:
        for some in torch.split(train[torch.randperm(len(train))], form.batch):
            passed = min(1.0, (time.perf_counter() - begin) / (end - begin))
            for group in optimiser.param_groups:
                group["lr"] = form.rate / 2 * (1 + math.cos(math.pi * passed)) / DROPS**drops
            optimiser.zero_grad()
            (-flow().log_prob(some).mean()).backward()
            torch.nn.utils.clip_grad_norm_(flow.parameters(), 10.0)
            optimiser.step()
            steps += 1
            if passed == 1:
                break
        if steps - computed < APART and passed < 1:
            continue
        computed, waited = steps, waited + 1
        with torch.no_grad():
            loss = -float(flow().log_prob(held).mean())
        if loss < best:
            best, best_step, waited = loss, steps, 0
            kept = {name: value.clone() for name, value in flow.state_dict().items()}
        elif waited == PATIENCE:
            drops, waited = drops + 1, 0
            flow.load_state_dict(kept)
    flow.load_state_dict(kept)
    return best, steps, best_step


def fit_best_flow(
    x: Array, seconds: float, seed: int = 0, periodic: Mapping[int, float] | None = None
) -> TableFlow:
    """Return the form with the lowest held-out loss, trained for at most so many seconds."""
    start = time.perf_counter()
    result = TableFlow(x, periodic)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        z = result.scaled(x)[torch.randperm(len(x))]
        held, train = z[: len(z) // HELD_OUT], z[len(z) // HELD_OUT :]
        for form in FEW if len(x) <= FEW_ROWS else MANY:
            if result.flow is None or time.perf_counter() - start < 2 / 3 * seconds:
                result.offer(form, train, held, start + seconds)
    return result
