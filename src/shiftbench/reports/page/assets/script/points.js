/** The models in the scatter plot: markers, error bars, names, and what is said about each. */

import { svg } from "./dom.js";
import { categoryName, estimateTexts, count, digits, interval, marked, matches, number, shortened } from "./format.js";
import { placeLabels } from "./labels.js";
import { markerPath, slotClass } from "./palette.js";
import { placeable } from "./scales.js";
import { tipContent } from "./tooltip.js";

/** @import { Axis, Canvas, Estimate, Interval, Point, PointTarget, Scale, Spot, Study, View } from "./types.d.ts" */

/** More labels than this in one plot are not readable. */
const MOST_LABELS = 12;
const SIZES = { own: 6.5, matched: 5.5, other: 4 };
/** The mark of a model that lies beyond the edge, pointing up, and how far its tip is from its middle. */
const ARROW = "M0,-7L5,3L-5,3Z";
const TIP = 7;

/**
 * Markers with their error bars, own models last and largest; returns what can be hovered.
 * @type {(canvas: Canvas, points: Point[], x: Axis, y: Axis, view: View) => PointTarget[]}
 */
export function drawPoints({ chart, plot }, points, x, y, { study, slots, query }) {
  const whiskers = svg("g");
  const markers = svg("g", { class: "markers" });
  plot.append(whiskers);
  chart.append(markers);
  /** @type {PointTarget[]} */
  const targets = [];
  for (const point of points.toSorted((a, b) => Number(a.own) - Number(b.own))) {
    const spot = spotOf(point, x, y, study.scale);
    if (!spot) continue;
    const slot = slots.get(point.category) ?? 0;
    const matched = Boolean(query) && matches(point.name, query);
    const state = [point.own && "own", query && (matched ? "matched" : "faded"), spot.edge && "edge"];
    const look = [slotClass(slot), ...state].filter(Boolean).join(" ");
    const size = SIZES[point.own ? "own" : matched ? "matched" : "other"];
    if (!spot.edge) whiskers.append(...errorBars(point, spot, x, y, study.scale, look));
    markers.append(svg("path", {
      class: `marker ${look}`, "data-model": point.name, d: spot.edge ? ARROW : markerPath(slot, size),
      transform: `translate(${spot.px.toFixed(1)},${spot.py.toFixed(1)}) rotate(${spot.edge ?? 0})`,
    }));
    const label = spoken(point, study);
    targets.push({ ...spot, point, matched, group: "models", label, tip: () => pointTip(point, study) });
  }
  return targets;
}

/**
 * Where a point goes: null outside a zoomed view; at the edge, with the turn of its arrow, where the scale has no
 * place for 0 or 100 %.
 * @type {(point: Point, x: Axis, y: Axis, scale: Scale) => Spot | null}
 */
function spotOf(point, x, y, scale) {
  const xValue = point.x[0];
  const yValue = point.y[0];
  /** @type {number | null} */
  let edge = null;
  let px = x.place(xValue);
  let py = y.place(yValue);
  if (!placeable(scale, yValue)) [py, edge] = yValue <= 0 ? [y.from - TIP, 180] : [y.to + TIP, 360];
  if (!placeable(scale, xValue)) [px, edge] = xValue <= 0 ? [x.from + TIP, 270] : [x.to - TIP, 90];
  const inside = px >= x.from - 1 && px <= x.to + 1 && py <= y.from + 1 && py >= y.to - 1;
  return inside ? { px, py, edge } : null;
}

/**
 * An end that the scale has no place for is the plot's edge.
 * @type {(point: Point, spot: Spot, x: Axis, y: Axis, scale: Scale, look: string) => SVGElement[]}
 */
