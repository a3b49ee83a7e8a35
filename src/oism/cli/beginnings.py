"""``oism train``: the noise levels, the prior, and how far it is trusted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from oism.cli.ending import UsageError
from oism.cli.options import clock_of, naming_options

if TYPE_CHECKING:
    from accelerate import Accelerator

    from oism.cli.train import Train
    from oism.images import Gate, Prior
    from oism.process import Clock
    from oism.training import Rows

FITTED = ("pca", "pixel")
NONE = "none"


def clock(command: Train, given: Prior | None = None) -> Clock:
    """Return the noise levels: those that are asked for, those of a prior of a file, or usual."""
    from oism.data.files import FileError
    from oism.process import VariancePreserving

    asked = clock_of(command.clock)
    if asked is not None and not isinstance(asked, VariancePreserving):
        raise UsageError("--clock: the noise of images preserves variance: vp:BETA_0:BETA_1")
    if given is None:
        return asked or VariancePreserving()
    if asked not in (None, given.clock):
        raise FileError(
            f"{command.prior}: the prior was fitted for the clock {given.clock!r}, and --clock "
            f"says {asked!r}: they must be the same"
        )
    return given.clock


def gate(command: Train) -> Gate | None:
    """Return how far the prior is trusted where the network learns what it leaves."""
    from oism.images import ByError, Open

    if command.paper:
        return Open()
    if command.gate is None:
        return None
    with naming_options(dict.fromkeys(("half", "sharpness"), "gate")):
        return ByError(*command.gate)


def loaded(command: Train) -> Prior | None:
    """Return the prior of a file, where one is named."""
    from oism.cli import models

    if command.prior in (*FITTED, NONE):
        return None
    with models.opened(command.prior) as stored:
        return stored.prior()


def fitted(command: Train, rows: Rows, clock: Clock, engine: Accelerator) -> Prior | None:
    """Return a prior of the rows, the same in every process, or none."""
    from oism.basis import IdentityFrame
    from oism.images import PCA, fit_mixture, fit_prior

    if command.prior == NONE:
        return None
    common: dict[str, Any] = {
        "flip": not command.no_flip,
        "dequantise": rows.dequantise,
        "clock": clock,
        "device": engine.device,
    }
    if command.components is not None:  # whose rows are all in the memory of one process
        return fit_mixture(rows.values, components=command.components, **common)
    share = rows.values[engine.process_index :: engine.num_processes]
    frame = PCA() if command.prior == "pca" else IdentityFrame()
    return fit_prior(share, order=command.order, frame=frame, shared=True, **common)


def demand_alike(command: Train, given: Prior, rows: Rows) -> None:
    """Raise unless the prior of a file is one of such rows."""
    from oism.data.files import FileError

    try:
        rows.demand(given.setting, "prior")
    except ValueError as error:
        raise FileError(f"{command.prior}: {error}") from error


def as_before(prior: Prior, folder: Path) -> Prior:
    """Return the prior of the run that goes on, to the last bit, if this is the same one."""
    from oism.images import Prior
    from oism.training import CheckpointError
    from oism.training._compatibility import are_alike, difference
    from oism.training._folder import PRIOR, latest

    if latest(folder) is None or not (folder / PRIOR).exists():
        return prior
    before = Prior.load(folder / PRIOR)
    other = difference(before.facts, prior.facts)
    if other is not None:
        name, first, second = other
        raise CheckpointError(
            f"{folder}: the prior of the run has {name} = {first!r}, and it cannot go on with one "
            f"of {second!r}"
        )
    is_same = before.setting.dequantised == prior.setting.dequantised and are_alike(before, prior)
    return before if is_same else prior
