/* The state of the page and its fits: points, settings, and the answers of three workers.

   The main thread solves at the shown noise level only, so the map follows the hand. One worker
   renews the fit at all levels, with particles and densities; one chooses ridge and cutoff; one
   computes held-out likelihoods. They get copies of the points and leave a task when the next one
   arrives. */

const BOUNDS = [4, 9, 16, 25, 36, 49, 64, 81, 100, 128, 160, 200];
const REST = 200; // milliseconds without a change before ridge and cutoff are chosen
const RESOLUTION = 1.2; // the least noise of the quick map, times the largest frequency

class Fitting {
  constructor(changed) {
    this.changed = changed;
    this.points = { x: [], y: [], fold: [], version: 0 };
    this.resolution = 100;
    this.settings = { space: "plane", bound: 100, box: { low: [-4, -4], width: [8, 8] } };
    this.rule = "cv";
    this.seed = 1;
    this.stamp = 0;
    this.timers = {};
    this.chosen = Schedule.constant(0.003, 0);
    const source = document.getElementById("numerics").textContent;
    const url = URL.createObjectURL(new Blob([source, "\nstartWorker(self);"], { type: "text/javascript" }));
    this.workers = Object.fromEntries(["fit", "choose", "judge"].map((task) => {
      const worker = new Worker(url);
      worker.onmessage = ({ data }) => this._receive(data);
      return [task, worker];
    }));
    this._forget();
  }

  _forget() {
    /* Drop all results; those on their way belong to an earlier epoch. */
    this.epoch = (this.epoch ?? 0) + 1;
    this.seen = {};
    Object.assign(this, { model: null, curve: null, paths: null, densities: null, heldout: null });
  }

  get schedule() { return this.rule === "paper" ? Schedule.constant(0) : this.chosen; }

  get functions() {
    /* The number of functions whose coefficients are solved for. */
    const basis = basisOf(this.settings.bound);
    return this.settings.space === "interval" ? basis.orbits.first.length : basis.size;
  }

  get idle() {
    /* Whether everything that was asked of the workers has been answered. */
    return !this.frame && (!this.ready || (!this.choosing && this.seen.judged === this.stamp));
  }

  get ready() { return this.points.x.length >= 3; }

  setPoints(points) {
    /* Replace all points, pairs [x, y]. */
    const x = points.map((one) => one[0]), y = points.map((one) => one[1]);
    this.points = { x, y, fold: Array.from(foldsOf(x, y)), version: this.points.version + 1 };
    this.renew();
  }

  add(points) {
    const { points: own } = this, fold = foldsOf(points.map((p) => p[0]), points.map((p) => p[1]));
    points.forEach(([x, y], i) => {
      own.x.push(x);
      own.y.push(y);
      own.fold.push(fold[i]);
    });
    own.version++;
    this.renew();
  }

  remove(inside) {
    const { points: own } = this, kept = own.x.map((x, i) => !inside(x, own.y[i]));
    if (kept.every(Boolean)) return;
    for (const name of ["x", "y", "fold"]) own[name] = own[name].filter((_, i) => kept[i]);
    own.version++;
    this.renew();
  }

  change(settings) {
    /* Change space or resolution; a level keeps its cutoff when the largest frequency changes.

       An interval is half a turn: for the same resolution ‖ξ‖² is four times as large, and the
       number of functions the same, because they are even in each coordinate. */
    const before = basisOf(this.settings.bound).radius, { resolution = this.resolution, space } = settings;
    this.resolution = resolution;
    this.settings = { ...this.settings, space: space ?? this.settings.space };
    this.settings.bound = (this.settings.space === "interval" ? 4 : 1) * resolution;
    const lift = 2 * Math.log2(basisOf(this.settings.bound).radius / before);
    if (lift) {
      const level = this.chosen.level.map((one) => Math.max(0, one + lift));
      this.chosen = new Schedule(this.chosen.tau, this.chosen.logRidge, level);
    }
    this._forget();
    this.renew();
  }

  setRule(rule) {
    this.rule = rule;
    this.choosing = false;
    this._forget();
    this.renew();
  }

