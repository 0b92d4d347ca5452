/** The heat map of corruption errors: models by corruptions, one cell per error; selecting a cell shows its curve. */

import { announce, breakable, el, isPrinting, styled } from "./dom.js";
import { estimateTexts, marked, MISSING, number, spaced } from "./format.js";
import { heatColour, isDark } from "./palette.js";
import { choose, chosen } from "./state.js";
import { orderedRows, readOrder, sortArrow, sortState } from "./tables.js";
import { hideTooltip, showTooltip, tipContent } from "./tooltip.js";

/** @import { CorruptionFamily, CorruptionRow, Estimate, Interval, Order, Sortable } from "./types.d.ts" */

/**
 * @typedef {Sortable<CorruptionRow> & { heading: string; cell(row: CorruptionRow): Estimate | null }} HeatColumn
 * @typedef {(value: number) => { background: string; ink: string }} Colouring
 */

const MOST_MODELS = 60;
const SCALE_STEPS = 24;
/** @type {Record<string, number[]>} */
const WAYS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

/**
 * The table of a family, and a button for the rest of its rows where there are many.
 * @type {(family: CorruptionFamily) => HTMLElement[]}
 */
export function heatMap(family) {
  const order = readOrder("heat", "mce");
  const { summaries, types } = columnsOf(family);
  const columns = [...summaries, ...types];
  const rows = orderedRows(family.rows, columns, order);
  const shown = isPrinting() || chosen("rows") === "all" ? rows : rows.slice(0, MOST_MODELS);
  const colour = colouring(family);
  const table = el("table", { "aria-label": "Errors by model and corruption" },
    el("thead", {}, groupRow(family, summaries.length), el("tr", {},
      el("th", { scope: "col", class: "corner" }, "model"),
      summaries.map((column) => headingOf(column, order, "number")),
      types.map((column) => headingOf(column, order, "steep")))),
    el("tbody", {}, shown.map((row) => el("tr", {},
      el("th", { scope: "row" }, breakable(marked(row.model))),
      summaries.map((column) => summaryCell(column.cell(row))),
      types.map((column) => heatCell(row, column.key, column.cell(row), colour))))));
  walkable(table);
  if (shown.length === rows.length) return [table];
  const showAll = () => choose({ rows: "all" });
  return [table, el("button", { type: "button", on: { click: showAll } }, `all ${rows.length} models`)];
}

/** @type {(family: CorruptionFamily) => { summaries: HeatColumn[]; types: HeatColumn[] }} */
function columnsOf(family) {
  /** @type {(key: string, heading: string, cell: HeatColumn["cell"]) => HeatColumn} */
  const column = (key, heading, cell) => ({ key, heading, cell, value: (row) => cell(row)?.[0] ?? null });
  const relative = column("relative", family.relative_mean, (row) => row.relative_mce);
  return {
    summaries: [
      column("mce", family.mean, (row) => row.mce),
      ...(family.rows.some((row) => row.relative_mce) ? [relative] : []),
    ],
    types: family.corruptions.map((name, at) => column(name, spaced(name), (row) => row.ce[at])),
  };
}

/** @type {(column: HeatColumn, order: Order, look: string) => HTMLElement} */
function headingOf(column, order, look) {
  const down = order.key === column.key && !order.down;
  const sort = () => choose({ "sort.heat": `${down ? "-" : ""}${column.key}` });
  return el("th", { scope: "col", class: look, "aria-sort": sortState(column, order) },
    el("button", { type: "button", "data-key": column.key, on: { click: sort } },
      el("span", {}, column.heading), sortArrow(column, order)));
}

/**
 * Noise, blur, weather, digital: one heading over the types of each.
 * @type {(family: CorruptionFamily, before: number) => HTMLElement}
 */
function groupRow(family, before) {
  /** @type {{ group: string; n: number }[]} */
  const runs = [];
  for (const group of family.groups) {
    const last = runs.at(-1);
    if (last?.group === group) last.n++;
    else runs.push({ group, n: 1 });
  }
  return el("tr", { class: "groups" }, el("td", { colspan: before + 1 }),
    runs.map(({ group, n }) => el("th", { scope: "colgroup", colspan: n }, group)));
}

