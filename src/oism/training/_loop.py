"""The training loop: draw, predict, differentiate, clip, step, average.

Hugging Face accelerate places the model, wraps it for several processes and reduces gradients. No
step reads a value from the device: losses and norms of gradients are summed there and read once in
a while, and so is the number of the first step whose loss was not finite.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from oism._core.extras import require
from oism._core.hashing import seed_from
from oism._core.progress import progress_bar
from oism.flow import NoisePredictor
from oism.nn import (
    Informed,
    as_informed,
    compile_blocks,
    eval_mode,
    half_precision,
    trained_network,
)
from oism.objectives import DenoisingScoreMatching, UniformLogSNR
from oism.training._average import Average
from oism.training._config import TrainingConfig
from oism.training._data import Rows
from oism.training._draws import Batch, Draws
from oism.training._recording import Recording

if TYPE_CHECKING:
    from accelerate import Accelerator

NEVER = -1

CALIBRATION_BATCH, LEAST, MOST = 256, 512, 4096
"""The number of rows of calibration: at a time, at least and at most.

In between, as many as the network was trained on: a run of a few steps does not end with a long
calibration.
"""

INTERVALS = 6
"""The number of equal intervals of the log-SNR in which the error of the model is reported."""


class DivergedError(RuntimeError):
    """The loss, the weights or the predictions are not finite."""


@dataclass(frozen=True)
class Report:
    """Means over the steps since the last report; ``step`` is the number of the last one."""

    step: int
    loss: float
    gradient: float
    rate: float


@dataclass(frozen=True)
class ModelError:
    """The error of the predicted noise, per dimension, of the model with average weights.

    ``mean`` is that over times uniform in the log-SNR; ``by_level`` those in equal
    intervals of the log-SNR, low noise first, NaN for an interval without draws.
    """

    mean: float
    by_level: tuple[float, ...]


class Loop:
    """A predictor in training: weights, their average, the optimiser, and the number of the step.

    Parameters
    ----------
    predictor
        The module that is trained: a network, an `OperatorInformed` or a `Combined`.
    rows
        The data.
    objective
        The loss, with the distribution of its times.
    config
        The configuration of the run.
    accelerator
        That of accelerate, by default one from `new_accelerator`.
    """

    def __init__(
        self,
        predictor: nn.Module,
        rows: Rows,
        objective: DenoisingScoreMatching,
        config: TrainingConfig,
        accelerator: Accelerator | None = None,
    ) -> None:
        accelerator = new_accelerator() if accelerator is None else accelerator
        self.config, self.objective, self.accelerator = config, objective, accelerator
        self.device = accelerator.device
        self.draws = Draws(
            rows.to(self.device), objective.levels, size=config.batch, seed=config.seed,
            flip=config.flip, rank=accelerator.process_index, world=accelerator.num_processes,
            dropped=config.dropped_labels,
        )  # fmt: skip
        self.predictor = predictor.to(self.device).train()  # one from a file is in eval mode
        self.net, self.informed = trained_network(predictor), as_informed(predictor)
        alone = self.informed is not None and self.informed.trains_net_alone
        trained = self.net if alone else self.predictor
        if config.compile:
            compile_blocks(self.predictor)
        optimiser = torch.optim.Adam(
            self.net.parameters(), lr=config.rate, fused=self.device.type == "cuda"
        )
        self.model, self.optimiser = accelerator.prepare(trained, optimiser)
        self.average = Average(self.net, config.decay)
        self.step_number = 0
        self._calibrated = NEVER
        self._sums = torch.zeros(2, device=self.device)
        self._since = 0
        self._diverged = torch.full((), NEVER, dtype=torch.long, device=self.device)
        self._recorded: Recording | None = None

    def step(self) -> None:
        """Take one step."""
        k, config = self.step_number, self.config
        loss = self.differentiate(self.draws.step(k))
        norm = self.accelerator.clip_grad_norm_(self.net.parameters(), config.clip)
        assert norm is not None
        for group in self.optimiser.param_groups:
            group["lr"] = config.rate_at(k)
        self.optimiser.step()
        self.step_number = k + 1
        self.average.update(k + 1)
        self._record(loss.detach(), norm.detach())

    def differentiate(self, batch: Batch) -> Tensor:
        """Return the loss of a batch, and set the gradients of the parameters."""
        if self._recorded is None and self.config.compile and self._can_record:
            self._recorded = Recording(self._differentiate, batch)
        return self._differentiate(batch) if self._recorded is None else self._recorded(batch)

    @property
    def _can_record(self) -> bool:
        return self.device.type == "cuda" and int(self.accelerator.num_processes) == 1

    def _differentiate(self, batch: Batch) -> Tensor:
        self.optimiser.zero_grad()
        # Not accelerate's own precision: that is one for the whole process, with all its runs.
        with half_precision(self.device, self.config.precision):
            predict = labelled(self.model, batch.labels)
            loss = self.objective.loss(predict, batch.x, batch.tau, batch.noise)
        self.accelerator.backward(loss)
        return loss

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Within, the network has the average weights, and the predictor is calibrated for them.

        Nothing is compiled for the batches of evaluation and sampling.
        """
        with self.average.applied(), torch.compiler.set_stance("force_eager"):
            self._calibrate()
            yield

    def finish(self) -> None:
        """Replace the weights by their averages, and calibrate the predictor for them."""
        self.average.copy_to_module()
        with torch.compiler.set_stance("force_eager"):
            self._calibrate()

    @torch.no_grad()
    def model_error(self) -> ModelError:
        """Return the error of the predictor on the draws of calibration; call it within `averaged`.

        It includes the prior, if there is one; the loss of training may be that of the network
        alone.
        """
        noising = self.objective.noising
        highest, lowest = noising.log_snr_range(self.config.first)
        sums = torch.zeros(2, INTERVALS, dtype=torch.float64)
        with eval_mode(self.predictor), half_precision(self.device, self.config.precision):
            for batch in self._calibration_batches("error of the model"):
                predict = labelled(self.predictor, batch.labels)
                errors = self.objective.errors(predict, batch.x, batch.tau, batch.noise)
                errors = errors.double().cpu()
                log_snr = noising.log_snr(batch.tau.double().cpu())
                place = (INTERVALS * (highest - log_snr) / (highest - lowest)).long()
                counted = torch.stack((errors, torch.ones_like(errors)))
                sums.index_add_(1, place.clamp(0, INTERVALS - 1), counted)
        total, count = sums
        return ModelError(float(total.sum() / count.sum()), tuple((total / count).tolist()))

    def _calibrate(self) -> None:
        """Calibrate a predictor with a prior for the present weights, once for every step."""
        if self._calibrated != self.step_number and self.informed is not None:
            self.calibrate(self.informed)
            self._calibrated = self.step_number

    def calibrate(self, informed: Informed) -> None:
        """Calibrate a predictor on the draws of calibration, for the weights of its network.

        So the network of a run can be combined with any number of priors, without training it
        again: ``loop.calibrate(Combined(loop.net, prior))`` within `averaged`.
        """
        noised = self.objective.noised
        draws = (
            (noised(one.x, one.tau, one.noise), one.tau, one.noise)
            + (() if one.labels is None else (one.labels,))
            for one in self._calibration_batches("calibrating")
        )
        try:
            with half_precision(self.device, self.config.precision):
                informed.calibrate(draws)
        except FloatingPointError as error:  # the weights may still be finite
            step = self.step_number
            raise DivergedError(f"predictions were not finite after step {step}") from error

    def _calibration_batches(self, stage: str) -> Iterator[Batch]:
        """Yield the batches of calibration, which are determined by the seed alone."""
        rows, config = self.draws.rows, self.config
        size = min(len(rows), CALIBRATION_BATCH)
        levels = UniformLogSNR(self.objective.noising, config.first)
        draws = Draws(rows, levels, size=size, seed=seed_from(config.seed, 2), flip=config.flip)
        count = min(max(self.step_number * config.batch, LEAST), MOST)
        batches = -(-count // size)
        with progress_bar(None) as bar:
            bar.stage(stage, batches)
            for k in range(batches):
                yield draws.batch(k)
                bar.advance(1)

    def _record(self, loss: Tensor, norm: Tensor) -> None:
        self._sums += torch.stack((loss, norm)).to(self._sums)
        self._since += 1
        new = ~(loss.isfinite() & norm.isfinite()) & (self._diverged == NEVER)
        self._diverged = torch.where(new, self.step_number, self._diverged)

    def report(self) -> Report:
        """Return the means since the last report over all processes.

        Raises `DivergedError` if a loss or its gradient was not finite.
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
        rate = self.config.rate_at(self.step_number - 1)
        return Report(self.step_number, loss, norm, rate)

    def check_finite(self) -> None:
        """Raise `DivergedError` unless all weights are finite.

        The loss does not show it: it is that of the weights before its step.
        """
        parts = [*self.net.parameters(), *self.average.values]
        if not bool(torch.stack([part.detach().isfinite().all() for part in parts]).all()):
            raise DivergedError(f"weights were not finite after step {self.step_number}")


def labelled(predictor: nn.Module, labels: Tensor | None) -> NoisePredictor:
    """Return a predictor of tensors with given labels, if there are any."""
    return predictor if labels is None else partial(predictor, labels=labels)


def new_accelerator(*, cpu: bool = False) -> Accelerator:
    """Return the accelerator of a run, for the device and the processes of the launch."""
    accelerate = require("accelerate", "train", purpose="training")
    utilities = require("accelerate.utils", "train", purpose="training")
    # The prior's tables are buffers, equal in every process: they need not be sent.
    quiet = utilities.DistributedDataParallelKwargs(broadcast_buffers=False)
    # The precision is a setting of the run, not of `accelerate launch`.
    made: Accelerator = accelerate.Accelerator(
        cpu=cpu, mixed_precision="no", kwargs_handlers=[quiet]
    )
    return made
