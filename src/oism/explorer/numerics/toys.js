/* The toy distributions of oism.data.toys: one function of a Random for each, which returns [x, y]. */

const turned = (draw, centre) => (r) => {
  const [x, y] = draw(r), sign = r.integer(2) ? 1 : -1;
  return [centre[0] + sign * (x - centre[0]), centre[1] + sign * (y - centre[1])];
};

const onCircles = (radii, deviation) => (r) => {
  const angle = 2 * Math.PI * r.uniform(), radius = radii[r.integer(radii.length)];
  return [
    radius * Math.cos(angle) + deviation * r.normal(),
    radius * Math.sin(angle) + deviation * r.normal(),
  ];
};

const TOYS = {
  "2spirals": turned((r) => {
    const t = 3 * Math.PI * Math.sqrt(r.uniform());
    return [
      (-t * Math.cos(t)) / 3 + r.uniform() / 6 + 0.1 * r.normal(),
      (t * Math.sin(t)) / 3 + r.uniform() / 6 + 0.1 * r.normal(),
    ];
  }, [0, 0]),
  moons: turned((r) => {
    const angle = Math.PI * r.uniform();
    return [
      2 * Math.cos(angle) - 1 + 0.2 * r.normal(), 2 * Math.sin(angle) - 0.2 + 0.2 * r.normal()];
  }, [0, 0.3]),
  "8gaussians": (r) => {
    const angle = (2 * Math.PI * r.integer(8)) / 8;
    return [
      (4 * Math.cos(angle) + 0.5 * r.normal()) / 1.414,
      (4 * Math.sin(angle) + 0.5 * r.normal()) / 1.414,
    ];
  },
  checkerboard: (r) => {
    const across = 4 * r.uniform() - 2;
    const up = r.uniform() - 2 * r.integer(2) + (((Math.floor(across) % 2) + 2) % 2);
    return [2 * across, 2 * up];
  },
  pinwheel: (r) => {
    const a = 1 + 0.3 * r.normal(), b = 0.1 * r.normal();
    const angle = ((2 * Math.PI) / 5) * r.integer(5) + 0.25 * Math.exp(a);
    const [c, s] = [Math.cos(angle), Math.sin(angle)];
    return [2 * (c * a + s * b), 2 * (c * b - s * a)];
  },
  circles: onCircles([3, 1.5], 0.24),
  rings: onCircles([3, 2.25, 1.5, 0.75], 0.08),
  swissroll: (r) => {
    const t = 1.5 * Math.PI * (1 + 2 * r.uniform());
    return [(t * Math.cos(t)) / 5 + 0.2 * r.normal(), (t * Math.sin(t)) / 5 + 0.2 * r.normal()];
  },
};

function drawToy(name, count, seed, box) {
  /* Return count independent points of a toy distribution within the box. */
  const random = new Random(seed), points = [];
  while (points.length < count) {
    const point = TOYS[name](random);
    const inside = point.every((one, j) => one >= box.low[j] && one <= box.low[j] + box.width[j]);
    if (inside) points.push(point);
  }
  return points;
}
