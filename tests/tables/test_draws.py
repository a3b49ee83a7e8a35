"""Models of tables take all random numbers from `oism._core.draws`, which serves all devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from oism import OISM
from oism._core import draws
from oism.nn import RowNetwork
from oism.tables import MixtureModel, TableModel, sample_given
from oism.tables._chart import WhiteChart
from oism.tables._column import Column
from oism.tables._columns import Columns
from oism.tables._discrete import DiscreteModel
from oism.tables._end_kernels import EndKernels, EndStep
from oism.tables._joint import JointModel
from oism.tables._kernels import DirectionalKernels
from oism.tables._network_blend import Blend
from oism.tables._network_model import BlendedMixture
from oism.tables._part import Identity, Part

DRAWS = ("normal", "uniform", "multinomial", "categorical", "gamma", "permutation")
N = 30


class Watch:
    """A generator whose state may change within the functions of `draws` only."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.generator = torch.Generator().manual_seed(0)
        self.known, self.calls = self.generator.get_state(), 0
        for name in DRAWS:
            monkeypatch.setattr(draws, name, self.watched(getattr(draws, name)))

    def watched(self, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def draw(*args: Any, **kwargs: Any) -> Tensor:
            self.check()
            result = function(*args, **kwargs)
            self.known, self.calls = self.generator.get_state(), self.calls + 1
            return result

        return draw

    def check(self) -> None:
        assert torch.equal(self.known, self.generator.get_state()), "drawn elsewhere"


def mixture() -> MixtureModel:
    eye, two = torch.eye(2).double(), torch.ones(2).double()
    return MixtureModel(0 * two, two, 0.5 * two, torch.stack((-two, two)), torch.stack((eye, eye)))


def joint() -> JointModel:
    levels = torch.tensor([[0.2, 0.8], [0.7, 0.3]]).double().log()
    part = Part("plain", (Identity(), Identity()), mixture(), (levels,))
    columns = (Column("a"), Column("b"), Column("c", levels=("x", "y"), categorical=True))
    return JointModel(columns, torch.tensor([0.5, 0.5]).double(), (part, part))


def gaps() -> Tensor:
    rows = joint().sample(N, torch.Generator().manual_seed(1))
    rows[:20, 0], rows[10:, 2] = torch.nan, torch.nan
    return rows


def blended() -> BlendedMixture:
    chart = WhiteChart.of(torch.zeros(2), torch.eye(2), rotate=True)
    share, plain = torch.full((5,), 0.5).double(), torch.zeros(2, dtype=torch.bool)
    blend = Blend((RowNetwork(2, width=8, depth=1),), share, (4.0, -4.0), plain)
    return BlendedMixture(mixture(), chart, blend, 2, 0.1)


def directions() -> DirectionalKernels:
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return DirectionalKernels(x / x.norm(dim=1, keepdim=True), torch.full((40,), 1 / 40).double())


def counts() -> DiscreteModel:
    """The first column is spread over cells of levels."""
    levels = (-2.0, -1.0, 0.0, 1.0, 2.0)
    return DiscreteModel(mixture(), Columns((Column("n", levels=levels), Column("x"))))


def counts_with_gaps() -> Tensor:
    rows = counts().sample(N, torch.Generator().manual_seed(1))
    rows[:20, 1], rows[25:, 0] = torch.nan, torch.nan
    return rows


def near_ends() -> EndKernels:
    step = EndStep.of((0.0, 1.0), (0.6, 1.7), 9.0, 1.0)
    return EndKernels(step, torch.full((10,), 0.1).double())


def torus() -> TableModel:
    x = np.random.default_rng(0).normal(size=(100, 2))
    model = OISM(process="torus", max_eigenvalue=9, flow_steps=8).fit(x).model_
    assert isinstance(model, TableModel)
    return model


SAMPLES: dict[str, Callable[[torch.Generator], Tensor]] = {
    "mixture": lambda source: mixture().sample(N, source),
    "mixture, gaps": lambda source: mixture().completed(gaps()[:, :2], source),
    "discrete": lambda source: counts().sample(N, source),
    "discrete, gaps": lambda source: counts().completed(counts_with_gaps(), source),
    "discrete, given": lambda source: counts().conditional({0: 1.0}).sample(N, source),
    "joint": lambda source: joint().sample(N, source),
    "joint, gaps": lambda source: joint().completed(gaps(), source),
    "joint, given": lambda source: joint().conditional({0: 0.3}).sample(N, source),
    "mixture with networks": lambda source: blended().sample(N, source),
    "directions": lambda source: directions().sample(torch.arange(N) % 3, source),
    "kernels near ends": lambda source: near_ends().sample(torch.zeros(N).long(), source),
    "torus, given": lambda source: sample_given(torus(), {0: 0.3}, N, source),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_all_numbers_come_from_the_functions_for_any_device(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(monkeypatch)
    found = SAMPLES[name](watch.generator)
    watch.check()
    assert len(found) == N
    assert watch.calls > 1
