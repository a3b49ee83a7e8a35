"""Fits with numerical eigenfunctions: equations, densities, samples, processes of data."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import scipy.stats
import torch
from torch import Tensor

from oism import TensorHermite, fit, load
from oism.basis import Eigenfunctions
from oism.data.toys import PLANE
from oism.estimation import (
    JamesStein,
    Modulation,
    ProductEquations,
    SampleMeans,
    SplineMoments,
    langevin_of,
    moments_of,
)
from oism.estimation._equations.evolved import reduced
from oism.flow import EulerMaruyama, RungeKutta4
from oism.process import Langevin
from oism.score import OperatorScore


def quadratic(x: Tensor) -> Tensor:
    return 0.5 * x.square().sum(dim=1)


def two(n: int, seed: int = 0) -> Tensor:
    """Return draws of ½N(-1.2, 0.3²) + ½N(0.8, 0.5²)."""
    draws = torch.randn(n, 2, generator=torch.Generator().manual_seed(seed)).double()
    left = draws[:, 1:] > 0
    return torch.where(left, 0.3 * draws[:, :1] - 1.2, 0.5 * draws[:, :1] + 0.8)


def log_two(x: Tensor) -> Tensor:
    laws = (scipy.stats.norm(-1.2, 0.3), scipy.stats.norm(0.8, 0.5))
    parts = [torch.from_numpy(law.logpdf(x[:, 0].numpy())) for law in laws]
    return torch.logsumexp(torch.stack(parts), dim=0) - math.log(2)


@pytest.fixture(scope="module")
def line() -> OperatorScore:
    x = two(2000)
    return fit(x, Eigenfunctions.of(langevin_of(x, width=0.3), 25), progress=False)


def grid(score: OperatorScore) -> Tensor:
    process = score.process
    assert isinstance(process, Langevin)
    low, high = process.box[0].tolist()
    return torch.linspace(low, high, 801, dtype=torch.float64)[:, None]


def test_a_and_b_are_those_of_hermite_polynomials() -> None:
    process, x = Langevin.of(quadratic, [(-9.0, 9.0)], cells=200), two(200)
    basis, exact = Eigenfunctions.of(process, 4), TensorHermite(1, 4)
    system = SplineMoments(basis).update(x).system(SampleMeans())
    signs = torch.sign((basis.values(x[:9]) * exact.values(x[:9])).sum(dim=0))
    equations = ProductEquations(exact, exact.doubled().values(x).mean(dim=0))
    t = torch.tensor([0.5 * basis.default_clock().sigma_min ** 2, 0.1, 1.0]).double()
    matrix, right = system._equations("total", t)
    torch.testing.assert_close(right * signs, equations.right(t)[:, 1:], rtol=1e-6, atol=1e-6)
    found = signs[:, None] * matrix * signs
    torch.testing.assert_close(found, equations.energies(t), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("dim", [1, 2])
def test_few_functions_replace_all_of_the_discrete_semigroup(dim: int) -> None:
    x = two(300) if dim == 1 else torch.cat((two(300), two(300, 1)), dim=1)
    process = langevin_of(x, width=0.4, cells=120 if dim == 1 else 16)
    basis, splines = Eigenfunctions.of(process, 10), process.splines
    means = splines.histogram(x, torch.ones(1, 300).double() / 300)
    first = 0.5 * basis.default_clock().sigma_min ** 2
    rates, c = reduced(basis, means, first)
    assert len(rates) < 50
    torch.testing.assert_close(rates[:10], basis.rates)
    gram = torch.from_numpy(process.splines.forms(
        process.invariant.log_density(splines.rule()[0]).exp().numpy())[1].toarray())  # fmt: skip
    torch.testing.assert_close(c.mT @ gram @ c, torch.eye(len(rates)).double(), rtol=0, atol=1e-6)
    points = process.invariant.sample((500, dim), generator=torch.Generator().manual_seed(0))
    whole_rates, whole = process._all_pairs
    for t in (first, 3 * first, 30 * first):
        ratios = [
            splines.evaluate(points.double(), v @ (torch.exp(-t * r) * (means @ v)[0]), (0,) * dim)
            for r, v in ((rates, c), (whole_rates, whole))
        ]
        assert float((ratios[0] - ratios[1]).square().mean().sqrt()) < 1e-3
    assert float(ratios[1].abs().max()) > 0.01


def test_the_density_is_that_of_the_data(line: OperatorScore) -> None:
    x = grid(line)
    log = line.log_density(x, method=RungeKutta4(64))
    assert float(torch.trapezoid(log.exp(), x[:, 0])) == pytest.approx(1, abs=1e-3)
    truth = log_two(x)
    divergence = float(torch.trapezoid(truth.exp() * (truth - log), x[:, 0]))
    before = line.process.invariant.log_density(x)
    assert divergence < 0.5 * float(torch.trapezoid(truth.exp() * (truth - before), x[:, 0]))
    assert divergence < 0.02


def test_samples_follow_the_density(line: OperatorScore) -> None:
    x = grid(line)
    density = line.log_density(x, method=RungeKutta4(64)).exp()
    cumulative = torch.cumulative_trapezoid(density, x[:, 0]).numpy()

    def cdf(y: object) -> object:
        return scipy.interpolate.interp1d(x[1:, 0].numpy(), cumulative)(y)

    for method in (RungeKutta4(64), EulerMaruyama(500)):
        y = line.sample(2000, torch.Generator().manual_seed(0), method=method)
        assert bool(line.process.domain.contains(y).all())
        assert scipy.stats.kstest(y[:, 0].double().numpy(), cdf).pvalue > 1e-3
        assert scipy.stats.kstest(y[:, 0].double().numpy() + 0.15, cdf).pvalue < 1e-6


def test_the_ratio_of_densities_is_that_of_noised_data(line: OperatorScore) -> None:
    x = two(5)
    t = 0.01
    found = line.system.density_ratio(x, t)
    assert found is not None
    law = line.process.transition(t)
    kernel = torch.stack([law.log_density(x, one.expand(5, 1)).exp() for one in two(2000)])
    expected = kernel.mean(dim=0) / line.process.invariant.log_density(x).exp()
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


def test_it_is_saved_and_loaded(line: OperatorScore, tmp_path: Path) -> None:
    line.save(tmp_path / "line.safetensors")
    again = load(tmp_path / "line.safetensors")
    x = two(9, seed=3)
    torch.testing.assert_close(again.score(x, 0.05), line.score(x, 0.05), rtol=1e-10, atol=1e-10)
    t = torch.tensor([0.01, 0.3]).double()
    exact = line.coefficients(t, exact=True)
    torch.testing.assert_close(again.coefficients(t, exact=True), exact, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(line.coefficients(t), exact, rtol=0.02, atol=2e-3)


def test_moments_merge_and_shrinkage_uses_the_wider_basis() -> None:
    x = two(120)
    basis = Eigenfunctions.of(langevin_of(x, width=0.4, cells=60), 6)
    parts = [SplineMoments(basis).update(part) for part in torch.split(x, 70)]
    merged, whole = parts[0].merge(parts[1]), SplineMoments(basis).update(x)
    torch.testing.assert_close(merged._sums, whole._sums)
    shrunk = fit(x, basis, shrinkage=JamesStein(), progress=False)
    assert bool(shrunk.score(x[:3], 0.1).isfinite().all())
    assert not isinstance(moments_of(basis, squares=True), SplineMoments)
    with pytest.raises(ValueError, match="shrinkage must"):
        whole.system(Modulation())


def test_rows_outside_of_the_box_are_refused() -> None:
    basis = Eigenfunctions.of(Langevin.of(quadratic, [(-2.0, 2.0)], cells=40), 4)
    with pytest.raises(ValueError, match=r"data must lie in the box .* data\[1\] = \[3.0\]"):
        fit(torch.tensor([[0.0], [3.0], [1.0]]), basis)


def test_the_process_of_data_has_their_smoothed_density() -> None:
    x = two(400)
    process = langevin_of(x, width=0.2, background=1e-6)
    y = torch.linspace(-2.5, 2.5, 60).double()[:, None]
    kernels = scipy.stats.norm(x.numpy().T, 0.2 * float(x.std())).pdf(y.numpy()).mean(axis=1)
    found = process.invariant.log_density(y).exp()
    inside = torch.from_numpy(kernels) > 1e-3
    torch.testing.assert_close(found[inside], torch.from_numpy(kernels)[inside], rtol=1e-3, atol=0)


def test_the_width_is_chosen_by_likelihood() -> None:
    x = two(500)
    held = two(2000, seed=5)
    chosen, wide, narrow = (
        float(langevin_of(x, width=w, box=[(-4.0, 4.0)]).invariant.log_density(held).mean())
        for w in (None, 1.0, 0.02)
    )
    assert chosen > max(wide + 0.3, narrow + 0.01)


@pytest.mark.slow
def test_a_distribution_of_the_plane() -> None:
    generator = torch.Generator().manual_seed(0)
    moons = PLANE["moons"]
    x = moons.sample(3000, generator)
    held = moons.sample(300, generator)
    found = {}
    for width in (None, 0.25):
        process = langevin_of(x, width=width, cells=32)
        score = fit(x, Eigenfunctions.of(process, 25), progress=False)
        log = score.log_density(held, method=RungeKutta4(48))
        found[width] = -float(log.mean()), -float(process.invariant.log_density(held).mean())
    assert found[None][0] < moons.entropy() + 0.1
    assert found[0.25][0] < found[0.25][1] - 0.02  # the functions correct a density too smooth


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (torch.zeros(5), {}, r"data must have shape \(n, 1\)"),
        (torch.zeros(5, 3), {}, r"\(n, 2\)"),
        (torch.zeros(5, 1), {}, "column 0 is constant"),
        (torch.tensor([[0.0], [math.nan]]), {}, "row 1 holds NaN"),
        (torch.tensor([[0.0]]), {}, "at least two rows"),
        (torch.tensor([[0.0], [1.0]]), {"background": 1.5}, "background must be between"),
        (torch.tensor([[0.0], [3.0]]), {"box": [(-1.0, 1.0)], "width": 0.1}, "row 1 is"),
        (torch.tensor([[0.0], [3.0]]), {"width": -1.0}, "width must be"),
    ],
)
def test_mistakes(data: Tensor, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        langevin_of(data, **options)  # type: ignore[arg-type]