function errorBars(point, spot, x, y, scale, look) {
  /** @type {(axis: Axis, cell: Estimate) => Interval | null} */
  const reach = (axis, [, low, high]) => {
    if (low === null || high === null) return null;
    return [placeable(scale, low) ? axis.place(low) : axis.from, placeable(scale, high) ? axis.place(high) : axis.to];
  };
  const across = reach(x, point.x);
  const upright = reach(y, point.y);
  /** @type {(x1: number, x2: number, y1: number, y2: number) => SVGElement} */
  const bar = (x1, x2, y1, y2) => svg("line", { class: `whisker ${look}`, x1, x2, y1, y2 });
  return [
    ...(across ? [bar(...across, spot.py, spot.py)] : []),
    ...(upright ? [bar(spot.px, spot.px, ...upright)] : []),
  ];
}

/**
 * Names of the workspace's own models, or of what the reader looks for.
 * @type {(chart: SVGSVGElement, targets: PointTarget[], x: Axis, y: Axis, query: string) => void}
 */
export function drawLabels(chart, targets, x, y, query) {
  const wanted = targets.filter((target) => (query ? target.matched : target.point.own));
  if (!wanted.length || wanted.length > MOST_LABELS) return;
  const bounds = { left: x.from, right: x.to, top: y.to, bottom: y.from };
  const most = Math.max(14, Math.floor((x.to - x.from) / 18));
  const items = wanted.map(({ px, py, point }) => ({ px, py, text: shortened(marked(point.name), most) }));
  for (const { px, py, text, box } of placeLabels(items, bounds, targets)) {
    const x2 = Math.min(box.x + box.width, Math.max(box.x, px));
    const y2 = Math.min(box.y + box.height, Math.max(box.y, py));
    if (box.far > 14) chart.append(svg("line", { class: "leader", x1: px, y1: py, x2, y2 }));
    chart.append(svg("text", { class: "point-label", x: box.x + 3, y: box.y + 11.5 }, text));
  }
}

/**
 * What a point's tooltip holds.
 * @type {(point: Point, study: Study) => Node[]}
 */
function pointTip(point, study) {
  const { effective, relative } = point;
  const { xSetting, ySetting } = study;
  const places = Math.min(digits(point.x[3], xSetting.unit), digits(point.y[3], ySetting.unit));
  /** @type {(value: number) => string} */
  const signed = (value) => number(value, places, ySetting.unit, { signed: true });
  /** @type {(distance: { low: number | null; high: number | null }) => string} */
  const ends = ({ low, high }) => interval(low, high, places, ySetting.unit, { signed: true });
  return tipContent(marked(point.name), tags(point), [
    [xSetting.name, ...valueAndN(point.x, xSetting.unit)],
    [ySetting.name, ...valueAndN(point.y, ySetting.unit)],
    effective && [
      "line at x", number(effective.expected, places, ySetting.unit), effective.extrapolated ? "extrapolated" : "",
    ],
    effective && ["ρ, above the line", signed(effective.rho), ends(effective)],
    relative && [`τ, over ${shortened(point.baseModel, 24)}`, signed(relative.tau), ends(relative)],
  ]);
}

/** @type {(cell: Estimate, unit: string) => [string, string]} */
function valueAndN(cell, unit) {
  const [value, ends] = estimateTexts(cell, unit);
  return [value, [ends, cell[3] === null ? "" : `n\u00a0=\u00a0${count(cell[3])}`].filter(Boolean).join(" ")];
}

/** @type {(point: Point) => string} */
function tags(point) {
  const edge = point.placed ? "" : "at the edge: not on this scale";
  return [categoryName(point.category), point.fitted && "in the fit", edge].filter(Boolean).join(" · ");
}

/**
 * What screen readers say of a point.
 * @type {(point: Point, study: Study) => string}
 */
function spoken(point, { xSetting, ySetting }) {
  /** @type {(cell: Estimate, unit: string) => string} */
  const says = (cell, unit) => `${estimateTexts(cell, unit)[0]}${unit === "%" ? " %" : ""}`;
  const rho = point.effective && number(point.effective.rho, 1, ySetting.unit, { signed: true });
  const words = [says(point.x, xSetting.unit), says(point.y, ySetting.unit), rho && `${rho} from the line`];
  return `${point.name}: ${words.filter(Boolean).join(", ")}`;
}
