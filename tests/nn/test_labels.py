"""Labels and guidance, with an exact mixture of classes as oracle."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, MixtureSameFamily, MultivariateNormal

from oism import Combined, Diffusion, VariancePreserving, fit_prior, load
from oism.flow import EulerMaruyama, ExactTrace, Pixels, RungeKutta4, TensorSpec
from oism.images import ClassPrior
from oism.nn import EDM, DDPMpp, OperatorInformed, Parametrised, unet_for
from oism.objectives import errors_by_level
from oism.training import bits_per_dim

CENTRES = torch.tensor([[-1.0, 0.2], [0.9, 0.6], [0.3, -1.1]])
SPREADS = torch.tensor([[0.3, 0.1], [0.15, 0.3], [0.2, 0.2]])
WEIGHTS = torch.tensor([0.5, 0.3, 0.2])
SPEC = TensorSpec((2,), VariancePreserving())


def log_prob(distribution: Distribution, x: Tensor) -> Tensor:
    result: Tensor = distribution.log_prob(x)
    return result


class Exact(nn.Module):
    """The noise of an exact mixture of three classes, given labels or not."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.classes, self.clock = classes, SPEC.clock
        self.calls = 0
        self.sizes: list[int] = []

    def forward(self, x: Tensor, tau: Tensor, labels: Tensor | None = None) -> Tensor:
        self.calls += 1
        self.sizes.append(len(x))
        labels = torch.full((len(x),), 3) if labels is None else labels
        t = self.clock._time(tau.double())[:, None, None]
        alpha, variance = (-t).exp().to(x), (-torch.expm1(-2 * t)).to(x)
        spread = alpha.square() * SPREADS.to(x).square() + variance
        away = alpha * CENTRES.to(x) - x[:, None]
        logs = WEIGHTS.to(x).log() - 0.5 * (away.square() / spread + spread.log()).sum(dim=2)
        given = nn.functional.one_hot(labels.clamp(max=2), 3).to(x)
        share = torch.where((labels == 3)[:, None], logs.softmax(dim=1), given)
        score = (share[..., None] * away / spread).sum(dim=1)
        return -variance[:, 0].sqrt() * score


def exact() -> Diffusion:
    return Diffusion(Exact(), SPEC)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_samples_follow_the_flow_of_their_class() -> None:
    """The flow of a Gaussian is known: it keeps standardised coordinates."""
    model, labels = exact(), torch.arange(60) % 3
    z = model.flow.start(60, generator=seeded())
    t = float(SPEC.clock.time(torch.tensor(1.0)))
    alpha, variance = math.exp(-t), -math.expm1(-2 * t)
    u = (z - alpha * CENTRES[labels]) / (alpha**2 * SPREADS[labels].square() + variance).sqrt()
    wanted = CENTRES[labels] + SPREADS[labels] * u
    for options in ({}, {"evaluations": 48}):
        found = model.sample(60, seeded(), labels=labels, **options)  # type: ignore[arg-type]
        torch.testing.assert_close(found, wanted, atol=0.005, rtol=0)
    one = model.sample(60, seeded(), labels=1)
    torch.testing.assert_close(one[labels == 1], wanted[labels == 1], atol=0.005, rtol=0)


def test_labels_per_row_do_not_depend_on_chunks() -> None:
    labels = torch.arange(40) % 4  # one of them no class
    model = exact()
    whole = model.sample(40, seeded(), labels=labels, guidance=1.5, evaluations=12)
    model.chunk = 7
    parts = model.sample(40, seeded(), labels=labels, guidance=1.5, evaluations=12)
    torch.testing.assert_close(whole, parts)
    flows = [m.sample(40, seeded(), labels=labels) for m in (exact(), model)]
    torch.testing.assert_close(*flows)
    free = model.sample(40, seeded(), evaluations=12)
    torch.testing.assert_close(
        free, model.sample(40, seeded(), labels=3, guidance=2.0, evaluations=12)
    )


