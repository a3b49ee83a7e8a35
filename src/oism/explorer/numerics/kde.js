/* A kernel density estimate with a cross-validated width, to compare with.

   plane: normal kernels in columns with unit standard deviations. torus: von Mises kernels, mixed
   with the uniform distribution with the weight 1/(n + 1). interval: normal kernels, reflected at
   the ends. The width is the most likely by five-fold cross-validation among 1.5·2^{-k/6}, in units
   of a standard deviation or of a radian (of half a turn for intervals). */

const WIDTHS = Array.from({ length: 36 }, (_, k) => 1.5 * 2 ** (-k / 6)), JUDGED = 400;
const PER_OCTAVE = 3; // precisions between κ and 2κ: halving h² squares a kernel
const NEAR_END = 1.5;

function besselRatio(z) {
  /* Return e^{-z} I₀(z) by the trapezoidal rule, which converges geometrically. */
  const nodes = Math.max(64, Math.ceil(8 * Math.sqrt(z)) + 32);
  let total = 0;
  for (let i = 0; i < nodes; i++) total += Math.exp(z * (Math.cos((2 * Math.PI * i) / nodes) - 1));
  return total / nodes;
}

class KDE {
  /* The width, or the folds of the rows that it is chosen with. */
  constructor(x, y, settings, width, fold) {
    const { space, box } = settings, n = x.length;
    this.space = space;
    this.columns = [x, y].map((values, j) => {
      if (space === "torus") return { centre: 0, scale: (2 * Math.PI) / box.width[j] };
      if (space === "interval") return { centre: box.low[j], scale: Math.PI / box.width[j] };
      const mean = values.reduce((a, b) => a + b, 0) / n;
      const variance = values.reduce((a, b) => a + (b - mean) ** 2, 0) / n;
      return { centre: mean, scale: 1 / Math.sqrt(variance || 1) };
    });
    this.logScale = this.columns.reduce((sum, one) => sum + Math.log(one.scale), 0);
    this.points = this.place(x, y);
    this.width = width ?? this.choose(fold);
  }

  place(x, y) {
    const [a, b] = this.columns;
    return Array.from(x, (one, i) => [(one - a.centre) * a.scale, (y[i] - b.centre) * b.scale]);
  }

  _images(points) {
    /* The points, and for intervals their mirror images beyond the ends that are near. */
    if (this.space !== "interval") return points;
    const sides = (u) => [u, ...(u < NEAR_END ? [-u] : []),
      ...(u > Math.PI - NEAR_END ? [2 * Math.PI - u] : [])];
    return points.flatMap(([u, v]) => sides(u).flatMap((s) => sides(v).map((t) => [s, t])));
  }

  _logs(points, at, widths) {
    /* Return log-densities of points of the kernels' coordinates: one array for each width. The
       widths are one, or WIDTHS: three of them need exponentials, the others follow by squaring. */
    const torus = this.space === "torus", kernels = this._images(points), n = points.length;
    const size = kernels.length, gaps = new Float64Array(size), kernel = new Float64Array(size);
    const [us, vs] = [0, 1].map((j) => Float64Array.from(kernels, (one) => one[j]));
    const mass = widths.map((h) => torus
      ? 2 * Math.log(2 * Math.PI * besselRatio(1 / h ** 2)) : Math.log(2 * Math.PI * h * h));
    const out = widths.map(() => new Float64Array(at.length));
    const uniform = 1 / (2 * Math.PI) ** 2;
    at.forEach(([u, v], i) => {
      let nearest = Infinity;
      for (let k = 0; k < size; k++) {
        const du = u - us[k], dv = v - vs[k];
        gaps[k] = torus ? 2 - Math.cos(du) - Math.cos(dv) : 0.5 * (du * du + dv * dv);
        if (gaps[k] < nearest) nearest = gaps[k];
      }
      for (let base = 0; base < Math.min(PER_OCTAVE, widths.length); base++)
        for (let w = base; w < widths.length; w += PER_OCTAVE) {
          const precision = 1 / widths[w] ** 2;
          let sum = 0;
          if (w === base)
            for (let k = 0; k < size; k++)
              sum += kernel[k] = Math.exp(precision * (nearest - gaps[k]));
          else for (let k = 0; k < size; k++) sum += kernel[k] *= kernel[k];
          const log = Math.log(sum / n) - precision * nearest - mass[w];
          out[w][i] = torus ? Math.log((n * Math.exp(log) + uniform) / (n + 1)) : log;
        }
    });
    return out;
  }

  choose(fold) {
    const total = new Float64Array(WIDTHS.length), most = Math.ceil(JUDGED / FOLDS);
    for (let f = 0; f < FOLDS; f++) {
      const rest = this.points.filter((_, i) => fold[i] !== f);
      const held = this.points.filter((_, i) => fold[i] === f).slice(0, most);
      if (!rest.length || !held.length) continue;
      this._logs(rest, held, WIDTHS).forEach((logs, w) => logs.forEach((one) => (total[w] += one)));
    }
    let best = 0;
    total.forEach((one, w) => { if (one > total[best]) best = w; });
    return WIDTHS[best];
  }

  logDensity(x, y) {
    const [logs] = this._logs(this.points, this.place(x, y), [this.width]);
    return logs.map((one) => one + this.logScale);
  }
}
