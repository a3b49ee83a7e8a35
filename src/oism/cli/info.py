"""``oism info``: the facts of a model, a prior or a training run."""

from __future__ import annotations

from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any

from oism.cli.options import Command, ModelFile, options, print_json

if TYPE_CHECKING:
    from oism.cli.models import Stored


@options
class Info(Command):
    """Print the facts of a model: what it models, its noise levels, and what was chosen.

    For a model of a table these are columns, functions, process, clock and parameters; for a prior
    of images its frame and its expected error by noise level; for a trained model, or the folder of
    a run, the network and how a prior is combined with it.

    Examples:
      oism info moons.safetensors
      oism info moons.safetensors --json
      oism fit moons.csv -o - --quiet | oism info -
      oism info prior.safetensors
      oism info run
    """

    model: ModelFile
    """The file of the model, or a folder of a run or of diffusers; - is stdin."""
    json: bool = False
    """Print JSON instead of text."""

    def run(self) -> None:
        """Load and print."""
        from oism.cli import models

        with models.opened(self.model) as stored:
            read = {"prior": _prior, "trained": _trained}.get(stored.kind or "", _table)
            facts, text = read(stored)
        if self.json:
            print_json(facts)
        else:
            print(text)


def _table(stored: Stored) -> tuple[dict[str, Any], str]:
    model = stored.table()
    parameters = {name: _plain(value) for name, value in model.get_params(deep=False).items()}
    words = [f"{name}={value}" for name, value in parameters.items() if value is not None]
    text = f"{model.summary()}\nparameters  {', '.join(words)}"
    return {**model.facts(), "parameters": parameters}, text


def _prior(stored: Stored) -> tuple[dict[str, Any], str]:
    from oism.cli import reports

    facts = reports.prior_facts(stored.prior())
    return facts, reports.prior_summary(facts)


def _trained(stored: Stored) -> tuple[dict[str, Any], str]:
    from oism.cli import reports
    from oism.training import holds_run, run_progress

    progress = run_progress(stored.file) if holds_run(stored.file) else None
    facts = reports.trained_facts(stored.trained(), progress)
    return facts, reports.trained_summary(facts)


def _plain(value: Any) -> Any:  # noqa: ANN401
    """Return a parameter as a value that JSON has."""
    if is_dataclass(value) and not isinstance(value, type):
        return {"kind": type(value).__name__, **asdict(value)}
    return value
