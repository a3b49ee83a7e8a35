/* The model of a set of points: chart, averages by fold, coefficients over time, densities.

   p(x) = (1 - w) ρ(u(x)) |du/dx| + w q(x), with the background q of share w on the plane. */

const FOLDS = 5;

const BASES = new Map();
function basisOf(bound) {
  if (!BASES.has(bound)) BASES.set(bound, new Basis(bound));
  return BASES.get(bound);
}

class Model {
  /* settings: space ("plane", "torus", "interval"), box {low, width}, bound. The folds of the rows,
     and averages of the same rows, may be given. */
  constructor(x, y, settings, fold = null, averages = null) {
    Object.assign(this, { x, y, settings });
    this.basis = basisOf(settings.bound);
    this.clock = clockOf(this.basis);
    this.chart = Chart.of(settings.space, x, y, settings.box);
    this.fold = fold ?? foldsOf(x, y, this.chart.axes, FOLDS);
    const inside = Array.from(x.keys()).filter((i) => this.chart.covers(x[i], y[i]));
    this.averages = averages ?? this._averages(inside);
    const free = settings.space === "plane";
    this.background = free ? new Background(x, y, x.length - inside.length) : null;
  }

  _averages(inside) {
    const { basis, chart, x, y, fold } = this, [ax, ay] = chart.axes, weight = new Array(FOLDS).fill(0);
    const u = inside.map((i) => ax.toProcess(x[i])), v = inside.map((i) => ay.toProcess(y[i]));
    const own = inside.map((i) => fold[i]);
    for (const f of own) weight[f]++;
    const sums = waveSums(basis, u, v, own, FOLDS, chart.reflected);
    return averagesOf(sums, weight, basis.lattice.count, chart.reflected.every(Boolean));
  }

  choose() { return chooseSchedule(this.basis, this.averages, this.clock); }

  coefficients(tau, schedule, options = { exact: true }) {
    const [ridge, level] = schedule.at(tau);
    return solve(this.basis, this.averages.total, this.clock.time(tau), ridge, level, options);
  }

  *fitting(schedule, before = null, knots = null) {
    /* Yield the steps of the fit: see tabulating. */
    this.schedule = schedule;
    for (const step of tabulating(this.basis, this.averages.total, this.clock, schedule, before, knots)) {
      if (step.curve) this.curve = step.curve;
      yield step;
    }
  }

  fit(schedule) {
    for (const _ of this.fitting(schedule));
    return this;
  }

  get series() { return (this._series ??= new Series(this.basis)); }

  score(tau, x, y) {
    /* Return ∇ log ρ_t in the units of the data: (x, y) pairs. */
    const [ax, ay] = this.chart.axes, out = new Float64Array(2 * x.length);
    this.series.set(this.curve.at(tau));
    for (let i = 0; i < x.length; i++) {
      this.series.evaluate(ax.toProcess(x[i]), ay.toProcess(y[i]), out, 2 * i, false);
      out[2 * i] *= ax.scale;
      out[2 * i + 1] *= ay.scale;
    }
    return out;
  }

  logDensity(x, y, steps = 32) {
    /* Return log p at points. */
    const [ax, ay] = this.chart.axes, inside = [];
    for (let i = 0; i < x.length; i++) if (this.chart.covers(x[i], y[i])) inside.push(i);
    const u = inside.map((i) => ax.toProcess(x[i])), v = inside.map((i) => ay.toProcess(y[i]));
    const found = flowLogDensity(this.series, this.curve, this.clock, u, v, steps);
    const out = new Float64Array(x.length).fill(-Infinity);
    inside.forEach((i, at) => (out[i] = found[at] + this.chart.logJacobian));
    if (!this.background) return out;
    const { share } = this.background;
    return out.map((own, i) => {
      const wide = this.background.logDensity(x[i], y[i]) + Math.log(share);
      const narrow = own + Math.log1p(-share), most = Math.max(narrow, wide);
      return most + Math.log(Math.exp(narrow - most) + Math.exp(wide - most));
    });
  }

  carry(points, from, to, steps) {
    /* Move points (u, v, u, v, …) of the torus along the flow between two clock times. */
    const state = Float64Array.from(points);
    return flowSteps(this.series, this.curve, this.clock, state, from, to, steps, false);
  }
}
