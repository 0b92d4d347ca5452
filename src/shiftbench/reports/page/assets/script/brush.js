/** Drag over a plot to zoom in; Escape or a double click shows everything again; plus and minus do it by keyboard. */

import { svg } from "./dom.js";
import { inChart } from "./explore.js";

/** @import { Axis, Interval, Limits, Target } from "./types.d.ts" */

/** Shorter than this, in pixels, a drag is a click. */
const LEAST_DRAG = 6;
/** @type {Record<string, number>} */
const FACTORS = { "+": 0.5, "=": 0.5, "-": 2 };

/**
 * `setZoom` gets limits {x, y} on the scale, or null. Returns the keys it takes, and whether a drag goes on.
 * @type {(chart: SVGSVGElement, x: Axis, y: Axis, options: { setZoom: (limits: Limits | null)
 *   => void; isZoomed: boolean }) => {
 *   isDragging(): boolean; onKey(event: KeyboardEvent, target: Target | null): boolean }}
 */
export function addBrush(chart, x, y, { setZoom, isZoomed }) {
  const mark = svg("rect", { class: "brush", visibility: "hidden", "data-screen-only": "" });
  chart.append(mark);
  /** @type {Interval | null} */
  let from = null;
  let dragging = false;

  /** @type {(start: Interval, event: PointerEvent) => { x: number; y: number; width: number; height: number }} */
  const boxTo = (start, event) => {
    /** @type {(place: Interval) => Interval} */
    const within = ([a, b]) => [Math.min(x.to, Math.max(x.from, a)), Math.min(y.from, Math.max(y.to, b))];
    const [[x1, y1], [x2, y2]] = [within(start), within(inChart(chart, event))];
    return { x: Math.min(x1, x2), y: Math.min(y1, y2), width: Math.abs(x2 - x1), height: Math.abs(y2 - y1) };
  };
  const stop = () => {
    from = null;
    dragging = false;
    mark.setAttribute("visibility", "hidden");
  };
  chart.addEventListener("pointerdown", (event) => {
    if (event.button === 0) from = inChart(chart, event);
  });
  chart.addEventListener("pointermove", (event) => {
    if (!from) return;
    const box = boxTo(from, event);
    if (!dragging && box.width < LEAST_DRAG && box.height < LEAST_DRAG) return;
    if (!dragging) chart.setPointerCapture(event.pointerId);
    dragging = true;
    for (const [name, value] of Object.entries(box)) mark.setAttribute(name, String(value));
    mark.setAttribute("visibility", "visible");
  });
  chart.addEventListener("pointerup", (event) => {
    const box = from && dragging ? boxTo(from, event) : null;
    stop();
    if (!box || box.width < LEAST_DRAG || box.height < LEAST_DRAG) return;
    setZoom({
      x: [x.scaledAt(box.x), x.scaledAt(box.x + box.width)],
      y: [y.scaledAt(box.y + box.height), y.scaledAt(box.y)],
    });
  });
  chart.addEventListener("pointercancel", stop);
  chart.addEventListener("dblclick", () => isZoomed && setZoom(null));
  return {
    isDragging: () => dragging,
    /** Whether the key was one of ours; zooms around the target. */
    onKey(event, target) {
      const factor = FACTORS[event.key];
      if (event.key === "Escape" && isZoomed) setZoom(null);
      else if (factor && target) setZoom({ x: around(x, target.px, factor), y: around(y, target.py, factor) });
      else return false;
      return true;
    },
  };
}

/** @type {(axis: Axis, pixel: number, factor: number) => Interval} */
function around(axis, pixel, factor) {
  const half = ((axis.high - axis.low) * factor) / 2;
  return [axis.scaledAt(pixel) - half, axis.scaledAt(pixel) + half];
}
