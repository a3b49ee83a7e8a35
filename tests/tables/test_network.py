"""Networks beside closed-form models: predicted noise, shares, flows, and when they are kept."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oism import OISM, load
from oism.flow import ExactTrace, Flow, RungeKutta4, log_density
from oism.nn import RowNetwork
from oism.process import OrnsteinUhlenbeck
from oism.tables import MixtureModel, _network
from oism.tables._blended_table import BlendedTable
from oism.tables._chart import WhiteChart
from oism.tables._network import Part, cross_fit_network, fit_network
from oism.tables._network_blend import LEVELS, Blend, best_share, expected_gain
from oism.tables._network_model import (
    BlendedMixture,
    WhiteMixture,
    level_of_time,
    time_of_level,
)
from oism.tables._network_space import MixtureSpace, noise_space

ENDS = (-2 * math.log(0.01), -4.0)


def source(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def network(dim: int, waves: int = 0, seed: int = 0) -> RowNetwork:
    """Return a network with random weights, also in its last layer."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        found = RowNetwork(dim, width=16, depth=2, waves=waves)
        torch.nn.init.normal_(found.last.weight, std=0.05)
    return found.double().requires_grad_(False)


def mixture(dim: int = 2, count: int = 3) -> MixtureModel:
    g = source(1)
    root = torch.randn(count, dim, dim, generator=g, dtype=torch.float64)
    return MixtureModel(
        centre=torch.randn(dim, generator=g, dtype=torch.float64),
        scale=torch.rand(dim, generator=g, dtype=torch.float64) + 0.5,
        weights=torch.full((count,), 1 / count, dtype=torch.float64),
        means=1.5 * torch.randn(count, dim, generator=g, dtype=torch.float64),
        covariances=0.2 * root @ root.mT + 0.05 * torch.eye(dim).double(),
    )


def blended(
    share: float, *, steps: int = 48, background: float = 1e-9, tapered: bool = False
) -> BlendedMixture:
    """Return a mixture with a random network, of a constant share or of one that ends at 0."""
    model = mixture()
    space = noise_space(model, model.sample(500, source()))
    shares = torch.full((LEVELS,), share, dtype=torch.float64)
    if tapered:
        shares *= torch.linspace(0, math.pi, LEVELS, dtype=torch.float64).sin().clamp(min=0)
    blend = Blend((network(2),), shares, ENDS, torch.zeros(2, dtype=torch.bool))
    found = space.blended(blend, steps, background)
    assert isinstance(found, BlendedMixture)
    return found


def flow_noise_free(model: BlendedMixture, x: Tensor) -> Tensor:
    """Return log-densities by the library's flow with exact traces, from almost no noise on."""
    flow = Flow(model, span=(1e-6, 1.0))
    return log_density(flow, x, method=RungeKutta4(160), divergence=ExactTrace())


# The network ------------------------------------------------------------------------------------


@pytest.mark.parametrize("waves", [0, 3])
def test_divergences_of_networks_are_traces_of_jacobians(waves: int) -> None:
    net, z = network(3, waves), torch.randn(5, 3, generator=source(), dtype=torch.float64)
    level = torch.tensor(1.3, dtype=torch.float64)
    noise, trace = net.with_divergence(z, level)
    jacobian = torch.func.vmap(torch.func.jacrev(lambda one: net(one[None], level)[0]))(z)
    torch.testing.assert_close(noise, net(z, level))
    torch.testing.assert_close(trace, jacobian.diagonal(dim1=1, dim2=2).sum(dim=1))
    assert trace.std() > 0.001


def test_an_untrained_network_predicts_the_noise_of_a_standard_normal() -> None:
    z, level = torch.randn(4, 2, generator=source()), torch.tensor([3.0, 0.0, -2.0, 9.0])
    torch.testing.assert_close(RowNetwork(2)(z, level), torch.sigmoid(-level).sqrt()[:, None] * z)


@given(dim=st.integers(1, 4), n=st.integers(0, 5), waves=st.integers(0, 2))
def test_networks_take_one_level_or_one_for_each_row(dim: int, n: int, waves: int) -> None:
    net, z = network(dim, waves), torch.ones(n, dim, dtype=torch.float64)
    level = torch.tensor(0.5, dtype=torch.float64)
    one = net(z, level)
    assert one.shape == (n, dim)
    torch.testing.assert_close(one, net(z, level.expand(n)))


