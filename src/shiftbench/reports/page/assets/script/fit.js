/**
 * The line that models of one kind fall on, s(y) = slope s(x) + intercept, by least squares on the scale s, with
 * Student's intervals; and effective robustness, rho = y - line(x), with its interval. The same procedures as
 * `shiftbench.studies`, so that page and command line agree.
 */

import { SCALES, studentQuantile } from "./scales.js";

/** @import { Effective, Estimate, Interval, Line, NoLine, Part, Relative, ScaleName } from "./types.d.ts" */

/**
 * @typedef {{ name: string; x: number; y: number }} FitPoint
 * @typedef {{ level: number; leastModels: number }} FitOptions
 */

/**
 * Slope, intercept and r2 of v on u; r2 is null where all v are equal. The scatter is the standard deviation of the
 * points about the line, the centre the mean of u, and the spread the sum of the squared distances from it.
 * @type {(u: number[], v: number[]) => Pick<Line, "slope" | "intercept" | "r2" | "scatter" | "centre" | "spread">}
 */
function leastSquares(u, v) {
  const meanU = mean(u);
  const meanV = mean(v);
  let suu = 0;
  let suv = 0;
  let svv = 0;
  for (let i = 0; i < u.length; i++) {
    const du = u[i] - meanU;
    const dv = v[i] - meanV;
    suu += du * du;
    suv += du * dv;
    svv += dv * dv;
  }
  const slope = suv / suu;
  return {
    slope,
    intercept: meanV - slope * meanU,
    r2: svv > 0 ? Math.min(1, (suv * suv) / (suu * svv)) : null,
    scatter: Math.sqrt(Math.max(svv - slope * suv, 0) / (u.length - 2)),
    centre: meanU,
    spread: suu,
  };
}

/** @type {(values: number[]) => number} */
function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

/**
 * One line through points {name, x, y}, or {reason} where there are too few, or none is determined.
 * @type {(points: FitPoint[], scaleName: ScaleName, options: FitOptions) => Line | NoLine}
 */
function fitOne(points, scaleName, { level, leastModels }) {
  const scale = SCALES[scaleName];
  // Models with the same numbers are one point: a line through two of them is exact.
  const different = new Set(points.map((p) => `${p.x} ${p.y}`)).size;
  if (different < leastModels) {
    const which = different < points.length ? "different numbers" : "both numbers";
    const reason = "a line through fewer is too rough to judge a model by";
    return { reason: `a line needs at least ${leastModels} models with ${which}, found ${different}; ${reason}` };
  }
  const u = points.map((p) => scale.forward(p.x));
  const v = points.map((p) => scale.forward(p.y));
  const xs = points.map((p) => p.x);
  /** @type {Interval} */
  const range = [Math.min(...xs), Math.max(...xs)];
  if (range[0] === range[1]) return { reason: "all models have the same number on the x axis: no line is determined" };
  const n = points.length;
  const line = leastSquares(u, v);
  const quantile = studentQuantile(level, n - 2);
  const ofSlope = (quantile * line.scatter) / Math.sqrt(line.spread);
  const ofIntercept = quantile * line.scatter * Math.sqrt(1 / n + line.centre ** 2 / line.spread);
  return {
    scale, level, ...line, n, names: points.map((p) => p.name), range, quantile,
    slopeInterval: [line.slope - ofSlope, line.slope + ofSlope],
    interceptInterval: [line.intercept - ofIntercept, line.intercept + ofIntercept],
    notes: line.r2 === null ? ["all models have the same y: r2 is not defined"] : [],
  };
}

/**
 * The parts of the baseline: one line, or two around a pivot, whose own model belongs to neither.
 * Each part: {from, to, side, line}; a part without a line has line.reason.
 * @type {(points: FitPoint[], scaleName: ScaleName, options: FitOptions & { pivot: number | null }) => Part[]}
 */
