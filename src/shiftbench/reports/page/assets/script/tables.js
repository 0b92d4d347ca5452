/** Tables that sort by any column, show a page of rows at a time, and can be saved with all their digits. */

import { breakable, el, isPrinting } from "./dom.js";
import { count } from "./format.js";
import { keepPlace } from "./place.js";
import { choose, chosen } from "./state.js";

/** @import { Order, Sortable, Table, TableColumn } from "./types.d.ts" */

/** Rows shown at a time; with many columns fewer, at most MOST_CELLS cells, so that sorting stays quick. */
const MOST_ROWS = 50;
const LEAST_ROWS = 20;
const MOST_CELLS = 5000;
/** Names up to this long stay on one line. */
const SHORT_NAME = 28;
/** The page of rows that each table shows; it outlives a redraw. */
/** @type {Map<string, number>} */
const pageOf = new Map();

/**
 * Columns: {key, heading, value(row), texts(row), bold(row), title, numeric, optional (left out where it is narrow),
 * low (best first is ascending)}. `value` sorts, a missing one always last; `texts` is what is shown, large and small.
 * The order is the reader's choice `sort.<id>`: a key, with a minus for descending.
 * @template Row
 * @param {{ id: string; label: string; order: string; rowClass?: (row: Row) => string }} options
 * @returns {Table<Row>}
 */
export function sortedTable({ id, label, order: first, rowClass = () => "" }) {
  const body = el("tbody");
  const head = el("tr");
  const box = el("div", { class: "table-box", tabindex: 0, role: "region", "aria-label": label },
    el("table", {}, el("thead", {}, head), body));
  const pager = el("div", { class: "pager" });
  const node = el("div", {}, box, pager);
  /** @type {Row[]} */
  let rows = [];
  /** @type {TableColumn<Row>[]} */
  let columns = [];

  /** @type {(column: TableColumn<Row>, order: Order) => void} */
  const sortBy = (column, order) => {
    const down = order.key === column.key ? !order.down : Boolean(column.numeric) && !column.low;
    pageOf.set(id, 0);
    choose({ [`sort.${id}`]: `${down ? "-" : ""}${column.key}` });
  };
  /** @type {(next: number) => void} */
  const turn = (next) => {
    pageOf.set(id, next);
    keepPlace(draw);
    box.scrollTop = 0;
  };
  const draw = () => {
    const order = readOrder(id, first);
    const shown = orderedRows(rows, columns, order);
    const size = Math.min(MOST_ROWS, Math.max(LEAST_ROWS, Math.floor(MOST_CELLS / columns.length)));
    const page = Math.min(pageOf.get(id) ?? 0, Math.max(0, Math.ceil(shown.length / size) - 1));
    const part = isPrinting() ? shown : shown.slice(page * size, (page + 1) * size);
    head.replaceChildren(...columns.map((column) => columnHeading(column, order, () => sortBy(column, order))));
    body.replaceChildren(...part.map((row) => el("tr", { class: rowClass(row) },
      columns.map((column, i) => tableCell(column, row, i === 0)))));
    if (!part.length) body.append(el("tr", {}, el("td", { colspan: columns.length }, "no matches")));
    pager.replaceChildren(...pages(shown.length, page, size, turn));
  };
  return {
    node,
    show(nextRows, nextColumns) {
      rows = nextRows;
      columns = nextColumns;
      draw();
    },
    rows: () => orderedRows(rows, columns, readOrder(id, first)),
  };
}

/**
 * The order that the reader chose for a table, or its first one.
 * @type {(id: string, first: string) => Order}
 */
export function readOrder(id, first) {
  const words = chosen(`sort.${id}`, first);
  return { key: words.replace(/^-/, ""), down: words.startsWith("-") };
}

/**
 * What a heading says to screen readers about the order.
 * @type {(column: { key: string }, order: Order) => "ascending" | "descending" | null}
 */
export function sortState(column, order) {
  if (column.key !== order.key) return null;
  return order.down ? "descending" : "ascending";
}

/** @type {(column: { key: string }, order: Order) => HTMLElement} */
export function sortArrow(column, order) {
  const arrow = { ascending: "▴", descending: "▾", none: "" }[sortState(column, order) ?? "none"];
  return el("span", { class: "arrow", "aria-hidden": "true" }, arrow);
}

/** @type {<Row>(column: TableColumn<Row>, order: Order, onSort: () => void) => HTMLElement} */
function columnHeading(column, order, onSort) {
  return el("th", { scope: "col", class: classOf(column), title: column.title, "aria-sort": sortState(column, order) },
    el("button", { type: "button", "data-key": column.key, on: { click: onSort } },
      el("span", {}, breakable(column.heading)), sortArrow(column, order)));
}

/** @type {<Row>(column: TableColumn<Row>, row: Row, isFirst: boolean) => HTMLElement} */
function tableCell(column, row, isFirst) {
  const [text, ...smaller] = column.texts ? column.texts(row) : [String(column.value(row) ?? "")];
  const long = text.length > SHORT_NAME;
  const large = long ? breakable(text) : text;
  const pick = column.onPick && (() => column.onPick?.(row));
  const content = [
    pick ? el("button", { type: "button", class: "link", on: { click: pick } }, large) : large,
    smaller.filter(Boolean).map((words) => el("small", {}, ` ${words}`)),
  ];
  const inside = column.bold?.(row) ? el("b", {}, content) : content;
  if (isFirst) return el("th", { scope: "row", class: long ? "long" : null }, inside);
  return el("td", { class: classOf(column) }, inside);
}

/** @type {<Row>(column: TableColumn<Row>) => string | null} */
function classOf(column) {
  return [column.numeric && "number", column.optional && "optional"].filter(Boolean).join(" ") || null;
}

/**
 * Rows by the order's column, equal ones as they came; without a value last, whichever way.
 * @type {<Row>(rows: Row[], columns: Sortable<Row>[], order: Order) => Row[]}
 */
export function orderedRows(rows, columns, order) {
  const column = columns.find((candidate) => candidate.key === order.key);
  if (!column) return rows;
  const sign = order.down ? -1 : 1;
  const keyed = rows.map((row) => ({ key: sortable(column.value(row)), row }));
  return keyed.sort(({ key: a }, { key: b }) => {
    if (a === null || b === null) return Number(a === null) - Number(b === null);
    return a < b ? -sign : a > b ? sign : 0;
  }).map(({ row }) => row);
}

/** @type {(value: string | number | null | undefined) => string | number | null} */
function sortable(value) {
  if (value === null || value === undefined || value === "") return null;
  return typeof value === "string" ? value.toLowerCase() : value;
}

/** @type {(total: number, page: number, size: number, turn: (to: number) => void) => HTMLElement[]} */
function pages(total, page, size, turn) {
  const last = Math.ceil(total / size) - 1;
  if (last < 1) return [];
  /** @type {(text: string, to: number) => HTMLElement} */
  const button = (text, to) =>
    el("button", { type: "button", disabled: to < 0 || to > last, on: { click: () => turn(to) } }, text);
  const range = `${count(page * size + 1)} to ${count(Math.min(total, (page + 1) * size))} of ${count(total)}`;
  return [button("‹ previous", page - 1), el("span", {}, range), button("next ›", page + 1)];
}
