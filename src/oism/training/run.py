"""A run: a folder that explains itself, and everything in it from the first step to the last.

settings.json       what the run was told, and the versions that decide about numbers
prior.safetensors   the prior, where there is one
metrics.jsonl       loss, norm of the gradient, rate, seconds: a line every so often
samples/            pictures of samples of the average weights
checkpoints/        what a run goes on from
model.safetensors   the model with average weights, after the last step
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import nn

from oism.atomic import replacing
from oism.nn.informed import OperatorInformed
from oism.nn.model import Diffusion
from oism.nn.storage import describe_net
from oism.objectives import DenoisingScoreMatching, NoiseLevels
from oism.plain import plain
from oism.prior.base import Prior, Setting
from oism.prior.storage import describe as describe_prior
from oism.progress import progress_bar
from oism.training import checkpoint
from oism.training.checkpoint import Checkpoint, CheckpointError
from oism.training.data import Rows
from oism.training.loop import DivergedError, Loop, engine
from oism.training.metrics import Metrics
from oism.training.settings import Training

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
        Whether to go on from the newest checkpoint. A folder that holds a run is refused otherwise.
    """

    def __init__(  # noqa: PLR0913
        self,
        folder: Path,
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
        self.folder, self.settings, self.picture = Path(folder), settings, picture
        self.accelerator = engine() if accelerator is None else accelerator
        demand_alike(predictor, rows, levels, setting)
        demand_said(settings, rows, levels)
        self.loop = Loop(
            predictor, rows, DenoisingScoreMatching(levels), settings, self.accelerator
        )
        self.model = Diffusion(predictor, setting, first=levels.first, precision=settings.precision)
        self._told = plain(
            {
                **settings.deciding(),
                "rows": len(rows),
                "levels": type(levels).__name__,
                "clock": repr(levels.noising.clock),
                "net": describe_net(self.loop.net),
                **_described_prior(predictor),
            }
        )
        last = checkpoint.latest(self.checkpoints)
        if last is not None and not resume:
            raise FileExistsError(
                f"{folder} holds a run, with {last.name}: go on with it (resume=True, --resume), "
                "or name another folder"
            )
        found = checkpoint.read_latest(self.checkpoints)
        if found is not None:
            self._restore(found)
        if self.accelerator.is_main_process:
            self._explain()
        self.accelerator.wait_for_everyone()

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.folder / "checkpoints"

    def run(self) -> None:
        """Train to the last step, and write the model."""
        loop, settings = self.loop, self.settings
        if not self.accelerator.is_main_process:
            self._steps(None, lambda _: None)
        else:
            with Metrics(self.folder, after=loop.step_number) as metrics, progress_bar(None) as bar:
                bar.stage("training", settings.steps)
                self._steps(metrics, bar.reach)
            with loop.settled():
                self.model.save(self.folder / "model.safetensors")
        self.accelerator.wait_for_everyone()

    def _steps(self, metrics: Metrics | None, tell: Callable[[int], None]) -> None:
        loop, settings = self.loop, self.settings
        start = time.perf_counter()
        while loop.step_number < settings.steps:
            loop.step()
            k = loop.step_number
            ends = k == settings.steps
            saves = ends or (settings.save_every and k % settings.save_every == 0)
            if k % settings.log_every == 0 or saves:
                found = self._report()
                spent, start = time.perf_counter() - start, time.perf_counter()
                if metrics is not None:
                    metrics.add(k, {**found, "seconds": spent})
            tell(k)
            if saves:
                self._save(metrics)
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
            raise DivergedError(f"{error}; {good}") from None

    def _save(self, metrics: Metrics | None) -> None:
        with self._last_good():
            self.loop.demand_finite()
        if metrics is not None:
            metrics.to_disk()
        if self.accelerator.is_main_process:
            loop = self.loop
            optimiser = checkpoint.optimiser_state(loop.optimiser, loop.average.names)
            state = Checkpoint(
                loop.step_number, self._told, dict(loop.net.state_dict()), loop.average.state(),
                optimiser,
            )  # fmt: skip
            checkpoint.write(self.checkpoints, state, self.settings.keep)
        self.accelerator.wait_for_everyone()

    def _draw(self, k: int) -> None:
        if self.picture is None or not self.accelerator.is_main_process:
            return
        path = self.folder / "samples" / f"step-{k:08d}.png"
        path.parent.mkdir(exist_ok=True)
        with self.loop.settled():  # randomness is seeded anew in every step
            self.picture(path, self.model)

    def _restore(self, found: Checkpoint) -> None:
        for name, value in self._told.items():
            if found.settings.get(name) != value:
                if name == "prior" and value and found.settings.get(name):
                    raise CheckpointError(
                        f"{self.folder}: the run has another prior, that of prior.safetensors: "
                        "load it from there"
                    )
                raise CheckpointError(
                    f"{self.folder}: the run has {name} = {found.settings.get(name)!r}, and cannot "
                    f"go on with {value!r}"
                )
        if found.step > self.settings.steps:
            raise CheckpointError(
                f"{self.folder}: the run has taken {found.step} steps, and cannot go on to "
                f"{self.settings.steps}"
            )
        loop = self.loop
        loop.net.load_state_dict(found.net)
        loop.average.load(found.average)
        checkpoint.restore_optimiser(loop.optimiser.optimizer, found.optimiser, loop.average.names)
        loop.step_number = found.step

    def _explain(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        predictor = self.loop.predictor
        if isinstance(predictor, OperatorInformed):
            predictor.prior.save(self.folder / "prior.safetensors")
        told: dict[str, Any] = {
            **self._told,
            **asdict(self.settings),
            "parameters": sum(part.numel() for part in self.loop.net.parameters()),
            "processes": self.accelerator.num_processes,
            "torch": torch.__version__,
        }
        with replacing(self.folder / "settings.json") as draft:
            draft.write_text(json.dumps(plain(told), indent=1), encoding="utf-8")


def demand_alike(predictor: nn.Module, rows: Rows, levels: NoiseLevels, setting: Setting) -> None:
    """Raise unless network, prior, data and noise levels belong together."""
    clock = levels.noising.clock
    if setting.clock != clock:
        raise ValueError(
            f"setting must have the clock of the levels, {clock!r}, got {setting.clock!r}"
        )
    rows.demand(setting, "setting")
    if isinstance(predictor, OperatorInformed):
        prior = predictor.prior
        rows.demand(prior.setting, "prior")
        if prior.clock != clock:
            raise ValueError(
                f"prior must have been fitted for the clock {clock!r}, got {prior.clock!r}"
            )
    shape = getattr(predictor, "shape", None)
    if shape is not None and tuple(shape) != rows.shape:
        raise ValueError(
            f"net must take tensors of the data's shape {rows.shape}, got {tuple(shape)}"
        )


def demand_said(settings: Training, rows: Rows, levels: NoiseLevels) -> None:
    """Raise unless data and noise levels are what the settings say of them."""
    if settings.first != levels.first:
        raise ValueError(f"levels must begin at first = {settings.first:g}, got {levels.first:g}")
    if rows.pixels is not None and settings.dequantise != rows.dequantise:
        raise ValueError(
            f"data must be those of dequantise = {settings.dequantise}, got {rows.dequantise}"
        )


def _described_prior(predictor: nn.Module) -> dict[str, Any]:
    """Return what a checkpoint says of the prior of a run: another one is another run."""
    if not isinstance(predictor, OperatorInformed):
        return {"prior": None}
    return {
        "prior": fingerprint(predictor.prior),
        "gate": repr(predictor.gate),
        "condition": predictor.condition,
    }


def fingerprint(prior: Prior) -> str:
    """Return a digest of everything that a prior says, to the last bit."""
    settings, tensors = describe_prior(prior)
    digest = hashlib.sha256(json.dumps(plain(settings), sort_keys=True).encode())
    for name, part in sorted(tensors.items()):
        digest.update(f"{name} {tuple(part.shape)} {part.dtype}".encode())
        digest.update(part.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
