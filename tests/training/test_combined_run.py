"""Runs of a network that is combined with a prior: it is trained alone, and then calibrated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from oism import load
from oism._core.hashing import seed_from
from oism.flow import NoisePredictor
from oism.nn import Combined, DDPMpp, Diffusion
from oism.objectives import DenoisingScoreMatching, UniformLogSNR, errors_by_level
from oism.training import (
    CheckpointError,
    DivergedError,
    Loop,
    Rows,
    new_accelerator,
    read_metrics,
)
from oism.training import _checkpoint as checkpoint
from oism.training._draws import Draws
from oism.training._loop import CALIBRATION_BATCH, LEAST

from .small import (
    NET,
    PIXELS,
    SHAPE,
    assert_same,
    config,
    fitted,
    images,
    predictor,
    short_run,
    state_of,
    steps_and_losses,
)


def combined(**more: float) -> Combined:
    torch.manual_seed(0)
    return Combined(DDPMpp(SHAPE, **NET, dropout=0.1), fitted(), **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is never changed."""
    folder = tmp_path_factory.mktemp("run")
    short_run(folder, combined(), save_every=5).run()
    return folder


def share_of(model: Diffusion) -> torch.Tensor:
    assert isinstance(model.predictor, Combined)
    return model.predictor.share


def test_the_network_is_trained_as_if_alone(done: Path, tmp_path: Path) -> None:
    """Bit for bit, with checkpoints, and so calibrations, in between."""
    short_run(tmp_path, predictor(), save_every=0).run()
    assert steps_and_losses(done) == steps_and_losses(tmp_path)
    own, alone = state_of(done), state_of(tmp_path)
    assert set(own) == set(alone)
    assert [name for name in alone if not torch.equal(own[name], alone[name])] == []


