"""``oism train``: what a run is made of, from its options."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from oism.cli import beginnings
from oism.cli.beginnings import FITTED, NONE
from oism.cli.ending import Terminated, UsageError
from oism.cli.options import STANDARD, demand_count, demand_default, naming_options

if TYPE_CHECKING:
    from types import FrameType

    import numpy as np
    from accelerate import Accelerator
    from numpy.typing import NDArray
    from torch import nn

    from oism.cli.train import Train
    from oism.data.files import Images
    from oism.images import Prior
    from oism.images._base import Setting
    from oism.nn import DDPMpp, Diffusion
    from oism.objectives import NoiseLevels
    from oism.training import Rows, Run

SHOWN = 64
"""The number of samples of a picture."""


@dataclass(frozen=True, eq=False)
class Ready:
    """What is trained, on what, at which noise levels; and how long the prior took."""

    predictor: nn.Module
    prior: Prior | None
    images: Images
    rows: Rows
    levels: NoiseLevels
    setting: Setting
    parameters: int
    seconds: float


def demand_options(command: Train) -> None:
    """Raise where options make no sense, before anything is read."""
    from oism.images._fitting import MOST_ORDER

    prior = command.prior
    if prior not in (*FITTED, NONE) and not os.path.exists(prior):
        raise UsageError(
            f"--prior: expected pca, pixel, none or the file of a prior, got {prior!r}"
        )
    if not 1 <= command.order <= MOST_ORDER:
        raise UsageError(f"--order: expected 1 to {MOST_ORDER}, got {command.order}")
    if command.components is not None:
        demand_count(command.components, 1, "--components")
        demand_default(command, ("order",), "an option for polynomials, not for a mixture")
        demand_default(
            command, ("prior",), "a mixture (--components) is along principal directions"
        )
    if prior not in FITTED:
        demand_default(command, ("order",), f"an option for priors that are fitted, not {prior}")
    if prior == NONE:
        demand_default(command, ("gate", "paper"), "an option for priors, and there is none")
    if command.paper:
        demand_default(command, ("gate",), "the paper's form (--paper) has no gate")
    beginnings.gate(command)
    beginnings.clock(command)


def demand_folder(command: Train) -> None:
    """Raise where the folder of a run is none, or is among the images: it holds pictures itself."""
    if command.output == STANDARD:
        raise UsageError("-o: a run is a folder, and cannot be written to standard output")
    if Path(command.data).is_dir():
        data, folder = Path(command.data).resolve(), Path(command.output).resolve()
        if folder.is_relative_to(data):
            raise UsageError(
                f"-o: {command.output} is within the images of {command.data}, and its pictures "
                "would become some of them: name another folder"
            )


def accelerator(device: str | None) -> Accelerator:
    """Return the engine, on the device that is asked for."""
    from oism._core import checks
    from oism.training._loop import engine

    if device is None:
        return engine()
    wanted = checks.device(device)
    if wanted.type == "cuda" and wanted.index is not None:
        import torch

        torch.cuda.set_device(wanted)  # what a single process is given
    found = engine(cpu=wanted.type == "cpu")
    if found.device.type != wanted.type:
        raise UsageError(f"--device: expected {found.device.type} or cpu here, got {device}")
    return found


@contextmanager
def way_on(run: Run) -> Iterator[None]:
    """Within, a signal stops a run with a checkpoint, and says from where it goes on.

    A second signal stops it at once.
    """
    from oism.training._folder import latest

    alone, folder = int(run.accelerator.num_processes) == 1, run.folder
    try:
        with _stopped_gently(run) if alone else nullcontext():
            yield
    except (KeyboardInterrupt, Terminated) as error:
        last = latest(folder)
        error.add_note(
            "there is no checkpoint yet" if last is None else f"--resume goes on: {last}"
        )
        raise


@contextmanager
def _stopped_gently(run: Run) -> Iterator[None]:
    """Within, the first signal only asks the run to stop."""
    asked = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated}

    def ask(number: int, _frame: FrameType | None) -> None:
        restore()
        run.stop(asked[signal.Signals(number)]())

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    before = {number: signal.signal(number, ask) for number in asked}
    try:
        yield
    finally:
        restore()


def ready(command: Train, engine: Accelerator) -> Ready:
    """Read the images, fit the prior, and build the network."""
    from oism.data import files
    from oism.data.files._splits import TRAINING
    from oism.images._base import Setting
    from oism.objectives import UniformLogSNR
    from oism.process import Noising, OrnsteinUhlenbeck
    from oism.training import Rows
    from oism.training._data import array_of

    prior = beginnings.loaded(command)
    clock = beginnings.clock(command, prior)
    with naming_options({"first": "first"}):
        levels = UniformLogSNR(Noising(OrnsteinUhlenbeck(), clock), command.first)
    images = files.open_images(
        command.data,
        column=command.column,
        mode=command.mode,
        skip_broken=command.skip_broken,
        split=TRAINING if command.split is None else command.split,
    )
    net = _net(command, images.shape)
    rows = Rows(array_of(_read(images)), dequantise=not command.no_dequantise)
    start = time.perf_counter()
    if prior is None:
        prior = beginnings.fitted(command, rows, clock, engine)
    else:
        beginnings.demand_alike(command, prior, rows)
    if prior is not None and command.resume:
        prior = beginnings.as_before(prior, Path(command.output))
    seconds = time.perf_counter() - start
    return Ready(
        predictor=net if prior is None else _informed(command, net, prior),
        prior=prior,
        images=images,
        rows=rows,
        levels=levels,
        setting=Setting(rows.shape, clock, clock, rows.pixels, rows.dequantise),
        parameters=sum(part.numel() for part in net.parameters()),
        seconds=seconds,
    )


def draw(path: Path, model: Diffusion) -> None:
    """Write samples of a model as one picture, the same noise every time."""
    import torch

    from oism.images._display import pictures
    from oism.plot import write_image_grid

    x = model.sample(SHOWN, torch.Generator().manual_seed(0), progress=False)
    write_image_grid(path, pictures(model, x).numpy())


def _net(command: Train, shape: tuple[int, ...]) -> DDPMpp:
    import torch

    from oism.nn import unet_for

    sizes = ("width", "multipliers", "blocks", "attention", "dropout")
    torch.manual_seed(command.random_state)
    with naming_options({name: name for name in sizes}):
        return unet_for(shape, **{name: getattr(command, name) for name in sizes})


def _informed(command: Train, net: DDPMpp, prior: Prior) -> nn.Module:
    from oism.nn import Combined, OperatorInformed

    gate = beginnings.gate(command)
    if gate is not None:
        return OperatorInformed(net, prior, gate=gate)
    return Combined(net, prior, first=command.first)


def _read(images: Images) -> Iterator[NDArray[np.uint8]]:
    from oism._core.progress import progress_bar

    with progress_bar(None) as bar:
        bar.stage("reading images", len(images))
        for batch in images:
            yield batch
            bar.advance(len(batch))
