/* How the search orders its results: tutorials and how-to pages, guides, names that `oism` exports, theory,
   then the rest of the reference. A word in a title counts 10 more than in the text; sections differ by less. */
var Scorer = (() => {
  const EXPORTED = new Set([
    "Brownian", "Combined", "CriticallyDamped", "CrossValidation", "DDPMpp", "Diffusion", "FittedModel", "Flow",
    "Fourier", "Hermite", "Linear", "Logarithmic", "OISM", "OrnsteinUhlenbeck", "Polynomials", "TensorHermite",
    "Torus", "VarianceExploding", "VariancePreserving", "fit", "fit_linear", "fit_mixture", "fit_prior",
    "fit_ratio", "load", "train",
  ]);
  const SECTIONS = [
    [/^learn\/(?!index)/, 14],
    [/^howto\/(?!index)/, 13],
    [/^(tables|parameters|sphere|rotations|images|training|sampling|diffusers|explorer|shell|torch)$/, 12],
    [/^(theory\/|estimation$|results$)/, 7],
    [/^reference\//, 4],
    [/^(studies\/|benchmarks\/|CHANGELOG|CONTRIBUTING|development)/, -4],
  ];
  const NAME = 28, METHOD = 26, OTHER_NAME = 14, OTHER = 4, PART = -8;

  /* A name of the package: exact or in part, exported or not, a name of its own or a member of a class. */
  const ofObject = (title, score) => {
    if (score === 0) return 0; // the word is in the name of the package only
    const parts = title.split(".");
    const owner = parts.findIndex((part, k) => k > 0 && EXPORTED.has(part));
    const isMember = parts.length > 2 && /^[A-Z]/.test(parts[parts.length - 2]);
    const value = owner > 0 ? (isMember ? METHOD : NAME) : isMember ? OTHER : OTHER_NAME;
    return value + (score >= Scorer.objNameMatch ? 0 : PART);
  };

  return {
    score: ([docname, title, anchor, descr, score, filename, kind]) => {
      if (kind === "object") return ofObject(title, score);
      const found = SECTIONS.find(([pattern]) => pattern.test(docname));
      return score + (found ? found[1] : 0);
    },
    objNameMatch: 11,
    objPartialMatch: 6,
    objPrio: { 0: 0, 1: 0, 2: 0 },
    objPrioDefault: 0,
    title: 15,
    partialTitle: 7,
    term: 5,
    partialTerm: 2,
  };
})();
