/** What all charts share: a frame with axes, and lines with bands. */

import { freshId, svg } from "./dom.js";
import { explorable } from "./explore.js";
import { slotClass, slotDash } from "./palette.js";
import { makeAxis, SCALES, ticks } from "./scales.js";

/** @import { Attributes, Canvas, Curve, CurvePoint, Interval, Side, SideOptions } from "./types.d.ts" */

/** @typedef {CurvePoint & { low: number; high: number }} Banded A point with an interval. */

/**
 * A chart with axes and an empty plot. `x` and `y`: {axis, times, ticks, text(tick), label}; the axes hold the
 * pixels. Returns the chart and its plot, a group that is clipped to the frame.
 * @type {(options: { width: number; height: number; x: Side; y: Side; label: string; description?: string }) => Canvas}
 */
export function frame({ width, height, x, y, label, description = "chart" }) {
  const yLabel = fitted(y.label, Math.abs(y.axis.to - y.axis.from));
  const clip = freshId("clip");
  const left = x.axis.from;
  const right = x.axis.to;
  const bottom = y.axis.from;
  const top = y.axis.to;
  const inside = svg("rect", { x: left, y: top, width: right - left, height: bottom - top });
  const plot = svg("g", { "clip-path": `url(#${clip})` });
  const chart = svg("svg", {
    class: "chart", viewBox: `0 0 ${width} ${height}`, width, height, role: "application", tabindex: 0,
    "aria-roledescription": description, "aria-label": label,
  });
  chart.append(
    svg("defs", {}, svg("clipPath", { id: clip }, inside)),
    ...x.ticks.map((tick) => gridLine(tickAt(x, tick), tickAt(x, tick), top, bottom)),
    ...y.ticks.map((tick) => gridLine(left, right, tickAt(y, tick), tickAt(y, tick))),
    plot,
    svg("path", { class: "axis", d: `M${left},${top}V${bottom}H${right}` }),
    ...x.ticks.map((tick) => words("tick", "middle", { x: tickAt(x, tick), y: bottom + 16 }, x.text(tick))),
    ...y.ticks.map((tick) => words("tick", "end", { x: left - 6, y: tickAt(y, tick) + 4 }, y.text(tick))),
    words("axis-label", "middle", { x: (left + right) / 2, y: bottom + 36 }, x.label),
    words("axis-label", "middle", { transform: `translate(12,${(top + bottom) / 2}) rotate(-90)` }, yLabel));
  return { chart, plot };
}

/**
 * As much of a label as its axis holds; letters are some 7 pixels wide.
 * @type {(text: string, pixels: number) => string}
 */
function fitted(text, pixels) {
  const most = Math.max(8, Math.floor(pixels / 7));
  return text.length > most ? `${text.slice(0, most - 1).trimEnd()}…` : text;
}

/** @type {(side: Side, tick: number) => number} */
function tickAt(side, tick) {
  return side.axis.place(tick / side.times);
}

/** @type {(x1: number, x2: number, y1: number, y2: number) => SVGElement} */
function gridLine(x1, x2, y1, y2) {
  return svg("line", { class: "grid", x1, x2, y1, y2 });
}

/** @type {(look: string, anchor: string, where: Attributes, text: string) => SVGElement} */
function words(look, anchor, where, text) {
  return svg("text", { class: look, "text-anchor": anchor, ...where }, text);
}

/**
 * A linear axis with even ticks, of values that are shown `times` as large.
 * @type {(low: number, high: number, from: number, to: number, options?: SideOptions) => Side}
 */
export function linearSide(low, high, from, to, options = {}) {
  const { gap = 40, times = 1, label = "", text = String, values = null } = options;
  const axis = makeAxis(SCALES.linear, low, high, from, to);
  return { axis, times, label, text, ticks: values ?? ticks(axis, gap, times) };
}

/**
 * "M1,2L3,4" through points, broken where one is missing.
 * @type {(points: (Interval | null)[]) => string}
 */
export function pathThrough(points) {
  let pen = "M";
  const pieces = [];
  for (const point of points) {
    if (point) pieces.push(`${pen}${point[0].toFixed(1)},${point[1].toFixed(1)}`);
    pen = point ? "L" : "M";
  }
  return pieces.join("");
}

/**
 * A closed area between two borders.
 * @type {(upper: Interval[], lower: Interval[]) => string}
 */
export function areaBetween(upper, lower) {
  return upper.length ? `${pathThrough(upper)}L${pathThrough(lower.toReversed()).slice(1)}Z` : "";
}

/**
 * Curves of several models, each {name, index, points, faded}; a point is {x, y, low, high, label, tip()} or null
 * where a value is missing. Draws bands below all lines, and dots where the points are few.
 * @type {(canvas: Canvas, x: Side, y: Side, curves: Curve[], options?: { dots?: boolean }) => void}
 */
export function drawCurves({ chart, plot }, x, y, curves, { dots = true } = {}) {
  /** @type {(point: CurvePoint, value?: number) => Interval} */
  const at = (point, value = point.y) => [x.axis.place(point.x), y.axis.place(value)];
  /** @type {(curve: Curve) => string} */
  const look = (curve) => `${slotClass(curve.index)}${curve.faded ? " faded" : ""}`;
  for (const curve of curves) {
    for (const run of unbroken(curve.points)) {
      const border = areaBetween(run.map((p) => at(p, p.high)), run.map((p) => at(p, p.low)));
      plot.append(svg("path", { class: `band ${look(curve)}`, d: border }));
    }
  }
  for (const curve of curves) {
    const path = pathThrough(curve.points.map((point) => point && at(point)));
    plot.append(svg("path", { class: `curve ${look(curve)}`, "stroke-dasharray": slotDash(curve.index), d: path }));
    if (!dots) continue;
    for (const [cx, cy] of curve.points.flatMap((point) => (point ? [at(point)] : []))) {
      plot.append(svg("circle", { class: `dot ${look(curve)}`, cx, cy, r: 2.4 }));
    }
  }
  explorable(chart, curves.flatMap((curve) => curve.points.flatMap((point) => {
    if (!point) return [];
    const [px, py] = at(point);
    return [{ px, py, group: curve.name, label: point.label, tip: point.tip }];
  })));
}

/**
 * The stretches without gaps in which every point has an interval.
 * @type {(points: (CurvePoint | null)[]) => Banded[][]}
 */
function unbroken(points) {
  /** @type {Banded[][]} */
  const runs = [[]];
  for (const point of points) {
    if (point && point.low !== null) runs[runs.length - 1].push(/** @type {Banded} */ (point));
    else runs.push([]);
  }
  return runs.filter((run) => run.length > 1);
}
