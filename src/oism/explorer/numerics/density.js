/* Densities on a grid of the torus, u = 0, 2π/n, …: of the flow at all noise levels, and of the data.

   A score determines the shape of a density, but not the masses of nearly separate regions; the flow
   determines both. From τ = 1, where log ρ/π is 0, downwards: the value at a grid point is the value
   at τ + h of the point that the flow takes it to (Kutta's rule of order three), plus the integral of
   the divergence. Velocities and divergences are exact on the grid, by Fourier transforms, and
   interpolated by cubic polynomials elsewhere. */

function interpolate(fields, n, u, v, out) {
  /* Write the values of fields on the grid at a point of the torus, by cubic polynomials, to out. */
  const mask = n - 1, x = (u * n) / (2 * Math.PI), y = (v * n) / (2 * Math.PI);
  const i = Math.floor(x), j = Math.floor(y), s = x - i, t = y - j;
  const a0 = (-s * (s - 1) * (s - 2)) / 6, a1 = ((s + 1) * (s - 1) * (s - 2)) / 2;
  const a2 = (-(s + 1) * s * (s - 2)) / 2, a3 = ((s + 1) * s * (s - 1)) / 6;
  const b0 = (-t * (t - 1) * (t - 2)) / 6, b1 = ((t + 1) * (t - 1) * (t - 2)) / 2;
  const b2 = (-(t + 1) * t * (t - 2)) / 2, b3 = ((t + 1) * t * (t - 1)) / 6;
  const c0 = (i - 1) & mask, c1 = i & mask, c2 = (i + 1) & mask, c3 = (i + 2) & mask;
  const r0 = ((j - 1) & mask) * n, r1 = (j & mask) * n, r2 = ((j + 1) & mask) * n, r3 = ((j + 2) & mask) * n;
  for (let k = 0; k < fields.length; k++) {
    const f = fields[k];
    out[k] = b0 * (a0 * f[r0 + c0] + a1 * f[r0 + c1] + a2 * f[r0 + c2] + a3 * f[r0 + c3])
      + b1 * (a0 * f[r1 + c0] + a1 * f[r1 + c1] + a2 * f[r1 + c2] + a3 * f[r1 + c3])
      + b2 * (a0 * f[r2 + c0] + a1 * f[r2 + c1] + a2 * f[r2 + c2] + a3 * f[r2 + c3])
      + b3 * (a0 * f[r3 + c0] + a1 * f[r3 + c1] + a2 * f[r3 + c2] + a3 * f[r3 + c3]);
  }
  return out;
}

function gridOperator(basis, n) {
  const kept = (basis.grids ??= new Map());
  if (!kept.has(n)) kept.set(n, new TorusOperator(basis, basis.xi.count, n));
  return kept.get(n);
}

function* flowDensities({ clock, curve, basis, chart }, n, levels) {
  /* Yield [τ, log ρ/π on the grid] from τ = 1 down to 0. */
  const h = 1 / levels, grid = gridOperator(basis, n), [foldX, foldY] = chart.reflected;
  const fieldsAt = (tau) => {
    const alpha = curve.at(tau), step = -h * clock.rate(tau); // velocities and divergences times h
    return [...grid.gradient(alpha).map((one) => one.slice()), grid.laplacian(alpha)]
      .map((field) => field.map((one) => step * one));
  };
  let log = new Float64Array(n * n), end = fieldsAt(1);
  const b = new Float64Array(3), c = new Float64Array(3), before = new Float64Array(1);
  yield [1, log];
  for (let level = levels - 1; level >= 0; level--) {
    const next = new Float64Array(n * n), start = fieldsAt(level * h), middle = fieldsAt((level + 0.5) * h);
    for (let j = 0; j < n; j++)
      for (let i = 0; i < n; i++) {
        const at = j * n + i, mi = foldX && i > n / 2 ? n - i : i, mj = foldY && j > n / 2 ? n - j : j;
        if (mi !== i || mj !== j) { // the mirror image of a point that is known
          next[at] = next[mj * n + mi];
          continue;
        }
        const u = (2 * Math.PI * i) / n, v = (2 * Math.PI * j) / n, au = start[0][at], av = start[1][at];
        interpolate(middle, n, u + 0.5 * au, v + 0.5 * av, b);
        interpolate(end, n, u - au + 2 * b[0], v - av + 2 * b[1], c);
        const du = (au + 4 * b[0] + c[0]) / 6, dv = (av + 4 * b[1] + c[1]) / 6;
        next[at] = interpolate([log], n, u + du, v + dv, before)[0] + (start[2][at] + 4 * b[2] + c[2]) / 6;
      }
    [log, end] = [next, start];
    yield [level * h, log];
  }
}

function dataDensity(basis, means, t, n) {
  /* Return ρ_t/π = 1 + 2 Re Σ c_t(ζ) e^{iζ·u}, the series of the averages, on the grid. */
  const noised = new Equations(basis, means, t, Infinity);
  return gridOperator(basis, n).densities(noised, noised)[0].map((one) => n * n * one);
}

function upsampled(coarse, m) {
  /* Return a periodic field of m × m points on 2m × 2m points, by cubic polynomials. */
  const n = 2 * m, out = new Float32Array(n * n), rows = new Float32Array(m * n), mask = m - 1;
  for (let j = 0; j < m; j++)
    for (let i = 0, at = j * m; i < m; i++) {
      const left = coarse[at + i], right = coarse[at + ((i + 1) & mask)];
      const ends = coarse[at + ((i - 1) & mask)] + coarse[at + ((i + 2) & mask)];
      rows[j * n + 2 * i] = left;
      rows[j * n + 2 * i + 1] = (9 * (left + right) - ends) / 16;
    }
  for (let j = 0; j < m; j++) {
    const [a, b, c, d] = [-1, 0, 1, 2].map((k) => ((j + k) & mask) * n), to = 2 * j * n;
    for (let i = 0; i < n; i++) {
      out[to + i] = rows[b + i];
      out[to + n + i] = (9 * (rows[b + i] + rows[c + i]) - rows[a + i] - rows[d + i]) / 16;
    }
  }
  return out;
}

function fullColour(density) {
  /* Return log(2 E[ρ²]/E[ρ]), twice the mean density of a sample: where the map has its full colour,
     so that single peaks do not hide the rest. */
  let mass = 0, square = 0;
  for (const one of density) {
    mass += one;
    square += one * one;
  }
  return Math.log((2 * square) / mass);
}
