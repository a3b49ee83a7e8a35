/* The texts of the panels: noise, settings, choices, likelihoods and times. */

const power = (value) => value.toExponential(1).replace(/e([+-])(\d+)/, (_, sign, digits) =>
  `·10${sign === "-" ? "⁻" : ""}${[...digits].map((one) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[one]).join("")}`);
const short = (value) => String(Number(value.toPrecision(4))).replace("-", "−");
const CHART = { left: 30, width: 254, top: 26, bottom: 100 };
const LEAST_SHOWN = -6, MOST_SHOWN = 1; // powers of ten of the ridge

class Texts {
  constructor(fitting) { this.fitting = fitting; }

  showNoise(tau) {
    const { model } = this.fitting, own = document.getElementById("noise-value");
    if (!model) {
      own.textContent = "";
      return;
    }
    const sigma = model.clock.sigma(tau) * this.unit;
    const text = `σ = ${sigma.toPrecision(2)}`;
    if (own.textContent === text) return;
    own.textContent = text;
    this.markChoice(tau);
  }

  showSettings(python) {
    const { settings, points, functions } = this.fitting, { box } = settings;
    document.getElementById("functions-value").textContent = functions.toLocaleString("en");
    document.getElementById("functions").value = BOUNDS.indexOf(this.fitting.bounded);
    const range = (j) => `${short(box.low[j])} to ${short(box.low[j] + box.width[j])}`;
    const ranges = range(0) === range(1) ? range(0) : `${range(0)} and ${range(1)}`;
    document.getElementById("space-note").textContent = {
      plane: "A box around the points, with a margin; beyond it a wide Student distribution.",
      torus: `Both columns are periodic, from ${ranges}.`,
      interval: `Both columns are bounded, from ${ranges}; the noise is reflected there.`,
    }[settings.space];
    document.getElementById("python").textContent = python;
    document.getElementById("count").disabled = !document.getElementById("toy").value;
    const count = points.x.length.toLocaleString("en");
    document.getElementById("canvas").setAttribute("aria-label", `Drawing area with ${count} points`);
  }

  showLikelihood() {
    const { heldout, points, idle } = this.fitting, own = document.getElementById("likelihood-note");
    const shown = (value) => value.toFixed(3).replace("-", "−");
    const text = (value) => (Number.isFinite(value) && value > -1e4 ? shown(value) : "diverges");
    const best = heldout && (heldout.model >= heldout.kde ? "model" : "kde");
    for (const [id, name] of [["own-likelihood", "model"], ["kde-likelihood", "kde"]]) {
      const cell = document.getElementById(id);
      cell.textContent = heldout ? text(heldout[name]) : "–";
      cell.parentElement.classList.toggle("best", name === best);
    }
    const few = points.x.length < LEAST_POINTS;
    document.querySelector("table").classList.toggle("old", !idle && !few);
    if (few) own.textContent = `At least ${LEAST_POINTS} points are needed.`;
    else if (idle) own.textContent = "Mean over five folds, each left out of both fits. Higher is better.";
    else own.textContent = "Computing for the new points …";
  }

  get unit() {
    /* The length of the data that is 1 on the torus. */
    const [ax, ay] = this.fitting.model.chart.axes;
    return 1 / Math.sqrt(ax.scale * ay.scale);
  }

