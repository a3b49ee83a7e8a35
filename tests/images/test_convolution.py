"""Local terms: against patches one by one, least squares of NumPy, automatic differentiation."""

from __future__ import annotations

import copy
import math
import weakref
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.polynomial import hermite_e
from numpy.typing import NDArray
from torch import Tensor

from oism import fit_mixture, fit_prior, load
from oism.flow import Adaptive, Pixels, log_density
from oism.images import ConvolutionalPrior, GaussianPart, Prior, add_local_terms, evaluate
from oism.images._convolution import BEND, SHARE, Responses, _spread, local_filters
from oism.score import Curve

GREY, COLOUR = (1, 6, 6), (3, 6, 6)
TIMES = torch.tensor([0.0, 1e-6, 1e-3, 0.05, 0.6, 4.0], dtype=torch.float64)


@pytest.fixture(autouse=True)
def few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few times and steps: these tests do not measure the accuracy of the table."""
    monkeypatch.setattr("oism.images._convolution.TIMES", 9)
    monkeypatch.setattr("oism.images._convolution.STEPS", 16)


def rectangles(n: int, seed: int = 0, shape: tuple[int, int, int] = GREY) -> Tensor:
    """Return bytes: two rectangles on a ground, each of one colour, and a little noise."""
    generator = torch.Generator().manual_seed(seed)
    channels, height, width = shape

    def colours() -> Tensor:
        return 20 + 200 * torch.rand(n, channels, 1, 1, generator=generator)

    def within(length: int) -> Tensor:
        ends = torch.randint(0, length, (n, 2), generator=generator).sort(dim=1).values
        places = torch.arange(length)
        return (places >= ends[:, :1]) & (places <= ends[:, 1:])

    images = colours().expand(n, *shape)
    for _ in range(2):
        inside = within(height)[:, None, :, None] & within(width)[:, None, None, :]
        images = torch.where(inside, colours(), images)
    noisy = images + 3 * torch.randn(images.shape, generator=generator)
    return noisy.round().clamp(0, 255).byte()


def floats(n: int, seed: int = 0) -> Tensor:
    return Pixels().units(rectangles(n, seed)) * 1.3


@cache
def base_of(shape: tuple[int, int, int]) -> Prior:
    data = rectangles(300, shape=shape)
    return fit_prior(data, order=4) if shape == GREY else fit_mixture(data, components=2)


@cache
def prior_of(shape: tuple[int, int, int]) -> ConvolutionalPrior:
    return add_local_terms(rectangles(300, shape=shape), base_of(shape), degrees=3)


def points(shape: tuple[int, int, int], n: int = 6) -> Tensor:
    """Return tensors that are no images, the last one far away."""
    generator = torch.Generator().manual_seed(5)
    x = Pixels().units(rectangles(n, 7, shape)).double()
    x = x + 0.3 * torch.randn(x.shape, generator=generator, dtype=torch.float64)
    x[-1] *= 5
    return x


shapes = pytest.mark.parametrize("shape", [GREY, COLOUR])

# The score


@shapes
def test_the_score_is_a_gradient_and_its_divergence_the_trace(
    shape: tuple[int, int, int],
) -> None:
    prior, x = prior_of(shape), points(shape)[-2:]
    assert float(prior.coefficients.values.abs().max()) > 0.01, "there are local terms to test"
    for t in TIMES.tolist():
        score, divergence = prior.score_and_divergence(x, t)
        assert torch.equal(score, prior.score(x, t))
        for row, trace in zip(x, divergence, strict=True):
            jacobian = torch.func.jacrev(
                lambda y, t=t: prior.score(y.reshape(1, *shape), t).flatten()
            )(row.flatten())
            size = float(jacobian.abs().max())
            torch.testing.assert_close(jacobian, jacobian.mT, rtol=0, atol=1e-6 * size)
            assert float(jacobian.trace()) == pytest.approx(float(trace), rel=1e-5)


@shapes
def test_a_time_for_every_row_is_row_by_row(
    shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where rows are more than are convolved at a time."""
    prior, x = prior_of(shape), points(shape)
    rows = [prior.score_and_divergence(x[i : i + 1], t) for i, t in enumerate(TIMES.tolist())]
    scores, traces = (torch.cat(parts) for parts in zip(*rows, strict=True))
    for chunk in (512, 4):
        monkeypatch.setattr("oism.images._convolution.CHUNK", chunk)
        score, divergence = prior.score_and_divergence(x, TIMES)
        torch.testing.assert_close(score, scores, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(divergence, traces, rtol=1e-6, atol=1e-5)
        shared, _ = prior.score_and_divergence(x, 0.05)
        torch.testing.assert_close(shared[3], score[3], rtol=1e-6, atol=1e-6)


def patches(x: Tensor, side: int = 3) -> Iterator[tuple[int, int, Tensor]]:
    """Yield the upper left corner of each patch, and the patches there."""
    for i in range(x.shape[2] - side + 1):
        for j in range(x.shape[3] - side + 1):
            yield i, j, x[:, :, i : i + side, j : j + side]


def brute_force(prior: ConvolutionalPrior, x: Tensor, t: float) -> Tensor:
    """Return G_{f,n}, ``(F · degrees, n, *shape)``, one patch after the other."""
    alpha, variance = math.exp(-t), -math.expm1(-2 * t)
    found = []
    for f, w in enumerate(prior.filters.double()):
        mean, deviation = float(prior.filter_mean[f]), float(prior.filter_deviation[f])
        size = math.sqrt(alpha**2 * deviation**2 + variance)
        for n in range(1, prior.degrees + 1):
            polynomial = [0.0] * n + [1 / math.sqrt(math.factorial(n))]
            field = torch.zeros_like(x)
            for i, j, patch in patches(x):
                u = ((patch * w).sum(dim=(1, 2, 3)) - alpha * mean) / size
                bent = (BEND * torch.tanh(u / BEND)).numpy()
                g = torch.from_numpy(hermite_e.hermeval(bent, polynomial))
                field[:, :, i : i + 3, j : j + 3] += g[:, None, None, None] * w
            found.append(field)
    return torch.stack(found)


@shapes
def test_fields_patch_by_patch_and_their_sum(shape: tuple[int, int, int]) -> None:
    prior, x = prior_of(shape), points(shape)[-2:]
    knots, values = prior.coefficients.knots, prior.coefficients.values.double().flatten(1)
    table = prior.table_clock
    for t in TIMES.tolist():
        expected = brute_force(prior, x, t)
        time = torch.tensor(t, dtype=torch.float64)
        fields = prior.fields(x.flatten(1), time)
        torch.testing.assert_close(fields, expected.flatten(2), rtol=1e-6, atol=1e-6)
        tau = max(float(table._inverse(time)), float(knots[1]))  # c/σ is held below
        c = torch.tensor([np.interp(tau, knots.numpy(), part.numpy()) for part in values.mT])
        total = torch.einsum("k,k...->...", c, expected)
        local = prior._local(x.flatten(1), time, divergence=False)
        torch.testing.assert_close(local, total.flatten(1), rtol=1e-5, atol=1e-5)
        sigma = math.sqrt(-math.expm1(-2 * max(t, float(table._time(knots[1])))))
        score = prior.base.score(x, t) - total / sigma
        torch.testing.assert_close(prior.score(x, t), score, rtol=1e-5, atol=1e-4)


@shapes
def test_filters_are_orthonormal_with_the_stated_responses(shape: tuple[int, int, int]) -> None:
    images = Pixels().units(rectangles(60, shape=shape)).double()
    found = local_filters(images)
    w = found.filters.flatten(1)
    assert found.filters.shape == (9 * shape[0], shape[0], 3, 3)
    torch.testing.assert_close(w @ w.mT, torch.eye(len(w), dtype=torch.float64))
    rows = torch.cat([patch.flatten(1) for _, _, patch in patches(images)])
    responses = rows @ w.mT
    torch.testing.assert_close(found.mean, responses.mean(dim=0))
    torch.testing.assert_close(found.deviation, responses.std(dim=0, correction=0))
    assert bool((found.deviation.diff() <= 0).all()), "the largest variance first"
    together = torch.corrcoef(responses.mT)
    torch.testing.assert_close(together, torch.eye(len(w), dtype=torch.float64), atol=1e-8, rtol=0)


# The equations


class Recording(Prior):
    """A prior that records the tensors and times of its evaluations."""

    def __init__(self, inner: Prior) -> None:
        super().__init__(inner.spec, inner.table_clock, inner.error)
        self.inner, self.calls = inner, cast(list[tuple[float, Tensor]], [])

    def facts(self) -> dict[str, Any]:
        return self.inner.facts()

    def gaussian_part(self) -> GaussianPart:
        return self.inner.gaussian_part()

    def _score(self, x: Tensor, t: Tensor) -> Tensor:
        self.calls.append((float(t), x))
        return self.inner._score(x, t)

    def _divergence(self, x: Tensor, t: Tensor) -> Tensor:
        raise NotImplementedError

    def _log_density(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _sample(self, n: int, generator: torch.Generator | None) -> Tensor:
        raise NotImplementedError


class Planted(Recording):
    """A prior whose residual is a given combination of fields, and nothing else.

    It is given the clean tensors in the order in which it is evaluated at their noised versions.
    """

    def __init__(self, inner: Prior, clean: Tensor, fields: ConvolutionalPrior, c: Tensor) -> None:
        super().__init__(inner)
        self.clean, self.fields, self.c, self.place = clean, fields, c, 0

    def _score(self, x: Tensor, t: Tensor) -> Tensor:
        alpha, sigma = self.process._alpha(t).to(x), self.process._variance(t).sqrt().to(x)
        clean = self.clean[self.place : self.place + len(x)]
        self.place = (self.place + len(x)) % len(self.clean)
        left = torch.einsum("k,knd->nd", self.c, self.fields.fields(x, t))
        return (left - (x - alpha * clean) / sigma) / sigma


def parted(data: Tensor) -> tuple[Tensor, Tensor]:
    """Return the tensors of the fit, and those that measure its error, flat."""
    judged = torch.arange(len(data)) % SHARE == SHARE - 1
    return data[~judged].flatten(1), data[judged].flatten(1)


@cache
def float_base() -> Prior:
    return fit_prior(floats(200), order=2)


def residuals(
    prior: ConvolutionalPrior, data: Tensor, place: int, *, judged: bool = False
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the fields, one column each, and the residual of the base, at a knot."""
    recorded = cast(Recording, prior.base)
    t = prior.table_clock._time(prior.coefficients.knots[place])
    x = torch.cat([x for time, x in recorded.calls if time == float(t)]).double()
    clean = torch.cat(parted(data)).double()
    fitted = len(parted(data)[0])
    rows = slice(fitted, None) if judged else slice(fitted)
    alpha, sigma = prior.process._alpha(t), prior.process._variance(t).sqrt()
    noise = (x - alpha * clean) / sigma
    left = (noise + sigma * recorded.inner._score(x, t))[rows]
    fields = prior.fields(x[rows], t).flatten(1).mT
    return fields.numpy(), left.flatten().numpy()


def test_coefficients_are_those_of_least_squares() -> None:
    data = floats(200)
    prior = add_local_terms(data, Recording(float_base()), degrees=2, ridge=0.0)
    checked = 0
    for place in range(1, len(prior.coefficients.knots)):
        fields, left = residuals(prior, data, place)
        c = prior.coefficients.values[place].double().flatten().numpy()
        if not c.any():
            continue
        checked += 1
        expected = np.asarray(np.linalg.lstsq(fields, left)[0], dtype=np.float64)

        def loss(c: NDArray[np.float64], a: NDArray = fields, b: NDArray = left) -> float:  # type: ignore[type-arg]
            return float(np.square(b - a @ c).mean())

        assert loss(c) == pytest.approx(loss(expected), rel=1e-5)
        np.testing.assert_allclose(c, expected, rtol=1e-2, atol=1e-2 * np.abs(expected).max())
        for k in range(len(c)):
            for step in (-0.02, 0.02):
                assert loss(c + step * np.eye(len(c))[k]) > loss(c)
    assert checked >= 3


def test_planted_coefficients_are_found() -> None:
    data = floats(200)
    inner = float_base()
    responses = local_filters(data)
    c = 0.3 * torch.randn(18, generator=torch.Generator().manual_seed(2))
    none = Curve(torch.linspace(0, 1, 2), torch.zeros(2, 9, 2), order=2)
    fields = ConvolutionalPrior(inner, inner.error, responses, none)
    planted = Planted(inner, torch.cat(parted(data)), fields, c)
    prior = add_local_terms(data, planted, degrees=2, ridge=0.0)
    for place in range(1, len(prior.coefficients.knots)):
        found = prior.coefficients.values[place].flatten()
        torch.testing.assert_close(found, c, rtol=0.02, atol=0.01)
        assert math.exp(float(prior.error.values[place])) < 1e-4, "the residual is zero"


@pytest.mark.parametrize("kind", ["edges", "noise"])
def test_local_terms_never_raise_the_measured_error(kind: str, generator: torch.Generator) -> None:
    """Where they would, as on Gaussian noise, there are none."""
    noise = 0.5 * torch.randn(200, *GREY, generator=generator)
    data = floats(200) if kind == "edges" else noise
    prior = add_local_terms(data, Recording(fit_prior(data, order=2)), degrees=4)
    for place in range(1, len(prior.coefficients.knots)):
        fields, left = residuals(prior, data, place, judged=True)
        c = prior.coefficients.values[place].double().flatten().numpy()
        before, after = np.square(left).mean(), np.square(left - fields @ c).mean()
        assert after <= before * (1 + 1e-6)
        assert math.exp(float(prior.error.values[place])) == pytest.approx(after, rel=1e-4)
    none = prior.coefficients.values[1:].flatten(1).abs().amax(dim=1) == 0
    assert int(none.sum()) >= (4 if kind == "noise" else 0)


def test_local_terms_reduce_the_error_of_images_with_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    """On held-out images: less error, by as much as expected, and fewer bits."""
    monkeypatch.setattr("oism.images._convolution.TIMES", 13)
    monkeypatch.setattr("oism.images._convolution.STEPS", 48)
    train, test = rectangles(1000), rectangles(250, 1)
    base = fit_prior(train, order=4)
    prior = add_local_terms(train, base)
    levels = (0.01, 0.03, 0.1)
    found, before = (evaluate(one, [test], levels) for one in (prior, base))
    for level, other in zip(found.levels, before.levels, strict=True):
        assert level.error.mean < 0.98 * other.error.mean
        assert level.expected == pytest.approx(level.error.mean, rel=0.1)
    assert found.bits is not None
    assert before.bits is not None
    assert found.bits.mean < before.bits.mean - 0.15


# The flow


@pytest.mark.slow
def test_densities_are_those_of_an_adaptive_method(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oism.images._convolution.STEPS", 64)
    prior, x = prior_of(GREY), points(GREY, 4)[:3]
    expected = log_density(prior.flow, x, method=Adaptive(1e-7, 1e-7))
    torch.testing.assert_close(prior.log_density(x), expected, rtol=0, atol=5e-3)


def test_the_flow_is_of_order_four(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that do not cross the knots, where coefficients bend, halve the error four times."""
    data = rectangles(300)
    prior, x = add_local_terms(data, fit_prior(data, order=2), degrees=3), points(GREY, 4)[:3]
    found = {}
    for steps in (32, 64, 256):
        monkeypatch.setattr("oism.images._convolution.STEPS", steps)
        found[steps] = prior.log_density(x)
    coarse, fine = (float((found[steps] - found[256]).abs().max()) for steps in (32, 64))
    assert math.log2(coarse / fine) == pytest.approx(4, abs=0.4)


@shapes
def test_samples(shape: tuple[int, int, int]) -> None:
    prior = prior_of(shape)
    drawn, again, others = (prior.sample(20, torch.Generator().manual_seed(k)) for k in (0, 0, 1))
    assert drawn.shape == (20, *shape)
    assert bool(drawn.isfinite().all())
    assert torch.equal(drawn, again)
    assert not torch.equal(drawn, others)
    assert 0.2 < float(drawn.std()) < 1.0, "about as bright as images"


def test_no_rows() -> None:
    prior = prior_of(GREY)
    x = torch.zeros(0, *GREY)
    for t in (0.1, torch.zeros(0)):
        score, divergence = prior.score_and_divergence(x, t)
        assert score.shape == x.shape
        assert divergence.shape == (0,)
    assert prior.log_density(x).shape == (0,)
    assert prior.sample(0).shape == x.shape


# The prior as an object


@shapes
def test_a_file_holds_everything(shape: tuple[int, int, int], tmp_path: Path) -> None:
    prior, x = prior_of(shape), points(shape)
    prior.save(tmp_path / "p")
    found = load(tmp_path / "p")
    assert isinstance(found, ConvolutionalPrior)
    for other in (found, copy.deepcopy(prior)):
        assert other.spec == prior.spec
        assert other.facts() == prior.facts()
        assert torch.equal(other.score(x, TIMES), prior.score(x, TIMES))
        assert torch.equal(other.expected_error(0.2), prior.expected_error(0.2))
    assert torch.equal(found.log_density(x), prior.log_density(x))


def test_facts() -> None:
    facts = prior_of(COLOUR).facts()
    assert facts["local terms"] == "27 filters of 3 by 3, 3 degrees"
    assert facts["components"] == 2
    prior = add_local_terms(rectangles(50), base_of(GREY), side=2, degrees=1)
    assert prior.facts()["local terms"] == "4 filters of 2 by 2, 1 degrees"


def test_float32_agrees_with_float64() -> None:
    prior, x = prior_of(GREY), points(GREY)
    for tau in (0.01, 0.5):
        found = prior.noise(x.float(), tau)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), prior.noise(x, tau), rtol=1e-3, atol=1e-4)


def equal(one: Prior, other: Prior) -> bool:
    ours, theirs = one.state_dict(), other.state_dict()
    return all(torch.equal(part, theirs[name]) for name, part in ours.items())


def test_the_seed_decides() -> None:
    base, data = base_of(GREY), rectangles(300)
    one, other, third = (
        add_local_terms(given, base, degrees=2, seed=seed)
        for given, seed in ((data, 3), (torch.split(data, 70), 3), (data, 4))
    )
    assert equal(one, other), "and batches do not"
    assert not equal(one, third)


def test_tensors_that_are_not_pixels() -> None:
    data = floats(200)
    prior = add_local_terms(data, float_base(), degrees=2)
    assert prior.pixels is None
    responses = local_filters(data)
    torch.testing.assert_close(prior.filters, responses.filters, msg="nothing was dequantised")
    assert bool(prior.log_density(data[:3]).isfinite().all())
    with pytest.raises(ValueError, match="bits per dimension need a model of integers"):
        prior.bits_per_dim(data[:3])


def test_pixels_are_dequantised_where_the_base_is() -> None:
    """Of images of one colour, all but one filter respond to dequantisation alone."""
    data = torch.arange(0, 240).byte()[:, None, None, None].expand(-1, *GREY)
    for dequantise in (True, False):
        base = fit_prior(data, order=2, dequantise=dequantise)
        rest = add_local_terms(data, base, degrees=1).filter_deviation[1:]
        size = Pixels().step / math.sqrt(12) if dequantise else 1e-6
        torch.testing.assert_close(rest, torch.full_like(rest, size), rtol=0.1, atol=1e-6)


# The images that are used


def numbered(n: int) -> Tensor:
    """Return images whose entries all are their number."""
    return torch.arange(n, dtype=torch.float64)[:, None, None, None].expand(-1, *GREY)


@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=12), limit=st.integers(10, 60))
def test_images_are_spread_evenly(sizes: Sequence[int], limit: int) -> None:
    """Every 2^k-th, k as small as the limit allows, however they come in batches."""
    n = sum(sizes)
    stride = 1
    while math.ceil(n / stride) > limit:
        stride *= 2
    expected = numbered(n)[::stride].float()
    assert len(expected) <= limit
    assert len(expected) > limit // 2 or stride == 1
    for data in (numbered(n), torch.split(numbered(n), list(sizes))):
        assert torch.equal(_spread(float_base(), data, limit, None), expected)


