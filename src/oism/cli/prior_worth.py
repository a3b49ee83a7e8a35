"""``oism evaluate`` for a prior."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oism.cli.ending import UsageError
from oism.cli.options import print_json
from oism.cli.priors import (
    aligned,
    figure,
    images_text,
    shape_text,
    skipped_facts,
    skipped_text,
    split_text,
)

if TYPE_CHECKING:
    from oism.cli.evaluate import Evaluate
    from oism.data.files import Images
    from oism.images import Prior
    from oism.images._evaluation import Estimate, Evaluation


def evaluate(command: Evaluate, prior: Prior) -> None:
    """Read, evaluate and tell."""
    from oism._core.checks import device
    from oism.cli import models
    from oism.images._evaluation import evaluate

    horizon = prior.clock.horizon
    for tau in command.levels:
        if not 0 <= tau <= horizon:
            raise UsageError(f"--levels: expected τ from 0 to {horizon:g}, got {tau:g}")
    with models.bars(quiet=command.quiet):
        images = command.open_images(prior)
        prior = prior if command.device is None else prior.to(device(command.device))
        total = len(images) if command.limit is None else min(command.limit, len(images))
        found = evaluate(
            prior,
            (batch.reshape(-1, *prior.shape) for batch in command.batches(images)),
            command.levels,
            bits=not command.no_bits,
            seed=command.random_state,
            total=total,
        )
    if command.json:
        print_json(_facts(command, prior, images, found))
    else:
        _print(prior, images, found)


def _facts(command: Evaluate, prior: Prior, images: Images, found: Evaluation) -> dict[str, object]:
    return {
        "prior": command.model,
        "data": command.data,
        "split": images.split,
        "images": found.count,
        **skipped_facts(images.skipped),
        "shape": list(prior.shape),
        "noise": [
            {
                "tau": level.tau,
                "sigma": level.sigma,
                "error": level.error.mean,
                "standard_error": level.error.error,
                "expected": level.expected,
            }
            for level in found.levels
        ],
        "bits_per_dim": None
        if found.bits is None
        else {"mean": found.bits.mean, "standard_error": found.bits.error},
    }


def _print(prior: Prior, images: Images, found: Evaluation) -> None:
    print(
        f"{images_text(found.count)} of {shape_text(prior.shape)}{split_text(images.split)} "
        f"evaluated{skipped_text(images.skipped)}"
    )
    if found.levels:
        print("error of the predicted noise, per dimension, and what the prior expected")
    rows = [["τ", "σ", "error", "±", "expected"]]
    rows += [
        [
            f"{level.tau:g}",
            figure(level.sigma),
            figure(level.error.mean),
            spread(level.error),
            figure(level.expected),
        ]
        for level in found.levels
    ]
    if found.levels:
        print("\n".join(f"  {line}" for line in aligned(rows)))
    if found.bits is not None:
        print(f"bits per dimension  {found.bits.mean:.4f} ± {spread(found.bits)}")


def spread(estimate: Estimate) -> str:
    """Return a standard error, where there is one."""
    return figure(estimate.error) if estimate.count > 1 else "?"