  showChoices(tau) {
    /* Draw ridge and cutoff over the noise level. */
    const { fitting } = this, { model } = fitting, chart = document.getElementById("choices");
    if (!model) {
      chart.innerHTML = document.getElementById("choice-note").textContent = "";
      return;
    }
    const { radius } = model.basis, { left, width, top, bottom } = CHART, right = left + width;
    const place = (one) => (left + width * one).toFixed(1);
    const height = (value, low, high) => bottom - ((bottom - top) * (value - low)) / (high - low);
    const line = (value, low, high) => Array.from({ length: 61 }, (_, i) => {
      const y = height(value(fitting.schedule.at(i / 60)), low, high);
      return `${i ? "L" : "M"}${place(i / 60)} ${y.toFixed(1)}`;
    }).join("");
    const path = (d, style) => `<path d="${d}" fill="none" stroke-width="2" ${style}/>`;
    const text = (x, y, words, more = "") => `<text x="${x}" y="${y}" ${more}>${words}</text>`;
    const parts = [`<line x1="${left}" x2="${right}" y1="${bottom}" y2="${bottom}" stroke="var(--line)"/>`];
    const middle = 'text-anchor="middle"', end = 'text-anchor="end"';
    const [first, last] = [0, 1].map((one) => model.clock.sigma(one) * this.unit);
    for (let power = Math.ceil(Math.log10(first)); 10 ** power < last; power++) {
      const at = model.clock.inverse(10 ** power / this.unit);
      if (at > 0.03 && at < 0.97) parts.push(text(place(at), 113, short(10 ** power), middle));
    }
    parts.push(text(place(0.5), 127, "noise σ, in units of the data", middle));
    if (fitting.rule === "paper") parts.push(text(160, 60, "no ridge and no cutoff", middle));
    else
      parts.push(
        path(line((pick) => Math.log10(pick[0]), LEAST_SHOWN, MOST_SHOWN), 'stroke="var(--accent)"'),
        path(line((pick) => Math.min(cutoffOf(radius, pick[1]), radius), 0, radius),
          'stroke="var(--focus)" stroke-dasharray="5 3"'),
        text(0, 11, "ridge (line)", 'class="ridge"'),
        text(left - 5, top + 4, "10", `class="ridge" ${end}`),
        text(left - 5, bottom, "10⁻⁶", `class="ridge" ${end}`),
        text(320, 11, "largest frequency (dashes)", `class="cutoff" ${end}`),
        text(right + 5, top + 4, radius.toFixed(1), 'class="cutoff"'), text(right + 5, bottom, "0", 'class="cutoff"'));
    parts.push(`<line id="mark" y1="${top}" y2="${bottom}" stroke="var(--soft)"/>`);
    chart.innerHTML = parts.join("");
    this.markChoice(tau);
  }

  markChoice(tau) {
    const { fitting } = this, mark = document.getElementById("mark"), x = CHART.left + CHART.width * tau;
    if (!mark) return;
    for (const end of ["x1", "x2"]) mark.setAttribute(end, x);
    const [ridge, level] = fitting.schedule.at(tau), { radius } = basisOf(fitting.settings.bound);
    const cutoff = Math.min(cutoffOf(radius, level), radius);
    const chosen = `At this noise: ridge ${power(ridge)}, frequencies up to ${cutoff.toFixed(1)}.`;
    const paper = "Aα = −b without a ridge: scores explode where there are no points. " +
      "Where the flow is not resolved, the map shows the noised data.";
    const more = fitting.choosing ? " Choosing …" : "";
    document.getElementById("choice-note").textContent = fitting.rule === "paper" ? paper : chosen + more;
  }

  showTimes() {
    const { timers, points } = this.fitting, rows = [["Points", points.x.length.toLocaleString("en")]];
    const add = (name, key, unit = "ms") => {
      const time = timers[key];
      if (time === undefined) return;
      const long = unit === "ms" && time >= 1000;
      rows.push([name, long ? `${(time / 1000).toFixed(1)} s` : `${Math.round(time)} ${unit}`]);
    };
    add("Fit at the shown noise", "live");
    add("Fit at 17 noise levels", "refit");
    add("Fit at all noise levels", "table");
    add("Choice of ridge and cutoff", "choice");
    add("Samples", "particles");
    add("Frames", "frameRate", "per second");
    document.getElementById("times").innerHTML =
      rows.map(([name, value]) => `<dt>${name}</dt><dd>${value}</dd>`).join("");
  }
}