class Batches:
    """Arrays that are made one at a time, and the largest number that were in memory at once."""

    def __init__(self) -> None:
        self.made: list[weakref.ref[NDArray[np.uint8]]] = []
        self.most = 0

    def __iter__(self) -> Iterator[NDArray[np.uint8]]:
        for seed in range(30):
            batch = rectangles(8, seed).numpy().copy()
            self.made.append(weakref.ref(batch))
            self.most = max(self.most, sum(made() is not None for made in self.made))
            yield batch
            del batch


def test_batches_are_not_kept_for_a_few_of_their_images() -> None:
    data = Batches()
    assert len(_spread(base_of(GREY), data, 16, None)) == 15
    assert data.most < 5


# Mistakes


def test_bad_arguments() -> None:
    base, data = base_of(GREY), rectangles(50)
    vectors = fit_prior(torch.randn(50, 4, generator=torch.Generator().manual_seed(0)), order=2)
    with pytest.raises(ValueError, match=r"base must be a prior of images .*, got shape \(4,\)"):
        add_local_terms(data, vectors)
    with pytest.raises(
        ValueError, match=r"data must have the shape \(1, 6, 6\) of the base, got \(3, 6, 6\)"
    ):
        add_local_terms(rectangles(50, shape=COLOUR), base)
    with pytest.raises(ValueError, match="limit must be an integer >= 10, got 9"):
        add_local_terms(data, base, limit=9)
    with pytest.raises(ValueError, match="degrees must be an integer >= 1, got 0"):
        add_local_terms(data, base, degrees=0)
    with pytest.raises(ValueError, match="side must be an integer >= 1, got 0"):
        add_local_terms(data, base, side=0)
    with pytest.raises(ValueError, match=r"side must be at most that of images \(1, 6, 6\), got 7"):
        add_local_terms(data, base, side=7)
    with pytest.raises(ValueError, match="data must hold at least 5 images, got 4"):
        add_local_terms(data[:4], base)
    with pytest.raises(ValueError, match="data must be whole numbers, but row 0 holds"):
        add_local_terms(data.double() / 2 + 0.25, base)


