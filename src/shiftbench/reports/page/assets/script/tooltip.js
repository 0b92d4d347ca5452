/** The one tooltip of the page. */

import { byId, el, styled } from "./dom.js";

/** @import { TipRow } from "./types.d.ts" */

const GAP = 14;

/**
 * Shows nodes beside a place of the window, on the side where there is room.
 * @type {(content: Node[], left: number, top: number) => void}
 */
export function showTooltip(content, left, top) {
  const tip = byId("tooltip");
  tip.replaceChildren(...content);
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const right = left + GAP + width <= innerWidth - 4;
  const x = right ? left + GAP : Math.max(4, left - GAP - width);
  const y = Math.min(Math.max(4, top - height / 2), Math.max(4, innerHeight - height - 4));
  styled(tip, { left: `${x}px`, top: `${right || x > 4 ? y : Math.min(top + GAP, innerHeight - height - 4)}px` });
}

export function hideTooltip() {
  byId("tooltip").hidden = true;
}

/**
 * A heading, a line below it, and rows [what, number, interval or remark].
 * @type {(heading: string, remark: string, rows: (TipRow | null | false)[]) => HTMLElement[]}
 */
export function tipContent(heading, remark, rows) {
  const present = rows.filter((row) => row !== null && row !== false);
  return [
    el("strong", {}, heading),
    ...(remark ? [el("div", { class: "soft" }, remark)] : []),
    el("table", {}, present.map(([what, value, small]) =>
      el("tr", {}, el("th", { scope: "row" }, what), el("td", {}, value), el("td", { class: "soft" }, small ?? "")))),
  ];
}
