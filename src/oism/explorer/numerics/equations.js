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
  /* A_t and b_t of averages, for the first m frequencies. For an even density all averages are
     real, and only the cosines are kept: their coefficients have stride 2 in the basis. */
  constructor(basis, means, t, band) {
    this.basis = basis;
    this.m = basis.inside(band);
    this.stride = means.even ? 1 : 2;
    this.n = this.stride * this.m;
    const { lattice } = basis, count = lattice.count;
    const re = (this.re = new Float64Array(count + 1)), im = (this.im = new Float64Array(count + 1));
    for (let j = 0; j < count; j++) {
      const decay = Math.exp(-t * lattice.squares[j]);
      re[j] = decay * means.re[j];
      im[j] = decay * means.im[j];
    }
    re[count] = 1;
  }

  right() {
    const { basis, m, stride, n } = this, b = new Float64Array(n);
    for (let k = 0; k < m; k++) {
      const rate = -Math.SQRT2 * basis.xi.squares[k], at = basis.first[k];
      b[stride * k] = rate * this.re[at];
      if (stride === 2) b[2 * k + 1] = -rate * this.im[at];
    }
    return b;
  }

  matrix(scale) {
    /* Return D A D: the lower triangle, row-major. Without a scale A itself. */
    const { basis, m, stride, n, re, im } = this, a = new Float64Array(n * n);
    const { minus, minusSign, plus, plusSign, dot } = basis;
    for (let k = 0, p = 0; k < m; k++)
      for (let l = 0; l <= k; l++, p++) {
        let weight = dot[p];
        if (scale) weight *= scale[stride * k] * scale[stride * l];
        const cosMinus = re[minus[p]], cosPlus = re[plus[p]];
        if (stride === 1) {
          a[k * n + l] = weight * (cosMinus - cosPlus);
          continue;
        }
        const sinMinus = -minusSign[p] * im[minus[p]], sinPlus = -plusSign[p] * im[plus[p]];
        const at = 2 * k * n + 2 * l;
        a[at] = weight * (cosMinus - cosPlus);
        a[at + 1] = -weight * (sinPlus + sinMinus);
        a[at + n] = -weight * (sinPlus - sinMinus);
        a[at + n + 1] = weight * (cosMinus + cosPlus);
      }
    return a;
  }

  scale(level) {
    /* Return the diagonal of D. */
    const { basis, m, stride, n } = this, d = new Float64Array(n);
    const square = cutoffOf(basis.radius, level) ** 2;
    for (let k = 0; k < m; k++) {
      const rate = basis.xi.squares[k], penalty = rate * (1 + (rate / square) ** 6);
      for (let s = 0; s < stride; s++) d[stride * k + s] = 1 / Math.sqrt(rate * penalty);
    }
    return d;
  }

  spread(y, scale) {
    /* Return coefficients of all functions of the basis from those of the kept ones. */
    const alpha = new Float64Array(this.basis.size), step = 3 - this.stride;
    for (let i = 0; i < this.n; i++) alpha[step * i] = scale[i] * y[i];
    return alpha;
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
  const equations = new Equations(basis, means, t, Infinity), { n, stride } = equations;
  const a = equations.matrix(null);
  mirror(a, n);
  return alphas.map((alpha) => {
    const kept = stride === 2 ? alpha : alpha.filter((_, i) => i % 2 === 0);
    return Math.sqrt(Math.max(0, quadratic(a, kept, n)));
  });
}
