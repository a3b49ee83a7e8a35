"""Every family of fitted models makes the same promises: the contract of `FittedModel`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random

import pytest
import torch
from torch import Tensor

from oism import (
    Combined,
    CriticallyDamped,
    Diffusion,
    FittedModel,
    Flow,
    Fourier,
    Hermite,
    Linear,
    TensorHermite,
    VariancePreserving,
    fit,
    fit_linear,
    fit_mixture,
    fit_prior,
    fit_ratio,
    load,
    storage,
)
from oism.basis import WhitenedHermite
from oism.flow import ExactTrace, RungeKutta4, TensorSpec, log_density
from oism.images import add_local_terms
from oism.nn import MLP, DDPMpp
from oism.process import Clock, PhaseSpace, Process
from oism.tables import OISM

LINEAR = Linear(torch.tensor([[-2.0, 1.0], [1.0, -2.0]]), 2 * torch.eye(2))


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def points(n: int = 300) -> Tensor:
    """Return rows of the plane, neither normal nor centred."""
    z = normal(n, 2)
    return torch.stack((0.4 * z[:, 0] + 0.2 * z[:, 1].square(), 0.3 * z[:, 1] - 0.1), dim=1)


def images() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    smooth = torch.rand(64, 1, 2, 2, generator=generator).repeat_interleave(4, 2)
    return (255 * smooth.repeat_interleave(4, 3)).byte()


def combined() -> Diffusion:
    prior = fit_prior(images(), order=2)
    torch.manual_seed(0)
    net = DDPMpp(prior.shape, width=8, multipliers=(1, 1), blocks=1)
    for part in net.parameters():  # the last layer begins at zero
        part.data += 0.01 * torch.randn(part.shape, generator=torch.Generator().manual_seed(0))
    predictor = Combined(net, prior)
    predictor.share.fill_(0.5)
    return Diffusion(predictor, prior.spec)


def network() -> Diffusion:
    torch.manual_seed(0)
    return Diffusion(MLP(2, width=16), TensorSpec((2,), VariancePreserving()))


def local_prior() -> FittedModel:
    return add_local_terms(images(), fit_mixture(images(), components=2))


FAMILIES: dict[str, Callable[[], FittedModel]] = {
    "waves": lambda: fit(points(), Fourier.lattice(2, 16)),
    "polynomials of each coordinate": lambda: fit(points(), Hermite(2, 3)),
    "products of polynomials": lambda: fit(points(), TensorHermite(2, 3)),
    "Gaussian": lambda: fit(points(), TensorHermite(2, 2)),
    "series": lambda: fit(points(), WhitenedHermite(LINEAR, 2)),
    "linear process": lambda: fit_linear(points(), LINEAR, 3),
    "damped process": lambda: fit_linear(points(), PhaseSpace(CriticallyDamped(2)), 3),
    "density ratio": lambda: fit_ratio(points(), Fourier.lattice(2, 5), first=0.05),
    "prior of pixels": lambda: fit_prior(images(), order=3),
    "mixture": lambda: fit_mixture(images(), components=2),
    "local terms": local_prior,
    "table on the torus": lambda: OISM(max_eigenvalue=16).fit(points()).model_,
    "table under Ornstein-Uhlenbeck": lambda: OISM(process="ou").fit(points()).model_,
    "network": network,
    "network beside a prior": combined,
}
every_family = pytest.mark.parametrize("name", FAMILIES)


@cache
def model_of(name: str) -> FittedModel:
    return FAMILIES[name]().eval()


def rows_of(model: FittedModel, n: int = 3) -> Tensor:
    x = 0.3 * normal(n, *model.shape, seed=2)
    kinds = {part.dtype for part in model.parameters()}
    return x.to(kinds.pop()) if kinds else x


def times_of(model: FittedModel, n: int = 3) -> tuple[Tensor, Tensor]:
    """Return times of the clock and the process's own."""
    tau = torch.linspace(0.4, 0.7, n, dtype=torch.float64) * model.clock.horizon
    return tau, model.clock.time(tau)


def is_isotropic(model: FittedModel) -> bool:
    return model.process.diffusivity is not None


@every_family
def test_it_states_what_it_is(name: str) -> None:
    model = model_of(name)
    assert isinstance(model, FittedModel)
    assert isinstance(model.process, Process)
    assert isinstance(model.clock, Clock)
    assert model.dim == math.prod(model.shape)
    assert model.device == torch.device("cpu")
    facts = model.facts()
    assert json.loads(json.dumps(facts)).keys() == facts.keys(), "plain values"
    assert type(model).__name__ in repr(model)


@every_family
def test_scores_take_one_time_or_one_per_row(name: str) -> None:
    model = model_of(name)
    x, (_, t) = rows_of(model), times_of(model)
    score = model.score(x, t)
    assert score.shape == x.shape
    assert score.dtype == x.dtype
    assert bool(score.isfinite().all())
    for row in range(len(x)):
        torch.testing.assert_close(
            model.score(x[row : row + 1], float(t[row]))[0], score[row], rtol=1e-4, atol=1e-5
        )
    with pytest.raises(ValueError, match=r"t must be|one per row|rows"):
        model.score(x, t[:2])


