/** The scatter plot: every model at its two numbers, the baseline's line with its band, and y = x. */

import { addBrush } from "./brush.js";
import { areaBetween, frame, pathThrough } from "./chart.js";
import { responsive, svg } from "./dom.js";
import { explorable } from "./explore.js";
import { bandAt } from "./fit.js";
import { measured, shortened } from "./format.js";
import { drawLabels, drawPoints } from "./points.js";
import { makeAxis, padded, placeable, ticks } from "./scales.js";

/** @import { Axis, Interval, Limits, Line, Part, Point, Scale, SettingEntry, Side, Study, View } from "./types.d.ts" */

const MARGIN = { left: 58, right: 18, top: 14, bottom: 50 };
const BAND_STEPS = 60;
/** Error bars may widen an axis by this share of its values' range, or so far on a scale where that is little. */
const ROOM_FOR_BARS = { share: 0.8, stretched: 1, even: 0.12 };

/**
 * The limits that the reader zoomed to, and for which axes; they outlive a redraw.
 * @type {{ key: string; limits: Limits | null }}
 */
let zoomed = { key: "", limits: null };
/** The model that the reader looked at last. */
let visited = "";

/**
 * A plot in `host`; `draw(view)` shows a view {key, study, slots, hidden, query}. `onZoom` hears whether it is zoomed.
 * @type {(host: HTMLElement, onZoom: (zoomed: boolean) => void) => { draw(view: View): void; reset(): void }}
 */
export function scatterPlot(host, onZoom) {
  /** @type {View | null} */
  let view = null;
  /** @type {(limits: Limits | null) => void} */
  const setZoom = (limits) => {
    zoomed = { key: view?.key ?? "", limits };
    onZoom(Boolean(limits));
    redraw();
  };
  const redraw = responsive(host, (width) => {
    if (!view) return;
    const focused = host.querySelector(":focus");
    const byKeyboard = Boolean(focused?.matches(":focus-visible"));
    const chart = drawn(view, width, zoomed.limits, setZoom);
    host.replaceChildren(chart);
    if (focused) chart.focus({ preventScroll: true, focusVisible: byKeyboard });
  });
  return {
    draw(next) {
      view = next;
      if (zoomed.key !== view.key) zoomed = { key: view.key, limits: null };
      onZoom(Boolean(zoomed.limits));
      redraw();
    },
    reset: () => setZoom(null),
  };
}

/**
 * @type {(view: View, width: number, zoom: Limits | null, setZoom: (limits: Limits | null) => void) => SVGSVGElement}
 */
function drawn(view, width, zoom, setZoom) {
  const { study } = view;
  const height = Math.round(Math.min(600, Math.max(340, Math.min(width * 0.72, innerHeight * 0.64))));
  const points = study.points.filter((point) => point.shown && !view.hidden.has(point.category));
  const limits = zoom ?? { x: limitsOf(points, "x", study), y: limitsOf(points, "y", study) };
  const x = axisSide(study.xSetting, study.scale, limits.x, [MARGIN.left, width - MARGIN.right], 62);
  const y = axisSide(study.ySetting, study.scale, limits.y, [height - MARGIN.bottom, MARGIN.top], 34);
  const canvas = frame({ width, height, x, y, label: describe(study, points), description: "scatter plot" });
  if (study.xSetting.unit === study.ySetting.unit) canvas.plot.append(identity(x.axis, y.axis));
  for (const part of study.parts) {
    if (part.line.reason === undefined) canvas.plot.append(...baseline(part, part.line, x.axis, y.axis));
  }
  const targets = drawPoints(canvas, points, x.axis, y.axis, view);
  drawLabels(canvas.chart, targets, x.axis, y.axis, view.query);
  const brush = addBrush(canvas.chart, x.axis, y.axis, { setZoom, isZoomed: Boolean(zoom) });
  explorable(canvas.chart, targets, {
    start: targets.find((target) => target.point.name === visited) ?? null,
    onEnter: (target) => (visited = target.point.name),
    onKey: (event, target) => brush.onKey(event, target),
    paused: brush.isDragging,
  });
  return canvas.chart;
}

/**
 * The limits of an axis, on the scale: around the values, and around error bars as far as these do not crowd them.
 * @type {(points: Point[], key: "x" | "y", study: Study) => Interval}
 */
