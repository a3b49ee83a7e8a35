"""A training run in its folder, from the first step to the last; see `oism.training._folder`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from oism._core import checks
from oism._core.atomic import remove_drafts
from oism._core.locking import FileLock
from oism._core.plain import plain
from oism._core.progress import Progress, progress_bar
from oism.flow import TensorSpec
from oism.nn import Diffusion, as_informed
from oism.objectives import DenoisingScoreMatching, NoiseLevels, UniformLogSNR
from oism.process import Clock, Noising, OrnsteinUhlenbeck, VariancePreserving
from oism.sampling import LEVELS, PATHS
from oism.training import _checkpoint as checkpoint
from oism.training import _folder as places
from oism.training._checkpoint import Checkpoint, CheckpointError
from oism.training._compatibility import (
    check_alike,
    check_clock,
    completed,
    difference_text,
    differences,
    settings_of,
)
from oism.training._config import TrainingConfig
from oism.training._data import rows_of
from oism.training._loop import NEVER, DivergedError, Loop, ModelError, new_accelerator
from oism.training._metrics import Metrics

if TYPE_CHECKING:
    from accelerate import Accelerator

FEWEST_PATHS = 16
"""The smallest number of paths on which the residual of a prior is measured.

As in calibration, a run of a few steps does not end with a long measurement.
"""

Draw = Callable[[Path, Diffusion], None]
"""Draws samples of a model to a file."""

Listener = Callable[[str], None]
"""Gets a line about the progress of a run."""


def train(  # noqa: PLR0913
    predictor: nn.Module,
    data: object,
    folder: str | os.PathLike[str],
    config: TrainingConfig | None = None,
    *,
    clock: Clock | None = None,
    levels: NoiseLevels | None = None,
    objective: DenoisingScoreMatching | None = None,
    resume: bool = False,
    draw: Draw | None = None,
    accelerator: Accelerator | None = None,
) -> Diffusion:
    """Return a model that was trained in a folder: a network, with a prior or alone.

    The model has the average weights. The predictor is changed in place and becomes a part of it.
    `oism.load(folder)` returns the model of the newest checkpoint, also during training.

    Parameters
    ----------
    predictor
        The noise predictor: a network ``net(x, tau)``, a `Combined` or an `OperatorInformed`.
    data
        Tensors ``(n, *shape)``, an array, batches of them (`oism.data.files.open_images`), or
        `Rows`, which also have the range of integers other than bytes, and the labels for a network
        that takes them.
    folder
        The folder of the run. It is created if necessary.
    config
        The configuration.
    clock
        The noise levels of a network alone, by default `VariancePreserving()`. With a prior they
        are the prior's.
    levels
        The distribution of times, by default `UniformLogSNR` from ``config.first``.
    objective
        The loss, by default ``DenoisingScoreMatching(levels)``. An objective has its own levels, so
        give either. With ``net = predicting(…, "edm")``, EDM's loss is
        ``OutputMatching(NormalLogSNR(noising), net)``.
    resume
        Whether to continue from the newest checkpoint of the folder, if there is one. Otherwise a
        folder with a checkpoint is an error.
    draw
        ``draw(path, model)`` writes samples to a PNG file every ``config.sample_every`` steps.
    accelerator
        The accelerator, by default one for the device and the processes of the launch.

    Examples
    --------
    >>> from oism.nn import MLP
    >>> points = torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
    >>> config = TrainingConfig(steps=20, batch=64, flip=False)
    >>> model = train(MLP(2, width=16), points, "points", config)
    >>> model.sample(3).shape
    torch.Size([3, 2])
    """
    config = TrainingConfig() if config is None else config
    run = Run(
        folder, predictor, data, config, clock=clock, levels=levels, objective=objective,
        resume=resume, draw=draw, accelerator=accelerator,
    )  # fmt: skip
    run.run()
    return run.finished()


class Run:
    """A training run in its folder; the parameters are those of `train`.

    It holds the folder's lock from here to the end of `run`, or to `close`: two runs would mix
    their files.

    ``notes`` are stored as the entry "notes" of settings.json; ``listener`` gets lines about the
    progress.
    """

    def __init__(  # noqa: PLR0913
        self,
        folder: str | os.PathLike[str],
        predictor: nn.Module,
        data: object,
        config: TrainingConfig,
        *,
        clock: Clock | None = None,
        levels: NoiseLevels | None = None,
        objective: DenoisingScoreMatching | None = None,
        resume: bool = False,
        draw: Draw | None = None,
        accelerator: Accelerator | None = None,
        notes: Mapping[str, Any] | None = None,
        listener: Listener | None = None,
    ) -> None:
        checks.instance(predictor, nn.Module, "predictor")
        checks.instance(config, TrainingConfig, "config")
        self.folder, self.config, self.draw = Path(folder), config, draw
        self.notes, self.listener = notes, listener
        places.check_folder(self.folder, resume=resume)
        objective = objective_of(predictor, config, clock, levels, objective)
        levels, informed = objective.levels, as_informed(predictor)
        pixels = None if informed is None else informed.spec.pixels
        rows = rows_of(data, pixels, dequantise=config.dequantise)
        check_alike(predictor, rows, levels, config)
        self.rows = rows
        self.accelerator = new_accelerator() if accelerator is None else accelerator
        spec = TensorSpec(rows.shape, levels.noising.clock, rows.pixels, rows.dequantise)
        self.model = Diffusion(predictor, spec, first=levels.first, precision=config.precision)
        self._settings: dict[str, Any] = plain(settings_of(self.model, rows, objective, config))
        self._stop_error: BaseException | None = None
        self._measured = NEVER
        self.error: ModelError | None = None
        if self.accelerator.is_main_process:
            places.check_not_running(self.folder)
        found = checkpoint.read_latest(self.checkpoints)
        if found is not None:
            self._check_same(found)
        self.loop = Loop(predictor, rows, objective, config, self.accelerator)
        if found is not None:
            _restore(self.loop, found)
        # All processes have read the folder before one of them writes to it.
        self.accelerator.wait_for_everyone()
        self._lock: FileLock | None = None
        if self.accelerator.is_main_process:
            self._lock = self._locked(0 if found is None else found.step)
            try:
                self._write_settings(new=found is None)
            except BaseException:
                self.close()
                raise
        self.accelerator.wait_for_everyone()

    def _locked(self, step: int) -> FileLock:
        """Return the lock of the folder, whose newest checkpoint must still be that of a step."""
        lock, last = places.locked(self.folder), checkpoint.latest(self.checkpoints)
        if step != (0 if last is None else checkpoint.step_of(last)):
            lock.release()
            raise CheckpointError(f"{self.folder}: another run has just written there: start again")
        return lock

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.folder / places.CHECKPOINTS

    def run(self) -> None:
        """Train to the last step, write the model, and release the folder to other runs."""
        try:
            self._run()
        finally:
            self.close()

    def close(self) -> None:
        """Release the folder to other runs; `run` does so at its end."""
        if self._lock is not None:
            self._lock.release()

    def _run(self) -> None:
        loop, config = self.loop, self.config
        if not self.accelerator.is_main_process:
            self._steps(None, None)
        else:
            with Metrics(self.folder, after=loop.step_number) as metrics, progress_bar(None) as bar:
                bar.stage("training", config.steps)
                bar.reach(loop.step_number)
                self._steps(metrics, bar)
            if self.error is None:  # there was no step left
                self._measure()
                self._write_model()
        self.accelerator.wait_for_everyone()

    def finished(self) -> Diffusion:
        """Return the model, in evaluation mode, whose network has the average weights for good."""
        with self._naming_checkpoint():
            self.loop.finish()
            with torch.compiler.set_stance("force_eager"):
                self._measure_residual()
        return self.model.eval()

    def stop(self, error: BaseException) -> None:
        """Stop the run after the present step, with a checkpoint, by raising an error.

        For the handler of a signal, which may come within a step. Only for a run of one process:
        others would wait for it.
        """
        self._stop_error = error

    def _steps(self, metrics: Metrics | None, bar: Progress | None) -> None:
        loop, config = self.loop, self.config
        start = time.perf_counter()
        while loop.step_number < config.steps:
            loop.step()
            k = loop.step_number
            saves = config.saves_at(k) or self._stop_error is not None
            if k % config.log_every == 0 or saves:
                numbers = self._report()
                numbers["seconds"], start = time.perf_counter() - start, time.perf_counter()
                if bar is not None:
                    bar.note(f"loss {numbers['loss']:.4g}")
                self._say(f"step {k} of {config.steps}, loss {numbers['loss']:.4f}")
                if saves:
                    numbers |= self._measure()
                if metrics is not None:
                    metrics.add(k, numbers)
            if bar is not None:
                bar.reach(k)
            if saves:
                self._save(metrics)
            if self._stop_error is not None and k < config.steps:
                raise self._stop_error
            if config.draws_at(k):
                self._draw(k)

    def _report(self) -> dict[str, Any]:
        with self._naming_checkpoint():
            found = asdict(self.loop.report())
        del found["step"]
        return found

    def _measure(self) -> dict[str, Any]:
        """Return the error of the model with average weights, as numbers for the metrics."""
        with self._naming_checkpoint():
            self.loop.check_finite()
        if not self.accelerator.is_main_process:
            return {}
        self._say("calibrating and measuring the model")
        with self._averaged():
            self.error = self.loop.model_error()
        return {"model_error": self.error.mean, "model_error_by_level": self.error.by_level}

    def _save(self, metrics: Metrics | None) -> None:
        """Write a checkpoint, and the model of it."""
        if metrics is not None:
            metrics.flush_to_disk()
        if self.accelerator.is_main_process:
            self._say("writing the checkpoint and the model")
            loop = self.loop
            optimiser = checkpoint.optimiser_state(loop.optimiser, loop.average.names)
            state = Checkpoint(
                loop.step_number, self._settings, dict(loop.net.state_dict()),
                loop.average.state(), optimiser,
            )  # fmt: skip
            checkpoint.write(self.checkpoints, state, self.config.keep)
            self._write_model()
        self.accelerator.wait_for_everyone()

    def _write_model(self) -> None:
        with self._averaged():
            self._measure_residual()
            self.model.save(self.folder / places.MODEL)

    def _measure_residual(self) -> None:
        """Measure what samplers choose levels and weights by, once for every step."""
        if self.model.informed is None or self._measured == self.loop.step_number:
            return
        seen = self.loop.step_number * self.config.batch // LEVELS
        try:
            self.model.measure_residual(min(max(seen, FEWEST_PATHS), PATHS))
        except FloatingPointError:  # the next loss shows it; samplers need no statistics
            self.model.statistics = None
        self._measured = self.loop.step_number

    def _draw(self, k: int) -> None:
        if self.draw is None or not self.accelerator.is_main_process:
            return
        self._say("drawing samples")
        path = self.folder / places.SAMPLES / f"step-{k:08d}.png"
        path.parent.mkdir(exist_ok=True)
        with self._averaged():  # random numbers are seeded in every step
            self._measure_residual()
            self.draw(path, self.model)

    @contextmanager
    def _naming_checkpoint(self) -> Iterator[None]:
        """Within, the error of a run that diverges names the last checkpoint."""
        try:
            yield
        except DivergedError as error:
            last = checkpoint.latest(self.checkpoints)
            good = f"the last good checkpoint is {last}" if last else "there is no checkpoint"
            raise DivergedError(f"{error}; {good}; a lower rate may help") from None

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        with self._naming_checkpoint(), self.loop.averaged():
            yield

    def _say(self, line: str) -> None:
        if self.listener is not None and self.accelerator.is_main_process:
            self.listener(line)

    def _check_same(self, found: Checkpoint) -> None:
        """Raise unless a checkpoint is one of this run, and not beyond its last step."""
        others = list(differences(completed(found.settings, self._settings), self._settings))
        if others:
            without = found.settings["prior"] is None
            prior = "no prior" if without else f"another prior, that of {places.PRIOR}"
            words = ", ".join(
                prior
                if one[0] == "prior"
                else difference_text(*one)  # a prior is compared by digest
                for one in others
            )
            raise CheckpointError(
                f"{self.folder}: the run has {words}, and cannot continue with other values"
            )
        if found.step > self.config.steps:
            raise CheckpointError(
                f"{self.folder}: the run has taken {found.step} steps, and cannot continue to "
                f"{self.config.steps}"
            )

    def _write_settings(self, *, new: bool) -> None:
        """Write what a reader, or the command that resumes the run, has to know about it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_drafts(self.folder)
        settings = {
            "config": asdict(self.config),
            "model": self.model.facts(),
            "data": {name: self._settings[name] for name in ("rows", "checksum")},
            **{name: self._settings[name] for name in ("levels", "level_arguments", "objective")},
            "processes": self.accelerator.num_processes,
            "torch": torch.__version__,
            "notes": self.notes,
        }
        informed = self.loop.informed if new else None
        prior = None if informed is None else informed.prior
        places.write_settings(self.folder, plain(settings), prior, begins=new)