def test_the_share_is_that_of_the_average_weights_on_known_draws(done: Path) -> None:
    model = load(done)
    net = model.predictor
    assert isinstance(net, Combined)
    again = Combined(net.net, net.prior)
    run = short_run(done, combined(), resume=True)
    size = min(len(images()), CALIBRATION_BATCH)
    levels = run.loop.objective.levels
    draws = Draws(run.loop.draws.rows, levels, size=size, seed=seed_from(0, 2), flip=True)
    assert run.loop.step_number * run.config.batch < LEAST
    batches = [draws.step(k) for k in range(-(-LEAST // size))]
    assert sum(len(batch.x) for batch in batches) >= LEAST
    noised = run.loop.objective.noised
    again.calibrate((noised(one.x, one.tau, one.noise), one.tau, one.noise) for one in batches)
    assert torch.equal(again.share, net.share)
    assert float(net.share.max()) > 0


def test_the_model_is_that_of_the_newest_checkpoint(done: Path, tmp_path: Path) -> None:
    """Also during training: a run that ends there has the same model, byte for byte."""
    whole = load(done)
    assert len(set(share_of(whole).tolist())) > 10
    run = short_run(tmp_path / "on", combined(), save_every=5)
    run.stop(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run.run()
    short_run(tmp_path / "one", combined(), save_every=5, steps=1).run()
    on, one = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("on", "one"))
    assert on == one
    settings = json.loads((done / "settings.json").read_text())
    assert settings["model"]["form"] == {"kind": "Combined", "first": 1e-5, "intervals": 48}


def test_the_error_of_the_model_is_reported(done: Path) -> None:
    """That of the combination on the calibration draws, at checkpoints: not the network's."""
    found = read_metrics(done)
    measured = [line for line in found if "model_error" in line]
    assert [line["step"] for line in measured] == [5, 10, 12]
    run = short_run(done, combined(), resume=True)
    with run.loop.averaged():
        error = run.loop.model_error()
    assert error.mean == measured[-1]["model_error"]
    assert list(error.by_level) == measured[-1]["model_error_by_level"]
    net = run.loop.predictor.net
    assert isinstance(net, DDPMpp)
    prior = fitted()
    size, levels = min(len(images()), CALIBRATION_BATCH), run.loop.objective.levels
    draws = Draws(run.loop.draws.rows, levels, size=size, seed=seed_from(0, 2), flip=True)
    sums = torch.zeros(3, dtype=torch.float64)
    with run.loop.averaged():
        for k in range(-(-LEAST // size)):
            one = draws.step(k)
            arguments = (one.x, one.tau, one.noise)
            with torch.no_grad():
                predictors: list[NoisePredictor] = [run.model.noise, net.eval(), prior.noise]
                for i, predictor in enumerate(predictors):
                    sums[i] += run.loop.objective.errors(predictor, *arguments).double().sum()
    model, alone, known = (sums / (size * -(-LEAST // size))).tolist()
    assert model == pytest.approx(error.mean, rel=1e-5)
    assert model <= 1.001 * min(alone, known)
    by_level = torch.tensor(error.by_level)
    assert bool((by_level[1:].diff() < 0).all()), "low noise first"


@pytest.mark.parametrize("stop", [1, 7])
def test_a_run_in_parts_is_the_run_at_once(stop: int, done: Path, tmp_path: Path) -> None:
    short_run(tmp_path, combined(), save_every=5, steps=stop).run()
    other = combined()
    with torch.no_grad():
        other.share.fill_(0.7)
        for part in other.parameters():
            part.add_(1)  # what a new process starts from does not matter
    short_run(tmp_path, other, save_every=5, resume=True).run()
    assert_same(done, tmp_path)
    assert steps_and_losses(done) == steps_and_losses(tmp_path)


def test_another_form_is_another_run(done: Path) -> None:
    with pytest.raises(CheckpointError, match=r"form\.intervals = 48 \(not 6\)"):
        short_run(done, combined(intervals=6), resume=True)
    with pytest.raises(CheckpointError, match="the run has another prior, that of"):
        short_run(done, predictor(), resume=True)


@pytest.mark.slow
def test_it_is_better_than_both(tmp_path: Path) -> None:
    """On new images, in every sixth, up to the error of an estimate from 4,096 draws."""
    short_run(tmp_path, combined(), steps=80, save_every=0).run()
    model = load(tmp_path)
    predictor = model.predictor
    assert isinstance(predictor, Combined)
    alone = Diffusion(predictor.net, model.spec)
    data = images(2000, seed=5)
    own, net, prior = (errors_by_level(one, data) for one in (model, alone, predictor.prior))
    for parts in zip(own, net, prior, strict=True):
        first, *others = (one.error.mean for one in parts)
        assert first <= 1.01 * min(others)


def test_predictions_that_are_no_numbers_end_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights may be finite still; the last checkpoint that can be used is named."""
    run = short_run(tmp_path, combined())
    real = Combined.calibrate

    def calibrate(self: Combined, draws: object) -> None:
        if run.loop.step_number == 8:
            raise FloatingPointError("net must predict finite noise")
        real(self, draws)  # type: ignore[arg-type]

    monkeypatch.setattr(Combined, "calibrate", calibrate)
    message = r"predictions were not finite after step 8; the last good .* is .*step-00000004"
    with pytest.raises(DivergedError, match=message):
        run.run()
    assert checkpoint.latest(tmp_path / "checkpoints") == (
        tmp_path / "checkpoints/step-00000004.safetensors"
    )


def test_pictures_and_shares_are_of_average_weights(tmp_path: Path) -> None:
    """Calibrated once for a step, however often the average is used."""
    run = short_run(tmp_path, combined())
    net, calibrated = run.loop.predictor, []
    assert isinstance(net, Combined)
    real = net.calibrate
    net.calibrate = lambda draws: (calibrated.append(run.loop.step_number), real(draws))[1]  # type: ignore[method-assign, func-returns-value]
    for _ in range(2):
        run.loop.step()
        before = net.share.clone()
        for _ in range(2):
            with run.loop.averaged():
                assert all(
                    torch.equal(part, run.loop.average.state()[name])
                    for name, part in net.net.named_parameters()
                )
        assert not torch.equal(net.share, before)
    assert calibrated == [1, 2]
    assert net.net.training


def test_half_precision(tmp_path: Path) -> None:
    short_run(tmp_path, combined(), precision="bf16", steps=4).run()
    model = load(tmp_path)
    assert model.precision == "bf16"
    assert share_of(model).dtype == torch.float64
    assert bool(share_of(model).isfinite().all())


def test_a_network_alone_is_combined_with_a_prior_after_its_training() -> None:
    """As if it had been combined from the start: with the same weights and the same draws."""
    rows, objective = (
        Rows(images(), PIXELS),
        DenoisingScoreMatching(UniformLogSNR(fitted().noising)),
    )
    together, alone = (
        Loop(net, rows, objective, config(), new_accelerator(cpu=True))
        for net in (combined(), predictor())
    )
    for loop in (together, alone):
        for _ in range(3):
            loop.step()
    later = Combined(alone.net, fitted())
    with together.averaged(), alone.averaged():
        alone.calibrate(later)
        assert isinstance(together.predictor, Combined)
        own = together.predictor.share
    assert 0 < float(own.max()) <= 1
    assert torch.equal(later.share, own)


def test_calibration_leaves_the_global_generator_alone() -> None:
    prior = fitted()
    objective = DenoisingScoreMatching(UniformLogSNR(prior.noising))
    predictor, accelerator = combined(), new_accelerator(cpu=True)
    loop = Loop(predictor, Rows(images(), PIXELS), objective, config(), accelerator)
    state = torch.get_rng_state()
    with loop.averaged():
        assert float(predictor.share.max()) > 0
        loop.model_error()
        loop.calibrate(Combined(loop.net, prior))
    loop.finish()
    assert torch.equal(torch.get_rng_state(), state)
