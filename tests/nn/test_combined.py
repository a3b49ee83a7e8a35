"""A network and a prior combined: the share with the smallest error, and its guarantees."""

from __future__ import annotations

import math
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from oism import Combined, DDPMpp, Diffusion, fit_mixture, fit_prior, load
from oism._core.transforms import per_row
from oism.flow import ExactTrace, log_density
from oism.images import Prior
from oism.nn import MLP
from oism.objectives import DenoisingScoreMatching, UniformLogSNR

Draw = tuple[Tensor, Tensor, Tensor]

SPREAD = torch.tensor([0.05, 0.2, 0.4, 0.7, 1.0, 1.5], dtype=torch.float64)


def rows(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@cache
def prior_of(kind: str = "points") -> Prior:
    x = rows(400, 6) * SPREAD + 0.2
    if kind == "mixture":
        return fit_mixture(x.reshape(-1, 2, 3), components=2)
    if kind == "poor":  # of other data
        return fit_prior(2 * rows(400, 6, seed=8) * SPREAD.flip(0) - 1, order=2)
    return fit_prior(x if kind == "points" else x.reshape(-1, 1, 2, 3), order=2)


def drawn(prior: Prior, n: int = 600, seed: int = 1, dtype: torch.dtype = torch.float64) -> Draw:
    """Return noised tensors like those of the fit of the prior, their times and their noise."""
    objective = DenoisingScoreMatching(UniformLogSNR(prior.noising))
    x = (rows(n, 6, seed=seed) * SPREAD + 0.2).reshape(n, *prior.shape)
    noise = rows(n, *prior.shape, seed=seed + 1)
    tau = objective.levels.draw(n, torch.Generator().manual_seed(seed))
    return objective.noised(x, tau, noise).to(dtype), tau, noise.to(dtype)


def error(found: Tensor, noise: Tensor) -> float:
    return float((found - noise).detach().square().mean())


class Constant(nn.Module):
    """A network that predicts the same numbers whatever its input."""

    def __init__(self, value: float = 0.0) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.tensor(value))

    def forward(self, x: Tensor, tau: Tensor) -> Tensor:
        return self.value.to(x.dtype).expand(x.shape)


class Wavy(nn.Module):
    """A network that is partly right: a part of the noised tensor, by τ, and something wrong."""

    def __init__(self, right: float = 0.6) -> None:
        super().__init__()
        self.right = nn.Parameter(torch.tensor(right))

    def forward(self, x: Tensor, tau: Tensor) -> Tensor:
        self.given = x, tau
        scale = per_row(self.right.to(x.dtype) * tau.to(x.dtype).sqrt(), x)
        return scale * x + 0.3 * (5 * x).sin()


class Oracle(nn.Module):
    """The expected noise, in closed form for such data, and ``wrong`` times something else."""

    def __init__(self, prior: Prior, wrong: float = 0.0) -> None:
        super().__init__()
        self.noising, self.wrong = prior.noising, wrong

    def forward(self, x: Tensor, tau: Tensor) -> Tensor:
        alpha, sigma = (f(tau.double())[:, None] for f in (self.noising.alpha, self.noising.sigma))
        flat = x.flatten(1).double()
        found = sigma * (flat - alpha * 0.2) / (alpha**2 * SPREAD**2 + sigma**2)
        return found.reshape(x.shape).to(x.dtype) + self.wrong * (5 * x).sin()


class Same(nn.Module):
    """A network with the predictions of the prior."""

    def __init__(self, prior: Prior) -> None:
        super().__init__()
        self.say = prior.noise

    def forward(self, x: Tensor, tau: Tensor) -> Tensor:
        return self.say(x, tau)


# The formula


@given(
    seed=st.integers(0, 50),
    intervals=st.integers(1, 7),
    right=st.floats(-2, 2),
    n=st.integers(1, 80),
)
def test_the_share_is_that_of_least_squares(
    seed: int, intervals: int, right: float, n: int
) -> None:
    """All entries of an interval in one column, by an independent solver; cut to [0, 1]."""
    prior = prior_of()
    predictor = Combined(Wavy(right), prior, intervals=intervals)
    x, tau, noise = drawn(prior, n, seed)
    half = n // 2
    predictor.calibrate(
        [(x[:half], tau[:half], noise[:half]), (x[half:], tau[half:], noise[half:])]
    )
    known = prior.noise(x, tau)
    step = predictor.net(x, tau) - known
    ends = UniformLogSNR(prior.noising).bins(intervals)
    for i, (low, high) in enumerate(ends):
        inside = (tau >= low) & (tau < high if i < intervals - 1 else tau <= high)
        if not bool(inside.any()):
            assert float(predictor.share[i]) == 0
            continue
        column = step[inside].reshape(-1, 1)
        target = (noise - known)[inside].reshape(-1, 1)
        best = float(torch.linalg.lstsq(column.detach(), target).solution)
        assert float(predictor.share[i]) == pytest.approx(min(1.0, max(0.0, best)), abs=1e-9)


