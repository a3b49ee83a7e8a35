/* A_t without a matrix: (A_t α)_k = E_π[(ρ_t/π) ∇φ_k·∇f], f = Σ α_k φ_k, by Fourier transforms.

   ∇f is synthesised on a grid, multiplied by ρ_t/π and analysed. With ‖ξ‖ ≤ r and the frequencies
   of ρ_t up to 2r the products have frequencies up to 3r, so n > 4r points per axis give the
   Galerkin matrix of equations.js up to rounding. Both components are one complex transform,
   f_x + if_y. Only the rows of frequencies that occur are transformed along the other axis. */

const SIZES = [16, 24, 32, 48, 64, 72, 96, 128, 144, 192, 256, 288, 384];

class GridOperator {
  /* Subclasses write f_x + if_y of coefficients to the arrays "wide", and read α from them: the
     transform along x has "narrow" sequences, the one along y "columns" of them. */
  constructor(basis, m, narrow, columns, n) {
    const most = Math.sqrt(basis.xi.squares[m - 1]), { lattice } = basis;
    n ??= SIZES.find((one) => one > 4 * most);
    Object.assign(this, { basis, m, n, reach: Math.floor(most), fft: fftOf(n) });
    this.rows = narrow(this.reach);
    this.columns = columns(n);
    this.products = 0; // the frequencies of ρ_t that occur in A_t
    while (this.products < lattice.count && lattice.squares[this.products] <= 4 * most * most + 1e-9)
      this.products++;
    this.narrow = [pairOf(n * this.rows), pairOf(n * this.rows)];
    this.wide = [pairOf(n * this.columns), pairOf(n * this.columns)];
  }

  apply(density, alpha, out) {
    /* Write A_t α to out. */
    const field = this.gradient(alpha), [fx, fy] = field, rest = other(this.wide, field);
    for (let i = 0; i < density.length; i++) {
      fx[i] *= density[i];
      fy[i] *= density[i];
    }
    // analysis has e^{-i…}: real and imaginary parts are exchanged
    const [im, re] = this.fft.runLow([fy, fx], [rest[1], rest[0]], this.columns);
    const half = this.narrow[0];
    this.collect(re, im, half);
    const found = this.fft.runLow([half[1], half[0]], [this.narrow[1][1], this.narrow[1][0]], this.rows);
    this.analyse(found[1], found[0], out);
    return out;
  }

  energy(density, alpha) {
    /* Return αᵀA_tα = E[(ρ_t/π) ‖∇f‖²]. */
    const [fx, fy] = this.gradient(alpha);
    let total = 0;
    for (let i = 0; i < density.length; i++)
      total += this.weight(i) * density[i] * (fx[i] * fx[i] + fy[i] * fy[i]);
    return total;
  }

  gradient(alpha) { return this.field((re, im) => this.synthesise(alpha, re, im)); }

  field(write) {
    /* Return a complex field on the grid from its coefficients: one row for each y, from y = 0. */
    const [re, im] = this.narrow[0];
    re.fill(0);
    im.fill(0);
    write(re, im);
    const half = this.fft.runSparse(...this.narrow, this.rows), full = this.wide[0];
    for (const part of full) part.fill(0);
    this.spread(half[0], half[1], full);
    return this.fft.runSparse(...this.wide, this.columns);
  }
}

const other = (pairs, one) => (pairs[0] === one ? pairs[1] : pairs[0]);

class TorusOperator extends GridOperator {
  /* All functions of the first m frequencies; the grid may be finer than A_t needs. */
  constructor(basis, m, points) {
    super(basis, m, (reach) => 2 * reach + 1, (n) => n, points);
    const { n, rows, reach } = this, { xi } = basis;
    const place = (x, y) => ((x + n) % n) * rows + y + reach;
    this.plus = Int32Array.from({ length: m }, (_, k) => place(xi.x[k], xi.y[k]));
    this.minus = Int32Array.from({ length: m }, (_, k) => place(-xi.x[k], -xi.y[k]));
  }

  weight() { return 1; }

