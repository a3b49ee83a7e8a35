"""``oism evaluate``: what a prior or a trained model is worth on images."""

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
    ModelFile,
    Seed,
    Split,
    demand_count,
    demand_default,
    demand_one_stdin,
)
from oism.cli.priors import LEVELS, shape_text

if TYPE_CHECKING:
    from torch import Tensor

    from oism.data.files import Images
    from oism.images._display import OfTensors

Levels = Annotated[tuple[float, ...], arg(metavar="TAU ...", help_behavior_hint="")]

PRIORS_ONLY = ("levels",)
TRAINED_ONLY = ("intervals", "steps", "tolerance", "features", "samples")


@dataclass(frozen=True)
class Evaluate(Command):
    """Say what a prior or a trained model is worth on images: noise errors and bits per dimension.

    For a prior, at each noise level the images, dequantised if it is, are noised once, the same
    noise at every level, and the error is that of the noise that it predicts, squared and per
    dimension: 1 is to know nothing. Next to it stands what the prior expected when it was fitted.
    Bits per dimension are those of the density, on dequantised pixels. Images are read a few at a
    time.

    For a trained model, or the folder of a run, the errors are those within equal parts of the
    range of log-SNR, next to what its prior has alone; their mean is the loss of training. Bits per
    dimension follow the probability flow from the least noise, and are told with how it was
    followed. With --features the Fréchet distance between images and samples comes last.

    Examples:
      oism evaluate prior.safetensors images
      oism evaluate prior.safetensors images -n 50 --levels 0.01 0.1 0.5 --no-bits --json
      oism evaluate run images -n 50 --steps 8
      oism evaluate run images -n 50 --no-bits --features pixels --samples 20 --steps 8
    """

    model: ModelFile
    """The prior that `oism fit` makes of images, - is standard input; or what `oism train` made,
    a file or the folder of a run."""
    data: Annotated[Positional[str], arg(metavar="DATA")]
    """The images: a folder, Parquet, NPY, NPZ, or the id of a dataset of the Hub."""
    levels: Levels = LEVELS
    """Priors: the noise levels τ, from 0 to 1; by default eight from 0.001 to 0.9."""
    intervals: int = 6
    """Trained models: the number of parts of the range of noise levels; 0 for none."""
    limit: Annotated[int | None, arg(aliases=["-n"], metavar="N")] = None
    """Take the first N images only."""
    no_bits: bool = False
    """Leave out bits per dimension, which take longest for polynomials of order 3 and more and for
    trained models."""
    steps: int | None = None
    """Trained models: the Runge-Kutta steps of the flow, four evaluations each; 24 by default."""
    tolerance: float | None = None
    """Trained models: follow the flow by adaptive steps with this tolerance instead."""
    features: Annotated[str | None, arg(metavar="NAME")] = None
    """Trained models: the Fréchet distance of features: pixels, torch-fidelity or torchmetrics for
    Inception's, or package.module:callable for one's own."""
    samples: int | None = None
    """Trained models: how many are drawn for it; by default as many as there are images."""
    batch: int = 256
    """How many images are evaluated at a time."""
    random_state: Seed = 0
    """The seed of the noise, of the dequantisation and of samples."""
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
    """Where the work is done, as cuda; trained models choose a GPU where there is one."""
    json: bool = False
    """Print JSON instead of text."""
    quiet: bool = False
    """Show no bar."""

    def run(self) -> None:
        """Load, read, evaluate and tell."""
        demand_one_stdin(self.model, self.data)
        demand_count(self.batch, 1, "--batch")
        if self.limit is not None:
            demand_count(self.limit, 1, "--limit")
        if not self.levels and self.no_bits:
            raise UsageError("--levels: without levels and with --no-bits there is nothing to do")
        from oism.cli import models, prior_worth, trained_worth

        with models.opened(self.model) as stored:
            if stored.is_trained:
                demand_default(self, PRIORS_ONLY, f"an option for priors, not for {self.model}")
                trained_worth.evaluate(self, stored)
                return
            prior = stored.prior()
        demand_default(self, TRAINED_ONLY, f"an option for trained models, not for {self.model}")
        prior_worth.evaluate(self, prior)

    def open_images(self, model: OfTensors) -> Images:
        """Return the images, which are like those of a model."""
        from oism.data import files
        from oism.data.files._splits import TESTING
        from oism.images import Prior
        from oism.images._display import picture_shape

        kind = "prior" if isinstance(model, Prior) else "model"
        if model.pixels is None:
            raise files.FileError(
                f"{files.called(self.model)}: a {kind} without pixels knows no images"
            )
        images = files.open_images(
            self.data,
            column=self.column,
            mode=self.mode,
            skip_broken=self.skip_broken,
            batch=self.batch,
            split=TESTING if self.split is None else self.split,
        )
        own = picture_shape(model) or model.shape
        if own != images.shape:
            raise files.FileError(
                f"{images.source}: the images have shape {shape_text(images.shape)} (channels × "
                f"height × width), but {files.called(self.model)} is a {kind} of {shape_text(own)}"
            )
        return images

    def batches(self, images: Images) -> Iterator[Tensor]:
        """Yield the images that are wanted."""
        import torch

        left = self.limit
        for batch in images:
            yield torch.from_numpy(batch[:left])
            if left is not None:
                left -= len(batch)
                if left <= 0:
                    return
