"""The loop: draw, predict, differentiate, clip, step, average.

Hugging Face accelerate is the engine: it places the model, wraps it for several processes, and
reduces gradients. Nothing in a step reads a value from the device; losses and the norms of
gradients are summed there and read every so often, and the first step whose loss was not finite is
remembered there too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs
from torch import Tensor, nn

from oism.nn import Combined, Informed
from oism.nn._contexts import half_precision
from oism.nn._ddpmpp import Block
from oism.objectives import DenoisingScoreMatching, UniformLogSNR
from oism.training._average import Average
from oism.training._data import Rows
from oism.training._draws import Batch, Draws, mixed
from oism.training._recording import Recording
from oism.training._settings import Training

NEVER = -1

WEIGHED, LEAST, MOST = 256, 512, 4096
"""How many rows the share of a network is settled on: at a time, at least and at most.

In between, as many as it was trained on: a run of a few steps does not end in a long weighing.
"""


class DivergedError(RuntimeError):
    """The loss is no longer a number."""


@dataclass(frozen=True)
class Report:
    """Means over the steps since the last report, the last of them being number ``step``."""

    step: int
    loss: float
    gradient: float
    rate: float


class Loop:
    """A predictor in training: weights, their average, the optimiser, and the number of the step.

    Parameters
    ----------
    predictor
        The module that is trained: a network, an `OperatorInformed` around one, or a `Combined`.
    rows
        The data.
    objective
        The loss, with the law of its times.
    settings
        The settings of the run.
    accelerator
        The engine; `engine()` makes one.
    """

    def __init__(
        self,
        predictor: nn.Module,
        rows: Rows,
        objective: DenoisingScoreMatching,
        settings: Training,
        accelerator: Accelerator,
    ) -> None:
        self.settings, self.objective, self.accelerator = settings, objective, accelerator
        self.device = accelerator.device
        self.draws = Draws(
            rows.to(self.device), objective.levels, size=settings.batch, seed=settings.seed,
            flip=settings.flip, rank=accelerator.process_index, world=accelerator.num_processes,
        )  # fmt: skip
        self.predictor = predictor.to(self.device).train()  # a model from a file is at rest
        self.net = net_of(self.predictor)
        if settings.compile:
            compile_parts(self.predictor)
        optimiser = torch.optim.Adam(
            self.net.parameters(), lr=settings.rate, fused=self.device.type == "cuda"
        )
        # A network that is combined with a prior learns by itself.
        alone = isinstance(predictor, Combined)
        self.model, self.optimiser = accelerator.prepare(
            self.net if alone else self.predictor, optimiser
        )
        self.average = Average(self.net, settings.decay)
        self.step_number = 0
        self._weighed = NEVER
        self._sums = torch.zeros(2, device=self.device)
        self._since = 0
        self._diverged = torch.full((), NEVER, dtype=torch.long, device=self.device)
        self._recorded: Recording | None = None

    def step(self) -> None:
        """Take one step."""
        k, settings = self.step_number, self.settings
        loss = self.differentiate(self.draws.step(k))
        norm = self.accelerator.clip_grad_norm_(self.net.parameters(), settings.clip)
        assert norm is not None
        for group in self.optimiser.param_groups:
            group["lr"] = settings.rate_at(k)
        self.optimiser.step()
        self.step_number = k + 1
        self.average.update(k + 1)
        self._note(loss.detach(), norm.detach())

    def differentiate(self, batch: Batch) -> Tensor:
        """Return the loss of a batch, and leave its gradients with the parameters."""
        if self._recorded is None and self.settings.compile and self._can_record:
            self._recorded = Recording(self._differentiate, batch)
        return self._differentiate(batch) if self._recorded is None else self._recorded(batch)

    @property
    def _can_record(self) -> bool:
        return self.device.type == "cuda" and int(self.accelerator.num_processes) == 1

    def _differentiate(self, batch: Batch) -> Tensor:
        self.optimiser.zero_grad()
        # Not accelerate's own: that is one for the whole of a process, whatever runs it holds.
        with half_precision(self.device, self.settings.precision):
            loss = self.objective.loss(self.model, batch.x, batch.tau, batch.noise)
        self.accelerator.backward(loss)
        return loss

    @contextmanager
    def settled(self) -> Iterator[None]:
        """Within, the network has the average weights, and no part of it is compiled anew.

        Measuring and drawing come with other batches than training does. Where it is combined with
        a prior, its share is settled for these weights.
        """
        with self.average.applied(), torch.compiler.set_stance("force_eager"):
            if isinstance(self.predictor, Combined):
                self._weigh(self.predictor)
            yield

    def _weigh(self, predictor: Combined) -> None:
        """Settle what the network counts, on rows and noise that follow from the seed alone."""
        if self._weighed == self.step_number:
            return
        rows, settings = self.draws.rows, self.settings
        size = min(len(rows), WEIGHED)
        levels = UniformLogSNR(self.objective.noising, predictor.first)
        objective = DenoisingScoreMatching(levels)
        draws = Draws(rows, levels, size=size, seed=mixed(settings.seed, 2), flip=settings.flip)
        count = min(max(self.step_number * settings.batch, LEAST), MOST)
        batches = (draws.step(k) for k in range(-(-count // size)))
        noised = (
            (objective.noised(one.x, one.tau, one.noise), one.tau, one.noise) for one in batches
        )
        try:
            with half_precision(self.device, settings.precision):
                predictor.weigh(noised)
        except FloatingPointError as error:  # weights may be finite still
            step = self.step_number
            raise DivergedError(f"predictions were not finite after step {step}") from error
        self._weighed = self.step_number

    def _note(self, loss: Tensor, norm: Tensor) -> None:
        self._sums += torch.stack((loss, norm)).to(self._sums)
        self._since += 1
        new = ~(loss.isfinite() & norm.isfinite()) & (self._diverged == NEVER)
        self._diverged = torch.where(new, self.step_number, self._diverged)

    def report(self) -> Report:
        """Return the means since the last report over all processes, and begin anew.

        Raises `DivergedError` where the loss or its gradient was not finite.
        """
        where = self.accelerator.gather(self._diverged.reshape(1))
        assert isinstance(where, Tensor)
        bad = where[where != NEVER]
        if len(bad):
            raise DivergedError(f"the loss or its gradient was not finite in step {int(bad.min())}")
        sums = self.accelerator.reduce(self._sums / max(1, self._since), reduction="mean")
        assert isinstance(sums, Tensor)
        loss, norm = sums.tolist()
        self._sums.zero_()
        self._since = 0
        rate = self.settings.rate_at(self.step_number - 1)
        return Report(self.step_number, loss, norm, rate)

    def demand_finite(self) -> None:
        """Raise `DivergedError` unless all weights are finite; the last step may have spoilt them.

        A loss is that of the weights before its step.
        """
        parts = [*self.net.parameters(), *self.average.values]
        if not bool(torch.stack([part.detach().isfinite().all() for part in parts]).all()):
            raise DivergedError(f"weights were not finite after step {self.step_number}")


def engine(*, cpu: bool = False) -> Accelerator:
    """Return the engine of a run, on the device and with the processes it was launched with."""
    # The prior's tables are buffers, equal everywhere: nothing of them is to be sent around.
    quiet = DistributedDataParallelKwargs(broadcast_buffers=False)
    # Precision is a setting of the run, whatever `accelerate launch` is configured to.
    return Accelerator(cpu=cpu, mixed_precision="no", kwargs_handlers=[quiet])


def net_of(predictor: nn.Module) -> nn.Module:
    """Return the network that is trained: that beside a prior, or all there is."""
    return predictor.net if isinstance(predictor, Informed) else predictor


def compile_parts(predictor: nn.Module) -> None:
    """Compile what repeats, block by block: a minute instead of several, and for all arms."""
    blocks = [part for part in predictor.modules() if isinstance(part, Block)]
    # Every width and resolution is a variant of the same code.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 64)
    for block in blocks:
        block.compile()
