"""``oism evaluate`` for a trained model: errors by noise level, bits, and the Fréchet distance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oism.cli.ending import UsageError
from oism.cli.options import demand_count, naming_options, print_json
from oism.cli.priors import seeded

if TYPE_CHECKING:
    from torch import Tensor

    from oism.cli.evaluate import Evaluate
    from oism.cli.models import Stored
    from oism.flow import OrdinaryMethod
    from oism.images import Prior
    from oism.nn import Diffusion
    from oism.training._bits import Bits
    from oism.training._evaluation import Interval
    from oism.training._frechet import Extractor


@dataclass(frozen=True)
class Worth:
    """What was found: each part where it was wanted."""

    count: int
    intervals: list[Interval]
    alone: list[Interval]
    bits: Bits | None
    distance: float | None
    samples: int


def evaluate(command: Evaluate, stored: Stored) -> None:
    """Load, read, evaluate and tell."""
    from oism.cli import models, trained, verdict
    from oism.training._data import array_of

    method, extractor = _method(command), _extractor(command)
    with models.bars(quiet=command.quiet):
        model = stored.trained()
        images = command.open_images(model)
        model = trained.placed(model, command.device)
        values = array_of(batch.numpy() for batch in command.batches(images))
        found = _worth(command, model, values, method, extractor)
    if command.json:
        print_json(verdict.facts(command, model, images, found, method))
    else:
        print(verdict.text(command, model, images, found, method))


def _method(command: Evaluate) -> OrdinaryMethod:
    """Return how the flow is followed; raise where options make no sense."""
    from oism.flow import Adaptive, RungeKutta4
    from oism.nn._model import METHOD

    demand_count(command.intervals, 0, "--intervals")
    if not command.intervals and command.no_bits and command.features is None:
        raise UsageError("--intervals: without any and with --no-bits there is nothing to do")
    if command.steps is not None and command.tolerance is not None:
        raise UsageError("--tolerance: chooses its own steps: not together with --steps")
    if command.samples is not None:
        demand_count(command.samples, 2, "--samples")
        if command.features is None:
            raise UsageError("--samples: those of the Fréchet distance, which needs --features")
    with naming_options({"steps": "steps", "rtol": "tolerance"}):
        if command.tolerance is not None:
            return Adaptive(rtol=command.tolerance, atol=command.tolerance)
        return METHOD if command.steps is None else RungeKutta4(command.steps)


def _extractor(command: Evaluate) -> Extractor | None:
    if command.features is None:
        return None
    from oism.training._frechet import extractor_of

    with naming_options({"extractor": "features"}):
        return extractor_of(command.features)


def _worth(
    command: Evaluate,
    model: Diffusion,
    values: Tensor,
    method: OrdinaryMethod,
    extractor: Extractor | None,
) -> Worth:
    from oism.nn import Informed
    from oism.training import bits_per_dim, errors_by_level

    seed, batch, predictor = command.random_state, command.batch, model.predictor
    sources: list[Diffusion | Prior] = [model]
    if isinstance(predictor, Informed):
        sources.append(predictor.prior)
    errors: list[list[Interval]] = [
        errors_by_level(
            source, values, intervals=command.intervals, first=model.first, seed=seed, batch=batch
        )
        for source in sources
        if command.intervals
    ]
    bits = None
    if not command.no_bits:
        bits = bits_per_dim(model, values, method=method, seed=seed, batch=batch)
    samples = len(values) if command.samples is None else command.samples
    distance = None
    if extractor is not None:
        distance = _distance(command, model, values, method, extractor, samples)
    own, alone = (*errors, [], [])[:2]
    return Worth(len(values), own, alone, bits, distance, samples)


def _distance(
    command: Evaluate,
    model: Diffusion,
    values: Tensor,
    method: OrdinaryMethod,
    extractor: Extractor,
    samples: int,
) -> float:
    import torch
    from torch import nn

    from oism.images._display import pictures
    from oism.training._frechet import features_of, frechet_distance

    extractor = extractor.to(model.device) if isinstance(extractor, nn.Module) else extractor
    drawn = pictures(model, model.sample(samples, seeded(command.random_state), method=method))
    first, second = (
        features_of(extractor, torch.split(images, command.batch)) for images in (values, drawn)
    )
    return frechet_distance(first, second)
