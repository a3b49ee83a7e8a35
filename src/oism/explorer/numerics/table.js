/* Coefficients over clock time: clock, ridge and level over time, splines, and knots.

   The clock is variance exploding, t = ½σ² with σ = σ_min (σ_max/σ_min)^τ, τ ∈ [0, 1]. */

const SIGMA_MAX = 5, TIMES = 17, KNOT_ERROR = 1e-2, NEGLIGIBLE = 1e-2, MOST_KNOTS = 1025;
const FIXED_TOLERANCE = 1e-4; // the relative residual at fixed times

class VarianceExploding {
  constructor(finest) {
    this.least = 0.01 * Math.sqrt(500 / finest);
    this.logRatio = Math.log(SIGMA_MAX / this.least);
  }
  sigma(tau) { return this.least * Math.exp(this.logRatio * tau); }
  time(tau) { return 0.5 * this.sigma(tau) ** 2; }
  rate(tau) { return 2 * this.logRatio * this.time(tau); }
  inverse(sigma) { return Math.log(sigma / this.least) / this.logRatio; }
}

const clockOf = (basis) => new VarianceExploding(basis.radius ** 2);

const evenTimes = (count) => Float64Array.from({ length: count }, (_, i) => i / (count - 1));

class Schedule {
  /* Ridge and level over clock time: choices at even times, smoothed by a normal kernel of one
     step. Without times: one ridge and level for all. */
  constructor(tau, logRidge, level) { Object.assign(this, { tau, logRidge, level }); }

  static constant(ridge, level = UNTRUNCATED) {
    return new Schedule([0], [Math.log(ridge)], [level]);
  }

  at(tau) {
    if (this.tau.length === 1) return [Math.exp(this.logRidge[0]), this.level[0]];
    const steps = Math.max(1, 0.0375 * (this.tau.length - 1));
    const width = steps * (this.tau[1] - this.tau[0]);
    let total = 0, logRidge = 0, level = 0;
    for (let i = 0; i < this.tau.length; i++) {
      const weight = Math.exp(-0.5 * ((tau - this.tau[i]) / width) ** 2);
      total += weight;
      logRidge += weight * this.logRidge[i];
      level += weight * this.level[i];
    }
    return [Math.exp(logRidge / total), level / total];
  }
}

function splineSlopes(x, values) {
  /* Return the slopes at the knots of the cubic spline without a knot at the second and the last
     but one (not-a-knot); values are a list of arrays. */
  const k = x.length, size = values[0].length;
  const dx = Array.from({ length: k - 1 }, (_, i) => x[i + 1] - x[i]);
  const low = new Float64Array(k), middle = new Float64Array(k), high = new Float64Array(k);
  const right = Array.from({ length: k }, () => new Float64Array(size));
  const slope = (i, j) => (values[i + 1][j] - values[i][j]) / dx[i];
  const first = x[2] - x[0], last = x[k - 1] - x[k - 3];
  middle[0] = dx[1];
  high[0] = first;
  middle[k - 1] = dx[k - 3];
  low[k - 1] = last;
  for (let i = 1; i < k - 1; i++) {
    low[i] = dx[i];
    middle[i] = 2 * (dx[i - 1] + dx[i]);
    high[i] = dx[i - 1];
  }
  for (let j = 0; j < size; j++) {
    right[0][j] = ((dx[0] + 2 * first) * dx[1] * slope(0, j) + dx[0] ** 2 * slope(1, j)) / first;
    for (let i = 1; i < k - 1; i++)
      right[i][j] = 3 * (dx[i] * slope(i - 1, j) + dx[i - 1] * slope(i, j));
    right[k - 1][j] =
      (dx[k - 2] ** 2 * slope(k - 3, j) + (2 * last + dx[k - 2]) * dx[k - 3] * slope(k - 2, j)) / last;
  }
  for (let i = 1; i < k; i++) {
    const factor = low[i] / middle[i - 1];
    middle[i] -= factor * high[i - 1];
    for (let j = 0; j < size; j++) right[i][j] -= factor * right[i - 1][j];
  }
  for (let i = k - 1; i >= 0; i--)
    for (let j = 0; j < size; j++)
      right[i][j] = (right[i][j] - (i + 1 < k ? high[i] * right[i + 1][j] : 0)) / middle[i];
  return right;
}

class Curve {
  /* A cubic spline through arrays at increasing knots. */
  constructor(knots, values, slopes = splineSlopes(knots, values)) {
    Object.assign(this, { knots, values, slopes });
  }

  at(tau) {
    const { knots, values, slopes } = this, last = knots.length - 1;
    tau = Math.min(Math.max(tau, knots[0]), knots[last]);
    let right = 1;
    while (right < last && knots[right] <= tau) right++;
    const step = knots[right] - knots[right - 1], place = (tau - knots[right - 1]) / step;
    const inner = place * (1 - place), share = place * place * (3 - 2 * place);
    const [a, b, c, d] = [1 - share, share, step * inner * (1 - place), -step * inner * place];
    const [v, w, s, r] = [values[right - 1], values[right], slopes[right - 1], slopes[right]];
    return v.map((one, j) => a * one + b * w[j] + c * s[j] + d * r[j]);
  }
}

function* tabulating(basis, means, clock, schedule, before = null, fixed = null) {
  /* Yield { curve, done }: of even times, then with midpoints until the relative error of the score
     in L²(ρ_t) at all of them is below KNOT_ERROR; or of fixed times only. Between two solutions
     yield {}. Solutions by iteration start from an earlier curve, and are quick at first. */
  const size = means.even ? basis.orbits.first.length : basis.size;
  const iterates = size > DENSE_SOLVE && schedule.at(0)[0] > 0;
  const solved = (tau, start, tolerance) => {
    const [ridge, level] = schedule.at(tau);
    return solve(basis, means, clock.time(tau), ridge, level, { start, tolerance });
  };
  let knots = fixed ?? [...evenTimes(TIMES)], values = knots.map((tau) => before?.at(tau) ?? null);
  const tolerances = fixed ? [FIXED_TOLERANCE] : [QUICK_TOLERANCE, KNOT_TOLERANCE];
  for (const tolerance of iterates ? tolerances : [KNOT_TOLERANCE]) {
    for (let i = knots.length - 1; i >= 0; i--) { // from much noise, where solutions are cheap, to little
      values[i] = solved(knots[i], values[i] ?? values[i + 1], tolerance);
      yield {};
    }
    yield { curve: new Curve(knots, values), done: Boolean(fixed) };
  }
  if (fixed) return;
  let pending = knots.slice(1).map(() => true), curve = new Curve(knots, values);
  for (;;) {
    const nextKnots = [knots[0]], nextValues = [values[0]], split = [];
    for (let i = 0; i < pending.length; i++) {
      if (pending[i]) {
        const tau = 0.5 * (knots[i] + knots[i + 1]), guess = curve.at(tau), exact = solved(tau, guess);
        const gap = exact.map((one, j) => one - guess[j]);
        const [size, wrong] = norms(basis, means, clock.time(tau), exact, gap);
        const again = wrong / (size + NEGLIGIBLE) > KNOT_ERROR;
        nextKnots.push(tau);
        nextValues.push(exact);
        split.push(again, again);
        yield {};
      } else split.push(false);
      nextKnots.push(knots[i + 1]);
      nextValues.push(values[i + 1]);
    }
    [knots, values, pending] = [nextKnots, nextValues, split];
    curve = new Curve(knots, values);
    const more = pending.filter(Boolean).length, done = !more || knots.length + more > MOST_KNOTS;
    yield { curve, done };
    if (done) return;
  }
}
