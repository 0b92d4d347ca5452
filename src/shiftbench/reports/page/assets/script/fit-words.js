/** The line as text, and one sentence per model of the workspace. */

import { el } from "./dom.js";
import { countOf, fixed, interval, MISSING, number } from "./format.js";
import { shareText } from "./study.js";

/** @import { Child, Effective, Part, Point, Study } from "./types.d.ts" */

/** Models that get a sentence at either end, if there are many. */
const EXTREMES = 6;

/** @typedef {Point & { effective: Effective }} Judged A model that the line has a height for. */

/** @type {(study: Study) => HTMLElement[]} */
export function fitWords(study) {
  const own = /** @type {Judged[]} */ (study.points.filter((point) => point.own && point.effective));
  const title = study.parts.length > 1 ? `Two lines, pivot ${shareText(study.pivot)}` : "The line";
  return [
    el("h3", {}, title),
    ...study.parts.map((part) => linePart(part, study)),
    ...(own.length ? [el("h3", {}, "This workspace's models"), sentences(own, study)] : []),
  ];
}

/**
 * The numbers also stand in data attributes, with all digits.
 * @type {(part: Part, study: Study) => HTMLElement}
 */
function linePart({ side, line }, study) {
  const where = side && `${side} the pivot`;
  if (line.reason !== undefined) {
    return el("p", { class: "no-line" }, `No line${where && ` ${where}`}: ${line.reason}.`);
  }
  /** @type {(value: number) => string} */
  const slope = (value) => fixed(value, 4);
  const inPoints = study.scale.holdsEnds && study.inPercent;
  /** @type {(value: number) => string} */
  const intercept = (value) => (inPoints ? `${fixed(value * 100, 2)} %` : fixed(value, 4));
  const models = countOf(line.n, study.baseline ? "baseline model" : "model");
  return el("div", {
    class: "fit", "data-side": side, "data-slope": line.slope, "data-intercept": line.intercept, "data-r2": line.r2,
    "data-n": line.n, "data-slope-interval": line.slopeInterval.join(" "),
    "data-intercept-interval": line.interceptInterval.join(" "),
  },
    where && el("h4", {}, where),
    el("p", {}, `${study.scale.name} scale, ${models}`),
    el("dl", {},
      term("slope", slope(line.slope), line.slopeInterval.map(slope)),
      term("intercept", intercept(line.intercept), line.interceptInterval.map(intercept)),
      term("r²", line.r2 === null ? MISSING : fixed(line.r2, 4))));
}

/** @type {(name: string, value: string, ends?: string[] | null) => HTMLElement[]} */
function term(name, value, ends = null) {
  return [el("dt", {}, name), el("dd", {}, value, ends && el("small", {}, ` [${ends.join(", ")}]`))];
}

/**
 * Of many models only those farthest above and below the line; the table has all.
 * @type {(points: Judged[], study: Study) => HTMLElement}
 */
function sentences(points, study) {
  const ranked = [...points].sort((a, b) => b.effective.rho - a.effective.rho);
  const shown = points.length > 2 * EXTREMES ? [...ranked.slice(0, EXTREMES), ...ranked.slice(-EXTREMES)] : points;
  const rest = shown.length < points.length && el("li", {}, `All ${points.length} are in the table below.`);
  return el("ul", { class: "own-models" }, shown.map((point) => el("li", {}, sentence(point, study))), rest);
}

/**
 * "mine lies 2.1 points above the line [1.4, 2.8]".
 * @type {(point: Judged, study: Study) => Child[]}
 */
function sentence(point, { ySetting: { unit } }) {
  const { rho, low, high, extrapolated } = point.effective;
  const [places, points] = unit === "%" ? [1, "points "] : [3, ""];
  const up = rho >= 0;
  const ends = up ? interval(low, high, places, unit) : interval(-high, -low, places, unit);
  return [
    el("b", {}, point.name),
    ` lies ${number(Math.abs(rho), places, unit)} ${points}${up ? "above" : "below"} the line ${ends}`,
    extrapolated && el("small", {}, " (the line is extrapolated there)"),
  ];
}
