/* Points as CSV, and the ranges that are offered for them. */

const MOST_POINTS = 10000;

function parseTable(text) {
  /* Return { points, names, skipped }: the first two columns that hold numbers. */
  const lines = text.split(/\r?\n/).filter((line) => line.trim() && !line.startsWith("#"));
  const split = (line) => line.trim().split(/[,;\t]|\s+/).map((one) => one.trim().replace(/^"|"$/g, ""));
  const isNumber = (one) => one !== "" && Number.isFinite(Number(one));
  if (!lines.length) throw new Error("the file is empty");
  const head = split(lines[0]), hasHead = !head.every((one) => one === "" || isNumber(one));
  const rows = lines.slice(hasHead ? 1 : 0).map(split);
  const columns = head.map((_, j) => j).filter((j) => {
    const found = rows.filter((row) => isNumber(row[j] ?? "")).length;
    return found > 0.5 * rows.length;
  });
  if (columns.length < 2) throw new Error("two columns of numbers are needed");
  const [a, b] = columns;
  const points = rows.filter((row) => isNumber(row[a] ?? "") && isNumber(row[b] ?? ""))
    .map((row) => [Number(row[a]), Number(row[b])]);
  const names = hasHead ? [head[a], head[b]] : ["x", "y"];
  return { points, names, skipped: rows.length - points.length };
}

const TURNS = [[-Math.PI, 2 * Math.PI], [0, 2 * Math.PI], [-180, 360], [0, 360]];
const USUAL = [...TURNS, [0, 1], [-4, 8]];

function boxOf(points) {
  /* Return the range of each column: a usual one that the data fill, or their own with a margin. Two
     columns are likely to be angles in the same units, so one full turn counts for the other too. */
  const ends = [0, 1].map((j) => points.reduce(
    ([least, most], point) => [Math.min(least, point[j]), Math.max(most, point[j])], [Infinity, -Infinity]));
  const holds = ([least, most], [start, size], share) =>
    least >= start && most <= start + size && most - least > share * size;
  const usual = ends.map((one) => USUAL.find((range) => holds(one, range, 0.6)));
  const ranges = ends.map(([least, most], j) => {
    if (usual[j]) return usual[j];
    const turn = usual[1 - j];
    if (TURNS.includes(turn) && holds(ends[j], turn, 0.15)) return turn;
    const span = most - least, margin = span > 0 ? 0.05 * span : Math.abs(least) || 1;
    return [least - margin, span + 2 * margin];
  });
  return { low: ranges.map((one) => one[0]), width: ranges.map((one) => one[1]) };
}

function tableText(x, y, names) {
  const rows = [names.join(",")];
  for (let i = 0; i < x.length; i++) rows.push(`${x[i]},${y[i]}`);
  return rows.join("\n") + "\n";
}

function repeats(values) {
  /* Whether the library would read a column as discrete. */
  const levels = new Set(values).size;
  return levels <= 256 && values.length >= 2 * levels;
}

function pythonNumber(value) {
  for (const [number, text] of [[Math.PI, "np.pi"], [2 * Math.PI, "2 * np.pi"], [-Math.PI, "-np.pi"]])
    if (value === number) return text;
  return Number.isInteger(value) ? value.toFixed(1) : String(value);
}

function pythonText({ settings, rule, x, y }) {
  /* Return five lines of Python that fit the same model. */
  const { space, box, bound } = settings, one = pythonNumber;
  const options = ['process="torus"', `max_eigenvalue=${bound}`];
  if (space === "torus") {
    const [a, b] = box.width;
    options.push(a === b ? `periodic=${one(a)}` : `periodic={0: ${one(a)}, 1: ${one(b)}}`);
  }
  if (space === "interval") {
    const ends = [0, 1].map((j) => `${j}: (${one(box.low[j])}, ${one(box.low[j] + box.width[j])})`);
    options.push(`bounds={${ends.join(", ")}}`);
  }
  if (rule === "paper") options.push("ridge=0.0");
  if (repeats(x) || repeats(y)) options.push("discrete=()");
  return [
    "import numpy as np",
    "from oism import OISM",
    'X = np.loadtxt("points.csv", delimiter=",", skiprows=1)',
    `model = OISM(${options.join(", ")}).fit(X)`,
    "samples, log_densities = model.sample(1000), model.score_samples(X)",
  ].join("\n");
}
