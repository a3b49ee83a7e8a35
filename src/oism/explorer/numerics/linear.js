/* Linear algebra on Float64Arrays: factorisations of row-major matrices, and Krylov spaces. */

function dotRows(a, i, b, j, n) {
  let s0 = 0, s1 = 0, s2 = 0, s3 = 0, k = 0;
  for (; k + 3 < n; k += 4) {
    s0 += a[i + k] * b[j + k];
    s1 += a[i + k + 1] * b[j + k + 1];
    s2 += a[i + k + 2] * b[j + k + 2];
    s3 += a[i + k + 3] * b[j + k + 3];
  }
  for (; k < n; k++) s0 += a[i + k] * b[j + k];
  return s0 + s1 + (s2 + s3);
}

const BLOCK = 32;

function factorise(a, n) {
  /* Overwrite the lower triangle of a with its Cholesky factor, by blocks of columns; false if a is
     not positive definite. */
  for (let start = 0; start < n; start += BLOCK) {
    const end = Math.min(n, start + BLOCK);
    for (let i = start; i < n; i++) {
      const row = i * n, last = Math.min(i, end);
      for (let j = start; j < last; j++) {
        let sum = a[row + j];
        for (let k = start; k < j; k++) sum -= a[row + k] * a[j * n + k];
        a[row + j] = sum / a[j * n + j];
      }
      if (i >= end) continue;
      let pivot = a[row + i];
      for (let k = start; k < i; k++) pivot -= a[row + k] * a[row + k];
      if (!(pivot > 0)) return false;
      a[row + i] = Math.sqrt(pivot);
    }
    for (let i = end; i < n; i += 2) updatePair(a, n, i, start, end);
  }
  return true;
}

function updatePair(a, n, i, start, end) {
  /* Subtract the products of the block's columns from rows i and i + 1, four columns at a time: the
     eight sums stay in registers. */
  const p = i * n, single = i + 1 === n, q = single ? p : p + n, last = single ? i : i + 1;
  const row = (j) => Math.min(j, n - 1) * n;
  for (let j = end; j <= last; j += 4) {
    const r0 = row(j), r1 = row(j + 1), r2 = row(j + 2), r3 = row(j + 3);
    let a0 = 0, a1 = 0, a2 = 0, a3 = 0, b0 = 0, b1 = 0, b2 = 0, b3 = 0;
    for (let k = start; k < end; k++) {
      const u = a[p + k], v = a[q + k];
      const w = a[r0 + k], x = a[r1 + k], y = a[r2 + k], z = a[r3 + k];
      a0 += u * w;
      a1 += u * x;
      a2 += u * y;
      a3 += u * z;
      b0 += v * w;
      b1 += v * x;
      b2 += v * y;
      b3 += v * z;
    }
    // Entries above the diagonal are not used, but those of the next row must stay.
    a[p + j] -= a0;
    if (j + 1 <= i) a[p + j + 1] -= a1;
    if (j + 2 <= i) a[p + j + 2] -= a2;
    if (j + 3 <= i) a[p + j + 3] -= a3;
    if (single) continue;
    a[q + j] -= b0;
    if (j + 1 <= last) a[q + j + 1] -= b1;
    if (j + 2 <= last) a[q + j + 2] -= b2;
    if (j + 3 <= last) a[q + j + 3] -= b3;
  }
}

function choleskySolve(a, g, n) {
  /* Overwrite g with the solution, and a with its factor; false if a is not positive definite. */
  if (!factorise(a, n)) return false;
  for (let i = 0; i < n; i++) g[i] = (g[i] - dotRows(a, i * n, g, 0, i)) / a[i * n + i];
  for (let i = n - 1; i >= 0; i--) {
    g[i] /= a[i * n + i];
    for (let k = 0; k < i; k++) g[k] -= a[i * n + k] * g[i];
  }
  return true;
}

function eliminate(a, g, n) {
  /* Overwrite g with the solution of a full matrix by elimination with partial pivoting. */
  for (let k = 0; k < n; k++) {
    let best = k;
    for (let i = k + 1; i < n; i++)
      if (Math.abs(a[i * n + k]) > Math.abs(a[best * n + k])) best = i;
    if (best !== k) {
      for (let j = k; j < n; j++)
        [a[k * n + j], a[best * n + j]] = [a[best * n + j], a[k * n + j]];
      [g[k], g[best]] = [g[best], g[k]];
    }
    for (let i = k + 1; i < n; i++) {
      const factor = a[i * n + k] / a[k * n + k];
      if (factor === 0) continue;
      for (let j = k + 1; j < n; j++) a[i * n + j] -= factor * a[k * n + j];
      g[i] -= factor * g[k];
    }
  }
  for (let i = n - 1; i >= 0; i--) {
    for (let j = i + 1; j < n; j++) g[i] -= a[i * n + j] * g[j];
    g[i] /= a[i * n + i];
  }
}

