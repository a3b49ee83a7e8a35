"""The numbers of the page are those of the library, to 1e-6, in a real browser."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch

from oism import OISM
from oism.data.toys import PLANE
from oism.flow import RungeKutta4
from oism.tables import KDE
from tests.explorer.conftest import Explorer

BOX = {"low": [-4.5, -4.5], "width": [9.0, 9.0]}
ENDS = (-4.5, 4.5)
SPACES: dict[str, dict[str, Any]] = {
    "plane": {},
    "torus": {"periodic": 9.0},
    "interval": {"bounds": {0: ENDS, 1: ENDS}},
}
BOUND, STEPS = 40, 16

FIT = """([points, settings, schedule]) => {
  const [x, y] = [0, 1].map((j) => Float64Array.from(points, (one) => one[j]));
  window.model = new Model(x, y, settings);
  const { tau, logRidge, level } = schedule;
  model.fit(new Schedule(tau, logRidge, level));
  const { knots, values } = model.curve;
  return { knots: Array.from(knots), values: values.map((one) => Array.from(one)) };
}"""

PART = "const part = (rows) => [0, 1].map((j) => Float64Array.from(rows, (one) => one[j]));"
COLUMNS = "Float64Array.from(points, (one) => one[0]), Float64Array.from(points, (one) => one[1])"


def rows(name: str, n: int, seed: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    return PLANE[name].sample(n, torch.Generator().manual_seed(seed)).numpy()


@pytest.mark.parametrize("space", SPACES)
def test_coefficients_densities_scores_and_flow(space: str, blank: Explorer) -> None:
    points, new = rows("pinwheel", 400, 0), rows("pinwheel", 40, 1)
    model = OISM(process="torus", max_eigenvalue=BOUND, flow_steps=STEPS, **SPACES[space])
    fitted = model.fit(points).model_
    score, schedule = fitted.operator_score, fitted.operator_score.schedule
    choices = {
        "tau": schedule.tau.tolist(),
        "logRidge": schedule.log_ridge.tolist(),
        "level": schedule.level.tolist(),
    }
    settings = {"space": space, "bound": BOUND, "box": BOX}
    found = blank(FIT, [points.tolist(), settings, choices])
    assert np.allclose(found["knots"], score.curve.knots, rtol=0, atol=1e-12)
    assert np.abs(np.array(found["values"]) - score.curve.values.numpy()).max() < 1e-6

    density = f"(points) => Array.from(model.logDensity({COLUMNS}, {STEPS}))"
    assert np.abs(blank(density, new.tolist()) - model.score_samples(new)).max() < 1e-6

    t = score.clock.time(0.3)
    own = fitted.score(torch.from_numpy(new), t).numpy()
    scores = blank(f"(points) => Array.from(model.score(0.3, {COLUMNS}))", new.tolist())
    assert np.abs(np.array(scores).reshape(-1, 2) - own).max() < 1e-6 * np.abs(own).max()

    noise = torch.rand(30, 2, generator=torch.Generator().manual_seed(2)).double() * 6 - 3
    for ends, move in (((1, 0), fitted.process_flow.pull), ((0, 1), fitted.process_flow.push)):
        here = move(noise, method=RungeKutta4(STEPS))
        carry = f"(points) => Array.from(model.carry(points, {ends[0]}, {ends[1]}, {STEPS}))"
        there = torch.tensor(blank(carry, noise.flatten().tolist())).reshape(-1, 2)
        assert torch.remainder(there - here + np.pi, 2 * np.pi).sub(np.pi).abs().max() < 1e-6


@pytest.mark.parametrize("space", SPACES)
def test_a_fixed_ridge_and_no_ridge(space: str, blank: Explorer) -> None:
    points = rows("circles", 300, 0)
    for ridge in (0.03, 0.0):
        model = OISM(process="torus", max_eigenvalue=25, ridge=ridge, flow_steps=4, **SPACES[space])
        score = model.fit(points).model_.operator_score
        settings = {"space": space, "bound": 25, "box": BOX}
        exact = f"""([points, settings, ridge, tau]) => {{
          {PART}
          const own = new Model(...part(points), settings);
          return Array.from(own.coefficients(tau, Schedule.constant(ridge)));
        }}"""
        for tau in (0.2, 0.7):
            here = score.coefficients(score.clock.time(tau), exact=True).numpy()
            there = np.array(blank(exact, [points.tolist(), settings, ridge, tau]))
            assert np.abs(there - here).max() < 1e-6 * max(1.0, np.abs(here).max())


@pytest.mark.parametrize(("space", "bound"), [("plane", 100), ("interval", 144)])
def test_many_functions_are_solved_for_by_iteration(
    space: str, bound: int, blank: Explorer
) -> None:
    """The library factorises matrices of this size, so the iterations of the page must converge."""
    points, ridge = rows("rings", 400, 0), 3e-3
    model = OISM(process="torus", max_eigenvalue=bound, ridge=ridge, flow_steps=4, **SPACES[space])
    score = model.fit(points).model_.operator_score
    settings = {"space": space, "bound": bound, "box": BOX}
    solve = f"""([points, settings, ridge, tau, start]) => {{
      {PART}
      const own = new Model(...part(points), settings), constant = Schedule.constant(ridge);
      const guess = start ? own.coefficients(tau + 0.01, constant) : null;
      return Array.from(own.coefficients(tau, constant, {{ exact: !start, start: guess }}));
    }}"""
    for tau in (0.05, 0.3, 0.6):
        here = score.coefficients(score.clock.time(tau), exact=True).numpy()
        for start in (False, True):
            there = np.array(blank(solve, [points.tolist(), settings, ridge, tau, start]))
            assert np.abs(there - here).max() < 1e-6


@pytest.mark.parametrize("space", ["plane", "interval"])
def test_the_operator_is_the_matrix(space: str, blank: Explorer) -> None:
    """Products by Fourier transforms equal those with A_t, for bands of several grids."""
    compare = f"""([points, settings, share]) => {{
      {PART}
      const {{ basis, averages }} = new Model(...part(points), settings), random = new Random(1);
      const of = (means) => new Equations(basis, means, 0.003, share * basis.radius);
      const [one, other] = [of(averages.total), of(averages.heldout[0])], {{ n }} = one;
      const y = Float64Array.from({{ length: n }}, () => random.normal());
      const ones = new Float64Array(n).fill(1), systems = GridSystem.ofBoth(one, other, ones);
      return [one, other].map((equations, k) => {{
        const dense = new DenseSystem(equations, ones), own = systems[k];
        const [a, b] = [dense, own].map((system) => system.apply(y, new Float64Array(n)));
        const error = Math.max(...a.map((value, i) => Math.abs(value - b[i]))) / Math.max(...a);
        return [error, own.energy(y) / dense.energy(y) - 1, own.operator.n];
      }});
    }}"""
    points, grids = rows("2spirals", 300, 0), set()
    for bound in (50, 130):
        settings = {"space": space, "bound": bound, "box": BOX}
        for share in (1.0, 0.5):
            for error, energy, grid in blank(compare, [points.tolist(), settings, share]):
                assert error < 1e-12
                assert abs(energy) < 1e-12
                grids.add(grid)
    assert len(grids) > 2


@pytest.mark.parametrize("n", [16, 24, 48, 64, 72])
def test_transforms(n: int, blank: Explorer) -> None:
    """Transforms of three sequences, also with zeros left out and with results left out."""
    transform = """([n, re, im, name]) => {
      const from = [Float64Array.from(re), Float64Array.from(im)], to = pairOf(3 * n);
      return fftOf(n)[name](from, to, 3).map((part) => Array.from(part));
    }"""
    values = np.random.default_rng(0).normal(size=(2, n, 3))
    low = np.abs(np.fft.fftfreq(n, 1 / n) + 0.5) < n / 4
    for name, used in (("run", values), ("runSparse", values * low[:, None]), ("runLow", values)):
        found = np.array(blank(transform, [n, *used.reshape(2, -1).tolist(), name]))
        own = n * np.fft.ifft(used[0] + 1j * used[1], axis=0)
        shown = low if name == "runLow" else slice(None)
        there = (found[0] + 1j * found[1]).reshape(n, 3)[shown]
        assert np.abs(there - own[shown]).max() < 1e-12


@pytest.mark.parametrize("space", SPACES)
def test_choices_of_cross_validation(space: str, blank: Explorer) -> None:
    """Dense systems are chosen alike; the library's iterative ones have a tolerance of 1e-3."""
    points = rows("moons", 600, 0)
    model = OISM(process="torus", max_eigenvalue=25, flow_steps=4, **SPACES[space]).fit(points)
    schedule = model.model_.operator_score.schedule
    settings = {"space": space, "bound": 25, "box": BOX}
    choose = f"""([points, settings]) => {{
      {PART}
      return {{ ...new Model(...part(points), settings).choose() }};
    }}"""
    found = blank(choose, [points.tolist(), settings])
    assert found["level"] == schedule.level.tolist()
    assert np.abs(np.array(found["logRidge"]) - schedule.log_ridge.numpy()).max() < 1e-6


