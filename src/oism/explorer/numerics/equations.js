/* The equations on the torus and their solution for a given ridge and cutoff.

   With c_t(ζ) = e^{-‖ζ‖²t} E[e^{-iζ·u}],

       A_t[k, l] = E_t[∇φ_k·∇φ_l],    b_t[k] = λ_k e^{λ_k t} E[φ_k],    λ = -‖ξ‖²,

   and the coefficients of log(ρ_t/π) = Σ α_k φ_k minimise αᵀA_tα + 2b_tᵀα. The penalty is ε Λ P with
   P = |λ| (1 + (|λ|/c²)⁶) and the cutoff c = r 2^{-level/2}: with D = (ΛP)^{-½},

       (D A D + εI) y = -D b,    α = D y.

   Frequencies far above the cutoff, or at which the data have decayed, are left out (the band). */

const RIDGES = Array.from({ length: 15 }, (_, i) => 10 ** (-6 + i / 2));
const UNTRUNCATED = -32;
const DENSE_SOLVE = 200; // the largest number of functions for which a matrix is factorised
// Relative residuals: of first solutions, of interpolated coefficients, of exact ones.
const QUICK_TOLERANCE = 1e-3, KNOT_TOLERANCE = 1e-8, FINAL_TOLERANCE = 1e-11, FINAL_ITERATIONS = 5000;
const SMALLEST_CUTOFF = 3, BANDS = 8, GAUSSIAN_DECAY = 80, EXPONENTIAL_DECAY = 25;

const levelsOf = (radius) =>
  1 + Math.max(0, Math.floor(2 * Math.log2(radius / SMALLEST_CUTOFF) + 1e-9));
const cutoffOf = (radius, level) => radius * 2 ** (-level / 2);

function bandOf(basis, reach, late) {
  /* The radius within which functions are kept, rounded up to one of eight per octave. */
  const wanted = Math.min(reach, late), r = basis.radius;
  if (wanted >= r) return Infinity;
  const steps = Math.floor(BANDS * Math.log2(r / Math.max(wanted, 1)) + 1e-9);
  return Math.max(r * 2 ** (-steps / BANDS), 4, Math.sqrt(basis.xi.squares[0])) + 1e-9;
}

const sweepBand = (basis, t, cutoff) => bandOf(basis, 1.5 * cutoff, Math.sqrt(GAUSSIAN_DECAY / t));

function finalBand(basis, t, cutoff, exact) {
  const late = Math.sqrt((2 * GAUSSIAN_DECAY) / t);
  return bandOf(basis, 3 * cutoff, exact ? Math.max(late, EXPONENTIAL_DECAY / t) : late);
}

class Equations {
  /* A_t and b_t of averages, for the first m frequencies.

     For densities that are even in each coordinate the functions are even too:
     (√2 cos(k, l)·u + √2 cos(k, -l)·u)/√2, orthonormal as well. */
  constructor(basis, means, t, band) {
    this.basis = basis;
    this.m = basis.inside(band);
    this.even = means.even;
    if (this.even) {
      const { first, second } = basis.orbits;
      this.n = first.filter((k) => k < this.m).length;
      this.first = first.slice(0, this.n);
      this.second = second.slice(0, this.n);
    } else this.n = 2 * this.m;
    const { lattice } = basis, count = lattice.count;
    const re = (this.re = new Float64Array(count + 1)), im = (this.im = new Float64Array(count + 1));
    for (let j = 0; j < count; j++) {
      const decay = Math.exp(-t * lattice.squares[j]);
      re[j] = decay * means.re[j];
      im[j] = decay * means.im[j];
    }
    re[count] = 1;
  }

  frequency(i) {
    /* The position of the frequency of a function. */
    return this.even ? this.first[i] : i >> 1;
  }

  right() {
    const { basis, n, even } = this, b = new Float64Array(n);
    for (let i = 0; i < n; i++) {
      const k = this.frequency(i), rate = -Math.SQRT2 * basis.xi.squares[k], at = basis.first[k];
      b[i] = even || !(i & 1) ? rate * this.re[at] : -rate * this.im[at];
      if (even && this.second[i] >= 0) b[i] *= Math.SQRT2;
    }
    return b;
  }

  matrix(scale) {
    /* Return D A D: the lower triangle, row-major. Without a scale A itself. */
    const { n } = this, a = new Float64Array(n * n);
    if (this.even) this._fillEven(a);
    else this._fill(a);
    if (scale)
      for (let i = 0; i < n; i++)
        for (let j = 0; j <= i; j++) a[i * n + j] *= scale[i] * scale[j];
    return a;
  }

  _fill(a) {
    // ∇√2 cos = -ξ√2 sin, ∇√2 sin = ξ√2 cos; 2 sin·sin = cos(-) - cos(+), …
    const { basis, m, n, re, im } = this, { minus, minusSign, plus, plusSign, dot } = basis.pairs;
    for (let k = 0, p = 0; k < m; k++)
      for (let l = 0; l <= k; l++, p++) {
        const weight = dot[p], cosMinus = re[minus[p]], cosPlus = re[plus[p]];
        const sinMinus = -minusSign[p] * im[minus[p]], sinPlus = -plusSign[p] * im[plus[p]];
        const at = 2 * k * n + 2 * l;
        a[at] = weight * (cosMinus - cosPlus);
        a[at + 1] = -weight * (sinPlus + sinMinus);
        a[at + n] = -weight * (sinPlus - sinMinus);
        a[at + n + 1] = weight * (cosMinus + cosPlus);
      }
  }