function limitsOf(points, key, { scale, inPercent }) {
  const cells = points.map((point) => point[key]).filter((cell) => placeable(scale, cell[0]));
  if (!cells.length) return [scale.forward(0.05), scale.forward(0.95)];
  const least = scale.holdsEnds ? (inPercent ? 0.005 : 0.01) : 0.05;
  const [low, high] = padded(cells.map((cell) => scale.forward(cell[0])), 0.06, least);
  const room = Math.max(ROOM_FOR_BARS.share * (high - low), ROOM_FOR_BARS[scale.holdsEnds ? "even" : "stretched"]);
  const air = 0.03 * (high - low);
  const ends = cells.flatMap((cell) => [cell[1], cell[2]].filter((end) => placeable(scale, end)).map(scale.forward));
  return [
    Math.max(low - room, Math.min(low, ...ends.map((end) => end - air))),
    Math.min(high + room, Math.max(high, ...ends.map((end) => end + air))),
  ];
}

/** @type {(setting: SettingEntry, scale: Scale, limits: Interval, pixels: Interval, gap: number) => Side} */
function axisSide(setting, scale, limits, pixels, gap) {
  const axis = makeAxis(scale, ...limits, ...pixels);
  const times = setting.unit === "%" ? 100 : 1;
  // Letters of the label are some 7.5 pixels wide; the name comes before what is measured.
  const room = Math.floor(Math.abs(pixels[1] - pixels[0]) / 7.5);
  const about = [` (${measured(setting)})`, setting.unit && ` (${setting.unit})`, ""].find(
    (text) => setting.name.length + text.length <= room || text.length <= room / 3) ?? "";
  const label = shortened(setting.name, Math.max(12, room - about.length)) + about;
  return { axis, times, ticks: ticks(axis, gap, times), text: String, label };
}

/** @type {(study: Study, points: Point[]) => string} */
function describe(study, points) {
  return `${study.ySetting.name} against ${study.xSetting.name}, ${study.scale.name} axes, ${points.length} models. `
    + "Arrow keys move between models, plus and minus zoom, Escape shows everything again.";
}

/** @type {(x: Axis, y: Axis) => SVGElement} */
function identity(x, y) {
  const low = Math.max(x.low, y.low);
  const high = Math.min(x.high, y.high);
  return svg("line", {
    class: "identity", visibility: low < high ? null : "hidden",
    x1: x.placeScaled(low), y1: y.placeScaled(low), x2: x.placeScaled(high), y2: y.placeScaled(high),
  });
}

/**
 * The line, dashed where no fitted model is, and its band.
 * @type {(part: Part, line: Line, x: Axis, y: Axis) => SVGElement[]}
 */
function baseline({ from, to }, line, x, y) {
  /** @type {(value: number) => number} */
  const scaled = (value) => (Number.isFinite(value) ? line.scale.forward(value) : value);
  const low = Math.max(x.low, scaled(from));
  const high = Math.min(x.high, scaled(to));
  if (!(low < high)) return [];
  const places = Array.from({ length: BAND_STEPS + 1 }, (_, i) => low + ((high - low) * i) / BAND_STEPS);
  const bands = places.map((place) => bandAt(line, place));
  /** @type {(place: number, level: number) => Interval} */
  const at = (place, level) => [x.placeScaled(place), y.placeScaled(level)];
  /** @type {(end: 0 | 1) => Interval[]} */
  const border = (end) => places.map((place, i) => at(place, bands[i][end]));
  /** @type {(a: number, b: number, look: string) => SVGElement[]} */
  const stretch = (a, b, look) => (a < b ? [svg("path", {
    class: look, d: pathThrough([a, b].map((place) => at(place, line.slope * place + line.intercept))),
  })] : []);
  const [first, last] = line.range.map(scaled);
  return [
    svg("path", { class: "fit-band", d: areaBetween(border(1), border(0)) }),
    ...stretch(low, Math.min(first, high), "fit-line beyond"),
    ...stretch(Math.max(low, first), Math.min(high, last), "fit-line"),
    ...stretch(Math.max(last, low), high, "fit-line beyond"),
  ];
}
