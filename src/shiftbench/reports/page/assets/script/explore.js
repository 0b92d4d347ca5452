/**
 * Walking over the points of a chart: by mouse or finger to the nearest one, by arrow keys from one to the next.
 * The point is ringed, its numbers are shown, and screen readers hear its label.
 */

import { announce, byId, svg } from "./dom.js";
import { hideTooltip, showTooltip } from "./tooltip.js";

/** @import { Exploring, Target } from "./types.d.ts" */

/** How far, in pixels, a pointer may be from a point that it means. */
const REACH = 28;

/**
 * Targets: {px, py, group, label, tip: () => nodes}, in the chart's own units. `start` is where the keyboard begins,
 * `onEnter` hears of every target, `onKey` may take a key for itself, `paused` stops the pointer.
 * @type {<T extends Target>(chart: SVGSVGElement, targets: T[], options?: Exploring<T>) => void}
 */
export function explorable(chart, targets, options = {}) {
  const { start = null, onEnter, onKey = () => false, paused = () => false } = options;
  const ring = svg("circle", { class: "ring", r: 9, visibility: "hidden", "data-screen-only": "" });
  chart.append(ring);
  let current = start;

  /** @type {(target: (typeof targets)[number], options?: { quiet?: boolean }) => void} */
  const enter = (target, { quiet = false } = {}) => {
    if (target === current && !byId("tooltip").hidden) return;
    current = target;
    ring.setAttribute("cx", String(target.px));
    ring.setAttribute("cy", String(target.py));
    ring.setAttribute("visibility", "visible");
    const [left, top] = onScreen(chart, target);
    showTooltip(target.tip(), left, top);
    if (!quiet) announce(target.label);
    onEnter?.(target);
  };
  const leave = () => {
    ring.setAttribute("visibility", "hidden");
    hideTooltip();
  };
  /** @type {(event: PointerEvent) => void} */
  const follow = (event) => {
    if (paused()) return leave();
    const near = nearest(targets, ...inChart(chart, event), REACH);
    if (near) enter(near, { quiet: true });
    else leave();
  };

  chart.addEventListener("pointermove", follow);
  chart.addEventListener("pointerdown", follow);
  // A finger leaves as soon as it is lifted, and its reader wants to read.
  chart.addEventListener("pointerleave", (event) => event.pointerType !== "touch" && leave());
  chart.addEventListener("focus", () => {
    if (targets.length && chart.matches(":focus-visible")) enter(current ?? first(targets));
  });
  chart.addEventListener("blur", leave);
  chart.addEventListener("keydown", (event) => {
    if (onKey(event, current)) return event.preventDefault();
    const next = targets.length ? step(targets, current ?? first(targets), event.key) : null;
    if (!next) return;
    event.preventDefault();
    enter(next);
  });
}

/**
 * Where an event is, in the chart's own units.
 * @type {(chart: SVGSVGElement, event: MouseEvent) => [number, number]}
 */
export function inChart(chart, event) {
  const box = chart.getBoundingClientRect();
  const zoom = chart.viewBox.baseVal.width / box.width;
  return [(event.clientX - box.left) * zoom, (event.clientY - box.top) * zoom];
}

/** @type {(chart: SVGSVGElement, target: Target) => [number, number]} */
function onScreen(chart, target) {
  const box = chart.getBoundingClientRect();
  const zoom = box.width / chart.viewBox.baseVal.width;
  return [box.left + target.px * zoom, box.top + target.py * zoom];
}

/** @type {<T extends Target>(targets: T[], x: number, y: number, reach: number) => T | null} */
function nearest(targets, x, y, reach) {
  /** @type {(typeof targets)[number] | null} */
  let best = null;
  let least = reach;
  for (const target of targets) {
    const distance = Math.hypot(target.px - x, target.py - y);
    if (distance < least) {
      best = target;
      least = distance;
    }
  }
  return best;
}

/** @type {<T extends Target>(targets: T[]) => T} */
function first(targets) {
  return targets.reduce((a, b) => (b.px < a.px ? b : a));
}

/**
 * The target that a key leads to: along the group sideways, to another group or height up and down.
 * @type {<T extends Target>(targets: T[], from: T, key: string) => T | null}
 */
function step(targets, from, key) {
  const same = targets.filter((target) => target.group === from.group);
  if (key === "Home" || key === "End") return same.toSorted((a, b) => a.px - b.px).at(key === "Home" ? 0 : -1) ?? null;
  if (key === "ArrowLeft" || key === "ArrowRight") return neighbour(same, from, "px", key === "ArrowRight" ? 1 : -1);
  if (key !== "ArrowUp" && key !== "ArrowDown") return null;
  const column = same.length === targets.length ? same : targets.filter((target) => Math.abs(target.px - from.px) < 1);
  return neighbour(column, from, "py", key === "ArrowDown" ? 1 : -1);
}

/** @type {<T extends Target>(targets: T[], from: T, along: "px" | "py", direction: number) => T} */
function neighbour(targets, from, along, direction) {
  const order = targets.toSorted((a, b) => a[along] - b[along]);
  return order[Math.min(order.length - 1, Math.max(0, order.indexOf(from) + direction))];
}
