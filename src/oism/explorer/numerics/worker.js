/* Tasks of the workers: a fit with its paths, densities and likelihoods, or a choice of ridges.

   When the next task arrives, a choice is left, and a fit ends with its particles: both pause
   between their parts, so that messages get in. */

const PARTICLES = 1000, PATH_STEPS = 32, DENSITY_GRID = 64, DENSITY_LEVELS = 16;
const MASS_ERROR = 0.3; // of a density on the grid that is shown; larger for scores that explode

const pause = () => new Promise((resolve) => setTimeout(resolve));

function startPoints(count, seed) {
  /* Uniform points of the torus, the noise at τ = 1. */
  const random = new Random(seed);
  return Float64Array.from({ length: 2 * count }, () => Math.PI * (2 * random.uniform() - 1));
}

function pathsOf(model, start, steps) {
  /* Return the points (u, v, …) at τ = 1, 1 - 1/steps, …, 0: a Float32Array of steps + 1 frames. */
  const frames = new Float32Array((steps + 1) * start.length), state = Float64Array.from(start);
  frames.set(state);
  flowSteps(model.series, model.curve, model.clock, state, 1, 0, steps, false, (step) =>
    frames.set(state, (step + 1) * start.length));
  return frames;
}

async function fitTask(job, post, stale) {
  const begin = performance.now(), schedule = Object.assign(new Schedule(), job.schedule);
  const model = new Model(job.x, job.y, job.settings, job.fold).fit(schedule);
  const { knots, values, slopes } = model.curve;
  post({ kind: "table", knots, values, slopes, ms: performance.now() - begin });
  const paths = pathsOf(model, startPoints(job.particles, job.seed), PATH_STEPS);
  post({ kind: "paths", frames: paths, steps: PATH_STEPS, axes: model.chart.axes });
  const levels = [];
  for (const [tau, log] of flowDensities(model, DENSITY_GRID, DENSITY_LEVELS)) {
    const mass = log.reduce((sum, one) => sum + Math.exp(one), 0) / log.length;
    levels.push({ tau, log: Float32Array.from(log), sound: Math.abs(mass - 1) < MASS_ERROR });
    await pause();
    if (stale()) return;
  }
  post({ kind: "densities", levels, size: DENSITY_GRID });
  for (const found of heldOut(job.x, job.y, job.settings, schedule, job.fold)) {
    post({ kind: "heldout", found });
    await pause();
    if (stale()) return;
  }
  post({ kind: "done" });
}

async function chooseTask(job, post, stale) {
  const begin = performance.now();
  const { basis, averages, clock } = new Model(job.x, job.y, job.settings, job.fold);
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
  const tasks = { fit: fitTask, choose: chooseTask };
  let next = null, running = false;
  scope.onmessage = async ({ data }) => {
    next = data;
    if (running) return;
    running = true;
    while (next) {
      const job = next;
      next = null;
      const post = (message) => scope.postMessage({ ...message, stamp: job.stamp, epoch: job.epoch });
      await tasks[job.task](job, post, () => next !== null);
    }
    running = false;
  };
}