@pytest.mark.parametrize("n", [5, 10, 41, 199, 200, 300])
def test_the_box_of_few_points_with_an_outlier(n: int, blank: Explorer) -> None:
    points = rows("circles", n, 0)
    points[0] = 40.0, -50.0
    scale = OISM(max_eigenvalue=2, flow_steps=2).fit(points).model_.chart.scale
    found = f"""([points, settings]) => {{
      {PART}
      return new Model(...part(points), settings).chart.axes.map((axis) => axis.scale);
    }}"""
    settings = {"space": "plane", "bound": 4, "box": BOX}
    assert np.allclose(blank(found, [points.tolist(), settings]), scale, rtol=1e-12)


@pytest.mark.parametrize("space", SPACES)
def test_folds(space: str, blank: Explorer) -> None:
    points = np.concatenate((rows("rings", 500, 0), [[0.0, -0.0], [1.0, 2.0], [-3.0, 1e-300]]))
    model = OISM(process="torus", max_eigenvalue=4, flow_steps=2, ridge=1.0, **SPACES[space])
    own = model.fit(points).collector_.folds_of(torch.from_numpy(points))
    settings = {"space": space, "bound": 4, "box": BOX}
    folds = f"""([points, settings]) => {{
      {PART}
      return Array.from(new Model(...part(points), settings).fold);
    }}"""
    assert blank(folds, [points.tolist(), settings]) == own.tolist()


