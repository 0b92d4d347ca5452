/** Effective and relative robustness of every model, as a table. */

import { searchField } from "./controls.js";
import { el } from "./dom.js";
import { categoryName, estimateTexts, countOf, digits, interval, marked, matches, number } from "./format.js";
import { saveCsvButton } from "./save.js";
import { sortedTable } from "./tables.js";

/** @import { CsvRow, Point, SettingEntry, Study, Table, TableColumn } from "./types.d.ts" */

/** @typedef {{ value: number; low: number | null; high: number | null }} Distance */

/**
 * The block below the plot; `show` fills it from a study and a search.
 * @type {() => { node: HTMLElement; show(study: Study, query: string): void }}
 */
export function robustnessTable() {
  const counter = el("p", { class: "soft", role: "status" });
  const search = searchField("Find a model in the table", "");
  /** @type {Table<Point>} */
  const table = sortedTable({
    id: "robustness", label: "Effective and relative robustness", order: "-rho",
    rowClass: (point) => (point.own ? "own" : ""),
  });
  const save = saveCsvButton("robustness", () => robustnessCsv(table.rows()));
  const head = el("div", { class: "figure-head" },
    el("h2", {}, "Every model"), el("div", { class: "saves" }, search.input, save));
  return {
    node: el("section", { class: "block" }, head, counter, table.node),
    show(study, query) {
      const rows = study.points.filter((point) => !query || matches(point.name, query));
      const all = countOf(study.points.length, "model");
      counter.textContent = query ? `${rows.length} of ${all} match “${query}”` : all;
      search.set(query);
      table.show(rows, robustnessColumns(study));
    },
  };
}

/** @type {(study: Study) => TableColumn<Point>[]} */
function robustnessColumns(study) {
  const { xSetting, ySetting } = study;
  const rho = "effective robustness: y minus the line, in percentage points";
  /** @type {TableColumn<Point>[]} */
  const columns = [
    { key: "model", heading: "model", value: (point) => point.name, texts: (point) => [marked(point.name)] },
    { key: "category", heading: "category", optional: true, value: (point) => categoryName(point.category) },
    axisColumn("x", xSetting),
    axisColumn("y", ySetting),
    distanceColumn(study, "rho", "ρ", rho, ({ effective }) => effective && { ...effective, value: effective.rho }),
  ];
  if (!study.points.some((point) => point.relative)) return columns;
  const tau = "relative robustness: y minus that of the base model, in percentage points";
  return [
    ...columns,
    distanceColumn(study, "tau", "τ", tau, ({ relative }) => relative && { ...relative, value: relative.tau }),
    { key: "base", heading: "base model", value: (point) => point.baseModel },
  ];
}

/** @type {(key: "x" | "y", setting: SettingEntry) => TableColumn<Point>} */
function axisColumn(key, setting) {
  return {
    key, heading: setting.name, title: `${key} axis`, numeric: true,
    value: (point) => point[key][0],
    texts: (point) => estimateTexts(point[key], setting.unit),
  };
}

/**
 * rho or tau, as `distance` finds it.
 * @type {(study: Study, key: string, heading: string, title: string, distance: (point: Point)
 *   => Distance | null) => TableColumn<Point>}
 */
function distanceColumn({ xSetting, ySetting: { unit } }, key, heading, title, distance) {
  const signed = { signed: true };
  return {
    key, heading, title, numeric: true,
    value: (point) => distance(point)?.value ?? null,
    texts: (point) => {
      const value = distance(point);
      const places = Math.min(digits(point.x[3], xSetting.unit), digits(point.y[3], unit));
      if (!value) return [""];
      return [number(value.value, places, unit, signed), interval(value.low, value.high, places, unit, signed)];
    },
  };
}

/** @type {(points: Point[]) => CsvRow[]} */
function robustnessCsv(points) {
  const header = [
    "model", "category", "x", "x_low", "x_high", "y", "y_low", "y_high", "line", "rho", "rho_low", "rho_high",
    "tau", "tau_low", "tau_high", "base_model",
  ];
  /** @type {(point: Point) => CsvRow} */
  const row = ({ name, category, x, y, effective, relative, baseModel }) => [
    name, category, ...x.slice(0, 3), ...y.slice(0, 3),
    effective?.expected, effective?.rho, effective?.low, effective?.high,
    relative?.tau, relative?.low, relative?.high, baseModel,
  ];
  return [header, ...points.map(row)];
}
