/* Fourier transforms of lengths 2^k, and fields on a grid of the torus. */

class FFT {
  /* In place, e^{+i…} and without a factor: synthesis of a series from its coefficients. */
  constructor(n) {
    this.n = n;
    this.cos = Float64Array.from({ length: n / 2 }, (_, i) => Math.cos((2 * Math.PI * i) / n));
    this.sin = Float64Array.from({ length: n / 2 }, (_, i) => Math.sin((2 * Math.PI * i) / n));
    const bits = Math.log2(n);
    this.order = Uint32Array.from({ length: n }, (_, i) => {
      let j = 0;
      for (let b = 0; b < bits; b++) if (i & (1 << b)) j |= 1 << (bits - 1 - b);
      return j;
    });
  }

  run(re, im, start, stride) {
    const { n, cos, sin, order } = this;
    for (let i = 0; i < n; i++) {
      const j = order[i];
      if (j <= i) continue;
      const a = start + i * stride, b = start + j * stride;
      let swap = re[a];
      re[a] = re[b];
      re[b] = swap;
      swap = im[a];
      im[a] = im[b];
      im[b] = swap;
    }
    for (let half = 1; half < n; half *= 2) {
      const step = n / (2 * half);
      for (let block = 0; block < n; block += 2 * half)
        for (let k = 0; k < half; k++) {
          const a = start + (block + k) * stride, b = a + half * stride;
          const c = cos[k * step], s = sin[k * step];
          const tr = re[b] * c - im[b] * s, ti = re[b] * s + im[b] * c;
          re[b] = re[a] - tr;
          im[b] = im[a] - ti;
          re[a] += tr;
          im[a] += ti;
        }
    }
  }
}

class TorusGrid {
  /* Real fields at the points -π + 2πi/n of both axes, from Fourier coefficients. */
  constructor(n) {
    this.n = n;
    this.fft = new FFT(n);
    this.re = new Float64Array(n * n);
    this.im = new Float64Array(n * n);
  }

  _add(kx, ky, re, im) {
    // the grid starts at (-π, -π): the coefficients change by e^{-iπ(kx + ky)}
    const mask = this.n - 1, at = (ky & mask) * this.n + (kx & mask);
    const sign = (kx + ky) & 1 ? -1 : 1;
    this.re[at] += sign * re;
    this.im[at] += sign * im;
  }

  _transform() {
    const { n, fft, re, im } = this;
    for (let row = 0; row < n; row++) fft.run(re, im, row * n, 1);
    for (let column = 0; column < n; column++) fft.run(re, im, column, n);
  }

  synthesise(basis, alpha) {
    /* Return f = Σ α_k φ_k on the grid, rows are y. */
    const { xi } = basis;
    this.re.fill(0);
    this.im.fill(0);
    for (let k = 0; k < xi.count; k++)
      this._add(xi.x[k], xi.y[k], Math.SQRT2 * alpha[2 * k], -Math.SQRT2 * alpha[2 * k + 1]);
    this._transform();
    return Float64Array.from(this.re);
  }

  densityRatio(basis, means, t) {
    /* Return ρ_t/π = 1 + 2 Re Σ c_t(ζ) e^{iζ·u}, the series of the averages, on the grid. */
    const { lattice } = basis;
    this.re.fill(0);
    this.im.fill(0);
    this._add(0, 0, 1, 0);
    for (let j = 0; j < lattice.count; j++) {
      const decay = 2 * Math.exp(-t * lattice.squares[j]);
      this._add(lattice.x[j], lattice.y[j], decay * means.re[j], decay * means.im[j]);
    }
    this._transform();
    return Float64Array.from(this.re);
  }
}
