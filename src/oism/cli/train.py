"""``oism train``: a diffusion model of images, with a prior."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from oism.cli.exit_codes import UsageError
from oism.cli.options import (
    STANDARD,
    ClockText,
    Command,
    Device,
    ImageFiles,
    Number,
    Report,
    ReportOptions,
    check_not_input,
    given,
    options,
    setting,
)

if TYPE_CHECKING:
    from oism.cli.train_parts import Prepared
    from oism.cli.train_plan import Plan
    from oism.training import Run

Prediction = Literal["noise", "v", "x0", "edm", "operator", "gaussian"]
Loss = Literal["noise", "output", "mixed"]
Numbers = Annotated[tuple[int, ...] | None, arg(metavar="N ...")]


@options
class PriorOptions:
    """The prior, and how the network is combined with it."""

    prior: Annotated[str | None, setting("pca", "KIND|FILE")] = None
    """pca, pixel, none, or a file from `oism fit-images`."""
    order: Annotated[int | None, setting(2, "N")] = None
    """The degree of the prior's polynomials, 1 to 9; 2 is Gaussian."""
    components: Number = None
    """A mixture of N Gaussians as the prior instead."""
    gate: Annotated[tuple[float, float] | None, arg(metavar="HALF SHARPNESS")] = None
    """Train on the residual where the prior's error < HALF, as 0.001 4."""
    paper: bool = False
    """The paper's form: train on the residual at all noise levels."""
    predict: Annotated[Prediction | None, setting("edm", "WHAT")] = None
    """noise, v, x0, edm; or operator, gaussian, which use the prior."""


@options
class Network:
    """The size of the network, by default one that suits the images."""

    network: Annotated[str | None, arg(metavar="FOLDER")] = None
    """Train this UNet2DModel of diffusers: the folder of a pipeline or a network."""
    width: Number = None
    """The number of features at full resolution."""
    multipliers: Numbers = None
    """The widths of the levels, as multiples of the width."""
    blocks: Number = None
    """The number of residual blocks of a level."""
    attention: Numbers = None
    """The numbers of rows at which there is attention."""
    dropout: Annotated[float | None, setting(0.1, "SHARE")] = None
    """The share of features that dropout removes in a block."""


@options
class Schedule:
    """What determines the weights."""

    steps: Annotated[int | None, setting("500,000", "N")] = None
    """The number of steps, those before --resume included."""
    batch: Annotated[int | None, setting(128, "N")] = None
    """The number of images of a step, over all processes."""
    rate: Annotated[float | None, setting(0.0002, "RATE")] = None
    """The learning rate of Adam."""
    seed: Annotated[int | None, setting(0, "N")] = None
    """The seed of weights, batches and noise."""
    no_flip: bool = False
    """Do not mirror images at random."""


@options
class Details:
    """Further settings that determine the weights."""

    loss: Annotated[Loss | None, setting("output", "LOSS")] = None
    """output (the error of what is predicted), noise or mixed levels."""
    warmup: Annotated[int | None, setting(500, "N")] = None
    """The number of steps over which the rate increases."""
    clip: Annotated[float | None, setting(1.0, "NORM")] = None
    """The largest norm of a gradient."""
    ema: Annotated[float | None, setting(0.9999, "DECAY")] = None
    """The decay of the average weights."""
    first: Annotated[float | None, setting(1e-05, "TAU")] = None
    """The smallest noise level."""
    clock: ClockText = None
    """Noise levels vp:BETA_0:BETA_1, by default the prior's or vp:0.1:20."""
    no_dequantise: bool = False
    """Do not spread pixels over one level, as densities need."""
    dropped_labels: Annotated[float | None, setting(0.1, "SHARE")] = None
    """The share of labels that are left out, as guidance needs."""
    precision: Annotated[Literal["no", "bf16"] | None, setting("no", "no|bf16")] = None
    """bf16 for layers in bfloat16."""
    compile: bool = False
    """Compile the network, and record its step as a graph on one GPU."""


