"""Parametrisations: each against its definition, and operator preconditioning against EDM."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import oism
from oism import OrnsteinUhlenbeck, VariancePreserving, fit_prior
from oism.basis import Frame, IdentityFrame
from oism.images import PCA, Prior
from oism.nn import (
    EDM,
    MLP,
    Clean,
    Combined,
    Diffusion,
    GaussianSkip,
    Noise,
    OperatorInformed,
    OperatorPreconditioning,
    Parametrisation,
    Parametrised,
    Velocity,
)
from oism.objectives import DenoisingScoreMatching, NormalLogSNR, OutputMatching, UniformLogSNR
from oism.process import Noising

CLOCK = VariancePreserving()
NOISING = Noising(OrnsteinUhlenbeck(), CLOCK)
DIM = 12
TIMES = torch.tensor([1e-5, 1e-3, 0.1, 0.4, 0.9, 1.0], dtype=torch.float64)


class Zero(nn.Module):
    """A network that returns zeros."""

    def forward(self, x: Tensor, tau: Tensor) -> Tensor:
        return torch.zeros_like(x)


class Known(nn.Module):
    """A network that returns what it is told to, and keeps its input."""

    def __init__(self, output: Tensor) -> None:
        super().__init__()
        self.output = output

    def forward(self, x: Tensor, tau: Tensor) -> Tensor:
        self.seen = x
        return self.output


def gaussian_rows(n: int = 400, seed: int = 0) -> Tensor:
    """Return rows with a mean and correlated columns, in float64."""
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(DIM, DIM, dtype=torch.float64, generator=generator) / 4
    rows = torch.randn(n, DIM, dtype=torch.float64, generator=generator) @ mix
    return rows + torch.linspace(-1, 1, DIM, dtype=torch.float64)


@pytest.fixture(scope="module")
def prior() -> Prior:
    return fit_prior(gaussian_rows(), order=2, flip=False)


def draws(n: int = len(TIMES)) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return clean rows, noise, noised rows, α and σ at the times."""
    generator = torch.Generator().manual_seed(1)
    clean = gaussian_rows(n, seed=2)
    noise = torch.randn(n, DIM, dtype=torch.float64, generator=generator)
    alpha, sigma = NOISING.alpha(TIMES)[:, None], NOISING.sigma(TIMES)[:, None]
    return clean, noise, alpha * clean + sigma * noise, alpha, sigma


def test_each_predicts_what_it_says() -> None:
    """With the true value as output, the predicted noise is the true noise."""
    clean, noise, x, alpha, sigma = draws()
    truth: dict[Parametrisation, Tensor] = {
        Noise(): noise, Velocity(): alpha * noise - sigma * clean, Clean(): clean,
    }  # fmt: skip
    for parametrisation, output in truth.items():
        found = Parametrised(Known(output), parametrisation, CLOCK)(x, TIMES)
        torch.testing.assert_close(found, noise, rtol=1e-9, atol=1e-9)


