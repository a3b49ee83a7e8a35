"""Fourier series at scattered points, compared with direct sums."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oism.basis import ScatteredSeries, half_lattice
from oism.basis._scattered import SINGLE_THREAD


def direct(x: Tensor, frequencies: Tensor, spectra: Tensor) -> Tensor:
    """Σ_ξ F(ξ) e^{iξ·x} + its conjugate, summed by NumPy: (k, n)."""
    waves = np.exp(1j * (frequencies.numpy() @ x.double().numpy().T))
    return torch.from_numpy(2 * (spectra.numpy() @ waves).real)


def coefficients(fields: int, count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(fields, count, generator=generator, dtype=torch.complex128)


@given(
    dim=st.integers(1, 3),
    bound=st.integers(1, 12),
    sizes=st.tuples(st.integers(1, 5), st.integers(0, 9), st.integers(1, 30)),
    reach=st.sampled_from([1.0, math.pi, 40.0]),
    seed=st.integers(0, 10**6),
)
def test_fields_are_direct_sums(
    dim: int, bound: int, sizes: tuple[int, int, int], reach: float, seed: int
) -> None:
    fields, n, keep = sizes
    generator = torch.Generator().manual_seed(seed)
    frequencies = half_lattice(dim, bound)
    frequencies = frequencies[torch.randperm(len(frequencies), generator=generator)[:keep]]
    sign = torch.randint(0, 2, (len(frequencies), 1), generator=generator) * 2 - 1
    frequencies = frequencies * sign  # either of ±ξ may be given
    x = reach * (2 * torch.rand(n, dim, generator=generator, dtype=torch.float64) - 1)
    spectra = coefficients(fields, len(frequencies), seed)
    got = ScatteredSeries(frequencies)(x, spectra)
    assert got.shape == (fields, n)
    assert got.dtype == torch.float64
    size, exact = spectra.abs().sum(dim=1, keepdim=True), direct(x, frequencies, spectra)
    assert bool(((got - exact).abs() < 1e-9 * size).all())
    products = ScatteredSeries(frequencies).products(x, spectra)
    assert products.shape == (fields, n)
    assert bool(((products - exact).abs() < 1e-13 * (1 + reach) * size).all())


def test_a_single_wave() -> None:
    frequency, x = torch.tensor([[2.0, -1.0]]), torch.tensor([[0.3, 0.7], [-3.0, 9.0]])
    unit = torch.ones(1, 1, dtype=torch.complex128)
    cosine, sine = ScatteredSeries(frequency)(x, torch.cat((0.5 * unit, -0.5j * unit)))
    phase = x[:, 0].double() * 2 - x[:, 1].double()
    torch.testing.assert_close(cosine, phase.cos(), rtol=0, atol=1e-9)
    torch.testing.assert_close(sine, phase.sin(), rtol=0, atol=1e-9)


def test_the_modes_are_a_box() -> None:
    assert ScatteredSeries(torch.tensor([[3.0]])).modes == (7,)
    assert ScatteredSeries(torch.tensor([[1.0, -4.0], [2.0, 0.0]])).modes == (5, 9)


@pytest.mark.parametrize("n", [1, 2, SINGLE_THREAD, SINGLE_THREAD + 1])
def test_many_points_and_views(n: int) -> None:
    frequencies = half_lattice(2, 9)
    wide = torch.rand(n, 4, generator=torch.Generator().manual_seed(0)) * 9
    x = wide[:, ::2].requires_grad_()  # neither contiguous nor float64, and recorded by autograd
    spectra = coefficients(3, len(frequencies), 1)
    got = ScatteredSeries(frequencies)(x, spectra)
    assert not got.requires_grad
    exact = direct(x.detach()[:50], frequencies, spectra)
    torch.testing.assert_close(got[:, :50], exact, rtol=0, atol=1e-8)
    last = direct(x.detach()[-1:], frequencies, spectra)
    torch.testing.assert_close(got[:, -1:], last, rtol=0, atol=1e-8)


def test_products_in_blocks_and_in_single_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    frequencies = half_lattice(3, 9)
    x = torch.rand(40, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 6
    spectra = coefficients(4, len(frequencies), 1)
    series, exact = ScatteredSeries(frequencies), direct(x, frequencies, spectra)
    single = series.products(x.float(), spectra)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), exact, rtol=0, atol=1e-3)
    monkeypatch.setattr("oism.basis._scattered.ENTRIES", 1)
    torch.testing.assert_close(series.products(x, spectra), exact, rtol=0, atol=1e-11)
