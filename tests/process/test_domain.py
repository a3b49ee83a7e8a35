from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.func import jacfwd, jacrev

from oism.process import Brownian, Domain, Euclidean, FlatTorus, Process, Torus

TORUS = FlatTorus()
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


@dtypes
@given(values=st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=8))
def test_wrapped_points_are_inside_and_differ_by_multiples_of_2_pi(
    dtype: torch.dtype, values: list[float]
) -> None:
    x = torch.tensor(values, dtype=dtype)[:, None]
    wrapped = TORUS.wrap(x)
    assert wrapped.dtype == dtype
    assert TORUS.contains(wrapped).all()
    turns = (x - wrapped) / (2 * math.pi)
    torch.testing.assert_close(turns, turns.round(), rtol=0, atol=1e4 * torch.finfo(dtype).eps)
    assert torch.equal(TORUS.wrap(wrapped), wrapped)


@dtypes
@given(turns=st.integers(-1000, 1000), ulps=st.integers(-3, 3))
def test_points_at_plus_and_minus_pi(dtype: torch.dtype, turns: int, ulps: int) -> None:
    x = torch.tensor([[(2 * turns + 1) * math.pi]], dtype=dtype)
    for _ in range(abs(ulps)):
        x = torch.nextafter(x, torch.full_like(x, math.copysign(math.inf, ulps)))
    wrapped = TORUS.wrap(x)
    assert TORUS.contains(wrapped).all()
    # On the circle it is the same point up to the rounding of x: compare in float64.
    around = (wrapped.double() - x.double()) / (2 * math.pi)
    apart = 2 * math.pi * (around - around.round()).abs()
    assert float(apart) <= 8 * torch.finfo(dtype).eps * max(1, abs(turns)) * math.pi


def test_points_inside_are_unchanged() -> None:
    last = math.nextafter(math.pi, 0)
    x = torch.tensor([[-math.pi, 1e-300, -0.0, 3.14159265358979, last]], dtype=torch.float64)
    assert torch.equal(TORUS.wrap(x), x)


def test_the_derivative_of_wrap_is_the_identity() -> None:
    x = torch.tensor([[5.0, -12.0, 0.3, -355.0]])  # the last one is rounded to just outside
    for jacobian in (jacfwd, jacrev):
        matrix = jacobian(lambda y: TORUS.wrap(y[None])[0])(x[0])
        torch.testing.assert_close(matrix, torch.eye(4))


def test_domains_of_the_same_type_are_equal() -> None:
    assert Torus().domain == FlatTorus()
    assert Brownian().domain == Euclidean()
    assert Torus().domain != Brownian().domain


def test_contains_checks_every_coordinate() -> None:
    x = torch.tensor([[0.0, 3.0], [0.0, math.pi], [-math.pi, 0.0], [-4.0, 0.0]])
    assert TORUS.contains(x).tolist() == [True, False, True, False]
    assert TORUS.contains(x[:, :, None]).tolist() == [True, False, True, False]


def test_euclidean_space_does_not_wrap() -> None:
    x = torch.tensor([[1e9, -4.0]])
    assert Euclidean().wrap(x) is x
    assert Euclidean().contains(x).all()


@pytest.mark.parametrize("domain", [Euclidean(), TORUS], ids=repr)
def test_invalid_points_are_rejected(domain: Domain) -> None:
    for method in (domain.wrap, domain.contains):
        with pytest.raises(ValueError, match=r"x must be finite, but x\[0, 0\] = nan"):
            method(torch.tensor([[math.nan]]))
        with pytest.raises(TypeError, match="floating-point"):
            method(torch.tensor([[1]]))


def test_the_contracts_are_enforced() -> None:
    for contract in (Domain, Process):
        with pytest.raises(TypeError, match="abstract"):
            contract()  # type: ignore[abstract]
    assert Torus().wrap(torch.tensor([[4.0]])).item() == pytest.approx(4 - 2 * math.pi)
