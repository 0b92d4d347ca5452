/** What all charts share: a frame with axes, and lines with bands. */

import { freshId, svg } from "./dom.js";
import { explorable } from "./explore.js";
import { slotClass, slotDash } from "./palette.js";
import { makeAxis, SCALES, ticks } from "./scales.js";

/**
 * A picture with axes and an empty plot. `x` and `y`: {axis, times, ticks, text(tick), label}; the axes hold the
 * pixels. Returns the picture and its plot, a group that is clipped to the frame.
 */
export function frame({ width, height, x, y, label, description = "chart" }) {
  const clip = freshId("clip");
  const [left, right, bottom, top] = [x.axis.from, x.axis.to, y.axis.from, y.axis.to];
  const inside = svg("rect", { x: left, y: top, width: right - left, height: bottom - top });
  const plot = svg("g", { "clip-path": `url(#${clip})` });
  const picture = svg("svg", {
    class: "chart", viewBox: `0 0 ${width} ${height}`, width, height, role: "application", tabindex: 0,
    "aria-roledescription": description, "aria-label": label,
  });
  picture.append(
    svg("defs", {}, svg("clipPath", { id: clip }, inside)),
    ...x.ticks.map((tick) => gridLine(tickAt(x, tick), tickAt(x, tick), top, bottom)),
    ...y.ticks.map((tick) => gridLine(left, right, tickAt(y, tick), tickAt(y, tick))),
    plot,
    svg("path", { class: "axis", d: `M${left},${top}V${bottom}H${right}` }),
    ...x.ticks.map((tick) => words("tick", "middle", { x: tickAt(x, tick), y: bottom + 16 }, x.text(tick))),
    ...y.ticks.map((tick) => words("tick", "end", { x: left - 6, y: tickAt(y, tick) + 4 }, y.text(tick))),
    words("axis-label", "middle", { x: (left + right) / 2, y: bottom + 36 }, x.label),
    words("axis-label", "middle", { transform: `translate(12,${(top + bottom) / 2}) rotate(-90)` }, y.label));
  return { picture, plot };
}

function tickAt(side, tick) {
  return side.axis.place(tick / side.times);
}

function gridLine(x1, x2, y1, y2) {
  return svg("line", { class: "grid", x1, x2, y1, y2 });
}

function words(look, anchor, where, text) {
  return svg("text", { class: look, "text-anchor": anchor, ...where }, text);
}

/** A linear axis with even ticks, of values that are shown `times` as large. */
export function linearSide(low, high, from, to, options = {}) {
  const { gap = 40, times = 1, label = "", text = String, values = null } = options;
  const axis = makeAxis(SCALES.linear, low, high, from, to);
  return { axis, times, label, text, ticks: values ?? ticks(axis, gap, times) };
}

/** "M1,2L3,4" through points, broken where one is missing. */
export function pathThrough(points) {
  let pen = "M";
  const pieces = [];
  for (const point of points) {
    if (point) pieces.push(`${pen}${point[0].toFixed(1)},${point[1].toFixed(1)}`);
    pen = point ? "L" : "M";
  }
  return pieces.join("");
}

/** A closed area between two borders. */
export function areaBetween(upper, lower) {
  return upper.length ? `${pathThrough(upper)}L${pathThrough(lower.toReversed()).slice(1)}Z` : "";
}

/**
 * Curves of several models, each {name, index, points, faded}; a point is {x, y, low, high, label, tip()} or null
 * where a value is missing. Draws bands below all lines, and dots where the points are few.
 */
export function drawCurves({ picture, plot }, x, y, curves, { dots = true } = {}) {
  const at = (point, value = point.y) => [x.axis.place(point.x), y.axis.place(value)];
  const look = (curve) => `${slotClass(curve.index)}${curve.faded ? " faded" : ""}`;
  for (const curve of curves) {
    for (const run of unbroken(curve.points.map((point) => (point && point.low !== null ? point : null)))) {
      const border = areaBetween(run.map((p) => at(p, p.high)), run.map((p) => at(p, p.low)));
      plot.append(svg("path", { class: `band ${look(curve)}`, d: border }));
    }
  }
  for (const curve of curves) {
    const path = pathThrough(curve.points.map((point) => point && at(point)));
    plot.append(svg("path", { class: `curve ${look(curve)}`, "stroke-dasharray": slotDash(curve.index), d: path }));
    if (!dots) continue;
    for (const [cx, cy] of curve.points.filter(Boolean).map((point) => at(point))) {
      plot.append(svg("circle", { class: `dot ${look(curve)}`, cx, cy, r: 2.4 }));
    }
  }
  explorable(picture, curves.flatMap((curve) => curve.points.filter(Boolean).map((point) => {
    const [px, py] = at(point);
    return { px, py, group: curve.name, label: point.label, tip: point.tip };
  })));
}

/** The stretches without gaps. */
function unbroken(points) {
  const runs = [[]];
  for (const point of points) {
    if (point) runs.at(-1).push(point);
    else runs.push([]);
  }
  return runs.filter((run) => run.length > 1);
}
