"""The plan that a model keeps between samples: never that of another prior."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from torch import Tensor, nn

from oism import Diffusion, fit_prior
from oism.images import Prior
from oism.nn import MLP, Combined


def prior_of(kind: int) -> Prior:
    """Return priors with equal variances along different directions, and different means."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(500, 3, generator=generator, dtype=torch.float64)
    x = torch.linalg.qr(x - x.mean(dim=0))[0] * 500**0.5
    scale = torch.tensor([[1.0, 0.3, 0.05], [0.05, 0.3, 1.0]], dtype=torch.float64)[kind]
    return fit_prior(x * scale + 2.0 * kind, order=2)


def model_of(kind: int) -> Diffusion:
    return Diffusion(Combined(MLP(3), prior_of(kind)))


def samples(model: Diffusion) -> Tensor:
    return model.sample(50, torch.Generator().manual_seed(1))


def load_whole(model: Diffusion, other: Diffusion) -> Diffusion:
    model.load_state_dict(other.state_dict())
    return model


def load_replaced_tensors(model: Diffusion, other: Diffusion) -> Diffusion:
    model.load_state_dict(copy.deepcopy(other.state_dict()), assign=True)
    return model


def load_as_a_part(model: Diffusion, other: Diffusion) -> Diffusion:
    nn.ModuleDict({"part": model}).load_state_dict(nn.ModuleDict({"part": other}).state_dict())
    return model


def load_predictor(model: Diffusion, other: Diffusion) -> Diffusion:
    model.predictor.load_state_dict(other.predictor.state_dict())
    return model


def load_prior(model: Diffusion, other: Diffusion) -> Diffusion:
    assert model.informed is not None
    assert other.informed is not None
    model.informed.prior.load_state_dict(other.informed.prior.state_dict())
    return model


def load_copy(model: Diffusion, other: Diffusion) -> Diffusion:
    return load_whole(copy.deepcopy(model), other)


def load_pickled(model: Diffusion, other: Diffusion) -> Diffusion:
    return load_whole(pickle.loads(pickle.dumps(model)), other)


def load_torch_file(model: Diffusion, other: Diffusion) -> Diffusion:
    file = io.BytesIO()
    torch.save(other.state_dict(), file)
    file.seek(0)
    model.load_state_dict(torch.load(file, weights_only=True))
    return model


def replace_prior(model: Diffusion, other: Diffusion) -> Diffusion:
    assert model.informed is not None
    assert other.informed is not None
    model.informed.prior = other.informed.prior
    return model


WAYS = [
    load_whole, load_replaced_tensors, load_as_a_part, load_predictor, load_prior, load_copy,
    load_pickled, load_torch_file, replace_prior,
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_samples_after_loading_are_those_of_the_loaded_prior(way: object) -> None:
    model, other = model_of(0), model_of(1)
    before = samples(model)  # the plan is kept from here on
    assert callable(way)
    loaded = way(model, other)
    wanted = samples(other)
    assert not torch.allclose(before, wanted, atol=0.1)
    torch.testing.assert_close(samples(loaded), wanted)


def test_a_plan_is_kept_while_nothing_changes() -> None:
    model = model_of(0)
    assert model.plan() is model.plan()
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        kept = again.plan()
        assert again.plan() is kept
        assert torch.equal(samples(again), samples(model))
