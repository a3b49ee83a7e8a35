"""``oism evaluate``: what a prior is worth on images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from oism.cli.ending import UsageError
from oism.cli.options import (
    Command,
    ImageColumn,
    Mode,
    Seed,
    Split,
    demand_count,
    demand_one_stdin,
    print_json,
)
from oism.cli.priors import (
    LEVELS,
    aligned,
    figure,
    images_text,
    shape_text,
    skipped_facts,
    skipped_text,
    split_text,
)

if TYPE_CHECKING:
    from torch import Tensor

    from oism.files import Images
    from oism.prior import Prior
    from oism.prior.evaluation import Estimate, Evaluation

Levels = Annotated[tuple[float, ...], arg(metavar="TAU ...", help_behavior_hint="")]


@dataclass(frozen=True)
class Evaluate(Command):
    """Say what a prior of images is worth on other images: noise errors and bits per dimension.

    At each noise level the images, dequantised if the prior is, are noised once, the same noise at
    every level, and the error is that of the noise that the prior predicts, squared and per
    dimension: 1 is to know nothing. Next to it stands what the prior expected when it was fitted.
    Bits per dimension are those of the density, on dequantised pixels. Images are read a few at a
    time.

    Examples:
      oism evaluate prior.safetensors images
      oism evaluate prior.safetensors images -n 50 --levels 0.01 0.1 0.5 --no-bits --json
    """

    prior: Annotated[Positional[str], arg(metavar="PRIOR")]
    """The file of the prior, which `oism fit` makes of images; - is standard input."""
    data: Annotated[Positional[str], arg(metavar="DATA")]
    """The images: a folder, Parquet, NPY, NPZ, or the id of a dataset of the Hub."""
    levels: Levels = LEVELS
    """The noise levels τ, from 0 to 1; by default eight from 0.001 to 0.9."""
    limit: Annotated[int | None, arg(aliases=["-n"], metavar="N")] = None
    """Take the first N images only."""
    no_bits: bool = False
    """Leave out bits per dimension, which take longest for polynomials of order 3 and more."""
    batch: int = 256
    """How many images are in memory at a time."""
    random_state: Seed = 0
    """The seed of the noise and of the dequantisation."""
    column: ImageColumn = None
    """The column of a Parquet file, or the array of an NPZ file, where there is a choice."""
    split: Split = None
    """The part of a dataset whose Parquet files are named by such; by default test, or where there
    is none validation, or train."""
    mode: Mode | None = None
    """Convert all images to grey (L) or colour (RGB)."""
    skip_broken: bool = False
    """Leave damaged images out."""
    device: str | None = None
    """Where the prior is evaluated, as cuda."""
    json: bool = False
    """Print JSON instead of text."""
    quiet: bool = False
    """Show no bar."""

    def run(self) -> None:
        """Load, read, evaluate and tell."""
        demand_one_stdin(self.prior, self.data)
        demand_count(self.batch, 1, "--batch")
        if self.limit is not None:
            demand_count(self.limit, 1, "--limit")
        if not self.levels and self.no_bits:
            raise UsageError("--levels: without levels and with --no-bits there is nothing to do")
        from oism import files
        from oism.cli import models
        from oism.files.splits import TESTING
        from oism.prior.evaluation import evaluate

        prior = self._load()
        with models.bars(quiet=self.quiet):
            images = files.open_images(
                self.data,
                column=self.column,
                mode=self.mode,
                skip_broken=self.skip_broken,
                batch=self.batch,
                split=TESTING if self.split is None else self.split,
            )
            self._demand_alike(prior, images)
            total = len(images) if self.limit is None else min(self.limit, len(images))
            found = evaluate(
                prior,
                (batch.reshape(-1, *prior.shape) for batch in self._batches(images)),
                self.levels,
                bits=not self.no_bits,
                seed=self.random_state,
                total=total,
            )
        self._tell(prior, images, found)

    def _load(self) -> Prior:
        from oism.checks import device
        from oism.cli import models
        from oism.files import FileError, called

        with models.opened(self.prior) as stored:
            prior = stored.prior()
        if prior.pixels is None:
            raise FileError(f"{called(self.prior)}: a prior without pixels knows no images")
        for tau in self.levels:
            if not 0 <= tau <= prior.clock.horizon:
                raise UsageError(
                    f"--levels: expected τ from 0 to {prior.clock.horizon:g}, got {tau:g}"
                )
        return prior if self.device is None else prior.to(device(self.device))

    def _demand_alike(self, prior: Prior, images: Images) -> None:
        from oism.files import FileError, called
        from oism.prior.pictures import picture_shape

        own = picture_shape(prior) or prior.shape
        if own != images.shape:
            raise FileError(
                f"{images.source}: the images have shape {shape_text(images.shape)} (channels × "
                f"height × width), but {called(self.prior)} is a prior of {shape_text(own)}"
            )

    def _batches(self, images: Images) -> Iterator[Tensor]:
        import torch

        left = self.limit
        for batch in images:
            yield torch.from_numpy(batch[:left])
            if left is not None:
                left -= len(batch)
                if left <= 0:
                    return

    def _tell(self, prior: Prior, images: Images, found: Evaluation) -> None:
        if self.json:
            told = {
                "prior": self.prior,
                "data": self.data,
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
            print_json(told)
            return
        print(
            f"{images_text(found.count)} of {shape_text(prior.shape)}{split_text(images.split)} "
            f"evaluated"
            f"{skipped_text(images.skipped)}"
        )
        if found.levels:
            print("error of the predicted noise, per dimension, and what the prior expected")
        rows = [["τ", "σ", "error", "±", "expected"]]
        rows += [
            [
                f"{level.tau:g}",
                figure(level.sigma),
                figure(level.error.mean),
                _spread(level.error),
                figure(level.expected),
            ]
            for level in found.levels
        ]
        if found.levels:
            print("\n".join(f"  {line}" for line in aligned(rows)))
        if found.bits is not None:
            print(f"bits per dimension  {found.bits.mean:.4f} ± {_spread(found.bits)}")


def _spread(estimate: Estimate) -> str:
    return figure(estimate.error) if estimate.count > 1 else "?"