def test_networks_on_angles_are_periodic() -> None:
    net, z = network(2, 3), torch.randn(4, 2, generator=source(), dtype=torch.float64)
    level = torch.tensor(1.0, dtype=torch.float64)
    torch.testing.assert_close(net(z, level), net(z + 2 * math.pi, level))
    assert not torch.allclose(net(z, level), net(z + math.pi, level), atol=1e-3)


def test_rows_of_another_width_are_refused() -> None:
    with pytest.raises(ValueError, match=r"z must be rows \(n, 3\)"):
        network(3)(torch.zeros(2, 2), torch.tensor(0.0))


# The share --------------------------------------------------------------------------------------


def test_the_share_has_the_smallest_error_of_a_search() -> None:
    g = source()
    noise, known, found = (torch.randn(3, 400, 2, generator=g).double() for _ in range(3))
    found = 0.6 * noise + 0.4 * found
    gap = found - known
    both = torch.stack((((noise - known) * gap), gap.square())).sum(dim=3).mean(dim=2)
    one = both.mean(dim=1, keepdim=True).expand(2, 3)  # smoothing does not change a constant
    grid = torch.linspace(0, 1, 1001).double()
    errors = [(noise - known - c * gap).square().sum(dim=2).mean() for c in grid]
    smallest = grid[int(torch.stack(errors).argmin())]
    torch.testing.assert_close(best_share(one)[0], smallest, atol=2e-3, rtol=0)
    gain = expected_gain(one, (1.0, -1.0))
    assert gain == pytest.approx(float(errors[0] - min(errors)), abs=1e-4)


def test_shares_are_clipped_and_zero_where_nothing_differs() -> None:
    products = torch.tensor([[-1.0, -1.0, -1.0, 0.0, 0.0, 0.0, 3.0, 3.0, 3.0]]).double()
    squares = torch.tensor([[1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0]]).double()
    share = best_share(torch.cat((products, squares)))
    assert share[0] == 0
    assert share[4] == 0
    assert share[-1] == 1


def test_the_share_is_interpolated_and_zero_outside() -> None:
    share = torch.tensor([0.0, 1.0, 0.5]).double()
    blend = Blend((network(1),), share, (4.0, -4.0), torch.zeros(1, dtype=torch.bool))
    levels = torch.tensor([5.0, 4.0, 2.0, 0.0, -2.0, -4.0, -5.0]).double()
    expected = torch.tensor([0.0, 0.0, 0.5, 1.0, 0.75, 0.5, 0.0]).double()
    torch.testing.assert_close(blend.share_at(levels), expected)


def test_reflected_columns_have_even_densities() -> None:
    reflections = torch.tensor([True, False])
    blend = Blend((network(2, 3),), torch.ones(2).double(), (4.0, -4.0), reflections)
    z = torch.randn(6, 2, generator=source(), dtype=torch.float64)
    flip, level = torch.tensor([-1.0, 1.0]).double(), torch.tensor(1.0).double()
    noise, trace = blend.network_noise_and_divergence(z, level)
    mirrored, same = blend.network_noise_and_divergence(flip * z, level)
    torch.testing.assert_close(mirrored, flip * noise)
    torch.testing.assert_close(same, trace)
    torch.testing.assert_close(blend.network_noise(z, level), noise)