@every_family
def test_noise_and_denoised_points_follow_from_the_score(name: str) -> None:
    model = model_of(name)
    x, (tau, t) = rows_of(model), times_of(model)
    if not is_isotropic(model) or name.startswith("table"):
        with pytest.raises((TypeError, ValueError), match=r"process|noise"):
            model.noise(x, tau)
        return
    shape = (-1, *[1] * (x.ndim - 1))
    law = model.noising.transition(tau)
    alpha, sigma = law.alpha.reshape(shape).to(x), law.sigma.reshape(shape).to(x)
    noise = -sigma * model.score(x, t)
    torch.testing.assert_close(model.noise(x, tau), noise, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model(x, tau), noise, rtol=1e-4, atol=1e-5)
    clean = (x - sigma * noise) / alpha
    torch.testing.assert_close(model.denoise(x, tau), clean, rtol=1e-4, atol=1e-4)


@every_family
def test_samples(name: str) -> None:
    model = model_of(name)
    first = model.sample(4, torch.Generator().manual_seed(0), progress=False)
    assert first.shape == (4, *model.shape)
    assert bool(first.isfinite().all())
    again = model.sample(4, torch.Generator().manual_seed(0), progress=False)
    assert torch.equal(first, again)
    assert not torch.equal(first, model.sample(4, torch.Generator().manual_seed(1), progress=False))
    assert model.sample(0).shape == (0, *model.shape)


@every_family
def test_log_densities(name: str) -> None:
    model = model_of(name)
    x = rows_of(model)
    found = model.log_density(x)
    assert found.shape == (len(x),)
    assert bool(found.isfinite().all())
    assert not found.requires_grad


@pytest.mark.parametrize("name", ["waves", "products of polynomials", "linear process", "series"])
def test_log_densities_are_those_of_the_flow(name: str) -> None:
    model = model_of(name)
    x, method = rows_of(model), RungeKutta4(40)
    expected = log_density(Flow(model), x, method=method)
    torch.testing.assert_close(model.log_density(x, method=method), expected)
    exact = log_density(Flow(model), x, method=method, divergence=ExactTrace())
    torch.testing.assert_close(exact, expected)


@every_family
def test_files_give_the_same_model(name: str, tmp_path: Path) -> None:
    model, path = model_of(name), tmp_path / "model.safetensors"
    model.save(path)
    again = load(path)
    assert type(again) is type(model)
    x, (_, t) = rows_of(model), times_of(model)
    assert torch.equal(again.score(x, t), model.score(x, t))
    assert again.facts() == model.facts()
    other = tmp_path / "again.safetensors"
    again.save(other)
    assert other.read_bytes() == path.read_bytes()
    assert storage.class_of(path) == storage.public_name(type(model))


def mutated(content: bytes, random: Random) -> bytes:
    """Return a file with flipped bytes, a cut or added end, or another header."""
    size = len(content)
    kind = random.choice(["flip", "flip", "zeros", "cut", "add", "header"])
    if kind == "cut":
        return content[: random.randrange(size)]
    if kind == "add":
        return content + random.randbytes(random.randrange(1, 64))
    if kind == "header":  # one character of the JSON, the length kept
        length = int.from_bytes(content[:8], "little")
        place = 8 + random.randrange(length)
        return (
            content[:place]
            + random.choice(b'0123456789ae"{}[],:n').to_bytes()
            + (content[place + 1 :])
        )
    start = random.randrange(size)
    span = min(size - start, 1 if kind == "flip" else 64)
    other = bytes(span) if kind == "zeros" else bytes([content[start] ^ (1 << random.randrange(8))])
    return content[:start] + other + content[start + span :]


def opened(path: Path) -> FittedModel | storage.StorageError:
    """Return the model of a file, or the error; any other exception fails the test."""
    try:
        found: FittedModel = load(path)
    except storage.StorageError as error:
        return error
    return found


@every_family
def test_damaged_files_are_errors_or_the_same_model(name: str, tmp_path: Path) -> None:
    """500 files over all families: an error that names the file, or an identical model."""
    path = tmp_path / "model.safetensors"
    model_of(name).save(path)
    content, random = path.read_bytes(), Random(name)
    refused = 0
    for _ in range(-(-500 // len(FAMILIES))):
        path.write_bytes(mutated(content, random))
        found = opened(path)
        if isinstance(found, storage.StorageError):
            refused += 1
            assert "model.safetensors" in str(found)
        else:
            assert storage.to_bytes(found) == content
    assert refused > 20, "damage is found"


@every_family
def test_it_moves_between_devices(name: str) -> None:
    model = FAMILIES[name]().eval()
    assert model.to("cpu") is model
    moved = model.to("meta")
    assert moved.device.type == "meta"


@every_family
def test_other_points_are_refused(name: str) -> None:
    model = model_of(name)
    x, (_, t) = rows_of(model), times_of(model)
    with pytest.raises((TypeError, ValueError), match=r"x must|shape|columns"):
        model.score(x.flatten(1)[:, :-1], t)
    with pytest.raises((TypeError, ValueError), match=r"x must|dtype|real"):
        model.score(x.long(), t)