@given(
    kind=st.sampled_from(["points", "mixture", "images"]),
    n=st.integers(0, 4),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    one=st.booleans(),
    intervals=st.sampled_from([1, 2, 9]),
)
def test_the_prediction_is_the_mixture(
    *, kind: str, n: int, dtype: torch.dtype, one: bool, intervals: int
) -> None:
    """c is linear between the midpoints of the intervals of the log-SNR, and constant beyond."""
    prior = prior_of(kind)
    net = Wavy()
    predictor = Combined(net, prior, intervals=intervals)
    predictor.share.copy_(torch.linspace(0.1, 0.9, intervals).square())
    x = rows(n, *prior.shape, seed=3).to(dtype)
    tau = torch.tensor(0.3, dtype=dtype) if one else torch.linspace(0, 1, n, dtype=dtype)
    found = predictor(x, tau)
    assert (found.shape, found.dtype) == (x.shape, dtype)
    levels = UniformLogSNR(prior.noising)
    middles = levels.highest - levels.width * (torch.arange(intervals) + 0.5) / intervals
    shares = []
    for time in tau.double().expand(n).tolist():
        ratio = float(prior.noising.log_snr(time))
        after = [i for i in range(intervals) if float(middles[i]) <= ratio]
        high = after[0] if after else intervals - 1
        low = max(0, high - 1) if after else high
        gap = float(middles[low] - middles[high])
        weight = 1.0 if gap == 0 else min(1.0, max(0.0, (float(middles[low]) - ratio) / gap))
        shares.append(
            (1 - weight) * float(predictor.share[low]) + weight * float(predictor.share[high])
        )
    c = per_row(torch.tensor(shares, dtype=dtype), x)
    expected = (1 - c) * prior.noise(x, tau) + c * net(x, tau.expand(n))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    shown, times = net.given
    assert torch.equal(shown, x)
    assert torch.equal(times, tau.expand(n))


def test_before_calibration_it_is_the_prior() -> None:
    prior = prior_of()
    predictor = Combined(Wavy(), prior)
    x, tau, _ = drawn(prior, 20)
    assert torch.equal(predictor(x, tau), prior.noise(x, tau))
    assert predictor.shape == prior.shape


# The promise


@given(seed=st.integers(0, 200), right=st.floats(-3, 3))
def test_its_error_is_at_most_that_of_either_on_the_draws_of_the_calibration(
    seed: int, right: float
) -> None:
    prior = prior_of()
    x, tau, noise = drawn(prior, 64, seed)
    predictor = Combined(Wavy(right), prior, intervals=1)
    predictor.calibrate([(x, tau, noise)])
    own = error(predictor(x, tau), noise)
    assert own <= error(predictor.net(x, tau), noise) * (1 + 1e-12)
    assert own <= error(prior.noise(x, tau), noise) * (1 + 1e-12)
    for c in (0.0, 0.3, 0.7, 1.0):  # nor is any other mixture better
        other = torch.lerp(prior.noise(x, tau), predictor.net(x, tau), c)
        assert own <= error(other, noise) * (1 + 1e-12)


def test_its_error_on_other_draws_is_at_most_that_of_either_in_every_sixth() -> None:
    prior = prior_of("poor")
    predictor = Combined(Oracle(prior, wrong=0.5), prior)
    predictor.calibrate([drawn(prior, 20_000, 7)])
    x, tau, noise = drawn(prior, 60_000, 11)
    found, net, known = predictor(x, tau), predictor.net(x, tau), prior.noise(x, tau)
    counts = []
    for low, high in UniformLogSNR(prior.noising).bins(6):
        inside = (tau >= low) & (tau < high)
        parts = [error(one[inside], noise[inside]) for one in (found, net, known)]
        assert parts[0] <= 1.002 * min(parts[1:])
        counts.append(parts[0] < 0.995 * min(parts[1:]))
    assert any(counts), "somewhere the two together know more than either"


def test_an_exact_network_has_the_share_one_and_a_useless_one_zero() -> None:
    """Where a calibrated prior is at its best, zeros are of no use: E⟨ε - ε̂, ε̂⟩ = 0."""
    prior = prior_of()
    draws = drawn(prior, 40_000, 5)
    exact = Combined(Oracle(prior), prior_of("poor"), intervals=6)
    exact.calibrate([draws])
    assert float(exact.share.min()) > 0.97
    useless = Combined(Constant(), prior, intervals=6)
    useless.calibrate([draws])
    assert float(useless.share.max()) < 0.02


