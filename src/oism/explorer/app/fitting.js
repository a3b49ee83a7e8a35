/* The state of the page and its fits: points, settings, and the answers of the workers.

   The main thread solves at the shown noise level only, so the arrows follow the hand. One worker
   renews the fit at all levels, one its particles and densities; up to four choose ridge and cutoff,
   each at some of the noise levels; one computes held-out likelihoods. They get copies of the points
   and leave a task when the next one arrives. */

const BOUNDS = [4, 9, 16, 25, 36, 49, 64, 81, 100, 128, 160, 200, 250, 320, 400, 500, 640]; // of ‖ξ‖²
const MOST_AUTOMATIC = 320, MOST_WITHOUT_RIDGE = 100; // the latter needs dense algebra
const MOST_CHOOSERS = 4;
// The first automatic number of functions is small; if ridges are chosen fast enough for it, it grows.
const FIRST_AUTOMATIC = 100, FAST = 1500, SLOW = 8000;
const REST = 200; // milliseconds without a change before ridge and cutoff are chosen
const LIVE = { tolerance: 1e-2, iterations: 40 }; // of the solution at the shown noise level
const RESOLUTION = 1.2; // the least noise of the quick map, times the largest frequency

function automaticBound(points, most) {
  /* Return the library's bound for a number of rows, rounded up, and at most a given one. */
  const wanted = Math.max(600 * (points / 10000) ** 0.4, 25);
  return BOUNDS.find((one) => one >= Math.min(wanted, most));
}

class Fitting {
  constructor(changed) {
    this.changed = changed;
    this.points = { x: [], y: [], version: 0 };
    this.resolution = null; // or one of BOUNDS; null is the automatic choice, up to "most"
    this.most = FIRST_AUTOMATIC;
    this.settings = { space: "plane", bound: 100, box: { low: [-4, -4], width: [8, 8] } };
    this.rule = "cv";
    this.seed = 1;
    this.stamp = 0;
    this.timers = {};
    this.chosen = Schedule.constant(0.003, 0);
    const source = document.getElementById("numerics").textContent;
    const url = URL.createObjectURL(new Blob([source, "\nstartWorker(self);"], { type: "text/javascript" }));
    const choosers = Math.min(navigator.hardwareConcurrency || 2, MOST_CHOOSERS);
    const start = (count) => Array.from({ length: count }, () => {
      const worker = new Worker(url);
      worker.onmessage = ({ data }) => this._receive(data);
      return worker;
    });
    this.workers = { fit: start(1), flow: start(1), choose: start(choosers), judge: start(1) };
    this._forget();
  }

  _forget() {
    /* Drop all results; those on their way belong to an earlier epoch. */
    this.epoch = (this.epoch ?? 0) + 1;
    this.seen = {};
    Object.assign(this, {
      model: null, curve: null, live: null, paths: null, densities: null, heldout: null });
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
    this.points = { x, y, version: this.points.version + 1 };
    this.renew();
  }

  add(points) {
    for (const [x, y] of points) {
      this.points.x.push(x);
      this.points.y.push(y);
    }
    this.points.version++;
    this.renew();
  }

  remove(inside) {
    const { points: own } = this, kept = own.x.map((x, i) => !inside(x, own.y[i]));
    if (kept.every(Boolean)) return;
    for (const name of ["x", "y"]) own[name] = own[name].filter((_, i) => kept[i]);
    own.version++;
    this.renew();
  }

  change({ space = this.settings.space, resolution = this.resolution }) {
    /* Change space or resolution. */
    this.resolution = resolution;
    this.settings = { ...this.settings, space };
    this._forget();
    this.renew();
  }

  get bounded() {
    /* The bound of ‖ξ‖² in the units of a full turn. */
    const wanted = this.resolution ?? automaticBound(this.points.x.length, this.most);
    return this.rule === "paper" ? Math.min(wanted, MOST_WITHOUT_RIDGE) : wanted;
  }

