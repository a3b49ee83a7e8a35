"""The contract of priors: a gradient with its trace, for any shape, dtype and time."""

from __future__ import annotations

import copy
import math
import pickle
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oism import VariancePreserving, fit_mixture, fit_prior
from oism.basis import CosineFrame, Frame, IdentityFrame, OrthogonalFrame, TransformFrame
from oism.flow import Pixels
from oism.images import PCA, Prior
from oism.process import IdentityClock

DIM = 8
SHAPES: tuple[tuple[int, ...], ...] = ((8,), (2, 4), (2, 2, 2))


def skewed(n: int = 400, seed: int = 0) -> Tensor:
    """Return correlated rows ``(n, 8)`` of a distribution that is far from Gaussian."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(n, DIM, generator=generator, dtype=torch.float64)
    z = (0.5 * z).exp() * torch.linspace(0.2, 0.8, DIM) - 0.5
    return z + 0.4 * z.roll(1, dims=1)


def haar(x: Tensor) -> Tensor:
    left, right = x[..., ::2], x[..., 1::2]
    return torch.cat((left + right, left - right), dim=-1) / math.sqrt(2)


def unhaar(z: Tensor) -> Tensor:
    half = z.shape[-1] // 2
    low, high = z[..., :half], z[..., half:]
    return torch.stack((low + high, low - high), dim=-1).flatten(-2) / math.sqrt(2)


ROTATION = OrthogonalFrame(torch.linalg.qr(skewed(DIM))[0])
HERMITE: dict[str, tuple[int, Frame | PCA, tuple[int, ...]]] = {
    "pixels, order 1": (1, IdentityFrame(), (2, 4)),
    "pixels, order 3": (3, IdentityFrame(), (2, 2, 2)),
    "pixels, order 5": (5, IdentityFrame(), (8,)),
    "principal, order 1": (1, PCA(), (8,)),
    "principal, order 2": (2, PCA(), (2, 4)),
    "principal, order 4": (4, PCA(), (2, 2, 2)),
    "leading, order 2": (2, PCA(3), (2, 2, 2)),
    "leading, order 4": (4, PCA(3), (2, 4)),
    "cosines, order 3": (3, CosineFrame((2, 2, 2)), (2, 2, 2)),
    "wavelets, order 4": (4, TransformFrame((2, 4), haar, unhaar), (2, 4)),
    "rotated, order 3": (3, ROTATION, (8,)),
}
KINDS = [*HERMITE, "mixture", "mixture and rest"]
kinds = pytest.mark.parametrize("kind", KINDS)
TIMES = torch.tensor([0.0, 1e-4, 0.01, 0.2, 1.0, 4.0], dtype=torch.float64)


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few steps: these tests do not measure the accuracy of the flow."""
    monkeypatch.setattr("oism.images._hermite.STEPS", 8)


@cache
def prior_of(kind: str) -> Prior:
    if kind == "mixture":
        return fit_mixture(skewed().reshape(-1, 2, 4), components=3)
    if kind == "mixture and rest":
        return fit_mixture(skewed().reshape(-1, 2, 2, 2), components=3, frame=PCA(3))
    order, frame, shape = HERMITE[kind]
    return fit_prior(skewed().reshape(-1, *shape), order=order, frame=frame)


