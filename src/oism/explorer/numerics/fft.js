/* Fourier transforms of many sequences at once. */

class FFT {
  /* X_j = Σ_k x_k e^{+2πijk/n} for n = 2^a 3^b divisible by 4, without a factor.

     Entry k of sequence q is at k · batch + q. Stockham's algorithm: a pass of radix p takes
     sequences of the length n with the stride s to p times as many of the length n/p, from one pair
     of arrays [re, im] to the other; its inner loop runs over contiguous entries. For e^{-2πijk/n}
     exchange the real and the imaginary parts of input and output. */
  constructor(n) {
    this.n = n;
    this.cos = Float64Array.from({ length: n }, (_, i) => Math.cos((2 * Math.PI * i) / n));
    this.sin = Float64Array.from({ length: n }, (_, i) => Math.sin((2 * Math.PI * i) / n));
    this.inner = []; // the radices but for one 4
    for (let left = n / 4; left > 1; left /= this.inner.at(-1))
      this.inner.push([4, 2, 3].find((p) => left % p === 0));
  }

  run(from, to, batch) {
    /* Return the pair that holds the result. */
    this._pass4(from, to, this.n, batch);
    return this._rest(to, from, this.n / 4, 4 * batch, this.inner);
  }

  runSparse(from, to, batch) {
    /* The same for x_k = 0 unless -n/4 ≤ k < n/4: the other entries are not read. */
    this._firstPass(from, to, batch);
    return this._rest(to, from, this.n / 4, 4 * batch, this.inner);
  }

  runLow(from, to, batch) {
    /* The same for -n/4 ≤ j < n/4 only: the other entries of the result are not written. */
    const found = this._rest(from, to, this.n, batch, this.inner), rest = found === from ? to : from;
    this._lastPass(found, rest, (this.n / 4) * batch);
    return rest;
  }

  _rest(from, to, n, s, radices) {
    for (const p of radices) {
      if (p === 4) this._pass4(from, to, n, s);
      else if (p === 3) this._pass3(from, to, n, s);
      else this._pass2(from, to, n, s);
      n /= p;
      s *= p;
      [from, to] = [to, from];
    }
    return from;
  }

  _pass2([xr, xi], [yr, yi], n, s) {
    const m = n / 2, step = this.n / n;
    for (let k = 0; k < m; k++) {
      const c = this.cos[k * step], d = this.sin[k * step];
      let a = k * s, b = a + m * s, y = 2 * k * s, z = y + s;
      for (const end = a + s; a < end; a++, b++, y++, z++) {
        const re = xr[a] - xr[b], im = xi[a] - xi[b];
        yr[y] = xr[a] + xr[b];
        yi[y] = xi[a] + xi[b];
        yr[z] = c * re - d * im;
        yi[z] = c * im + d * re;
      }
    }
  }

  _pass3([xr, xi], [yr, yi], n, s) {
    const m = n / 3, step = this.n / n, half = Math.sqrt(0.75);
    for (let k = 0; k < m; k++) {
      const c1 = this.cos[k * step], d1 = this.sin[k * step];
      const c2 = this.cos[2 * k * step], d2 = this.sin[2 * k * step];
      let a = k * s, y = 3 * k * s;
      for (const end = a + s; a < end; a++, y++) {
        const b = a + m * s, c = b + m * s;
        const sr = xr[b] + xr[c], si = xi[b] + xi[c];
        const mr = xr[a] - 0.5 * sr, mi = xi[a] - 0.5 * si;
        const ur = half * (xr[b] - xr[c]), ui = half * (xi[b] - xi[c]);
        const pr = mr - ui, pi = mi + ur, qr = mr + ui, qi = mi - ur;
        yr[y] = xr[a] + sr;
        yi[y] = xi[a] + si;
        yr[y + s] = c1 * pr - d1 * pi;
        yi[y + s] = c1 * pi + d1 * pr;
        yr[y + 2 * s] = c2 * qr - d2 * qi;
        yi[y + 2 * s] = c2 * qi + d2 * qr;
      }
    }
  }