def test_a_network_that_is_the_prior_changes_nothing() -> None:
    prior = prior_of()
    predictor = Combined(Same(prior), prior, intervals=4)
    predictor.share.fill_(0.25)
    x, tau, noise = drawn(prior, 50)
    predictor.calibrate([(x, tau, noise)])
    assert predictor.share.tolist() == [0.25] * 4, "any will do: it stays"
    torch.testing.assert_close(predictor(x, tau), prior.noise(x, tau), rtol=1e-12, atol=1e-12)


def test_shares_stay_where_nothing_was_drawn() -> None:
    prior = prior_of()
    predictor = Combined(Wavy(), prior, intervals=5)
    predictor.share.fill_(0.5)
    predictor.calibrate([])
    x, tau, noise = drawn(prior, 60)
    predictor.calibrate([(x[:0], tau[:0], noise[:0])])
    assert predictor.share.tolist() == [0.5] * 5
    low = tau <= UniformLogSNR(prior.noising).bins(5)[0][1]
    predictor.calibrate([(x[low], tau[low], noise[low])])
    assert float(predictor.share[0]) != 0.5
    assert predictor.share.tolist()[1:] == [0.5] * 4


def test_one_time_for_a_whole_batch() -> None:
    prior = prior_of()
    x, _, noise = drawn(prior, 30)
    one, many = (Combined(Wavy(), prior, intervals=5) for _ in range(2))
    one.calibrate([(x, torch.tensor(0.4), noise)])
    many.calibrate([(x, torch.full((30,), 0.4), noise)])
    assert torch.equal(one.share, many.share)
    assert int((one.share > 0).sum()) == 1


# How it is used


