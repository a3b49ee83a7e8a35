"""A noise predictor as a model: that of a Gaussian, for which all has a closed form."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from oism import DDPMpp, Diffusion, OrnsteinUhlenbeck, VariancePreserving, fit_prior
from oism.basis import IdentityFrame
from oism.flow import ExactTrace, Hutchinson, Pixels, RungeKutta4, TensorSpec, log_density
from oism.images import Prior
from oism.nn import MLP, OperatorInformed, half_precision
from oism.nn._contexts import no_gradients_of
from oism.process import IdentityClock, Noising

CLOCK = VariancePreserving()
OU = Noising(OrnsteinUhlenbeck(), CLOCK)
PLANE = TensorSpec((2,), CLOCK)
MEAN = torch.tensor([0.3, -0.2], dtype=torch.float64)
VARIANCE = torch.tensor([0.01, 0.5], dtype=torch.float64)


class Gaussian(nn.Module):
    """The exact noise predictor of N(m, diag v): ε̂ = σ(x - αm)/(α²v + σ²)."""

    def forward(self, x: Tensor, tau: Tensor) -> Tensor:
        alpha, sigma = (part(tau.double())[:, None].to(x) for part in (OU.alpha, OU.sigma))
        mean, variance = MEAN.to(x), VARIANCE.to(x)
        return sigma * (x - alpha * mean) / (alpha**2 * variance + sigma**2)


class Silent(nn.Module):
    """A network that adds nothing."""

    def forward(self, x: Tensor, tau: Tensor) -> Tensor:
        return torch.zeros_like(x)


def moments_at(tau: float) -> tuple[Tensor, Tensor]:
    """Return mean and deviation of the Gaussian at a clock time."""
    alpha, sigma = float(OU.alpha(tau)), float(OU.sigma(tau))
    return alpha * MEAN, (alpha**2 * VARIANCE + sigma**2).sqrt()


def carried(z: Tensor, first: float) -> Tensor:
    """Return where the flow ends that starts at z: the affine map of one Gaussian to the other."""
    (mean, spread), (noise_mean, noise_spread) = moments_at(first), moments_at(1.0)
    return mean + spread * (z - noise_mean) / noise_spread


def test_the_flow_is_the_affine_map_of_gaussians() -> None:
    model = Diffusion(Gaussian(), PLANE)
    found = model.sample(50, torch.Generator().manual_seed(3))
    z = torch.randn(50, 2, generator=torch.Generator().manual_seed(3)).double()
    assert found.shape == (50, 2)
    np.testing.assert_allclose(found, carried(z, model.first), atol=2e-4)


def test_the_order_of_runge_kutta_over_the_clock_of_the_model() -> None:
    model = Diffusion(Gaussian(), PLANE, first=1e-4)
    z = torch.randn(20, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    exact = carried(z, 1e-4)
    steps = np.array([16, 32, 64, 128])
    errors = [
        float((model.flow.pull(z, method=RungeKutta4(int(n))) - exact).abs().max()) for n in steps
    ]
    slopes = np.diff(np.log(errors)) / np.diff(np.log(steps))
    assert slopes[-1] == pytest.approx(-4, abs=0.25)
    assert errors[-1] < 1e-5
    # Over the clock of training the first step meets nearly all of the change at once.
    plain = type(model.flow)(model.flow.score, OU.process, CLOCK, span=(1e-4, 1.0))
    assert float((plain.pull(z, method=RungeKutta4(32)) - exact).abs().max()) > 10 * errors[1]


def test_moments_of_samples() -> None:
    model = Diffusion(Gaussian(), PLANE)
    x = model.sample(4000, torch.Generator().manual_seed(0)).double()
    mean, spread = moments_at(model.first)
    np.testing.assert_allclose((x.mean(dim=0) - mean) / spread, 0, atol=4 / math.sqrt(4000))
    np.testing.assert_allclose(x.std(dim=0) / spread, 1, atol=4 / math.sqrt(8000))
    assert abs(float(torch.corrcoef(x.T)[0, 1])) < 4 / math.sqrt(4000)


def test_densities_where_random_signs_make_no_error() -> None:
    """The Jacobian is diagonal, so that v·Jv is its trace."""
    model = Diffusion(Gaussian(), PLANE)
    z = torch.linspace(-3, 3, 20, dtype=torch.float64)[:, None].expand(20, 2)
    x = carried(z, model.first)
    (_, spread), (_, noise_spread) = moments_at(model.first), moments_at(1.0)
    normal = -0.5 * z.square() - 0.5 * math.log(2 * math.pi)
    expected = (normal - (spread / noise_spread).log()).sum(dim=1)
    np.testing.assert_allclose(model.log_density(x), expected, atol=1e-3)
    fine = model.log_density(x, method=RungeKutta4(96))
    np.testing.assert_allclose(fine, expected, atol=1e-5)
    assert model.log_density(x.float()).dtype == torch.float32
    np.testing.assert_allclose(model.log_density(x.float()), expected, atol=3e-3)


SHAPE = (1, 2, 3)


def images(n: int = 400) -> Tensor:
    """Return correlated integers from 0 to 16."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(n, 6, generator=generator)
    z = z + 0.8 * z.roll(1, dims=1)
    return (8 + 2 * z).round().clamp(0, 16).reshape(n, *SHAPE)


