/* Charts: maps from the units of the data to the torus, u = scale (x - centre), column by column.

   plane: a free column; the range of the data fills the box but for a margin. Rows far outside of
   the central 99% are left to the background.
   torus: a periodic column is one full turn.
   interval: a bounded column is half a turn, from 0 to π, and reflected at its ends. */

const MARGIN = 0.1, CENTRAL = 0.99, REACH = 0.5, CONSTANT = 1e-13, NARROW = 1e-6, WIDENING = 2;
const LEAST_ROWS = 10, FEW_ROWS_REACH = 5, DEGREES = 3;
const wrapAngle = (u) => u - 2 * Math.PI * Math.floor((u + Math.PI) / (2 * Math.PI));

class Axis {
  constructor(kind, centre, scale, low, width) {
    Object.assign(this, { kind, centre, scale, low, width });
  }

  static of(kind, values, low, width) {
    if (kind === "torus") return new Axis(kind, 0, (2 * Math.PI) / width, low, width);
    if (kind === "interval") return new Axis(kind, low, Math.PI / width, low, width);
    const sorted = Float64Array.from(values).sort(), n = sorted.length;
    let tail = 0.5 * (1 - CENTRAL), reach = REACH;
    if (n >= LEAST_ROWS && n < 1 / tail) { // with one point on either side, which may be an outlier
      reach += FEW_ROWS_REACH * (1 / Math.sqrt(n) - Math.sqrt(tail));
      tail = 1.001 / n;
    }
    const quantile = (level) => {
      let i = 0;
      while (i < n - 1 && (i + 1) / n < level) i++;
      return sorted[i];
    };
    const [q, p] = [quantile(tail), quantile(1 - tail)];
    const near = Math.max(sorted[0], q - reach * (p - q));
    const far = Math.min(sorted[n - 1], p + reach * (p - q));
    const centre = 0.5 * (near + far), floor = CONSTANT * Math.max(Math.abs(near), Math.abs(far));
    let half = 0.5 * (far - near);
    if (!(far - near > floor)) half = NARROW * (Math.abs(centre) || 1);
    half *= 1 + (MARGIN + 1 / Math.sqrt(Math.max(n, 1)));
    return new Axis(kind, centre, Math.PI / half, centre - half, 2 * half);
  }

  get range() {
    /* The lower end and the width of the values: of the bounds, the period, or the box. */
    const half = Math.PI / this.scale;
    if (this.kind === "interval") return [this.centre, half];
    return this.kind === "torus" ? [this.low, 2 * half] : [this.centre - half, 2 * half];
  }

  toProcess(x) { return wrapAngle((x - this.centre) * this.scale); }

  toData(u) {
    u = wrapAngle(u);
    if (this.kind === "interval") return this.centre + Math.abs(u) / this.scale;
    const x = this.centre + u / this.scale;
    if (this.kind === "plane") return x;
    const turn = x - this.low;
    return this.low + turn - this.width * Math.floor(turn / this.width);
  }

  covers(x) {
    const u = (x - this.centre) * this.scale;
    if (this.kind === "torus") return true;
    if (this.kind === "interval") return u >= -1e-12 && u <= Math.PI + 1e-12;
    return u >= -Math.PI && u < Math.PI;
  }
}

class Chart {
  constructor(axes) {
    this.axes = axes;
    this.reflected = axes.map((one) => one.kind === "interval");
    this.logJacobian = axes.reduce(
      (sum, one) => sum + Math.log(one.scale) + (one.kind === "interval" ? Math.LN2 : 0), 0);
  }

  static of(space, x, y, box) {
    return new Chart([
      Axis.of(space, x, box.low[0], box.width[0]), Axis.of(space, y, box.low[1], box.width[1])]);
  }

  covers(x, y) { return this.axes[0].covers(x) && this.axes[1].covers(y); }
}

class Background {
  /* A Student distribution with three degrees of freedom and twice the standard deviations of the
     data, for the plane only; its share is (1 + rows outside of the box)/(n + 1). */
  constructor(x, y, outside) {
    const n = x.length, mean = (z) => z.reduce((a, b) => a + b, 0) / n;
    const [mx, my] = [mean(x), mean(y)];
    let [xx, xy, yy] = [0, 0, 0];
    for (let i = 0; i < n; i++) {
      xx += (x[i] - mx) ** 2;
      xy += (x[i] - mx) * (y[i] - my);
      yy += (y[i] - my) ** 2;
    }
    const factor = WIDENING ** 2 * (DEGREES - 2) / DEGREES / n;
    [xx, xy, yy] = [factor * xx, factor * xy, factor * yy];
    const size = (variance, at) => Math.max(variance, (1e-9 * at) ** 2) || 1;
    xx += 1e-6 * size(xx, mx);
    yy += 1e-6 * size(yy, my);
    const a = Math.sqrt(xx), b = xy / a;
    Object.assign(this, { mx, my, a, b, c: Math.sqrt(yy - b * b), share: (1 + outside) / (n + 1) });
  }

  logDensity(x, y) {
    const z = (x - this.mx) / this.a, w = (y - this.my - this.b * z) / this.c;
    const tails = 0.5 * (DEGREES + 2) * Math.log1p((z * z + w * w) / DEGREES);
    return -tails - Math.log(2 * Math.PI * this.a * this.c);
  }
}
