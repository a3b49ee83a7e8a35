"""What a training run is made of: from the options of ``oism train``, or from its folder.

A new run stores its options as notes in settings.json. A resumed run takes all of them from there;
options that are given again must agree, except for those that may change.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from oism._core import checks
from oism._core.plain import plain
from oism._core.progress import progress_bar
from oism.basis import IdentityFrame
from oism.cli import models
from oism.cli.classes import every_class
from oism.cli.exit_codes import Terminated, UsageError
from oism.cli.options import (
    ImageFiles,
    check_count,
    clock_text,
    given,
    image_clock_of,
    naming_options,
    option_of,
)
from oism.cli.reports import shape_text
from oism.data.files import TRAINING, FileError, Images
from oism.images import (
    MOST_ORDER,
    PCA,
    ByError,
    Gate,
    Open,
    Prior,
    as_images,
    fit_mixture,
    fit_prior,
)
from oism.nn import (
    Combined,
    Diffusion,
    Noise,
    OperatorInformed,
    OperatorPreconditioning,
    predicting,
    unet_for,
)
from oism.plot import write_image_grid
from oism.process import Clock, VariancePreserving, first_time
from oism.storage import StorageError, load
from oism.training import (
    CHANGEABLE,
    CheckpointError,
    Rows,
    Run,
    TrainingConfig,
    check_folder,
    check_not_running,
    holds_run,
    latest_checkpoint,
    new_accelerator,
    read_settings,
    stacked,
)

if TYPE_CHECKING:
    from types import FrameType

    import numpy as np
    from accelerate import Accelerator
    from numpy.typing import NDArray
    from torch import nn

FITTED, NONE = ("pca", "pixel"), "none"

FORM: dict[str, Any] = {
    "prior": "pca",
    "order": 2,
    "components": None,
    "gate": None,
    "paper": False,
    "predict": "noise",
    "clock": None,
    "network": None,
    "labels": False,
}
"""The options of the prior and of the form of the model, with their defaults."""

SIZES = ("width", "multipliers", "blocks", "attention", "dropout")
"""The options of the network; their defaults depend on the images."""

CONFIG = {
    "steps": "steps", "batch": "batch", "rate": "rate", "warmup": "warmup", "clip": "clip",
    "ema": "decay", "first": "first", "seed": "seed", "precision": "precision",
    "dropped_labels": "dropped_labels",
    "compile": "compile", "log_every": "log_every", "save_every": "save_every",
    "sample_every": "sample_every", "keep": "keep", "no_flip": "flip",
    "no_dequantise": "dequantise",
}  # fmt: skip
"""The options of the configuration, and their names in `TrainingConfig`."""

SAMPLES = 64
"""The number of samples of a grid."""

SECONDS = 10.0
"""The least time between two lines about the progress, where there is no bar."""


@dataclass(frozen=True)
class Plan:
    """A run that is to be started or resumed."""

    folder: Path
    data: str
    files: ImageFiles
    form: Mapping[str, Any]
    sizes: Mapping[str, Any]
    config: TrainingConfig
    resumes: bool


@dataclass(frozen=True, eq=False)
class Prepared:
    """The parts of a run, and the seconds that the prior took."""

    predictor: nn.Module
    prior: Prior | None
    clock: Clock
    images: Images
    rows: Rows
    parameters: int
    seconds: float
    notes: Mapping[str, Any]


def new_plan(folder: Path, data: str, found: Mapping[str, Any], files: ImageFiles) -> Plan:
    """Return the plan of a new run from the options that were given."""
    form = {**FORM, **{name: found[name] for name in FORM if name in found}}
    check_form(form, found)
    sizes = {name: found[name] for name in SIZES if name in found}
    config = config_of(found, {})
    check_folder(folder, resume=False)
    check_not_running(folder)
    return Plan(folder, data, files, form, sizes, config, resumes=False)


def can_resume(folder: Path, data: str | None) -> bool:
    """Return whether a folder holds a run; without one, data to start a new run are needed."""
    if not holds_run(folder) and data is None:
        raise CheckpointError(f"{folder}: holds no run to resume; `oism train DATA -o` starts one")
    return holds_run(folder)


def resumed_plan(
    folder: Path, data: str | None, found: Mapping[str, Any], files: ImageFiles
) -> Plan:
    """Return the plan of a run in a folder; options that were given again must agree with it."""
    settings = read_settings(folder)
    notes = settings.get("notes")
    if not isinstance(notes, dict) or "form" not in notes:
        raise CheckpointError(f"{folder}: the run was not started by `oism train`")
    check_folder(folder, resume=True)
    check_not_running(folder)
    before = {**notes["form"], **notes["sizes"]}
    before |= {name: settings["config"][own] for name, own in CONFIG.items()}
    before |= {name: not before[name] for name in ("no_flip", "no_dequantise")}
    changes = {name: plain(value) for name, value in found.items() if name in before}
    changes = {name: value for name, value in changes.items() if value != before[name]}
    fixed = [name for name in changes if CONFIG.get(name) not in CHANGEABLE]
    if fixed:
        words = ", ".join(
            f"{option_of(name)} {_text(before[name])} (not {_text(changes[name])})"
            for name in fixed
        )
        raise CheckpointError(
            f"{folder}: the run has {words}, and cannot continue with other values"
        )
    names = {field.name for field in fields(ImageFiles)}
    stored = ImageFiles(**{name: notes["files"][name] for name in names})
    return Plan(
        folder,
        notes["data"] if data is None else data,
        files if given(files) else stored,
        notes["form"],
        notes["sizes"],
        config_of(changes, settings["config"]),
        resumes=True,
    )


def _text(value: object) -> str:
    """Return the value of an option as it is typed."""
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def config_of(found: Mapping[str, Any], before: Mapping[str, Any]) -> TrainingConfig:
    """Return the configuration: options that were given, then settings of before, then defaults."""
    values = {own: found[name] for name, own in CONFIG.items() if name in found}
    values |= {CONFIG[name]: False for name in ("no_flip", "no_dequantise") if found.get(name)}
    with naming_options({own: name.replace("_", "-") for name, own in CONFIG.items()}):
        return TrainingConfig(**{**before, **values})


def check_form(form: Mapping[str, Any], found: Mapping[str, Any]) -> None:  # noqa: C901
    """Raise if the options of the model contradict each other, before any data are read."""

    def refuse(names: tuple[str, ...], why: str) -> None:
        for name in names:
            if name in found:
                raise UsageError(f"{option_of(name)}: {why}")

    prior = form["prior"]
    if prior not in (*FITTED, NONE) and not os.path.exists(prior):
        raise UsageError(
            f"--prior: expected pca, pixel, none or the file of a prior, got {prior!r}"
        )
    if not 1 <= form["order"] <= MOST_ORDER:
        raise UsageError(f"--order: expected 1 to {MOST_ORDER}, got {form['order']}")
    if form["components"] is not None:
        check_count(form["components"], 1, "--components")
        refuse(("order",), "an option for polynomials, not for a mixture")
        refuse(("prior",), "a mixture (--components) is along principal directions")
    if prior not in FITTED:
        refuse(("order",), f"an option for priors that are fitted, not {prior}")
    if prior == NONE:
        refuse(("gate", "paper"), "an option for priors, and there is none")
        if form["predict"] == OperatorPreconditioning.name:
            refuse(("predict",), "operator needs a prior, and there is none (--prior none)")
    if form["predict"] != Noise.name and (form["paper"] or form["gate"] is not None):
        refuse(("predict",), "a network that learns the residual (--paper, --gate) predicts noise")
    if form["labels"]:
        if form["order"] != 2:
            refuse(("order",), "with --labels the prior is a Gaussian for every class, order 2")
        refuse(("network",), "not together with --labels, which need a network with classes")
    else:
        refuse(("dropped_labels", "label_column"), "labels are used with --labels only")
    if form["paper"]:
        refuse(("gate",), "the paper's form (--paper) has no gate")
    if form["network"] is not None:
        refuse(SIZES, "not together with --network, which has a size of its own")
        check_network(form["network"])
    gate_of(form)
    image_clock_of(form["clock"])


def check_network(folder: str) -> None:
    """Raise unless ``--network`` names a folder."""
    if not os.path.isdir(folder):
        raise UsageError(
            "--network: expected the folder of a network or a pipeline of diffusers, got "
            f"{folder!r}"
        )


def gate_of(form: Mapping[str, Any]) -> Gate | None:
    """Return the gate of a network that is trained on the residual, or None for `Combined`."""
    if form["paper"]:
        return Open()
    if form["gate"] is None:
        return None
    with naming_options(dict.fromkeys(("half", "sharpness"), "gate")):
        return ByError(*form["gate"])


def clock_of(form: Mapping[str, Any], prior: Prior | None) -> Clock:
    """Return the noise levels: those of ``--clock``, of the file of a prior, or the default."""
    asked = image_clock_of(form["clock"])
    if prior is None:
        return VariancePreserving() if asked is None else asked
    if asked not in (None, prior.clock):
        own, other = (
            clock_text({"kind": type(c).__name__, **vars(c)}) for c in (prior.clock, asked)
        )
        raise FileError(
            f"{form['prior']}: the prior was fitted for the clock {own}, and --clock is {other}: "
            "they must be the same"
        )
    return prior.clock


def prepare(plan: Plan, accelerator: Accelerator) -> Prepared:
    """Read the images, fit or load the prior, and build the network."""
    form, config = plan.form, plan.config
    prior = _stored_prior(plan)
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
        _check_prior(prior, rows, form["prior"])
    elif form["prior"] != NONE:
        prior = _fitted(plan, rows, clock, accelerator)
    sizes = {} if form["network"] else net.to_config()
    notes = {
        "data": os.path.abspath(plan.data) if os.path.exists(plan.data) else plan.data,
        "files": asdict(plan.files),
        "form": form,
        "sizes": {name: sizes[name] for name in SIZES if name in sizes},
        "classes": names,
    }
    return Prepared(
        predictor=_predictor(net, prior, clock, form, config.first),
        prior=prior,
        clock=clock,
        images=images,
        rows=rows,
        parameters=sum(part.numel() for part in net.parameters()),
        seconds=time.perf_counter() - start,
        notes=plain(notes),
    )


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


def _stored_prior(plan: Plan) -> Prior | None:
    """Return the prior of a file: that of a resumed run, or one that is named."""
    if plan.form["prior"] == NONE:
        return None
    if plan.resumes:
        prior: Prior = load(plan.folder / "prior.safetensors", expected=Prior)
        return prior
    if plan.form["prior"] in FITTED:
        return None
    with models.opened(plan.form["prior"]) as stored:
        return stored.prior()


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


def _check_prior(prior: Prior, rows: Rows, name: str) -> None:
    """Raise unless the prior of a file is one of such rows."""
    try:
        rows.check(prior.spec, "prior")
        if rows.classes is not None and prior.classes not in (None, rows.classes):
            raise ValueError(
                f"a prior of {prior.classes} classes, but the data have {rows.classes}"
            )
    except ValueError as error:
        raise FileError(f"{name}: {error}") from error


def _fitted(plan: Plan, rows: Rows, clock: Clock, accelerator: Accelerator) -> Prior:
    """Return a prior of the rows, the same in every process."""
    form = plan.form
    common: dict[str, Any] = {
        "flip": plan.config.flip,
        "dequantise": rows.dequantise,
        "clock": clock,
        "device": accelerator.device,
    }
    if form["components"] is not None:  # fitted by every process to all rows
        return fit_mixture(rows.values, components=form["components"], **common)
    frame = PCA() if form["prior"] == "pca" else IdentityFrame()
    if rows.labels is not None:  # so too
        by_class: Prior = fit_prior(rows.values, labels=rows.labels, frame=frame, **common)
        return by_class
    share = rows.values[accelerator.process_index :: accelerator.num_processes]
    found: Prior = fit_prior(share, order=form["order"], frame=frame, shared=True, **common)
    return found


def _predictor(
    net: nn.Module, prior: Prior | None, clock: Clock, form: Mapping[str, Any], first: float
) -> nn.Module:
    """Return the noise predictor of a network, with its prior if there is one."""
    gate = gate_of(form)
    if prior is not None and gate is not None:
        return OperatorInformed(net, prior, gate=gate)
    net = predicting(net, form["predict"], prior=prior, clock=clock)
    return net if prior is None else Combined(net, prior, first=first)


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


def draw(path: Path, model: Diffusion) -> None:
    """Write samples of a model as one grid, from the same noise every time."""
    labels = None if model.classes is None else every_class(SAMPLES, model.classes)
    x = model.sample(SAMPLES, torch.Generator().manual_seed(0), labels=labels)
    write_image_grid(path, as_images(model.spec, x).numpy())


class Lines:
    """Prints lines about the progress to standard error, not more often than every few seconds."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds, self.last = seconds, time.monotonic()

    def __call__(self, line: str) -> None:
        """Print a line, unless one was printed just before."""
        now = time.monotonic()
        if now - self.last >= self.seconds:
            self.last = now
            print(f"oism: {line}", file=sys.stderr, flush=True)


@contextmanager
def stopping_gently(run: Run) -> Iterator[None]:
    """Within, a signal stops a run after the present step, with a checkpoint; a second one at once.

    The error then names the checkpoint from which the run can be resumed.
    """
    alone, folder = int(run.accelerator.num_processes) == 1, run.folder
    try:
        with _asking_to_stop(run) if alone else nullcontext():
            yield
    except (KeyboardInterrupt, Terminated) as error:
        last = latest_checkpoint(folder)
        error.add_note(
            "there is no checkpoint yet"
            if last is None
            else f"`oism train --resume {folder}` continues from {last.name}"
        )
        raise


@contextmanager
def _asking_to_stop(run: Run) -> Iterator[None]:
    """Within, the first signal only asks the run to stop."""
    errors = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated}

    def ask(number: int, _frame: FrameType | None) -> None:
        restore()
        run.stop(errors[signal.Signals(number)]())

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    before = {number: signal.signal(number, ask) for number in errors}
    try:
        yield
    finally:
        restore()
