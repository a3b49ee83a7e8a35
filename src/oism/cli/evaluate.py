"""``oism evaluate``: likelihoods of rows, or errors and bits per dimension on images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from oism._core.user_warnings import warn
from oism.cli.exit_codes import UsageError
from oism.cli.options import (
    LEVELS,
    ColumnNames,
    Command,
    Device,
    Format,
    ImageFiles,
    Missing,
    ModelFile,
    Number,
    Report,
    ReportOptions,
    Seed,
    check_count,
    check_file,
    check_not_given,
    check_one_stdin,
    is_same_file,
    options,
    print_json,
)

if TYPE_CHECKING:
    from torch import Tensor

    from oism.cli.evaluation import How
    from oism.cli.fidelity import Fidelity, TrainingImages
    from oism.cli.models import Stored
    from oism.data.files import Images
    from oism.flow import TensorSpec
    from oism.nn import Diffusion

PRIORS_ONLY = ("levels",)
TRAINED_ONLY = (
    "labels", "intervals", "evaluations", "tolerance", "probes", "features", "samples", "nearest",
)  # fmt: skip
TABLES_ONLY = ("baselines", "seconds", "columns", "missing", "format")
IMAGES_ONLY = (
    *PRIORS_ONLY, *TRAINED_ONLY, "limit", "no_bits", "batch", "device",
    "image_column", "label_column", "split", "mode", "skip_broken",
)  # fmt: skip

BaselineNames = Annotated[
    tuple[Literal["kde", "mixture", "flow"], ...],
    arg(metavar="kde|mixture|flow ...", help_behavior_hint="(default: all that are installed)"),
]


@options
class TableMeasures:
    """What is measured of a model of a table."""

    baselines: BaselineNames = ()
    """The methods to compare with; the flow needs zuko."""
    seconds: Annotated[float, arg(metavar="NUMBER")] = 60.0
    """The longest training time of the flow."""
    columns: ColumnNames = ()
    """The columns of DATA in the model's order, by name or number."""
    missing: Missing = "error"
    """Refuse rows with an empty cell, skip them, or use their other cells."""
    format: Format = None
    """The format of DATA, if the suffix does not determine it."""


@options
class PriorMeasures:
    """What is measured of a prior."""

    levels: Annotated[
        tuple[float, ...], arg(metavar="TAU ...", help_behavior_hint="(default: 8 levels)")
    ] = LEVELS
    """The noise levels, from 0 to 1."""


@options
class TrainedMeasures:
    """What is measured of a trained model."""

    labels: bool = False
    """Use the labels of the images, for a model trained with --labels."""
    intervals: Annotated[int, arg(metavar="N")] = 6
    """The number of parts of the log-SNR range; 0 for no errors."""
    evaluations: Number = None
    """Evaluations of the network along the flow (default: 32 with a prior, 96 without)."""
    tolerance: Annotated[float | None, arg(metavar="NUMBER")] = None
    """Follow the flow by adaptive steps of this tolerance instead."""
    probes: Annotated[int, arg(metavar="N")] = 1
    """Probes of the divergence at every evaluation; bits vary less with more of them."""
    features: Annotated[str | None, arg(metavar="NAME")] = None
    """Compare samples in features: classifier (trained on the images of the run, with labels),
    pixels, torch-fidelity, torchmetrics or package.module:callable."""
    samples: Number = None
    """The number of these samples, by default that of the images."""
    nearest: Annotated[str | None, arg(metavar="FILE")] = None
    """Draw samples and their nearest training images to this PNG file (--features)."""


