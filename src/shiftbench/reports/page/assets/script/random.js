/**
 * The random numbers of the ImageNet testbed's bootstrap, so that this page's intervals are those of
 * `shiftbench study fit` to the digit: the Mersenne Twister (Matsumoto and Nishimura 1998), and whole numbers
 * below n by masking and rejection.
 */

const SIZE = 624;
const SHIFT = 397;
const TESTBED_SEED = 720257663;

/**
 * A function that returns the generator's next 32 bits.
 * @type {(seed: number) => () => number}
 */
function mersenneTwister(seed) {
  const state = new Uint32Array(SIZE);
  state[0] = seed;
  for (let i = 1; i < SIZE; i++) {
    state[i] = Math.imul(1812433253, state[i - 1] ^ (state[i - 1] >>> 30)) + i;
  }
  let next = SIZE;
  return () => {
    if (next === SIZE) next = twist(state);
    let bits = state[next++];
    bits ^= bits >>> 11;
    bits ^= (bits << 7) & 0x9d2c5680;
    bits ^= (bits << 15) & 0xefc60000;
    return (bits ^ (bits >>> 18)) >>> 0;
  };
}

/** @type {(state: Uint32Array) => number} */
function twist(state) {
  for (let i = 0; i < SIZE; i++) {
    const mixed = (state[i] & 0x80000000) | (state[(i + 1) % SIZE] & 0x7fffffff);
    state[i] = state[(i + SHIFT) % SIZE] ^ (mixed >>> 1) ^ (mixed & 1 ? 0x9908b0df : 0);
  }
  return 0;
}

/**
 * A function that draws whole numbers 0 ... n - 1.
 * @type {(n: number, seed?: number) => () => number}
 */
export function drawsBelow(n, seed = TESTBED_SEED) {
  const bits = mersenneTwister(seed);
  let mask = 0;
  while (mask < n - 1) mask = mask * 2 + 1;
  return () => {
    for (;;) {
      const drawn = (bits() & mask) >>> 0;
      if (drawn < n) return drawn;
    }
  };
}
