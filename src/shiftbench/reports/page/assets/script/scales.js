/** Axes on which accuracies fall on a line, and where their ticks go. A scale maps fractions; each has its inverse. */

/** @import { Axis, Interval, Scale, ScaleName } from "./types.d.ts" */

/** Beyond this many standard deviations the normal distribution is computed from its tail. */
const FAR_OUT = 3;

/** @type {Record<ScaleName, Scale>} */
export const SCALES = {
  logit: { name: "logit", forward: (p) => Math.log(p / (1 - p)), inverse: inverseLogit, holdsEnds: false },
  probit: { name: "probit", forward: probit, inverse: normalCdf, holdsEnds: false },
  linear: { name: "linear", forward: (p) => p, inverse: (z) => z, holdsEnds: true },
};

/**
 * Whether an accuracy has a finite place on the scale.
 * @type {(scale: Scale, value: number | null) => value is number}
 */
export function placeable(scale, p) {
  return p !== null && Number.isFinite(p) && (scale.holdsEnds || (p > 0 && p < 1));
}

/** @type {(z: number) => number} */
function inverseLogit(z) {
  const small = Math.exp(-Math.abs(z));
  return z >= 0 ? 1 / (1 + small) : small / (1 + small);
}

/** @type {(z: number) => number} */
function normalDensity(z) {
  return Math.exp(-0.5 * z * z) / Math.sqrt(2 * Math.PI);
}

/**
 * Phi(z) = 1/2 + phi(z) (z + z^3/3 + z^5/15 + ...): all terms have one sign, so nothing cancels on the way.
 * @type {(z: number) => number}
 */
function normalCdf(z) {
  if (Math.abs(z) > FAR_OUT) return z > 0 ? 1 - upperTail(z) : upperTail(-z);
  let term = z;
  let sum = z;
  for (let k = 3; Math.abs(term) > 1e-17 * Math.abs(sum); k += 2) {
    term *= (z * z) / k;
    sum += term;
  }
  return 0.5 + normalDensity(z) * sum;
}

/**
 * 1 - Phi(z) = phi(z) / (z + 1 / (z + 2 / (z + 3 / ...))), which keeps its digits where Phi is almost 1.
 * @type {(z: number) => number}
 */
function upperTail(z) {
  let fraction = z;
  for (let k = 60; k > 0; k--) fraction = z + k / fraction;
  return normalDensity(z) / fraction;
}

/**
 * The normal quantile: Abramowitz and Stegun 26.2.23 to start from, then Newton's steps to full precision.
 * @type {(p: number) => number}
 */
function probit(p) {
  if (p === 0.5) return 0;
  const t = Math.sqrt(-2 * Math.log(Math.min(p, 1 - p)));
  const tail = t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
  let z = p < 0.5 ? -tail : tail;
  for (let step = 0; step < 3; step++) z -= (normalCdf(z) - p) / normalDensity(z);
  return z;
}

/**
 * The t within which Student's variable lies with probability `level`, by halving the angle atan(t / sqrt(freedom)).
 * @type {(level: number, freedom: number) => number}
 */
export function studentQuantile(level, freedom) {
  let low = 0;
  let high = Math.PI / 2;
  for (let step = 0; step < 60; step++) {
    const middle = (low + high) / 2;
    if (studentShare(middle, freedom) < level) low = middle;
    else high = middle;
  }
  return Math.sqrt(freedom) * Math.tan(low);
}

/**
 * P(|t| < sqrt(freedom) tan(angle)), a finite sum for whole degrees of freedom (Abramowitz and Stegun 26.7.3, 26.7.4).
 * @type {(angle: number, freedom: number) => number}
 */
function studentShare(angle, freedom) {
  const isOdd = freedom % 2 === 1;
  const cosine = Math.cos(angle);
  let term = isOdd ? cosine : 1;
  let sum = 0;
  for (let k = isOdd ? 3 : 2; k <= freedom; k += 2) {
    sum += term;
    term *= (cosine * cosine * (k - 1)) / k;
  }
  return isOdd ? (2 / Math.PI) * (angle + Math.sin(angle) * sum) : Math.sin(angle) * sum;
}

/**
 * One axis of a plot: from values to pixels and back.
 * `low` and `high` are places on the scale, `from` and `to` the pixels that they get.
 * @type {(scale: Scale, low: number, high: number, from: number, to: number) => Axis}
 */
