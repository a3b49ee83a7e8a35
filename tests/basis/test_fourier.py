from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oism import Brownian, Fourier, OrnsteinUhlenbeck, Torus
from oism.basis import half_lattice
from oism.process import Quadrature, Semigroup


@pytest.mark.parametrize(("bound", "frequencies"), [(125, 200), (500, 790)])
def test_the_numbers_of_the_paper(bound: float, frequencies: int) -> None:
    assert len(half_lattice(2, bound)) == frequencies
    assert Fourier.lattice(2, bound).size == 2 * frequencies


@given(dim=st.integers(1, 4), bound=st.floats(1, 12))
def test_the_half_lattice_agrees_with_brute_force(dim: int, bound: float) -> None:
    lattice = {tuple(map(int, xi)) for xi in half_lattice(dim, bound).tolist()}
    reach = math.floor(math.sqrt(bound))
    full = {
        xi
        for xi in itertools.product(range(-reach, reach + 1), repeat=dim)
        if 0 < sum(k * k for k in xi) <= bound
    }
    opposite = {tuple(-k for k in xi) for xi in lattice}
    assert lattice | opposite == full
    assert not lattice & opposite


def test_lattices_in_many_dimensions_are_fast() -> None:
    assert torch.equal(half_lattice(20, 1).sort(dim=0)[0][-1], torch.ones(20).double())
    assert len(half_lattice(20, 2)) == 20 + 2 * math.comb(20, 2)


def test_the_basis_copies_its_frequencies() -> None:
    frequencies = torch.tensor([[1.0], [2.0]])
    basis = Fourier(frequencies)
    frequencies[0] = 0.5
    assert basis.eigenvalues.tolist() == [-1, -1, -4, -4]


def test_the_order_is_by_eigenvalue_then_lexicographic() -> None:
    assert half_lattice(2, 2).tolist() == [[0, 1], [1, 0], [1, -1], [1, 1]]


def test_cos_and_sin_of_a_frequency_are_neighbours() -> None:
    x = torch.tensor([[0.3, -1.0]], dtype=torch.float64)
    phase = torch.tensor([-1.0, 0.3, 1.3, -0.7], dtype=torch.float64)
    expected = math.sqrt(2) * torch.stack((phase.cos(), phase.sin()), dim=1).flatten()
    torch.testing.assert_close(Fourier.lattice(2, 2).values(x)[0], expected)


def test_values_have_period_two_pi(generator: torch.Generator) -> None:
    basis = Fourier.lattice(3, 9)
    x = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(basis(x + 2 * math.pi), basis(x), rtol=0, atol=1e-13)


@pytest.mark.parametrize("xi", [0.5, 1.25, math.sqrt(2)])
@pytest.mark.parametrize("t", [0.05, 0.5])
def test_a_frequency_that_is_not_an_integer_fails_on_the_torus_only(xi: float, t: float) -> None:
    wave = Fourier(torch.tensor([[xi]], dtype=torch.float64), Brownian())
    x = torch.linspace(-3, 3, 13, dtype=torch.float64)[:, None]
    decayed = torch.exp(wave.eigenvalues * t) * wave(x)
    on_the_line = Semigroup(Brownian(), t, Quadrature(40))(wave)(x)
    torch.testing.assert_close(on_the_line, decayed, rtol=0, atol=1e-12)
    on_the_torus = Semigroup(Torus(), t, Quadrature(64))(wave)(x)
    assert float((on_the_torus - decayed).abs().max()) > 0.1


def test_frequencies_on_the_torus_must_be_integers() -> None:
    frequencies = torch.tensor([[1.0], [1.5]])
    with pytest.raises(ValueError, match=r"must be integers on the torus.*\[1\] = \[1.5\]"):
        Fourier(frequencies)
    assert Fourier(frequencies, Brownian()).size == 4


@pytest.mark.parametrize(
    ("frequencies", "error", "words"),
    [
        (torch.zeros(2), ValueError, r"frequencies must have shape \(m, d\).*got \(2,\)"),
        (torch.zeros(0, 2), ValueError, r"m, d >= 1, got \(0, 2\)"),
        (
            torch.tensor([[0.0, 0.0]]),
            ValueError,
            r"must not be zero, but frequencies\[0\] = \[0.0",
        ),
        (
            torch.tensor([[2.0], [1.0]]),
            ValueError,
            r"sorted by norm, but frequencies\[1\] = \[1.0\]",
        ),
        (torch.tensor([[1.0], [-1.0]]), ValueError, r"opposites, but frequencies\[1\] = \[-1.0\]"),
        (torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), ValueError, r"but frequencies\[2\]"),
        (torch.tensor([[1]]), TypeError, "frequencies must have a floating-point dtype"),
        (torch.tensor([[math.inf]]), ValueError, r"must be finite, but frequencies\[0, 0\] = inf"),
    ],
)
def test_invalid_frequencies_are_rejected(
    frequencies: torch.Tensor, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        Fourier(frequencies)


def test_invalid_lattices_are_rejected() -> None:
    for bound in (0.5, -1.0, 0):
        with pytest.raises(ValueError, match="max_eigenvalue must be a finite number >= 1"):
            half_lattice(2, bound)
    with pytest.raises(ValueError, match="max_eigenvalue must be a finite number >= 1, got nan"):
        half_lattice(2, math.nan)
    with pytest.raises(ValueError, match="dim must be an integer >= 1, got 0"):
        half_lattice(0, 3)
    with pytest.raises(ValueError, match="max_eigenvalue must be smaller for dim = 20, got 9"):
        half_lattice(20, 9)
    with pytest.raises(TypeError, match="process must be of type Brownian, got Ornstein"):
        Fourier(torch.tensor([[1.0]]), OrnsteinUhlenbeck())  # type: ignore[arg-type]