def test_priors_of_classes_are_refused() -> None:
    data = rectangles(50)
    base = fit_prior(data, order=2, labels=torch.arange(50) % 2)
    with pytest.raises(ValueError, match=r"base must be a prior without classes.*given\(label\)"):
        add_local_terms(data, base)
    assert add_local_terms(data, base.given(1), degrees=1).classes is None


def test_the_base_is_copied() -> None:
    """The terms are computed on the device of the data, and returned on the CPU."""
    base = base_of(GREY)
    prior = add_local_terms(rectangles(50), base, degrees=1)
    assert prior.base is not base
    assert equal(prior.base, base)


def test_as_few_images_as_can_be() -> None:
    prior = add_local_terms(rectangles(50), base_of(GREY), limit=10, degrees=1)
    assert bool(prior.score(points(GREY), TIMES).isfinite().all())
    few = add_local_terms(rectangles(5), base_of(GREY), degrees=1)
    assert bool(few.score(points(GREY), TIMES).isfinite().all())


def test_without_coefficients_it_is_the_base() -> None:
    found = Responses(torch.zeros(1, 1, 2, 2), torch.zeros(1), torch.ones(1))
    none = Curve(torch.linspace(0, 1, 2), torch.zeros(2, 1, 3), order=2)
    base = base_of(GREY)
    prior = ConvolutionalPrior(base, base.error, found, none)
    assert prior.degrees == 3
    x = points(GREY)
    torch.testing.assert_close(prior.score(x, TIMES), base.score(x, TIMES))
