/* Tasks of the workers: a fit, its particles and densities, a choice of ridges, likelihoods.

   A task is left when the next one arrives: it pauses between its parts, so that messages get in. */

const PARTICLES = 1000, MAP = 256, DENSITY_LEVELS = 16, POINTS_PER_WAVE = 8;
const MASS_ERROR = 0.3; // of a density on the grid that is shown; larger for scores that explode

const PATH_STEPS = 24, QUICK_STEPS = 12; // of the particles, the latter of a first fit
const FOLLOW = 300; // milliseconds after which particles are shown although points have changed since

function makePause() {
  /* Return a function that lets messages in; setTimeout would wait for milliseconds. */
  const { port1, port2 } = new MessageChannel();
  let resume;
  port1.onmessage = () => resume();
  return () => new Promise((resolve) => {
    resume = resolve;
    port2.postMessage(0);
  });
}

function startPoints(count, seed) {
  /* Uniform points of the torus, the noise at τ = 1. */
  const random = new Random(seed);
  return Float64Array.from({ length: 2 * count }, () => Math.PI * (2 * random.uniform() - 1));
}

function* pathsOf({ basis, curve, clock }, start, steps) {
  /* Yield after each step the points (u, v, …) at τ = 1, 1 - 1/steps, …, as far as they are known. */
  const frames = new Float32Array((steps + 1) * start.length), state = Float64Array.from(start);
  const series = new Series(basis);
  frames.set(state);
  for (let step = 0; step < steps; step++) {
    flowSteps(series, curve, clock, state, 1 - step / steps, 1 - (step + 1) / steps, 1, false);
    frames.set(state, (step + 1) * start.length);
    yield frames;
  }
}

const modelOf = (job) => new Model(job.x, job.y, job.settings, job.fold, job.averages);

async function fitTask(job, { post, pause, stale, memory }) {
  const schedule = Object.assign(new Schedule(), job.schedule), model = modelOf(job);
  const before = memory.epoch === job.epoch ? memory.curve : null; // not from another space or rule
  for (const { done, curve } of model.fitting(schedule, before)) {
    if (curve) {
      post({ kind: "table", done, ...curve });
      Object.assign(memory, { curve, epoch: job.epoch });
    }
    await pause();
    if (stale()) return;
  }
}

async function flowTask(job, { post, pause, stale, memory }) {
  const { knots, values, slopes } = job.curve, basis = basisOf(job.settings.bound), { chart } = job;
  const flow = { basis, chart, clock: clockOf(basis), curve: new Curve(knots, values, slopes) };
  const steps = job.quick ? QUICK_STEPS : PATH_STEPS;
  let paths;
  for (paths of pathsOf(flow, startPoints(PARTICLES, job.seed), steps)) {
    await pause();
    if (stale() && performance.now() - memory.shown < FOLLOW) return;
  }
  memory.shown = performance.now();
  post({ kind: "paths", frames: paths, steps, axes: chart.axes });
  if (job.quick) return;
  const levels = [], size = POINTS_PER_WAVE * basis.radius > MAP / 2 ? MAP : MAP / 2;
  for (const [tau, log] of flowDensities(flow, size, DENSITY_LEVELS)) {
    const density = log.map(Math.exp), mass = density.reduce((a, b) => a + b, 0) / density.length;
    const fine = size === MAP ? Float32Array.from(log) : upsampled(log, size);
    levels.push({ tau, log: fine, full: fullColour(density), sound: Math.abs(mass - 1) < MASS_ERROR });
    await pause();
    if (stale()) return;
  }
  post({ kind: "densities", levels }, levels.map((one) => one.log.buffer));
}

async function judgeTask(job, { post, pause, stale }) {
  const schedule = Object.assign(new Schedule(), job.schedule);
  const { knots, values, slopes } = job.curve, curve = new Curve(knots, values, slopes);
  for (const found of heldOut(job.x, job.y, job.settings, schedule, job.fold, { curve })) {
    if (found) post({ kind: "heldout", found });
    await pause();
    if (stale()) return;
  }
  post({ kind: "judged" });
}

async function chooseTask(job, { post, pause, stale }) {
  const { basis, averages, clock } = modelOf(job), parts = choosing(basis, averages, clock, job.times);
  for (;;) {
    const { done, value } = parts.next();
    if (done) {
      post({ kind: "picks", picks: value });
      return;
    }
    await pause();
    if (stale()) return;
  }
}

function startWorker(scope) {
  const rest = async () => {}, tasks = { fit: fitTask, flow: flowTask, choose: chooseTask, judge: judgeTask, rest };
  const pause = makePause(), memory = { shown: 0 };
  let next = null, running = false;
  scope.onmessage = async ({ data }) => {
    next = data;
    if (running) return;
    running = true;
    while (next) {
      const job = next;
      next = null;
      const post = (message, moved = []) =>
        scope.postMessage({ ...message, stamp: job.stamp, epoch: job.epoch }, moved);
      await tasks[job.task](job, { post, pause, stale: () => next !== null, memory });
    }
    running = false;
  };
}
