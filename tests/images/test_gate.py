"""Gates: the two functions of the error of a prior, against their definitions."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oism import fit_prior
from oism.images import ByError, Gate, Open

errors = st.floats(0, 1)
rules = st.builds(ByError, half=st.floats(1e-3, 1), sharpness=st.floats(0.1, 20))


def of(function: object, error: float) -> float:
    assert callable(function)
    return float(function(torch.tensor(error, dtype=torch.float64)))


@given(error=errors, rule=rules)
def test_the_gate_is_its_formula(error: float, rule: ByError) -> None:
    expected = 1 / (1 + (error / rule.half) ** rule.sharpness)
    assert of(rule.opening, error) == pytest.approx(expected, rel=1e-12)


@given(rule=rules, error=errors, other=errors)
def test_less_error_opens_it(rule: ByError, error: float, other: float) -> None:
    low, high = sorted((error, other))
    assert of(rule.opening, low) >= of(rule.opening, high)
    assert of(rule.opening, rule.half) == pytest.approx(0.5)
    assert of(rule.opening, 0.0) == 1


def test_sharpness_and_half_follow_their_definitions() -> None:
    below, above = 0.05, 0.2
    for dull, sharp in ((1.0, 2.0), (2.0, 9.0)):
        wide, narrow = ByError(0.1, dull), ByError(0.1, sharp)
        assert of(wide.opening, below) < of(narrow.opening, below)
        assert of(wide.opening, above) > of(narrow.opening, above)
    assert of(ByError(0.1, 3.0).opening, 0.3) < of(ByError(0.2, 3.0).opening, 0.3)


@given(error=errors, rule=rules)
def test_the_scale_is_the_deviation_of_the_residual(error: float, rule: ByError) -> None:
    """E(ε - g ε̂)² for a calibrated ε̂, from their joint moments: 1 - 2g Eεε̂ + g² Eε̂²."""
    g, c = of(rule.opening, error), of(rule.scale, error)
    explained = 1 - error
    assert c**2 == pytest.approx(1 - 2 * g * explained + g**2 * explained, abs=1e-12)
    assert math.sqrt(error) <= c * (1 + 1e-12), "no gate beats the prior itself"
    assert c <= 1 + 1e-12, "nor is it worse than nothing"


def test_the_deviation_by_draws(generator: torch.Generator) -> None:
    """Noise as the sum of what is predicted and an independent rest, of variances 1 - m and m."""
    n, error, rule = 200_000, 0.3, ByError(half=0.2, sharpness=2.0)
    predicted = math.sqrt(1 - error) * torch.randn(n, generator=generator, dtype=torch.float64)
    rest = math.sqrt(error) * torch.randn(n, generator=generator, dtype=torch.float64)
    left = predicted + rest - of(rule.opening, error) * predicted
    assert float(left.std()) == pytest.approx(of(rule.scale, error), rel=4 / math.sqrt(2 * n))


@pytest.mark.parametrize("error", [1e-9, 1e-7, 1e-4, 0.01])
def test_small_scales_survive_float32(error: float) -> None:
    """The same formula as 1 - (2g - g²)(1 - m) would be zero for the first."""
    m = torch.tensor(error)
    rule = ByError(half=0.1, sharpness=4.0)
    expected = of(rule.scale, float(m))
    assert float(rule.scale(m)) == pytest.approx(expected, rel=1e-5)
    if error == 1e-9:
        g = rule.opening(m)
        assert float(1 - (2 * g - g.square()) * (1 - m)) == 0


@given(error=st.lists(errors, max_size=5), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_the_gate_of_the_paper_is_open_throughout(error: list[float], dtype: torch.dtype) -> None:
    m = torch.tensor(error, dtype=dtype)
    for rule in (Open(), ByError()):
        for found in (rule.opening(m), rule.scale(m)):
            assert found.shape == m.shape
            assert found.dtype == dtype
            assert bool(((found >= 0) & (found <= 1)).all())
    assert Open().opening(m).tolist() == Open().scale(m).tolist() == [1.0] * len(error)


@pytest.mark.parametrize("name", ["half", "sharpness"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_bad_numbers(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a positive finite number, got"):
        ByError(**{name: value})


def test_bad_types() -> None:
    with pytest.raises(TypeError, match="sharpness must be a positive finite number, got str"):
        ByError(sharpness="4")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="abstract"):
        Gate()  # type: ignore[abstract]


class Shut(Gate):
    """A gate of one's own."""

    def opening(self, error: Tensor) -> Tensor:
        return torch.zeros_like(error)


def test_a_prior_uses_the_rule(generator: torch.Generator) -> None:
    prior = fit_prior(torch.randn(200, 3, generator=generator), order=2)
    tau = torch.linspace(0, 1, 7, dtype=torch.float64)
    error = prior.expected_error(tau)
    for rule in (Open(), ByError(0.3, 2.0), Shut()):
        assert torch.equal(prior.gate(tau, rule), rule.opening(error))
        assert torch.equal(prior.output_scale(tau, rule), rule.scale(error))
    assert prior.output_scale(tau, Shut()).tolist() == pytest.approx([1.0] * 7)
    for part in (prior.gate, prior.output_scale):
        with pytest.raises(TypeError, match="rule must be of type Gate, got float"):
            part(0.5, 8.0)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="rule must be of type Gate, got the class Open"):
            part(0.5, Open)  # type: ignore[arg-type]
