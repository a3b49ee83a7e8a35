/* Fourier functions √2 cos(ξ·u), √2 sin(ξ·u) on the torus [-π, π)², and averages over points.

   The frequencies ξ are a half lattice: the integer vectors with 0 < ‖ξ‖² ≤ bound whose first
   non-zero entry is positive, sorted by ‖ξ‖² and then lexicographically. Products of gradients need
   the averages c(ζ) = E[e^{-iζ·u}] of all ζ with ‖ζ‖ ≤ 2 max‖ξ‖. Coefficients are real, cos and sin
   of one frequency next to each other. */

function halfLattice(bound) {
  const reach = Math.floor(Math.sqrt(bound)), found = [];
  for (let x = 0; x <= reach; x++)
    for (let y = x ? -reach : 1; y <= reach; y++)
      if (x * x + y * y <= bound) found.push([x, y, x * x + y * y]);
  found.sort((a, b) => a[2] - b[2] || a[0] - b[0] || a[1] - b[1]);
  return {
    count: found.length,
    x: Int32Array.from(found, (one) => one[0]),
    y: Int32Array.from(found, (one) => one[1]),
    squares: Float64Array.from(found, (one) => one[2]),
  };
}

class Basis {
  /* The functions up to a bound, and the lattice of their products. */
  constructor(bound) {
    this.bound = bound;
    this.xi = halfLattice(bound);
    this.size = 2 * this.xi.count;
    const most = this.xi.squares[this.xi.count - 1];
    this.radius = Math.sqrt(most);
    this.lattice = halfLattice(4 * most);
    this.reach = Math.floor(this.radius);
    const place = new Map(Array.from(this.lattice.x, (x, i) => [`${x},${this.lattice.y[i]}`, i]));
    this.first = Int32Array.from(this.xi.x, (x, i) => place.get(`${x},${this.xi.y[i]}`));
  }

  get pairs() {
    /* Positions of ξ - η and ξ + η, for η before ξ; the position of 0 is lattice.count. Of ±ζ one
       is in the lattice: the sine changes its sign with it. Needed for matrices only. */
    if (this._pairs) return this._pairs;
    const { xi, lattice } = this, r = 2 * this.reach, side = 2 * r + 1;
    const place = new Int32Array(side * side).fill(-1), sign = new Int8Array(side * side);
    for (let i = 0; i < lattice.count; i++) {
      if (Math.max(Math.abs(lattice.x[i]), Math.abs(lattice.y[i])) > r) continue;
      for (const s of [1, -1]) {
        const key = (s * lattice.x[i] + r) * side + s * lattice.y[i] + r;
        place[key] = i;
        sign[key] = s;
      }
    }
    place[r * side + r] = lattice.count;
    const m = xi.count, make = (kind) => new kind((m * (m + 1)) / 2);
    const found = {
      minus: make(Int32Array), minusSign: make(Int8Array), plus: make(Int32Array),
      plusSign: make(Int8Array), dot: make(Float64Array),
    };
    for (let k = 0, p = 0; k < m; k++)
      for (let l = 0; l <= k; l++, p++) {
        const minus = (xi.x[k] - xi.x[l] + r) * side + xi.y[k] - xi.y[l] + r;
        const plus = (xi.x[k] + xi.x[l] + r) * side + xi.y[k] + xi.y[l] + r;
        found.minus[p] = place[minus];
        found.minusSign[p] = sign[minus];
        found.plus[p] = place[plus];
        found.plusSign[p] = sign[plus];
        found.dot[p] = xi.x[k] * xi.x[l] + xi.y[k] * xi.y[l];
      }
    return (this._pairs = found);
  }

  get orbits() {
    /* The frequencies (k, -l) and (k, l) as pairs [first, second], second -1 where they agree. */
    if (this._orbits) return this._orbits;
    const { x, y, count } = this.xi, seen = new Map(), first = [], second = [];
    for (let k = 0; k < count; k++) {
      const key = `${x[k]},${Math.abs(y[k])}`;
      if (seen.has(key)) second[seen.get(key)] = k;
      else {
        seen.set(key, first.length);
        first.push(k);
        second.push(-1);
      }
    }
    return (this._orbits = { first, second });
  }

