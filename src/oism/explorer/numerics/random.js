/* Pseudorandom numbers with a seed: the generator sfc32, and normal numbers by Box and Muller. */

class Random {
  constructor(seed) {
    this.state = Uint32Array.of(0x9e3779b9, 0x243f6a88, 0xb7e15162, seed >>> 0);
    for (let i = 0; i < 15; i++) this.uniform();
  }

  uniform() {
    const s = this.state, t = (s[0] + s[1] + s[3]) >>> 0;
    s[3] += 1;
    s[0] = s[1] ^ (s[1] >>> 9);
    s[1] = s[2] + (s[2] << 3);
    s[2] = ((s[2] << 21) | (s[2] >>> 11)) + t;
    return t / 4294967296;
  }

  integer(count) { return Math.floor(count * this.uniform()); }

  normal() {
    const radius = Math.sqrt(-2 * Math.log(1 - this.uniform()));
    return radius * Math.cos(2 * Math.PI * this.uniform());
  }
}
