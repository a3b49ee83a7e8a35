/* The equations on the torus and their solution for a given ridge and cutoff.

   With c_t(ζ) = e^{-‖ζ‖²t} E[e^{-iζ·u}],

       A_t[k, l] = E_t[∇φ_k·∇φ_l],    b_t[k] = λ_k e^{λ_k t} E[φ_k],    λ = -‖ξ‖²,

   and the coefficients of log(ρ_t/π) = Σ α_k φ_k minimise αᵀA_tα + 2b_tᵀα. The penalty is ε Λ P with
   P = |λ| (1 + (|λ|/c²)⁶) and the cutoff c = r 2^{-level/2}: with D = (ΛP)^{-½},

       (D A D + εI) y = -D b,    α = D y.

   Frequencies far above the cutoff, or at which the data have decayed, are left out (the band). */

const RIDGES = Array.from({ length: 15 }, (_, i) => 10 ** (-6 + i / 2));
const UNTRUNCATED = -32;
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
  /* A_t and b_t of averages, for the first m frequencies and the functions that symmetry leaves.

     symmetry 0: all functions. 1, an even density: the cosines only. 2, even in each coordinate:
     (√2 cos(k, l)·u + √2 cos(k, -l)·u)/√2, orthonormal as well. */
  constructor(basis, means, t, band) {
    this.basis = basis;
    this.m = basis.inside(band);
    this.symmetry = means.symmetry;
    if (this.symmetry === 2) {
      const { first, second } = basis.orbits;
      this.n = first.filter((k) => k < this.m).length;
      this.first = first.slice(0, this.n);
      this.second = second.slice(0, this.n);
    } else this.n = this.symmetry ? this.m : 2 * this.m;
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
    return this.symmetry === 2 ? this.first[i] : this.symmetry ? i : i >> 1;
  }

  right() {
    const { basis, n, symmetry } = this, b = new Float64Array(n);
    for (let i = 0; i < n; i++) {
      const k = this.frequency(i), rate = -Math.SQRT2 * basis.xi.squares[k], at = basis.first[k];
      b[i] = symmetry || !(i & 1) ? rate * this.re[at] : -rate * this.im[at];
      if (symmetry === 2 && this.second[i] >= 0) b[i] *= Math.SQRT2;
    }
    return b;
  }

  matrix(scale) {
    /* Return D A D: the lower triangle, row-major. Without a scale A itself. */
    const { n } = this, a = new Float64Array(n * n);
    [this._full, this._even, this._symmetric][this.symmetry].call(this, a);
    if (scale)
      for (let i = 0; i < n; i++)
        for (let j = 0; j <= i; j++) a[i * n + j] *= scale[i] * scale[j];
    return a;
  }

  _full(a) {
    // ∇√2 cos = -ξ√2 sin, ∇√2 sin = ξ√2 cos; 2 sin·sin = cos(-) - cos(+), …
    const { basis, m, n, re, im } = this, { minus, minusSign, plus, plusSign, dot } = basis;
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
    const { minus, plus, dot } = this.basis, p = k < l ? (l * (l + 1)) / 2 + k : (k * (k + 1)) / 2 + l;
    return dot[p] * (this.re[minus[p]] - this.re[plus[p]]);
  }

  _even(a) {
    const { n } = this;
    for (let k = 0; k < n; k++) for (let l = 0; l <= k; l++) a[k * n + l] = this._entry(k, l);
  }

  _symmetric(a) {
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
      if (!this.symmetry) alpha[i] = value;
      else if (this.symmetry === 1 || this.second[i] < 0) alpha[2 * this.frequency(i)] = value;
      else alpha[2 * this.first[i]] = alpha[2 * this.second[i]] = value / Math.SQRT2;
    }
    return alpha;
  }

  gather(alpha) {
    /* Return the coefficients of the functions that symmetry leaves. */
    return Float64Array.from({ length: this.n }, (_, i) => {
      if (!this.symmetry) return alpha[i];
      const own = alpha[2 * this.frequency(i)];
      return this.symmetry === 2 && this.second[i] >= 0 ? Math.SQRT2 * own : own;
    });
  }
}

function solve(basis, means, t, ridge, level, exact) {
  /* Return α at a time for a ridge ε and a level. */
  const band = finalBand(basis, t, cutoffOf(basis.radius, level), exact);
  const equations = new Equations(basis, means, t, band), { n } = equations;
  const scale = equations.scale(level), b = equations.right();
  const system = () => {
    const a = equations.matrix(scale);
    for (let i = 0; i < n; i++) a[i * n + i] += ridge;
    return a;
  };
  let y = b.map((one, i) => -scale[i] * one);
  if (!choleskySolve(system(), y, n)) {
    // Without a ridge A may be singular up to rounding.
    const full = system();
    mirror(full, n);
    y = b.map((one, i) => -scale[i] * one);
    eliminate(full, y, n);
  }
  return equations.spread(y, scale);
}

function norms(basis, means, t, ...alphas) {
  /* Return (αᵀA_tα)^½ for coefficients of all functions. */
  const equations = new Equations(basis, means, t, Infinity), { n } = equations;
  const a = equations.matrix(null);
  mirror(a, n);
  return alphas.map((alpha) => Math.sqrt(Math.max(0, quadratic(a, equations.gather(alpha), n))));
}