  inside(band) {
    /* The number of frequencies with ‖ξ‖ ≤ band, a prefix. */
    const { squares, count } = this.xi;
    let low = 0, high = count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (squares[middle] <= band * band) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

function powers(angle, cos, sin, factor) {
  /* Write cos kθ and factor · sin kθ for k = 0, 1, …, with a new start at every eighth. */
  const c = Math.cos(angle), s = Math.sin(angle);
  for (let k = 0, a = 1, b = 0; k < cos.length; k++) {
    if (k % 8 === 0) [a, b] = [Math.cos(k * angle), Math.sin(k * angle)];
    cos[k] = a;
    sin[k] = factor * b;
    const next = a * c - b * s;
    b = a * s + b * c;
    a = next;
  }
}

function waveSums(basis, u, v, fold, folds, reflected) {
  /* Return Σ e^{-iζ·u} over the points of each fold: real and imaginary parts, (folds, count).

     Products of cos and sin of both axes are added up first; those of kx and |ky| give (kx, ±ky). A
     reflected coordinate is replaced by the mean over ±u_j, so its sines are zero. */
  const { lattice } = basis, m = lattice.count, side = Math.floor(2 * basis.radius) + 1;
  const [cx, sx, cy, sy] = Array.from({ length: 4 }, () => new Float64Array(side));
  const size = side * side, products = new Float64Array(4 * size * folds);
  const ends = Array.from(cx, (_, k) => Math.floor(Math.sqrt((side - 1) ** 2 + 2 * side - 1 - k * k)) + 1);
  const last = ends.map((end) => Math.min(end, side)), flat = reflected.map((one) => (one ? 0 : 1));
  for (let i = 0; i < u.length; i++) {
    powers(u[i], cx, sx, flat[0]);
    powers(v[i], cy, sy, flat[1]);
    for (let kx = 0, row = 4 * size * fold[i]; kx < side; kx++, row += 4 * side) {
      const c = cx[kx], s = sx[kx];
      for (let ky = 0, at = row; ky < last[kx]; ky++, at += 4) {
        products[at] += c * cy[ky];
        products[at + 1] += s * sy[ky];
        products[at + 2] += c * sy[ky];
        products[at + 3] += s * cy[ky];
      }
    }
  }
  const re = new Float64Array(folds * m), im = new Float64Array(folds * m);
  for (let f = 0; f < folds; f++)
    for (let j = 0; j < m; j++) {
      const at = 4 * (f * size + lattice.x[j] * side + Math.abs(lattice.y[j])), sign = Math.sign(lattice.y[j]);
      re[f * m + j] = products[at] - sign * products[at + 1];
      im[f * m + j] = -sign * products[at + 2] - products[at + 3];
    }
  return { re, im };
}

function averagesOf(sums, weight, count, even) {
  /* Return averages over all rows, and without and within each fold that has rows; even if both
     columns are reflected. */
  const folds = weight.length, total = weight.reduce((a, b) => a + b, 0);
  const part = (chosen) => {
    const own = chosen.reduce((a, f) => a + weight[f], 0);
    const re = new Float64Array(count + 1), im = new Float64Array(count + 1);
    for (const f of chosen)
      for (let j = 0; j < count; j++) {
        re[j] += sums.re[f * count + j] / own;
        im[j] += sums.im[f * count + j] / own;
      }
    re[count] = 1; // c(0)
    return { re, im, even, rows: own };
  };
  const all = [...weight.keys()], used = all.filter((f) => weight[f] > 0);
  const some = used.length > 1 ? used : [];
  return {
    total: part(all),
    training: some.map((f) => part(all.filter((g) => g !== f))),
    heldout: some.map((f) => part([f])),
    shares: some.map((f) => weight[f] / total),
  };
}