function mirror(a, n) {
  for (let i = 0; i < n; i++) for (let j = 0; j < i; j++) a[j * n + i] = a[i * n + j];
}

function quadratic(a, x, n) {
  /* Return xᵀax for a full symmetric matrix. */
  let total = 0;
  for (let i = 0; i < n; i++) if (x[i] !== 0) total += x[i] * dotRows(a, i * n, x, 0, n);
  return total;
}

function ridgePath(apply, g, shifts, { tolerance, iterations, reorthogonalise }) {
  /* Return y_ε with (B + εI) y_ε = g for all shifts; apply(y, out) writes By to out.

     The Lanczos recurrence builds orthonormal v₁, …, v_k with VᵀBV = T tridiagonal, and
     y_ε = ‖g‖ V (T + εI)⁻¹ e₁. It stops when the residual of the smallest shift is below the
     tolerance; it is then smaller for the others. */
  const n = g.length, seed = Math.min(...shifts), size = Math.sqrt(dotRows(g, 0, g, 0, n));
  const out = shifts.map(() => new Float64Array(n));
  if (!(size > 0)) return out;
  const vectors = [g.map((one) => one / size)], diagonal = [], beside = [];
  let pivot = 1, left = 1, last = 0;
  while (diagonal.length < Math.min(n, iterations) && left > tolerance) {
    const v = vectors[diagonal.length], before = vectors[diagonal.length - 1];
    const image = apply(v, new Float64Array(n));
    if (before) for (let i = 0; i < n; i++) image[i] -= last * before[i];
    const along = dotRows(v, 0, image, 0, n);
    for (let i = 0; i < n; i++) image[i] -= along * v[i];
    if (reorthogonalise)
      for (const one of vectors) {
        const part = dotRows(one, 0, image, 0, n);
        for (let i = 0; i < n; i++) image[i] -= part * one[i];
      }
    pivot = along + seed - (last * last) / pivot;
    diagonal.push(along);
    let next = Math.sqrt(dotRows(image, 0, image, 0, n));
    if (!(next > 1e-14 * Math.abs(along))) next = 0;
    left *= next / (pivot > 0 ? pivot : 1);
    last = next;
    if (next === 0) break;
    beside.push(next);
    for (let i = 0; i < n; i++) image[i] /= next;
    vectors.push(image);
  }
  const k = diagonal.length, w = new Float64Array(k), z = new Float64Array(k);
  shifts.forEach((shift, e) => {
    // Thomas' algorithm for the symmetric tridiagonal T + εI
    for (let i = 0; i < k; i++) {
      const factor = i ? beside[i - 1] / w[i - 1] : 0;
      w[i] = diagonal[i] + shift - (i ? factor * beside[i - 1] : 0);
      z[i] = i ? -factor * z[i - 1] : size;
    }
    for (let i = k - 1; i >= 0; i--) {
      z[i] = (z[i] - (i + 1 < k ? beside[i] * z[i + 1] : 0)) / w[i];
      const v = vectors[i], y = out[e];
      for (let j = 0; j < n; j++) y[j] += z[i] * v[j];
    }
  });
  return out;
}

function conjugateGradients(apply, g, shift, { start = null, tolerance, iterations }) {
  /* Return y with (B + εI) y = g, up to a residual of the tolerance times ‖g‖. */
  const n = g.length, y = start ?? new Float64Array(n), image = new Float64Array(n);
  const residual = Float64Array.from(g);
  if (start) {
    apply(y, image);
    for (let i = 0; i < n; i++) residual[i] -= image[i] + shift * y[i];
  }
  const direction = Float64Array.from(residual), goal = tolerance ** 2 * dotRows(g, 0, g, 0, n);
  let energy = dotRows(residual, 0, residual, 0, n);
  for (let k = 0; k < iterations && energy > goal; k++) {
    apply(direction, image);
    for (let i = 0; i < n; i++) image[i] += shift * direction[i];
    const curvature = dotRows(direction, 0, image, 0, n);
    if (!(curvature > 0)) break;
    const step = energy / curvature;
    for (let i = 0; i < n; i++) {
      y[i] += step * direction[i];
      residual[i] -= step * image[i];
    }
    const next = dotRows(residual, 0, residual, 0, n), ratio = next / energy;
    for (let i = 0; i < n; i++) direction[i] = residual[i] + ratio * direction[i];
    energy = next;
  }
  return y;
}
