"""``oism fit`` on images: from a folder or a file of them to a prior."""

from __future__ import annotations

import math
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oism.cli.ending import UsageError
from oism.cli.options import STANDARD, clock_of, demand_count, demand_default, given, report

if TYPE_CHECKING:
    from oism.cli.fit import Fit
    from oism.data.files import Images
    from oism.images import Prior
    from oism.process import Clock

TABLES_ONLY = (
    "columns", "periodic", "bounds", "box", "weights", "missing", "process", "max_eigenvalue",
    "shrinkage", "n_times", "random_state", "format",
)  # fmt: skip
IMAGES_ONLY = (
    "components", "top", "local", "flip", "no_dequantise", "column", "split", "mode",
    "skip_broken",
)  # fmt: skip
POLYNOMIALS_ONLY = ("order", "ridge", "cv", "frame")

ORDER = 4
"""The degree of polynomials, unless it is given: above it little is gained on images."""


def are_meant(command: Fit) -> bool:
    """Tell whether the data are images; a Parquet file may hold some beside columns to fit."""
    from oism.data import files
    from oism.data.files import _hub as hub
    from oism.data.files._image_folder import SUFFIXES

    if command.data.lower().endswith(SUFFIXES):
        return True  # a single image, and the reader says that it takes a folder
    if not files.is_images(command.data):
        return False
    if hub.is_id(command.data) and not command.data.startswith(hub.PREFIX):
        return not given(command, TABLES_ONLY)  # else a table is meant that is not there
    return not (command.columns and command.data.lower().endswith((".parquet", ".pq")))


def demand_table_options(command: Fit) -> None:
    """Raise where an option of images is given with a table."""
    if command.data != STANDARD:
        os.stat(command.data)  # of what is not there, nothing else is to be said
    demand_default(command, IMAGES_ONLY, f"an option for images, and {command.data} is a table")
    if command.frame == "cosine":
        raise UsageError("--frame: cosine is for images; tables have pca and identity")


def fit(command: Fit) -> None:
    """Read, fit, write and report."""
    from oism.cli import models, priors
    from oism.data import files
    from oism.data.files._splits import TRAINING

    clock = _demand_image_options(command)
    start = time.perf_counter()
    with models.bars(quiet=command.quiet):
        images = files.open_images(
            command.data,
            column=command.column,
            mode=command.mode,
            skip_broken=command.skip_broken,
            split=TRAINING if command.split is None else command.split,
        )
        prior = _prior(command, images, clock)
        if command.local:
            from oism.images import add_local_terms

            prior = add_local_terms(prior, images, device=command.device)
    seconds = time.perf_counter() - start
    models.save(prior, command.output)
    count, found = len(images) - len(images.skipped), priors.facts(prior)
    skipped = priors.skipped_text(images.skipped)
    text = (
        f"{priors.images_text(count)}{priors.split_text(images.split)} fitted in {seconds:.1f} s"
        f"{skipped}\n"
        f"{priors.summary(found)}\nprior written to {command.output}"
    )
    told = {
        "split": images.split,
        "images": count,
        **priors.skipped_facts(images.skipped),
        "seconds": seconds,
        "output": command.output,
        "model": found,
    }
    report(text, told, command.output, json=command.json, quiet=command.quiet)


def _demand_image_options(command: Fit) -> Clock | None:
    """Raise where options make no sense for images; return the clock."""
    demand_default(command, TABLES_ONLY, f"an option for tables, and {command.data} holds images")
    if command.components is not None:
        why = "an option for polynomials, not for a mixture (--components)"
        demand_default(command, POLYNOMIALS_ONLY, why)
        demand_count(command.components, 1, "--components")
    if command.top is not None:
        demand_count(command.top, 1, "--top")
        if command.frame != "pca":
            raise UsageError(f"--top: counts principal directions, not those of {command.frame}")
    demand_count(command.cv, 2, "--cv")
    clock = clock_of(command.clock)
    from oism.process import VariancePreserving

    if clock is not None and not isinstance(clock, VariancePreserving):
        raise UsageError("--clock: the noise of images preserves variance: vp:BETA_0:BETA_1")
    return clock


def _prior(command: Fit, images: Images, clock: Clock | None) -> Prior:
    from oism.basis import CosineFrame, Frame, IdentityFrame
    from oism.images import PCA, fit_mixture, fit_prior
    from oism.images._fitting import CHOICES

    entries = math.prod(images.shape)
    if command.top is not None and command.top > entries:
        raise UsageError(f"--top: images have {entries} entries, got {command.top}")
    common: dict[str, Any] = {
        "flip": command.flip,
        "dequantise": not command.no_dequantise,
        "clock": clock,
        "device": command.device,
    }
    pca = PCA(command.top)
    if command.components is not None:
        return fit_mixture(images, components=command.components, frame=pca, **common)
    frames: dict[str, Frame | PCA] = {
        "pca": pca,
        "identity": IdentityFrame(),
        "cosine": CosineFrame(images.shape),
    }
    return fit_prior(
        images,
        order=ORDER if command.order == "auto" else command.order,
        frame=frames[command.frame],
        ridge=replace(CHOICES, folds=command.cv) if command.ridge == "cv" else command.ridge,
        **common,
    )
