"""The folder of a run, and what must agree with it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oism import Diffusion, VariancePreserving, fit_prior, load, train
from oism.images import ByError, Gate, Prior
from oism.nn import MLP, Combined, OperatorInformed
from oism.objectives import UniformLogSNR
from oism.storage import StorageError
from oism.training import (
    CheckpointError,
    Rows,
    Run,
    TrainingConfig,
    bits_per_dim,
    check_folder,
    check_not_running,
    holds_run,
    latest_checkpoint,
    read_settings,
    run_progress,
)
from oism.training._compatibility import differences
from oism.training._folder import write_settings


def points(seed: int = 0, n: int = 200) -> torch.Tensor:
    source = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (n, 2), generator=source).byte()


def prior_of(data: torch.Tensor, order: int = 2, clock: VariancePreserving | None = None) -> Prior:
    return fit_prior(data, order=order, clock=clock)


def run(folder: Path, steps: int = 2, *, resume: bool = False, **more: object) -> Run:
    """A run of a few steps on points of the plane, each part of which may be another."""
    data = more.pop("data", points())
    assert isinstance(data, torch.Tensor)
    prior = more.pop("prior", None) or prior_of(data)
    gate = more.pop("gate", ByError(half=0.05))
    assert isinstance(prior, Prior)
    assert isinstance(gate, ByError)
    torch.manual_seed(0)
    predictor = OperatorInformed(MLP(2, extra=2, width=8), prior, gate=gate, condition=True)
    config = TrainingConfig(steps=steps, batch=16, flip=False, **more)  # type: ignore[arg-type]
    done = Run(folder, predictor, data, config, resume=resume)
    done.run()
    return done


def test_the_model_of_a_run(tmp_path: Path) -> None:
    done = run(tmp_path / "run", 3)
    with done.loop.average.applied():
        expected = {name: part.clone() for name, part in done.loop.predictor.state_dict().items()}
    for path in (tmp_path / "run", tmp_path / "run" / "model.safetensors"):
        found: Diffusion = load(path)
        state = found.predictor.state_dict()
        assert state.keys() == expected.keys()
        for name, part in state.items():
            assert torch.equal(part.nan_to_num(), expected[name].nan_to_num()), name
        assert (found.first, found.spec) == (1e-5, done.model.spec)
    assert run_progress(tmp_path / "run") == (3, 3)


class Line(nn.Module):
    """A network of one's own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 2)

    def forward(self, x: Tensor, tau: Tensor) -> Tensor:
        found: Tensor = self.inner(x) * tau[:, None].to(x)
        return found


class Ajar(Gate):
    """A gate of one's own."""

    def opening(self, error: Tensor) -> Tensor:
        return torch.full_like(error, 0.5)


def test_a_run_of_ones_own_network_and_gate(tmp_path: Path) -> None:
    """It is resumed, and its model is loaded from the folder if they are given again."""
    prior = prior_of(points())
    for steps in (2, 4):
        config = TrainingConfig(steps=steps, batch=16, flip=False)
        predictor = OperatorInformed(Line(), prior, gate=Ajar(), condition=True)
        done = Run(tmp_path, predictor, points(), config, resume=steps == 4)
        assert done.loop.step_number == steps - 2
        done.run()
    x, tau = points()[:5].float(), torch.rand(5)
    with done.loop.averaged():
        expected = done.model.noise(x, tau)
    with pytest.raises(StorageError, match=r"is an object of class '.*' that is not part of oism"):
        load(tmp_path)
    found: Diffusion = load(tmp_path, given={"net": Line(), "gate": Ajar()})
    assert torch.equal(found.noise(x, tau), expected)