  _pass4([xr, xi], [yr, yi], n, s) {
    const m = n / 4, step = this.n / n, { cos, sin } = this, ms = m * s;
    for (let a = 0, b = ms, c = b + ms, d = c + ms, y = 0, z = s, w = z + s, v = w + s;
      a < s; a++, b++, c++, d++, y++, z++, w++, v++) { // k = 0: all factors are 1
      const sr = xr[a] + xr[c], si = xi[a] + xi[c], tr = xr[a] - xr[c], ti = xi[a] - xi[c];
      const ur = xr[b] + xr[d], ui = xi[b] + xi[d], vr = xi[d] - xi[b], vi = xr[b] - xr[d];
      yr[y] = sr + ur;
      yi[y] = si + ui;
      yr[z] = tr + vr;
      yi[z] = ti + vi;
      yr[w] = sr - ur;
      yi[w] = si - ui;
      yr[v] = tr - vr;
      yi[v] = ti - vi;
    }
    for (let k = 1; k < m; k++) {
      const c1 = cos[k * step], d1 = sin[k * step], c2 = cos[2 * k * step], d2 = sin[2 * k * step];
      const c3 = cos[3 * k * step], d3 = sin[3 * k * step];
      let a = k * s, b = a + ms, c = b + ms, d = c + ms, y = 4 * k * s, z = y + s, w = z + s, v = w + s;
      for (const end = a + s; a < end; a++, b++, c++, d++, y++, z++, w++, v++) {
        const sr = xr[a] + xr[c], si = xi[a] + xi[c], tr = xr[a] - xr[c], ti = xi[a] - xi[c];
        const ur = xr[b] + xr[d], ui = xi[b] + xi[d], vr = xi[d] - xi[b], vi = xr[b] - xr[d];
        yr[y] = sr + ur;
        yi[y] = si + ui;
        const pr = tr + vr, pi = ti + vi, qr = sr - ur, qi = si - ui, or = tr - vr, oi = ti - vi;
        yr[z] = c1 * pr - d1 * pi;
        yi[z] = c1 * pi + d1 * pr;
        yr[w] = c2 * qr - d2 * qi;
        yi[w] = c2 * qi + d2 * qr;
        yr[v] = c3 * or - d3 * oi;
        yi[v] = c3 * oi + d3 * or;
      }
    }
  }

  _firstPass([xr, xi], [yr, yi], s) {
    // radix 4, where the second and the third of the four terms are zero
    const { n, cos, sin } = this, m = n / 4;
    for (let k = 0; k < m; k++) {
      const c1 = cos[k], d1 = sin[k], c2 = cos[2 * k], d2 = sin[2 * k], c3 = cos[3 * k], d3 = sin[3 * k];
      let a = k * s, d = a + 3 * m * s, y = 4 * k * s, z = y + s, w = z + s, v = w + s;
      for (const end = a + s; a < end; a++, d++, y++, z++, w++, v++) {
        const ar = xr[a], ai = xi[a], dr = xr[d], di = xi[d];
        yr[y] = ar + dr;
        yi[y] = ai + di;
        yr[z] = c1 * (ar + di) - d1 * (ai - dr);
        yi[z] = c1 * (ai - dr) + d1 * (ar + di);
        yr[w] = c2 * (ar - dr) - d2 * (ai - di);
        yi[w] = c2 * (ai - di) + d2 * (ar - dr);
        yr[v] = c3 * (ar - di) - d3 * (ai + dr);
        yi[v] = c3 * (ai + dr) + d3 * (ar - di);
      }
    }
  }

  _lastPass([xr, xi], [yr, yi], s) {
    // radix 4 of the length 4, the first and the last of the four results
    for (let a = 0, b = s, c = 2 * s, d = 3 * s; a < s; a++, b++, c++, d++) {
      yr[a] = xr[a] + xr[c] + (xr[b] + xr[d]);
      yi[a] = xi[a] + xi[c] + (xi[b] + xi[d]);
      yr[d] = xr[a] - xr[c] + (xi[b] - xi[d]);
      yi[d] = xi[a] - xi[c] + (xr[d] - xr[b]);
    }
  }
}

const PLANS = new Map();
function fftOf(n) {
  if (!PLANS.has(n)) PLANS.set(n, new FFT(n));
  return PLANS.get(n);
}

const pairOf = (size) => [new Float64Array(size), new Float64Array(size)];
