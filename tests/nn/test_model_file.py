"""Models in files: they come back, and what cannot be read says why."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import safetensors
import safetensors.torch
import torch
from oism.images._storage import is_prior
from oism.nn._storage import is_diffusion
from torch import Tensor, nn

from oism import DDPMpp, Diffusion, VariancePreserving, fit_mixture, fit_prior
from oism.basis import TransformFrame
from oism.images import ByError, Gate, Open, Prior
from oism.images._base import Setting
from oism.nn import MLP, OperatorInformed

CLOCK = VariancePreserving(beta_1=15.0)
SHAPE = (1, 4, 4)
SIZES: dict[str, Any] = {"width": 4, "multipliers": (1, 2), "blocks": 1, "attention": (2,)}
FLIP = TransformFrame((2,), lambda x: x.flip(-1), lambda z: z.flip(-1))


def images() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return (255 * torch.rand(60, *SHAPE, generator=generator).square()).byte()


@cache
def prior_of(kind: str) -> Prior:
    x = images()
    if kind == "mixture":
        return fit_mixture(x, components=2, clock=CLOCK)
    if kind == "points":
        return fit_prior(x.flatten(1)[:, :2] / 255, order=3, clock=CLOCK)
    if kind == "transform":
        return fit_prior(x.flatten(1)[:, :2] / 255, order=3, clock=CLOCK, frame=FLIP)
    return fit_prior(x, order=2, clock=CLOCK)


def stirred(net: nn.Module) -> nn.Module:
    for part in net.parameters():
        nn.init.normal_(part, std=0.2)
    return net


def model_of(kind: str) -> Diffusion:
    if kind == "mlp":
        net = stirred(MLP(2, width=8, depth=1, angular=2, horizon=1.0))
        return Diffusion(net, Setting((2,), CLOCK, CLOCK), first=1e-4, precision="bf16")
    if kind == "ddpmpp":
        return Diffusion(stirred(DDPMpp(SHAPE, **SIZES)), prior_of("images").setting)
    if kind in ("mlp, prior", "mlp, transform"):
        prior = prior_of("points" if kind == "mlp, prior" else "transform")
        net = stirred(MLP(2, extra=2))
        informed = OperatorInformed(net, prior, gate=ByError(0.2, 3.0), condition=True)
        return Diffusion(informed, prior.setting)
    prior = prior_of("mixture" if kind == "ddpmpp, mixture" else "images")
    if kind == "ddpmpp, paper":
        return Diffusion(
            OperatorInformed.paper(stirred(DDPMpp(SHAPE, **SIZES)), prior), prior.setting
        )
    net = stirred(DDPMpp(SHAPE, extra=1, **SIZES))
    return Diffusion(OperatorInformed(net, prior, condition=True), prior.setting)


KINDS = ["mlp", "ddpmpp", "mlp, prior", "mlp, transform", "ddpmpp, paper", "ddpmpp, prior",
         "ddpmpp, mixture"]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_round_trip(kind: str, tmp_path: Path) -> None:
    model, path = model_of(kind), tmp_path / "model.safetensors"
    model.save(path)
    again = Diffusion.load(str(path), FLIP if kind == "mlp, transform" else None)
    assert (again.setting, again.first) == (model.setting, model.first)
    assert again.precision == model.precision
    assert type(again.predictor) is type(model.predictor)
    x, tau = torch.randn(3, *model.shape), torch.tensor([1e-4, 0.3, 1.0])
    assert torch.equal(again.noise(x, tau), model.noise(x, tau))
    assert not any(part.training for part in again.predictor.modules())
    if isinstance(model.predictor, OperatorInformed):
        assert isinstance(again.predictor, OperatorInformed)
        assert again.predictor.gate == model.predictor.gate
        assert again.predictor.condition == model.predictor.condition
    assert [file.name for file in tmp_path.iterdir()] == [path.name], "no draft is left behind"
    assert is_diffusion(path)
    assert not is_prior(path)


@pytest.mark.parametrize("kind", ["mlp", "ddpmpp, prior"])
def test_equal_models_are_equal_files(kind: str, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    model_of(kind).save(one)
    Diffusion.load(one).save(other)
    assert one.read_bytes() == other.read_bytes()


def test_a_transform_must_be_given_again(tmp_path: Path) -> None:
    path = tmp_path / "model"
    model_of("mlp, transform").save(path)
    with pytest.raises(ValueError, match=r"frame must be given .* of shape \(2,\)"):
        Diffusion.load(path)


class Own(MLP):
    """A network of one's own."""


class OwnGate(Gate):
    def opening(self, error: Tensor) -> Tensor:
        return torch.zeros_like(error)


class OwnForm(OperatorInformed):
    """A form of one's own."""


def test_a_form_of_ones_own_cannot_be_saved(tmp_path: Path) -> None:
    prior = prior_of("points")
    model = Diffusion(OwnForm(MLP(2), prior), prior.setting)
    with pytest.raises(TypeError, match=r"of the kind Combined or OperatorInformed .*OwnForm'"):
        model.save(tmp_path / "model")


class Tied(nn.Module):
    """A network that uses one matrix twice."""

    def __init__(self, width: int = 2) -> None:
        super().__init__()
        self.first = self.second = nn.Linear(width, width)

    def forward(self, x: Tensor, tau: Tensor) -> Tensor:
        found: Tensor = self.second(self.first(x)) * tau[:, None].to(x)
        return found


