/* Series at scattered points, and the probability flow.

   On the torus dX = √2 dW, so the flow is dx/dτ = -t'(τ) s(x, t(τ)) with s = Σ α_k ∇φ_k, and along
   its paths log ρ_τ changes by t'(τ) Δ Σ α_k φ_k. At τ = 1 the density is uniform. */

class Series {
  /* Sums over the half lattice at points.

     With w = √2 (α_cos - iα_sin), f = Re Σ w e^{iξ·u}. The terms of ±ξ_y are added first:
     w₊e^{iky} + w₋e^{-iky} = p cos ky + q sin ky, where p = w₊ + w₋ and q = i(w₊ - w₋). */
  constructor(basis) {
    this.reach = basis.reach;
    const { xi, reach } = basis, slots = [];
    this.rows = new Int32Array(reach + 2);
    for (let kx = 0; kx <= reach; kx++) {
      this.rows[kx] = slots.length;
      for (let ky = 0; ky <= reach; ky++) if (kx * kx + ky * ky <= basis.bound) slots.push([kx, ky]);
    }
    this.rows[reach + 1] = slots.length;
    this.ky = Int32Array.from(slots, (one) => one[1]);
    const place = new Map(slots.map(([kx, ky], i) => [kx * (reach + 1) + ky, i]));
    this.slot = Int32Array.from(xi.x, (kx, i) => place.get(kx * (reach + 1) + Math.abs(xi.y[i])));
    this.side = Int8Array.from(xi.y, Math.sign);
    this.parts = Array.from({ length: 4 }, () => new Float64Array(slots.length));
    this.table = new Float64Array(4 * (reach + 1));
  }

  set(alpha) {
    const [pr, pi, qr, qi] = this.parts;
    for (const part of this.parts) part.fill(0);
    for (let k = 0; k < this.slot.length; k++) {
      const i = this.slot[k], re = Math.SQRT2 * alpha[2 * k], im = -Math.SQRT2 * alpha[2 * k + 1];
      pr[i] += re;
      pi[i] += im;
      qr[i] -= this.side[k] * im;
      qi[i] += this.side[k] * re;
    }
    return this;
  }

  evaluate(x, y, out, at, laplacian) {
    /* Write f_x, f_y (and Δf) at one point to out; return f. */
    const { reach, rows, ky, table } = this, [pr, pi, qr, qi] = this.parts, step = reach + 1;
    const c = Math.cos(y), s = Math.sin(y);
    let a = 1, b = 0;
    for (let k = 0; k <= reach; k++) {
      table[k] = a;
      table[step + k] = b;
      [a, b] = [a * c - b * s, a * s + b * c];
    }
    const cx = Math.cos(x), sx = Math.sin(x);
    let er = 1, ei = 0, f = 0, fx = 0, fy = 0, lap = 0;
    for (let kx = 0; kx <= reach; kx++) {
      let s0r = 0, s0i = 0, s1r = 0, s1i = 0, s2r = 0, s2i = 0;
      for (let i = rows[kx]; i < rows[kx + 1]; i++) {
        const k = ky[i], cos = table[k], sin = table[step + k];
        const r = pr[i] * cos + qr[i] * sin, m = pi[i] * cos + qi[i] * sin;
        s0r += r;
        s0i += m;
        // the derivative in y
        s1r += k * (qr[i] * cos - pr[i] * sin);
        s1i += k * (qi[i] * cos - pi[i] * sin);
        if (laplacian) {
          s2r += k * k * r;
          s2i += k * k * m;
        }
      }
      const value = er * s0r - ei * s0i;
      f += value;
      fx -= kx * (er * s0i + ei * s0r);
      fy += er * s1r - ei * s1i;
      lap -= kx * kx * value + er * s2r - ei * s2i;
      [er, ei] = [er * cx - ei * sx, er * sx + ei * cx];
    }
    out[at] = fx;
    out[at + 1] = fy;
    if (laplacian) out[at + 2] = lap;
    return f;
  }
}

function flowSteps(series, curve, clock, state, from, to, steps, laplacian) {
  /* Move points (x, y) or (x, y, integral of the divergence) along the flow, in place.

     Kutta's 3/8 rule with equal steps in τ. */
  const width = laplacian ? 3 : 2, count = state.length / width, h = (to - from) / steps;
  const k = Array.from({ length: 4 }, () => new Float64Array(state.length));
  const moved = new Float64Array(state.length);
  const field = (tau, points, out) => {
    series.set(curve.at(tau));
    const rate = clock.rate(tau);
    for (let i = 0; i < count; i++) {
      const at = i * width;
      series.evaluate(points[at], points[at + 1], out, at, laplacian);
      for (let j = 0; j < width; j++) out[at + j] *= -rate;
    }
  };
  for (let step = 0; step < steps; step++) {
    const tau = from + step * h, end = step + 1 === steps ? to : tau + h;
    field(tau, state, k[0]);
    for (let i = 0; i < state.length; i++) moved[i] = state[i] + (h * k[0][i]) / 3;
    field(tau + h / 3, moved, k[1]);
    for (let i = 0; i < state.length; i++) moved[i] = state[i] + h * (k[1][i] - k[0][i] / 3);
    field(tau + (2 * h) / 3, moved, k[2]);
    for (let i = 0; i < state.length; i++) moved[i] = state[i] + h * (k[0][i] - k[1][i] + k[2][i]);
    field(end, moved, k[3]);
    for (let i = 0; i < state.length; i++)
      state[i] += (h * (k[0][i] + 3 * (k[1][i] + k[2][i]) + k[3][i])) / 8;
  }
  return state;
}

function flowLogDensity(series, curve, clock, u, v, steps) {
  /* Return log ρ at points of the torus: log π + ∫ ∇·v dτ along the path to τ = 1. */
  const state = new Float64Array(3 * u.length);
  for (let i = 0; i < u.length; i++) state.set([u[i], v[i], 0], 3 * i);
  flowSteps(series, curve, clock, state, 0, 1, steps, true);
  return Float64Array.from(u, (_, i) => state[3 * i + 2] - 2 * Math.log(2 * Math.PI));
}