@options
class Evaluate(Command):
    """Measure a model on rows that it was not fitted to, or a prior or a trained model on images.

    Rows: the mean log-likelihood. With --train it stands beside those of a KDE, a mixture of
    Gaussians and, where zuko is installed, a spline flow, with paired standard errors.
    Images: the mean square error of the predicted noise per dimension, 1 for predicting no noise,
    beside the prior's; bits per dimension; Fréchet distance, precision and recall of samples.
    `oism evaluate --help-all` lists the options for images as well.

    Examples:
      oism evaluate moons.safetensors test.csv
      oism evaluate moons.safetensors test.csv --train moons.csv --baselines kde mixture
      oism evaluate prior.safetensors images
      oism evaluate prior.safetensors images -n 50 --levels 0.01 0.1 0.5 --no-bits --json
      oism evaluate run images -n 50 --evaluations 16
      oism evaluate run images -n 50 --no-bits --features pixels --samples 20 --nearest near.png
    """

    further = ("prior", "trained", "images")

    model: ModelFile
    """The file of a model, or the folder of a run."""
    data: Annotated[Positional[str], arg(metavar="DATA")]
    """The rows, or the images as for `oism fit-images`."""
    train: Annotated[str | None, arg(metavar="FILE")] = None
    """What the model was fitted to: rows for baselines, or images (default: the run's)."""
    limit: Annotated[int | None, arg(aliases=["-n"], metavar="N")] = None
    """Use the first N images only."""
    no_bits: bool = False
    """Omit bits per dimension, which take longest."""
    batch: Annotated[int, arg(metavar="N")] = 256
    """The number of images at a time."""
    seed: Seed = 0
    """The seed of noise, dequantisation, samples and baselines."""
    device: Device = None
    """The device, as cuda; trained models use a GPU if there is one."""
    table: TableMeasures = TableMeasures()
    prior: PriorMeasures = PriorMeasures()
    trained: TrainedMeasures = TrainedMeasures()
    images: ImageFiles = ImageFiles()
    report: ReportOptions = Report()

    def run(self) -> None:
        """Load, read, evaluate and print."""
        check_one_stdin(self.model, self.data)
        check_count(self.batch, 1, "--batch")
        if self.limit is not None:
            check_count(self.limit, 1, "--limit")
        if not self.prior.levels and self.no_bits:
            raise UsageError("--levels: without levels and with --no-bits there is nothing to do")
        from oism.cli import models

        with models.opened(self.model) as stored:
            if stored.kind == "table":
                why = f"an option for images, not for {self.model}, a model of a table"
                check_not_given(self, IMAGES_ONLY, why)
                self._evaluate_table(stored)
                return
            check_not_given(self, TABLES_ONLY, f"an option for tables, not for {self.model}")
            if stored.kind == "trained":
                why = f"an option for priors, not for {self.model}"
                check_not_given(self, PRIORS_ONLY, why)
                self._evaluate_trained(stored)
            else:
                if stored.kind == "prior":
                    why = f"an option for trained models, not for {self.model}"
                    check_not_given(self, TRAINED_ONLY, why)
                self._evaluate_prior(stored)

    def _evaluate_table(self, stored: Stored) -> None:
        from oism.cli import table_evaluation
        from oism.cli.rows import read_rows

        table = self.table
        if self.train is None:
            check_not_given(
                table, ("baselines", "seconds"), "needs --train, the rows to fit them to"
            )
        check_one_stdin(self.data, self.train, "the data and the training rows")
        model, missing = stored.table(), table.missing
        with self.report.bars():
            test = read_rows(
                self.data, model, chosen=table.columns, missing=missing, format=table.format
            )
            train = None if self.train is None else read_rows(self.train, model, missing=missing)
            found = table_evaluation.compared(
                model,
                test,
                train,
                baselines=table.baselines,
                seconds=table.seconds,
                seed=self.seed,
            )
        if self.train is not None and is_same_file(self.data, self.train):
            warn(
                f"DATA and --train are the same file, {self.data}: likelihoods of rows that a "
                "model was fitted to are too high; give rows that it was not fitted to as DATA"
            )
        if self.report.json:
            print_json({"file": self.model, "data": self.data, **found.facts()})
        else:
            print(table_evaluation.table_text(found))

    def _evaluate_prior(self, stored: Stored) -> None:
        from oism._core.checks import device
        from oism.cli import evaluation
        from oism.images import evaluate

        if self.train is not None:
            raise UsageError("--train: an option for tables and trained models, not for a prior")

        prior = stored.prior()
        horizon = prior.clock.horizon
        for tau in self.prior.levels:
            if not 0 <= tau <= horizon:
                raise UsageError(f"--levels: expected τ from 0 to {horizon:g}, got {tau:g}")
        with self.report.bars():
            images = self._open(prior.spec, "prior")
            prior = prior if self.device is None else prior.to(device(self.device))
            batches = evaluation.first_images(images, self.limit)
            found = evaluate(
                prior,
                (batch.reshape(-1, *prior.shape) for batch in batches),
                self.prior.levels,
                bits=not self.no_bits,
                seed=self.seed,
                total=len(images) if self.limit is None else min(self.limit, len(images)),
            )
        if self.report.json:
            heads = {"prior": self.model, "data": self.data}
            print_json({**heads, **evaluation.prior_facts(found, images, prior.shape)})
        else:
            print(evaluation.prior_text(found, images, prior.shape))

    def _evaluate_trained(self, stored: Stored) -> None:
        import torch

        from oism.cli import evaluation, fidelity
        from oism.cli.sample import on_device
        from oism.training import stacked

        measures = self.trained
        _check(measures, no_bits=self.no_bits)
        adaptive = evaluation.adaptive_method(measures.tolerance)
        known = fidelity.training_images(stored.file, self.train, self.images)
        if measures.nearest is not None:
            fidelity.needed(known, "--nearest")
            check_file(measures.nearest)
        if measures.features not in (None, fidelity.CLASSIFIER):  # a wrong name is found early
            fidelity.extractor(measures.features, known, torch.device("cpu"))
        with self.report.bars():
            model = stored.trained()
            images = self._open(model.spec, "model")
            model = on_device(model, self.device)
            batches = evaluation.first_images(images, self.limit)
            values = stacked(batch.numpy() for batch in batches)
            labels = self._labels(images, len(values), model.classes, stored)
            method = adaptive or model.likelihood_method(measures.evaluations)
            sampling = {"evaluations": measures.evaluations, "method": adaptive}
            how = evaluation.How(method, sampling, measures.probes, self.seed, self.batch)
            intervals, alone = evaluation.errors(model, values, labels, measures.intervals, how)
            found = evaluation.Measured(
                count=len(values),
                labels=labels is not None,
                first=model.first,
                method=method,
                intervals=intervals,
                alone=alone,
                bits=None if self.no_bits else evaluation.bits(model, values, labels, how),
                fidelity=self._fidelity(model, values, known, how),
            )
        if self.report.json:
            heads = {"model": self.model, "data": self.data}
            print_json({**heads, **evaluation.trained_facts(found, images, model.shape)})
        else:
            print(evaluation.trained_text(found, images, model.shape))

    def _labels(
        self, images: Images, count: int, classes: int | None, stored: Stored
    ) -> Tensor | None:
        """Return the classes of the images, if they are asked for."""
        if not self.trained.labels:
            return None
        from oism.cli.classes import numbered

        if classes is None:
            raise UsageError(f"--labels: {self.model} has no classes, it was trained without")
        found = images.labels(self.images.label_column)
        return numbered(found, stored.file, classes)[:count]

    def _fidelity(
        self, model: Diffusion, values: Tensor, known: TrainingImages | None, how: How
    ) -> Fidelity | None:
        from oism.cli import evaluation, fidelity

        name = self.trained.features
        if name is None:
            return None
        count = len(values) if self.trained.samples is None else self.trained.samples
        extractor = fidelity.extractor(name, known, model.device)
        samples = fidelity.drawn(model, count, how.seed, how.sampling)
        return fidelity.measured(
            values, samples, name, extractor, evaluation.sampling_text(how.sampling),
            how.batch, self.trained.nearest, known,
        )  # fmt: skip

    def _open(self, spec: TensorSpec, kind: str) -> Images:
        """Return the images, which must be like those of the model."""
        from oism.cli.reports import shape_text
        from oism.data import files
        from oism.images import image_shape

        if spec.pixels is None:
            raise files.FileError(
                f"{files.called(self.model)}: a {kind} without pixels, which is not one of images"
            )
        images = self.images.open(self.data, files.TESTING, batch=self.batch)
        own = image_shape(spec) or spec.shape
        if own != images.shape:
            raise files.FileError(
                f"{images.source}: the images have shape {shape_text(images.shape)} (channels × "
                f"height × width), but {files.called(self.model)} is a {kind} of {shape_text(own)}"
            )
        return images


def _check(measures: TrainedMeasures, *, no_bits: bool) -> None:
    """Raise if options of trained models contradict each other."""
    check_count(measures.intervals, 0, "--intervals")
    if not measures.intervals and no_bits and measures.features is None:
        raise UsageError("--intervals: without any and with --no-bits there is nothing to do")
    if measures.evaluations is not None:
        check_count(measures.evaluations, 2, "--evaluations")
        if measures.tolerance is not None:
            raise UsageError("--tolerance: chooses its own steps: not together with --evaluations")
    check_count(measures.probes, 1, "--probes")
    if measures.samples is not None:
        check_count(measures.samples, 2, "--samples")
        if measures.features is None:
            raise UsageError("--samples: compared in features, which needs --features")
    if measures.nearest is not None and measures.features is None:
        raise UsageError("--nearest: nearest in features, which needs --features")
