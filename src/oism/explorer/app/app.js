/* The page: controls, pointer and keyboard, the picture, animation and downloads. */

const $ = (id) => document.getElementById(id);
const SECONDS = 5; // of an animation from one end of the clock to the other
const KEY_STEP = 0.02;
const FAINT = 0.1; // scores below this share of 1/σ have short arrows at any noise level
const TITLES = {
  "2spirals": "two spirals", moons: "two moons", "8gaussians": "eight Gaussians", checkerboard: "checkerboard",
  pinwheel: "pinwheel", circles: "two circles", rings: "four rings", swissroll: "Swiss roll",
};

class Explorer {
  constructor() {
    this.view = new View($("canvas"));
    this.fitting = new Fitting((what) => this._changed(what));
    this.texts = new Texts(this.fitting);
    this.tau = 0;
    this.tool = "spray";
    this.names = ["x", "y"];
    this.history = [];
    this.random = new Random(7);
    this.cursor = null;
    this.frames = [];
    const wanted = new URLSearchParams(location.hash.slice(1));
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    this._setTheme(wanted.get("theme") ?? (dark ? "dark" : "light"));
    const embedded = wanted.has("embed") ? wanted.get("embed") === "1" : window !== window.top;
    document.body.classList.toggle("embedded", embedded);
    this.view.resize();
    this._fillLists(wanted);
    this._connect();
    this.view.setBox(this.fitting.settings.box);
    this.loadToy();
  }

  // -- data ---------------------------------------------------------------------------------------

  loadToy() {
    const name = $("toy").value;
    if (!name) return;
    this._remember();
    const box = { low: [-4, -4], width: [8, 8] }, seed = this.random.integer(2 ** 31);
    this.names = ["x", "y"];
    this._setBox(box);
    this.fitting.setPoints(drawToy(name, Number($("count").value), seed, box));
  }

  loadText(text, name) {
    let found;
    try {
      found = parseTable(text);
    } catch (error) {
      this.report(`${name} was not read: ${error.message}`);
      return;
    }
    let { points } = found;
    const all = points.length;
    if (all > MOST_POINTS) {
      for (let i = 0; i < MOST_POINTS; i++) {
        const j = i + this.random.integer(all - i);
        [points[i], points[j]] = [points[j], points[i]];
      }
      points = points.slice(0, MOST_POINTS);
    }
    this._remember();
    this.names = found.names;
    $("toy").value = "";
    this._setBox(boxOf(points));
    this.fitting.setPoints(points);
    const thinned = all > points.length ? `, a random part of ${all.toLocaleString("en")}` : "";
    const gaps = found.skipped ? `, ${found.skipped} rows without numbers left out` : "";
    this.report(`${name}: ${points.length.toLocaleString("en")} points${thinned}${gaps}`);
  }

  _setBox(box) {
    this.view.setBox(box);
    this.fitting.settings = { ...this.fitting.settings, box };
    this.fitting._forget();
  }

  _remember() {
    const { x, y } = this.fitting.points;
    this.history.push({
      points: x.map((one, i) => [one, y[i]]), box: this.fitting.settings.box, names: this.names });
    if (this.history.length > 40) this.history.shift();
    $("undo").disabled = this.history.length < 2;
  }

  undo() {
    const last = this.history.pop();
    if (!last) return;
    this.names = last.names;
    this._setBox(last.box);
    this.fitting.setPoints(last.points);
    $("toy").value = "";
    $("undo").disabled = this.history.length < 2;
  }

  clear() {
    this._remember();
    $("toy").value = "";
    this.fitting.setPoints([]);
    this.report("All points removed: draw some");
  }

  // -- drawing ------------------------------------------------------------------------------------

