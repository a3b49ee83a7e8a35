/* Ridge and level by cross-validation in closed form, as the library chooses them on the torus.

   The held-out loss of coefficients, αᵀAα + 2bᵀα, needs only averages of the held-out rows. At each
   time the loss is averaged over the folds; the simplest level is taken whose best ridge is within
   one standard error of the best; its ridge is the minimum of a parabola in log ε. Cutoffs are tried
   from the smallest upwards, small ridges only where the loss decreases towards them. */

const SMOOTHED = 0.3, DENSE_SWEEP = 160, LEAST_RIDGE = 0.3, LEAST_GAIN = 1e-3, MOST_LOSS = 0.02;
const PATIENCE = 2, CHANCE = 0.01, SWEEP_TOLERANCE = 1e-3, SWEEP_ITERATIONS = 300, TIERS = [[5, 15], [3, 5], [0, 3]];

function finestStructure(basis, means) {
  /* The largest ‖ζ‖ at which the data differ from uniform ones. */
  const { lattice } = basis, bound = Math.log(lattice.count / CHANCE);
  let finest = 0;
  for (let j = 0; j < lattice.count; j++)
    if ((means.re[j] ** 2 + means.im[j] ** 2) * means.rows > bound)
      finest = Math.max(finest, lattice.squares[j]);
  return Math.sqrt(finest);
}

function* pathLosses(basis, averages, t, level, band, ridges, dense) {
  /* Return the losses of a path of ridges: one list for each fold, after which there is a yield. */
  const losses = [];
  for (let f = 0; f < averages.training.length; f++) {
    const training = new Equations(basis, averages.training[f], t, band);
    const heldout = new Equations(basis, averages.heldout[f], t, band), scale = training.scale(level);
    const [own, judge] = dense
      ? [training, heldout].map((one) => new DenseSystem(one, scale))
      : GridSystem.ofBoth(training, heldout, scale);
    const right = training.right().map((one, i) => -scale[i] * one);
    const found = ridgePath((y, out) => own.apply(y, out), right, ridges, dense
      ? { tolerance: 1e-11, iterations: Infinity, reorthogonalise: true }
      : { tolerance: SWEEP_TOLERANCE, iterations: SWEEP_ITERATIONS });
    const linear = heldout.right().map((one, i) => scale[i] * one);
    losses.push(found.map((y) => judge.energy(y) + 2 * dotRows(y, 0, linear, 0, y.length)));
    yield;
  }
  return losses;
}

function* lossesAt(basis, averages, t, finest) {
  /* Return held-out losses [level][fold][ridge]; Infinity where not computed. Yield between parts. */
  const { shares } = averages, folds = shares.length, levels = levelsOf(basis.radius);
  const none = () => Array.from({ length: folds }, () => new Array(RIDGES.length).fill(Infinity));
  const values = Array.from({ length: levels }, none);
  const cutoff = (level) => cutoffOf(basis.radius, level);
  const bandAt = (level) => sweepBand(basis, t, cutoff(level));
  const offered = (level) => cutoff(level) ** 2 * t <= SMOOTHED;
  const leastRidge = LEAST_RIDGE / averages.total.rows;
  const fill = function* (level, tier) {
    // Dense bands try all ridges at once; the number counts cos and sin, also of even data.
    const band = bandAt(level), dense = 2 * basis.inside(band) <= DENSE_SWEEP;
    if (dense && tier) return;
    const [start, end] = dense ? [0, RIDGES.length] : TIERS[tier];
    const found = yield* pathLosses(basis, averages, t, level, band, RIDGES.slice(start, end), dense);
    found.forEach((row, f) => row.forEach((one, e) => (values[level][f][start + e] = one)));
  };
  const mean = (level) => RIDGES.map((_, e) => weighted(shares, (f) => values[level][f][e]));
  let best = new Array(folds).fill(Infinity), gains = true, idle = 0;
  for (let level = levels - 1; level >= 0; level--) {
    if (!(offered(level) || (level === 0 && gains)) || idle >= PATIENCE) continue;
    yield* fill(level, 0);
    const place = least(mean(level)), own = values[level].map((row) => row[place]);
    const centre = weighted(shares, (f) => own[f] - best[f]);
    gains = centre < -LEAST_GAIN * Math.abs(weighted(shares, (f) => own[f]));
    if (cutoff(level) >= finest) idle = gains ? 0 : idle + 1;
    if (centre < 0) best = own;
  }
  for (let tier = 1; tier < TIERS.length; tier++) {
    if (RIDGES[TIERS[tier][1] - 1] < leastRidge) break;
    const means = values.map((_, level) => mean(level)), lows = means.map((one) => Math.min(...one));
    const low = Math.min(...lows), start = TIERS[tier - 1][0];
    for (let level = 0; level < levels; level++) {
      const gain = means[level][start + 1] - means[level][start];
      if (gain > LEAST_GAIN * Math.abs(low) && lows[level] - low < MOST_LOSS * Math.abs(low))
        yield* fill(level, tier);
    }
  }
  return values;
}