  renew({ choose = true } = {}) {
    /* Fit anew before the next frame: at once at the shown level, soon at all of them. */
    this.stamp++;
    this.since = performance.now();
    this.curve = null;
    clearTimeout(this.timer);
    this.choosing = this.rule === "cv" && (choose || Boolean(this.choosing));
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this._start();
      this.changed("points");
    });
  }

  _start() {
    if (!this.ready) {
      this._forget();
      return;
    }
    const begin = performance.now();
    this.model = this._model();
    this.timers.averages = performance.now() - begin;
    const more = { schedule: { ...this.schedule }, particles: PARTICLES, seed: this.seed };
    this._send("fit", { ...more, quick: begin - this.started < REST });
    this.started = begin;
    if (this.choosing) this.timer = setTimeout(() => this._send("choose", {}), REST);
  }

  _model() {
    const { x, y, fold } = this.points;
    return new Model(Float64Array.from(x), Float64Array.from(y), this.settings, Uint8Array.from(fold));
  }

  _send(task, more) {
    const { x, y, fold } = this.points;
    const data = {
      task, stamp: this.stamp, epoch: this.epoch, x: Float64Array.from(x), y: Float64Array.from(y),
      fold: Uint8Array.from(fold), settings: this.settings, averages: this.model.averages, ...more,
    };
    this.workers[task].postMessage(data);
    this[`${task}Sent`] = performance.now();
  }

  coefficients(tau) {
    /* α at a clock time: from the table, or solved for while the table is being renewed. */
    if (this.curve) return this.curve.at(tau);
    const begin = performance.now(), alpha = this.model.coefficients(tau, this.schedule, false);
    this.timers.live = performance.now() - begin;
    return alpha;
  }

  density(tau, grid) {
    /* Return ρ_t on the grid of the map, up to a factor: that of the flow, between the two nearest
       levels. While it is being renewed: the data with this noise and that of the resolution. */
    const { levels, size, stamp } = this.densities ?? { levels: [] };
    const after = Math.max(1, levels.findIndex((one) => one.tau <= tau));
    const [high, low] = [levels[after - 1], levels[after]];
    if (stamp !== this.stamp || !(low.sound && high.sound)) {
      const { basis, averages, clock } = this.model, least = RESOLUTION / basis.radius;
      return grid.densityRatio(basis, averages.total, clock.time(tau) + 0.5 * least * least);
    }
    const share = (tau - low.tau) / (high.tau - low.tau);
    const log = upsampled(low.log.map((one, i) => (1 - share) * one + share * high.log[i]), size, MAP);
    let most = -Infinity;
    for (const one of log) if (one > most) most = one;
    return log.map((one) => Math.exp(one - most));
  }

  particles(tau) {
    /* Return the particles at a clock time in data units (x, y, x, y, …), or null. */
    if (!this.paths) return null;
    const { frames, steps, axes } = this.paths, size = frames.length / (steps + 1);
    const place = (1 - tau) * steps, k = Math.min(Math.floor(place), steps - 1), share = place - k;
    const out = new Float64Array(size);
    for (let i = 0; i < size; i++) {
      const u = (1 - share) * frames[k * size + i] + share * frames[(k + 1) * size + i];
      out[i] = axes[i & 1].toData(u);
    }
    return out;
  }

  _receive(data) {
    /* Results for points that have changed since are shown until the next ones. */
    const { kind, stamp } = data;
    if (data.epoch !== this.epoch || stamp < (this.seen[kind] ?? 0)) return;
    this.seen[kind] = stamp;
    const current = stamp === this.stamp;
    if (kind === "table" && current) {
      this.timers.table = performance.now() - this.since;
      if (!this.curve) this.timers.refit = this.timers.table;
      this.curve = new Curve(data.knots, data.values, data.slopes);
    }
    if (data.kind === "schedule") {
      this.timers.choice = data.ms;
      this.timers.chosenAfter = performance.now() - this.chooseSent;
      this.chosen = Object.assign(new Schedule(), data.schedule);
      this.choosing = !current;
      if (this.rule === "cv") this.renew({ choose: false });
    }
    if (data.kind === "paths") {
      const axes = data.axes.map((one) => Object.assign(new Axis(), one));
      this.paths = { ...data, axes };
      if (current) this.timers.particles = performance.now() - this.since;
    }
    if (data.kind === "densities") {
      this.densities = data;
      if (current && !this.choosing) this._send("judge", { schedule: { ...this.schedule } });
    }
    if (data.kind === "heldout") {
      this.heldout = data.found;
      this.timers.heldout = performance.now() - this.since;
    }
    this.changed(data.kind);
  }
}
