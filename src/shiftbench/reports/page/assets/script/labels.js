/** Names beside points, placed so that they cover neither each other nor the points that they name. */

/**
 * @typedef {{ px: number; py: number }} Place
 * @typedef {Place & { text: string }} Label
 * @typedef {{ left: number; right: number; top: number; bottom: number }} Bounds
 * @typedef {{ x: number; y: number; width: number; height: number; far: number }} Box
 */

const HEIGHT = 15;
/** Slantwise first: error bars go straight. */
const AROUND = [[1, -0.9], [1, 0.9], [-1, -0.9], [-1, 0.9], [1, 0], [-1, 0], [0, -1], [0, 1]];
const DISTANCES = [11, 24, 40, 58];

/**
 * Items {px, py, text}, bounds {left, right, top, bottom}, obstacles {px, py}: the same items, each with its box.
 * Greedy: every label takes the nearest place that is free, or the least crowded one.
 * @type {(items: Label[], bounds: Bounds, obstacles: Place[]) => (Label & { box: Box })[]}
 */
export function placeLabels(items, bounds, obstacles) {
  const measure = /** @type {CanvasRenderingContext2D} */ (document.createElement("canvas").getContext("2d"));
  measure.font = "600 12px system-ui, sans-serif";
  /** @type {Box[]} */
  const taken = [];
  return items.map((item) => {
    const width = measure.measureText(item.text).width + 6;
    const boxes = DISTANCES.flatMap((distance) => AROUND.map((way) => boxAt(item, width, way, distance)));
    const scored = boxes.map((candidate) => ({ box: candidate, cost: cost(candidate, bounds, taken, obstacles) }));
    const { box } = scored.reduce((best, next) => (next.cost < best.cost ? next : best));
    taken.push(box);
    return { ...item, box };
  });
}

/** @type {(item: Place, width: number, way: number[], distance: number) => Box} */
function boxAt({ px, py }, width, [dx, dy], distance) {
  const x = px + dx * distance + (dx > 0 ? 0 : dx < 0 ? -width : -width / 2);
  const y = py + dy * distance - HEIGHT / 2;
  return { x, y, width, height: HEIGHT, far: distance };
}

/** @type {(box: Box, bounds: Bounds, taken: Box[], obstacles: Place[]) => number} */
function cost(box, bounds, taken, obstacles) {
  const out = Math.max(0, bounds.left - box.x) + Math.max(0, box.x + box.width - bounds.right)
    + Math.max(0, bounds.top - box.y) + Math.max(0, box.y + box.height - bounds.bottom);
  const covered = taken.reduce((sum, other) => sum + overlap(box, other), 0);
  const points = obstacles.filter((p) => p.px > box.x - 4 && p.px < box.x + box.width + 4
    && p.py > box.y - 3 && p.py < box.y + box.height + 3).length;
  return out * 50 + covered * 20 + points * 60 + box.far;
}

/** @type {(a: Box, b: Box) => number} */
function overlap(a, b) {
  const wide = Math.min(a.x + a.width, b.x + b.width) - Math.max(a.x, b.x);
  const high = Math.min(a.y + a.height, b.y + b.height) - Math.max(a.y, b.y);
  return wide > 0 && high > 0 ? wide * high : 0;
}