class Holder(nn.Module):
    """A network alone, whose inner part has the name of the network beside a prior."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.scale = nn.Linear(2, 2), nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor, tau: Tensor) -> Tensor:
        found: Tensor = self.scale * self.net(x)
        return found


def test_all_of_a_network_alone_is_trained(tmp_path: Path) -> None:
    net = Holder()
    config = TrainingConfig(steps=2, batch=16, flip=False, rate=0.1)
    model = train(net, points(), tmp_path, config)
    assert float(net.scale.detach()) != 1
    found: Diffusion = load(tmp_path, given={"predictor": Holder()})
    x, tau = points()[:5].float(), torch.rand(5)
    assert torch.equal(found.noise(x, tau), model.noise(x, tau))


def test_an_error_while_the_model_is_written_leaves_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, 2)
    before = (tmp_path / "model.safetensors").read_bytes()

    def stop(self: object, path: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Diffusion, "save", stop)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, 4, resume=True)
    assert (tmp_path / "model.safetensors").read_bytes() == before
    assert latest_checkpoint(tmp_path) == tmp_path / "checkpoints" / "step-00000004.safetensors"
    run(tmp_path, 4, resume=True)
    run(tmp_path / "whole", 4)
    after = (tmp_path / "model.safetensors").read_bytes()
    assert after == (tmp_path / "whole" / "model.safetensors").read_bytes() != before


def test_an_error_while_a_prior_is_written_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise no run could start there: a prior without settings may be anybody's."""

    def stop(self: object, path: Path) -> None:
        path.write_text("half of it")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Prior, "save", stop)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path)
    assert not list(tmp_path.iterdir())
    run(tmp_path)


def begun(folder: Path, prior: Prior | None, config: TrainingConfig) -> None:
    """A run that ends before its first checkpoint."""
    torch.manual_seed(0)
    net = MLP(2, width=8) if prior is None else OperatorInformed(MLP(2, width=8), prior)
    Run(folder, net, points(), config).close()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_run_begins_where_another_was_interrupted_before_it_removed_drafts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("run.lock", ".oism-0.part"):  # what a killed run left
        (tmp_path / name).write_text("")

    def stop(folder: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("oism.training._run.remove_drafts", stop)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".oism-0.part"]
    run(tmp_path)
    assert not (tmp_path / ".oism-0.part").exists()