def test_the_reverse_sde_goes_in_chunks() -> None:
    model, labels = exact(), torch.arange(1000) % 3
    model.chunk = 300
    for given in (None, 1, labels):
        model.predictor.sizes = []  # type: ignore[assignment]
        found = model.sample(1000, seeded(), labels=given, method=EulerMaruyama(2))
        assert found.shape == (1000, 2)
        assert model.predictor.sizes == [300, 300, 300, 300, 300, 300, 100, 100]
    fine = model.sample(1000, seeded(), labels=labels, method=EulerMaruyama(200))
    mean = torch.stack([fine[labels == k].mean(dim=0) for k in range(3)])
    torch.testing.assert_close(mean, CENTRES, atol=0.06, rtol=0)
    assert model.sample(0, labels=labels[:0], method=EulerMaruyama(2)).shape == (0, 2)


def test_densities_are_those_of_the_class() -> None:
    x, labels = CENTRES[[0, 1, 2, 0]] + 0.1, torch.tensor([0, 1, 2, 3])
    model = exact().double()
    model.chunk = 3
    found = model.given(labels).log_density(
        x.double(), method=RungeKutta4(60), divergence=ExactTrace()
    )
    parts = MultivariateNormal(CENTRES, torch.diag_embed(SPREADS.square()))
    mixture = MixtureSameFamily(Categorical(WEIGHTS), parts)
    exact_logs = log_prob(parts, x[:, None]).gather(1, labels.clamp(max=2)[:, None])[:, 0]
    exact_logs[3] = log_prob(mixture, x[3])
    torch.testing.assert_close(found.float(), exact_logs, atol=0.03, rtol=0)


def test_guidance_is_linear_and_its_score_that_of_the_tilted_density() -> None:
    model, x, tau = exact(), torch.randn(5, 2, generator=seeded()), 0.3
    free, given = model.noise(x, tau), model.given(1).noise(x, tau)
    for weight in (0.0, 0.5, 1.0, 3.0):
        found = model.given(1, weight).noise(x, tau)
        torch.testing.assert_close(found, free + weight * (given - free))
    t = float(SPEC.clock.time(torch.tensor(tau)))
    alpha, variance = math.exp(-t), -math.expm1(-2 * t)
    parts = MultivariateNormal(
        alpha * CENTRES, torch.diag_embed(alpha**2 * SPREADS.square() + variance)
    )
    point = x.clone().requires_grad_()
    logs = log_prob(parts, point[:, None])
    whole = (logs + WEIGHTS.log()).logsumexp(dim=1)
    (score,) = torch.autograd.grad((whole + 3 * (logs[:, 1] - whole)).sum(), point)
    torch.testing.assert_close(
        model.given(1, 3.0).noise(x, tau), -math.sqrt(variance) * score, rtol=1e-4, atol=1e-4
    )


def test_guidance_takes_one_evaluation_or_two() -> None:
    model = exact()
    net = model.predictor
    assert isinstance(net, Exact)
    for guidance, calls in ((1.0, 10), (0.0, 10), (2.0, 20)):
        net.calls = 0
        model.sample(3, seeded(), labels=0, guidance=guidance, evaluations=10)
        assert net.calls == calls


def test_guidance_moves_samples_away_from_other_classes() -> None:
    model = exact()
    model.chunk = 800
    parts = MultivariateNormal(CENTRES, torch.diag_embed(4 * SPREADS.square()))
    wide = [
        model.sample(800, seeded(), labels=2, guidance=w, evaluations=30) for w in (0.0, 1.0, 3.0)
    ]
    share = [
        (log_prob(parts, x[:, None]) + WEIGHTS.log()).softmax(dim=1)[:, 2].mean() for x in wide
    ]
    assert share[0] < 0.3
    assert share[1] > share[0] + 0.3
    assert share[2] > share[1]


def class_prior() -> ClassPrior:
    generator = seeded(3)
    labels = torch.randint(0, 3, (600,), generator=generator)
    x = CENTRES[labels] + SPREADS[labels] * torch.randn(600, 2, generator=generator)
    return fit_prior(x, labels=labels)


def test_combined_takes_labels_to_both_parts() -> None:
    prior, net = class_prior(), Exact()
    predictor = Combined(net, prior)
    x, tau, labels = torch.randn(64, 2, generator=seeded()), torch.rand(64), torch.arange(64) % 4
    torch.testing.assert_close(  # the share of the network is 0 at first
        predictor(x, tau, labels), prior.conditional_noise(x, tau, labels)
    )
    predictor.share.fill_(1.0)
    torch.testing.assert_close(predictor(x, tau, labels), net(x, tau, labels))
    predictor.share.fill_(0.25)
    mean = 0.75 * prior.conditional_noise(x, tau, labels) + 0.25 * net(x, tau, labels)
    torch.testing.assert_close(predictor(x, tau, labels), mean)
    torch.testing.assert_close(predictor(x, tau), predictor(x, tau, torch.full((64,), 3)))
    assert predictor.classes == 3