  _entry(k, l) {
    /* A between two cosines. */
    const { minus, plus, dot } = this.basis.pairs, p = k < l ? (l * (l + 1)) / 2 + k : (k * (k + 1)) / 2 + l;
    return dot[p] * (this.re[minus[p]] - this.re[plus[p]]);
  }

  _fillEven(a) {
    const { n, first, second } = this;
    for (let i = 0; i < n; i++)
      for (let j = 0; j <= i; j++) {
        let one = this._entry(first[i], first[j]);
        if (second[i] >= 0 && second[j] >= 0) one += this._entry(first[i], second[j]);
        else if (second[i] >= 0 || second[j] >= 0) one *= Math.SQRT2;
        a[i * n + j] = one;
      }
  }

  scale(level) {
    /* Return the diagonal of D. */
    const { basis, n } = this, d = new Float64Array(n);
    const square = cutoffOf(basis.radius, level) ** 2;
    for (let i = 0; i < n; i++) {
      const rate = basis.xi.squares[this.frequency(i)], penalty = rate * (1 + (rate / square) ** 6);
      d[i] = 1 / Math.sqrt(rate * penalty);
    }
    return d;
  }

  spread(y, scale) {
    /* Return the coefficients of all functions of the basis. */
    const alpha = new Float64Array(this.basis.size);
    for (let i = 0; i < this.n; i++) {
      const value = scale[i] * y[i];
      if (!this.even) alpha[i] = value;
      else if (this.second[i] < 0) alpha[2 * this.frequency(i)] = value;
      else alpha[2 * this.first[i]] = alpha[2 * this.second[i]] = value / Math.SQRT2;
    }
    return alpha;
  }

  gather(alpha) {
    /* Return the coefficients of these functions from those of all functions of a basis; functions
       that it does not have get 0. */
    return Float64Array.from({ length: this.n }, (_, i) => {
      const own = alpha[this.even ? 2 * this.first[i] : i] ?? 0;
      if (!this.even) return own;
      return this.second[i] >= 0 ? Math.SQRT2 * own : own;
    });
  }
}

class DenseSystem {
  /* y ↦ D A D y by a matrix. */
  constructor(equations, scale) {
    this.n = equations.n;
    this.matrix = equations.matrix(scale);
    mirror(this.matrix, this.n);
  }

  apply(y, out) {
    const { n, matrix } = this;
    for (let i = 0; i < n; i++) out[i] = dotRows(matrix, i * n, y, 0, n);
    return out;
  }

  energy(y) { return quadratic(this.matrix, y, this.n); }
}

class GridSystem {
  /* y ↦ D A D y by Fourier transforms. */
  constructor(operator, density, scale) {
    Object.assign(this, { operator, density, scale, scaled: new Float64Array(scale.length) });
  }

  static ofBoth(a, b, scale) {
    /* Return the systems of two Equations with the same functions: they share a transform. */
    const operator = operatorOf(a.basis, a.m, a.even);
    return operator.densities(a, b).map((density) => new GridSystem(operator, density, scale));
  }

  apply(y, out) {
    const { scale, scaled, operator, density } = this;
    for (let i = 0; i < y.length; i++) scaled[i] = scale[i] * y[i];
    operator.apply(density, scaled, out);
    for (let i = 0; i < y.length; i++) out[i] *= scale[i];
    return out;
  }

  energy(y) { return this.operator.energy(this.density, y.map((one, i) => this.scale[i] * one)); }
}

function solve(basis, means, t, ridge, level, options = {}) {
  /* Return α at a time for a ridge ε and a level; options: exact, and for iterations a guess "start",
     the tolerance, and their largest number. */
  const { exact = false, start = null, tolerance, iterations = FINAL_ITERATIONS } = options;
  const band = finalBand(basis, t, cutoffOf(basis.radius, level), exact);
  const equations = new Equations(basis, means, t, band), { n } = equations;
  const scale = equations.scale(level), right = equations.right().map((one, i) => -scale[i] * one);
  if (n <= DENSE_SOLVE || !(ridge > 0)) return equations.spread(solveDense(equations, scale, right, ridge), scale);
  const [system] = GridSystem.ofBoth(equations, equations, scale);
  const found = conjugateGradients((y, out) => system.apply(y, out), right, ridge, {
    start: start && equations.gather(start).map((one, i) => one / scale[i]),
    tolerance: tolerance ?? (exact ? FINAL_TOLERANCE : KNOT_TOLERANCE), iterations,
  });
  return equations.spread(found, scale);
}

function solveDense(equations, scale, right, ridge) {
  const { n } = equations, y = Float64Array.from(right), matrix = () => {
    const a = equations.matrix(scale);
    for (let i = 0; i < n; i++) a[i * n + i] += ridge;
    return a;
  };
  if (choleskySolve(matrix(), y, n)) return y;
  // Without a ridge A may be singular up to rounding.
  const full = matrix();
  mirror(full, n);
  y.set(right);
  eliminate(full, y, n);
  return y;
}

function norms(basis, means, t, ...alphas) {
  /* Return (αᵀA_tα)^½ for coefficients of all functions. */
  const equations = new Equations(basis, means, t, Infinity), ones = new Float64Array(equations.n).fill(1);
  const [system] = GridSystem.ofBoth(equations, equations, ones);
  return alphas.map((alpha) => Math.sqrt(Math.max(0, system.energy(equations.gather(alpha)))));
}