@pytest.mark.parametrize("order", [None, 3])
def test_an_error_while_a_run_begins_again_leaves_the_old_files(
    tmp_path: Path, order: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full from one of the calls on; the new run has another prior, or none."""
    config = TrainingConfig(batch=16, flip=False)
    prior = None if order is None else prior_of(points(), order)
    begun(tmp_path / "expected", prior, config)
    begun(tmp_path / "run", prior_of(points()), TrainingConfig(steps=9, batch=16, flip=False))
    for name in ("model.safetensors", "metrics.jsonl"):
        (tmp_path / "run" / name).write_text("that of the old run")
    before, flush, failures = contents(tmp_path / "run"), os.fsync, 0
    assert "prior.safetensors" in before
    while contents(tmp_path / "run") == before:
        left = iter(range(failures))

        def full(handle: int, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise OSError(errno.ENOSPC, "No space left on device")
            flush(handle)

        with monkeypatch.context() as patch, suppress(OSError):
            patch.setattr(os, "fsync", full)
            begun(tmp_path / "run", prior, config)
        failures += 1
        assert failures < 9
    assert failures > (1 if order is None else 3)
    assert contents(tmp_path / "run") == contents(tmp_path / "expected")


def test_a_prior_that_is_the_same_stays(tmp_path: Path) -> None:
    """It may be the file that the prior was loaded from, so it must not be gone for a moment."""
    config = TrainingConfig(batch=16, flip=False)
    path = tmp_path / "prior.safetensors"
    begun(tmp_path, prior_of(points()), config)
    kept = path.stat()
    begun(tmp_path, load(path), TrainingConfig(steps=9, batch=16, flip=False))
    assert os.path.samestat(path.stat(), kept)
    assert read_settings(tmp_path)["config"]["steps"] == 9
    begun(tmp_path, prior_of(points(), 3), config)
    assert load(path).order == 3
    begun(tmp_path, None, config)
    assert not path.exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"rate": 0.1}, r"the run has rate = 0.0002 \(not 0.1\), and cannot continue"),
        ({"gate": ByError(half=0.2)}, r"gate.half = 0.05 \(not 0.2\)"),
        ({"data": points(1)}, "the run has checksum = .*, another prior"),
        ({"data": points(0, 199)}, r"the run has rows = 200 \(not 199\)"),
        ({"prior": prior_of(points(), 3)}, r"another prior, that of prior.safetensors"),
        ({"prior": prior_of(points(1))}, r"another prior, that of prior.safetensors"),
        (
            {"prior": prior_of(points(), clock=VariancePreserving(0.1, 9))},
            r"clock = .*beta_1=20.0.*, another prior",
        ),
        ({"steps": 1}, "the run has taken 2 steps, and cannot continue to 1"),
    ],
)
def test_what_a_run_cannot_continue_with(
    tmp_path: Path, more: dict[str, object], message: str
) -> None:
    run(tmp_path)
    content = (tmp_path / "settings.json").read_bytes()
    with pytest.raises(CheckpointError, match=message):
        run(tmp_path, resume=True, **{"steps": 4, **more})  # type: ignore[arg-type]
    assert (tmp_path / "settings.json").read_bytes() == content


def test_what_may_change(tmp_path: Path) -> None:
    run(tmp_path)
    run(tmp_path, 3, resume=True, log_every=1, save_every=1, sample_every=0, keep=1)
    assert read_settings(tmp_path)["config"]["log_every"] == 1


def test_differences() -> None:
    first = {"a": 1, "b": {"c": [1, 2]}}
    assert not list(differences(first, {"b": {"c": [1, 2]}, "a": 1}))
    assert list(differences(first, {"a": 1, "b": {"c": [1, 3]}})) == [("b.c", [1, 2], [1, 3])]
    assert list(differences(first, {"a": 1, "b": None})) == [("b", {"c": [1, 2]}, None)]
    assert list(differences(first, {**first, "d": 5})) == [("d", None, 5)]
    assert list(differences(first, {"a": 2, "b": {"c": 3}})) == [("a", 1, 2), ("b.c", [1, 2], 3)]


def test_places(tmp_path: Path) -> None:
    check_folder(tmp_path / "new" / "er", resume=False)
    check_folder(tmp_path, resume=False)
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileExistsError, match="is not empty, and holds no run"):
        check_folder(tmp_path, resume=True)
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(NotADirectoryError, match="is a file"):
            check_folder(path, resume=False)
    with pytest.raises(IsADirectoryError, match=r"is a folder without model.safetensors, which a"):
        load(tmp_path)
    with pytest.raises(CheckpointError, match=r"holds no run: there is no settings.json"):
        read_settings(tmp_path)
    (tmp_path / "run.lock").write_text("process 1")
    with pytest.raises(FileExistsError, match="is not empty, and holds no run"):
        check_folder(tmp_path, resume=True)
    (tmp_path / "file").unlink()
    (tmp_path / ".oism-0.part").write_text("x")  # a run that was killed at its start
    for check in (check_not_running, partial(check_folder, resume=False)):
        check_folder(tmp_path, resume=False)
        check(tmp_path)
    (tmp_path / "run.lock").unlink()  # by a run that was interrupted before it removed drafts
    check_folder(tmp_path, resume=False)
    (tmp_path / "prior.safetensors").write_text("that of somebody else")
    with pytest.raises(FileExistsError, match="is not empty, and holds no run"):
        check_folder(tmp_path, resume=True)
    (tmp_path / "settings.json").write_text("[]")
    assert holds_run(tmp_path)
    check_folder(tmp_path, resume=False)  # of a run that has no checkpoint
    for content in ("[]", "{}", '{"config": {"steps": "9"}}'):
        (tmp_path / "settings.json").write_text(content)
        with pytest.raises(CheckpointError, match="not the settings of a run of this release"):
            run_progress(tmp_path)
    (tmp_path / "settings.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"settings.json: damaged"):
        run_progress(tmp_path)


def test_a_changed_digit_of_the_settings_is_an_error(tmp_path: Path) -> None:
    write_settings(tmp_path, {"config": {"steps": 12}, "notes": None})
    assert read_settings(tmp_path) == {"config": {"steps": 12}, "notes": None}
    text = (tmp_path / "settings.json").read_text()
    (tmp_path / "settings.json").write_text(text.replace("12", "13", 1))
    with pytest.raises(CheckpointError, match=r"settings.json: damaged: .* SHA-256"):
        read_settings(tmp_path)


def test_configuration_agrees_with_what_is_trained(tmp_path: Path) -> None:
    prior, config = prior_of(points()), TrainingConfig(batch=16, flip=False)
    predictor = OperatorInformed(MLP(2, width=8), prior)
    levels = UniformLogSNR(prior.noising, 1e-3)
    with pytest.raises(ValueError, match=r"levels must begin at first = 1e-05, got 0.001"):
        Run(tmp_path, predictor, points(), config, levels=levels)
    combined = Combined(MLP(2, width=8), prior, first=1e-3)
    with pytest.raises(ValueError, match=r"predictor must begin at first = 1e-05, got 0.001"):
        Run(tmp_path, combined, points(), config)
    rows = Rows(points(), dequantise=False)
    with pytest.raises(ValueError, match="prior must be for data that are not dequantised"):
        Run(tmp_path, predictor, rows, config)
    assert not list(tmp_path.iterdir())


def test_arguments_of_other_kinds_are_named(tmp_path: Path) -> None:
    prior = prior_of(points())
    predictor = OperatorInformed(MLP(2, width=8), prior)
    good = {"predictor": predictor, "data": points(), "config": TrainingConfig(flip=False)}
    for name, wrong in {"predictor": prior.noise, "config": {}, "levels": prior.noising}.items():
        arguments: dict[str, Any] = {**good, name: wrong}
        with pytest.raises(TypeError, match=f"{name} must be of type"):
            Run(tmp_path, **arguments)
    with pytest.raises(TypeError, match="data must be a tensor, an array, batches of them or Rows"):
        Run(tmp_path, **{**good, "data": 5})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="model must be of type Diffusion, got HermitePrior"):
        bits_per_dim(prior, points())  # type: ignore[arg-type]


def test_bits_of_nothing(tmp_path: Path) -> None:
    run(tmp_path)
    model = load(str(tmp_path))
    with pytest.raises(ValueError, match=r"values must be integers \(n, \*shape\), got \(0, 2\)"):
        bits_per_dim(model, points()[:0])


def test_bits_do_not_know_how_they_are_counted(tmp_path: Path) -> None:
    """A batch is a run of rows with a seed of its own, and evaluations are counted for one."""
    run(tmp_path)
    model, values = load(tmp_path), points(3, 40)
    method = model.likelihood_method(64)
    whole, parts = (
        bits_per_dim(model, values, method=method, seed=2, batch=size) for size in (40, 16)
    )
    assert whole.evaluations == parts.evaluations == 64
    assert whole.bits.count == parts.bits.count == 40
    assert abs(whole.bits.mean - parts.bits.mean) < 4 * whole.bits.error
    again = bits_per_dim(model, values, method=method, seed=2, batch=16)
    assert again == parts
    assert not model.predictor._forward_hooks
    short = bits_per_dim(model, values, method=method, seed=2, batch=16, checked=0)
    assert (short.bits, short.evaluations) == (parts.bits, parts.evaluations)
    assert short.probe_deviation is None
    assert short.discretisation is None
    assert short.is_accurate, "as far as it is known"
