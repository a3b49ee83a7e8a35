from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from oism.estimation._knots import place_knots
from oism.score import Curve


def wave(tau: Tensor) -> Tensor:
    return torch.stack((torch.sin(5 * tau), torch.exp(-tau)), dim=-1)


def knots(count: int) -> Tensor:
    return torch.linspace(0, 1, count, dtype=torch.float64)


@pytest.mark.parametrize("order", [2, 4])
def test_the_declared_order_is_measured(order: int) -> None:
    tau = torch.linspace(0, 1, 1013, dtype=torch.float64)
    errors = []
    for count in (33, 65, 129):
        curve = Curve(knots(count), wave(knots(count)), order=order)
        errors.append(float((curve(tau) - wave(tau)).abs().max()))
    measured = math.log2(errors[0] / errors[-1]) / 2
    assert measured == pytest.approx(order, abs=0.25)


@pytest.mark.parametrize("order", [2, 4])
def test_values_at_knots_are_exact_and_constant_beyond_the_ends(order: int) -> None:
    curve = Curve(knots(9), wave(knots(9)), order=order)
    torch.testing.assert_close(curve(knots(9)), wave(knots(9)), rtol=0, atol=1e-15)
    beyond = torch.tensor([-0.5, 1.5], dtype=torch.float64)
    torch.testing.assert_close(curve(beyond), wave(knots(9))[[0, -1]])


@pytest.mark.parametrize("order", [2, 4])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_one_time_and_many_times_agree(order: int, dtype: torch.dtype) -> None:
    """One time on the CPU is interpolated with plain numbers."""
    curve = Curve(knots(9), wave(knots(9)).to(dtype), order=order)
    tau = torch.tensor([-0.5, 0.0, 0.11, 0.125, 0.77, 1.0, 1.5], dtype=torch.float64)
    many, one = curve(tau), torch.stack([curve(part) for part in tau])
    assert one.dtype == dtype
    torch.testing.assert_close(one, many, rtol=0, atol=4 * torch.finfo(dtype).eps)


def test_a_curve_is_differentiable_in_time() -> None:
    curve = Curve(knots(65), wave(knots(65)), order=4)
    tau = torch.tensor([0.3, 0.6], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(curve(tau)[:, 0].sum(), tau)
    torch.testing.assert_close(slope, 5 * torch.cos(5 * tau.detach()), rtol=0, atol=1e-4)


def test_knots_stay_float64() -> None:
    curve = Curve(knots(1000), wave(knots(1000)), order=2).half()
    assert curve.knots.dtype == torch.float64
    assert curve.values.dtype == torch.float16
    assert bool((curve.knots.diff() > 0).all())
    assert curve.to("meta").knots.device.type == "meta"


@pytest.mark.parametrize("bad", [torch.tensor([0.0]), torch.tensor([0.0, 0.0]), torch.zeros(0)])
def test_knots_must_increase(bad: Tensor) -> None:
    with pytest.raises(ValueError, match="knots must be at least two increasing"):
        Curve(bad, torch.zeros(len(bad), 2), order=2)


def test_other_orders_are_rejected() -> None:
    with pytest.raises(ValueError, match="order must be 2"):
        Curve(knots(3), wave(knots(3)), order=3)


def steep(tau: Tensor) -> Tensor:
    return torch.atan(60 * (tau - 0.31))[:, None]


def test_knots_are_dense_where_the_curve_is_steep() -> None:
    asked: list[Tensor] = []

    def solve(tau: Tensor, guess: Tensor | None) -> Tensor:
        assert guess is not None
        assert guess.shape == (len(tau), 1)
        asked.append(tau)
        return steep(tau)

    def error(tau: Tensor, exact: Tensor, guess: Tensor) -> Tensor:
        return (exact - guess).abs()[:, 0]

    start = knots(9)
    curve, wrong = place_knots(solve, error, start, steep(start), tolerance=1e-4, most=500)
    tau = torch.linspace(0, 1, 5001, dtype=torch.float64)
    assert wrong <= 1e-4
    assert float((curve(tau) - steep(tau)).abs().max()) <= 3e-4
    near = ((curve.knots - 0.31).abs() < 0.1).double().mean()
    assert float(near) > 0.5
    assert len(curve.knots) < 120
    times = torch.cat(asked).tolist()
    assert len(set(times)) == len(times), "no time is solved twice"


def test_place_knots_stops_at_the_maximal_number() -> None:
    def solve(tau: Tensor, guess: Tensor | None) -> Tensor:
        return torch.sign(tau - 0.3)[:, None]  # a spline cannot represent a jump

    def error(tau: Tensor, exact: Tensor, guess: Tensor) -> Tensor:
        return (exact - guess).abs()[:, 0]

    start = knots(9)
    curve, wrong = place_knots(solve, error, start, solve(start, start), tolerance=1e-4, most=40)
    assert 17 <= len(curve.knots) <= 40
    assert wrong > 1e-4


def test_place_knots_ends_at_a_jump() -> None:
    """Solutions may jump where equations are not positive: halving would go on to equal times."""
    start = torch.linspace(0, 1, 9, dtype=torch.float64)

    def solve(tau: Tensor, guess: Tensor | None) -> Tensor:
        return (tau > 0.3).to(tau)[:, None]

    def error(tau: Tensor, exact: Tensor, guess: Tensor) -> Tensor:
        return (exact - guess).abs()[:, 0]

    curve, wrong = place_knots(solve, error, start, solve(start, None), tolerance=1e-3, most=1025)
    assert wrong > 0.1
    assert 1e-7 < float(curve.knots.diff().min()) < 2e-6
    assert torch.equal(
        curve(torch.tensor([0.2, 0.4]).double()).round(), torch.tensor([[0.0], [1]]).double()
    )
