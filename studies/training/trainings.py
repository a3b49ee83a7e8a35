"""The trainings of the study: networks that differ in one setting each.

A *training* is a network with what it predicts (`oism.nn.predicting`), its form (alone, or learning
the residual of a prior), its loss, warm-up and seed. All trainings of a seed start with the same
weights, and see the same images in the same order with the same noise.

A network that is combined with a prior (`Combined`) is trained alone. So one training is measured
in several *forms*: itself, and combined with each of a number of priors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

import oism
from oism.basis import IdentityFrame
from oism.images import Prior, add_local_terms, fit_mixture, fit_prior
from oism.nn import OperatorInformed, predicting, unet_for
from oism.objectives import (
    DenoisingScoreMatching,
    MixedLevels,
    NormalLogSNR,
    OutputMatching,
    UniformLogSNR,
)
from oism.process import Noising
from oism.training import TrainingConfig
from studies.classifier import EPOCHS
from studies.images import ImageSets, device
from studies.study import draft_of

SIXTHS = 6
"""The number of equal intervals of the log-SNR in which errors are measured."""

ALONE, PAPER, RESIDUAL = "alone", "paper", "residual"
"""The forms of a training: a network alone, the residual of a prior without and with a gate."""

NOISE, OWN, MIXED = "noise", "own", "mixed"
"""The losses: that of the noise at times uniform in the log-SNR; that of what is predicted at EDM's
times; and the latter with half of the times uniform in the log-SNR."""

ITSELF = "itself"
"""The measured form of a training that is not combined with a prior afterwards."""

PIXELS_3, PIXELS_6 = "pixels 3", "pixels 6"
GAUSSIAN, PRINCIPAL_9 = "principal 2", "principal 9"
MIXTURE, LOCAL = "mixture", "local terms"
"""The names of priors: polynomials of each pixel or along principal directions, with the order."""

RIDGE = 1e-6
"""The ridge of the polynomials of pixels, which the paper does not cross-validate."""


@dataclass(frozen=True)
class Training:
    """A network with what it ``predict``s, in a ``form``, with a ``loss``.

    ``prior`` is that of the form, or of what is predicted; ``combined`` are those that the network
    is combined with afterwards. Errors are measured after the numbers of steps
    ``points`` and ``marks``. Bits and samples, which take long, are measured at ``marks``: those of
    the ``followed`` forms at all, those of the network alone and with a Gaussian at the last.
    """

    name: str
    label: str
    marks: tuple[int, ...]
    points: tuple[int, ...] = ()
    predict: str = "noise"
    form: str = ALONE
    prior: str | None = None
    loss: str = NOISE
    combined: tuple[str, ...] = (GAUSSIAN,)
    followed: tuple[str, ...] = (ITSELF,)
    seed: int = 0
    warmup: int = 500

    @property
    def key(self) -> str:
        """The name of its files."""
        return f"{self.name}-{self.seed}-{self.warmup}"

    @property
    def steps(self) -> int:
        """The number of steps."""
        return self.marks[-1]

    @property
    def measured(self) -> list[int]:
        """The numbers of steps after which it is measured, increasing."""
        return sorted({*self.marks, *(step for step in self.points if step < self.steps)})

    @property
    def forms(self) -> tuple[str, ...]:
        """The measured forms."""
        return ITSELF, *self.combined

    def sampled(self, step: int) -> tuple[str, ...]:
        """Return the forms whose bits and samples are measured after a number of steps."""
        if step not in self.marks:
            return ()
        last = (ITSELF, GAUSSIAN) if step == self.steps else ()
        return tuple(one for one in self.forms if one in self.followed or one in last)

    def identity(self) -> dict[str, Any]:
        """Return the settings that determine the weights after every step."""
        names = ("name", "predict", "form", "prior", "loss", "seed", "warmup")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Setup:
    """The settings that all trainings share.

    ``tested`` images measure errors, ``likelihoods`` bits per dimension; ``drawn`` samples of
    ``evaluations`` evaluations each measure Fréchet distances, and the first ``shown`` are kept.
    ``width`` and ``epochs`` are those of the classifier whose features are compared.
    """

    sizes: Mapping[str, Any] = field(default_factory=dict)
    batch: int = 128
    rate: float = 2e-4
    flip: bool = True
    tested: int = 2000
    likelihoods: int = 256
    drawn: int = 2500
    evaluations: int = 40
    shown: int = 32
    width: int = 32
    epochs: int = EPOCHS


class Priors:
    """The priors of training images by name, fitted when they are first needed.

    They are kept in a folder, if there is one.
    """

    def __init__(self, sets: ImageSets, *, flip: bool, folder: Path | None = None) -> None:
        self.sets, self.flip, self.folder = sets, flip, folder
        self._found: dict[str, Prior] = {}

    @cached_property
    def images(self) -> Tensor:
        """The training images on the device."""
        return self.sets.train.to(device())

    def __getitem__(self, name: str) -> Prior:
        """Return a prior on the device."""
        if name not in self._found:
            path = None if self.folder is None else self.folder / f"{name.replace(' ', '-')}.oism"
            if path is not None and path.exists():
                found: Prior = oism.load(path)
            else:
                found = FITS[name](self)
                if path is not None:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with draft_of(path) as draft:
                        found.save(draft)
            self._found[name] = found.to(device())
        return self._found[name]

    def polynomials(self, order: int, **settings: Any) -> Prior:  # noqa: ANN401
        """Return polynomials along principal directions, or those of a frame."""
        found: Prior = fit_prior(
            self.images, order=order, pixels=self.sets.pixels, flip=self.flip, **settings
        )
        return found

    def mixture(self) -> Prior:
        """Return a mixture of Gaussians."""
        return fit_mixture(self.images, pixels=self.sets.pixels, flip=self.flip)

    def local(self) -> Prior:
        """Return the Gaussian along principal directions with local terms."""
        return add_local_terms(self.images, self[GAUSSIAN])


FITS: Mapping[str, Callable[[Priors], Prior]] = MappingProxyType(
    {
        PIXELS_3: lambda priors: priors.polynomials(3, frame=IdentityFrame(), ridge=RIDGE),
        PIXELS_6: lambda priors: priors.polynomials(6, frame=IdentityFrame(), ridge=RIDGE),
        GAUSSIAN: lambda priors: priors.polynomials(2),
        PRINCIPAL_9: lambda priors: priors.polynomials(9),
        MIXTURE: Priors.mixture,
        LOCAL: Priors.local,
    }
)
"""How priors are fitted; those along principal directions are cross-validated."""


def network_of(shape: Sequence[int], seed: int, sizes: Mapping[str, Any]) -> nn.Module:
    """Return the network with the initial weights of a seed."""
    torch.manual_seed(seed)
    return unet_for(tuple(shape), **sizes)


def predictor_of(training: Training, net: nn.Module, priors: Priors) -> nn.Module:
    """Return the noise predictor that is trained."""
    gaussian = priors[GAUSSIAN]
    if training.form == ALONE:
        prior = None if training.prior is None else priors[training.prior]
        return predicting(net, training.predict, prior=prior, clock=gaussian.clock)
    assert training.prior is not None
    kinds = {PAPER: OperatorInformed.paper, RESIDUAL: OperatorInformed}
    return kinds[training.form](net, priors[training.prior])


def objective_of(
    training: Training, predictor: nn.Module, noising: Noising, first: float
) -> DenoisingScoreMatching:
    """Return the loss: that of the noise, or of what the network predicts.

    With normal log-SNRs the latter is that of EDM as published, whatever the preconditioning.
    """
    even = UniformLogSNR(noising, first)
    if training.loss == NOISE:
        return DenoisingScoreMatching(even)
    normal = NormalLogSNR(noising, first)
    levels = normal if training.loss == OWN else MixedLevels(even, normal)
    return OutputMatching(levels, predictor)  # type: ignore[arg-type]


def config_of(  # noqa: PLR0913
    *, steps: int, seed: int, warmup: int, batch: int, rate: float, flip: bool, fast: bool = True
) -> TrainingConfig:
    """Return the settings of a training loop; on a GPU, ``fast`` ones: bfloat16, compiled."""
    on_device = fast and device() == "cuda"
    return TrainingConfig(
        steps=steps, batch=batch, rate=rate, warmup=warmup, flip=flip, seed=seed,
        precision="bf16" if on_device else "no", compile=on_device,
    )  # fmt: skip
