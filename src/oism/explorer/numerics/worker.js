/* Tasks of the workers: a fit with its paths and densities, a choice of ridges, likelihoods.

   A task is left when the next one arrives: it pauses between its parts, so that messages get in. */

const PARTICLES = 1000, DENSITY_GRID = 64, DENSITY_LEVELS = 16;
const MASS_ERROR = 0.3; // of a density on the grid that is shown; larger for scores that explode

const PATH_STEPS = 24, QUICK_STEPS = 12; // of the particles, the latter while points are drawn
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

function* pathsOf({ series, curve, clock }, start, steps) {
  /* Yield after each step the points (u, v, …) at τ = 1, 1 - 1/steps, …, as far as they are known. */
  const frames = new Float32Array((steps + 1) * start.length), state = Float64Array.from(start);
  frames.set(state);
  for (let step = 0; step < steps; step++) {
    flowSteps(series, curve, clock, state, 1 - step / steps, 1 - (step + 1) / steps, 1, false);
    frames.set(state, (step + 1) * start.length);
    yield frames;
  }
}

async function fitTask(job, { post, pause, stale, memory }) {
  const schedule = Object.assign(new Schedule(), job.schedule);
  const model = new Model(job.x, job.y, job.settings, job.fold, job.averages);
  for (const { curve } of model.fitting(schedule)) {
    post({ kind: "table", ...curve });
    await pause();
    if (stale() && performance.now() - memory.shown < FOLLOW) return;
  }
  const steps = job.quick ? QUICK_STEPS : PATH_STEPS;
  let paths;
  for (paths of pathsOf(model, startPoints(job.particles, job.seed), steps)) {
    await pause();
    if (stale() && performance.now() - memory.shown < FOLLOW) return;
  }
  memory.shown = performance.now();
  post({ kind: "paths", frames: paths, steps, axes: model.chart.axes });
  const levels = [];
  for (const [tau, log] of flowDensities(model, DENSITY_GRID, DENSITY_LEVELS)) {
    const mass = log.reduce((sum, one) => sum + Math.exp(one), 0) / log.length;
    levels.push({ tau, log: Float32Array.from(log), sound: Math.abs(mass - 1) < MASS_ERROR });
    await pause();
    if (stale()) return;
  }
  post({ kind: "densities", levels, size: DENSITY_GRID });
}

async function judgeTask(job, { post, pause, stale }) {
  const schedule = Object.assign(new Schedule(), job.schedule);
  for (const found of heldOut(job.x, job.y, job.settings, schedule, job.fold)) {
    post({ kind: "heldout", found });
    await pause();
    if (stale()) return;
  }
  post({ kind: "judged" });
}

async function chooseTask(job, { post, pause, stale }) {
  const begin = performance.now();
  const { basis, averages, clock } = new Model(job.x, job.y, job.settings, job.fold, job.averages);
  const steps = choosing(basis, averages, clock);
  for (;;) {
    const { done, value } = steps.next();
    if (done) {
      post({ kind: "schedule", schedule: { ...value }, ms: performance.now() - begin });
      return;
    }
    await pause();
    if (stale()) return;
  }
}

function startWorker(scope) {
  const tasks = { fit: fitTask, choose: chooseTask, judge: judgeTask }, pause = makePause(), memory = { shown: 0 };
  let next = null, running = false;
  scope.onmessage = async ({ data }) => {
    next = data;
    if (running) return;
    running = true;
    while (next) {
      const job = next;
      next = null;
      const post = (message) => scope.postMessage({ ...message, stamp: job.stamp, epoch: job.epoch });
      await tasks[job.task](job, { post, pause, stale: () => next !== null, memory });
    }
    running = false;
  };
}
