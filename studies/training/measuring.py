"""Measurements of a network in training: errors, bits per dimension, Fréchet distance, samples.

A second network gets the average weights. All forms are written as `Combined` with the same
Gaussian prior, *itself* with the whole share of the network at every noise level, so that all are
integrated and sampled by the same methods, in the same coordinates:

    bits per dimension   Adams-Bashforth steps (`Diffusion.likelihood_method`), one probe
    samples              `oism.sampling.Polynomial` of order 2 with a corrector, over all levels

Samplers may skip high noise where a prior is used; here they do not, because a network alone is
wrong there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from oism.nn import Combined, Diffusion, trained_network
from oism.objectives import errors_by_level
from oism.sampling import Polynomial
from oism.training import Classifier, FeatureMoments, Loop, features_of, frechet_distance
from studies import classifier
from studies.images import device
from studies.labelled import Labelled
from studies.training.trainings import (
    GAUSSIAN,
    ITSELF,
    SIXTHS,
    Priors,
    Setup,
    Training,
    network_of,
    predictor_of,
)

CHUNK = 500
"""The number of images that are evaluated at a time."""

SHOWN_FORMS = (ITSELF, GAUSSIAN)
"""The forms whose errors are measured between marks."""


@dataclass(frozen=True)
class Measured:
    """The measurements of a form; ``bits`` are those of single images.

    ``errors`` of the noise are by sixths of the log-SNR, low noise first, with their standard
    errors ``spread``. ``share`` is that of the network by noise level, None for a network itself.
    """

    errors: list[float]
    spread: list[float]
    share: list[float] | None = None
    bits: list[float] | None = None
    frechet: float | None = None

    @property
    def loss(self) -> float:
        """The mean error over the range of log-SNR."""
        return sum(self.errors) / len(self.errors)


class Replayed(nn.Module):
    """A network that keeps its outputs within `recorded`, and returns them again in later passes.

    All forms of a training are evaluated at the same tensors in the same order, so that one pass of
    the network serves them all.
    """

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self._kept: list[Tensor] | None = None
        self._place = 0

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Within, outputs are kept."""
        self._kept, self._place = [], 0
        try:
            yield
        finally:
            self._kept = None

    def rewind(self) -> None:
        """Return to the first output."""
        self._place = 0

    def forward(self, x: Tensor, tau: Tensor) -> Tensor:
        """Return the output of the network, the one that was kept if there is one."""
        if self._kept is None:
            return self.net(x, tau)  # type: ignore[no-any-return]
        if self._place == len(self._kept):
            self._kept.append(self.net(x, tau))
        self._place += 1
        return self._kept[self._place - 1]


class Evaluation:
    """What all trainings are measured with: images, priors, a network, features of images."""

    def __init__(
        self, setup: Setup, data: Labelled, priors: Priors, path: Path, *, compiled: bool = True
    ) -> None:
        self.setup, self.data, self.priors, self.path = setup, data, priors, path
        self.test = data.sets.test.to(device())
        self.net = network_of(self.test.shape[1:], 0, setup.sizes).to(device()).eval()
        self.is_compiled = compiled and device() == "cuda"
        if self.is_compiled:
            for part in self.net.modules():
                if getattr(part, "compiles_alone", False):
                    part.compile(dynamic=False)  # batches of CHUNK, beside those of training
        self._features: tuple[Classifier, FeatureMoments] | None = None

    @property
    def features(self) -> tuple[Classifier, FeatureMoments]:
        """The classifier, and the moments of the features of all training images."""
        if self._features is None:
            found = classifier.load(self.path)
            parts = torch.split(self.data.sets.train, 2000)
            self._features = found, features_of(found, parts)
        return self._features

    def test_distance(self) -> float:
        """Return the Fréchet distance of as many test images as are drawn."""
        extractor, images = self.features
        chosen = torch.split(self.test[: self.setup.drawn], 1000)
        return frechet_distance(features_of(extractor, chosen), images)

    def measure(
        self, training: Training, loop: Loop
    ) -> tuple[dict[str, Measured], dict[str, NDArray[np.uint8]]]:
        """Return the measurements by form and samples, at marks with bits and distances."""
        memory = Replayed(self._averaged(training, loop))
        sampled = training.sampled(loop.step_number)
        names = [one for one in training.forms if sampled or one in SHOWN_FORMS]
        forms = {name: self._form(name, memory) for name in names}
        with memory.recorded(), torch.compiler.set_stance("force_eager"):  # another batch
            for name in names:
                memory.rewind()
                if name == ITSELF:
                    forms[name].share.fill_(1.0)
                else:
                    loop.calibrate(forms[name])
        found, drawn = {}, {}
        errors = self._errors(forms, memory)
        for name, form in forms.items():
            share = None if name == ITSELF else form.share.tolist()
            bits = frechet = None
            if name in sampled:
                bits = self._bits(form)
                frechet, drawn[name] = self._samples(form)
            found[name] = Measured(*errors[name], share, bits, frechet)
        return found, drawn

    @torch.no_grad()
    def _averaged(self, training: Training, loop: Loop) -> nn.Module:
        """Return the predictor with the average weights of a loop."""
        predictor = predictor_of(training, self.net, self.priors).to(device()).eval()
        state = loop.average.state()
        for name, part in trained_network(predictor).named_parameters():
            part.copy_(state[name])
        return predictor

    def _form(self, name: str, net: nn.Module) -> Combined:
        prior = self.priors[GAUSSIAN if name == ITSELF else name]
        return Combined(net, prior).to(device()).eval()

    def _model(self, form: Combined, half: str) -> Diffusion:
        """Return a form as a model, on a GPU in half precision."""
        model = Diffusion(form, precision=half if device() == "cuda" else "no")
        model.chunk = CHUNK
        return model

    def _errors(
        self, forms: dict[str, Combined], memory: Replayed
    ) -> dict[str, tuple[list[float], list[float]]]:
        """Return errors and their standard errors by sixths, of every form."""
        found, images = {}, self.test[: self.setup.tested]
        with memory.recorded():
            for name, form in forms.items():
                memory.rewind()
                # The rounding of bfloat16 exceeds the errors at high noise.
                model = self._model(form, "fp16")
                parts = errors_by_level(
                    model, images, intervals=SIXTHS, batch=CHUNK, progress=False
                )
                estimates = [part.error for part in parts]
                found[name] = (
                    [one.mean for one in estimates],
                    [one.error for one in estimates],
                )
        return found

    def _bits(self, form: Combined) -> list[float]:
        """Return the bits per dimension of test images."""
        model = self._model(form, "bf16")  # gradients exceed the range of float16
        model.chunk = self.setup.likelihoods
        source = torch.Generator(device()).manual_seed(0)
        images = self.test[: self.setup.likelihoods]
        with torch.compiler.set_stance("force_eager"):  # compiling gradients takes longer
            return model.bits_per_dim(images, source, progress=False).tolist()

    def _samples(self, form: Combined) -> tuple[float, NDArray[np.uint8]]:
        """Return the Fréchet distance of samples, and the first of them."""
        model, setup = self._model(form, "fp16"), self.setup
        drawn = model.sample(
            setup.drawn, torch.Generator().manual_seed(0), evaluations=setup.evaluations,
            sampler=Polynomial(start=model.span.first), progress=False,
        )  # fmt: skip
        values = self.data.sets.pixels.values(drawn)
        extractor, images = self.features
        distance = frechet_distance(features_of(extractor, torch.split(values, 1000)), images)
        shown = values[: setup.shown].cpu().numpy()
        return distance, shown * np.uint8(255 // self.data.sets.pixels.high)
