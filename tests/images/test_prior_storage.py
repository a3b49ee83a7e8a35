from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from oism import Hermite, VariancePreserving, fit, fit_mixture, fit_prior, load, storage
from oism.basis import CosineFrame, Frame, IdentityFrame, OrthogonalFrame, TransformFrame
from oism.flow import Pixels
from oism.images import PCA, Prior
from oism.process import IdentityClock
from oism.score import OperatorScore
from oism.storage import StorageError

from ..headers import put, rename_class, rewrite

SHAPE = (1, 2, 3)
FLIP = TransformFrame(SHAPE, lambda x: x.flip(-1), lambda z: z.flip(-1))
ROTATED = OrthogonalFrame(torch.eye(6).flip(0))


def images() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return (255 * torch.rand(80, *SHAPE, generator=generator).square()).byte()


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few steps: these tests do not measure the accuracy of the flow."""
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


def given(kind: str) -> dict[str, object] | None:
    return {"frame": FLIP} if kind == "transform" else None


@pytest.mark.parametrize("kind", KINDS)
def test_round_trip(kind: str, tmp_path: Path) -> None:
    prior, path = prior_of(kind), tmp_path / "prior.safetensors"
    prior.save(path)
    again = load(str(path), given=given(kind))
    assert type(again) is type(prior)
    assert again.facts() == prior.facts()
    assert again.spec == prior.spec
    assert again.table_clock == prior.table_clock
    assert again.shape == SHAPE
    x = torch.randn(4, *SHAPE, generator=torch.Generator().manual_seed(1))
    tau = torch.linspace(0, again.clock.horizon, 4)
    for one, other in zip(
        prior.score_and_divergence(x, tau), again.score_and_divergence(x, tau), strict=True
    ):
        assert torch.equal(one, other)
    assert torch.equal(again.noise(x, tau), prior.noise(x, tau))
    assert torch.equal(again.expected_error(tau), prior.expected_error(tau))
    assert torch.equal(again.log_density(x), prior.log_density(x))
    draws = [p.sample(2, torch.Generator().manual_seed(0)) for p in (prior, again)]
    assert torch.equal(*draws)
    assert [file.name for file in tmp_path.iterdir()] == [path.name], "no draft is left behind"
    assert storage.class_of(path) == f"oism.images.{type(prior).__name__}"


@pytest.mark.parametrize("kind", ["leading", "mixture"])
def test_equal_priors_are_equal_files(kind: str, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    prior_of(kind).save(one)
    load(one).save(other)
    assert one.read_bytes() == other.read_bytes()


def test_a_transform_must_be_given_again(tmp_path: Path) -> None:
    path = tmp_path / "prior.safetensors"
    prior_of("transform").save(path)
    message = r"entry 'frame' is an object of class 'oism\.basis\.TransformFrame' .*given=\{'frame'"
    with pytest.raises(StorageError, match=message):
        load(path)
    other = TransformFrame((7,), lambda x: x.flip(-1), lambda z: z.flip(-1))
    with pytest.raises(StorageError, match="tensors of 6 entries, got a frame for 7"):
        load(path, given={"frame": other})
    with pytest.raises(StorageError, match=r"but the one given is of class 'oism\.basis\.Id"):
        load(path, given={"frame": IdentityFrame()})


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "prior.safetensors"
    prior_of("leading").save(path)
    whole = path.read_bytes()
    for length in (0, 5, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(StorageError, match=r"prior\.safetensors: is (empty|truncated)"):
            load(path)
        assert storage.class_of(path) is None


@pytest.mark.parametrize("kind", ["leading", "mixture and rest", "cosines"])
def test_a_changed_byte_is_an_error(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "prior.safetensors"
    prior_of(kind).save(path)
    whole = path.read_bytes()
    for place in range(0, len(whole), max(1, len(whole) // 60)):
        changed = bytearray(whole)
        changed[place] ^= 1 << (place % 8)
        path.write_bytes(changed)
        with pytest.raises(StorageError, match=r"prior\.safetensors: "):
            load(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    with pytest.raises(FileNotFoundError, match=r"other\.safetensors"):
        load(path)
    assert storage.class_of(path) is None
    safetensors.torch.save_file({"x": torch.zeros(1)}, path)
    with pytest.raises(StorageError, match="is not a file of oism"):
        load(path)
    score = fit(torch.randn(50, 2, generator=torch.Generator().manual_seed(0)), Hermite(2, 3))
    score.save(path)
    with pytest.raises(
        StorageError, match=r"class 'oism\.score\.Herm.*', not 'oism\.images\.Prior"
    ):
        storage.load(path, expected=Prior)
    prior_of("pixels").save(path)
    with pytest.raises(StorageError, match=r"class 'oism\.images\.Herm.*', not 'oism\.score\.Oper"):
        storage.load(path, expected=OperatorScore)
    assert isinstance(storage.load(path, expected=Prior), Prior)


def test_a_newer_file_asks_for_an_upgrade(tmp_path: Path) -> None:
    path = tmp_path / "prior.safetensors"
    prior_of("pixels").save(path)
    rewrite(path, lambda about: about.update(version=99))
    with pytest.raises(StorageError, match=r"version 99; this oism reads .*: upgrade oism"):
        load(path)


BROKEN: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "class": (lambda about: about.update({"class": "oism.images.Other"}), "'oism.images.Other'"),
    "frame": (
        lambda about: rename_class(about, "frame", "oism.basis.Waves"),
        "entry 'frame' holds an object of class 'oism.basis.Waves', which is not registered",
    ),
    "entry": (
        lambda about: about["config"].pop("rest"),
        "entry 'rest' is missing",
    ),
    "more": (lambda about: put(about, "order", 4), "entry 'order' is unknown"),
    "type": (lambda about: put(about, "rest", "none"), "entry 'rest' must be a number or None"),
    "shape": (
        lambda about: put(about, "spec.shape", [1, 2, 4]),
        "frame and mean must be those of tensors of 8 entries, got a frame for 6",
    ),
    "sizes": (
        lambda about: put(about, "spec.shape", [10**9, 10**9]),
        "frame and mean must be those of tensors of 1000000000000000000 entries",
    ),
    "clock": (
        lambda about: put(about, "spec.clock.beta_1", -3.0),
        "entry 'spec.clock' cannot be built: beta_1 must be a positive finite number",
    ),
    "pixels": (
        lambda about: put(about, "spec.pixels.high", 0),
        "entry 'spec.pixels' cannot be built: high must exceed low = 0, got 0",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_header_that_was_edited_is_an_error_that_names_the_entry(
    case: str, tmp_path: Path
) -> None:
    path = tmp_path / "prior.safetensors"
    prior_of("leading").save(path)
    change, message = BROKEN[case]
    rewrite(path, change)
    with pytest.raises(StorageError, match=re.escape(message)):
        load(path)


def test_components_of_a_mixture_must_agree(tmp_path: Path) -> None:
    prior, path = prior_of("mixture"), tmp_path / "prior.safetensors"
    prior.save(path)
    described, tensors = storage.describe(prior)
    tensors["means"] = tensors["means"][:, :3]
    with pytest.raises(StorageError, match=r"\(K, 6\), got \(3,\), \(3, 3\) and \(3, 6\)"):
        storage.restore(described, tensors)


class OwnFrame(Frame):
    dim = 6

    def _analyse(self, x: Tensor) -> Tensor:
        return x.flip(-1)

    def _synthesise(self, z: Tensor) -> Tensor:
        return z.flip(-1)


class OwnClock(VariancePreserving):
    pass


def test_a_frame_of_ones_own_is_given_again(tmp_path: Path) -> None:
    path = tmp_path / "prior.safetensors"
    own = fit_prior(images(), order=3, frame=OwnFrame())
    assert own.facts()["frame"] == "OwnFrame"
    own.save(path)
    with pytest.raises(StorageError, match=r"entry 'frame' is an object of class .*OwnFrame'"):
        load(path)
    again, x = load(path, given={"frame": OwnFrame()}), torch.randn(4, *SHAPE)
    assert torch.equal(again.noise(x, 0.3), own.noise(x, 0.3))


def test_what_cannot_be_restored_is_not_saved(tmp_path: Path) -> None:
    path = tmp_path / "prior.safetensors"
    with pytest.raises(TypeError, match=r"entry 'spec\.clock' is of class .*OwnClock'"):
        fit_prior(images(), order=2, clock=OwnClock()).save(path)
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