@options
class Records:
    """What is written during the run."""

    log_every: Annotated[int | None, setting(50, "N")] = None
    """Steps between two lines of metrics.jsonl."""
    save_every: Annotated[int | None, setting(5000, "N")] = None
    """Steps between two checkpoints; 0 for the last only."""
    sample_every: Annotated[int | None, setting(5000, "N")] = None
    """Steps between two grids of 64 samples; 0 for none."""
    keep: Annotated[int | None, setting(2, "N")] = None
    """The number of checkpoints that are kept."""


@options
class Train(Command):
    """Train a diffusion model of images with a prior, which is fitted in closed form.

    By default the network has EDM's preconditioning and loss. At every noise level its prediction
    and the prior's are averaged with the weight that minimises the error. The folder gets the
    model, metrics, samples and checkpoints; `oism sample`, `evaluate` and `info` take the folder at
    any time after the first checkpoint. --resume continues a run with its own settings. Several
    processes: `torchrun --nproc_per_node N -m oism train ...`. `oism train --help-all` lists all
    options.

    Examples:
      oism train images -o run --steps 20 --batch 32 --width 8
      oism train images -o small --steps 10 --batch 32 --width 8 --multipliers 1 --blocks 2
      oism train images -o own --prior prior.safetensors --no-flip --steps 10 --batch 32 --width 8
      oism train images -o paper --prior pixel --order 9 --paper --steps 10 --batch 32 --width 8
      oism train digits -o by-class --labels --no-flip --steps 10 --batch 32 --width 8
      oism train --resume run --steps 30
    """

    further = ("network", "details", "records", "images")

    data: Annotated[Positional[str | None], arg(metavar="DATA")] = None
    """The images, as for `oism fit-images`; with --resume, if they moved."""
    output: Annotated[str | None, arg(aliases=["-o"], metavar="RUN")] = None
    """The folder of a new run."""
    resume: Annotated[str | None, arg(metavar="RUN")] = None
    """Continue the run in this folder from its newest checkpoint."""
    device: Device = None
    """Where to train, for example cpu; by default a GPU if there is one."""
    labels: bool = False
    """Train by class: subfolders, a Parquet column or an array "labels"."""
    prior: PriorOptions = PriorOptions()
    training: Schedule = Schedule()
    network: Network = Network()
    details: Details = Details()
    records: Records = Records()
    images: ImageFiles = ImageFiles()
    report: ReportOptions = Report()

    def run(self) -> None:
        """Read, fit the prior, train and report."""
        from oism.cli.train_parts import accelerator_on, prepare
        from oism.cli.train_plan import can_resume, new_plan, resumed_plan
        from oism.cli.train_progress import Lines, draw, stopping_gently
        from oism.training import Run

        folder = run_folder(self.data, self.output, self.resume)
        found = given(self)
        if self.resume is not None and can_resume(folder, self.data):
            plan = resumed_plan(folder, self.data, found, self.images)
        else:
            assert self.data is not None
            plan = new_plan(folder, self.data, found, self.images)
        accelerator = accelerator_on(self.device)
        is_main = bool(accelerator.is_main_process)
        has_lines = is_main and not self.report.quiet and not sys.stderr.isatty()
        with self.report.bars(also=is_main):
            prepared = prepare(plan, accelerator)
            run = Run(
                plan.folder, prepared.predictor, prepared.rows, plan.config,
                objective=prepared.objective, resume=plan.resumes, draw=draw,
                accelerator=accelerator, notes=prepared.notes,
                listener=Lines() if has_lines else None,
            )  # fmt: skip
            begun, start = run.loop.step_number, time.perf_counter()
            if has_lines and begun < plan.config.steps:
                print(f"oism: {_start(plan, prepared, begun)}", file=sys.stderr, flush=True)
            with stopping_gently(run):
                run.run()
        if is_main:
            seconds = time.perf_counter() - start
            facts = _facts(plan, prepared, run, begun, seconds)
            self.report.print(_text(plan, prepared, facts), facts)


