/* Folds of rows by their content, the library's.

   A column of range [l, l + h), with l = 0 for the period h of an angle, is divided into 2²⁴ cells;
   the fold of a row is a hash of its cell numbers in increasing order. 64-bit integers are pairs of
   32-bit ones, [high, low]: BigInt would be a hundred times slower. */

const CELLS = 2 ** 24, FAR = 2 ** 20, OFFSET = Math.SQRT2 - 1;

function multiplyHigh(a, b) {
  /* Return the upper half of the product of two unsigned 32-bit integers. */
  const a0 = a & 0xffff, a1 = a >>> 16, b0 = b & 0xffff, b1 = b >>> 16;
  const middle = a1 * b0 + Math.floor((a0 * b0) / 65536);
  const rest = a0 * b1 + (middle % 65536);
  return a1 * b1 + Math.floor(middle / 65536) + Math.floor(rest / 65536);
}

const word = (big) => [Number(big >> 32n) | 0, Number(big & 0xffffffffn) | 0];

function splitmix64(state) {
  const mask = (1n << 64n) - 1n;
  let z = (state + GOLDEN) & mask;
  z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & mask;
  z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & mask;
  return z ^ (z >> 31n);
}

const GOLDEN = 0x9e3779b97f4a7c15n;
const MULTIPLIERS = [0n, 1n].map((column) => word(splitmix64(GOLDEN * column) | 1n));

function hashOf(first, second) {
  /* Return a hash of two numbers below 2³¹: a multilinear one of their bits, then mixed. */
  let high = 0, low = 0;
  const times = ([h, l]) => {
    const upper = multiplyHigh(low >>> 0, l >>> 0) + Math.imul(high, l) + Math.imul(low, h);
    [high, low] = [upper | 0, Math.imul(low, l)];
  };
  let [sumHigh, sumLow] = [0, 0];
  for (const [one, multiplier] of [[first, MULTIPLIERS[0]], [second, MULTIPLIERS[1]]]) {
    NUMBER[0] = one + 0; // not -0
    [high, low] = [BITS[1] ^ (BITS[1] >> 31), BITS[0] ^ BITS[1]];
    times(multiplier);
    const carry = (sumLow >>> 0) + (low >>> 0) > 0xffffffff ? 1 : 0;
    [sumHigh, sumLow] = [(sumHigh + high + carry) | 0, (sumLow + low) | 0];
  }
  [high, low] = [sumHigh ^ (sumHigh >>> 29), sumLow ^ ((sumLow >>> 29) | (sumHigh << 3))];
  times(MULTIPLIERS[1]);
  low ^= high;
  times(MULTIPLIERS[1]);
  return high >>> 1;
}

const NUMBER = new Float64Array(1), BITS = new Int32Array(NUMBER.buffer); // the lower half first

function cellOf(value, axis) {
  const [low, width] = axis.range;
  if (axis.kind === "torus") return Math.floor(CELLS * (value / width - Math.floor(value / width)) + OFFSET);
  return Math.floor(CELLS * Math.min(Math.max((value - low) / width, -FAR), FAR) + OFFSET);
}

function foldsOf(x, y, [ax, ay], folds) {
  /* Return the fold of each row. */
  return Uint8Array.from(x, (one, i) => {
    const a = cellOf(one, ax), b = cellOf(y[i], ay);
    return hashOf(Math.min(a, b), Math.max(a, b)) % folds;
  });
}