@cache
def gaussian_prior(frame: str) -> Prior:
    own = IdentityFrame() if frame == "pixels" else None
    return fit_prior(images(), order=2, pixels=Pixels(0, 16), frame=own)


@pytest.mark.parametrize("frame", ["pixels", "principal"])
def test_bits_per_dimension_are_those_of_the_prior_itself(frame: str) -> None:
    prior = gaussian_prior(frame)
    model = Diffusion(OperatorInformed.paper(Silent(), prior), prior.spec)
    values = images()[:300]
    source = torch.Generator().manual_seed(1)
    found = model.bits_per_dim(values.double(), source, divergence=Hutchinson(source, probes=16))
    expected = prior.bits_per_dim(values.double())
    gap = found - expected
    # A draw of the dequantisation, and of signs, instead of their expectations.
    error = float(gap.std()) / math.sqrt(len(gap))
    assert float(gap.mean()) == pytest.approx(0, abs=4 * error + 1e-3)
    assert error < 0.012
    x = prior.prepare(values[:20].double(), torch.Generator().manual_seed(2))
    flow = log_density(model.flow, x, method=RungeKutta4(48), divergence=ExactTrace())
    np.testing.assert_allclose(flow, prior.log_density(x), atol=5e-3)


def test_bits_are_drawn_from_one_generator() -> None:
    prior = gaussian_prior("principal")
    model = Diffusion(OperatorInformed.paper(Silent(), prior), prior.spec)
    values = images()[:3].byte()
    method = RungeKutta4(4)
    same = [model.bits_per_dim(values, method=method) for _ in range(2)]
    assert torch.equal(*same), "without one, from a seed"
    given = [
        model.bits_per_dim(values, torch.Generator().manual_seed(seed), method=method)
        for seed in (0, 1)
    ]
    assert torch.equal(given[0], same[0])
    assert not torch.equal(given[1], same[0])


def test_more_probes_are_nearer_to_the_trace() -> None:
    prior = gaussian_prior("principal")
    model = Diffusion(OperatorInformed.paper(Silent(), prior), prior.spec)
    x = prior.prepare(images()[:60].double(), torch.Generator().manual_seed(2))
    method = RungeKutta4(8)
    exact = log_density(model.flow, x, method=method, divergence=ExactTrace())
    off = []
    for probes in (1, 16):
        signs = Hutchinson(torch.Generator().manual_seed(0), probes)
        found = model.log_density(x, method=method, divergence=signs)
        off.append(float((found - exact).square().mean().sqrt()))
    assert off[1] == pytest.approx(off[0] / 4, rel=0.4)


def test_samples_of_an_informed_model_have_the_moments_of_the_prior() -> None:
    prior = gaussian_prior("principal")
    model = Diffusion(OperatorInformed.paper(Silent(), prior), prior.spec)
    n = 3000
    x = model.sample(n, torch.Generator().manual_seed(0)).flatten(1).double()
    other = prior.prepare(images().double(), torch.Generator().manual_seed(1)).flatten(1)
    np.testing.assert_allclose(x.mean(dim=0), other.mean(dim=0), atol=0.06)
    np.testing.assert_allclose(torch.cov(x.T), torch.cov(other.T), atol=0.02)


def dropping() -> DDPMpp:
    net = DDPMpp((1, 2, 4), width=4, multipliers=(1, 1), blocks=1, attention=(), dropout=0.5)
    for part in net.parameters():
        nn.init.normal_(part, std=0.3)
    return net


