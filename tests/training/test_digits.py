"""A head start: half of the steps for handwritten digits.

Two networks from the same seed see the same digits with the same noise; one of them starts from
polynomials of single pixels, fitted in closed form. On 500 digits that none has seen it is, after
half of the steps, where the other ends; and that is beyond what the prior knew by itself.
"""

from __future__ import annotations

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from oism import fit_prior
from oism.basis import IdentityFrame
from oism.flow import Pixels
from oism.images import Open, Prior
from oism.nn import DDPMpp, Diffusion, OperatorInformed
from oism.objectives import DenoisingScoreMatching, UniformLogSNR, errors_by_level
from oism.training import Loop, Rows, TrainingConfig, new_accelerator

pytestmark = pytest.mark.slow

STEPS = 300
CONFIG = TrainingConfig(
    steps=STEPS, batch=32, rate=2e-3, warmup=20, decay=0.99, flip=False, log_every=100
)
PIXELS = Pixels(0, 16)
SHAPE = (1, 8, 8)


def digits() -> tuple[Tensor, Tensor]:
    """Return digits to train on, and to test with."""
    images = torch.from_numpy(load_digits().images).byte()[:, None]
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    return images[order[:-500]], images[order[-500:]]


def error(model: Diffusion | Prior) -> float:
    """Return the mean error of the predicted noise over the range of log-SNR."""
    found = errors_by_level(model, digits()[1])
    return sum(one.error.mean for one in found) / len(found)


def network(extra: int = 0) -> DDPMpp:
    torch.manual_seed(0)
    return DDPMpp(
        SHAPE, extra=extra, width=16, multipliers=(1, 2), blocks=1, attention=(), dropout=0.0
    )


def trained(predictor: nn.Module, prior: Prior, steps: int) -> float:
    """Return the error of average weights after some steps."""
    objective = DenoisingScoreMatching(UniformLogSNR(prior.noising))
    rows, accelerator = Rows(digits()[0], PIXELS), new_accelerator(cpu=True)
    loop = Loop(predictor, rows, objective, CONFIG, accelerator)
    for _ in range(steps):
        loop.step()
    loop.report()
    with loop.average.applied():
        return error(Diffusion(predictor, prior.spec))


@pytest.fixture(scope="module")
def prior() -> Prior:
    return fit_prior(digits()[0], order=9, frame=IdentityFrame(), pixels=PIXELS)


@pytest.fixture(scope="module")
def baseline(prior: Prior) -> float:
    """The error of a network alone, at its end."""
    return trained(network(), prior, STEPS)


def test_the_network_alone_learns_more_than_the_prior_knows(prior: Prior, baseline: float) -> None:
    """So that the comparison below is one of training."""
    assert baseline < error(prior)


@pytest.mark.parametrize("shown", [False, True], ids=["the paper's form", "shown the prior"])
def test_half_of_the_steps_are_enough(shown: bool, prior: Prior, baseline: float) -> None:
    """About a tenth is needed: polynomials know what single pixels of drawings are like."""
    net = network(extra=1 if shown else 0)
    informed = OperatorInformed(net, prior, gate=Open(), condition=shown)
    assert trained(informed, prior, STEPS // 4) < baseline
