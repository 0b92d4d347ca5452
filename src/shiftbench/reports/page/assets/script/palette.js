/**
 * Colours that colour-blind readers can tell apart (Okabe and Ito 2008), each with a shape and a dash of its own, so
 * that nothing hangs on colour alone. The colours themselves are in the style sheet, for light and for dark.
 */

import { svg } from "./dom.js";

/** @import { Interval } from "./types.d.ts" */

const SLOTS = 8;
const SHAPES = ["circle", "square", "triangle", "diamond", "down", "cross", "pentagon", "star"];
const DASHES = ["", "6 3", "2 2", "8 3 2 3", "4 4", "1 3", "10 4", "6 2 2 2 2 2"];
/**
 * The workspace's own models of no known category stand out; other models of no known category do not.
 * @type {Record<string, number>}
 */
const KNOWN = { standard: 0, robustness_intervention: 1, more_data: 2, own: 3, "": 7 };
const FREE_SLOTS = [4, 5, 6];

/**
 * Categories in their order, each with its slot: the known ones always look the same.
 * @type {(categories: string[]) => Map<string, number>}
 */
export function categorySlots(categories) {
  const slots = new Map();
  let next = 0;
  /** @type {(category: string) => number} */
  const rank = (category) => (category === "" ? SLOTS + 1 : KNOWN[category] ?? SLOTS);
  const order = [...new Set(categories)].sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
  for (const category of order) slots.set(category, KNOWN[category] ?? FREE_SLOTS[next++ % FREE_SLOTS.length]);
  return slots;
}

/**
 * The class that gives a slot's colour.
 * @type {(index: number) => string}
 */
export function slotClass(index) {
  return `slot-${index % SLOTS}`;
}

/**
 * Lines of many models: another dash with each round of colours.
 * @type {(index: number) => string}
 */
export function slotDash(index) {
  return DASHES[Math.floor(index / SLOTS) % DASHES.length];
}

/**
 * A marker's path around (0, 0), all shapes about equal in area.
 * @type {(slot: number, size: number) => string}
 */
export function markerPath(slot, size) {
  const r = size;
  switch (SHAPES[slot % SLOTS]) {
    case "square": return polygon([[-1, -1], [1, -1], [1, 1], [-1, 1]], r * 0.88);
    case "triangle": return polygon([[0, -1.25], [1.12, 0.75], [-1.12, 0.75]], r);
    case "diamond": return polygon([[0, -1.3], [1.1, 0], [0, 1.3], [-1.1, 0]], r);
    case "down": return polygon([[0, 1.25], [1.12, -0.75], [-1.12, -0.75]], r);
    case "cross": return polygon(crossCorners(), r * 1.15);
    case "pentagon": return polygon(spokes(5, () => 1.15), r);
    case "star": return polygon(spokes(10, (i) => (i % 2 ? 0.6 : 1.5)), r);
    default: return `M${-r},0a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0Z`;
  }
}

/** @type {() => Interval[]} */
function crossCorners() {
  const a = 0.36;
  const b = 1;
  return [[-a, -b], [a, -b], [a, -a], [b, -a], [b, a], [a, a], [a, b], [-a, b], [-a, a], [-b, a], [-b, -a], [-a, -a]];
}

/** @type {(n: number, radius: (i: number) => number) => Interval[]} */
function spokes(n, radius) {
  return Array.from({ length: n }, (_, i) => {
    const angle = (2 * Math.PI * i) / n - Math.PI / 2;
    return [radius(i) * Math.cos(angle), radius(i) * Math.sin(angle)];
  });
}

/** @type {(corners: Interval[], scale: number) => string} */
function polygon(corners, scale) {
  return `M${corners.map(([x, y]) => `${(x * scale).toFixed(2)},${(y * scale).toFixed(2)}`).join("L")}Z`;
}

/**
 * A marker as a small graphic for legends.
 * @type {(slot: number) => SVGElement}
 */
export function markerSwatch(slot) {
  return svg("svg", { class: "swatch", viewBox: "-8 -8 16 16", width: 14, height: 14, "aria-hidden": "true" },
    svg("path", { class: `marker ${slotClass(slot)}`, d: markerPath(slot, 5) }));
}

/**
 * A line as a small graphic for legends.
 * @type {(index: number) => SVGElement}
 */
export function lineSwatch(index) {
  const look = { class: `curve ${slotClass(index)}`, "stroke-dasharray": slotDash(index) };
  return svg("svg", { class: "swatch", viewBox: "0 0 24 10", width: 24, height: 10, "aria-hidden": "true" },
    svg("line", { ...look, x1: 1, x2: 23, y1: 5, y2: 5 }));
}

/**
 * A sequential colour of even steps in lightness (OKLCH), pale to dark on paper and dark to bright on a dark page:
 * order is seen without seeing hue. `share` runs from 0 to 1.
 * @type {(share: number, dark: boolean) => { background: string; ink: string }}
 */
export function heatColour(share, dark) {
  const t = Math.min(1, Math.max(0, share));
  const lightness = dark ? 0.3 + 0.55 * t : 0.97 - 0.57 * t;
  const chroma = dark ? 0.06 + 0.09 * t : 0.025 + 0.14 * t * (1.35 - 0.6 * t);
  const hue = dark ? 330 + 110 * t : 95 - 85 * t;
  // Where black and white stand out from it alike.
  const ink = lightness > 0.57 ? "#000" : "#fff";
  return { background: `oklch(${lightness.toFixed(3)} ${chroma.toFixed(3)} ${(hue % 360).toFixed(0)})`, ink };
}

/**
 * Whether the page is dark just now, by the reader's choice or the system's.
 * @type {() => boolean}
 */
export function isDark() {
  const theme = document.documentElement.dataset.theme;
  if (matchMedia("print").matches) return false;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}