def test_dropout_is_off_and_on_again() -> None:
    net = dropping()
    model = Diffusion(net, TensorSpec(net.shape, CLOCK))
    net.down[0].eval()
    modes = [part.training for part in net.modules()]
    assert not all(modes)
    x, tau = torch.randn(3, *net.shape), torch.rand(3)
    one, other = model.noise(x, tau), model.noise(x, tau)
    assert torch.equal(one, other)
    assert torch.equal(one, net.eval()(x, tau))
    net.train()
    net.down[0].eval()
    with pytest.raises(ValueError, match="x must be images"):
        model.noise(x[..., :1], tau)
    assert [part.training for part in net.modules()] == modes


def test_parts_are_put_into_evaluation_mode_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples and densities take many evaluations, and to visit all parts takes time."""
    net, calls = MLP(2, width=4).train(), []
    model, real = Diffusion(net, PLANE), net.eval

    def counted() -> nn.Module:
        calls.append(net.training)
        return real()

    monkeypatch.setattr(net, "eval", counted)
    model.sample(3, method=RungeKutta4(2))
    assert calls == [True]
    model.sample(3, evaluations=4)
    model.log_density(torch.zeros(2, 2), method=RungeKutta4(2))
    model.noise(torch.zeros(2, 2), 0.5)
    assert calls == [True] * 4
    assert all(part.training for part in net.modules())


def test_noise_has_the_dtype_of_the_tensors() -> None:
    model = Diffusion(MLP(2), PLANE)
    for dtype in (torch.float32, torch.float64):
        x = torch.randn(3, 2, dtype=dtype)
        assert model.noise(x, 0.5).dtype == dtype
        assert torch.equal(model.noise(x, 0.5), model.noise(x, torch.full((3,), 0.5)))
    with pytest.raises(ValueError, match="tau must be one number or one per row: 3 rows"):
        model.noise(x, torch.zeros(2))


def test_half_precision() -> None:
    net, x = MLP(2).requires_grad_(False), torch.randn(5, 2)
    exact, half = (Diffusion(net, PLANE, precision=p).noise(x, 0.5) for p in ("no", "bf16"))
    assert half.dtype == torch.float32
    assert not torch.equal(exact, half)
    torch.testing.assert_close(exact, half, rtol=0.05, atol=0.02)
    with half_precision(torch.device("cpu"), "no"):
        assert not torch.is_autocast_enabled("cpu")
    with half_precision(torch.device("cpu"), "bf16"):
        assert torch.get_autocast_dtype("cpu") == torch.bfloat16
        assert torch.is_autocast_enabled("cpu")
    with (
        pytest.raises(ValueError, match="precision must be 'no', 'bf16' or 'fp16', got 'fp8'"),
        half_precision(torch.device("cpu"), "fp8"),
    ):
        pass


def test_densities_leave_the_network_as_it_was() -> None:
    net = MLP(2, width=8)
    net.first.bias.requires_grad_(False)
    wanted = [part.requires_grad for part in net.parameters()]
    found = Diffusion(net, PLANE).log_density(torch.zeros(2, 2), method=RungeKutta4(2))
    assert not found.requires_grad
    assert [part.requires_grad for part in net.parameters()] == wanted
    assert all(part.grad is None for part in net.parameters())
    with no_gradients_of(net):
        assert not any(part.requires_grad for part in net.parameters())
    assert [part.requires_grad for part in net.parameters()] == wanted


def test_many_rows_go_in_chunks() -> None:
    seen = []

    class Watched(Gaussian):
        def forward(self, x: Tensor, tau: Tensor) -> Tensor:
            seen.append(len(x))
            return super().forward(x, tau)

    model = Diffusion(Watched(), PLANE)
    model.chunk = 4
    found = model.sample(10, torch.Generator().manual_seed(0), method=RungeKutta4(2))
    assert max(seen) == 4
    model.chunk = 100
    whole = model.sample(10, torch.Generator().manual_seed(0), method=RungeKutta4(2))
    torch.testing.assert_close(found, whole)
    assert model.sample(0).shape == (0, 2)


def test_the_properties_of_a_model() -> None:
    prior = gaussian_prior("principal")
    model = Diffusion(OperatorInformed.paper(Silent(), prior), prior.spec, first=1e-3)
    assert (model.shape, model.dim, model.pixels) == (SHAPE, 6, Pixels(0, 16))
    assert model.clock == prior.clock
    assert model.device == torch.device("cpu")
    assert Diffusion(Gaussian(), PLANE).device == torch.device("cpu")
    values = images()[:4]
    ways = [m.prepare(values, torch.Generator().manual_seed(0)) for m in (model, prior)]
    assert torch.equal(*ways)
    first = model.flow.noising.clock.time(model.flow.span[0])
    assert float(first) == pytest.approx(float(CLOCK.time(1e-3)), rel=1e-9)
    assert model.to("cpu") is model


def test_the_spec_is_that_of_the_prior() -> None:
    prior = gaussian_prior("principal")
    assert Diffusion(OperatorInformed.paper(Silent(), prior)).spec == prior.spec
    with pytest.raises(TypeError, match="spec must be given for a predictor without a prior"):
        Diffusion(MLP(2))


def test_score_denoised_and_forward_follow_from_the_noise() -> None:
    model, x = Diffusion(Gaussian(), PLANE), torch.randn(4, 2, dtype=torch.float64)
    tau = torch.tensor([1e-3, 0.1, 0.5, 1.0], dtype=torch.float64)
    alpha, sigma = OU.alpha(tau)[:, None], OU.sigma(tau)[:, None]
    noise = model.noise(x, tau)
    assert torch.equal(model(x, tau), noise)
    torch.testing.assert_close(model.score(x, CLOCK.time(tau)), -noise / sigma)
    torch.testing.assert_close(model.denoise(x, tau), (x - sigma * noise) / alpha)
    torch.testing.assert_close(model.denoise(x, 0.0), x, msg="nothing was added")
    with pytest.raises(ValueError, match=r"tau must be in \[0, 1\], but tau = 1\.5"):
        model.noise(x, 1.5)


def test_facts() -> None:
    prior = gaussian_prior("principal")
    net = MLP(2, width=4, depth=0)
    assert Diffusion(net, PLANE).facts() == {
        "kind": "trained model",
        "shape": [2],
        "pixels": None,
        "dequantised": False,
        "network": {"kind": "MLP", **net.to_config()},
        "parameters": sum(part.numel() for part in net.parameters()),
        "prior": None,
        "clock": {"kind": "VariancePreserving", "beta_0": 0.1, "beta_1": 20.0},
        "first": 1e-5,
        "precision": "no",
    }
    found = Diffusion(OperatorInformed.paper(Silent(), prior)).facts()
    assert found["network"] == {"kind": f"{__name__}.Silent"}
    assert found["pixels"] == [0, 16]
    assert found["prior"] == prior.facts()
    form = {"kind": "OperatorInformed", "gate": {"kind": "Open"}, "condition": False}
    assert found["form"] == form


def test_a_model_is_a_module() -> None:
    model = Diffusion(MLP(2), PLANE)
    assert set(model.state_dict()) == {f"predictor.{name}" for name in MLP(2).state_dict()}
    assert {part.dtype for part in model.double().parameters()} == {torch.float64}


def test_mistakes() -> None:
    net = MLP(2)
    with pytest.raises(TypeError, match="predictor must be of type Module, got function"):
        Diffusion(lambda x, tau: x, PLANE)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="spec must be of type TensorSpec, got tuple"):
        Diffusion(net, (2,))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"first must be a positive finite number, got 0\.0"):
        Diffusion(net, PLANE, first=0.0)
    with pytest.raises(
        ValueError, match=r"first must be less than the clock's horizon 1, got 2\.0"
    ):
        Diffusion(net, PLANE, first=2.0)
    with pytest.raises(ValueError, match="precision must be 'no', 'bf16' or 'fp16', got 'half'"):
        Diffusion(net, PLANE, precision="half")
    with pytest.raises(ValueError, match=r"the shape \(2,\) of the spec, got \(3,\)"):
        Diffusion(MLP(3), PLANE)
    prior = gaussian_prior("principal")
    other = TensorSpec(SHAPE, IdentityClock(2.0))
    with pytest.raises(ValueError, match=r"with the clock of the spec, IdentityClock\("):
        Diffusion(OperatorInformed.paper(Silent(), prior), other)
    model = Diffusion(net, PLANE)
    with pytest.raises(ValueError, match="bits per dimension need a model of integers"):
        model.bits_per_dim(torch.zeros(1, 2))
    with pytest.raises(ValueError, match="n must be an integer >= 0, got -1"):
        model.sample(-1)
    informed = Diffusion(OperatorInformed.paper(Silent(), prior), prior.spec)
    with pytest.raises(ValueError, match="values must be whole numbers"):
        informed.bits_per_dim(torch.full((1, *SHAPE), 0.5))
