"""``oism info``: what a model, a prior or a run is."""

from __future__ import annotations

from dataclasses import asdict, dataclass, is_dataclass
from typing import TYPE_CHECKING, Any

from oism.cli.options import Command, ModelFile, print_json

if TYPE_CHECKING:
    from oism.cli.models import Stored
    from oism.images import Prior


@dataclass(frozen=True)
class Info(Command):
    """Say what a model is: columns, functions, process, clock, steps and parameters.

    Of a prior of images: its shape, frame, order or components, clock and pixels, and the error of
    the predicted noise that it expects of itself by noise level. Of a trained model, or of the
    folder of a run: network, prior and how they are put together,
    noise levels, precision.

    Examples:
      oism info moons.safetensors
      oism info moons.safetensors --json
      oism fit moons.csv -o - --quiet | oism info -
      oism info prior.safetensors
      oism info run
    """

    model: ModelFile
    """The file of the model, or the folder of a run; - is standard input."""
    json: bool = False
    """Print JSON instead of text."""

    def run(self) -> None:
        """Load and tell."""
        from oism.cli import models

        with models.opened(self.model) as stored:
            if stored.is_prior:
                self._tell_prior(stored.prior())
                return
            if stored.is_trained:
                self._tell_trained(stored)
                return
            model = stored.model()
        given = {name: _plain(value) for name, value in model.get_params(deep=False).items()}
        if self.json:
            print_json({**model.facts(), "parameters": given})
            return
        print(model.summary())
        words = [f"{name}={value}" for name, value in given.items() if value is not None]
        print(f"parameters  {', '.join(words)}")

    def _tell_prior(self, prior: Prior) -> None:
        from oism.cli import priors

        found = priors.facts(prior)
        if self.json:
            print_json(found)
        else:
            print(priors.summary(found))

    def _tell_trained(self, stored: Stored) -> None:
        from oism.cli import trained

        found = trained.facts(stored.trained(), stored.file)
        if self.json:
            print_json(found)
        else:
            print(trained.summary(found))


def _plain(value: Any) -> Any:  # noqa: ANN401
    """Return a parameter as JSON can hold it."""
    if is_dataclass(value) and not isinstance(value, type):
        return {"kind": type(value).__name__, **asdict(value)}
    return value
