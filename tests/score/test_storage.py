from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor

from oism import (
    Fourier,
    Hermite,
    OrnsteinUhlenbeck,
    TensorHermite,
    VarianceExploding,
    VariancePreserving,
    fit,
    storage,
)
from oism.basis import Basis, Frame, OrthogonalFrame
from oism.process import Clock, IdentityClock
from oism.score import FourierScore, OperatorScore, TensorHermiteScore

X = torch.randn(200, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
OU = OrnsteinUhlenbeck(theta=0.7, sigma=1.3)
FRAME = OrthogonalFrame(torch.linalg.qr(X[:2])[0])
CASES: list[tuple[Basis, Clock]] = [
    (Fourier.lattice(2, 10), VarianceExploding(sigma_max=5.0)),
    (Hermite(2, 3, OU, FRAME), VariancePreserving(beta_1=9.0)),
    (TensorHermite(2, 3, OU), IdentityClock(2.0)),
    (TensorHermite(2, 2), VariancePreserving()),
]


@pytest.mark.parametrize(("basis", "clock"), CASES, ids=lambda case: type(case).__name__)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_round_trip(basis: Basis, clock: Clock, dtype: torch.dtype, tmp_path: Path) -> None:
    score = fit(X, basis, clock=clock).to(dtype)
    path = tmp_path / "score.safetensors"
    score.save(path)
    again = storage.load(path)
    assert type(again) is type(score)
    assert again.clock == clock
    t = torch.tensor([0.1, 0.7], dtype=torch.float64)
    x = X[:2].to(dtype)
    for part in ("score", "divergence", "log_ratio"):
        assert torch.equal(getattr(again, part)(x, t), getattr(score, part)(x, t))
    if score.curve.values.numel():
        exact = (one.coefficients(t, exact=True) for one in (again, score))
        assert torch.equal(*exact)
    for name, value in vars(score.diagnostics).items():
        torch.testing.assert_close(getattr(again.diagnostics, name), value, equal_nan=True)
    assert [file.name for file in tmp_path.iterdir()] == [path.name], "no temporary file remains"


def test_saving_replaces_the_file_and_a_failure_keeps_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "score.safetensors"
    first, second = (fit(X[: 50 * n], Hermite(2, 3)) for n in (1, 2))
    first.save(path)
    second.save(str(path))
    kept = path.read_bytes()

    def fail(draft: Path, content: bytes) -> None:
        with draft.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError("disk full")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(OSError, match="disk full"):
        first.save(path)
    assert path.read_bytes() == kept
    assert len(list(tmp_path.iterdir())) == 1


def test_the_error_for_a_truncated_file_contains_its_name(tmp_path: Path) -> None:
    path = tmp_path / "score.safetensors"
    fit(X, Hermite(2, 3)).save(path)
    whole = path.read_bytes()
    for length in (0, 5, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(storage.StorageError, match=r"score\.safetensors"):
            storage.load(path)


def test_files_of_other_formats_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    with pytest.raises(FileNotFoundError, match="other"):
        storage.load(path)
    safetensors.torch.save_file({"x": torch.zeros(1)}, path)
    with pytest.raises(storage.StorageError, match=r"other\.safetensors"):
        storage.load(path)
    about = {"format": "oism.OperatorScore", "version": 2, "settings": {}}
    header = {"oism": json.dumps(about)}
    safetensors.torch.save_file({"x": torch.zeros(1)}, path, metadata=header)
    with pytest.raises(storage.StorageError, match=r"other\.safetensors"):
        storage.load(path)


@dataclass(frozen=True)
class OwnClock(VariancePreserving):
    pass


class Flip(Frame):
    dim = 2

    def _analyse(self, x: Tensor) -> Tensor:
        return x.flip(-1)

    def _synthesise(self, z: Tensor) -> Tensor:
        return z.flip(-1)


def test_saving_unregistered_classes_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "score.safetensors"
    with pytest.raises(TypeError, match="clock"):
        fit(X, Hermite(2, 3), clock=OwnClock()).save(path)
    with pytest.raises(TypeError, match="frame"):
        fit(X, Hermite(2, 3, frame=Flip())).save(path)
    assert not list(tmp_path.iterdir())


def test_equal_scores_are_saved_as_equal_bytes(tmp_path: Path) -> None:
    x = torch.randn(50, 1, generator=torch.Generator().manual_seed(0))
    contents = []
    for name in "abcdefgh":
        fit(x, Fourier.lattice(1, 9), ridge=0.01).save(tmp_path / name)
        contents.append((tmp_path / name).read_bytes())
    assert len(set(contents)) == 1


def test_the_class_of_a_file_is_read_from_its_header(tmp_path: Path) -> None:
    path = tmp_path / "m"
    fit(X, TensorHermite(2, 2)).save(path)
    assert storage.class_of(path) == "oism.score.TensorHermiteScore"
    with pytest.raises(storage.StorageError, match="FourierScore"):
        storage.load(path, expected=FourierScore)
    assert isinstance(storage.load(path, expected=OperatorScore), TensorHermiteScore)
    assert storage.class_of(tmp_path / "nowhere") is None
    assert storage.class_of(tmp_path) is None
