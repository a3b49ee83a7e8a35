/* The picture: density as a map, scores as arrows, data and particles as points. */

const PAD = 0.05, ARROWS = 22, GAMMA = 0.7;
const DEPTH = 12, SHADES = 2048; // colours are given for log ρ from DEPTH below full colour

const THEMES = {
  light: {
    paper: "#ffffff", outside: "#f1f3f6", line: "#c3cad3", data: "rgba(27, 36, 48, 0.62)",
    sample: "#d9480f", arrow: "rgba(27, 36, 48, 0.55)",
    map: [[255, 255, 255], [222, 234, 247], [150, 188, 226], [74, 129, 190], [28, 70, 134]],
  },
  dark: {
    paper: "#10151c", outside: "#1a212a", line: "#3c4653", data: "rgba(235, 241, 248, 0.62)",
    sample: "#ff9d4d", arrow: "rgba(225, 234, 244, 0.5)",
    map: [[16, 21, 28], [22, 44, 76], [32, 84, 140], [74, 140, 200], [172, 214, 244]],
  },
};

function colours(stops) {
  /* Return colours as bytes (r, g, b, a) over log ρ: linear between the stops in a power of ρ. */
  const table = new Uint8ClampedArray(4 * SHADES), last = stops.length - 1;
  for (let i = 0; i < SHADES; i++) {
    const place = Math.exp(GAMMA * DEPTH * (i / (SHADES - 1) - 1)) * last;
    const k = Math.min(Math.floor(place), last - 1), share = place - k;
    for (let c = 0; c < 3; c++)
      table[4 * i + c] = (1 - share) * stops[k][c] + share * stops[k + 1][c];
    table[4 * i + 3] = 255;
  }
  return new Uint32Array(table.buffer);
}