@pytest.mark.parametrize("make", [lambda: Own(2), Tied])
def test_a_network_of_ones_own_is_given_again(make: Any, tmp_path: Path) -> None:
    setting, path = Setting((2,), CLOCK, CLOCK), tmp_path / "model"
    torch.manual_seed(1)
    net = make()
    with torch.no_grad():
        for part in net.parameters():
            part.normal_()
    model = Diffusion(net, setting)
    model.save(path)
    kind = re.escape(f"'{__name__}.{type(net).__qualname__}'")
    with pytest.raises(ValueError, match=f"a network of the kind {kind}.*: give it as net"):
        Diffusion.load(path)
    x, tau = torch.randn(3, 2), torch.rand(3)
    again = Diffusion.load(path, net=make())
    assert torch.equal(again.noise(x, tau), model.noise(x, tau))
    with pytest.raises(ValueError, match=f"net must be of the kind {kind} that the file holds"):
        Diffusion.load(path, net=nn.Linear(2, 2))
    with pytest.raises(TypeError, match="net must be of type Module"):
        Diffusion.load(path, net="mine")  # type: ignore[arg-type]


def test_a_network_of_ones_own_may_have_moved(tmp_path: Path) -> None:
    """A script that trained is ``__main__`` then, and a module where it is imported."""
    model = Diffusion(Own(2), Setting((2,), CLOCK, CLOCK))
    model.save(tmp_path / "model")
    moved = type("Own", (Own,), {"__module__": "elsewhere"})
    again = Diffusion.load(tmp_path / "model", net=moved(2))
    x, tau = torch.randn(3, 2), torch.rand(3)
    assert torch.equal(again.noise(x, tau), model.noise(x, tau))


def test_weights_of_another_size_are_refused(tmp_path: Path) -> None:
    Diffusion(Tied(), Setting((2,), CLOCK, CLOCK)).save(tmp_path / "model")
    with pytest.raises(ValueError, match=r"(?s)net must take the weights of the file: .*size mism"):
        Diffusion.load(tmp_path / "model", net=Tied(3))


def test_a_gate_of_ones_own_is_given_again(tmp_path: Path) -> None:
    prior, path = prior_of("points"), tmp_path / "model"
    model = Diffusion(OperatorInformed(MLP(2), prior, gate=OwnGate()), prior.setting)
    model.save(path)
    with pytest.raises(ValueError, match=r"a gate of the kind '.*OwnGate'.*: give it as gate"):
        Diffusion.load(path)
    with pytest.raises(ValueError, match=r"gate must be of the kind '.*OwnGate' that the file"):
        Diffusion.load(path, gate=Open())
    x, tau = torch.randn(3, 2), torch.rand(3)
    again = Diffusion.load(path, gate=OwnGate())
    assert torch.equal(again.noise(x, tau), model.noise(x, tau))


def rewritten(path: Path, change: Any) -> None:
    """Change what a file says of itself."""
    with safetensors.safe_open(path, framework="pt") as file:
        about = json.loads(file.metadata()["oism"])
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    change(about)
    safetensors.torch.save_file(tensors, path, metadata={"oism": json.dumps(about)})


def test_what_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "model"

    def after(change: Any) -> None:
        model_of("mlp, prior").save(path)
        rewritten(path, change)

    after(lambda about: about["settings"]["net"].update(kind="Transformer"))
    with pytest.raises(ValueError, match="a network of the kind 'Transformer', which is not"):
        Diffusion.load(path)
    after(lambda about: about["settings"]["form"]["gate"].update(kind="Ajar"))
    with pytest.raises(ValueError, match="a gate of the kind 'Ajar', which is not"):
        Diffusion.load(path)
    after(lambda about: about["settings"]["form"].update(kind="Stacked"))
    with pytest.raises(ValueError, match="a network and a prior in an unknown form, 'Stacked'"):
        Diffusion.load(path)
    after(lambda about: about["settings"]["prior"].update(kind="Oracle"))
    with pytest.raises(ValueError, match="a prior of an unknown kind, 'Oracle'"):
        Diffusion.load(path)
    after(lambda about: about.update(version=99))
    with pytest.raises(ValueError, match="has version 99 of the format; this oism reads version"):
        Diffusion.load(path)
    assert is_diffusion(path), "of whatever version"
    after(lambda about: about.update(format="oism.Poem"))
    with pytest.raises(ValueError, match=r"no file of oism's Diffusion: its format is 'oism\.Poem"):
        Diffusion.load(path)
    assert not is_diffusion(path)


def test_truncated_and_other_files(tmp_path: Path) -> None:
    path = tmp_path / "model"
    model_of("ddpmpp").save(path)
    whole = path.read_bytes()
    for length in (0, 5, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="model is damaged or not a safetensors file"):
            Diffusion.load(path)
        assert not is_diffusion(path)
    prior_of("images").save(path)
    with pytest.raises(ValueError, match=r"is no file of oism's Diffusion: its format is 'oism\.P"):
        Diffusion.load(path)
    with pytest.raises(FileNotFoundError, match=r"written by Diffusion\.save, got"):
        Diffusion.load(tmp_path / "nothing")
    assert not is_diffusion(tmp_path / "nothing")


@pytest.mark.parametrize("gate", [Open(), ByError(0.02, 7.0)])
def test_gates_come_back(gate: Gate, tmp_path: Path) -> None:
    prior = prior_of("points")
    model = Diffusion(OperatorInformed(MLP(2), prior, gate=gate), prior.setting)
    model.save(tmp_path / "model")
    again = Diffusion.load(tmp_path / "model").predictor
    assert isinstance(again, OperatorInformed)
    assert again.gate == gate