def run_folder(data: str | None, output: str | None, resume: str | None) -> Path:
    """Return the folder of the run; raise if the arguments do not determine it."""
    if output is not None and resume is not None and Path(output) != Path(resume):
        raise UsageError(f"--resume: names the folder of the run, and -o another one, {output}")
    name = output if resume is None else resume
    if name is None:
        raise UsageError("-o: name the folder of the run")
    if name == STANDARD:
        raise UsageError("-o: a run is a folder, and cannot be written to standard output")
    if data is None and resume is None:
        raise UsageError("DATA: name the images to train on")
    folder = Path(name)
    if data is not None:
        check_not_input(name, data)
        if Path(data).is_dir() and folder.resolve().is_relative_to(Path(data).resolve()):
            raise UsageError(
                f"-o: {name} is within the images of {data}, and its samples would become some of "
                "them: name another folder"
            )
    return folder


def _start(plan: Plan, prepared: Prepared, begun: int) -> str:
    """Return the line that is printed before the first step, if there is no terminal."""
    from oism.cli import reports

    return (
        f"training in {plan.folder}: {reports.count_text(len(prepared.rows))} of "
        f"{reports.shape_text(prepared.rows.shape)}, {prepared.parameters:,} parameters, steps "
        f"{begun + 1} to {plan.config.steps}; metrics in {plan.folder / 'metrics.jsonl'}"
    )


def _facts(plan: Plan, prepared: Prepared, run: Run, begun: int, seconds: float) -> dict[str, Any]:
    """Return the report of a run for JSON."""
    from oism.cli import reports
    from oism.training import read_metrics

    assert run.error is not None
    prior, images, accelerator = prepared.prior, prepared.images, run.accelerator
    return {
        "images": len(prepared.rows),
        "split": images.split,
        **reports.skipped_facts(images.skipped),
        "shape": list(prepared.rows.shape),
        "classes": prepared.notes["classes"],
        "flip": plan.config.flip,
        "prior": None if prior is None else prior.facts(),
        "prior_seconds": prepared.seconds,
        "parameters": prepared.parameters,
        "processes": int(accelerator.num_processes),
        "device": str(accelerator.device),
        "resumed_from": begun,
        "steps": plan.config.steps,
        "seconds": seconds,
        "loss": read_metrics(plan.folder)[-1]["loss"],
        "model_error": run.error.mean,
        "model_error_by_level": list(run.error.by_level),
        "output": str(plan.folder),
        "model": str(plan.folder / "model.safetensors"),
    }


def _text(plan: Plan, prepared: Prepared, facts: dict[str, Any]) -> str:
    """Return the report of a run as text."""
    from oism.cli import reports

    begun = facts["resumed_from"]
    mirrored = ", mirrored at random" if facts["flip"] else ""
    classes = "" if facts["classes"] is None else f"; {len(facts['classes'])} classes"
    prior = "no prior" if facts["prior"] is None else f"prior {facts['prior']['kind']}"
    levels = " ".join(map(reports.decimals, facts["model_error_by_level"]))
    return (
        f"{reports.count_text(facts['images'])} of {reports.shape_text(facts['shape'])}"
        f"{reports.split_text(facts['split'])}{reports.skipped_text(prepared.images.skipped)}"
        f"{mirrored}{classes}; {prior}; {facts['parameters']:,} parameters\n"
        f"{facts['steps'] - begun} steps{f' after {begun}' if begun else ''} in "
        f"{facts['seconds']:.1f} s, loss {facts['loss']:.4f}\n"
        f"error of the model {facts['model_error']:.4f}; from low to high noise {levels}\n"
        f"model written to {facts['model']}\n"
        f"next: `oism sample {plan.folder} -n 64 -o grid.png` draws from it, "
        f"`oism evaluate {plan.folder} DATA` measures it"
    )
