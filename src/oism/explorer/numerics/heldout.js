/* Held-out log-likelihoods of the model and of a kernel density estimate, by five folds.

   Each fold is left out of both fits. Ridge and level, and the width of the kernels, were chosen on
   all points. The fits without a fold start from the coefficients of all points. */

const LEAST_POINTS = 20;

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
    add("model", model.logDensity(testX, testY, steps));
    add("kde", kde.logDensity(testX, testY));
    yield { rows: sums.rows, model: sums.model / sums.rows, kde: sums.kde / sums.rows };
  }
}
