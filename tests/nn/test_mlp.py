"""The network of points and angles."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from oism.nn import MLP
from oism.nn._mlp import waves

Array = NDArray[np.float64]


def test_waves() -> None:
    x = torch.tensor([[0.3, -1.0]])
    expected = [math.cos(0.3), math.cos(1), math.cos(0.6), math.cos(2)]
    expected += [math.sin(0.3), -math.sin(1), math.sin(0.6), -math.sin(2)]
    np.testing.assert_allclose(waves(x, 2)[0], expected, rtol=1e-6)


def silu(x: Array) -> Array:
    bent: Array = x / (1 + np.exp(-x))
    return bent


def by_hand(net: MLP, x: Tensor, tau: Tensor) -> Array:
    """The network in NumPy."""
    part = {name: value.double().numpy() for name, value in net.state_dict().items()}
    own, more = (side.double().numpy() for side in (x[:, : net.shape[0]], x[:, net.shape[0] :]))
    if net.angular:
        turns = [f(k * own) for f in (np.cos, np.sin) for k in range(1, net.angular + 1)]
        own = np.concatenate(turns, axis=1)
    share = tau.double().numpy()[:, None] / net.horizon
    clock = [f(math.pi * k * share) for f in (np.cos, np.sin) for k in range(1, 9)]
    shown = np.concatenate((own, more, share, *clock), axis=1)
    h = shown @ part["first.weight"].T + part["first.bias"]
    for i in itertools.count():
        if f"layers.{i}.weight" not in part:
            result: Array = h @ part["last.weight"].T + part["last.bias"]
            return result
        h = h + silu(silu(h) @ part[f"layers.{i}.weight"].T + part[f"layers.{i}.bias"])
    raise AssertionError


@given(
    dim=st.integers(1, 4),
    extra=st.integers(0, 4),
    width=st.integers(1, 20),
    depth=st.integers(0, 3),
    angular=st.integers(0, 3),
    horizon=st.floats(0.1, 10),
    rows=st.integers(0, 5),
)
def test_the_network_by_hand(
    *, dim: int, extra: int, width: int, depth: int, angular: int, horizon: float, rows: int
) -> None:
    torch.manual_seed(0)
    net = MLP(
        dim, extra=extra, width=width, depth=depth, angular=angular, horizon=horizon
    ).requires_grad_(False)
    x, tau = torch.randn(rows, dim + extra), horizon * torch.rand(rows)
    found = net(x, tau)
    assert found.shape == (rows, dim)
    np.testing.assert_allclose(found, by_hand(net, x, tau), rtol=1e-4, atol=1e-5)
    again = MLP(**net.to_config())
    again.load_state_dict(net.state_dict())
    assert torch.equal(again(x, tau), found)


def test_angles_count_modulo_a_turn() -> None:
    net = MLP(2, angular=3)
    x, tau = torch.randn(5, 2), torch.rand(5)
    turned = x + 2 * math.pi * torch.tensor([[1.0, -2.0]])
    torch.testing.assert_close(net(turned, tau), net(x, tau), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(MLP(2)(turned, tau), MLP(2)(x, tau))


def test_it_works_in_its_own_dtype_whatever_it_is_given() -> None:
    net = MLP(2)
    x, tau = torch.randn(5, 2), torch.rand(5)
    assert torch.equal(net(x.double(), tau.double()), net(x, tau))
    assert net.double()(x, tau).dtype == torch.float64


def test_one_time_for_all_rows() -> None:
    net, x = MLP(2), torch.randn(5, 2)
    assert torch.equal(net(x, torch.tensor(0.3)), net(x, torch.full((5,), 0.3)))


def test_mistakes() -> None:
    net = MLP(2, extra=1)
    for shape in ((4, 2), (3,), (4, 3, 1)):
        with pytest.raises(ValueError, match=r"x must be vectors \(n, 3\), got"):
            net(torch.zeros(shape), torch.zeros(4))
    with pytest.raises(ValueError, match="tau must be one number or one per row: 4 rows, got"):
        net(torch.zeros(4, 3), torch.zeros(3))
    for settings, message in (
        ({"dim": 0}, "dim must be an integer >= 1, got 0"),
        ({"dim": 2, "width": 0}, "width must be an integer >= 1, got 0"),
        ({"dim": 2, "depth": -1}, "depth must be an integer >= 0, got -1"),
        ({"dim": 2, "angular": -1}, "angular must be an integer >= 0, got -1"),
        ({"dim": 2, "extra": -1}, "extra must be an integer >= 0, got -1"),
        ({"dim": 2, "horizon": 0.0}, "horizon must be a positive finite number, got 0.0"),
    ):
        with pytest.raises(ValueError, match=message):
            MLP(**settings)
