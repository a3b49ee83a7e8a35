"""``oism train``: from images to a diffusion model that starts from a prior."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import arg

from oism.cli.options import (
    ClockName,
    Command,
    DataFile,
    ImageColumn,
    Mode,
    Seed,
    Split,
    naming_options,
    report,
)

if TYPE_CHECKING:
    from accelerate import Accelerator

    from oism.cli.head_start import Ready
    from oism.training import Training

Numbers = Annotated[tuple[int, ...] | None, arg(metavar="N ...", help_behavior_hint="")]

SETTINGS = {
    "steps": "steps", "batch": "batch", "rate": "rate", "warmup": "warmup", "clip": "clip",
    "decay": "ema", "first": "first", "seed": "random-state", "precision": "precision",
    "log_every": "log-every", "save_every": "save-every", "sample_every": "sample-every",
    "keep": "keep",
}  # fmt: skip
"""The settings of a run, and the options they are."""


@dataclass(frozen=True)
class Train(Command):
    """Train a diffusion model of images with a head start: a prior that is fitted in closed form.

    The network learns to predict the noise, and counts at every noise level as much as it is worth
    there beside the prior. The folder then holds settings.json, prior.safetensors, metrics.jsonl,
    samples, checkpoints to go on from and, at the end, model.safetensors with the average weights;
    `oism sample`, `evaluate` and `info` take the folder at any time. `accelerate launch -m oism
    train ...` or `torchrun ... -m oism train ...` trains with several processes.

    The schedule is by default the paper's for CIFAR-10, but for the warm-up: half a million steps
    are days without a GPU. The network has a size that suits the images, unless it is given.

    Examples:
      oism train images -o run --steps 20 --batch 32 --width 8
      oism train images -o small --steps 10 --batch 32 --width 8 --multipliers 1 --blocks 2
      oism train images -o own --prior prior.safetensors --no-flip --steps 10 --batch 32 --width 8
      oism train images -o paper --prior pixel --order 9 --paper --steps 10 --batch 32 --width 8
    """

    data: DataFile
    """The images: a folder, Parquet, NPY, NPZ, or the id of a dataset of the Hub."""
    output: Annotated[str, arg(aliases=["-o"], metavar="FOLDER")]
    """The folder of the run."""
    prior: Annotated[str, arg(metavar="pca|pixel|none|FILE")] = "pca"
    """Along principal directions, by pixel, none, or the file of one that `oism fit` made."""
    order: int = 2
    """The largest degree of the prior's polynomials, 1 to 9: 2 is the Gaussian."""
    components: Annotated[int | None, arg(metavar="K")] = None
    """Make the prior a mixture of K Gaussians instead, along principal directions."""
    gate: Annotated[tuple[float, float] | None, arg(metavar="HALF SHARPNESS")] = None
    """Learn what the prior leaves where its error is below HALF, as 0.001 4, not everything."""
    paper: bool = False
    """The paper's form: learn what the prior leaves, at every noise level."""
    clock: ClockName = None
    """The range of noise levels, by default that of the prior's file or vp:0.1:20."""
    width: int | None = None
    """The number of features at full resolution."""
    multipliers: Numbers = None
    """The widths of the levels of the network, each of half the resolution, as multiples of it."""
    blocks: int | None = None
    """The number of residual blocks of a level."""
    attention: Numbers = None
    """The numbers of rows at which positions attend to each other."""
    dropout: float | None = None
    """The share of features that is dropped in a block; 0.1 by default."""
    steps: int = 500_000
    """The number of steps, those of a run that is resumed included."""
    batch: int = 128
    """The number of images of a step, of all processes together."""
    rate: float = 2e-4
    """The learning rate of Adam."""
    warmup: int = 500
    """The number of steps over which the rate rises."""
    clip: float = 1.0
    """The largest norm of a gradient."""
    ema: float = 0.9999
    """The decay of the average weights."""
    first: float = 1e-5
    """The least noise level τ."""
    no_flip: bool = False
    """Show no mirror images."""
    no_dequantise: bool = False
    """Do not spread each pixel over one level, as densities of bytes need."""
    random_state: Seed = 0
    """The seed of weights, batches and noise."""
    precision: Literal["no", "bf16"] = "no"
    """Layers in bfloat16, or in full precision."""
    compile: bool = False
    """Compile the network, and on one GPU record its step as a graph."""
    log_every: int = 50
    """Write a line of metrics.jsonl every so many steps."""
    save_every: int = 5000
    """Write a checkpoint every so many steps; 0 for the last only."""
    sample_every: int = 5000
    """Draw 64 samples every so many steps; 0 for none."""
    keep: int = 2
    """How many checkpoints are kept."""
    resume: bool = False
    """Go on from the newest checkpoint of the folder, if there is one, as if never stopped."""
    device: str | None = None
    """Where to train, as cpu; by default a GPU where there is one."""
    column: ImageColumn = None
    """The column of a Parquet file, or the array of an NPZ file, where there is a choice."""
    split: Split = None
    """The part of a dataset whose Parquet files are named by such, train by default."""
    mode: Mode | None = None
    """Convert all images to grey (L) or colour (RGB)."""
    skip_broken: bool = False
    """Leave damaged images out."""
    json: bool = False
    """Report as JSON."""
    quiet: bool = False
    """Show no bar and no report."""

    def run(self) -> None:
        """Read, fit the prior, train and report."""
        from oism.cli import head_start, models
        from oism.cli.outputs import demand_other
        from oism.training import Run
        from oism.training._folder import demand_place

        head_start.demand_options(self)
        settings, folder = self._settings(), Path(self.output)
        demand_other(self.output, self.data)
        head_start.demand_folder(self)
        demand_place(folder, resume=self.resume)
        accelerator = head_start.accelerator(self.device)
        is_main = bool(accelerator.is_main_process)
        with models.bars(quiet=self.quiet or not is_main):
            ready = head_start.ready(self, accelerator)
            run = Run(
                folder, ready.predictor, ready.rows, ready.levels, settings, ready.setting,
                picture=head_start.draw, resume=self.resume, accelerator=accelerator,
            )  # fmt: skip
            begun, start = run.loop.step_number, time.perf_counter()
            if is_main:
                self._begin(ready, begun)
            with head_start.way_on(run):
                run.run()
        if is_main:
            self._tell(ready, begun, time.perf_counter() - start, accelerator)

    def _settings(self) -> Training:
        from oism.training import Training

        given = {name: getattr(self, option.replace("-", "_")) for name, option in SETTINGS.items()}
        with naming_options(SETTINGS):
            return Training(
                **given,
                flip=not self.no_flip,
                dequantise=not self.no_dequantise,
                compile=self.compile,
            )

    def _begin(self, ready: Ready, begun: int) -> None:
        """Say where numbers are to be found, to whom no bar is shown."""
        from oism.cli import priors
        from oism.training._folder import METRICS

        if self.quiet or sys.stderr.isatty() or begun == self.steps:
            return
        print(
            f"oism: training in {self.output}: {priors.images_text(len(ready.rows))} of "
            f"{priors.shape_text(ready.rows.shape)}, {ready.parameters:,} parameters, steps "
            f"{begun + 1} to {self.steps}; numbers in {Path(self.output) / METRICS}",
            file=sys.stderr,
            flush=True,
        )

    def _tell(self, ready: Ready, begun: int, seconds: float, accelerator: Accelerator) -> None:
        from oism.cli import priors
        from oism.training import _metrics as metrics
        from oism.training._folder import METRICS, MODEL

        folder = Path(self.output)
        last = metrics.read(folder / METRICS)[-1]
        count, skipped = len(ready.rows), ready.images.skipped
        taken, prior = self.steps - begun, ready.prior
        facts = {
            "images": count,
            "split": ready.images.split,
            **priors.skipped_facts(skipped),
            "shape": list(ready.rows.shape),
            "flip": not self.no_flip,
            "prior": None if prior is None else prior.facts,
            "prior_seconds": ready.seconds,
            "parameters": ready.parameters,
            "processes": int(accelerator.num_processes),
            "device": str(accelerator.device),
            "resumed_from": begun,
            "steps": self.steps,
            "seconds": seconds,
            "loss": last["loss"],
            "output": self.output,
            "model": str(folder / MODEL),
        }
        mirrored = "" if self.no_flip else ", mirrored at random"
        head = "no prior" if prior is None else f"prior {prior.facts['kind']}"
        text = (
            f"{priors.images_text(count)} of {priors.shape_text(ready.rows.shape)}"
            f"{priors.split_text(ready.images.split)}{priors.skipped_text(skipped)}{mirrored}; "
            f"{head}; {ready.parameters:,} parameters\n"
            f"{taken} steps{f' after {begun}' if begun else ''} in {seconds:.1f} s, loss "
            f"{last['loss']:.4f}\n"
            f"model written to {folder / MODEL}\n"
            f"next: `oism sample {self.output} -n 64 -o grid.png` draws from it, "
            f"`oism evaluate {self.output} DATA` measures it"
        )
        report(text, facts, self.output, json=self.json, quiet=self.quiet)