def points(prior: Prior, n: int = 6, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return rows within the data and some far away."""
    x = skewed(n, seed=1)
    x[-1] += 4.0
    return x.to(dtype).reshape(n, *prior.shape)


@kinds
def test_the_score_is_a_gradient_and_its_divergence_the_trace(kind: str) -> None:
    prior = prior_of(kind)
    x = points(prior)
    for t in TIMES.tolist():
        score, divergence = prior.score_and_divergence(x, t)
        assert torch.equal(score, prior.score(x, t))
        tau = prior.clock.inverse(t)
        assert torch.equal(prior(x, tau), prior.noise(x, tau))
        for row, own, trace in zip(x, score, divergence, strict=True):
            jacobian = torch.func.jacrev(
                lambda y, t=t: prior.score(y.reshape(1, *prior.shape), t).flatten()
            )(row.flatten())
            size = float(jacobian.abs().max())
            torch.testing.assert_close(jacobian, jacobian.mT, rtol=0, atol=1e-6 * size)
            assert float(jacobian.trace()) == pytest.approx(float(trace), rel=1e-5)
            assert own.shape == row.shape


@kinds
def test_a_time_for_every_row_is_row_by_row(kind: str) -> None:
    prior = prior_of(kind)
    x = points(prior)
    score, divergence = prior.score_and_divergence(x, TIMES)
    for i, t in enumerate(TIMES.tolist()):
        one, trace = prior.score_and_divergence(x[i : i + 1], t)
        torch.testing.assert_close(score[i : i + 1], one, rtol=1e-7, atol=1e-7)
        torch.testing.assert_close(divergence[i : i + 1], trace, rtol=1e-7, atol=1e-7)
    tau = torch.linspace(0, 1, len(x))
    for part in (prior.noise, prior.denoise):
        rows = [part(row[None], float(own)) for row, own in zip(x, tau, strict=True)]
        torch.testing.assert_close(part(x, tau), torch.cat(rows), rtol=1e-5, atol=1e-6)


@kinds
def test_noise_and_denoised_follow_from_the_score(kind: str) -> None:
    prior = prior_of(kind)
    x = points(prior)
    for tau in (0.01, 0.3, 1.0):
        integral = 0.05 * tau + 19.9 * tau**2 / 4  # ∫β/2 of the default clock
        alpha, sigma = math.exp(-integral), math.sqrt(-math.expm1(-2 * integral))
        score = prior.score(x, integral)
        torch.testing.assert_close(prior.noise(x, tau), -sigma * score, rtol=1e-9, atol=1e-12)
        clean = (x + sigma**2 * score) / alpha
        torch.testing.assert_close(prior.denoise(x, tau), clean, rtol=1e-8, atol=1e-9)


@kinds
def test_float32_agrees_with_float64(kind: str) -> None:
    prior = prior_of(kind)
    x = points(prior)
    for tau in (0.01, 0.5):
        found = prior.noise(x.float(), tau)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), prior.noise(x, tau), rtol=1e-3, atol=1e-4)
    density = prior.log_density(x[:4].float())
    assert density.dtype == torch.float32
    torch.testing.assert_close(density.double(), prior.log_density(x[:4]), rtol=1e-3, atol=1e-3)


@kinds
def test_flat_tensors_give_the_same(kind: str) -> None:
    prior = prior_of(kind)
    x = points(prior)
    torch.testing.assert_close(prior.score(x.flatten(1), 0.1), prior.score(x, 0.1).flatten(1))
    torch.testing.assert_close(prior.log_density(x.flatten(1)), prior.log_density(x))


@kinds
def test_no_rows(kind: str) -> None:
    prior = prior_of(kind)
    x = torch.zeros(0, *prior.shape)
    for t in (0.1, torch.zeros(0)):
        score, divergence = prior.score_and_divergence(x, t)
        assert score.shape == x.shape
        assert divergence.shape == (0,)
    assert prior.log_density(x).shape == (0,)
    assert prior.sample(0).shape == x.shape


@kinds
def test_samples_come_from_the_generator(kind: str) -> None:
    prior = prior_of(kind)
    one, other, third = (prior.sample(3, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert one.shape == (3, *prior.shape)
    assert torch.equal(one, other)
    assert not torch.equal(one, third)


@kinds
def test_a_copy_is_the_same(kind: str) -> None:
    prior = prior_of(kind)
    x = points(prior)
    copies = [copy.deepcopy(prior)]
    if not kind.startswith("wavelets"):  # functions of a module under importlib cannot be pickled
        copies.append(pickle.loads(pickle.dumps(prior)))
    for other in copies:
        assert torch.equal(other.score(x, 0.1), prior.score(x, 0.1))
        assert other.facts() == prior.facts()


@kinds
def test_half_precision_keeps_times_exact(kind: str) -> None:
    prior = copy.deepcopy(prior_of(kind)).half()
    x = points(prior)
    off = (prior.noise(x, 0.3) - prior_of(kind).noise(x, 0.3)).abs().max()
    assert float(off) < 2e-2


def test_facts() -> None:
    assert prior_of("leading, order 4").facts() == {
        "kind": "Hermite polynomials",
        "shape": [2, 4],
        "frame": "3 principal directions and an isotropic rest",
        "order": 4,
        "clock": "VariancePreserving(beta_0=0.1, beta_1=20.0)",
    }
    assert prior_of("cosines, order 3").facts()["frame"] == "cosines"
    assert prior_of("pixels, order 3").facts()["frame"] == "pixels"
    assert prior_of("wavelets, order 4").facts()["frame"] == "a transform"
    assert prior_of("mixture").facts()["components"] == 3
    assert prior_of("mixture").facts()["frame"] == "8 principal directions"


@given(
    shape=st.sampled_from(SHAPES),
    order=st.integers(1, 4),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    n=st.integers(1, 5),
)
def test_shapes_and_dtypes(shape: tuple[int, ...], order: int, dtype: torch.dtype, n: int) -> None:
    prior = fit_prior(skewed(40).to(dtype).reshape(-1, *shape), order=order, ridge=0.1)
    assert prior.shape == shape
    assert prior.dim == DIM
    x = skewed(n).to(dtype).reshape(-1, *shape)
    for found in (prior.noise(x, 0.2), prior.denoise(x, 0.2), prior.score(x, 0.1)):
        assert found.shape == x.shape
        assert found.dtype == dtype
        assert bool(found.isfinite().all())


# --- Gaussian data: in closed form ----------------------------------------------------------


def gaussian(mean: np.ndarray, covariance: np.ndarray) -> torch.distributions.MultivariateNormal:
    return torch.distributions.MultivariateNormal(
        torch.from_numpy(mean), torch.from_numpy(covariance), validate_args=False
    )


def log_prob(distribution: torch.distributions.Distribution, x: Tensor) -> Tensor:
    result: Tensor = distribution.log_prob(x)
    return result


def moments(x: Tensor) -> tuple[np.ndarray, np.ndarray]:
    rows = x.numpy()
    return rows.mean(axis=0), np.cov(rows.T, bias=True)


def exact_denoised(x: Tensor, mean: np.ndarray, covariance: np.ndarray, t: float) -> Tensor:
    """Return m + αC(α²C + σ²)⁻¹(x - αm)."""
    alpha, variance = math.exp(-t), -math.expm1(-2 * t)
    gain = alpha * covariance @ np.linalg.inv(alpha**2 * covariance + variance * np.eye(DIM))
    return torch.from_numpy(mean + (x.numpy() - alpha * mean) @ gain.T)


def leading(covariance: np.ndarray, count: int) -> np.ndarray:
    """Return V diag Vᵀ + rest (I - VVᵀ)."""
    values, vectors = np.linalg.eigh(covariance)
    top, rest = vectors[:, -count:], values[:-count].mean()
    kept = top * values[-count:] @ top.T
    return np.asarray(kept + rest * (np.eye(DIM) - top @ top.T))


@pytest.mark.parametrize("count", [None, 3])
def test_order_two_is_the_gaussian_of_mean_and_covariance(count: int | None) -> None:
    data = skewed()
    prior = fit_prior(data, order=2, frame=PCA(count), ridge=0.0, clock=IdentityClock(5.0))
    mean, covariance = moments(data)
    if count is not None:
        covariance = leading(covariance, count)
    x = skewed(5, seed=3)
    distribution = gaussian(mean, covariance)
    torch.testing.assert_close(
        prior.log_density(x), log_prob(distribution, x), rtol=1e-5, atol=1e-5
    )
    for t in (0.0, 0.02, 1.0):
        alpha, variance = math.exp(-t), -math.expm1(-2 * t)
        y = x.clone().requires_grad_(True)
        noised = gaussian(alpha * mean, alpha**2 * covariance + variance * np.eye(DIM))
        (expected,) = torch.autograd.grad(log_prob(noised, y).sum(), y)
        torch.testing.assert_close(prior.score(x, t), expected, rtol=1e-4, atol=1e-4)
        clean = exact_denoised(x, mean, covariance, t)
        torch.testing.assert_close(prior.denoise(x, t), clean, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("count", [None, 3])
def test_samples_of_order_two_have_the_covariance(
    count: int | None, generator: torch.Generator
) -> None:
    data = skewed()
    prior = fit_prior(data, order=2, frame=PCA(count), ridge=0.0)
    mean, covariance = moments(data)
    covariance = covariance if count is None else leading(covariance, count)
    n = 20_000
    found = moments(prior.sample(n, generator).double())
    deviation = np.sqrt(np.diag(covariance))
    assert np.abs((found[0] - mean) / deviation).max() < 5 / math.sqrt(n)
    scaled = np.abs(found[1] - covariance) / np.outer(deviation, deviation)
    assert scaled.max() < 5 * math.sqrt(2 / n)


def test_one_component_is_the_gaussian() -> None:
    """With variances drawn towards those of all rows, one component is all of them."""
    data = skewed(3000)
    one = fit_mixture(data, components=1)
    other = fit_prior(data, order=2)
    x = skewed(20, seed=3)
    torch.testing.assert_close(one.log_density(x), other.log_density(x), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(one.noise(x, 0.2), other.noise(x, 0.2), rtol=1e-3, atol=1e-3)


def test_the_clock_is_the_users() -> None:
    clock = VariancePreserving(beta_1=9.0)
    prior = fit_prior(skewed(), order=3, clock=clock)
    assert prior.clock == clock
    assert float(prior.noising.sigma(1.0)) == pytest.approx(math.sqrt(-math.expm1(-4.55)))
    x = points(prior)
    sigma = float(clock.time(0.5))
    expected = -math.sqrt(-math.expm1(-2 * sigma)) * prior.score(x, sigma)
    torch.testing.assert_close(prior.noise(x, 0.5), expected)


# --- bad arguments -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["principal, order 4", "leading, order 4", "mixture"])
def test_bad_arguments(kind: str) -> None:
    prior = prior_of(kind)
    x = points(prior)
    for part in (prior.noise, prior.denoise):
        with pytest.raises(ValueError, match=r"tau must be in \[0, 1\], but tau = 1.5"):
            part(x, 1.5)
        with pytest.raises(ValueError, match="tau must be one number or one per row: 6 rows, 3"):
            part(x, torch.zeros(3))
        with pytest.raises(ValueError, match=r"tau must have shape \(\) or \(n,\), got \(6, 1\)"):
            part(x, torch.zeros(6, 1))
        with pytest.raises(TypeError, match=r"x must be a torch\.Tensor, got ndarray"):
            part(x.numpy(), 0.5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="x must have a floating-point dtype"):
            part(x.long(), 0.5)
        with pytest.raises(ValueError, match=r"x must be tensors \(n, 2, .*\), got \(6, 7\)"):
            part(torch.zeros(6, 7), 0.5)
    with pytest.raises(ValueError, match=r"t must be in \[0, inf\), but t = -1.0"):
        prior.score(x, -1.0)
    with pytest.raises(ValueError, match="t must be one number or one per row: 6 rows, 2 values"):
        prior.score(x, torch.zeros(2))
    with pytest.raises(ValueError, match=r"x must be finite, but x\[0, 0"):
        prior.score(torch.full_like(x, math.nan), 0.1)
    with pytest.raises(ValueError, match=r"x must be tensors \(n, 2, .*\), got \(8,\)"):
        prior.log_density(torch.zeros(8))
    with pytest.raises(ValueError, match="n must be an integer >= 0, got -1"):
        prior.sample(-1)
    with pytest.raises(
        ValueError, match="bits per dimension need a model of integers: spec must have pixels"
    ):
        prior.bits_per_dim(x)


def test_bad_arguments_of_the_fit() -> None:
    x = skewed(50)
    for order, error, message in (
        (0, ValueError, "order must be an integer >= 1, got 0"),
        (10, ValueError, "order must be at most 9, got 10"),
        (2.5, TypeError, r"order must be an integer >= 1, got float 2.5"),
    ):
        with pytest.raises(error, match=message):
            fit_prior(x, order=order)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="frame must serve tensors of 8 entries, got one for 6"):
        fit_prior(x, frame=CosineFrame((2, 3)))
    with pytest.raises(TypeError, match=r"frame must be PCA\(...\) or a Frame, got str"):
        fit_prior(x, frame="pca")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="frame must be of type PCA, got IdentityFrame"):
        fit_mixture(x, frame=IdentityFrame())  # type: ignore[arg-type]
    for fit in (fit_prior, fit_mixture):
        with pytest.raises(ValueError, match="dequantise must be False for data that are not"):
            fit(x, dequantise=True)
        with pytest.raises(TypeError, match="pixels must be of type Pixels, got int"):
            fit(x, pixels=255)  # type: ignore[arg-type, call-overload]
        with pytest.raises(TypeError, match="clock must be of type Clock, got float"):
            fit(x, clock=1.0)  # type: ignore[arg-type, call-overload]
        with pytest.raises(ValueError, match="count must be at most the dimension, 8, got 9"):
            fit(x, frame=PCA(9))
    with pytest.raises(ValueError, match="count must be an integer >= 1, got 0"):
        PCA(0)
    with pytest.raises(ValueError, match="ridge must be CrossValidation"):
        fit_prior(x, ridge=-1.0)
    with pytest.raises(ValueError, match="components must be at most the number of rows, 50, got"):
        fit_mixture(x, components=51)
    with pytest.raises(ValueError, match="components must be an integer >= 1, got 0"):
        fit_mixture(x, components=0)


# --- data with little to them --------------------------------------------------------------------


def degenerate(case: str) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (40, 1, 2, 3), generator=generator).byte()
    if case == "constant pixels":
        x[:, :, 0] = 9
        return x
    return {"one row": x[:1], "twice": x[:1].repeat(2, 1, 1, 1), "few": x[:4]}.get(
        case, x[:1].repeat(30, 1, 1, 1)
    )


FRAMES: dict[str, Frame | PCA] = {
    "principal": PCA(),
    "leading": PCA(2),
    "pixels": IdentityFrame(),
    "cosines": CosineFrame((1, 2, 3)),
}
SCARCE = {
    f"{name}, order {order}": (order, frame) for order in (2, 5) for name, frame in FRAMES.items()
}


@pytest.mark.parametrize("case", ["constant pixels", "one row", "twice", "few", "all equal"])
@pytest.mark.parametrize("dequantise", [True, False])
@pytest.mark.parametrize("kind", [*SCARCE, "mixture", "mixture and rest"])
def test_everything_is_finite(case: str, dequantise: bool, kind: str) -> None:
    data = degenerate(case)
    prior: Prior
    if kind in SCARCE:
        order, frame = SCARCE[kind]
        prior = fit_prior(data, order=order, frame=frame, ridge=0.01, dequantise=dequantise)
    else:
        principal = PCA(2) if kind.endswith("rest") else PCA()
        prior = fit_mixture(data, components=1, frame=principal, dequantise=dequantise)
    generator = torch.Generator().manual_seed(1)
    x = torch.cat((torch.randn(3, 1, 2, 3, generator=generator), Pixels().units(data[:2])))
    for t in (0.0, 0.3, torch.linspace(0, 5, len(x))):
        score, divergence = prior.score_and_divergence(x, t)
        assert bool(score.isfinite().all())
        assert bool(divergence.isfinite().all())
    assert bool(prior.log_density(x).isfinite().all())
    assert bool(prior.sample(3).isfinite().all())
    assert bool(prior.bits_per_dim(data[:2]).isfinite().all())
    error = prior.expected_error(torch.linspace(0, 1, 9))
    assert bool(((error >= 0) & (error <= 1)).all())


@pytest.mark.parametrize("kind", [*SCARCE, "mixture", "mixture and rest"])
def test_all_rows_equal_are_what_is_denoised(kind: str) -> None:
    data = degenerate("all equal")
    prior: Prior
    if kind in SCARCE:
        order, frame = SCARCE[kind]
        prior = fit_prior(data, order=order, frame=frame, ridge=0.01, dequantise=False)
    else:
        prior = fit_mixture(data, components=1, dequantise=False)
    x = torch.randn(2, 1, 2, 3, generator=torch.Generator().manual_seed(1))
    expected = Pixels().units(data[:2])
    torch.testing.assert_close(prior.denoise(x, 0.5), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("case", ["one row", "twice", "all equal"])
def test_one_fold_is_too_few_to_choose_by(case: str) -> None:
    data = degenerate(case)
    with pytest.raises(ValueError, match="data must fall into at least two folds for cross-val"):
        fit_prior(data, order=3)
    assert bool(fit_prior(data, order=2).noise(torch.zeros(1, 1, 2, 3), 0.5).isfinite().all())


@pytest.mark.parametrize("order", [2, 3])
def test_fewer_rows_than_directions(order: int) -> None:
    """The variances of the sample are 0 along most directions, those of new rows are not."""
    generator = torch.Generator().manual_seed(0)
    spread = torch.linspace(1, 0.1, 40, dtype=torch.float64)
    x = spread * torch.randn(90, 40, generator=generator, dtype=torch.float64)
    train, test = x[:25], x[25:]
    validated = fit_prior(train, order=order).log_density(test)
    sample = fit_prior(train, order=order, ridge=0.01).log_density(test)
    normal = log_prob(torch.distributions.Normal(0.0, spread), test).sum(dim=1)
    assert bool(validated.isfinite().all())
    assert float((validated - sample).mean()) > 100
    assert float((normal - validated).mean()) < 20, "half a nat a dimension from the truth"


# What a first user stumbled over.


def byte_images(n: int = 60) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randint(0, 256, (n, 3, 4, 5), generator=generator).byte()


def test_other_orders_of_the_axes_are_refused() -> None:
    prior = fit_prior(byte_images(), order=2)
    x = torch.randn(2, 3, 4, 5)
    with pytest.raises(
        ValueError, match=r"x must be tensors \(n, 3, 4, 5\), or flat ones \(n, 60\)"
    ):
        prior.noise(x.permute(0, 2, 3, 1), 0.5)
    torch.testing.assert_close(prior.noise(x.flatten(1), 0.5), prior.noise(x, 0.5).flatten(1))


def test_batches_may_come_with_labels() -> None:
    images = byte_images()
    labels = torch.arange(len(images))
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(images, labels), batch_size=13
    )
    x = torch.randn(2, 3, 4, 5)
    labelled = fit_prior(loader, order=3)
    plain = fit_prior(list(torch.split(images, 13)), order=3)
    torch.testing.assert_close(labelled.noise(x, 0.1), plain.noise(x, 0.1))


def test_integers_other_than_bytes_need_their_range() -> None:
    images = byte_images().long()
    others = (np.uint16, np.uint32, np.uint64, np.dtype(">i4"))
    for some in (images, *(images.numpy().astype(kind) for kind in others)):
        with pytest.raises(TypeError, match="pixels must be given for integers other than bytes"):
            fit_prior(some)
    x = torch.randn(2, 3, 4, 5)
    told = fit_prior(images, order=2, pixels=Pixels())
    torch.testing.assert_close(told.noise(x, 0.1), fit_prior(images.byte(), order=2).noise(x, 0.1))
    with pytest.raises(ValueError, match=r"values must be whole numbers, but row 0"):
        told.prepare(images / 255.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_functions_of_time_have_its_dtype(dtype: torch.dtype) -> None:
    prior, tau = fit_prior(byte_images(), order=2), torch.rand(4, dtype=dtype)
    assert {f(tau).dtype for f in (prior.expected_error, prior.gate, prior.output_scale)} == {dtype}
    assert "principal directions" in repr(prior)


def test_directions_of_large_images_are_refused() -> None:
    images = torch.zeros(2, 3, 100, 100, dtype=torch.uint8)
    with pytest.raises(
        ValueError, match=r"30000 entries are too large .* at most 16384.*--frame cosine"
    ):
        fit_prior(images, order=2)
    images[1] = 255
    prior = fit_prior(images, order=2, frame=CosineFrame((3, 100, 100)))
    assert bool(prior.noise(torch.randn(1, 3, 100, 100), 0.5).isfinite().all())
