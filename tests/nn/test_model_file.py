"""Models in files: round trips, and an error that names the entry for what cannot be read."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oism import DDPMpp, Diffusion, VariancePreserving, fit_mixture, fit_prior, load, storage
from oism.basis import TransformFrame
from oism.flow import TensorSpec
from oism.images import ByError, Gate, Open, Prior
from oism.nn import MLP, Combined, OperatorInformed, VelocityScore
from oism.process import CriticallyDamped, PhaseSpace
from oism.storage import StorageError

from ..headers import put, rename_class, rewrite

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
        return Diffusion(net, TensorSpec((2,), CLOCK), first=1e-4, precision="bf16")
    if kind == "ddpmpp":
        return Diffusion(stirred(DDPMpp(SHAPE, **SIZES)), prior_of("images").spec)
    if kind in ("mlp, prior", "mlp, transform"):
        prior = prior_of("points" if kind == "mlp, prior" else "transform")
        net = stirred(MLP(2, extra=2))
        informed = OperatorInformed(net, prior, gate=ByError(0.2, 3.0), condition=True)
        return Diffusion(informed, prior.spec)
    prior = prior_of("mixture" if kind == "ddpmpp, mixture" else "images")
    if kind == "ddpmpp, paper":
        return Diffusion(OperatorInformed.paper(stirred(DDPMpp(SHAPE, **SIZES)), prior), prior.spec)
    net = stirred(DDPMpp(SHAPE, extra=1, **SIZES))
    return Diffusion(OperatorInformed(net, prior, condition=True), prior.spec)


KINDS = ["mlp", "ddpmpp", "mlp, prior", "mlp, transform", "ddpmpp, paper", "ddpmpp, prior",
         "ddpmpp, mixture"]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_round_trip(kind: str, tmp_path: Path) -> None:
    model, path = model_of(kind), tmp_path / "model.safetensors"
    model.save(path)
    again = load(str(path), given={"frame": FLIP} if kind == "mlp, transform" else None)
    assert isinstance(again, Diffusion)
    assert (again.spec, again.first) == (model.spec, model.first)
    assert again.precision == model.precision
    assert again.facts() == model.facts()
    assert type(again.predictor) is type(model.predictor)
    x, tau = torch.randn(3, *model.shape), torch.tensor([1e-4, 0.3, 1.0])
    assert torch.equal(again.noise(x, tau), model.noise(x, tau))
    assert not any(part.training for part in again.modules())
    if isinstance(model.predictor, OperatorInformed):
        assert isinstance(again.predictor, OperatorInformed)
        assert again.predictor.gate == model.predictor.gate
        assert again.predictor.condition == model.predictor.condition
    assert [file.name for file in tmp_path.iterdir()] == [path.name], "no draft is left behind"
    assert storage.class_of(path) == "oism.nn.Diffusion"


@pytest.mark.parametrize("kind", ["mlp", "ddpmpp, prior"])
def test_equal_models_are_equal_files(kind: str, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    model_of(kind).save(one)
    load(one).save(other)
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("make", [lambda: stirred(MLP(2)), lambda: stirred(DDPMpp(SHAPE, **SIZES))])
def test_a_network_alone_can_be_stored(make: Any, tmp_path: Path) -> None:
    net, path = make(), tmp_path / "net"
    storage.save(net, path)
    again = load(path)
    x, tau = torch.randn(3, *net.shape), torch.rand(3)
    assert torch.equal(again(x, tau), net.eval()(x, tau))
    assert again.to_config() == net.to_config()


def test_a_score_of_velocities_comes_back(tmp_path: Path) -> None:
    space = PhaseSpace(CriticallyDamped(dim=1), gamma=0.1)
    model = VelocityScore(stirred(MLP(1, extra=1)), space, CLOCK, first=0.01)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.facts() == model.facts()
    x = torch.randn(5, 2)
    assert torch.equal(again.score(x, 0.3), model.score(x, 0.3))


def test_a_transform_must_be_given_again(tmp_path: Path) -> None:
    path = tmp_path / "model"
    model_of("mlp, transform").save(path)
    message = r"entry 'predictor\.prior\.frame' is an object of class 'oism\.basis\.TransformFrame'"
    with pytest.raises(StorageError, match=message):
        load(path)


class Own(MLP):
    """A network of one's own."""