def test_calibration_uses_labels() -> None:
    predictor, tau = Combined(Exact(), class_prior(), intervals=4), torch.rand(3000).double()
    generator = seeded(1)
    labels = torch.multinomial(WEIGHTS, 3000, replacement=True, generator=generator)
    x = CENTRES[labels] + SPREADS[labels] * torch.randn(3000, 2, generator=generator)
    noise = torch.randn(3000, 2, generator=generator)
    t = SPEC.clock.time(tau)[:, None]
    noisy = ((-t).exp() * x + (-torch.expm1(-2 * t)).sqrt() * noise).float()
    predictor.calibrate([(noisy, tau, noise, labels)])
    with_labels = (predictor(noisy, tau, labels) - noise).square().mean()
    alone = (
        predictor.net(noisy, tau, labels),
        predictor.prior.conditional_noise(noisy, tau, labels),
    )
    either = [(one - noise).square().mean() for one in alone]
    assert with_labels <= min(either) + 1e-4
    kept = predictor.share.clone()
    predictor.calibrate([(noisy, tau, noise)])
    assert not torch.equal(kept, predictor.share)


def test_residual_and_preconditioned_networks_take_labels() -> None:
    prior = class_prior()
    x, tau, labels = torch.randn(9, 2, generator=seeded()), torch.rand(9), torch.arange(9) % 3
    net = Exact()
    residual = OperatorInformed.paper(net, prior)
    torch.testing.assert_close(
        residual(x, tau, labels), prior.conditional_noise(x, tau, labels) + net(x, tau, labels)
    )
    made = Parametrised(net, EDM(), SPEC.clock)
    assert made.classes == 3
    assert not torch.equal(made(x, tau, labels), made(x, tau, labels.roll(1)))


def network(classes: int | None) -> DDPMpp:
    torch.manual_seed(0)
    return DDPMpp((1, 8, 8), width=8, multipliers=(1, 2), blocks=1, dropout=0.0, classes=classes)


def test_ddpmpp_has_a_vector_for_every_class_and_for_none() -> None:
    plain, net = network(None), network(10)
    own = dict(net.named_parameters())
    for name, part in plain.named_parameters():  # the other weights start equal
        assert torch.equal(part, own.pop(name))
    assert {name: tuple(part.shape) for name, part in own.items()} == {"label.weight": (11, 32)}
    with torch.no_grad():
        for part in net.parameters():
            part.add_(0.05 * torch.randn(part.shape, generator=seeded(2)))
    x, tau = torch.randn(3, 1, 8, 8, generator=seeded()), torch.rand(3)
    free = net(x, tau)
    assert torch.equal(free, net(x, tau, torch.full((3,), 10)))
    labels = torch.tensor([4, 10, 0])
    found = net(x, tau, labels)
    torch.testing.assert_close(found[1], free[1])
    assert not torch.allclose(found[0], free[0])
    found.sum().backward()
    grad = net.label.weight.grad  # type: ignore[union-attr]
    assert grad is not None
    assert [k for k in range(11) if bool(grad[k].any())] == [0, 4, 10]
    assert net.to_config()["classes"] == 10
    assert "classes" not in plain.to_config()
    assert unet_for((1, 8, 8), classes=4).classes == 4


def test_files_keep_the_classes(tmp_path: Path) -> None:
    images = torch.randint(0, 256, (60, 1, 8, 8), generator=seeded()).byte()
    prior = fit_prior(images, labels=torch.arange(60) % 3)
    model = Diffusion(Combined(network(3), prior)).eval()
    assert model.facts()["network"]["classes"] == model.facts()["prior"]["classes"] == 3
    model.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    drawn = [m.sample(5, seeded(), labels=2, guidance=2.0) for m in (model, again)]
    assert torch.equal(*drawn)
    with pytest.raises(ValueError, match="save the whole"):
        model.given(1).save(tmp_path / "one.safetensors")


