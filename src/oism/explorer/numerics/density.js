/* Densities of the flow on a grid, at all noise levels.

   A score determines the shape of a density, but not the masses of nearly separate regions; the flow
   determines both. From τ = 1, where log ρ/π is 0, downwards: the value at a grid point is the value
   at τ + h of the point that the flow takes it to (Kutta's rule of order three, bicubic interpolation), plus
   the integral of the divergence. */

const cubicWeights = (s) => [
  (-s * (s - 1) * (s - 2)) / 6, ((s + 1) * (s - 1) * (s - 2)) / 2,
  (-(s + 1) * s * (s - 2)) / 2, ((s + 1) * s * (s - 1)) / 6];

function interpolate(field, n, u, v) {
  /* Return a field of the grid at a point of the torus, by cubic polynomials. */
  const mask = n - 1, x = ((u + Math.PI) * n) / (2 * Math.PI), y = ((v + Math.PI) * n) / (2 * Math.PI);
  const i = Math.floor(x), j = Math.floor(y), s = x - i, t = y - j;
  const a0 = (-s * (s - 1) * (s - 2)) / 6, a1 = ((s + 1) * (s - 1) * (s - 2)) / 2;
  const a2 = (-(s + 1) * s * (s - 2)) / 2, a3 = ((s + 1) * s * (s - 1)) / 6;
  const w = cubicWeights(t);
  const c0 = (i - 1) & mask, c1 = i & mask, c2 = (i + 1) & mask, c3 = (i + 2) & mask;
  let total = 0;
  for (let k = 0; k < 4; k++) {
    const row = ((j - 1 + k) & mask) * n;
    total += w[k] * (a0 * field[row + c0] + a1 * field[row + c1] + a2 * field[row + c2] + a3 * field[row + c3]);
  }
  return total;
}

function* flowDensities(model, n, levels) {
  /* Yield [τ, log ρ/π on the grid] from τ = 1 down to 0. */
  const { clock, curve, basis } = model, h = 1 / levels, fold = model.chart.reflected;
  const stages = [0, 1, 2].map(() => ({ series: new Series(basis), at: new Float64Array(3), step: 0 }));
  const [a, b, c] = stages;
  let log = new Float64Array(n * n);
  yield [1, log];
  for (let level = levels - 1; level >= 0; level--) {
    const next = new Float64Array(n * n);
    stages.forEach((one, k) => {
      const tau = (level + 0.5 * k) * h;
      one.series.set(curve.at(tau));
      one.step = -h * clock.rate(tau); // velocities and divergences times h
    });
    for (let j = 0; j < n; j++)
      for (let i = 0; i < n; i++) {
        const at = j * n + i, mi = fold[0] && i > n / 2 ? n - i : i, mj = fold[1] && j > n / 2 ? n - j : j;
        if (mi !== i || mj !== j) { // the mirror image of a point that is known
          next[at] = next[mj * n + mi];
          continue;
        }
        const u = -Math.PI + (2 * Math.PI * i) / n, v = -Math.PI + (2 * Math.PI * j) / n;
        a.series.evaluate(u, v, a.at, 0, true);
        const au = a.step * a.at[0], av = a.step * a.at[1];
        b.series.evaluate(u + 0.5 * au, v + 0.5 * av, b.at, 0, true);
        const bu = b.step * b.at[0], bv = b.step * b.at[1];
        c.series.evaluate(u - au + 2 * bu, v - av + 2 * bv, c.at, 0, true);
        const du = (au + 4 * bu + c.step * c.at[0]) / 6, dv = (av + 4 * bv + c.step * c.at[1]) / 6;
        const divergence = (a.step * a.at[2] + 4 * b.step * b.at[2] + c.step * c.at[2]) / 6;
        next[at] = interpolate(log, n, u + du, v + dv) + divergence;
      }
    log = next;
    yield [level * h, log];
  }
}