@pytest.mark.parametrize("name", PLANE)
def test_toy_distributions(name: str, blank: Explorer) -> None:
    """The page's rows and the library's pass Kolmogorov and Smirnov's test of one distribution."""
    draw = "([name, n]) => drawToy(name, n, 5, { low: [-9, -9], width: [18, 18] })"
    found, own = np.array(blank(draw, [name, 4000])), rows(name, 4000, 0)
    directions = np.random.default_rng(0).normal(size=(6, 2))
    levels = [scipy.stats.ks_2samp(found @ one, own @ one).pvalue for one in directions]
    assert min(levels) > 1e-3
    radii = [np.linalg.norm(one, axis=1) for one in (found, own)]
    assert scipy.stats.ks_2samp(*radii).pvalue > 1e-3


@pytest.mark.parametrize("space", ["plane", "torus"])
def test_kernel_density_estimate(space: str, blank: Explorer) -> None:
    points, new, width = rows("moons", 200, 0), rows("moons", 50, 1), 0.3
    settings = {"space": space, "bound": 25, "box": BOX}
    density = f"""([points, settings, new_, width]) => {{
      {PART}
      return Array.from(new KDE(...part(points), settings, width).logDensity(...part(new_)));
    }}"""
    found = blank(density, [points.tolist(), settings, new.tolist(), width])
    torus = space == "torus"
    unit = 9.0 / (2 * np.pi) * np.ones(2) if torus else points.std(axis=0)
    shift = np.zeros(2) if torus else points.mean(axis=0)
    periods = {0: 2 * np.pi, 1: 2 * np.pi} if torus else None
    own = KDE(periodic=periods, background=torus, widest=width, octaves=0)
    own.fit((points - shift) / unit)
    own.bandwidth_ = width
    expected = own.score_samples((new - shift) / unit) - np.log(unit).sum()
    assert np.abs(np.array(found) - expected).max() < 1e-6


def test_kernels_on_an_interval_have_mass_one(blank: Explorer) -> None:
    mass = """() => {
      const random = new Random(3), x = [], y = [], n = 60;
      for (let i = 0; i < 50; i++) {
        x.push(random.uniform() ** 2);
        y.push(1 - random.uniform() ** 2);
      }
      const settings = { space: "interval", bound: 25, box: { low: [0, 0], width: [1, 1] } };
      const own = new KDE(Float64Array.from(x), Float64Array.from(y), settings, 0.3);
      const u = [], v = [];
      for (let i = 0; i < n; i++)
        for (let j = 0; j < n; j++) { u.push((i + 0.5) / n); v.push((j + 0.5) / n); }
      return own.logDensity(u, v).reduce((a, b) => a + Math.exp(b), 0) / (n * n);
    }"""
    assert blank(mass) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("space", SPACES)
def test_the_map_is_the_density_of_the_flow(space: str, blank: Explorer) -> None:
    """The grid of the picture has the mass 1, and the log-densities of the flow up to 2%."""
    points = rows("circles", 500, 0)
    settings = {"space": space, "bound": BOUND, "box": BOX}
    compare = """([points, settings]) => {
      const [x, y] = [0, 1].map((j) => Float64Array.from(points, (one) => one[j]));
      const own = new Model(x, y, settings), [ax, ay] = own.chart.axes, n = 64, at = [0];
      own.fit(Schedule.constant(0.01, 0));
      let log;
      for (const [, one] of flowDensities(own, n, 16)) log = one;
      const exact = own.logDensity(x.slice(0, 80), y.slice(0, 80), 32);
      const constant = own.chart.logJacobian - 2 * Math.log(2 * Math.PI);
      let error = 0;
      exact.forEach((one, i) => {
        interpolate([log], n, ax.toProcess(x[i]), ay.toProcess(y[i]), at);
        const near = at[0] + constant;
        error += Math.abs(near - one) / exact.length;
      });
      return [error, log.reduce((a, b) => a + Math.exp(b), 0) / (n * n)];
    }"""
    error, mass = blank(compare, [points.tolist(), settings])
    assert error < 0.02
    assert mass == pytest.approx(1, abs=0.02)