  densities(a, b) {
    /* Return ρ_t/π of two Equations on the grid, over n²: the parts of one transform, ρ_a + iρ_b. */
    const { n, fft, wide } = this, { lattice } = this.basis, [re, im] = wide[0];
    for (const part of wide[0]) part.fill(0);
    for (let j = 0; j < this.products; j++) {
      const x = lattice.x[j], y = lattice.y[j]; // the first axis here is x
      const at = x * n + ((y + n) % n), opposite = ((n - x) % n) * n + ((n - y) % n);
      re[at] = a.re[j] - b.im[j];
      im[at] = a.im[j] + b.re[j];
      re[opposite] = a.re[j] + b.im[j];
      im[opposite] = b.re[j] - a.im[j];
    }
    re[0] = im[0] = 1;
    let found = fft.run(...wide, n);
    const rest = other(wide, found);
    for (const k of [0, 1])
      for (let x = 0; x < n; x++) for (let y = 0; y < n; y++) rest[k][y * n + x] = found[k][x * n + y];
    found = fft.run(rest, found, n);
    return found.map((part) => part.map((one) => one / (n * n)));
  }

  synthesise(alpha, re, im) {
    // i(ξ_x + iξ_y) F at ξ, with F = (α_cos - iα_sin)/√2, and conj(F) for F at -ξ
    const { m, plus, minus } = this, { xi } = this.basis;
    for (let k = 0; k < m; k++) {
      const x = Math.SQRT1_2 * xi.x[k], y = Math.SQRT1_2 * xi.y[k], c = alpha[2 * k], s = alpha[2 * k + 1];
      re[plus[k]] = x * s - y * c;
      im[plus[k]] = x * c + y * s;
      re[minus[k]] = x * s + y * c;
      im[minus[k]] = y * s - x * c;
    }
  }

  laplacian(alpha) {
    /* Return Δf on the grid. */
    const { m, plus, minus } = this, { xi } = this.basis;
    return this.field((re, im) => {
      for (let k = 0; k < m; k++) {
        const rate = -Math.SQRT1_2 * xi.squares[k];
        re[plus[k]] = re[minus[k]] = rate * alpha[2 * k];
        im[plus[k]] = -rate * alpha[2 * k + 1];
        im[minus[k]] = rate * alpha[2 * k + 1];
      }
    })[0];
  }

  spread(re, im, [toRe, toIm]) {
    const { n, rows, reach } = this;
    for (let y = 0; y < rows; y++) {
      const row = ((y - reach + n) % n) * n;
      for (let x = 0, at = y; x < n; x++, at += rows) {
        toRe[row + x] = re[at];
        toIm[row + x] = im[at];
      }
    }
  }

  collect(re, im, [toRe, toIm]) {
    const { n, rows, reach } = this;
    for (let y = 0; y < rows; y++) {
      const row = ((y - reach + n) % n) * n;
      for (let x = 0, at = y; x < n; x++, at += rows) {
        toRe[at] = re[row + x];
        toIm[at] = im[row + x];
      }
    }
  }

  analyse(re, im, out) {
    // the transforms P and Q of (ρ_t/π) ∇f at ξ, from P + iQ at ±ξ
    const { m, plus, minus } = this, { xi } = this.basis;
    for (let k = 0; k < m; k++) {
      const x = Math.SQRT1_2 * xi.x[k], y = Math.SQRT1_2 * xi.y[k];
      const a = re[plus[k]], b = im[plus[k]], c = re[minus[k]], d = im[minus[k]];
      out[2 * k] = x * (b - d) + y * (c - a);
      out[2 * k + 1] = x * (a + c) + y * (b + d);
    }
  }
}

