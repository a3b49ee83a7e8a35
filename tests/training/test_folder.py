"""The folder of a run, and what must agree with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oism import VariancePreserving, fit_prior
from oism.images import ByError, Gate, Prior
from oism.images._base import Setting
from oism.nn import MLP, OperatorInformed
from oism.objectives import UniformLogSNR
from oism.training import CheckpointError, Rows, Run, Training, bits_per_dim, model_of
from oism.training._compatibility import are_alike, difference
from oism.training._folder import demand_place, holds_run, latest, steps_of


def points(seed: int = 0, n: int = 200) -> torch.Tensor:
    source = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (n, 2), generator=source).byte()


def prior_of(data: torch.Tensor, order: int = 2, **more: VariancePreserving) -> Prior:
    return fit_prior(data, order=order, **more)  # type: ignore[arg-type]


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
    settings = Training(steps=steps, batch=16, flip=False, **more)  # type: ignore[arg-type]
    levels = UniformLogSNR(prior.noising)
    done = Run(folder, predictor, Rows(data), levels, settings, prior.setting, resume=resume)
    done.run()
    return done


def test_the_model_of_a_run(tmp_path: Path) -> None:
    done = run(tmp_path / "run", 3)
    with done.loop.average.applied():
        expected = {name: part.clone() for name, part in done.loop.predictor.state_dict().items()}
    for _ in range(2):  # from the model, then from the newest checkpoint
        found = model_of(tmp_path / "run")
        state = found.predictor.state_dict()
        assert state.keys() == expected.keys()
        for name, part in state.items():
            assert torch.equal(part.nan_to_num(), expected[name].nan_to_num()), name
        assert (found.first, found.setting) == (1e-5, done.model.setting)
        (tmp_path / "run" / "model.safetensors").unlink(missing_ok=True)
    assert steps_of(tmp_path / "run") == (3, 3)


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
    """It goes on where it stopped, and its model is found in the folder, given them again."""
    prior, rows = prior_of(points()), Rows(points())
    for steps in (2, 4):
        settings = Training(steps=steps, batch=16, flip=False)
        predictor = OperatorInformed(Line(), prior, gate=Ajar(), condition=True)
        levels = UniformLogSNR(prior.noising)
        done = Run(tmp_path, predictor, rows, levels, settings, prior.setting, resume=steps == 4)
        assert done.loop.step_number == steps - 2
        done.run()
    x, tau = points()[:5].float(), torch.rand(5)
    with done.loop.settled():
        expected = done.model.noise(x, tau)
    for _ in range(2):  # from the model, then from the newest checkpoint
        with pytest.raises(ValueError, match=r"a network of the kind '.*Line', .*give it as net"):
            model_of(tmp_path)
        found = model_of(tmp_path, net=Line(), gate=Ajar())
        assert torch.equal(found.noise(x, tau), expected)
        (tmp_path / "model.safetensors").unlink(missing_ok=True)


def test_a_model_of_fewer_steps_goes_with_the_next_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, 2)

    def stop(self: object, path: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("oism.nn._model.Diffusion.save", stop)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, 4, resume=True)
    assert not (tmp_path / "model.safetensors").exists()
    assert latest(tmp_path) == tmp_path / "checkpoints" / "step-00000004"
    model_of(tmp_path)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"rate": 0.1}, "the run has rate = 0.0002, and cannot go on with 0.1"),
        ({"gate": ByError(half=0.2)}, "gate.half = 0.05, and cannot go on with 0.2"),
        ({"data": points(1)}, "the run has checksum = "),
        ({"data": points(0, 199)}, "the run has rows = 200, and cannot go on with 199"),
        ({"prior": prior_of(points(), 3)}, r"another prior, that of prior.safetensors"),
        ({"prior": prior_of(points(1))}, r"another prior, that of prior.safetensors"),
        ({"prior": prior_of(points(), clock=VariancePreserving(0.1, 9))}, r"clock = .*beta_1=20.0"),
        ({"steps": 1}, "the run has taken 2 steps, and cannot go on to 1"),
    ],
)
def test_what_a_run_cannot_go_on_with(
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
    assert json.loads((tmp_path / "settings.json").read_text())["log_every"] == 1


def test_priors_that_were_rounded_are_alike() -> None:
    prior = prior_of(points(), 3)
    other = prior_of(points(), 3)
    with torch.no_grad():
        other.state_dict()["mean"].mul_(1 + 1e-5)
    assert are_alike(prior, other)
    assert not are_alike(prior, prior_of(points(1), 3))


def test_difference() -> None:
    first = {"a": 1, "b": {"c": [1, 2]}}
    assert difference(first, {"b": {"c": [1, 2]}, "a": 1}) is None
    assert difference(first, {"a": 1, "b": {"c": [1, 3]}}) == ("b.c", [1, 2], [1, 3])
    assert difference(first, {"a": 1, "b": None}) == ("b", {"c": [1, 2]}, None)
    assert difference(first, {**first, "d": 5}) == ("d", None, 5)


def test_places(tmp_path: Path) -> None:
    demand_place(tmp_path / "new" / "er", resume=False)
    demand_place(tmp_path, resume=False)
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileExistsError, match="is not empty, and holds no run"):
        demand_place(tmp_path, resume=True)
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(NotADirectoryError, match="is a file"):
            demand_place(path, resume=False)
    with pytest.raises(CheckpointError, match=r"holds no run: there is no settings.json"):
        model_of(tmp_path)
    (tmp_path / "settings.json").write_text("[]")
    assert holds_run(tmp_path)
    demand_place(tmp_path, resume=False)  # of a run that never came to a checkpoint
    with pytest.raises(CheckpointError, match="not the settings of a run of this release"):
        steps_of(tmp_path)


def test_settings_agree_with_what_is_trained(tmp_path: Path) -> None:
    prior, rows = prior_of(points()), Rows(points())
    predictor = OperatorInformed(MLP(2, width=8), prior)
    levels, settings = UniformLogSNR(prior.noising, 1e-3), Training(batch=16, flip=False)
    with pytest.raises(ValueError, match=r"levels must begin at first = 1e-05, got 0.001"):
        Run(tmp_path, predictor, rows, levels, settings, prior.setting)
    setting = Setting((2,), prior.clock, prior.clock, prior.pixels, dequantised=False)
    with pytest.raises(ValueError, match="setting must be for data that are dequantised"):
        Run(tmp_path, predictor, rows, UniformLogSNR(prior.noising), settings, setting)


def test_arguments_of_other_kinds_are_named(tmp_path: Path) -> None:
    prior, rows = prior_of(points()), Rows(points())
    predictor = OperatorInformed(MLP(2, width=8), prior)
    levels, settings = UniformLogSNR(prior.noising), Training(batch=16, flip=False)
    good = {"predictor": predictor, "rows": rows, "levels": levels, "settings": settings}
    for name, wrong in {"rows": points(), "levels": prior.noising, "settings": {}}.items():
        arguments: dict[str, Any] = {**good, name: wrong}
        with pytest.raises(TypeError, match=f"{name} must be of type"):
            Run(tmp_path, **arguments, setting=prior.setting)
    with pytest.raises(TypeError, match="model must be of type Diffusion, got HermitePrior"):
        bits_per_dim(prior, points())  # type: ignore[arg-type]


def test_bits_of_nothing(tmp_path: Path) -> None:
    run(tmp_path)
    model = model_of(str(tmp_path))
    with pytest.raises(ValueError, match=r"values must be integers \(n, \*shape\), got \(0, 2\)"):
        bits_per_dim(model, points()[:0])


def test_bits_do_not_know_how_they_are_counted(tmp_path: Path) -> None:
    """A batch is a run of rows with a seed of its own, and evaluations are counted for one."""
    run(tmp_path)
    model, values = model_of(tmp_path), points(3, 40)
    whole, parts = (bits_per_dim(model, values, seed=2, batch=size) for size in (40, 16))
    assert whole.evaluations == parts.evaluations == 96
    assert whole.bits.count == parts.bits.count == 40
    assert abs(whole.bits.mean - parts.bits.mean) < 4 * whole.bits.error
    again = bits_per_dim(model, values, seed=2, batch=16)
    assert again == parts
    assert not model.predictor._forward_hooks
