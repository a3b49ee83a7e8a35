/* Held-out log-likelihoods: the model and a kernel density estimate of four fifths of the points, on
   the fifth that was left out.

   Ridge and level, like the width of the kernels, were chosen on all points. */

const LEAST_POINTS = 20;

const meanOf = (values) => values.reduce((a, b) => a + b, 0) / values.length;

function heldOut(x, y, settings, schedule, steps = 32) {
  const fold = foldsOf(x, y), width = new KDE(x, y, settings).width;
  const part = (values, kept) => values.filter((_, i) => (fold[i] === 0) !== kept);
  const [trainX, trainY] = [part(x, true), part(y, true)];
  const [testX, testY] = [part(x, false), part(y, false)];
  if (trainX.length < LEAST_POINTS || testX.length < LEAST_POINTS / 4) return null;
  const model = new Model(trainX, trainY, settings, part(fold, true)).fit(schedule);
  const own = model.logDensity(testX, testY, steps);
  const kde = new KDE(trainX, trainY, settings, width).logDensity(testX, testY);
  return { rows: testX.length, model: meanOf(own), kde: meanOf(kde), width };
}