@pytest.mark.parametrize(
    ("share", "ends", "match"),
    [([0.0, 2.0], (1.0, 0.0), "from 0 to 1"), ([0.0, 1.0], (0.0, 1.0), "decrease")],
)
def test_bad_blends_are_refused(share: list[float], ends: tuple[float, float], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        Blend((network(1),), torch.tensor(share).double(), ends, torch.zeros(1, dtype=torch.bool))


# Beside a mixture -------------------------------------------------------------------------------


def test_the_mixture_by_products_of_matrices_is_the_mixture() -> None:
    """In the standardised columns themselves, where `MixtureModel` has the same noise."""
    model = mixture(3, 4)
    white = WhiteMixture.of(model, model.chart)
    x, t = model.sample(20, source()), torch.tensor(0.2).double()
    z, level = model.chart.to_process(x), level_of_time(t)
    score, spread = model.score_and_diffused_divergence(x, t)
    sigma = OrnsteinUhlenbeck().transition(t).sigma
    noise, divergence = white.noise_and_divergence(z, level)
    torch.testing.assert_close(model.chart.pull_score(-noise / sigma), score)
    torch.testing.assert_close(-divergence / sigma, spread / OrnsteinUhlenbeck().diffusivity)
    torch.testing.assert_close(
        white.score(z, level_of_time(0 * t)) / model.scale, model.score(x, 0.0)
    )


def test_levels_and_times_are_inverse() -> None:
    level = torch.linspace(-4, 12, 9).double()
    t = time_of_level(level)
    torch.testing.assert_close(level_of_time(t), level)
    law = OrnsteinUhlenbeck().transition(t)
    torch.testing.assert_close((law.alpha.square() / law.variance).log(), level)


def test_whitened_rows_have_unit_covariance() -> None:
    model = mixture()
    x = model.sample(4000, source())
    space = noise_space(model, x)
    z = space.coordinates(x)
    torch.testing.assert_close(z.mT.cov(), torch.eye(2).double(), atol=0.05, rtol=0)
    chart = space.chart
    assert isinstance(chart, WhiteChart)
    torch.testing.assert_close(chart.to_data(chart.to_process(x)), x)


def test_without_a_share_densities_are_those_of_the_reference() -> None:
    model = blended(0.0)
    x = model.reference.sample(20, source())
    torch.testing.assert_close(model.log_density(x), model.reference.log_density(x))


def test_densities_of_the_blend_are_those_of_its_flow() -> None:
    """The integral of the correction against the library's flow with automatic divergences."""
    model = blended(0.7, tapered=True)  # a jump would cost the flow its order
    x = model.reference.sample(12, source())
    found = model.log_density(x)
    torch.testing.assert_close(found, flow_noise_free(model, x), atol=2e-3, rtol=0)
    assert (found - model.reference.log_density(x)).abs().max() > 0.05


def test_densities_of_the_blend_have_mass_one_and_match_its_samples() -> None:
    model = blended(0.7, steps=16)
    axis = torch.linspace(-9, 9, 73).double()
    z = torch.cartesian_prod(axis, axis)
    step = float(axis[1] - axis[0])
    chart = model.chart
    log_p = model.log_density(chart.to_data(z)) - chart.log_jacobian
    mass = log_p.exp() * step**2
    assert float(mass.sum()) == pytest.approx(1.0, abs=5e-3)
    drawn = chart.to_process(model.sample(3000, source(3)))
    mean = (mass[:, None] * z).sum(dim=0)
    variance = (mass[:, None] * (z - mean).square()).sum(dim=0)
    assert torch.all((drawn.mean(dim=0) - mean).abs() < 4 * (variance / 3000).sqrt())
    torch.testing.assert_close(drawn.var(dim=0), variance, rtol=0.15, atol=0)
    plain = chart.to_process(model.reference.sample(3000, source(3)))
    assert torch.any((plain.mean(dim=0) - mean).abs() > 4 * (variance / 3000).sqrt())


def test_the_flow_converges_at_order_four() -> None:
    x = blended(0.7).reference.sample(30, source())
    exact = blended(0.7, steps=192).log_density(x)
    errors = [float((blended(0.7, steps=k).log_density(x) - exact).abs().mean()) for k in (24, 48)]
    assert math.log2(errors[0] / errors[1]) > 3


def test_far_rows_keep_finite_densities() -> None:
    model = blended(0.7, background=1e-3)
    x = model.chart.centre + torch.tensor([[1e6, -1e6]]).double()
    assert model.log_density(x).item() >= model.reference.log_density(x).item() + math.log(1e-3)


def test_scores_take_one_time_or_one_for_each_row() -> None:
    model = blended(0.5)
    x, t = model.reference.sample(4, source()), torch.tensor([0.1, 0.1, 0.4, 0.0]).double()
    rows = torch.cat([model.score(x[k : k + 1], float(t[k])) for k in range(4)])
    torch.testing.assert_close(model.score(x, t), rows)
    with pytest.raises(ValueError, match="one per row"):
        model.score(x, t[:2])


def test_blended_models_are_stored(tmp_path: Path) -> None:
    model = blended(0.5)
    model.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    x = model.reference.sample(5, source())
    torch.testing.assert_close(again.log_density(x), model.log_density(x), rtol=0, atol=0)
    assert again.facts() == model.facts()


def test_parameters_of_a_loaded_model_require_no_gradients(tmp_path: Path) -> None:
    blended(0.5).save(tmp_path / "model.safetensors")
    model = load(tmp_path / "model.safetensors")
    assert not any(one.requires_grad for one in model.parameters())


def test_densities_record_no_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph of the whole flow at all rows would be kept until the end."""
    model = blended(0.5, steps=2)
    model.blend.requires_grad_(True)
    corrections, seen = BlendedMixture._corrections, []

    def watched(self: BlendedMixture, z: Tensor) -> Tensor:
        seen.append((found := corrections(self, z)).requires_grad)
        return found

    monkeypatch.setattr(BlendedMixture, "_corrections", watched)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        model.log_density(torch.zeros(1100, 2, dtype=torch.float64))
    finally:
        torch.set_num_threads(before)
    assert seen == [False] * 3


@pytest.mark.parametrize(
    ("change", "match"), [({"steps": 7}, "even"), ({"background": 0.0}, "background")]
)
def test_bad_blended_mixtures_are_refused(change: dict[str, float], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        BlendedMixture(**{**blended(0.5).to_config(), **change})


# Fits -------------------------------------------------------------------------------------------


def ring(n: int, seed: int) -> Tensor:
    """Return rows on a noisy circle, beside two normal columns."""
    g = source(seed)
    angle = 2 * math.pi * torch.rand(n, generator=g, dtype=torch.float64)
    noise = torch.randn(n, 4, generator=g, dtype=torch.float64)
    noise[:, :2] = 0.1 * noise[:, :2] + torch.stack((angle.cos(), angle.sin()), dim=1)
    return noise


def one_gaussian(x: Tensor) -> MixtureModel:
    mean = x.mean(dim=0)
    return MixtureModel(
        mean, torch.ones_like(mean), torch.ones(1).double(), 0 * mean[None], x.mT.cov()[None]
    )


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """One network for each part, and few draws to judge it by."""
    monkeypatch.setattr(_network, "CHECKED", 2500)
    monkeypatch.setattr(_network, "MEMBERS", 1)


@pytest.mark.usefixtures("quick")
def test_a_network_beside_a_poor_reference_is_kept_and_better_on_new_rows() -> None:
    train, held, new = ring(400, 0), ring(100, 1), ring(200, 2)
    reference = one_gaussian(train)
    model = fit_network(reference, train, held, steps=100, progress=False)
    assert model is not None
    gain = model.log_density(new) - reference.log_density(new)
    assert float(gain.mean()) > 0.2


@pytest.mark.usefixtures("quick")
def test_equal_seeds_and_steps_give_equal_models() -> None:
    train, held = ring(300, 0), ring(100, 1)
    made = [
        fit_network(one_gaussian(train), train, held, steps=120, seed=seed, progress=False)
        for seed in (3, 3, 4)
    ]
    first, same, other = (list(one.blend.networks.parameters()) for one in made if one)
    assert all(torch.equal(a, b) for a, b in zip(first, same, strict=True))
    assert not torch.equal(first[0], other[0])


@pytest.mark.usefixtures("quick")
def test_a_network_beside_the_truth_is_not_kept() -> None:
    x = torch.randn(300, 4, generator=source(), dtype=torch.float64)
    one = torch.ones(4, dtype=torch.float64)
    truth = MixtureModel(0 * one, one, one[:1], 0 * one[None], torch.diag(one)[None])
    assert fit_network(truth, x[:200], x[200:], steps=50, progress=False) is None


@pytest.mark.usefixtures("quick")
def test_parts_are_averaged_and_their_held_out_densities_returned() -> None:
    x = ring(200, 0)
    fold = torch.arange(200) % 2
    parts = [Part(one_gaussian(x[fold != k]), x[fold != k], x[fold == k]) for k in range(2)]
    reference = one_gaussian(x)
    fit = cross_fit_network(reference, parts, steps=80, progress=False)
    assert fit is not None
    assert [tuple(one.shape) for one in fit.held] == [(100, 2), (100, 2)]
    for part, one in zip(parts, fit.held, strict=True):
        torch.testing.assert_close(one[:, 0], part.reference.log_density(part.held))
    change = torch.cat(fit.held).diff(dim=1)
    assert fit.gain == pytest.approx(float(change.mean()))
    assert fit.gain > fit.error > 0
    assert fit.model.facts()["networks"] >= 2
    assert torch.equal(fit.model.to_config()["reference"].means, reference.means)


@pytest.mark.usefixtures("quick")
def test_a_fit_does_not_seed_the_generators_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    x, before = ring(60, 0), torch.get_rng_state()
    fit_network(one_gaussian(x[:40]), x[:40], x[40:], steps=1, progress=False)
    assert seeds == []
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.usefixtures("quick")
def test_networks_are_trained_also_where_gradients_are_off() -> None:
    x = ring(300, 0)
    reference, held = one_gaussian(x[:200]), x[200:]
    expected = fit_network(reference, x[:200], held, steps=80, progress=False)
    with torch.no_grad():
        found = fit_network(reference, x[:200], held, steps=80, progress=False)
    assert found is not None
    assert expected is not None
    torch.testing.assert_close(found.log_density(held), expected.log_density(held), rtol=0, atol=0)


def test_outliers_are_not_trained_on() -> None:
    x = ring(300, 0)
    x[0] = 1e6
    space = noise_space(one_gaussian(x[1:]), x)
    assert isinstance(space, MixtureSpace)
    assert len(space.coordinates(x)) == 299


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("seconds", [0.3, 1e-9])
def test_seconds_end_the_training(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """One step at least; the time counts from the first step on."""
    steps, step = [], torch.optim.Adam.step

    def counted(*arguments: Any) -> Any:
        steps.append(1)
        return step(*arguments)

    monkeypatch.setattr(torch.optim.Adam, "step", counted)
    train, held = ring(300, 0), ring(100, 1)
    fit_network(one_gaussian(train), train, held, seconds=seconds, progress=False)
    assert len(steps) == 1 if seconds < 0.1 else len(steps) > 3


def test_the_first_network_is_kept_also_without_a_gain() -> None:
    """It has not seen a row, and the share decides about it."""
    x = ring(60, 0)
    space = noise_space(one_gaussian(x), x)
    z = space.coordinates(x)
    draws = _network.Draws.of(space, z, 500, source())
    size = _network.Size.of(60, angles=False)
    budget = _network.Budget(None, 0, lambda _: None)
    net = RowNetwork(4, width=8, depth=1)
    kept, products = _network.train_networks(space, [net], z.float(), draws, size, budget, source())
    assert len(kept) == 1
    torch.testing.assert_close(products, draws.products(draws.predicted(net)))


def test_whitening_of_a_part_has_not_seen_the_rows_held_out() -> None:
    x = ring(200, 0)
    x[100:] += 1.0
    space = noise_space(one_gaussian(x), x)
    part = space.of_part(one_gaussian(x[:100]), x[:100])
    own = part.coordinates(x[:100])
    torch.testing.assert_close(own.mT.cov(correction=0), torch.eye(4).double())
    torch.testing.assert_close(own.mean(dim=0), torch.zeros(4).double(), atol=1e-9, rtol=0)
    torch.testing.assert_close(part.chart.to_data(own), x[:100])
    both = space.coordinates(x[:100])
    change = torch.linalg.lstsq(both - both.mean(dim=0), own).solution
    torch.testing.assert_close(change, change.mT)  # no rotation
    assert (change - torch.eye(4).double()).abs().max() > 0.05


@pytest.mark.parametrize(("seconds", "steps"), [(None, None), (1.0, 5)])
def test_either_seconds_or_steps_are_needed(seconds: float | None, steps: int | None) -> None:
    x = ring(10, 0)
    with pytest.raises(ValueError, match="either seconds or steps"):
        fit_network(one_gaussian(x), x, x, seconds=seconds, steps=steps)


def test_columns_must_be_those_of_the_reference() -> None:
    x = ring(10, 0)
    with pytest.raises(ValueError, match="held"):
        fit_network(one_gaussian(x), x, x[:, :2], steps=1)


# On the torus -----------------------------------------------------------------------------------


def squares(n: int, seed: int) -> np.ndarray:
    """Return rows of [0, 1]² with a density of 2 on two quadrants."""
    rng = np.random.default_rng(seed)
    corner = rng.integers(0, 2, n)[:, None]
    return 0.5 * (rng.random((n, 2)) + corner)


@pytest.fixture(scope="module")
def bounded() -> BlendedTable:
    """A model of two bounded columns, with a random network."""
    model = OISM(bounds={0: (0.0, 1.0)}, max_eigenvalue=16, flow_steps=32).fit(squares(400, 0))
    reference = model.model_
    space = noise_space(reference, torch.zeros(0, 2).double())
    constant = torch.full((LEVELS,), 0.6, dtype=torch.float64)
    blend = Blend((network(2, 3),), constant, space.ends, space.reflections)
    found = space.blended(blend, 32, 1e-3)
    assert isinstance(found, BlendedTable)
    return found


def test_blended_scores_on_the_torus_have_their_divergence(bounded: BlendedTable) -> None:
    score = bounded._blended
    u = torch.randn(6, 2, generator=source(), dtype=torch.float64)
    t = torch.tensor(0.02).double()
    value, trace = score.score_and_divergence(u, t)
    jacobian = torch.func.vmap(torch.func.jacrev(lambda one: score.score(one[None], t)[0]))(u)
    torch.testing.assert_close(value, score.score(u, t))
    torch.testing.assert_close(trace, jacobian.diagonal(dim1=1, dim2=2).sum(dim=1))


def test_the_mass_on_the_torus_is_one(bounded: BlendedTable) -> None:
    axis = (torch.arange(40).double() + 0.5) / 40 * 2 * math.pi - math.pi
    u = torch.cartesian_prod(axis, axis)
    mass = bounded.flow_density(u).exp().sum() * (2 * math.pi / 40) ** 2
    assert float(mass) == pytest.approx(1.0, abs=5e-3)
    left = torch.tensor([[0.3, 0.1]]).double()
    right = left * torch.tensor([-1.0, 1.0])
    torch.testing.assert_close(bounded.flow_density(left), bounded.flow_density(right))


def test_samples_of_bounded_columns_stay_within(bounded: BlendedTable) -> None:
    drawn = bounded.sample(500, source())[:, 0]
    assert drawn.min() >= 0
    assert drawn.max() <= 1


def test_the_reference_predicts_its_own_noise_on_the_torus(bounded: BlendedTable) -> None:
    """Also at negative coordinates, which are reflections of rows."""
    plain = bounded.operator_score
    model = type(bounded).__mro__[1](
        plain, bounded.chart, bounded.background, bounded.span, bounded.steps
    )
    space = noise_space(model, torch.zeros(0, 2).double())
    z, level = torch.randn(8, 2, generator=source(), dtype=torch.float64), torch.tensor(3.0)
    t = 0.5 * math.exp(-3.0)
    expected = -math.exp(-1.5) * plain.score(z, t)
    torch.testing.assert_close(space.noise(z, level.double()), expected)


def test_blended_tables_are_stored(bounded: BlendedTable, tmp_path: Path) -> None:
    bounded.save(tmp_path / "model.safetensors")
    again, x = load(tmp_path / "model.safetensors"), torch.rand(5, 2, generator=source()).double()
    torch.testing.assert_close(again.log_density(x), bounded.log_density(x), rtol=0, atol=0)


@pytest.mark.usefixtures("quick")
def test_a_network_sharpens_edges_on_the_torus() -> None:
    train, held, new = (torch.from_numpy(squares(n, s)) for n, s in ((1000, 0), (300, 1), (600, 2)))
    estimator = OISM(max_eigenvalue=4, flow_steps=24).fit(train.numpy())
    model = fit_network(estimator.model_, train, held, steps=150, progress=False)
    assert model is not None
    gain = model.log_density(new) - estimator.model_.log_density(new)
    assert float(gain.mean()) > 2 * float(gain.std()) / math.sqrt(len(new))


def test_other_references_are_refused() -> None:
    x = torch.randn(60, 4, generator=source(), dtype=torch.float64)
    reference = OISM(process="ou", flow_steps=8, order=2).fit(x.numpy()).model_
    with pytest.raises(TypeError, match="on the torus"):
        fit_network(reference, x, x, steps=1)