class OwnGate(Gate):
    def opening(self, error: Tensor) -> Tensor:
        return torch.zeros_like(error)


class OwnForm(OperatorInformed):
    """A form of one's own."""


def test_a_form_of_ones_own_is_given_again(tmp_path: Path) -> None:
    prior, path = prior_of("points"), tmp_path / "model"
    model = Diffusion(OwnForm(stirred(MLP(2)), prior))
    model.save(path)
    with pytest.raises(StorageError, match=r"entry 'predictor' is an object of class '.*OwnForm'"):
        load(path)
    again = load(path, given={"predictor": OwnForm(MLP(2), prior_of("points"))})
    x, tau = torch.randn(3, 2), torch.rand(3)
    assert torch.equal(again.noise(x, tau), model.noise(x, tau))


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
    spec, path = TensorSpec((2,), CLOCK), tmp_path / "model"
    torch.manual_seed(1)
    net = make()
    with torch.no_grad():
        for part in net.parameters():
            part.normal_()
    model = Diffusion(net, spec)
    model.save(path)
    kind = re.escape(f"'{__name__}.{type(net).__qualname__}'")
    with pytest.raises(StorageError, match=f"entry 'predictor' is an object of class {kind}.*give"):
        load(path)
    x, tau = torch.randn(3, 2), torch.rand(3)
    again = load(path, given={"predictor": make()})
    assert torch.equal(again.noise(x, tau), model.noise(x, tau))
    for other, got in ((nn.Linear(2, 2), "Linear"), ("mine", "str")):
        with pytest.raises(StorageError, match=f"class {kind}, but the one given is .*{got}'"):
            load(path, given={"predictor": other})


def test_a_network_of_ones_own_beside_a_prior_is_the_entry_net(tmp_path: Path) -> None:
    prior, path = prior_of("points"), tmp_path / "model"
    model = Diffusion(OperatorInformed(Own(2), prior))
    model.save(path)
    again = load(path, given={"net": Own(2)})
    x, tau = torch.randn(3, 2), torch.rand(3)
    assert torch.equal(again.noise(x, tau), model.noise(x, tau))


def test_a_network_of_ones_own_may_have_moved(tmp_path: Path) -> None:
    """A script that trained is ``__main__`` then, and a module where it is imported."""
    model = Diffusion(Own(2), TensorSpec((2,), CLOCK))
    model.save(tmp_path / "model")
    moved = type("Own", (Own,), {"__module__": "elsewhere"})
    again = load(tmp_path / "model", given={"predictor": moved(2)})
    x, tau = torch.randn(3, 2), torch.rand(3)
    assert torch.equal(again.noise(x, tau), model.noise(x, tau))


def test_weights_of_another_size_are_refused(tmp_path: Path) -> None:
    Diffusion(Tied(), TensorSpec((2,), CLOCK)).save(tmp_path / "model")
    message = (
        r"'predictor' cannot be filled: tensor 'first\.weight' has shape \(2, 2\), but Tied has"
    )
    with pytest.raises(StorageError, match=message):
        load(tmp_path / "model", given={"predictor": Tied(3)})


def test_a_gate_of_ones_own_is_given_again(tmp_path: Path) -> None:
    prior, path = prior_of("points"), tmp_path / "model"
    model = Diffusion(OperatorInformed(MLP(2), prior, gate=OwnGate()))
    model.save(path)
    with pytest.raises(StorageError, match=r"class '.*OwnGate'.*give.*given=\{'gate': …\}"):
        load(path)
    with pytest.raises(StorageError, match=r"OwnGate', but the one given is of class '.*Open'"):
        load(path, given={"gate": Open()})
    x, tau = torch.randn(3, 2), torch.rand(3)
    again = load(path, given={"gate": OwnGate()})
    assert torch.equal(again.noise(x, tau), model.noise(x, tau))


