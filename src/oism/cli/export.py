"""``oism export``: a trained model in the format of another library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from oism.cli.exit_codes import UsageError
from oism.cli.options import STANDARD, Command, ModelFile, Report, ReportOptions, options

if TYPE_CHECKING:
    from oism.diffusers import OperatorPipeline
    from oism.nn import Diffusion


@options
class Export(Command):
    """Write a trained model as a pipeline of diffusers.

    The folder has the network, the prior that it is combined with, and a scheduler with the sampler
    of `oism sample`, which gives the same images for the same noise. diffusers loads it where oism
    is installed: `DiffusionPipeline.from_pretrained(FOLDER, trust_remote_code=True)`; the code in
    it is one import for each part. `oism sample`, `evaluate` and `info` take the folder as well.

    Examples:
      oism export run -o pipeline --diffusers
      oism export run/model.safetensors -o pipeline --diffusers --json
    """

    model: ModelFile
    """The folder of a run, or the file of a trained model; - is standard input."""
    output: Annotated[str | None, arg(aliases=["-o"], metavar="FOLDER")] = None
    """The folder to write, which must be new or empty."""
    diffusers: bool = False
    """The format: a pipeline of diffusers."""
    report: ReportOptions = Report()

    def run(self) -> None:
        """Load, convert and write."""
        from oism._core.atomic import check_new_folder, replacing_folder
        from oism.cli import models

        if self.output in (None, STANDARD):
            raise UsageError("-o: name the folder of the pipeline")
        if not self.diffusers:
            raise UsageError("--diffusers: name the format; it is the only one")
        assert self.output is not None
        check_new_folder(self.output)
        with models.opened(self.model) as stored:
            model = stored.trained()
        pipe = _pipeline(model, self.model)
        with replacing_folder(self.output) as draft:
            pipe.save_pretrained(draft)
        facts = {"output": self.output, "format": "diffusers"}
        text = (
            f"pipeline written to {self.output}\nnext: `DiffusionPipeline.from_pretrained("
            f"{self.output!r}, trust_remote_code=True)` loads it in Python"
        )
        self.report.print(text, facts)


def _pipeline(model: Diffusion, path: str) -> OperatorPipeline:
    """Return the pipeline of a model, or raise an error that names its file."""
    from oism.data.files import FileError, called
    from oism.diffusers import pipeline

    try:
        return pipeline(model)
    except ValueError as error:
        raise FileError(f"{called(path)}: {error}") from error