function least(list) {
  let place = 0;
  for (let i = 1; i < list.length; i++) if (list[i] < list[place]) place = i;
  return place;
}

function weighted(shares, term) {
  let total = 0;
  for (let f = 0; f < shares.length; f++) total += shares[f] * term(f);
  return total;
}

function pickCandidate(values, shares) {
  /* Return [log ridge, level, loss] of the chosen candidate. */
  const folds = shares.length;
  const means = values.map((rows) => RIDGES.map((_, e) => {
    const one = weighted(shares, (f) => rows[f][e]);
    return Number.isFinite(one) ? one : Infinity;
  }));
  const ridge = means.map(least), lows = means.map((one, level) => one[ridge[level]]);
  const best = least(lows), own = values.map((rows, level) => rows.map((row) => row[ridge[level]]));
  let level = values.length - 1;
  for (; level >= 0; level--) {
    const gap = lows[level] - lows[best];
    if (gap === 0) break;
    const apart = own[level].map((one, f) => one - own[best][f]);
    const centre = weighted(shares, (f) => apart[f]);
    const error = Math.sqrt(weighted(shares, (f) => (apart[f] - centre) ** 2) / Math.max(1, folds - 1));
    if (gap <= error) break;
  }
  const path = means[level], index = ridge[level];
  let place = index;
  if (index > 0 && index < path.length - 1) {
    const bend = path[index - 1] + path[index + 1] - 2 * path[index];
    const offset = (0.5 * (path[index - 1] - path[index + 1])) / (bend > 0 ? bend : Infinity);
    if (Number.isFinite(offset) && Math.abs(offset) <= 1) place += offset;
  }
  const step = Math.log(RIDGES[1]) - Math.log(RIDGES[0]);
  return [Math.log(RIDGES[0]) + step * place, level, path[index]];
}

function* choosing(basis, averages, clock, times) {
  /* Return [index, log ridge, level] for the times of a schedule with these indices. */
  const tau = evenTimes(TIMES), finest = finestStructure(basis, averages.total), picks = [];
  for (const i of times) {
    const losses = yield* lossesAt(basis, averages, clock.time(tau[i]), finest);
    const [logRidge, level] = pickCandidate(losses, averages.shares);
    picks.push([i, logRidge, level]);
  }
  return picks;
}

function scheduleOf(picks) {
  const sorted = [...picks].sort((a, b) => a[0] - b[0]);
  return new Schedule([...evenTimes(TIMES)], sorted.map((one) => one[1]), sorted.map((one) => one[2]));
}

function chooseSchedule(basis, averages, clock) {
  /* Rows in one fold only have one ridge for all. */
  if (averages.shares.length < 2) return Schedule.constant(0.1);
  const parts = choosing(basis, averages, clock, evenTimes(TIMES).keys());
  for (;;) {
    const { done, value } = parts.next();
    if (done) return scheduleOf(value);
  }
}
