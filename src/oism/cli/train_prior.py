"""The prior of a training run: that of a file, or one that is fitted to the images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from oism.basis import IdentityFrame
from oism.cli import models
from oism.cli.options import clock_text, image_clock_of
from oism.cli.train_form import FITTED, NONE
from oism.cli.train_plan import Plan
from oism.data.files import FileError
from oism.images import PCA, Prior, fit_mixture, fit_prior
from oism.process import Clock, VariancePreserving
from oism.storage import load
from oism.training import Rows, latest_checkpoint

if TYPE_CHECKING:
    from accelerate import Accelerator


def stored_prior(plan: Plan) -> Prior | None:
    """Return the stored prior, or None if it is to be fitted.

    It is that in the folder of a resumed run, or the file that ``--prior`` names. A run that was
    killed at its start may have settings, but no prior in its folder: it is then treated like a new
    one.
    """
    if plan.form["prior"] == NONE:
        return None
    own = plan.folder / "prior.safetensors"
    if plan.resumes and (own.exists() or latest_checkpoint(plan.folder) is not None):
        prior: Prior = load(own, expected=Prior)
        return prior
    if plan.form["prior"] in FITTED:
        return None
    with models.opened(plan.form["prior"]) as stored:
        return stored.prior()


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


def check_prior(prior: Prior, rows: Rows, name: str) -> None:
    """Raise unless the prior of a file is one of such rows."""
    try:
        rows.check(prior.spec, "prior")
        if rows.classes is not None and prior.classes not in (None, rows.classes):
            raise ValueError(
                f"a prior of {prior.classes} classes, but the data have {rows.classes}"
            )
    except ValueError as error:
        raise FileError(f"{name}: {error}") from error


def fitted_prior(plan: Plan, rows: Rows, clock: Clock, accelerator: Accelerator) -> Prior:
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
