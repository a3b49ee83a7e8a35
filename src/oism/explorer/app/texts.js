/* The texts of the panels: noise, settings, choices, likelihoods and times. */

const short = (value) => String(Number(value.toPrecision(4))).replace("-", "−");
const CHART = { left: 34, width: 272, top: 14, bottom: 100 };

class Texts {
  constructor(fitting) { this.fitting = fitting; }

  showNoise(tau) {
    const { model } = this.fitting, own = document.getElementById("noise-value");
    if (!model) {
      own.textContent = "";
      return;
    }
    const [ax, ay] = model.chart.axes, sigma = model.clock.sigma(tau) / Math.sqrt(ax.scale * ay.scale);
    const text = `σ = ${sigma.toPrecision(2)}`;
    if (own.textContent === text) return;
    own.textContent = text;
    this.markChoice(tau);
  }

  showSettings(python) {
    const { settings, points, functions } = this.fitting, { box } = settings;
    document.getElementById("functions-value").textContent = String(functions);
    const range = (j) => `${short(box.low[j])} to ${short(box.low[j] + box.width[j])}`;
    const ranges = range(0) === range(1) ? range(0) : `${range(0)} and ${range(1)}`;
    document.getElementById("space-note").textContent = {
      plane: "A box around the points, with a margin; a wide normal distribution beyond it.",
      torus: `Both columns are periodic, from ${ranges}.`,
      interval: `Both columns lie in ${ranges}, and the noise is reflected there.`,
    }[settings.space];
    document.getElementById("python").textContent = python;
    const count = points.x.length.toLocaleString("en");
    document.getElementById("canvas").setAttribute("aria-label", `Drawing area with ${count} points`);
  }

  showLikelihood() {
    const { heldout } = this.fitting;
    const shown = (value) => value.toFixed(3).replace("-", "−");
    const text = (value) => (Number.isFinite(value) && value > -1e4 ? shown(value) : "diverges");
    const best = heldout && (heldout.model >= heldout.kde ? "model" : "kde");
    for (const [id, name] of [["own-likelihood", "model"], ["kde-likelihood", "kde"]]) {
      const cell = document.getElementById(id);
      cell.textContent = heldout ? text(heldout[name]) : "–";
      cell.parentElement.classList.toggle("best", name === best);
    }
  }

  showChoices(tau) {
    /* Draw ridge and cutoff over the noise level. */
    const { fitting } = this, { radius } = basisOf(fitting.settings.bound);
    const clock = new VarianceExploding(radius ** 2), { left, width, top, bottom } = CHART;
    const place = (one) => (left + width * one).toFixed(1);
    const line = (value, low, high) => Array.from({ length: 61 }, (_, i) => {
      const share = (value(fitting.schedule.at(i / 60)) - low) / (high - low);
      return `${i ? "L" : "M"}${place(i / 60)} ${(bottom - (bottom - top) * share).toFixed(1)}`;
    }).join("");
    const path = (d, style) => `<path d="${d}" fill="none" stroke-width="2" ${style}/>`;
    const parts = [`<line x1="${place(0)}" x2="${place(1)}" y1="${bottom}" y2="${bottom}" stroke="var(--line)"/>`];
    for (const sigma of [0.05, 0.2, 1, 4]) {
      const at = clock.inverse(sigma);
      if (at > 0 && at < 1) parts.push(`<text x="${place(at)}" y="114" text-anchor="middle">${sigma}</text>`);
    }
    parts.push(`<text x="${place(1)}" y="127" text-anchor="end">noise σ in units of the torus, 2π wide</text>`);
    if (fitting.rule === "paper")
      parts.push('<text x="170" y="58" text-anchor="middle">no ridge and no cutoff</text>');
    else
      parts.push(
        path(line((pick) => Math.log10(pick[0]), -4, 1), 'stroke="var(--accent)"'),
        path(line((pick) => Math.min(cutoffOf(radius, pick[1]), radius), 0, radius),
          'stroke="var(--focus)" stroke-dasharray="5 3"'),
        '<text x="0" y="18">10</text><text x="0" y="103">10⁻⁴</text>');
    parts.push('<line id="mark" y1="10" y2="100" stroke="var(--soft)"/>');
    document.getElementById("choices").innerHTML = parts.join("");
    this.markChoice(tau);
  }

  markChoice(tau) {
    const { fitting } = this, mark = document.getElementById("mark"), x = CHART.left + CHART.width * tau;
    if (mark) for (const end of ["x1", "x2"]) mark.setAttribute(end, x);
    const [ridge, level] = fitting.schedule.at(tau), { radius } = basisOf(fitting.settings.bound);
    const cutoff = Math.min(cutoffOf(radius, level), radius);
    const chosen = `At this noise: ridge ${ridge.toExponential(1).replace("-", "−")} (line), ` +
      `frequencies up to ${cutoff.toFixed(1)} of ${radius.toFixed(1)} (dashes).`;
    document.getElementById("choice-note").textContent = fitting.rule === "paper"
      ? "Aα = −b is solved as it stands. Where there are no points A is nearly singular, and scores explode."
      : chosen;
  }

  showTimes() {
    const { timers, points } = this.fitting, rows = [["Points", points.x.length.toLocaleString("en")]];
    const add = (name, key, unit = "ms") => {
      if (timers[key] !== undefined) rows.push([name, `${Math.round(timers[key])} ${unit}`]);
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
