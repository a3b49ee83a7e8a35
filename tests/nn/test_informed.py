"""A network with a prior: the two formulas, the input of the network, and what is trained."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from oism import DDPMpp, fit_mixture, fit_prior
from oism._core.transforms import per_row
from oism.images import ByError, Gate, Open, Prior
from oism.nn import MLP, OperatorInformed

RULE = ByError(half=0.3, sharpness=2.0)


def rows(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@cache
def prior_of(kind: str) -> Prior:
    x = 0.5 * rows(300, 6) * torch.linspace(0.1, 1, 6) + 0.2
    if kind == "points":
        return fit_prior(x, order=3)
    if kind == "mixture":
        return fit_mixture(x.reshape(-1, 2, 3), components=2)
    return fit_prior(x.reshape(-1, 1, 2, 3), order=2)


KINDS = ["points", "mixture", "images"]


class Shown(nn.Module):
    """A network that keeps what it was given: ½ of the first channels, and a share of τ."""

    def __init__(self, prior: Prior) -> None:
        super().__init__()
        self.channels = prior.shape[0]
        self.share = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Tensor, tau: Tensor) -> Tensor:
        self.given = x, tau
        return self.share.to(x.dtype) * x[:, : self.channels] + per_row(tau, x)


@given(
    kind=st.sampled_from(KINDS),
    n=st.integers(0, 4),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    rule=st.sampled_from([RULE, ByError(0.05, 6.0), Open()]),
    condition=st.booleans(),
    one=st.booleans(),
)
def test_the_formula(
    *, kind: str, n: int, dtype: torch.dtype, rule: Gate, condition: bool, one: bool
) -> None:
    prior = prior_of(kind)
    net = Shown(prior)
    predictor = OperatorInformed(net, prior, gate=rule, condition=condition)
    x = rows(n, *prior.shape, seed=1).to(dtype)
    times = torch.linspace(0, 1, n, dtype=dtype)
    tau = torch.tensor(0.3, dtype=dtype) if one else times
    found = predictor(x, tau)
    assert found.shape == x.shape
    assert found.dtype == dtype
    known = prior.noise(x, tau)
    g, c = (per_row(part(tau, rule), x) for part in (prior.gate, prior.output_scale))
    expected = g * known + c * (0.5 * x + per_row(tau, x))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    shown, given_tau = net.given
    assert torch.equal(shown, torch.cat((x, g * known), dim=1) if condition else x)
    assert torch.equal(given_tau, tau.expand(n))


@pytest.mark.parametrize("kind", KINDS)
def test_the_papers_form_is_a_sum(kind: str) -> None:
    prior = prior_of(kind)
    net = Shown(prior)
    predictor = OperatorInformed.paper(net, prior)
    assert predictor.gate == Open()
    assert not predictor.condition
    x, tau = rows(4, *prior.shape).float(), torch.tensor([1e-5, 0.1, 0.5, 1.0])
    assert torch.equal(predictor(x, tau), prior.noise(x, tau) + net(x, tau))


@pytest.mark.parametrize("kind", KINDS)
def test_float32_agrees_with_float64(kind: str) -> None:
    prior = prior_of(kind)
    predictor = OperatorInformed(Shown(prior), prior, gate=RULE)
    x, tau = rows(4, *prior.shape), torch.tensor([1e-4, 0.1, 0.5, 1.0], dtype=torch.float64)
    exact = predictor(x, tau)
    for time in (tau, tau.float()):
        found = predictor(x.float(), time)
        torch.testing.assert_close(found.double(), exact, rtol=1e-3, atol=1e-4)


def test_only_the_network_is_trained() -> None:
    prior = prior_of("images")
    net = Shown(prior)
    predictor = OperatorInformed(net, prior, gate=RULE)
    assert list(prior.parameters()) == []
    assert [name for name, _ in predictor.named_parameters()] == ["net.share"]
    before = {name: part.clone() for name, part in prior.state_dict().items()}
    x = rows(4, *prior.shape).float().requires_grad_()
    tau = torch.tensor([0.01, 0.1, 0.5, 0.9])
    predictor(x, tau).square().sum().backward()
    optimiser = torch.optim.SGD(predictor.parameters(), 0.1)
    optimiser.step()
    assert float(net.share.detach()) != 0.5
    assert all(torch.equal(part, before[name]) for name, part in prior.state_dict().items())
    assert x.grad is not None, "densities need the gradient in x, also through the prior"
    silent = OperatorInformed(Silent(), prior, gate=Open(), condition=False)
    (slope,) = torch.autograd.grad(silent(x, tau).sum(), x)
    (expected,) = torch.autograd.grad(prior.noise(x, tau).sum(), x)
    assert torch.equal(slope, expected)


class Silent(nn.Module):
    """A network that adds nothing."""

    def forward(self, x: Tensor, tau: Tensor) -> Tensor:
        return torch.zeros_like(x)


class Linear(nn.Module):
    """A network that autocast takes to half precision."""

    def __init__(self, prior: Prior) -> None:
        super().__init__()
        self.layer = nn.Linear(2 * prior.dim, prior.dim)

    def forward(self, x: Tensor, tau: Tensor) -> Tensor:
        found: Tensor = self.layer(x)
        self.dtype = found.dtype
        return found


def test_half_precision_does_not_reach_the_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    prior = prior_of("points")
    seen = []
    noise = type(prior).noise

    def watched(self: Prior, x: Tensor, tau: Any) -> Tensor:
        seen.append(torch.is_autocast_enabled("cpu"))
        return noise(self, x, tau)

    monkeypatch.setattr(type(prior), "noise", watched)
    net = Linear(prior)
    predictor = OperatorInformed(net, prior, gate=Open(), condition=True).requires_grad_(False)
    x, tau = rows(4, 6).float(), torch.full((4,), 1e-5)
    with torch.autocast("cpu", torch.bfloat16):
        found = predictor(x, tau)
    assert seen == [False]
    assert net.dtype == torch.bfloat16
    assert found.dtype == torch.float32
    known = noise(prior, x, tau)
    left = net(torch.cat((x, known), dim=1), tau)
    # All that was rounded is what the network adds.
    gap = (found - known - left).abs().max()
    assert float(gap) < 0.02 * float(left.abs().max())
    half = x.bfloat16()
    assert predictor(half, tau).dtype == torch.float32


def test_the_networks_of_the_library_fit() -> None:
    prior = prior_of("images")
    sizes: dict[str, Any] = {"width": 4, "multipliers": (1,), "blocks": 1}
    x, tau = rows(3, *prior.shape).float(), torch.tensor(0.4)
    net = DDPMpp(prior.shape, extra=1, **sizes)
    informed = OperatorInformed(net, prior, gate=RULE, condition=True)
    known = per_row(prior.gate(tau, RULE), x) * prior.noise(x, tau)
    torch.testing.assert_close(informed(x, tau), known, rtol=1e-5, atol=1e-7)
    assert informed.shape == (1, 2, 3)
    points = prior_of("points")
    shown = OperatorInformed(MLP(6, extra=6), points, condition=True)
    for predictor in (
        shown,
        OperatorInformed(MLP(6), points),
        OperatorInformed.paper(MLP(6), points),
    ):
        assert predictor(x.flatten(1), tau).shape == (3, 6)


def test_a_network_that_does_not_fit() -> None:
    points, images = prior_of("points"), prior_of("images")
    sizes: dict[str, Any] = {"width": 4, "multipliers": (1,), "blocks": 1}
    with pytest.raises(ValueError, match=r"prior's shape \(6,\), got \(5,\)"):
        OperatorInformed(MLP(5, extra=6), points, condition=True)
    with pytest.raises(ValueError, match=r"prior's shape \(1, 2, 3\), got \(1, 3, 2\)"):
        OperatorInformed.paper(DDPMpp((1, 3, 2), **sizes), images)
    with pytest.raises(
        ValueError, match="extra = 6 channels for the prediction of the prior, got 0"
    ):
        OperatorInformed(MLP(6), points, condition=True)
    with pytest.raises(
        ValueError, match="extra = 1 channels for the prediction of the prior, got 3"
    ):
        OperatorInformed(DDPMpp((1, 2, 3), extra=3, **sizes), images, condition=True)
    for form in (OperatorInformed.paper, OperatorInformed):
        with pytest.raises(ValueError, match="extra = 0 channels, got 6"):
            form(MLP(6, extra=6), points)


def test_mistakes() -> None:
    prior = prior_of("points")
    net = Shown(prior)
    with pytest.raises(TypeError, match="net must be of type Module, got function"):
        OperatorInformed(lambda x, tau: x, prior)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="prior must be of type Prior, got Shown"):
        OperatorInformed(net, net)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="gate must be of type Gate, got float"):
        OperatorInformed(net, prior, gate=8.0)  # type: ignore[arg-type]
    predictor = OperatorInformed(net, prior)
    with pytest.raises(ValueError, match=r"x must be tensors \(n, 6\)"):
        predictor(torch.zeros(2, 5), torch.zeros(2))
    with pytest.raises(ValueError, match="one number or one per row: 2 rows, 3 values"):
        predictor(torch.zeros(2, 6), torch.zeros(3))
    with pytest.raises(ValueError, match=r"tau must be in \[0, 1\], but tau\[1\] = 1.5"):
        predictor(torch.zeros(2, 6), torch.tensor([0.5, 1.5]))


def test_its_state_is_that_of_the_network_and_of_the_prior() -> None:
    prior, other = prior_of("points"), fit_prior(rows(100, 6, seed=9), order=3)
    one = OperatorInformed(MLP(6, extra=6), prior, gate=RULE, condition=True)
    state = one.state_dict()
    kept = {f"net.{name}" for name in one.net.state_dict()}
    assert set(state) == kept | {f"prior.{name}" for name in prior.state_dict()}
    two = OperatorInformed(MLP(6, extra=6), prior, gate=RULE, condition=True)
    x, tau = rows(3, 6).float(), torch.rand(3)
    assert not torch.equal(one(x, tau), two(x, tau))
    two.load_state_dict(state)
    assert torch.equal(one(x, tau), two(x, tau))
    assert not torch.equal(other.noise(x, tau), prior.noise(x, tau))
