/** The reliability diagram: accuracy over confidence, bin by bin, and below it how many images each bin has. */

import { frame, linearSide } from "./chart.js";
import { svg } from "./dom.js";
import { explorable } from "./explore.js";
import { count, interval, number } from "./format.js";
import { slotClass } from "./palette.js";
import { tipContent } from "./tooltip.js";

/** @import { Axis, CalibrationEntry, ReliabilityBin } from "./types.d.ts" */

const LEFT = 50;
const RIGHT = 10;
const TOP = 10;
const BOTTOM = 44;
/** The height of the histogram, and of the air above it. */
const FOOT = 44;
const FOOT_AIR = 12;

/**
 * A chart of one calibration entry in the colour of a slot.
 * @type {(entry: CalibrationEntry, width: number, index: number) => SVGSVGElement}
 */
export function reliabilityDiagram(entry, width, index) {
  const height = Math.round(width * 1.02);
  const bottom = height - BOTTOM - FOOT;
  const x = linearSide(0, 1, LEFT, width - RIGHT, { times: 100, gap: 44, label: "confidence, %" });
  const y = linearSide(0, 1, bottom, TOP, { times: 100, gap: 30, label: "accuracy, %" });
  const label = `Reliability of ${entry.model} in ${entry.setting}, ${entry.bins.length} bins`;
  const { chart, plot } = frame({ width, height, x, y, label, description: "reliability diagram" });
  makeRoom(chart, x.axis, bottom);
  plot.append(svg("line", { class: "identity", x1: x.axis.from, y1: bottom, x2: x.axis.to, y2: TOP }));
  const look = slotClass(index);
  const most = Math.max(...entry.bins.map((bin) => bin.n));
  const wide = barWidth(entry.bins.map((bin) => x.axis.place(bin.confidence)));
  explorable(chart, entry.bins.map((bin) => {
    const px = x.axis.place(bin.confidence);
    const py = y.axis.place(bin.accuracy);
    const tall = (bin.n / most) * (FOOT - FOOT_AIR);
    const left = Math.min(x.axis.to - wide, Math.max(x.axis.from, px - wide / 2));
    const bar = { x: left, y: bottom + FOOT - tall, width: wide, height: tall };
    plot.append(
      upright("gap", px, y.axis.place(bin.confidence), py),
      upright(`whisker strong ${look}`, px, y.axis.place(bin.low), y.axis.place(bin.high)));
    chart.append(
      svg("rect", { class: `bar ${look}`, ...bar }),
      svg("circle", { class: `dot ${look}`, cx: px, cy: py, r: 3.5 }));
    return { px, py, group: "bins", label: spokenBin(bin), tip: () => binTip(entry, bin) };
  }));
  return chart;
}

/** @type {(look: string, x: number, y1: number, y2: number) => SVGElement} */
function upright(look, x, y1, y2) {
  return svg("line", { class: look, x1: x, x2: x, y1, y2 });
}

/**
 * As wide as the two nearest bins allow.
 * @type {(places: number[]) => number}
 */
function barWidth(places) {
  const gaps = places.toSorted((a, b) => a - b).map((place, i, all) => (i ? place - all[i - 1] : Infinity));
  return Math.max(2, Math.min(14, ...gaps) - 1);
}

/**
 * Moves the words of the x axis down, below the histogram.
 * @type {(chart: SVGSVGElement, axis: Axis, bottom: number) => void}
 */
function makeRoom(chart, axis, bottom) {
  for (const text of chart.querySelectorAll("text")) {
    const y = Number(text.getAttribute("y"));
    if (y > bottom + 8) text.setAttribute("y", String(y + FOOT));
  }
  chart.append(svg("line", { class: "axis", x1: axis.from, x2: axis.to, y1: bottom + FOOT, y2: bottom + FOOT }));
}

/** @type {(bin: ReliabilityBin) => string} */
function spokenBin(bin) {
  return `confidence ${number(bin.confidence, 1)} %, accuracy ${number(bin.accuracy, 1)} %, ${count(bin.n)} images`;
}

/** @type {(entry: CalibrationEntry, bin: ReliabilityBin) => Node[]} */
function binTip(entry, bin) {
  return tipContent(entry.model, entry.setting, [
    ["confidence", number(bin.confidence, 1)],
    ["accuracy", number(bin.accuracy, 1), interval(bin.low, bin.high, 1)],
    ["images", count(bin.n)],
  ]);
}