  _setBound() {
    /* Set the functions; a level keeps its cutoff when the largest frequency changes.

       An interval is half a turn: for the same resolution ‖ξ‖² is four times as large, and the
       number of functions the same, because they are even in each coordinate. */
    const bound = (this.settings.space === "interval" ? 4 : 1) * this.bounded;
    if (bound === this.settings.bound) return;
    const lift = 2 * Math.log2(basisOf(bound).radius / basisOf(this.settings.bound).radius);
    const level = this.chosen.level.map((one) => Math.max(0, one + lift));
    this.chosen = new Schedule(this.chosen.tau, this.chosen.logRidge, level);
    this.settings = { ...this.settings, bound };
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
    // Work for points that have changed leaves the processor to the new fit.
    for (const worker of Object.values(this.workers).flat()) worker.postMessage({ task: "rest" });
    this.choosing = this.rule === "cv" && (choose || Boolean(this.choosing));
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this._start();
      this.changed("points");
    });
  }

  _start() {
    this._setBound();
    if (!this.ready) {
      this._forget();
      return;
    }
    const begin = performance.now();
    this.model = new Model(Float64Array.from(this.points.x), Float64Array.from(this.points.y), this.settings);
    this.timers.averages = performance.now() - begin;
    this._send("fit", { schedule: { ...this.schedule } });
    if (this.choosing) this.timer = setTimeout(() => this._choose(), REST);
  }

  _choose() {
    /* Choose ridge and cutoff at all times, which the workers share. */
    const count = this.model.averages.shares.length < 2 ? 0 : this.workers.choose.length;
    this.picks = [];
    this.choice = { stamp: this.stamp, bound: this.settings.bound, since: performance.now() };
    for (let k = 0; k < count; k++) {
      const times = Array.from({ length: TIMES }, (_, i) => i).filter((i) => i % count === k);
      this._send("choose", { times }, k);
    }
    if (!count) this._setSchedule(Schedule.constant(0.1), true);
  }

  _changesMost() {
    /* Adapt the automatic number of functions to the time of the last choice; return whether it did. */
    const { bounded, timers } = this, before = this.most;
    if (this.resolution === null && this.rule === "cv") {
      if (before === FIRST_AUTOMATIC && !this.tooSlow && timers.choice < FAST) this.most = MOST_AUTOMATIC;
      if (before === MOST_AUTOMATIC && timers.choice > SLOW) [this.most, this.tooSlow] = [FIRST_AUTOMATIC, true];
    }
    return this.bounded !== bounded;
  }

  _setSchedule(schedule, current) {
    this.chosen = schedule;
    this.choosing = !current;
    if (this.rule === "cv") this.renew({ choose: false });
  }

  _send(task, more, number = 0) {
    const { x, y, fold, settings, averages } = this.model;
    this.workers[task][number].postMessage({
      task, stamp: this.stamp, epoch: this.epoch, x, y, fold, settings, averages, ...more });
  }

  _flow(done) {
    /* Renew particles, and for the last curve of a fit the densities. */
    const { chart } = this.model;
    const data = {
      task: "flow", stamp: this.stamp, epoch: this.epoch, settings: this.settings, seed: this.seed,
      curve: this.curve, chart: { axes: chart.axes, reflected: chart.reflected }, quick: !done,
    };
    this.workers.flow[0].postMessage(data);
  }

  coefficients(tau) {
    /* α at a clock time: from the table, or solved for while the table is being renewed. */
    if (this.curve) return this.curve.at(tau);
    const begin = performance.now();
    this.live = this.model.coefficients(tau, this.schedule, { ...LIVE, start: this.live });
    this.timers.live = performance.now() - begin;
    return this.live;
  }

  density(tau) {
    /* Return log ρ_t on the grid of the map, { log, full }: that of the flow, between the two nearest
       levels. While it is being renewed: the data with this noise and that of the resolution. */
    const { levels, stamp } = this.densities ?? { levels: [] };
    const after = Math.max(1, levels.findIndex((one) => one.tau <= tau));
    const [high, low] = [levels[after - 1], levels[after]];
    if (stamp !== this.stamp || !(low.sound && high.sound)) {
      const { basis, averages, clock } = this.model, least = RESOLUTION / basis.radius;
      const size = 4 * basis.radius < MAP / 2 ? MAP / 2 : MAP;
      const ratio = dataDensity(basis, averages.total, clock.time(tau) + 0.5 * least * least, size);
      const density = ratio.map((one) => Math.max(one, 1e-9));
      return { log: (size === MAP ? density : upsampled(density, size)).map(Math.log), full: fullColour(density) };
    }
    const share = (tau - low.tau) / (high.tau - low.tau), log = (this.log ??= new Float32Array(MAP * MAP));
    for (let i = 0; i < log.length; i++) log[i] = low.log[i] + share * (high.log[i] - low.log[i]);
    return { log, full: low.full + share * (high.full - low.full) };
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
      const quick = !this.curve;
      if (quick) this.timers.refit = this.timers.table;
      this.curve = new Curve(data.knots, data.values, data.slopes);
      if (quick || data.done) this._flow(data.done);
    }
    if (kind === "picks" && stamp === this.choice.stamp && this.settings.bound === this.choice.bound) {
      this.picks.push(...data.picks);
      if (this.picks.length === TIMES) {
        this.timers.choice = performance.now() - this.choice.since;
        this._setSchedule(scheduleOf(this.picks), current && !this._changesMost());
      }
    }
    if (data.kind === "paths") {
      const axes = data.axes.map((one) => Object.assign(new Axis(), one));
      this.paths = { ...data, axes };
      if (current) this.timers.particles = performance.now() - this.since;
    }
    if (data.kind === "densities") {
      this.densities = data;
      if (current && !this.choosing) this._send("judge", { schedule: { ...this.schedule }, curve: this.curve });
    }
    if (data.kind === "heldout") {
      this.heldout = data.found;
      this.timers.heldout = performance.now() - this.since;
    }
    this.changed(data.kind);
  }
}
