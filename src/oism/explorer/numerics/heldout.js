/* Held-out log-likelihoods of the model and of a kernel density estimate, by five folds.

   Each fold is left out of both fits. Ridge and level, and the width of the kernels, were chosen on
   all points. The fits without a fold start from the coefficients of all points. Scores without a
   ridge may be too steep for the steps of the flow; then its densities have no meaning. */

const LEAST_POINTS = 20;
const UNRESOLVED = 0.05; // the mean change of log-densities with half of the steps above which they diverge

function resolved(model, x, y, steps) {
  /* Return log-densities, or -∞ where the flow needs more steps. */
  const logs = model.logDensity(x, y, steps);
  if (model.schedule.at(0)[0] > 0) return logs;
  const coarse = model.logDensity(x, y, steps / 2);
  const change = logs.reduce((sum, one, i) => sum + Math.abs(one - coarse[i]), 0) / logs.length;
  return change < UNRESOLVED ? logs : logs.fill(-Infinity);
}

function* heldOut(x, y, settings, schedule, fold, { steps = 32, curve = null } = {}) {
  /* Yield the mean log-likelihoods after each fold, { rows, model, kde }, and null between. */
  if (x.length < LEAST_POINTS) return;
  const { width } = new KDE(x, y, settings, null, fold), sums = { rows: 0, model: 0, kde: 0 };
  for (let f = 0; f < FOLDS; f++) {
    const part = (values, inside) => values.filter((_, i) => (fold[i] === f) === inside);
    const [testX, testY] = [part(x, true), part(y, true)];
    const [trainX, trainY] = [part(x, false), part(y, false)];
    if (!testX.length || trainX.length < 3) continue;
    const model = new Model(trainX, trainY, settings, part(fold, false));
    for (const _ of model.fitting(schedule, curve, curve?.knots)) yield null;
    const kde = new KDE(trainX, trainY, settings, width);
    const add = (name, logs) => (sums[name] += logs.reduce((a, b) => a + b, 0));
    sums.rows += testX.length;
    add("model", resolved(model, testX, testY, steps));
    add("kde", kde.logDensity(testX, testY));
    yield { rows: sums.rows, model: sums.model / sums.rows, kde: sums.kde / sums.rows };
  }
}
