/** Effective and relative robustness of every model, as a table. */

import { searchField } from "./controls.js";
import { el } from "./dom.js";
import { categoryName, cellTexts, countOf, digits, interval, matches, number } from "./format.js";
import { saveCsvButton } from "./save.js";
import { sortedTable } from "./tables.js";

/** The block below the plot; `show` fills it from a study and a search. */
export function robustnessTable() {
  const counter = el("p", { class: "soft", role: "status" });
  const search = searchField("Find a model in the table", "");
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
      const known = study.points.filter((point) => point.known);
      const rows = known.filter((point) => !query || matches(point.name, query));
      const all = countOf(known.length, "model");
      counter.textContent = query ? `${rows.length} of ${all} match “${query}”` : all;
      search.set(query);
      table.show(rows, robustnessColumns(study));
    },
  };
}

function robustnessColumns(study) {
  const { xSetting, ySetting } = study;
  const rho = "effective robustness: y minus the line, in percentage points";
  const columns = [
    { key: "model", heading: "model", value: (point) => point.name },
    { key: "category", heading: "category", optional: true, value: (point) => categoryName(point.category) },
    axisColumn("x", xSetting),
    axisColumn("y", ySetting),
    distanceColumn(study, "rho", "ρ", rho, "effective"),
  ];
  if (!study.points.some((point) => point.relative)) return columns;
  const tau = "relative robustness: y minus that of the base model, in percentage points";
  return [
    ...columns,
    distanceColumn(study, "tau", "τ", tau, "relative"),
    { key: "base", heading: "base model", value: (point) => point.baseModel },
  ];
}

function axisColumn(key, setting) {
  return {
    key, heading: setting.name, title: `${key} axis`, numeric: true,
    value: (point) => point[key][0],
    texts: (point) => cellTexts(point[key], setting.unit),
  };
}

/** rho or tau: the key of the number inside `point.effective` or `point.relative`. */
function distanceColumn({ xSetting, ySetting }, key, heading, title, kind) {
  const { unit } = ySetting;
  const places = (point) => Math.min(digits(point.x[3], xSetting.unit), digits(point.y[3], unit));
  const signed = { signed: true };
  const texts = (point, { [key]: value, low, high }) =>
    [number(value, places(point), unit, signed), interval(low, high, places(point), unit, signed)];
  return {
    key, heading, title, numeric: true,
    value: (point) => point[kind]?.[key] ?? null,
    texts: (point) => (point[kind] ? texts(point, point[kind]) : [""]),
  };
}

function robustnessCsv(points) {
  const header = [
    "model", "category", "x", "x_low", "x_high", "y", "y_low", "y_high", "line", "rho", "rho_low", "rho_high",
    "tau", "tau_low", "tau_high", "base_model",
  ];
  const row = ({ name, category, x, y, effective, relative, baseModel }) => [
    name, category, ...x.slice(0, 3), ...y.slice(0, 3),
    effective?.expected, effective?.rho, effective?.low, effective?.high,
    relative?.tau, relative?.low, relative?.high, baseModel,
  ];
  return [header, ...points.map(row)];
}