@given(deviation=st.floats(0.05, 5.0))
def test_edm_is_that_of_karras(deviation: float) -> None:
    """The denoiser is c_skip y + c_out F(c_in y) for y = x/α and the deviation σ/α of its noise."""
    _, _, x, alpha, sigma = draws()
    output = torch.randn(x.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    net = Known(output)
    noise = Parametrised(net, EDM(deviation), CLOCK)(x, TIMES)
    y, s = x / alpha, sigma / alpha
    total = s**2 + deviation**2
    torch.testing.assert_close(net.seen, y / total.sqrt(), rtol=1e-12, atol=1e-12)
    denoised = deviation**2 / total * y + s * deviation / total.sqrt() * output
    torch.testing.assert_close((x - sigma * noise) / alpha, denoised, rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize(("frame", "exact"), [(IdentityFrame(), 1e-12), (PCA(), 1e-5)])
def test_the_isotropic_case_is_edm(
    frame: Frame | PCA, exact: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To rounding; principal directions are stored in float32."""
    prior = fit_prior(gaussian_rows(), order=2, flip=False, frame=frame)
    part = prior.gaussian_part()
    zero, variances = torch.zeros_like(part.mean), torch.full_like(part.variances, 0.49)
    isotropic = type(part)(part.frame, part.dim, zero, variances)
    monkeypatch.setattr(type(prior), "gaussian_part", lambda self: isotropic)
    _, _, x, _, _ = draws()
    net = MLP(DIM).double()
    edm = Parametrised(net, EDM(0.7), prior.clock)(x, TIMES)
    for kind in (OperatorPreconditioning, GaussianSkip):
        own = Parametrised(net, kind(prior))(x, TIMES)
        torch.testing.assert_close(own, edm, rtol=exact, atol=exact)


def test_velocity_is_edm_with_variance_one() -> None:
    _, _, x, _, _ = draws()
    net = MLP(DIM).double()

    class Negative(nn.Module):
        def forward(self, x: Tensor, tau: Tensor) -> Tensor:
            output: Tensor = net(x, tau)
            return -output

    found = Parametrised(net, Velocity(), CLOCK)(x, TIMES)
    other = Parametrised(Negative(), EDM(1.0), CLOCK)(x, TIMES)
    torch.testing.assert_close(found, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", [OperatorPreconditioning, GaussianSkip])
def test_a_network_without_weights_is_the_gaussian(
    prior: Prior, kind: Callable[[Prior], Parametrisation]
) -> None:
    """The predicted noise is that of N(m, C), by its own matrix."""
    _, _, x, alpha, sigma = draws()
    found = Parametrised(Zero(), kind(prior))(x, TIMES)
    torch.testing.assert_close(found, prior.noise(x, TIMES), rtol=1e-5, atol=1e-6)
    part = prior.gaussian_part()
    matrix = part.frame.directions(DIM)
    for i in range(len(TIMES)):
        covariance = matrix.mT @ torch.diag(part.variances) @ matrix * alpha[i] ** 2
        covariance = covariance + sigma[i] ** 2 * torch.eye(DIM, dtype=torch.float64)
        mean = alpha[i] * (matrix.mT @ part.mean)
        exact = sigma[i] * torch.linalg.solve(covariance, x[i] - mean)
        torch.testing.assert_close(found[i], exact, rtol=1e-5, atol=1e-5)


def test_inputs_and_wanted_outputs_are_standardised(prior: Prior) -> None:
    n = 20_000
    clean = prior.sample(n, torch.Generator().manual_seed(0)).double()
    noise = torch.randn(
        clean.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    net = Known(torch.zeros_like(clean))
    predictor = Parametrised(net, OperatorPreconditioning(prior))
    for tau in (1e-4, 0.2, 0.9):
        times = torch.full((n,), tau, dtype=torch.float64)
        alpha, sigma = NOISING.alpha(times)[:, None], NOISING.sigma(times)[:, None]
        known = predictor(alpha * clean + sigma * noise, times)
        wanted = predictor.output(known - noise, times)
        for rows in (net.seen, wanted):
            unit = torch.eye(DIM, dtype=torch.float64)
            torch.testing.assert_close(torch.cov(rows.T), unit, rtol=0, atol=0.05)
            assert float(rows.mean(0).abs().max()) < 0.05


@pytest.mark.parametrize("frame", [PCA(), PCA(2)])
def test_a_gaussian_skip_is_scaled_as_edm(frame: PCA) -> None:
    """Inputs are x - αm times EDM's c_in, and outputs are added with its scale."""
    prior = fit_prior(gaussian_rows(), order=2, flip=False, frame=frame)
    _, _, x, alpha, sigma = draws()
    generator = torch.Generator().manual_seed(3)
    output = torch.randn(x.shape, dtype=torch.float64, generator=generator)
    net, part = Known(output), prior.gaussian_part()
    found = Parametrised(net, GaussianSkip(prior))(x, TIMES)
    variance = prior.sample(200_000, generator).double().var(dim=0).mean()
    torch.testing.assert_close(
        variance, (part.variances * part.dimensions).sum() / DIM, rtol=0.02, atol=0
    )
    variance = (part.variances * part.dimensions).sum() / DIM
    total = alpha**2 * variance + sigma**2
    centred = x - alpha * part.synthesise(part.mean[None])
    torch.testing.assert_close(net.seen, centred / total.sqrt(), rtol=1e-5, atol=1e-5)
    expected = prior.noise(x, TIMES) - alpha * (variance / total).sqrt() * output
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("make", [Noise, Velocity, Clean, EDM])
def test_the_residual_of_outputs_is_that_of_the_network(
    make: Callable[[], Parametrisation],
) -> None:
    x = draws()[2]
    generator = torch.Generator().manual_seed(4)
    one, other = torch.randn(2, *x.shape, dtype=torch.float64, generator=generator)
    first, second = (Parametrised(Known(out), make(), CLOCK)(x, TIMES) for out in (one, other))
    found = Parametrised(Zero(), make(), CLOCK).output(first - second, TIMES)
    torch.testing.assert_close(found, one - other, rtol=1e-6, atol=1e-6)


def test_the_loss_of_outputs_is_a_weighted_loss_of_noise() -> None:
    """For the velocity the weight is 1/α²; that of the noise itself is 1."""
    clean, noise, x, alpha, _ = draws()
    net = MLP(DIM).double()
    for make, weight in ((Noise, torch.ones_like(alpha)), (Velocity, alpha**-2)):
        predictor = Parametrised(net, make(), CLOCK)
        loss = OutputMatching(UniformLogSNR(NOISING), predictor)
        errors = (predictor(x, TIMES) - noise).square().mean(1, keepdim=True)
        expected = (weight * errors).mean()
        torch.testing.assert_close(loss.loss(predictor, clean, TIMES, noise), expected)
    with pytest.raises(TypeError, match="outputs must be a predictor with a parametrisation"):
        OutputMatching(UniformLogSNR(NOISING), net)  # type: ignore[arg-type]


def test_levels_of_edm_are_normal() -> None:
    levels = NormalLogSNR(NOISING, 1e-5)
    tau = levels.draw(20_000, torch.Generator().manual_seed(0))
    log_sigma = -0.5 * NOISING.log_snr(tau)
    assert abs(float(log_sigma.mean()) + 1.2) < 0.02
    assert abs(float(log_sigma.std()) - 1.2) < 0.02
    grid = torch.linspace(-11.5, 0, 20_001, dtype=torch.float64).exp()
    inside = grid[(grid > levels.first) & (grid < levels.last)]
    assert abs(float(torch.trapezoid(levels.density(inside), inside)) - 1) < 1e-3
    low, high = levels.at(torch.tensor([0.3, 0.7], dtype=torch.float64)).tolist()
    between = torch.linspace(low, high, 20_001, dtype=torch.float64)
    assert float(torch.trapezoid(levels.density(between), between)) == pytest.approx(0.4, abs=1e-6)
    with pytest.raises(ValueError, match="mean must be within reach"):
        NormalLogSNR(NOISING, mean=80.0, deviation=0.1)


@pytest.mark.parametrize("kind", [OperatorPreconditioning, GaussianSkip])
def test_gaussian_data_are_learned_by_a_network_without_weights(
    prior: Prior, kind: Callable[[Prior], Parametrisation]
) -> None:
    """Its error is the smallest possible one, that of the Gaussian's own noise."""
    predictor = Combined(Parametrised(Zero(), kind(prior)), prior)
    loss = DenoisingScoreMatching(UniformLogSNR(NOISING))
    x = prior.sample(4000, torch.Generator().manual_seed(0))
    found = float(loss(predictor.net, x, torch.Generator().manual_seed(1)))
    levels = UniformLogSNR(NOISING).at(torch.rand(4000, dtype=torch.float64))
    alpha, sigma = NOISING.alpha(levels)[:, None], NOISING.sigma(levels)[:, None]
    signal = alpha**2 * prior.gaussian_part().variances
    assert found == pytest.approx(float((signal / (signal + sigma**2)).mean()), abs=0.01)


@pytest.mark.parametrize("kind", [OperatorPreconditioning, GaussianSkip])
def test_a_combined_network_is_stored_with_one_prior(
    prior: Prior, kind: Callable[[Prior], Parametrisation], tmp_path: Path
) -> None:
    net = Parametrised(MLP(DIM), kind(prior))
    combined = Combined(net, prior)
    combined.share.fill_(0.5)
    model = Diffusion(combined)
    model.save(tmp_path / "model.safetensors")
    loaded = oism.load(tmp_path / "model.safetensors")
    assert type(loaded.net.parametrisation) is type(net.parametrisation)
    assert loaded.informed.prior is loaded.net.prior
    x = torch.randn(5, DIM)
    torch.testing.assert_close(loaded.noise(x, 0.3), model.noise(x, 0.3), rtol=0, atol=0)
    plain = Diffusion(Combined(Parametrised(MLP(DIM), EDM(0.4), prior.clock), prior))
    plain.save(tmp_path / "plain.safetensors")
    other = oism.load(tmp_path / "plain.safetensors")
    assert other.net.parametrisation == EDM(0.4)


def test_mistakes_are_named(prior: Prior) -> None:
    with pytest.raises(TypeError, match="clock must be given"):
        Parametrised(MLP(DIM), Velocity())
    with pytest.raises(ValueError, match="clock must be that of the prior"):
        Parametrised(MLP(DIM), OperatorPreconditioning(prior), VariancePreserving(0.2))
    with pytest.raises(ValueError, match="deviation must be"):
        EDM(-1.0)
    with pytest.raises(TypeError, match="parametrisation"):
        Parametrised(MLP(DIM), "v", CLOCK)  # type: ignore[arg-type]


def test_one_number_is_the_time_of_all_rows() -> None:
    rows = gaussian_rows()
    prior = fit_prior(rows, order=2)
    x = torch.randn(5, DIM, generator=torch.Generator().manual_seed(0))
    net = MLP(DIM)
    for predictor in (
        Combined(net, prior),
        OperatorInformed(net, prior),
        Parametrised(net, Velocity(), CLOCK),
    ):
        expected = predictor(x, torch.full((5,), 0.25))
        torch.testing.assert_close(predictor(x, 0.25), expected)