def _restore(loop: Loop, found: Checkpoint) -> None:
    """Set a loop to the state of a checkpoint."""
    loop.net.load_state_dict(found.net)
    loop.average.load(found.average)
    checkpoint.restore_optimiser(loop.optimiser.optimizer, found.optimiser, loop.average.names)
    loop.step_number = found.step


def objective_of(
    predictor: nn.Module,
    config: TrainingConfig,
    clock: Clock | None,
    levels: NoiseLevels | None,
    objective: DenoisingScoreMatching | None,
) -> DenoisingScoreMatching:
    """Return the loss: the one given, or that of the noise at levels or those of a clock."""
    checks.optional(clock, Clock, "clock")
    checks.optional(levels, NoiseLevels, "levels")
    checks.optional(objective, DenoisingScoreMatching, "objective")
    if objective is not None:
        if levels is not None:
            raise ValueError("levels must not be given beside an objective, which has its own")
        levels = objective.levels
    if levels is not None:
        if clock not in (None, levels.noising.clock):
            given = "levels" if objective is None else "the objective"
            raise ValueError(f"clock must be that of {given}, or not be given, got {clock!r}")
        return DenoisingScoreMatching(levels) if objective is None else objective
    informed = as_informed(predictor)
    own = getattr(predictor, "clock", None) if informed is None else informed.spec.clock
    default = VariancePreserving() if own is None else own
    if informed is not None and clock is not None:
        check_clock(default, clock)
    noising = Noising(OrnsteinUhlenbeck(), default if clock is None else clock)
    return DenoisingScoreMatching(UniformLogSNR(noising, config.first))
