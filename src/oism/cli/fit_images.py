"""``oism fit-images``: a prior of images, in closed form."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import arg

from oism.cli.exit_codes import UsageError
from oism.cli.options import (
    ClockText,
    Command,
    DataFile,
    Device,
    ImageFiles,
    Number,
    Output,
    Report,
    ReportOptions,
    check_count,
    check_file,
    check_not_given,
    check_not_input,
    image_clock_of,
    options,
)

if TYPE_CHECKING:
    from oism.data.files import Images
    from oism.images import Prior

POLYNOMIALS_ONLY = ("order", "ridge", "cv", "frame", "shrinkage", "knots", "labels")
CLASSES_NOT = ("order", "ridge", "cv", "shrinkage", "knots", "local")
SHRINKAGES = {"james-stein": "JamesStein", "modulation": "Modulation", "monotone": "Monotone"}


@options
class Form:
    """The form of the prior."""

    order: Annotated[int, arg(metavar="N")] = 4
    """The largest degree of the polynomials, 1 to 9."""
    components: Number = None
    """Fit a mixture of N Gaussians instead of polynomials."""
    local: bool = False
    """Add terms for edges: small filters, alike at all positions."""
    frame: Annotated[Literal["pca", "identity", "cosine"], arg(metavar="FRAME")] = "pca"
    """Directions: pca, identity (single pixels) or cosine."""
    top: Number = None
    """Only N principal directions; one variance for the others."""
    ridge: Annotated[float | Literal["cv"], arg(metavar="NUMBER")] = "cv"
    """One number, or cv: cross-validated at every noise level."""
    cv: Annotated[int, arg(metavar="N")] = 5
    """The number of folds of cross-validation."""
    shrinkage: Annotated[
        Literal["james-stein", "modulation", "monotone"] | None, arg(metavar="RULE")
    ] = None
    """Shrink averages: james-stein, modulation or monotone."""
    knots: Number = None
    """Tabulate coefficients at N even times, as 1000 in the paper."""
    labels: bool = False
    """A Gaussian for every class: subfolders, a Parquet column or an array "labels"."""
    clock: ClockText = None
    """Noise levels: vp:BETA_0:BETA_1, by default vp:0.1:20."""
    flip: bool = False
    """Include the mirror image of each image."""
    no_dequantise: bool = False
    """Do not spread pixels over one level, as densities need."""

    def check(self) -> None:
        """Raise if options contradict each other."""
        if self.components is not None:
            why = "an option for polynomials, not for a mixture (--components)"
            check_not_given(self, POLYNOMIALS_ONLY, why)
            check_count(self.components, 1, "--components")
        if self.top is not None:
            check_count(self.top, 1, "--top")
            if self.frame != "pca":
                raise UsageError(f"--top: counts principal directions, not those of {self.frame}")
        if self.labels:
            check_not_given(self, CLASSES_NOT, "not for a Gaussian for every class (--labels)")
        if self.knots is not None:
            check_count(self.knots, 2, "--knots")
        check_count(self.cv, 2, "--cv")
        image_clock_of(self.clock)


@options
class FitImages(Command):
    """Fit a prior to images and write it to one file.

    DATA is a folder of images; Parquet with encoded images, or a folder of such files; an NPY or
    NPZ array of uint8 with three or four axes; or the id of a dataset of the Hugging Face Hub, as
    uoft-cs/cifar10. All images have one size and are all grey or all colour.

    Examples:
      oism fit-images images -o prior.safetensors
      oism fit-images images --components 4 --top 20 --flip -o mixture.safetensors
      oism fit-images images --local -o local.safetensors
    """

    data: DataFile
    """The images."""
    output: Output
    """The file of the prior; - is standard output."""
    device: Device = None
    """Where the prior is fitted, for example cuda."""
    prior: Form = Form()
    images: ImageFiles = ImageFiles()
    report: ReportOptions = Report()

    def run(self) -> None:
        """Read, fit, write and report."""
        from oism.cli import models, reports
        from oism.data.files import TRAINING

        self.report.check_stdout(self.output)
        check_not_input(self.output, self.data)
        check_file(self.output)
        self.prior.check()
        start = time.perf_counter()
        with self.report.bars():
            images = self.images.open(self.data, TRAINING)
            prior = fitted(self.prior, images, self.device, self.images.label_column)
        seconds = time.perf_counter() - start
        models.save(prior, self.output)
        count, found = len(images) - len(images.skipped), reports.prior_facts(prior)
        text = (
            f"{reports.count_text(count)}{reports.split_text(images.split)} fitted in "
            f"{seconds:.1f} s{reports.skipped_text(images.skipped)}\n"
            f"{reports.prior_summary(found)}\nprior written to {self.output}"
        )
        facts = {
            "split": images.split,
            "images": count,
            **reports.skipped_facts(images.skipped),
            "seconds": seconds,
            "output": self.output,
            "model": found,
        }
        self.report.print(text, facts, self.output)


def fitted(form: Form, images: Images, device: str | None, column: str | None = None) -> Prior:
    """Return the prior of images; ``column`` is that of their labels."""
    from oism.images import add_local_terms

    prior = _base(form, images, device, column)
    return add_local_terms(images, prior, device=device) if form.local else prior


def _base(form: Form, images: Images, device: str | None, column: str | None) -> Prior:
    """Return the polynomials or the mixture, without local terms."""
    from oism import estimation
    from oism.basis import CosineFrame, Frame, IdentityFrame
    from oism.images import CHOICES, PCA, fit_mixture, fit_prior

    entries = math.prod(images.shape)
    if form.top is not None and form.top > entries:
        raise UsageError(f"--top: images have {entries} entries, got {form.top}")
    common: dict[str, Any] = {
        "flip": form.flip,
        "dequantise": not form.no_dequantise,
        "clock": image_clock_of(form.clock),
        "device": device,
    }
    pca = PCA(form.top)
    if form.components is not None:
        return fit_mixture(images, components=form.components, frame=pca, **common)
    frames: dict[str, Frame | PCA] = {
        "pca": pca,
        "identity": IdentityFrame(),
        "cosine": CosineFrame(images.shape),
    }
    if form.labels:
        for _ in images:  # damaged images, which have no label, are known after a pass
            pass
        labels = images.labels(column).numbers
        by_class: Prior = fit_prior(images, labels=labels, frame=frames[form.frame], **common)
        return by_class
    rule = None if form.shrinkage is None else getattr(estimation, SHRINKAGES[form.shrinkage])()
    found: Prior = fit_prior(
        images,
        shrinkage=rule,
        knots=None if form.knots is None else estimation.EvenKnots(form.knots),
        order=form.order,
        frame=frames[form.frame],
        ridge=replace(CHOICES, folds=form.cv) if form.ridge == "cv" else form.ridge,
        **common,
    )
    return found
