"""Models from folders that diffusers wrote.

    pipeline/model_index.json    the classes of the parts, each in a folder of its own
             unet/               config.json, diffusion_pytorch_model.safetensors
             scheduler/          scheduler_config.json
             prior/              where there is one

Nothing in a folder decides which code is run: it can only name the classes that are read here.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import diffusers
from diffusers import DDPMScheduler, SchedulerMixin, UNet2DModel

from oism.diffusers._components import OperatorNetwork, OperatorPrior
from oism.diffusers._predictor import UNetPredictor, predictor
from oism.diffusers._scheduler import OperatorScheduler
from oism.flow import Pixels, TensorSpec
from oism.nn import Combined, Diffusion
from oism.process import Clock
from oism.storage import StorageError

INDEX, CONFIG, SCHEDULER = "model_index.json", "config.json", "scheduler_config.json"
NETWORK = "UNet2DModel"

StrPath = str | os.PathLike[str]


def read_model(folder: StrPath) -> Diffusion:
    """Return the model in the folder of a pipeline.

    An `OperatorNetwork` is the model that was exported. A `UNet2DModel` is one of images of bytes;
    its smallest noise level is that of timestep 0, and beside a prior it predicts alone: the prior
    serves the sampler.
    """
    folder = Path(folder)
    index = _json(folder / INDEX)
    if _kind(index, "unet") == OperatorNetwork.__name__:
        return OperatorNetwork.from_pretrained(folder / "unet").model.eval()
    if _kind(index, "prior") == OperatorPrior.__name__:
        prior = OperatorPrior.from_pretrained(folder / "prior").prior
        net = read_network(folder, clock=prior.clock)
        alone = Combined(net, prior, first=net.first)
        alone.share.fill_(1.0)
        return Diffusion(alone, first=net.first).eval()
    net = read_network(folder)
    if net.shape is None:
        raise StorageError(f"{folder}: a network without sample_size, the sides of its images")
    spec = TensorSpec(net.shape, net.clock, Pixels())
    return Diffusion(net, spec, first=net.first).eval()


def read_network(
    folder: StrPath, *, clock: Clock | None = None, lowest: float = 0.0
) -> UNetPredictor:
    """Return the network in the folder of a pipeline, or in its own, as a noise predictor.

    A folder of a network alone has no scheduler: its timesteps are those of `DDPMScheduler()`, and
    it predicts ε. ``clock`` and ``lowest`` are those of `predictor`.
    """
    folder = Path(folder)
    if (folder / INDEX).is_file():
        index = _json(folder / INDEX)
        unet, scheduler = (_part(folder, index, name) for name in ("unet", "scheduler"))
        return predictor(_unet(unet), _scheduler(scheduler), clock=clock, lowest=lowest)
    if not (folder / CONFIG).is_file():
        raise StorageError(
            f"{folder}: no folder of diffusers: there is neither {INDEX}, of a pipeline, nor "
            f"{CONFIG}, of a network"
        )
    return predictor(_unet(folder), DDPMScheduler(), clock=clock, lowest=lowest)


def _part(folder: Path, index: dict[str, Any], name: str) -> Path:
    """Return the folder of a part of a pipeline."""
    if _kind(index, name) is None or not (folder / name).is_dir():
        raise StorageError(f"{folder}: a pipeline without {name}, as DDPMPipeline has it")
    return folder / name


def _unet(folder: Path) -> UNet2DModel:
    """Return a network with its weights, or with new ones where the folder has none."""
    config = _json(folder / CONFIG)
    kind = config.get("_class_name")
    if kind != NETWORK:
        raise StorageError(f"{folder}: a network of class {kind!r}; oism reads {NETWORK}")
    try:
        if any(folder.glob("diffusion_pytorch_model*")):
            return UNet2DModel.from_pretrained(folder, local_files_only=True)
        return UNet2DModel.from_config(config)
    except (OSError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise StorageError(f"{folder}: the network cannot be read: {error}") from error


def _scheduler(folder: Path) -> SchedulerMixin:
    config = _json(folder / SCHEDULER)
    kind = config.get("_class_name")
    own = {OperatorScheduler.__name__: OperatorScheduler}
    cls: Any = own.get(str(kind), getattr(diffusers, str(kind), None))
    if SchedulerMixin not in getattr(cls, "__mro__", ()):
        raise StorageError(
            f"{folder}: a scheduler of class {kind!r}, which diffusers does not have"
        )
    made: SchedulerMixin = cls.from_config(config)
    return made


def _json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise StorageError(f"{path.parent}: there is no {path.name}") from error
    except ValueError as error:
        raise StorageError(f"{path}: damaged: {error}") from error
    if not isinstance(found, dict):
        raise StorageError(f"{path}: damaged: it must hold an object")
    return found


def _kind(index: dict[str, Any], name: str) -> str | None:
    """Return the class of a part of a pipeline, or None where it has no such part."""
    entry = index.get(name)
    return str(entry[1]) if isinstance(entry, list) and len(entry) == 2 else None