class EvenOperator extends GridOperator {
  /* Functions that are even in each coordinate, e cos kx cos ly with e = 2, or √2 on an axis.

     Frequencies l ≥ 0 and points 0 ≤ x ≤ π determine all others. Along x, g_l + ih_l is transformed
     with f_x = Σ g_l(x) cos ly and f_y = Σ h_l(x) sin ly. */
  constructor(basis, m) {
    super(basis, m, (reach) => reach + 1, (n) => n / 2 + 1);
    const { first, second } = basis.orbits, { xi } = basis, { n, rows } = this;
    const count = (this.count = first.filter((k) => k < m).length);
    const each = (kind, value) => kind.from({ length: count }, (_, i) => value(first[i], second[i]));
    this.k = each(Float64Array, (one) => xi.x[one]);
    this.l = each(Float64Array, (one) => Math.abs(xi.y[one]));
    this.factor = each(Float64Array, (_, two) => (two < 0 ? Math.SQRT2 : 2));
    this.plus = each(Int32Array, (one) => xi.x[one] * rows + Math.abs(xi.y[one]));
    this.minus = each(Int32Array, (one) => ((n - xi.x[one]) % n) * rows + Math.abs(xi.y[one]));
  }

  weight(i) {
    const x = i % this.columns;
    return x === 0 || x === this.columns - 1 ? 1 : 2;
  }

  densities(a, b) {
    const { n, columns, fft } = this, { lattice } = this.basis, half = n / 2 + 1;
    const quarter = [pairOf(n * half), pairOf(n * half)], [re, im] = quarter[0];
    for (let j = 0; j < this.products; j++) {
      const x = lattice.x[j], y = lattice.y[j], factor = x && y ? 2 : 1; // half of that of cos kx
      if (y < 0) continue;
      for (const at of [x * half + y, ((n - x) % n) * half + y]) {
        re[at] += factor * a.re[j];
        im[at] += factor * b.re[j];
      }
    }
    re[0] += 1;
    im[0] += 1;
    const found = fft.run(...quarter, half);
    for (const k of [0, 1]) {
      const from = found[k], to = this.wide[0][k].fill(0);
      for (let y = 0; y < half; y++)
        for (let x = 0; x < columns; x++) {
          to[y * columns + x] += 0.5 * from[x * half + y];
          to[((n - y) % n) * columns + x] += 0.5 * from[x * half + y];
        }
    }
    return fft.run(...this.wide, columns).map((part) => part.map((one) => one / (n * n)));
  }

  synthesise(alpha, re, im) {
    const { count, k, l, factor, plus, minus } = this;
    for (let i = 0; i < count; i++) {
      const one = 0.5 * factor[i] * alpha[i];
      im[plus[i]] += one * (k[i] - l[i]);
      im[minus[i]] -= one * (k[i] + l[i]);
    }
  }

  spread(re, im, [to]) {
    const { n, rows, columns } = this;
    for (let y = 0; y < rows; y++) {
      const up = y * columns, down = ((n - y) % n) * columns;
      for (let x = 0, at = y; x < columns; x++, at += rows) {
        to[up + x] += 0.5 * (re[at] + im[at]);
        to[down + x] += 0.5 * (re[at] - im[at]);
      }
    }
  }

  collect(re, im, [toRe, toIm]) {
    // P_l is odd in x and Q_l even; both are real
    const { n, rows, columns } = this;
    for (let y = 0; y < rows; y++) {
      const up = y * columns, down = ((n - y) % n) * columns;
      for (let x = 0; x < columns; x++) {
        const p = 0.5 * (re[up + x] + re[down + x]), q = 0.5 * (re[up + x] - re[down + x]);
        const mirrored = ((n - x) % n) * rows + y;
        toRe[mirrored] = -p;
        toIm[mirrored] = q;
        toRe[x * rows + y] = p;
        toIm[x * rows + y] = q;
      }
    }
  }

  analyse(re, im, out) {
    const { count, k, l, factor, plus, minus } = this;
    for (let i = 0; i < count; i++) {
      const a = im[plus[i]], b = im[minus[i]];
      out[i] = -0.5 * factor[i] * (k[i] * (b - a) + l[i] * (a + b));
    }
  }
}

function operatorOf(basis, m, even) {
  /* Return the operator of the first m frequencies; those of a basis are kept. */
  const kept = (basis.operators ??= new Map()), key = even ? -m : m;
  if (!kept.has(key)) kept.set(key, new (even ? EvenOperator : TorusOperator)(basis, m));
  return kept.get(key);
}