/** @type {(cell: Estimate | null) => HTMLElement} */
function summaryCell(cell) {
  const [value, ends] = estimateTexts(cell);
  return el("td", { class: "number" }, el("b", {}, value), el("small", {}, ` ${ends}`));
}

/** @type {(row: CorruptionRow, corruption: string, cell: Estimate | null, colour: Colouring) => HTMLElement} */
function heatCell(row, corruption, cell, colour) {
  if (!cell) return el("td", { class: "number soft" }, MISSING);
  const [value, ends] = estimateTexts(cell);
  const current = chosen("model") === row.model && chosen("corruption") === corruption;
  const showTip = () => {
    const box = button.getBoundingClientRect();
    const content = tipContent(row.model, spaced(corruption), [["error", value, ends]]);
    showTooltip(content, box.right - 8, box.top + box.height / 2);
  };
  const pick = () => {
    choose({ model: current ? null : row.model, corruption });
    announce(`${row.model}, ${spaced(corruption)}: ${value}`);
  };
  const button = el("button", {
    type: "button", tabindex: -1, "aria-pressed": String(current),
    "aria-label": `${row.model}, ${spaced(corruption)}: ${value} ${ends}`,
    on: {
      click: pick,
      pointerenter: showTip,
      pointerleave: hideTooltip,
      focus: () => button.matches(":focus-visible") && showTip(),
      blur: hideTooltip,
    },
  }, number(cell[0], 1));
  const { background, ink } = colour(cell[0]);
  return styled(el("td", { class: "heat-cell", "data-corruption": corruption }, button), { background, color: ink });
}

/**
 * One tab stop for all cells; arrow keys go from one to the next.
 * @type {(table: HTMLTableElement) => void}
 */
function walkable(table) {
  const { rows } = table.tBodies[0];
  /** @type {NodeListOf<HTMLElement>} */
  const buttons = table.querySelectorAll(".heat-cell button");
  const first = [...buttons].find((button) => button.ariaPressed === "true") ?? buttons[0];
  if (first) first.tabIndex = 0;
  table.addEventListener("keydown", (event) => {
    const way = WAYS[event.key];
    const from = /** @type {HTMLElement} */ (event.target);
    const cell = /** @type {HTMLTableCellElement | null} */ (from.closest(".heat-cell"));
    if (!way || !cell) return;
    event.preventDefault();
    const next = nextButton(rows, cell, way);
    if (!next) return;
    from.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
}

/**
 * The next cell in a direction that has a number; missing ones are passed over.
 * @type {(rows: HTMLCollectionOf<HTMLTableRowElement>, cell: HTMLTableCellElement, way: number[])
 *   => HTMLElement | null}
 */
function nextButton(rows, cell, [down, across]) {
  const line = /** @type {HTMLTableRowElement} */ (cell.parentElement);
  let row = line.sectionRowIndex;
  let column = cell.cellIndex;
  for (;;) {
    row += down;
    column += across;
    const next = rows[row]?.cells[column];
    if (!next) return null;
    if (next.matches(".heat-cell")) return next.querySelector("button");
  }
}

/** @type {(family: CorruptionFamily) => Interval} */
function errorRange(family) {
  const values = family.rows.flatMap((row) => row.ce.flatMap((cell) => (cell ? [cell[0]] : [])));
  return [Math.min(...values), Math.max(...values)];
}

/** @type {(family: CorruptionFamily) => Colouring} */
function colouring(family) {
  const [low, high] = errorRange(family);
  const dark = isDark();
  return (value) => heatColour(high > low ? (value - low) / (high - low) : 0, dark);
}

/**
 * The colours from the lowest to the highest error.
 * @type {(family: CorruptionFamily) => HTMLElement[]}
 */
export function heatScale(family) {
  const [low, high] = errorRange(family);
  if (!Number.isFinite(low)) return [];
  const dark = isDark();
  const colours = Array.from({ length: SCALE_STEPS }, (_, i) => heatColour(i / (SCALE_STEPS - 1), dark).background);
  return [
    el("span", {}, number(low, 1)),
    el("div", { "aria-hidden": "true" }, colours.map((background) => styled(el("i"), { background }))),
    el("span", {}, number(high, 1)),
  ];
}