  _use(px, py, from) {
    /* Use the tool at a pixel of the canvas, with a stroke from the last one. */
    const { view } = this, radius = Number($("brush").value) * view.ratio;
    if (this.tool === "erase") {
      this.fitting.remove((x, y) =>
        Math.hypot(view.toPixel(x, 0) - px, view.toPixel(y, 1) - py) < radius);
      return;
    }
    const count = this.tool === "spray" ? 14 : 5, spread = this.tool === "spray" ? 0.45 * radius : 0.08 * radius;
    const points = [], { box, space } = this.fitting.settings;
    for (let i = 0; i < count; i++) {
      const share = from ? (i + 1) / count : 1;
      const at = [
        (from ? from[0] + share * (px - from[0]) : px) + spread * this.random.normal(),
        (from ? from[1] + share * (py - from[1]) : py) + spread * this.random.normal()];
      const point = at.map((one, j) => {
        const value = view.toData(one, j), turn = value - box.low[j];
        return space === "torus" ? box.low[j] + turn - box.width[j] * Math.floor(turn / box.width[j]) : value;
      });
      if (point.every((one, j) => one >= box.low[j] && one <= box.low[j] + box.width[j])) points.push(point);
    }
    const room = MOST_POINTS - this.fitting.points.x.length;
    if (room > 0) this.fitting.add(points.slice(0, room));
    else this.report(`At most ${MOST_POINTS.toLocaleString("en")} points`);
    $("toy").value = "";
  }

  _pixel(event) {
    const box = this.view.canvas.getBoundingClientRect(), factor = this.view.size / box.width;
    return [(event.clientX - box.left) * factor, (event.clientY - box.top) * factor];
  }

