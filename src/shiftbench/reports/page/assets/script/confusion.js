/** The confusion matrix: labels by predictions, each row in percent of its images. */

import { announce, breakable, el, styled } from "./dom.js";
import { number } from "./format.js";
import { heatColour, isDark } from "./palette.js";
import { hideTooltip, showTooltip, tipContent } from "./tooltip.js";

/** With more classes than this the cells have no room for numbers. */
const NUMBERED = 12;

/** @type {(classes: string[], matrix: number[][]) => HTMLElement[]} */
export function confusionMatrix(classes, matrix) {
  const dark = isDark();
  const small = classes.length > NUMBERED;
  const word = el("p", { class: "soft" }, "Rows are labels, columns predictions, in percent of the images of a label. "
    + "Point at a cell, or select it, to see its numbers.");
  const body = matrix.map((row, i) => {
    const of = row.reduce((sum, n) => sum + n, 0);
    const cells = row.map((n, j) => cell(classes, [i, j], n, of, { dark, small }));
    return el("tr", {}, el("th", { scope: "row" }, breakable(classes[i])), cells);
  });
  const heads = classes.map((name) => el("th", { scope: "col", class: "steep", title: name }, el("span", {}, name)));
  const table = el("table", { class: small ? "small" : null, "aria-label": "Confusion matrix" },
    el("thead", {}, el("tr", {}, el("th", { scope: "col", class: "corner" }, "label"), heads)),
    el("tbody", {}, body));
  answering(table);
  const label = "Confusion matrix, scrollable";
  const box = { class: "table-box heat confusion", tabindex: 0, role: "region", "aria-label": label };
  return [word, el("div", box, table)];
}

/**
 * @type {(classes: string[], at: [number, number], n: number, of: number, options: { dark: boolean; small: boolean })
 *   => HTMLElement}
 */
function cell(classes, [i, j], n, of, { dark, small }) {
  const share = of ? n / of : 0;
  const text = !small && n ? number(share, share < 0.1 ? 1 : 0) : "";
  const look = i === j ? "heat-cell diagonal" : "heat-cell";
  const about = { "data-label": classes[i], "data-as": classes[j], "data-n": n, "data-of": of };
  const node = el("td", { class: look, ...about }, text);
  if (!n) return node;
  const { background, ink } = heatColour(share, dark);
  return styled(node, { background, color: ink });
}

/**
 * One listener for all cells: there may be 2,500.
 * @type {(table: HTMLTableElement) => void}
 */
function answering(table) {
  /** @type {(event: Event) => void} */
  const show = (event) => {
    const node = /** @type {HTMLElement} */ (event.target);
    const { label, as, n, of } = node.dataset;
    if (label === undefined) return hideTooltip();
    const box = node.getBoundingClientRect();
    const what = `${label} classified as ${as}`;
    const numbers = `${n} of ${of} images`;
    showTooltip(tipContent(what, numbers, []), box.right - 4, box.top + box.height / 2);
    if (event.type === "click") announce(`${what}: ${numbers}`);
  };
  table.addEventListener("pointerover", show);
  table.addEventListener("click", show);
  table.addEventListener("pointerleave", hideTooltip);
}
