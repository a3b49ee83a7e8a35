"""The form of a trained model: its prior, its gate, what the network predicts, its loss, its clock.

The options contradict each other in some combinations. `check_form` finds these before any data are
read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from oism.cli.exit_codes import UsageError
from oism.cli.options import check_count, image_clock_of, naming_options, option_of
from oism.images import MOST_ORDER, ByError, Gate, Open
from oism.nn import EDM, PREDICTIONS, Noise

FITTED, NONE = ("pca", "pixel"), "none"

NOISE_LOSS, OUTPUT_LOSS = "noise", "output"
"""The losses of the noise, and of what the network predicts at EDM's noise levels."""

FORM: dict[str, Any] = {
    "prior": "pca",
    "order": 2,
    "components": None,
    "gate": None,
    "paper": False,
    "predict": None,
    "loss": None,
    "clock": None,
    "network": None,
    "labels": False,
}
"""The options of the prior and of the form of the model, with their defaults.

Those of ``predict`` and ``loss`` depend on others, see `complete_form`.
"""

BEFORE = {"predict": Noise.name, "loss": NOISE_LOSS}
"""The values of runs that are older than these options."""

SIZES = ("width", "multipliers", "blocks", "attention", "dropout")
"""The options of the network; their defaults depend on the images."""


def complete_form(form: Mapping[str, Any]) -> dict[str, Any]:
    """Return the form with what the network predicts and its loss, where they were not given.

    EDM's preconditioning with EDM's loss has the best samples that were measured, combined with a
    Gaussian (docs/training.md). A network that learns a residual predicts noise, and one that was
    trained elsewhere is taken to do so.
    """
    learns_noise = form["paper"] or form["gate"] is not None or form["network"] is not None
    predict = form["predict"] or (Noise.name if learns_noise else EDM.name)
    loss = form["loss"] or (OUTPUT_LOSS if PREDICTIONS[predict].is_scaled else NOISE_LOSS)
    return {**form, "predict": predict, "loss": loss}


def with_absolute_paths(form: Mapping[str, Any]) -> dict[str, Any]:
    """Return the form with absolute paths of the prior and the network, where these are paths.

    A run can be resumed from another folder.
    """
    prior, network = form["prior"], form["network"]
    return {
        **form,
        "prior": prior if prior in (*FITTED, NONE) else os.path.abspath(prior),
        "network": None if network is None else os.path.abspath(network),
    }


def check_form(form: Mapping[str, Any], found: Mapping[str, Any]) -> None:  # noqa: C901, PLR0912 (one for each option)
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
        if PREDICTIONS[form["predict"]].needs_prior:
            refuse(
                ("predict",), f"{form['predict']} needs a prior, and there is none (--prior none)"
            )
    if form["predict"] == Noise.name:
        if form["loss"] != NOISE_LOSS:
            why = f"{form['loss']} is for networks with --predict v, x0, edm, operator, gaussian"
            refuse(("loss",), why)
    elif form["paper"] or form["gate"] is not None:
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