export function fitBaseline(points, scaleName, { pivot, ...options }) {
  if (pivot === null) {
    return [{ from: -Infinity, to: Infinity, side: "", line: fitOne(points, scaleName, options) }];
  }
  const below = points.filter((p) => p.x < pivot);
  const above = points.filter((p) => p.x > pivot);
  return [
    { from: -Infinity, to: pivot, side: "below", line: fitOne(below, scaleName, options) },
    { from: pivot, to: Infinity, side: "above", line: fitOne(above, scaleName, options) },
  ];
}

/**
 * The line that holds at x, or null.
 * @type {(parts: Part[], x: number) => Line | null}
 */
function lineAt(parts, x) {
  const { line } = parts.find((part) => x <= part.to) ?? parts[parts.length - 1];
  return line.reason === undefined ? line : null;
}

/** @type {(line: Line, x: number) => number} */
function predict(line, x) {
  return line.scale.inverse(line.slope * line.scale.forward(x) + line.intercept);
}

/**
 * The interval of the line's height at a place of the scaled axis, on the scale.
 * @type {(line: Line, place: number) => Interval}
 */
export function bandAt(line, place) {
  const height = line.slope * place + line.intercept;
  const leverage = 1 / line.n + (place - line.centre) ** 2 / line.spread;
  const halfWidth = line.quantile * line.scatter * Math.sqrt(leverage);
  return [height - halfWidth, height + halfWidth];
}

/**
 * rho of a point {x: cell, y: cell} and its interval, by Zou and Donner's rule over the images of y, the images
 * of x, and the fit; null where the line has no height.
 * @type {(x: Estimate, y: Estimate, parts: Part[]) => Effective | null}
 */
export function effectiveRobustness(x, y, parts) {
  const line = lineAt(parts, x[0]);
  if (!line || (!line.scale.holdsEnds && (x[0] <= 0 || x[0] >= 1))) return null;
  const expected = predict(line, x[0]);
  const rho = y[0] - expected;
  let down = 0;
  let up = 0;
  if (y[1] !== null && y[2] !== null) {
    down += (y[0] - y[1]) ** 2;
    up += (y[2] - y[0]) ** 2;
  }
  if (x[1] !== null && x[2] !== null) {
    const ends = [x[1], x[2]].map((end) => predictNear(lineAt(parts, end) ?? line, end));
    down += (Math.max(...ends) - expected) ** 2;
    up += (expected - Math.min(...ends)) ** 2;
  }
  const [low, high] = bandAt(line, line.scale.forward(x[0])).map(line.scale.inverse);
  down += (high - expected) ** 2;
  up += (expected - low) ** 2;
  return { expected, rho, low: rho - Math.sqrt(down), high: rho + Math.sqrt(up), extrapolated: outside(parts, x[0]) };
}

/**
 * The ends of the axis have no logit; as far as the line is concerned just inside is the same.
 * @type {(line: Line, x: number) => number}
 */
function predictNear(line, x) {
  return line.scale.holdsEnds ? predict(line, x) : predict(line, Math.min(1 - 1e-12, Math.max(1e-12, x)));
}

/** @type {(parts: Part[], x: number) => boolean} */
function outside(parts, x) {
  const ranges = parts.flatMap(({ line }) => (line.reason === undefined ? [line.range] : []));
  return x < Math.min(...ranges.map((range) => range[0])) || x > Math.max(...ranges.map((range) => range[1]));
}

/**
 * tau = y(model) - y(base) with the interval of both models' images.
 * @type {(y: Estimate, base: Estimate) => Relative}
 */
export function relativeRobustness(y, base) {
  const tau = y[0] - base[0];
  const [[, low, high], [, baseLow, baseHigh]] = [y, base];
  if (low === null || high === null || baseLow === null || baseHigh === null) return { tau, low: null, high: null };
  return {
    tau,
    low: tau - Math.hypot(y[0] - low, baseHigh - base[0]),
    high: tau + Math.hypot(high - y[0], base[0] - baseLow),
  };
}