class Dropping(nn.Module):
    """A network in which much is dropped in training."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Dropout(0.9)

    def forward(self, x: Tensor, tau: Tensor) -> Tensor:
        found: Tensor = self.inner(x)
        return found


def test_it_is_calibrated_in_evaluation_mode() -> None:
    prior = prior_of()
    predictor = Combined(Dropping(), prior, intervals=3).train()
    other = Combined(Dropping(), prior, intervals=3).eval()
    for one in (predictor, other):
        one.calibrate([drawn(prior)])
    assert torch.equal(predictor.share, other.share)
    assert predictor.net.training
    assert not other.net.training


def test_only_the_network_is_trained_and_all_of_x_is_differentiated() -> None:
    prior = prior_of()
    predictor = Combined(Wavy(), prior)
    predictor.share.fill_(0.4)
    assert [name for name, _ in predictor.named_parameters()] == ["net.right"]
    state = set(predictor.state_dict())
    assert state == {"share", "net.right", *(f"prior.{name}" for name in prior.state_dict())}
    x, tau, _ = drawn(prior, 5)
    x.requires_grad_()
    (slope,) = torch.autograd.grad(predictor(x, tau).sum(), x)
    parts = [torch.autograd.grad(f(x, tau).sum(), x)[0] for f in (prior.noise, predictor.net)]
    torch.testing.assert_close(slope, 0.6 * parts[0] + 0.4 * parts[1])


def test_densities_follow_its_flow() -> None:
    """For an exact network and a wrong prior: the density of the data."""
    prior = prior_of()
    predictor = Combined(Oracle(prior), prior)
    predictor.share.fill_(1.0)
    model = Diffusion(predictor, prior.spec, first=1e-4)
    x = rows(4, 6, seed=9) * SPREAD + 0.2
    found = log_density(model.flow, x, divergence=ExactTrace())
    noised = SPREAD.square() * model.noising.alpha(1e-4) ** 2 + model.noising.sigma(1e-4) ** 2
    mean = 0.2 * model.noising.alpha(1e-4)
    expected = -0.5 * ((x - mean).square() / noised + (2 * math.pi * noised).log()).sum(dim=1)
    torch.testing.assert_close(found, expected, rtol=0, atol=0.02)


def test_half_precision_does_not_reach_the_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    prior = prior_of()
    seen = []
    noise = type(prior).noise

    def watched(self: Prior, x: Tensor, tau: Any) -> Tensor:
        seen.append(torch.is_autocast_enabled("cpu"))
        return noise(self, x, tau)

    monkeypatch.setattr(type(prior), "noise", watched)
    predictor = Combined(MLP(6, width=16), prior)
    predictor.share.fill_(0.5)
    x, tau, added = drawn(prior, 8, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        found = predictor(x, tau)
        predictor.calibrate([(x, tau, added)])
    assert seen == [False, False]
    assert found.dtype == torch.float32
    assert predictor.share.dtype == torch.float64
    assert Combined(Wavy(), prior)(x.bfloat16(), tau).dtype == torch.float32
    exact = Combined(Wavy(), prior)
    exact.calibrate([drawn(prior)])
    single = Combined(Wavy(), prior)
    single.calibrate([drawn(prior, dtype=torch.float32)])
    torch.testing.assert_close(single.share, exact.share, rtol=0, atol=1e-3)


# Files


def stirred(net: nn.Module) -> nn.Module:
    for part in net.parameters():
        nn.init.normal_(part, std=0.2)
    return net


def test_round_trip(tmp_path: Path) -> None:
    prior, path = prior_of("images"), tmp_path / "model"
    net = stirred(DDPMpp(prior.shape, width=4, multipliers=(1,), blocks=1))
    predictor = Combined(net, prior, first=1e-3, intervals=9)
    predictor.calibrate([drawn(prior, dtype=torch.float32)])
    model = Diffusion(predictor, prior.spec, first=1e-3)
    model.save(path)
    again = load(path)
    assert isinstance(again.predictor, Combined)
    assert again.predictor.first == 1e-3
    assert torch.equal(again.predictor.share, predictor.share)
    assert len(set(predictor.share.tolist())) > 1
    x, tau = torch.randn(3, *prior.shape), torch.tensor([1e-3, 0.3, 1.0])
    assert torch.equal(again.noise(x, tau), model.noise(x, tau))
    again.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()


def test_a_network_of_ones_own(tmp_path: Path) -> None:
    prior, path = prior_of(), tmp_path / "model"
    predictor = Combined(Wavy(), prior)
    predictor.calibrate([drawn(prior)])
    Diffusion(predictor, prior.spec).save(path)
    with pytest.raises(ValueError, match=r"of class '.*Wavy' .*give it again.*given=\{'net': …"):
        load(path)
    again = load(path, given={"net": Wavy(0.0)}).predictor
    assert isinstance(again, Combined)
    assert torch.equal(again.share, predictor.share)


# Mistakes


@given(first=st.one_of(st.floats(max_value=0), st.floats(min_value=1), st.just(math.nan)))
def test_the_first_time_is_before_the_last(first: float) -> None:
    with pytest.raises(ValueError, match="first must be "):
        Combined(Wavy(), prior_of(), first=first)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"intervals": 0}, "intervals must be an integer >= 1, got 0"),
        ({"intervals": 1.5}, "intervals must be an integer >= 1, got float 1.5"),
        ({"net": MLP(5)}, "net must take tensors of the prior's shape (6,), got (5,)"),
        (
            {"net": MLP(6, extra=6)},
            "net must have extra = 0 channels, got 6",
        ),
        ({"net": "mine"}, "net must be of type Module, got str"),
        ({"prior": MLP(6)}, "prior must be of type Prior, got MLP"),
    ],
)
def test_mistakes(arguments: dict[str, Any], message: str) -> None:
    whole: dict[str, Any] = {"net": Wavy(), "prior": prior_of(), **arguments}
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        Combined(**whole)


def test_times_outside_of_the_clock() -> None:
    predictor = Combined(Wavy(), prior_of())
    with pytest.raises(ValueError, match=r"tau must be in \[0, 1\], but tau\[1\] = 1.5"):
        predictor(torch.zeros(2, 6), torch.tensor([0.5, 1.5]))
    with pytest.raises(ValueError, match="one number or one per row: 2 rows, 3 values"):
        predictor(torch.zeros(2, 6), torch.zeros(3))
    with pytest.raises(ValueError, match="one number or one per row: 2 rows, got shape"):
        predictor.calibrate([(torch.zeros(2, 6), torch.zeros(3), torch.zeros(2, 6))])


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_network_that_predicts_no_numbers(value: float) -> None:
    prior = prior_of()
    predictor = Combined(Constant(value), prior, intervals=3)
    predictor.share.fill_(0.5)
    with pytest.raises(FloatingPointError, match="net must predict finite noise"):
        predictor.calibrate([drawn(prior, 20)])
    assert predictor.share.tolist() == [0.5] * 3, "unchanged"


def test_a_plan_follows_the_share() -> None:
    """Without statistics it begins where the network has a part, which calibration changes."""
    prior = prior_of()
    model = Diffusion(Combined(Oracle(prior), prior))
    before = model.plan(8)
    assert model.plan(8) is before
    model.predictor.share.fill_(1.0)  # type: ignore[operator]
    after, fresh = model.plan(8), Diffusion(model.predictor).plan(8)
    assert float(after.levels[0]) < float(before.levels[0]) - 0.1
    assert torch.equal(after.levels, fresh.levels)