UNREADABLE: dict[str, tuple[Any, str]] = {
    "network": (
        lambda about: rename_class(about, "predictor.net", "oism.nn.Transformer"),
        "entry 'predictor.net' holds an object of class 'oism.nn.Transformer', which is not",
    ),
    "gate": (
        lambda about: rename_class(about, "predictor.gate", "oism.images.Ajar"),
        "entry 'predictor.gate' holds an object of class 'oism.images.Ajar', which is not",
    ),
    "form": (
        lambda about: rename_class(about, "predictor", "oism.nn.Stacked"),
        "entry 'predictor' holds an object of class 'oism.nn.Stacked', which is not registered",
    ),
    "prior": (
        lambda about: rename_class(about, "predictor.prior", "oism.images.Oracle"),
        "entry 'predictor.prior' holds an object of class 'oism.images.Oracle', which is not",
    ),
    "version": (lambda about: about.update(version=99), "version 99; this oism reads format"),
    "format": (lambda about: about.update(format="Poem"), "has format 'Poem', version"),
    "first": (
        lambda about: put(about, "first", 2.0),
        "cannot be built: first must be less than the clock's horizon 1, got 2.0",
    ),
    "precision": (
        lambda about: put(about, "precision", "half"),
        "cannot be built: precision must be 'no', 'bf16' or 'fp16', got 'half'",
    ),
    "another class": (
        lambda about: rename_class(about, "predictor.prior", "oism.nn.MLP"),
        "entry 'predictor.prior.dim' is missing",
    ),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_cannot_be_read(case: str, tmp_path: Path) -> None:
    path = tmp_path / "model"
    model_of("mlp, prior").save(path)
    change, message = UNREADABLE[case]
    rewrite(path, change)
    with pytest.raises(StorageError, match=re.escape(f"{path}: ") + ".*" + re.escape(message)):
        load(path)


@pytest.mark.parametrize(
    ("entry", "value"),
    [("width", 10**5), ("width", 4 * 10**12), ("blocks", 10**7), ("multipliers", [1, 10**9])],
)
def test_sizes_that_a_file_claims_get_no_memory(
    entry: str, value: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, made = tmp_path / "model", []
    model_of("ddpmpp").save(path)
    rewrite(path, lambda about: put(about, f"predictor.{entry}", value))
    initialise = nn.init.xavier_uniform_

    def noted(weight: Tensor) -> Tensor:
        made.append(weight.device.type)
        return initialise(weight)

    monkeypatch.setattr(nn.init, "xavier_uniform_", noted)
    with pytest.raises(StorageError, match="model: entry 'predictor' cannot be built: "):
        load(path)
    assert set(made) <= {"meta"}, "layers were made only where nothing is allocated"
    assert torch.is_grad_enabled(), "whatever the constructor was doing when it was ended"


def test_truncated_and_other_files(tmp_path: Path) -> None:
    path = tmp_path / "model"
    model_of("ddpmpp").save(path)
    whole = path.read_bytes()
    for length in (0, 5, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(StorageError, match=r"model: is (empty|truncated)"):
            load(path)
        assert storage.class_of(path) is None
    prior_of("images").save(path)
    with pytest.raises(StorageError, match=r"class 'oism\.images\.Herm.*', not 'oism\.nn\.Diffus"):
        storage.load(path, expected=Diffusion)
    with pytest.raises(FileNotFoundError, match="nothing"):
        load(tmp_path / "nothing")
    assert storage.class_of(tmp_path / "nothing") is None


@pytest.mark.parametrize("kind", ["mlp", "ddpmpp, prior"])
def test_a_changed_byte_is_an_error(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "model"
    model_of(kind).save(path)
    whole = path.read_bytes()
    for place in range(0, len(whole), max(1, len(whole) // 60)):
        changed = bytearray(whole)
        changed[place] ^= 1 << (place % 8)
        path.write_bytes(changed)
        with pytest.raises(StorageError, match="model: "):
            load(path)


@pytest.mark.parametrize("gate", [Open(), ByError(0.02, 7.0)])
def test_gates_come_back(gate: Gate, tmp_path: Path) -> None:
    prior = prior_of("points")
    Diffusion(OperatorInformed(MLP(2), prior, gate=gate)).save(tmp_path / "model")
    again = load(tmp_path / "model").predictor
    assert isinstance(again, OperatorInformed)
    assert again.gate == gate


def test_a_combination_without_intervals_is_refused(tmp_path: Path) -> None:
    model = Diffusion(Combined(MLP(2), prior_of("points"), intervals=3))
    described, tensors = storage.describe(model)
    tensors["predictor.share"] = tensors["predictor.share"][:0]
    with pytest.raises(StorageError, match="intervals must be an integer >= 1, got 0"):
        storage.restore(described, tensors)
