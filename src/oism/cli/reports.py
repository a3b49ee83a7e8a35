"""Priors of images: what is said of them, and samples of theirs and of trained models."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oism.cli.ending import UsageError
from oism.cli.options import STANDARD

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from oism.images import Prior
    from oism.images._display import OfTensors

LEVELS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.5, 0.9)
"""The noise levels τ at which errors are told."""

NAMED = 3
"""How many damaged images are named."""

OUTPUTS = "samples of images go to a grid (.png), an array (.npy) or a folder (without suffix)"


def facts(prior: Prior) -> dict[str, Any]:
    """Return what a prior is and expects of itself, as JSON can hold it."""
    clock, pixels = prior.clock, prior.pixels
    assert dataclasses.is_dataclass(clock)
    levels = [tau for tau in LEVELS if tau <= clock.horizon]
    return {
        **prior.facts,
        "clock": {"kind": type(clock).__name__, **dataclasses.asdict(clock)},
        "pixels": None if pixels is None else [pixels.low, pixels.high],
        "dequantised": prior.setting.dequantised,
        "noise": [
            {
                "tau": tau,
                "sigma": float(prior.noising.sigma(tau)),
                "expected": float(prior.skill(tau)),
            }
            for tau in levels
        ],
    }


def summary(found: Mapping[str, Any]) -> str:
    """Return a page about the facts of a prior."""
    size = (
        f", order {found['order']}" if "order" in found else f", {found['components']} components"
    )
    settings = {name: value for name, value in found["clock"].items() if name != "kind"}
    clock = ", ".join(f"{name} = {value:g}" for name, value in settings.items())
    pixels = found["pixels"]
    units = "no pixels" if pixels is None else f"pixels from {pixels[0]} to {pixels[1]}"
    units += ", dequantised" if found["dequantised"] else ""
    local = found.get("local terms")
    table = aligned(
        [
            ["τ", *(f"{level['tau']:g}" for level in found["noise"])],
            ["σ", *(figure(level["sigma"]) for level in found["noise"])],
            ["error", *(figure(level["expected"]) for level in found["noise"])],
        ]
    )
    return "\n".join(
        [
            f"prior       {found['kind']}{size}",
            f"shape       {shape_text(found['shape'])}, {units}",
            f"frame       {found['frame']}",
            *([] if local is None else [f"local       {local}"]),
            f"clock       {found['clock']['kind']}, {clock}",
            "expected error of the predicted noise, per dimension",
            *(f"  {line}" for line in table),
        ]
    )


def shape_text(shape: Sequence[int]) -> str:
    """Return a shape as people write it."""
    return " × ".join(map(str, shape))


def images_text(count: int) -> str:
    """Return a number of images in words."""
    return f"{count} image{'' if count == 1 else 's'}"


def split_text(split: str | None) -> str:
    """Return which part of a dataset images are, or nothing."""
    return "" if split is None else f" of the split {split}"


def figure(value: float) -> str:
    """Return a number between 0 and 1 with four digits, or with its power of ten.

    >>> figure(0.12345), figure(0.000012345)
    ('0.1235', '1.2e-05')
    """
    return f"{value:.4f}" if value >= 1e-3 or value == 0 else f"{value:.1e}"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows of a table as lines, their columns flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]


def skipped_text(broken: Sequence[str]) -> str:
    """Return how many images were left out and where the first are, or nothing."""
    if not broken:
        return ""
    more = f" and {len(broken) - NAMED} more" if len(broken) > NAMED else ""
    return f", {len(broken)} skipped: {', '.join(broken[:NAMED])}{more}"


def skipped_facts(broken: Sequence[str]) -> dict[str, object]:
    """Return the same as JSON can hold it."""
    return {"skipped": len(broken), "broken": list(broken[:NAMED])}


def seeded(seed: int | None) -> torch.Generator:
    """Return a source of randomness; without a seed another one every time."""
    import torch

    generator = torch.Generator()
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    return generator


def demand_pictures(output: str) -> None:
    """Raise unless samples of images can be written there."""
    from oism.cli.outputs import demand_file
    from oism.data import files

    if output == STANDARD:
        raise UsageError(f"-o: {OUTPUTS}, not to standard output: name one")
    suffix = Path(output).suffix.lower()
    if suffix == ".png":
        demand_file(output)
    elif suffix not in ("", ".npy") and not Path(output).is_dir():
        raise UsageError(f"-o: {output}: {OUTPUTS}")
    else:
        files.demand_images(output)


def write_samples(prior: OfTensors, x: Tensor, output: str) -> None:
    """Write samples in the units of a model as a grid, an array or a folder."""
    from oism.data import files
    from oism.images._display import pictures
    from oism.plot import write_image_grid

    suffix = Path(output).suffix.lower()
    if suffix == ".npy":
        files.write_array(_array(prior, x).numpy(), output)
    elif suffix == ".png":
        write_image_grid(output, pictures(prior, x).numpy())
    else:
        files.write_images(output, pictures(prior, x).numpy())


def demand_drawable(prior: OfTensors, output: str) -> None:
    """Raise where samples are no pictures, and would have to be."""
    from oism.images._display import picture_shape

    if picture_shape(prior) is None and Path(output).suffix.lower() != ".npy":
        what = "pixels" if prior.pixels is None else "1 or 3 channels"
        raise UsageError(
            f"-o: {output}: samples of shape {shape_text(prior.shape)} without {what} are no "
            "pictures; they go to an .npy file"
        )


def _array(prior: OfTensors, x: Tensor) -> Tensor:
    """Return images as integers with channels last, other tensors in the model's units."""
    from oism.images._display import picture_shape

    shape = picture_shape(prior)
    if shape is None or prior.pixels is None:
        return x.cpu()
    levels = prior.pixels.values(x).reshape(len(x), *shape).cpu()
    return levels[:, 0] if shape[0] == 1 else levels.permute(0, 2, 3, 1).contiguous()