def test_a_view_leaves_the_model_as_it_was() -> None:
    model = exact()
    before = model.noise(CENTRES, 0.3)
    view = model.given(1)
    assert view.predictor is model.predictor
    assert not torch.equal(view.noise(CENTRES, 0.3), before)
    assert torch.equal(model.noise(CENTRES, 0.3), before)
    assert torch.equal(copy.deepcopy(view).noise(CENTRES, 0.3), view.noise(CENTRES, 0.3))


def test_models_of_classes_share_the_plan() -> None:
    """The search for levels takes time, and does not depend on labels."""
    model = Diffusion(Combined(Exact(), class_prior()))
    plan = model.given(1).plan(6)
    assert model.given(torch.arange(3)).plan(6) is plan
    assert model.plan(6) is plan


def test_measured_statistics_are_those_with_labels() -> None:
    model = Diffusion(Combined(Exact(), class_prior()))
    model.predictor.share.fill_(1.0)  # type: ignore[operator]
    model.measure_residual(48, seeded())
    plain = copy.deepcopy(model)
    plain.predictor.net.classes = None  # type: ignore[union-attr]
    plain.measure_residual(48, seeded())
    assert model.statistics is not None
    assert plain.statistics is not None
    assert not torch.allclose(model.statistics.covariance, plain.statistics.covariance)
    labels = torch.arange(3).repeat_interleave(300)
    found = model.sample(900, seeded(), labels=labels, evaluations=12)
    for k in range(3):
        torch.testing.assert_close(found[labels == k].mean(dim=0), CENTRES[k], atol=0.06, rtol=0)


def test_mistakes_are_named() -> None:
    model = exact()
    with pytest.raises(ValueError, match=r"labels must be from 0 to 2, or 3 for no class, got 5"):
        model.sample(2, labels=5)
    with pytest.raises(ValueError, match="4 rows, 3 labels"):
        model.sample(4, labels=[0, 1, 2])
    with pytest.raises(TypeError, match="guidance must not be given without labels"):
        model.sample(4, guidance=2.0)
    with pytest.raises(ValueError, match="guidance must be at least 0"):
        model.sample(4, labels=0, guidance=-1.0)
    plain = Diffusion(network(None), TensorSpec((1, 8, 8), VariancePreserving()))
    with pytest.raises(ValueError, match="for a model without classes"):
        plain.sample(2, labels=0)
    with pytest.raises(ValueError, match="to a network without classes"):
        plain.predictor(torch.zeros(2, 1, 8, 8), torch.rand(2), torch.zeros(2).long())
    with pytest.raises(ValueError, match="classes = 3 as the prior, got 5"):
        Combined(Exact(classes=5), class_prior())


def test_errors_and_bits_with_labels() -> None:
    generator = seeded(4)
    labels = torch.multinomial(WEIGHTS, 600, replacement=True, generator=generator)
    x = CENTRES[labels] + SPREADS[labels] * torch.randn(600, 2, generator=generator)
    model = exact()
    given, free, wrong = (
        errors_by_level(model, x, labels=one, intervals=2, batch=170)
        for one in (labels, None, (labels + 1) % 3)
    )
    assert given[1].error.mean < free[1].error.mean < wrong[1].error.mean
    whole = errors_by_level(model, x, labels=labels, intervals=2, batch=600)
    assert given[1].error.mean == pytest.approx(whole[1].error.mean, rel=1e-5)
    with pytest.raises(ValueError, match="600 rows, 5 labels"):
        errors_by_level(model, x, labels=labels[:5])
    prior = class_prior()
    alone = errors_by_level(prior, x, labels=labels, intervals=2)
    assert alone[1].error.mean < errors_by_level(prior, x, intervals=2)[1].error.mean


def test_bits_with_labels() -> None:
    pixels = torch.randint(0, 256, (30, 2), generator=seeded()).byte()
    spec = TensorSpec((2,), VariancePreserving(), Pixels(), dequantised=True)
    model, labels = Diffusion(Exact(), spec), torch.arange(30) % 3
    found = bits_per_dim(model, pixels, labels=labels, batch=12, checked=4)
    parts = [bits_per_dim(model.given(k), pixels[labels == k], checked=0) for k in range(3)]
    mean = sum(part.bits.mean for part in parts) / 3
    assert found.bits.mean == pytest.approx(mean, abs=0.15)  # other draws of the dequantisation
    assert found.discretisation is not None
    assert bits_per_dim(model, pixels, checked=0).bits.mean < found.bits.mean - 1