class View {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    // one more row and column on each side, so that neighbouring tiles join
    this.side = MAP + 2;
    this.tile = document.createElement("canvas");
    this.tile.width = this.tile.height = this.side;
    this.image = this.tile.getContext("2d").createImageData(this.side, this.side);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.points = document.createElement("canvas");
    this.dots = null;
    this.theme = "light";
    this.resize();
  }

  set theme(name) {
    this.name = name;
    this.colours = THEMES[name];
    this.table = colours(this.colours.map);
    this.dots = null;
  }

  resize() {
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    const size = Math.round(this.canvas.clientWidth * ratio) || 600;
    if (this.canvas.width !== size) this.canvas.width = this.canvas.height = size;
    this.ratio = ratio;
    this.size = size;
    this.dot = ratio * Math.min(Math.max(size / ratio / 560, 0.65), 1.2); // the unit of points
    this.dots = null;
  }

  setBox(box) {
    this.box = box;
    this.dots = null;
  }

  toPixel(x, j) {
    const share = ((x - this.box.low[j]) / this.box.width[j] + PAD) / (1 + 2 * PAD);
    return (j ? 1 - share : share) * this.size;
  }

  toData(pixel, j) {
    const share = j ? 1 - pixel / this.size : pixel / this.size;
    return this.box.low[j] + (share * (1 + 2 * PAD) - PAD) * this.box.width[j];
  }

  setDensity({ log, full }) {
    /* Colour the tile by log ρ on the grid of MAP × MAP points; full is that of the full colour. */
    const n = MAP, { table, side, pixels } = this, step = (SHADES - 1) / DEPTH, low = full - DEPTH;
    for (let j = 0; j < side; j++) {
      // y points upwards, and the tile starts at -π, the grid at 0
      const row = ((j - 1 + n / 2) & (n - 1)) * n, to = (side - 1 - j) * side;
      for (let i = 0; i < side; i++) {
        const shade = step * (log[row + ((i - 1 + n / 2) & (n - 1))] - low);
        pixels[to + i] = table[shade > 0 ? (shade < SHADES ? shade | 0 : SHADES - 1) : 0];
      }
    }
    this.tile.getContext("2d").putImageData(this.image, 0, 0);
  }

  _frame() {
    const { context, size, box } = this;
    const [left, right] = [0, 1].map((k) => this.toPixel(box.low[0] + k * box.width[0], 0));
    const [bottom, top] = [0, 1].map((k) => this.toPixel(box.low[1] + k * box.width[1], 1));
    return { context, size, left, right, bottom, top };
  }

  draw(scene) {
    /* scene: space, axes, showDensity, arrows, data, particles, cursor, and whether there are points. */
    const { context, size, left, right, bottom, top } = this._frame(), { colours: own } = this;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = scene.space === "interval" ? own.outside : own.paper;
    context.fillRect(0, 0, size, size);
    if (scene.space === "interval") {
      context.fillStyle = own.paper;
      context.fillRect(left, top, right - left, bottom - top);
    }
    if (scene.showDensity && scene.axes) this._tiles(scene);
    if (scene.space !== "plane") {
      context.strokeStyle = own.line;
      context.lineWidth = this.ratio * (scene.space === "interval" ? 2 : 1);
      context.setLineDash(scene.space === "torus" ? [5 * this.ratio, 5 * this.ratio] : []);
      context.strokeRect(left, top, right - left, bottom - top);
      context.setLineDash([]);
    }
    else if (scene.axes) this._box(scene.axes);
    if (scene.data) this._data(scene.data);
    if (scene.arrows) this._arrows(scene.arrows);
    if (scene.particles) this._particles(scene.particles);
    if (scene.cursor) this._cursor(scene.cursor);
    if (scene.empty) this._hint("Draw points here");
  }

  _hint(text) {
    const { context, size, ratio } = this;
    context.font = `${18 * ratio}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.fillStyle = this.colours.data;
    context.fillText(text, 0.5 * size, 0.5 * size);
  }

  _box(axes) {
    /* The box of the plane. */
    const { context } = this, [[x, width], [y, height]] = axes.map((one) => one.range);
    const [left, right] = [this.toPixel(x, 0), this.toPixel(x + width, 0)];
    const [bottom, top] = [this.toPixel(y, 1), this.toPixel(y + height, 1)];
    context.strokeStyle = this.colours.line;
    context.lineWidth = this.ratio;
    context.strokeRect(left, top, right - left, bottom - top);
  }

  _tiles({ space, axes }) {
    const { context, left, right, bottom, top, size } = this._frame();
    const low = axes.map((one) => one.centre - Math.PI / one.scale);
    const width = axes.map((one) => (2 * Math.PI) / one.scale);
    const copies = space === "torus" ? [-1, 0, 1, 2] : [0];
    context.save();
    context.beginPath();
    if (space === "interval") context.rect(left, top, right - left, bottom - top);
    else context.rect(0, 0, size, size);
    context.clip();
    for (const i of copies)
      for (const j of copies) {
        const [x0, x1] = [0, 1].map((k) => this.toPixel(low[0] + (i + k) * width[0], 0));
        const [y1, y0] = [0, 1].map((k) => this.toPixel(low[1] + (j + k) * width[1], 1));
        if (x1 < 0 || y1 < 0 || x0 > size || y0 > size) continue;
        // The sample i of the grid is the middle of its pixel; the first is at -π.
        const px = (x1 - x0) / MAP, py = (y1 - y0) / MAP;
        context.save();
        context.beginPath();
        context.rect(x0, y0, x1 - x0 + 0.5, y1 - y0 + 0.5);
        context.clip();
        context.drawImage(this.tile, x0 - 1.5 * px, y0 - 0.5 * py, px * this.side, py * this.side);
        context.restore();
      }
    context.restore();
    if (space === "torus") { // the copies outside of one period are paler
      context.fillStyle = this.colours.paper;
      context.globalAlpha = 0.55;
      context.beginPath();
      context.rect(0, 0, size, size);
      context.rect(left, top, right - left, bottom - top);
      context.fill("evenodd");
      context.globalAlpha = 1;
    }
  }

  _data({ x, y, version }) {
    // Points are drawn once, and again when they change.
    if (this.dots !== version || this.points.width !== this.size) {
      this.points.width = this.points.height = this.size;
      const context = this.points.getContext("2d"), radius = this.dot * (x.length > 3000 ? 0.9 : 1.25);
      context.fillStyle = this.colours.data;
      context.beginPath();
      for (let i = 0; i < x.length; i++) {
        const [px, py] = [this.toPixel(x[i], 0), this.toPixel(y[i], 1)];
        context.moveTo(px + radius, py);
        context.arc(px, py, radius, 0, 2 * Math.PI);
      }
      context.fill();
      this.dots = version;
    }
    this.context.drawImage(this.points, 0, 0);
  }

  arrowPlaces(axes) {
    /* Return the middle points of the cells of a grid, in data units, within the axes' boxes. */
    const x = [], y = [], { low, width } = this.box;
    for (let j = 0; j < ARROWS; j++)
      for (let i = 0; i < ARROWS; i++) {
        const point = [
          low[0] + ((i + 0.5) / ARROWS) * width[0], low[1] + ((j + 0.5) / ARROWS) * width[1]];
        if (axes.some((one, k) => !one.covers(point[k]))) continue;
        x.push(point[0]);
        y.push(point[1]);
      }
    return { x, y };
  }

  _arrows({ x, y, values }) {
    /* values: relative scores, pairs; lengths saturate at one cell. */
    const { context, ratio } = this, cell = (0.92 * this.size) / ARROWS / (1 + 2 * PAD);
    context.strokeStyle = this.colours.arrow;
    context.lineWidth = 1.1 * this.dot;
    context.beginPath();
    for (let i = 0; i < x.length; i++) {
      const dx = values[2 * i], dy = -values[2 * i + 1], size = Math.hypot(dx, dy);
      if (!(size > 1e-3) || !Number.isFinite(size)) continue;
      const length = cell * (1 - Math.exp(-size)), [ux, uy] = [dx / size, dy / size];
      const [px, py] = [this.toPixel(x[i], 0), this.toPixel(y[i], 1)];
      const [ex, ey] = [px + 0.5 * length * ux, py + 0.5 * length * uy];
      context.moveTo(px - 0.5 * length * ux, py - 0.5 * length * uy);
      context.lineTo(ex, ey);
      const head = Math.min(0.35 * length, 4.5 * ratio);
      context.moveTo(ex - head * (ux + 0.6 * uy), ey - head * (uy - 0.6 * ux));
      context.lineTo(ex, ey);
      context.lineTo(ex - head * (ux - 0.6 * uy), ey - head * (uy + 0.6 * ux));
    }
    context.stroke();
  }

  _particles(points) {
    const { context } = this, size = 2.6 * this.dot;
    context.fillStyle = this.colours.sample;
    for (let i = 0; i < points.length; i += 2)
      context.fillRect(
        this.toPixel(points[i], 0) - 0.5 * size, this.toPixel(points[i + 1], 1) - 0.5 * size, size, size);
  }

  _cursor({ x, y, radius }) {
    const { context, ratio } = this;
    context.strokeStyle = this.colours.sample;
    context.lineWidth = 1.5 * ratio;
    context.beginPath();
    context.arc(this.toPixel(x, 0), this.toPixel(y, 1), radius * ratio, 0, 2 * Math.PI);
    context.stroke();
  }
}
