from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.special
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oism import Brownian, Hermite, OrnsteinUhlenbeck, TensorHermite
from oism.basis import IdentityFrame, OrthogonalFrame, product_coefficients, recurrence
from oism.basis._hermite import multi_indices, tabulate


def test_the_table_agrees_with_scipy() -> None:
    u = torch.linspace(-6, 6, 201, dtype=torch.float64)
    n = np.arange(31)
    exact = scipy.special.eval_hermitenorm(n, u.numpy()[:, None]) / np.sqrt(
        scipy.special.factorial(n)
    )
    error = (tabulate(u, 30) - torch.from_numpy(exact)).abs().max()
    assert float(error) < 1e-11 * float(np.abs(exact).max())


@given(
    order=st.integers(0, 9),
    shape=st.lists(st.integers(0, 5), min_size=1, max_size=3),
    block=st.integers(1, 30),
)
def test_the_table_does_not_depend_on_the_block_size(
    order: int, shape: list[int], block: int
) -> None:
    u = torch.linspace(-2, 3, math.prod(shape), dtype=torch.float64).reshape(shape)
    stacked = torch.stack(list(recurrence(u, order)), dim=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oism.basis._hermite.BLOCK", block)
        assert torch.equal(tabulate(u, order), stacked)
    assert torch.equal(tabulate(u.requires_grad_(), order).detach(), stacked)
    assert stacked.shape == (shape[0], order + 1, *shape[1:])


def test_high_orders_whose_factorials_overflow() -> None:
    # Exact rational arithmetic: He_{n+1} = u He_n - n He_{n-1}, divided by √n! at the end.
    values, order = [Fraction(-7), Fraction(1, 2), Fraction(9, 4)], 400
    table = tabulate(torch.tensor([float(u) for u in values], dtype=torch.float64), order)
    for column, u in enumerate(values):
        before, now = Fraction(1), u
        for n in range(1, order):
            before, now = now, u * now - n * before
        sign = 1 if now > 0 else -1
        exact = sign * math.exp(0.5 * log_of(now * now / math.factorial(order)))
        assert float(table[column, order]) == pytest.approx(exact, rel=1e-10, abs=0)


def log_of(x: Fraction) -> float:
    """log of a rational whose numerator and denominator do not fit a float."""
    return math.log(x.numerator) - math.log(x.denominator)


def by_recurrence(order: int) -> Tensor:
    """β by the paper's recurrence, which holds from ℓ = 1, without factorials."""
    top = 2 * order
    beta = torch.zeros(top + 2, order + 1, top + 2, dtype=torch.float64)
    beta[:, 0] = torch.eye(top + 2, dtype=torch.float64)
    for ell in range(order):
        for k in range(top + 1 - ell):
            step = math.sqrt(k + 1) * beta[k + 1, ell]
            if k:
                step = step + math.sqrt(k) * beta[k - 1, ell]
            if ell:
                step = step - math.sqrt(ell) * beta[k, ell - 1]
            beta[k, ell + 1] = step / math.sqrt(ell + 1)
    return beta[: order + 1, :, : top + 1]


@pytest.mark.parametrize("order", [0, 1, 2, 7, 12])
def test_product_coefficients_equal_the_recurrence(order: int) -> None:
    torch.testing.assert_close(
        product_coefficients(order), by_recurrence(order), rtol=1e-11, atol=1e-10
    )


def test_product_coefficients_are_triple_integrals() -> None:
    # β_h = ∫ φ_k φ_ℓ φ_h dπ, by a Gauss rule that is exact for the degree 4·order
    order = 6
    u, weights = (torch.from_numpy(a) for a in np.polynomial.hermite_e.hermegauss(32))
    table = tabulate(u, 2 * order)
    short = table[:, : order + 1]
    integrals = torch.einsum("n,nk,nl,nh->klh", weights, short, short, table)
    torch.testing.assert_close(
        product_coefficients(order), integrals / math.sqrt(2 * math.pi), rtol=1e-11, atol=1e-11
    )


@pytest.mark.parametrize("order", [12, 85])
def test_product_coefficients_agree_with_integer_arithmetic(order: int) -> None:
    beta, f = product_coefficients(order), math.factorial
    generator = torch.Generator().manual_seed(order)
    checked = 0
    for _ in range(4000):
        k, ell = torch.randint(order + 1, (2,), generator=generator).tolist()
        h = int(torch.randint(2 * order + 1, (1,), generator=generator))
        s, odd = divmod(k + ell + h, 2)
        if odd or s < max(k, ell, h):
            assert float(beta[k, ell, h]) == 0
            continue
        square = Fraction(f(k) * f(ell) * f(h), (f(s - k) * f(s - ell) * f(s - h)) ** 2)
        exact = math.exp(0.5 * log_of(square)) if square > 1e300 else math.sqrt(square)
        assert float(beta[k, ell, h]) == pytest.approx(exact, rel=1e-13 if order > 12 else 3e-15)
        checked += 1
    assert checked > 500


def test_the_largest_table_of_products() -> None:
    assert bool(product_coefficients(85).isfinite().all())
    with pytest.raises(ValueError, match="order must be at most 85"):
        product_coefficients(86)


def test_eigenvalues_are_proportional_to_theta() -> None:
    process = OrnsteinUhlenbeck(theta=0.25, sigma=3.0)
    assert Hermite(2, 3, process).eigenvalues.tolist() == [-0.25] * 2 + [-0.5] * 2 + [-0.75] * 2
    assert TensorHermite(2, 2, process).eigenvalues.tolist() == [-0.25] * 2 + [-0.5] * 3


def test_functions_are_sorted_by_degree_then_by_direction() -> None:
    x = torch.tensor([[0.5, -2.0]], dtype=torch.float64)
    expected = tabulate(x, 3)[0, 1:].flatten()
    assert torch.equal(Hermite(2, 3).values(x)[0], expected)


@pytest.mark.parametrize(("dim", "order"), [(1, 5), (2, 4), (3, 3), (5, 2)])
def test_tensor_indices_are_all_indices_of_bounded_degree(dim: int, order: int) -> None:
    indices = TensorHermite(dim, order).indices
    assert len(indices) == math.comb(dim + order, dim) - 1
    assert len(torch.unique(indices, dim=0)) == len(indices)
    assert int(indices.sum(dim=1).max()) == order


def test_tensor_products_are_products_of_polynomials() -> None:
    basis = TensorHermite(3, 4)
    x = torch.tensor([[0.5, -2.0, 1.1]], dtype=torch.float64)
    table = tabulate(x, 4)[0]
    expected = [float(math.prod(table[m, j] for j, m in enumerate(row))) for row in basis.indices]
    assert basis.values(x)[0].tolist() == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("family", [Hermite, TensorHermite])
def test_invalid_arguments_are_rejected(family: type[Hermite | TensorHermite]) -> None:
    for order in (0, -1):
        with pytest.raises(ValueError, match=f"order must be an integer >= 1, got {order}"):
            family(2, order)
    with pytest.raises(TypeError, match=r"order must be an integer >= 1, got float 2.0"):
        family(2, 2.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="dim must be an integer >= 1, got 0"):
        family(0, 2)
    with pytest.raises(TypeError, match="process must be of type OrnsteinUhlenbeck, got Brownian"):
        family(2, 2, Brownian())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="frame must be of type Frame, got Tensor"):
        family(2, 2, frame=torch.eye(2))  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match="frame must be for points of dim = 2 entries, got one for"
    ):
        family(2, 2, frame=OrthogonalFrame(torch.eye(3)))
    assert family(2, 2, frame=IdentityFrame()).size > 0


def test_too_many_multi_indices_are_rejected() -> None:
    with pytest.raises(
        ValueError, match="order must be smaller for dim = 40, got 5: 1221758 functions"
    ):
        TensorHermite(40, 5)
    assert TensorHermite(40, 3).size == math.comb(43, 3) - 1


def test_numpy_integers_are_converted() -> None:
    basis = Hermite(2, np.int8(127))  # type: ignore[arg-type]
    assert basis.size == 254
    assert type(basis.order) is int


def test_invalid_multi_indices_are_rejected() -> None:
    with pytest.raises(ValueError, match="order must be an integer >= 1, got 0"):
        multi_indices(2, 0)
    with pytest.raises(ValueError, match="dim must be an integer >= 1, got 0"):
        multi_indices(0, 2)


def test_invalid_tables_are_rejected() -> None:
    with pytest.raises(TypeError, match=r"u must be a torch.Tensor, got float"):
        tabulate(1.0, 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="order must be an integer >= 0, got -1"):
        tabulate(torch.zeros(2), -1)
    with pytest.raises(ValueError, match=r"u must be a batch of shape \(n, \*shape\), got shape"):
        tabulate(torch.zeros(()), 3)
