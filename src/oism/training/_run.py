"""A run: a folder that explains itself, and everything in it from the first step to the last.

settings.json       what the run was told, and the versions that decide about numbers
prior.safetensors   the prior, where there is one
metrics.jsonl       loss, norm of the gradient, rate, seconds: a line every so often
samples/            pictures of samples of the average weights
checkpoints/        what a run goes on from
model.safetensors   the model with average weights, after the last step
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from oism._core import checks
from oism._core.atomic import replacing
from oism._core.plain import plain
from oism._core.progress import Progress, progress_bar
from oism.images._base import Setting
from oism.nn import Combined, Diffusion, Informed
from oism.nn._storage import SHARE
from oism.objectives import DenoisingScoreMatching, NoiseLevels
from oism.tables import describe
from oism.training import _checkpoint as checkpoint
from oism.training import _folder as places
from oism.training._checkpoint import Checkpoint, CheckpointError
from oism.training._compatibility import demand_alike, demand_said, described_prior, difference
from oism.training._data import Rows
from oism.training._loop import DivergedError, Loop, engine
from oism.training._metrics import Metrics
from oism.training._settings import Training

Picture = Callable[[Path, Diffusion], None]
"""What draws samples of a model to a file."""


class Run:
    """A run in its folder.

    Parameters
    ----------
    folder
        Where everything goes; made if need be.
    predictor, rows, levels, settings
        What is trained, on what, at which noise levels, and how.
    setting
        Shape, clock and pixels of the data.
    picture
        Draws samples, where they are wanted.
    resume
        Whether to go on from the newest checkpoint, if there is one. A folder that holds a run is
        refused otherwise.
    """

    def __init__(  # noqa: PLR0913
        self,
        folder: str | os.PathLike[str],
        predictor: nn.Module,
        rows: Rows,
        levels: NoiseLevels,
        settings: Training,
        setting: Setting,
        *,
        picture: Picture | None = None,
        resume: bool = False,
        accelerator: Accelerator | None = None,
    ) -> None:
        for value, kind, name in (
            (predictor, nn.Module, "predictor"), (rows, Rows, "rows"),
            (levels, NoiseLevels, "levels"), (settings, Training, "settings"),
            (setting, Setting, "setting"),
        ):  # fmt: skip
            checks.instance(value, kind, name)
        self.folder, self.settings, self.picture = Path(folder), settings, picture
        self.accelerator = engine() if accelerator is None else accelerator
        places.demand_place(self.folder, resume=resume)
        demand_alike(predictor, rows, levels, setting)
        demand_said(settings, rows, levels)
        self.model = Diffusion(predictor, setting, first=levels.first, precision=settings.precision)
        self._described = plain(describe(self.model)[0])
        self._told = plain(
            {
                **settings.deciding(),
                "rows": len(rows),
                "checksum": rows.checksum,
                "levels": type(levels).__name__,
                "clock": repr(levels.noising.clock),
                **described_prior(predictor),
                "net": self._described["net"],  # last: without its prior a network has other sizes
            }
        )
        self._asked: BaseException | None = None
        found = checkpoint.read_latest(self.checkpoints)
        if found is not None:
            self._demand_same(found)
        self.loop = Loop(
            predictor, rows, DenoisingScoreMatching(levels), settings, self.accelerator
        )
        if found is not None:
            self._restore(found)
        # All have looked at the folder before one of them writes to it.
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            self._explain(begins=found is None)
        self.accelerator.wait_for_everyone()

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.folder / places.CHECKPOINTS

    def run(self) -> None:
        """Train to the last step, and write the model."""
        loop, settings = self.loop, self.settings
        if not self.accelerator.is_main_process:
            self._steps(None, None)
        else:
            with Metrics(self.folder, after=loop.step_number) as metrics, progress_bar(None) as bar:
                bar.stage("training", settings.steps)
                self._steps(metrics, bar)
            with self._settled():
                self.model.save(self.folder / places.MODEL)
        self.accelerator.wait_for_everyone()

    def stop(self, error: BaseException) -> None:
        """Ask for an end: after the step that is being taken, with a checkpoint, by this error.

        A signal may come at any moment, and a step that was half taken could not be kept. Only for
        a run of one process: others would wait for it.
        """
        self._asked = error

    def _steps(self, metrics: Metrics | None, bar: Progress | None) -> None:
        loop, settings = self.loop, self.settings
        start = time.perf_counter()
        while loop.step_number < settings.steps:
            loop.step()
            k = loop.step_number
            ends = k == settings.steps
            saves = ends or (settings.save_every and k % settings.save_every == 0)
            if k % settings.log_every == 0 or saves or self._asked is not None:
                found = self._report()
                spent, start = time.perf_counter() - start, time.perf_counter()
                if metrics is not None:
                    metrics.add(k, {**found, "seconds": spent})
                if bar is not None:
                    bar.note(f"loss {found['loss']:.4g}")
            if bar is not None:
                bar.reach(k)
            if saves or self._asked is not None:
                self._save(metrics)
            if self._asked is not None and not ends:
                raise self._asked
            if settings.sample_every and (ends or k % settings.sample_every == 0):
                self._draw(k)

    def _report(self) -> dict[str, float]:
        with self._last_good():
            found = asdict(self.loop.report())
        del found["step"]
        return found

    @contextmanager
    def _last_good(self) -> Iterator[None]:
        """Within, where a run diverges the error names what can still be used."""
        try:
            yield
        except DivergedError as error:
            last = checkpoint.latest(self.checkpoints)
            good = f"the last good checkpoint is {last}" if last else "there is no checkpoint"
            raise DivergedError(f"{error}; {good}; a lower rate may help") from None

    @contextmanager
    def _settled(self) -> Iterator[None]:
        with self._last_good(), self.loop.settled():
            yield

    def _save(self, metrics: Metrics | None) -> None:
        with self._last_good():
            self.loop.demand_finite()
        if metrics is not None:
            metrics.to_disk()
        if self.accelerator.is_main_process:
            loop = self.loop
            optimiser = checkpoint.optimiser_state(loop.optimiser, loop.average.names)
            state = Checkpoint(
                loop.step_number, self._told, dict(loop.net.state_dict()),
                {**loop.average.state(), **self._share()}, optimiser,
            )  # fmt: skip
            checkpoint.write(self.checkpoints, state, self.settings.keep)
            # A model there is one of fewer steps, of a run that went on after its end.
            (self.folder / places.MODEL).unlink(missing_ok=True)
        self.accelerator.wait_for_everyone()

    def _share(self) -> dict[str, Tensor]:
        """Return the share of the network with average weights, where a prior has the rest."""
        predictor = self.loop.predictor
        if not isinstance(predictor, Combined):
            return {}
        with self._settled():
            return {SHARE: predictor.share.clone()}

    def _draw(self, k: int) -> None:
        if self.picture is None or not self.accelerator.is_main_process:
            return
        path = self.folder / places.SAMPLES / f"step-{k:08d}.png"
        path.parent.mkdir(exist_ok=True)
        with self._settled():  # randomness is seeded anew in every step
            self.picture(path, self.model)

    def _demand_same(self, found: Checkpoint) -> None:
        """Raise unless a checkpoint is of a run like this one, and not beyond its end."""
        other = difference(found.settings, self._told)
        if other is not None:
            name, before, now = other
            if name == "prior":  # told by a digest, which says nothing to a person
                way = f"another prior, that of {places.PRIOR}: load it from there"
                what = "no prior, and cannot go on with one" if before is None else way
                raise CheckpointError(f"{self.folder}: the run has {what}")
            raise CheckpointError(
                f"{self.folder}: the run has {name} = {before!r}, and cannot go on with {now!r}"
            )
        if found.step > self.settings.steps:
            raise CheckpointError(
                f"{self.folder}: the run has taken {found.step} steps, and cannot go on to "
                f"{self.settings.steps}"
            )

    def _restore(self, found: Checkpoint) -> None:
        loop = self.loop
        loop.net.load_state_dict(found.net)
        loop.average.load(found.average)
        checkpoint.restore_optimiser(loop.optimiser.optimizer, found.optimiser, loop.average.names)
        loop.step_number = found.step

    def _explain(self, *, begins: bool) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        predictor = self.loop.predictor
        if begins:
            for name in (places.MODEL, places.METRICS):  # of a run without a checkpoint
                (self.folder / name).unlink(missing_ok=True)
            if isinstance(predictor, Informed):
                predictor.prior.save(self.folder / places.PRIOR)
        told: dict[str, Any] = {
            **self._told,
            **asdict(self.settings),
            "parameters": sum(part.numel() for part in self.loop.net.parameters()),
            "processes": self.accelerator.num_processes,
            "torch": torch.__version__,
            "model": self._described,
        }
        with replacing(self.folder / places.SETTINGS) as draft:
            draft.write_text(json.dumps(plain(told), indent=1), encoding="utf-8")
