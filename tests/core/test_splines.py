"""B-splines against SciPy's, their forms against quadrature, and their orders of convergence."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import BSpline
from torch import Tensor
from torch.func import hessian, jacrev, vmap

from oism._core.splines import Splines, reflected


def line(cells: int = 7, degree: int = 5) -> Splines:
    return Splines(torch.tensor([[-1.0, 2.0]]), (cells,), degree)


def plane() -> Splines:
    return Splines(torch.tensor([[-1.0, 2.0], [0.0, 5.0]]), (4, 6), 3)


def inside(splines: Splines, n: int, seed: int = 0) -> Tensor:
    u = torch.rand(n, splines.dim, generator=torch.Generator().manual_seed(seed)).double()
    return splines.box[:, 0] + u * (splines.box[:, 1] - splines.box[:, 0])


@given(cells=st.integers(1, 9), degree=st.integers(2, 6), derivative=st.integers(0, 2))
def test_values_and_derivatives_are_scipys(cells: int, degree: int, derivative: int) -> None:
    splines = line(cells, degree)
    c = torch.randn(splines.size, generator=torch.Generator().manual_seed(cells)).double()
    oracle = BSpline(splines._knots(0).numpy(), c.numpy(), degree)
    x = torch.cat((inside(splines, 20), splines.box.mT))  # and both ends
    expected = oracle.derivative(derivative)(x[:, 0].numpy()) if derivative else oracle(x[:, 0])
    found = splines.evaluate(x, c, (derivative,))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * cells**derivative)


def test_the_functions_sum_to_one_and_many_are_evaluated_at_once() -> None:
    splines, x = plane(), inside(plane(), 50)
    torch.testing.assert_close(
        splines.evaluate(x, torch.ones(splines.size).double(), (0, 0)), torch.ones(50).double()
    )
    c = torch.randn(splines.size, 3, generator=torch.Generator().manual_seed(0)).double()
    each = torch.stack([splines.evaluate(x, one, (0, 1)) for one in c.mT], dim=1)
    torch.testing.assert_close(splines.evaluate(x, c, (0, 1)), each)


def test_gradients_and_laplacians_are_those_of_autograd_outside_of_the_box_too() -> None:
    splines = plane()
    c = torch.randn(splines.size, generator=torch.Generator().manual_seed(0)).double()
    x = inside(splines, 30) * 3 - 2  # most points are outside

    def f(point: Tensor) -> Tensor:
        return splines.evaluate(point[None], c, (0, 0))[0]

    torch.testing.assert_close(splines.gradient(x, c), vmap(jacrev(f))(x))
    trace = vmap(hessian(f))(x).diagonal(dim1=1, dim2=2).sum(dim=1)
    torch.testing.assert_close(splines.laplacian(x, c), trace)


@given(st.floats(-50, 50))
def test_reflection_is_even_and_inside(place: float) -> None:
    low, high = torch.tensor([-1.0]).double(), torch.tensor([2.0]).double()
    x = torch.tensor([[place]]).double()
    found, sign = reflected(x, low, high)
    assert -1 <= float(found) <= 2
    mirror, other = reflected(-2 - x, low, high)  # the image at the face -1
    torch.testing.assert_close(mirror, found)
    if abs(float(found) + 1) > 1e-6 and abs(float(found) - 2) > 1e-6:
        assert float(sign * other) == -1


@pytest.mark.parametrize("degree", [3, 5])
def test_interpolation_has_its_order(degree: int) -> None:
    errors = []
    for cells in (8, 16, 32):
        splines = line(cells, degree)
        c = splines.interpolate((2 * splines.greville[0]).sin())
        x = inside(splines, 400)
        errors.append(float((splines.evaluate(x, c, (0,)) - (2 * x[:, 0]).sin()).abs().max()))
    rates = [math.log2(a / b) for a, b in itertools.pairwise(errors)]
    assert all(degree + 0.5 < rate < degree + 2.2 for rate in rates), rates


def test_interpolation_on_the_plane_reproduces_polynomials() -> None:
    splines = plane()
    grid = torch.cartesian_prod(*splines.greville)

    def f(x: Tensor) -> Tensor:
        return x[:, 0] ** 3 * x[:, 1] - x[:, 1] ** 2 + 1

    x = inside(splines, 40)
    torch.testing.assert_close(splines.evaluate(x, splines.interpolate(f(grid)), (0, 0)), f(x))


def test_forms_are_integrals() -> None:
    splines = plane()
    weight = splines.rule()[0].sum(dim=1) + 1.5  # products of two splines and a line are exact
    stiffness, mass = splines.forms(weight.numpy())
    generator = torch.Generator().manual_seed(0)
    f, g = torch.randn(2, splines.size, generator=generator).double()
    x, w = splines.rule(12)
    density = w * (x.sum(dim=1) + 1.5)
    values = [splines.evaluate(x, one, (0, 0)) for one in (f, g)]
    slopes = [splines.gradient(x, one) for one in (f, g)]
    product = (density * values[0] * values[1]).sum()
    energy = (density * (slopes[0] * slopes[1]).sum(dim=1)).sum()
    assert f.numpy() @ mass @ g.numpy() == pytest.approx(float(product), rel=1e-8)
    assert f.numpy() @ stiffness @ g.numpy() == pytest.approx(float(energy), rel=1e-8)


def test_a_histogram_averages_every_spline() -> None:
    splines, x = plane(), inside(plane(), 25)
    weights = torch.rand(2, 25, generator=torch.Generator().manual_seed(1)).double()
    c = torch.randn(splines.size, generator=torch.Generator().manual_seed(0)).double()
    expected = weights @ splines.evaluate(x, c, (0, 0))
    torch.testing.assert_close(splines.histogram(x, weights) @ c, expected)


def test_coefficients_bound_the_spline_on_each_cell() -> None:
    splines = plane()
    c = torch.randn(splines.size, generator=torch.Generator().manual_seed(0)).double()
    x = inside(splines, 500)
    cell = ((x - splines.box[:, 0]) / splines.widths).long()
    low = splines.lowest(c)[cell[:, 0], cell[:, 1]]
    values = splines.evaluate(x, c, (0, 0))
    assert bool((values >= low).all())
    assert float((values - low).min()) < 0.5  # it is not a trivial bound


@pytest.mark.parametrize(
    ("box", "cells", "message"),
    [
        (torch.zeros(3), (1,), "box must hold the ends"),
        (torch.tensor([[1.0, 0.0]]), (1,), "low < high"),
        (torch.tensor([[0.0, 1.0]]), (1, 2), "one number per axis"),
        (torch.tensor([[0.0, 1.0]]), (0,), "cells must be"),
    ],
)
def test_mistakes(box: Tensor, cells: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Splines(box, cells)