export function makeAxis(scale, low, high, from, to) {
  const ratio = (to - from) / (high - low);
  /** @type {(place: number) => number} */
  const pixel = (place) => from + (place - low) * ratio;
  return {
    scale, low, high, from, to,
    place: (value) => pixel(scale.forward(value)),
    placeScaled: pixel,
    scaledAt: (position) => low + (position - from) / ratio,
  };
}

/**
 * Tick values (in what is shown: percent for unit "%") that stand at least `gap` pixels apart.
 * @type {(axis: Axis, gap: number, times?: number) => number[]}
 */
export function ticks(axis, gap, times = 100) {
  /** @type {(shown: number) => number} */
  const place = (shown) => axis.place(shown / times);
  /** @type {(shown: number) => boolean} */
  const inside = (shown) => {
    const scaled = axis.scale.forward(shown / times);
    return scaled >= axis.low - 1e-9 && scaled <= axis.high + 1e-9;
  };
  const found = axis.scale.holdsEnds ? evenTicks(axis, gap, times) : stretchedTicks(place, gap);
  return found.filter(inside);
}

/** @type {(axis: Axis, gap: number, times: number) => number[]} */
function evenTicks(axis, gap, times) {
  const low = axis.low * times;
  const high = axis.high * times;
  const step = niceStep(((high - low) * gap) / Math.abs(axis.to - axis.from));
  const first = Math.ceil(low / step - 1e-9);
  const length = Math.floor(high / step + 1e-9) - first + 1;
  return Array.from({ length }, (_, i) => tidy((first + i) * step));
}

/**
 * The smallest of 1, 2, 5, 10, 20, ... that is not below.
 * @type {(least: number) => number}
 */
function niceStep(least) {
  const decade = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5].map((step) => step * decade).find((step) => step >= least * (1 - 1e-9)) ?? 10 * decade;
}

/**
 * Ticks of a logit or probit axis: round percentages first, then what fits between two neighbours, evenly.
 * The candidates stand in order of how much a reader misses them.
 * @type {(place: (shown: number) => number, gap: number) => number[]}
 */
function stretchedTicks(place, gap) {
  const candidates = [50, 10, 90, 1, 99, 30, 70, 20, 40, 60, 80, 5, 95, 0.1, 99.9, 2, 98, 0.01, 99.99, 0.5, 99.5];
  /** @type {number[]} */
  const chosen = [];
  for (const candidate of candidates) {
    if (chosen.every((other) => Math.abs(place(other) - place(candidate)) >= gap)) chosen.push(candidate);
  }
  chosen.sort((a, b) => a - b);
  return [...new Set(chosen.flatMap((value, i) => (i ? between(chosen[i - 1], value, place, gap) : [value])))];
}

/**
 * Even steps from `low` to `high`, as fine as fits, without `low` itself.
 * @type {(low: number, high: number, place: (shown: number) => number, gap: number) => number[]}
 */
function between(low, high, place, gap) {
  const width = tidy(high - low);
  const leading = Math.round(width / 10 ** Math.floor(Math.log10(width) + 1e-9));
  /** @type {Record<number, number[]>} */
  const splits = { 1: [10, 5, 2], 2: [10, 4, 2], 5: [10, 5] };
  const parts = splits[leading] ?? [leading];
  for (const n of parts.filter((part) => part > 1)) {
    const steps = Array.from({ length: n }, (_, i) => tidy(low + ((i + 1) * width) / n));
    const fits = steps.every((step, i) => Math.abs(place(step) - place(i ? steps[i - 1] : low)) >= gap);
    if (fits) return steps.flatMap((step, i) => between(i ? steps[i - 1] : low, step, place, gap));
  }
  return [high];
}

/**
 * Without the noise of binary fractions: 0.30000000000000004 is 0.3.
 * @type {(value: number) => number}
 */
function tidy(value) {
  return Number(value.toPrecision(12));
}

/**
 * Limits around values on a scale, with some air.
 * @type {(values: number[], share?: number, least?: number) => Interval}
 */
export function padded(values, share = 0.06, least = 0.02) {
  const low = Math.min(...values);
  const high = Math.max(...values);
  const air = Math.max((high - low) * share, least);
  return [low - air, high + air];
}
