from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
import safetensors.torch
import torch
from oism.images._storage import is_prior
from torch import Tensor

from oism import Hermite, VariancePreserving, fit, fit_mixture, fit_prior
from oism.basis import CosineFrame, Frame, IdentityFrame, OrthogonalFrame, TransformFrame
from oism.images import PCA, Pixels, Prior
from oism.process import IdentityClock
from oism.score import OperatorScore

SHAPE = (1, 2, 3)
FLIP = TransformFrame(SHAPE, lambda x: x.flip(-1), lambda z: z.flip(-1))
ROTATED = OrthogonalFrame(torch.eye(6).flip(0))


def images() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return (255 * torch.rand(80, *SHAPE, generator=generator).square()).byte()


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """How exact the flow is is not what is asked here."""
    monkeypatch.setattr("oism.images._hermite.STEPS", 8)


@cache
def prior_of(kind: str) -> Prior:
    x = images()
    if kind == "mixture":
        return fit_mixture(x, components=3)
    if kind == "mixture and rest":
        return fit_mixture(x, components=2, frame=PCA(2), clock=IdentityClock(3.0))
    frames: dict[str, Frame | PCA] = {
        "pixels": IdentityFrame(),
        "principal": PCA(),
        "leading": PCA(2),
        "cosines": CosineFrame(SHAPE),
        "transform": FLIP,
        "rotated": ROTATED,
    }
    if kind == "gaussian":
        return fit_prior(x.double() / 255, order=2, clock=IdentityClock(2.0))
    if kind == "range":
        return fit_prior(x.long() - 9, order=3, pixels=Pixels(-9, 400))
    clock = VariancePreserving(beta_1=9.0)
    return fit_prior(x, order=4, frame=frames[kind], clock=clock)


KINDS = [
    "pixels", "principal", "leading", "cosines", "transform", "rotated", "gaussian", "range",
    "mixture", "mixture and rest",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_round_trip(kind: str, tmp_path: Path) -> None:
    prior, path = prior_of(kind), tmp_path / "prior.safetensors"
    prior.save(path)
    again = Prior.load(str(path), FLIP if kind == "transform" else None)
    assert type(again) is type(prior)
    assert again.facts == prior.facts
    assert again.setting == prior.setting
    assert again.shape == SHAPE
    x = torch.randn(4, *SHAPE, generator=torch.Generator().manual_seed(1))
    tau = torch.linspace(0, again.clock.horizon, 4)
    for one, other in zip(
        prior.score_and_divergence(x, tau), again.score_and_divergence(x, tau), strict=True
    ):
        assert torch.equal(one, other)
    assert torch.equal(again.noise(x, tau), prior.noise(x, tau))
    assert torch.equal(again.skill(tau), prior.skill(tau))
    assert torch.equal(again.log_density(x), prior.log_density(x))
    draws = [p.sample(2, torch.Generator().manual_seed(0)) for p in (prior, again)]
    assert torch.equal(*draws)
    assert [file.name for file in tmp_path.iterdir()] == [path.name], "no draft is left behind"
    assert is_prior(path)


@pytest.mark.parametrize("kind", ["leading", "mixture"])
def test_equal_priors_are_equal_files(kind: str, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    prior_of(kind).save(one)
    Prior.load(one).save(other)
    assert one.read_bytes() == other.read_bytes()


def test_a_transform_must_be_given_again(tmp_path: Path) -> None:
    path = tmp_path / "prior.safetensors"
    prior_of("transform").save(path)
    other = TransformFrame((6,), lambda x: x.flip(-1), lambda z: z.flip(-1))
    for frame in (None, other):
        with pytest.raises(ValueError, match=r"frame must be given .* of shape \(1, 2, 3\)"):
            Prior.load(path, frame)


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "prior.safetensors"
    prior_of("leading").save(path)
    whole = path.read_bytes()
    for length in (0, 5, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"prior\.safetensors is damaged"):
            Prior.load(path)
        assert not is_prior(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    with pytest.raises(FileNotFoundError, match=r"path must be a file written by Prior\.save"):
        Prior.load(path)
    assert not is_prior(path)
    safetensors.torch.save_file({"x": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match="is no file of oism's Prior: its format is None"):
        Prior.load(path)
    score = fit(torch.randn(50, 2, generator=torch.Generator().manual_seed(0)), Hermite(2, 3))
    score.save(path)
    with pytest.raises(ValueError, match=r"is no file of oism's Prior: its format is 'oism\.Op"):
        Prior.load(path)
    assert not is_prior(path)
    prior_of("pixels").save(path)
    with pytest.raises(ValueError, match=r"is no file of oism's OperatorScore: its format is 'oi"):
        OperatorScore.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 99}, "has version 99 of the format; this oism reads version"),
        ({"settings": {"kind": "Other"}}, "holds a prior of an unknown kind, 'Other'"),
    ],
)
def test_files_of_another_time(change: dict[str, object], message: str, tmp_path: Path) -> None:
    path = tmp_path / "prior.safetensors"
    prior_of("pixels").save(path)
    with safetensors.safe_open(path, framework="pt") as file:
        about = json.loads(file.metadata()["oism"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    header = {"oism": json.dumps({**about, **change})}
    safetensors.torch.save_file(tensors, path, metadata=header)
    with pytest.raises(ValueError, match=message):
        Prior.load(path)


class OwnFrame(Frame):
    dim = 6

    def _analyse(self, x: Tensor) -> Tensor:
        return x.flip(-1)

    def _synthesise(self, z: Tensor) -> Tensor:
        return z.flip(-1)


class OwnClock(VariancePreserving):
    pass


def test_what_cannot_be_restored_is_not_saved(tmp_path: Path) -> None:
    path = tmp_path / "prior.safetensors"
    x = images()
    own = fit_prior(x, order=3, frame=OwnFrame())
    assert own.facts["frame"] == "OwnFrame"
    with pytest.raises(TypeError, match="frame must be one of the library's to be saved, got"):
        own.save(path)
    with pytest.raises(TypeError, match=r"clock must be one of .* to be saved, got"):
        fit_prior(x, order=2, clock=OwnClock()).save(path)
    assert not list(tmp_path.iterdir())


def test_a_failure_keeps_the_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "prior.safetensors"
    prior_of("leading").save(path)
    kept = path.read_bytes()

    def fail(draft: Path, content: bytes) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(OSError, match="disk full"):
        prior_of("mixture").save(path)
    assert path.read_bytes() == kept