  _connectPointer() {
    const { canvas } = this.view;
    let last = null;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      canvas.setPointerCapture(event.pointerId);
      this._remember();
      last = this._pixel(event);
      this.cursor = this.hover = null;
      this._use(...last, null);
    });
    canvas.addEventListener("pointermove", (event) => {
      const here = this._pixel(event);
      if (!last) {
        this._hover(event.pointerType === "mouse" ? here : null);
        return;
      }
      if (this.tool === "draw" && Math.hypot(here[0] - last[0], here[1] - last[1]) < 3) return;
      this._use(...here, last);
      last = here;
    });
    for (const name of ["pointerup", "pointercancel"])
      canvas.addEventListener(name, () => (last = null));
    canvas.addEventListener("pointerleave", () => this._hover(null));
    canvas.addEventListener("keydown", (event) => this._key(event));
    canvas.addEventListener("blur", () => {
      this.cursor = null;
      this.paint();
    });
  }

  _hover(pixel) {
    this.hover = pixel;
    this.cursor = null;
    this.paint();
  }

  _key(event) {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    const tools = { d: "draw", s: "spray", e: "erase" }, { box } = this.fitting.settings;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    this.cursor ??= [0, 1].map((j) => box.low[j] + 0.5 * box.width[j]);
    if (moves[event.key]) {
      const step = event.shiftKey ? 4 * KEY_STEP : KEY_STEP;
      this.cursor = this.cursor.map((one, j) => Math.min(Math.max(
        one + step * moves[event.key][j] * box.width[j], box.low[j]), box.low[j] + box.width[j]));
    } else if (event.key === " " || event.key === "Enter") {
      if (!event.repeat) this._remember();
      this._use(this.view.toPixel(this.cursor[0], 0), this.view.toPixel(this.cursor[1], 1), null);
    } else if (tools[event.key.toLowerCase()]) {
      document.querySelector(`input[name=tool][value=${tools[event.key.toLowerCase()]}]`).click();
    } else return;
    event.preventDefault();
    this.paint();
  }

  // -- controls -----------------------------------------------------------------------------------

  _fillLists(wanted) {
    /* The first state; the address may set it: #toy=rings&points=500&functions=196&space=torus. */
    $("toy").innerHTML = '<option value="">own points</option>' +
      Object.keys(TOYS).map((name) => `<option value="${name}">${TITLES[name]}</option>`).join("");
    $("toy").value = wanted.get("toy") in TOYS ? wanted.get("toy") : "moons";
    if (wanted.has("points")) $("count").value = wanted.get("points");
    if (!$("count").value) $("count").value = "1000";
    const functions = Number(wanted.get("functions")), { fitting } = this;
    if (functions) fitting.resolution = BOUNDS.findLast((one) => basisOf(one).size <= functions) ?? BOUNDS[0];
    const space = document.querySelector(`input[name=space][value="${wanted.get("space")}"]`);
    if (space) {
      space.checked = true;
      fitting.change({ space: space.value });
    }
    $("functions").max = BOUNDS.length - 1;
    $("automatic").checked = fitting.resolution === null;
  }

  _connect() {
    this._connectPointer();
    const on = (id, name, act) => $(id).addEventListener(name, act);
    const radios = (name, act) => document.querySelectorAll(`input[name=${name}]`)
      .forEach((one) => one.addEventListener("change", () => act(one.value)));
    radios("tool", (value) => (this.tool = value));
    radios("space", (value) => this.fitting.change({ space: value }));
    radios("rule", (value) => this.fitting.setRule(value));
    on("toy", "change", () => this.loadToy());
    on("count", "change", () => this.loadToy());
    on("undo", "click", () => this.undo());
    on("clear", "click", () => this.clear());
    on("noise", "input", () => {
      this.stop();
      this.setTau(Number($("noise").value) / 1000);
    });
    const resolution = () => BOUNDS[Number($("functions").value)];
    on("functions", "input", () => {
      $("automatic").checked = false;
      this.fitting.change({ resolution: resolution() });
    });
    on("automatic", "change", () =>
      this.fitting.change({ resolution: $("automatic").checked ? null : resolution() }));
    on("backward", "click", () => this.play(-1));
    on("forward", "click", () => this.play(1));
    on("resample", "click", () => {
      this.fitting.seed++;
      this.fitting.renew({ choose: false });
    });
    for (const id of ["show-density", "show-score", "show-data", "show-samples"])
      on(id, "change", () => this.paint());
    on("theme", "click", () => this._setTheme(this.view.name === "dark" ? "light" : "dark"));
    on("save-picture", "click", () => this.view.canvas.toBlob((blob) => save(blob, "oism.png")));
    on("save-points", "click", () => save(new Blob([this.table], { type: "text/csv" }), "points.csv"));
    on("copy-python", "click", () => this._copy());
    on("file", "change", () => this._read($("file").files[0]));
    addEventListener("hashchange", () => { // a page that embeds this one may change its theme
      const theme = new URLSearchParams(location.hash.slice(1)).get("theme");
      if (theme) this._setTheme(theme);
    });
    addEventListener("resize", () => {
      this.view.resize();
      this.paint();
    });
    addEventListener("dragover", (event) => {
      event.preventDefault();
      document.body.classList.add("dropping");
    });
    addEventListener("dragleave", () => document.body.classList.remove("dropping"));
    addEventListener("drop", (event) => {
      event.preventDefault();
      document.body.classList.remove("dropping");
      this._read(event.dataTransfer.files[0]);
    });
  }

  async _read(file) {
    if (file) this.loadText(await file.text(), file.name);
    $("file").value = "";
  }

  automaticBound(points) { return automaticBound(points, MOST_AUTOMATIC); }

  get table() { return tableText(this.fitting.points.x, this.fitting.points.y, this.names); }

  get python() {
    const { settings, rule, points } = this.fitting;
    return pythonText({ settings, rule, x: points.x, y: points.y });
  }

  async _copy() {
    try {
      await navigator.clipboard.writeText(this.python);
      this.report("Python copied");
    } catch { // no permission, as from file:// in some browsers
      getSelection().selectAllChildren($("python"));
      this.report(document.execCommand("copy") ? "Python copied" : "Copy the selected lines");
    }
  }

  _setTheme(name) {
    if (!(name in THEMES)) name = "light";
    document.documentElement.dataset.theme = name;
    this.view.theme = name;
    $("theme").textContent = name === "dark" ? "Light theme" : "Dark theme";
    this.stale = true;
    if (this.fitting.model) this.paint();
  }

  report(text) {
    $("status").textContent = text;
    clearTimeout(this.silence);
    this.silence = setTimeout(() => ($("status").textContent = ""), 6000);
  }

  // -- time ---------------------------------------------------------------------------------------

  setTau(tau) {
    this.tau = Math.min(Math.max(tau, 0), 1);
    $("noise").value = Math.round(1000 * this.tau);
    this.stale = true;
    this.paint();
  }

  play(direction) {
    /* Run the flow: -1 from noise to data, 1 from data to noise; again to pause. */
    if (this.playing === direction) {
      this.stop();
      return;
    }
    this.stop();
    if (direction < 0 && this.tau <= 0) this.setTau(1);
    if (direction > 0 && this.tau >= 1) this.setTau(0);
    this.playing = direction;
    this._label();
    this.frames = [];
    let last = null;
    const step = (now) => {
      if (this.playing !== direction) return;
      if (last !== null) this.setTau(this.tau + (direction * (now - last)) / (1000 * SECONDS));
      last = now;
      this.frames.push(now);
      if (direction < 0 ? this.tau > 0 : this.tau < 1) requestAnimationFrame(step);
      else this.stop();
    };
    requestAnimationFrame(step);
  }

  stop() {
    const { frames } = this;
    if (frames.length > 10) {
      const seconds = (frames[frames.length - 1] - frames[0]) / 1000;
      this.fitting.timers.frameRate = (frames.length - 1) / seconds;
      this.texts.showTimes();
    }
    this.frames = [];
    this.playing = 0;
    this._label();
  }

  _label() {
    $("backward").textContent = this.playing < 0 ? "Pause" : "Noise to data";
    $("forward").textContent = this.playing > 0 ? "Pause" : "Data to noise";
  }

  // -- the picture --------------------------------------------------------------------------------

  _changed(what) {
    if (["points", "table", "densities"].includes(what)) this.stale = true;
    this.paint();
    if (what === "points") this.texts.showSettings(this.python);
    if (what === "points") this.texts.showChoices(this.tau);
    if (["heldout", "judged", "points"].includes(what)) this.texts.showLikelihood();
    this.texts.showTimes();
  }

  paint() {
    /* Draw before the next frame, once. */
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      const begin = performance.now();
      this._draw();
      this.fitting.timers.frame = performance.now() - begin;
    });
  }

  _draw() {
    const { fitting, view, tau } = this, { model, points, settings } = fitting;
    const scene = { space: settings.space, cursor: this._cursorScene(), empty: !points.x.length };
    if ($("show-data").checked) scene.data = points;
    if (model) {
      scene.axes = model.chart.axes;
      if (this.stale) this.alpha = fitting.coefficients(tau);
      scene.showDensity = $("show-density").checked;
      if (this.stale && scene.showDensity) view.setDensity(fitting.density(tau));
      this.stale = this.stale && !scene.showDensity;
      if ($("show-score").checked) scene.arrows = this._arrowScene(model);
      if ($("show-samples").checked) scene.particles = fitting.particles(tau);
    }
    view.draw(scene);
    this.texts.showNoise(tau);
  }

  _arrowScene(model) {
    /* Scores at the points of a grid, in units of the box, so that arrows point along the gradient as
       it is drawn, and relative to their median: scores grow as the noise decreases. */
    const { x, y } = this.view.arrowPlaces(model.chart.axes), [ax, ay] = model.chart.axes;
    const values = new Float64Array(2 * x.length), [wx, wy] = this.fitting.settings.box.width;
    const unit = [ax.scale * wx, ay.scale * wy].map((one) => one / Math.sqrt(ax.scale * wx * ay.scale * wy));
    model.series.set(this.alpha);
    const sizes = Float64Array.from(x, (_, i) => {
      model.series.evaluate(ax.toProcess(x[i]), ay.toProcess(y[i]), values, 2 * i, false);
      for (const j of [0, 1]) values[2 * i + j] *= unit[j];
      return Math.hypot(values[2 * i], values[2 * i + 1]);
    }).sort();
    const size = Math.max(sizes[sizes.length >> 1] ?? 0, FAINT / model.clock.sigma(this.tau));
    return { x, y, values: values.map((one) => one / size) };
  }

  _cursorScene() {
    const radius = this.tool === "draw" ? 5 : Number($("brush").value), { view } = this;
    if (this.hover) return { x: view.toData(this.hover[0], 0), y: view.toData(this.hover[1], 1), radius };
    if (!this.cursor || document.activeElement !== view.canvas) return null;
    return { x: this.cursor[0], y: this.cursor[1], radius };
  }
}

function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

window.explorer = new Explorer();
