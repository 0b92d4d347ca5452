/** Keeps the reader's place while parts of the page are drawn anew: focus, cursor, scrolling, what was opened. */

import { byId } from "./dom.js";

/** @import { Interval } from "./types.d.ts" */

/** @typedef {{ node: Element; path: number[]; focused: boolean; cursor: number | null; scroll: Interval }} Trace */

/**
 * Draws, then restores the place, as far as the new nodes have such a one.
 * @type {(draw: () => void) => void}
 */
export function keepPlace(draw) {
  const root = byId("sections");
  const kept = [...root.querySelectorAll(":focus, details[open], .table-box, .ticklist-body")];
  const traces = kept.map((node) => /** @type {Trace} */ ({
    node,
    path: pathTo(node, root),
    focused: node === document.activeElement,
    cursor: node instanceof HTMLInputElement && node.type === "search" ? node.selectionStart : null,
    scroll: [node.scrollLeft, node.scrollTop],
  }));
  const left = scrollX;
  const top = scrollY;
  draw();
  for (const trace of traces) if (!trace.node.isConnected) restore(trace, root);
  if (scrollX !== left || scrollY !== top) scrollTo({ left, top, behavior: "instant" });
}

/**
 * The node that now stands where another stood takes over from it.
 * @type {(trace: Trace, root: Element) => void}
 */
function restore({ node, path, focused, cursor, scroll }, root) {
  const next = path.reduce((here, step) => here?.children[step], /** @type {Element | undefined} */ (root));
  if (!next || next.tagName !== node.tagName) return;
  if (next instanceof HTMLDetailsElement) next.open = true;
  next.scrollTo(...scroll);
  if (!focused) return;
  if (next instanceof HTMLElement || next instanceof SVGElement) next.focus({ preventScroll: true });
  if (next instanceof HTMLInputElement && cursor !== null) next.setSelectionRange(cursor, cursor);
}

/** @type {(node: Element, root: Element) => number[]} */
function pathTo(node, root) {
  if (node === root || !node.parentElement) return [];
  return [...pathTo(node.parentElement, root), [...node.parentElement.children].indexOf(node)];
}
