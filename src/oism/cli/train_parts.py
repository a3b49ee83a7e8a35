"""The parts of a training run, from its plan: images, prior, network, accelerator."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from oism._core import checks
from oism._core.plain import plain
from oism._core.progress import progress_bar
from oism.cli.exit_codes import UsageError
from oism.cli.options import naming_options
from oism.cli.reports import shape_text
from oism.cli.train_form import NOISE_LOSS, NONE, OUTPUT_LOSS, SIZES, gate_of, with_absolute_paths
from oism.cli.train_plan import Plan
from oism.cli.train_prior import check_prior, clock_of, fitted_prior, stored_prior
from oism.data.files import TRAINING, FileError, Images
from oism.images import Prior
from oism.nn import (
    Combined,
    Diffusion,
    Noise,
    OperatorInformed,
    as_informed,
    predicting,
    unet_for,
)
from oism.objectives import (
    DenoisingScoreMatching,
    MixedLevels,
    NormalLogSNR,
    OutputMatching,
    UniformLogSNR,
)
from oism.process import Clock, Noising, OrnsteinUhlenbeck, first_time
from oism.storage import StorageError, load
from oism.training import Rows, latest_checkpoint, new_accelerator, stacked

if TYPE_CHECKING:
    import numpy as np
    from accelerate import Accelerator
    from numpy.typing import NDArray
    from torch import nn


@dataclass(frozen=True, eq=False)
class Prepared:
    """The parts of a run, and the seconds that the prior took."""

    predictor: nn.Module
    prior: Prior | None
    objective: DenoisingScoreMatching
    images: Images
    rows: Rows
    parameters: int
    seconds: float
    notes: Mapping[str, Any]


def prepare(plan: Plan, accelerator: Accelerator) -> Prepared:
    """Read the images, fit or load the prior, and build the network."""
    form, config = plan.form, plan.config
    prior = stored_prior(plan)
    clock = clock_of(form, prior)
    with naming_options({"first": "first"}):
        first_time(config.first, clock)
    images = _opened(plan)
    names = images.labels(plan.files.label_column).names if form["labels"] else None
    torch.manual_seed(config.seed)
    net = _network(plan, images.shape, clock, None if names is None else len(names))
    values = stacked(_read(images))  # before the labels: damaged images have none
    labels = images.labels(plan.files.label_column).numbers if form["labels"] else None
    rows = Rows(values, labels=labels, dequantise=config.dequantise)
    start = time.perf_counter()
    if prior is not None:
        check_prior(prior, rows, form["prior"])
    elif form["prior"] != NONE:
        prior = fitted_prior(plan, rows, clock, accelerator)
    sizes = {} if form["network"] else net.to_config()
    notes = {
        "data": os.path.abspath(plan.data) if os.path.exists(plan.data) else plan.data,
        "files": asdict(plan.files),
        "form": form if plan.resumes else with_absolute_paths(form),
        "sizes": {name: sizes[name] for name in SIZES if name in sizes},
        "classes": names,
    }
    predictor = _predictor(net, prior, clock, form, config.first)
    return Prepared(
        predictor=predictor,
        prior=prior,
        objective=_objective(predictor, clock, form["loss"], config.first),
        images=images,
        rows=rows,
        parameters=sum(part.numel() for part in net.parameters()),
        seconds=time.perf_counter() - start,
        notes=plain(notes),
    )


def _opened(plan: Plan) -> Images:
    try:
        return plan.files.open(plan.data, TRAINING)
    except FileNotFoundError as error:
        if plan.resumes:
            raise FileError(
                f"{plan.data}: no such file or directory; if the images moved: "
                f"oism train NEW_PATH --resume {plan.folder}"
            ) from error
        raise


def _read(images: Images) -> Iterator[NDArray[np.uint8]]:
    with progress_bar(None) as bar:
        bar.stage("reading images", len(images))
        for batch in images:
            yield batch
            bar.advance(len(batch))


def _network(plan: Plan, shape: tuple[int, ...], clock: Clock, classes: int | None) -> Any:  # noqa: ANN401 (of two classes)
    """Return the network: one for the images, or that of a folder of diffusers."""
    folder = plan.form["network"]
    if folder is None:
        with naming_options({name: name for name in SIZES}):
            return unet_for(shape, classes=classes, **plan.sizes)
    from oism.diffusers import read_network

    if plan.resumes and latest_checkpoint(plan.folder) is not None:
        net = load(plan.folder, expected=Diffusion).net  # the folder of diffusers may be gone
        return getattr(net, "net", net) if plan.form["predict"] != Noise.name else net
    try:
        net = read_network(folder, clock=clock, lowest=-1.0)
    except StorageError as error:
        raise FileError(str(error)) from error
    if net.shape not in (None, shape):
        raise FileError(
            f"{folder}: a network for images of {shape_text(net.shape)}, but those of {plan.data} "
            f"have {shape_text(shape)} (channels × height × width)"
        )
    return net


def _predictor(
    net: nn.Module, prior: Prior | None, clock: Clock, form: Mapping[str, Any], first: float
) -> nn.Module:
    """Return the noise predictor of a network, with its prior if there is one."""
    gate = gate_of(form)
    if prior is not None and gate is not None:
        return OperatorInformed(net, prior, gate=gate)
    net = predicting(net, form["predict"], prior=prior, clock=clock)
    return net if prior is None else Combined(net, prior, first=first)


def _objective(
    predictor: nn.Module, clock: Clock, loss: str, first: float
) -> DenoisingScoreMatching:
    """Return the loss: that of the noise, or of what the network predicts."""
    noising = Noising(OrnsteinUhlenbeck(), clock)
    even = UniformLogSNR(noising, first)
    if loss == NOISE_LOSS:
        return DenoisingScoreMatching(even)
    normal = NormalLogSNR(noising, first)
    informed = as_informed(predictor)
    outputs = predictor if informed is None else informed.net
    levels = normal if loss == OUTPUT_LOSS else MixedLevels(even, normal)
    return OutputMatching(levels, outputs)  # type: ignore[arg-type]


def accelerator_on(device: str | None) -> Accelerator:
    """Return an accelerator on a device, by default on a GPU if there is one."""
    if device is None:
        return new_accelerator()
    wanted = checks.device(device)
    if wanted.type == "cuda" and wanted.index is not None:
        torch.cuda.set_device(wanted)  # the device that a single process gets
    found = new_accelerator(cpu=wanted.type == "cpu")
    if found.device.type != wanted.type:
        raise UsageError(f"--device: expected {found.device.type} or cpu here, got {device}")
    return found
