/** The table of results: models by settings, with intervals; the best, and what is not clearly worse, bold. */

import { heading, remarks, searchField, ticklist } from "./controls.js";
import { el } from "./dom.js";
import { estimateTexts, count, countOf, digits, few, levelText, marked, matches, measured } from "./format.js";
import { saveCsvButton } from "./save.js";
import { defineSection } from "./sections.js";
import { choose, chosen, chosenList } from "./state.js";
import { sortedTable } from "./tables.js";

/** @import { CsvRow, Estimate, ModelEntry, ResultGrid, SettingEntry, TableColumn } from "./types.d.ts" */

/**
 * @typedef {{ model: ModelEntry; cells: (Estimate | null)[] }} Row
 * @typedef {{ setting: SettingEntry; at: number; usual: number | null; places: number; bold: Set<Estimate> }} Column
 */

/** Settings that are shown at first: accuracy, the mean over all corruptions, and the mean of each of them. */
const FIRST_SETTINGS = 20;
/** Of published models, whose settings are many, as many as fit a page. */
const FIRST_PUBLISHED = 8;

defineSection({
  id: "results",
  title: "Results",
  order: 2,
  data: (page) => page.sections.results,
  build: buildResults,
});

/** @type {(host: HTMLElement, results: ResultGrid) => () => void} */
function buildResults(host, results) {
  const names = results.settings.map((setting) => setting.name);
  const first = firstSettings(results);
  const all = results.models.map((model, i) => ({ model, cells: results.estimates[i] }));
  const search = searchField("Find a model", chosen("q"));
  const counter = el("p", { class: "soft", role: "status" });
  const notes = el("div", { class: "notes" });
  const table = sortedTable({
    id: "results", label: "Results, models by settings", order: "model",
    rowClass: (row) => (row.model.own ? "own" : ""),
  });
  const ticked = chosenList("settings", first).filter((name) => names.includes(name));
  const chooser = ticklist({ summary: "Settings", names, ticked, onChange: (picked) => choose({ settings: picked }) });
  /** @type {Column[]} */
  let columns = [];
  const save = saveCsvButton("results", () => resultsCsv(columns, table.rows()));
  host.append(heading("Results", search.input, save), chooser, counter, table.node, notes);

  return () => {
    const query = chosen("q").trim();
    const picked = new Set(chosenList("settings", first));
    const rows = all.filter((row) => !query || matches(row.model.name, query));
    columns = results.settings.map((setting, at) => ({ setting, at }))
      .filter(({ setting }) => picked.has(setting.name))
      .map(({ setting, at }) => ({ setting, at, ...columnFacts(at, setting, all) }));
    const models = `${query ? `${rows.length} of ` : ""}${countOf(all.length, "model")}`;
    counter.textContent = `${models}, ${columns.length} of ${countOf(names.length, "setting")}`;
    search.set(query);
    table.show(rows, [
      { key: "model", heading: "model", value: (row) => row.model.name, texts: modelTexts },
      ...columns.map(tableColumn),
    ]);
    notes.replaceChildren(remarks(tableNotes(columns, results)) ?? "");
  };
}

/**
 * The name, and below it what had to be assumed about the model, and the images that it was trained on.
 * @type {(row: Row) => string[]}
 */
function modelTexts({ model }) {
  const facts = [{ text: "assumed", list: model.assumed }, { text: "trained on", list: model.training_images }];
  const texts = facts.filter((fact) => fact.list.length).map((fact) => `${fact.text}: ${fact.list.join(", ")}`);
  return [marked(model.name), ...texts];
}

/**
 * What is compared first: the axes of the shifts, then means rather than single severities, as much as fits.
 * @type {(results: ResultGrid) => string[]}
 */
function firstSettings(results) {
  const axes = results.shifts.flatMap((shift) => [shift.x, shift.y]);
  const undetailed = results.settings.filter((setting) => !setting.detail).map((setting) => setting.name);
  const most = results.settings.some((setting) => setting.source === "own") ? FIRST_SETTINGS : FIRST_PUBLISHED;
  const first = new Set([...new Set([...axes, ...undetailed])].slice(0, most));
  return results.settings.map((setting) => setting.name).filter((name) => first.has(name));
}

/**
 * The column's usual n, its digits, and who is best or not clearly worse.
 * @type {(at: number, setting: SettingEntry, rows: Row[])
 *   => { usual: number | null; places: number; bold: Set<Estimate> }}
 */
function columnFacts(at, setting, rows) {
  const cells = rows.map((row) => row.cells[at]).filter((cell) => cell !== null);
  const usual = mostCommon(cells.map((cell) => cell[3]));
  return { usual, places: digits(usual, setting.unit), bold: notClearlyWorse(cells, setting.higher_is_better) };
}

/** @type {(values: (number | null)[]) => number | null} */
function mostCommon(values) {
  /** @type {Map<number | null, number>} */
  const tally = new Map();
  for (const value of values) tally.set(value, (tally.get(value) ?? 0) + 1);
  const most = Math.max(...tally.values());
  return values.find((value) => tally.get(value) === most) ?? null;
}

/**
 * The best cell, and those whose interval overlaps its interval; none for a single model, which has no rival.
 * @type {(cells: Estimate[], higherIsBetter: boolean) => Set<Estimate>}
 */
function notClearlyWorse(cells, higherIsBetter) {
  if (cells.length < 2) return new Set();
  /** @type {(a: Estimate, b: Estimate) => boolean} */
  const better = (a, b) => (higherIsBetter ? a[0] > b[0] : a[0] < b[0]);
  const best = cells.reduce((a, b) => (better(b, a) ? b : a));
  const [, bestLow, bestHigh] = best;
  /** @type {(cell: Estimate) => boolean} */
  const overlaps = ([, low, high]) =>
    low !== null && high !== null && bestLow !== null && bestHigh !== null && high >= bestLow && low <= bestHigh;
  return new Set(cells.filter((cell) => cell[0] === best[0] || overlaps(cell)));
}

/** @type {(column: Column) => TableColumn<Row>} */
function tableColumn({ setting, at, usual, places, bold }) {
  /** @type {(cell: Estimate | null) => string[]} */
  const texts = (cell) => {
    const [value, ends] = estimateTexts(cell, setting.unit, places);
    return [cell && cell[3] !== usual ? `${value}*` : value, ends];
  };
  return {
    key: setting.name, heading: setting.name, numeric: true, low: !setting.higher_is_better,
    title: [setting.metric, setting.note, setting.provenance].filter(Boolean).join("\n"),
    value: (row) => row.cells[at]?.[0] ?? null,
    texts: (row) => texts(row.cells[at]),
    bold: (row) => {
      const cell = row.cells[at];
      return cell !== null && bold.has(cell);
    },
  };
}

/** @type {(columns: Column[], results: ResultGrid) => string[]} */
function tableNotes(columns, results) {
  const metrics = [...new Set(columns.map(({ setting }) => measured(setting)))].join("; ");
  const sizes = [...new Set(columns.flatMap(({ usual }) => usual ?? []))];
  const odd = columns.some(({ at, usual }) => results.estimates.some((row) => (row[at]?.[3] ?? usual) !== usual));
  const sources = [...new Set(columns.map(({ setting }) => setting.source))].filter((source) => source !== "own");
  const n = sizes.length === 1 ? `; n = ${count(sizes[0])}` : "";
  const notes = [
    columns.length && `${metrics}; ${levelText(results.level)} intervals${n}`,
    columns.some(({ bold }) => bold.size) && "bold: best, or interval overlaps that of the best",
    odd && "*: computed on a different number of images than the rest of the column",
    sources.length && `from ${sources.join(", ")}`,
    ...settingNotes(columns),
    ...results.notes,
  ];
  return notes.filter((note) => typeof note === "string");
}

/**
 * The notes of the settings; settings with the same note share a line.
 * @type {(columns: Column[]) => string[]}
 */
function settingNotes(columns) {
  /** @type {Map<string, string[]>} */
  const names = new Map();
  for (const { setting } of columns) {
    if (setting.note) names.set(setting.note, [...(names.get(setting.note) ?? []), setting.name]);
  }
  return [...names].map(([note, settings]) => `${few(settings, 2)}: ${note}`);
}

/**
 * Tidy, as `shiftbench table --format csv` writes it.
 * @type {(columns: Column[], rows: Row[]) => CsvRow[]}
 */
function resultsCsv(columns, rows) {
  /** @type {(row: Row) => CsvRow[]} */
  const cellsOf = (row) => columns.flatMap(({ setting, at }) => {
    const cell = row.cells[at];
    const { name, id, assumed, training_images: seen } = row.model;
    return cell ? [[name, setting.name, setting.metric, ...cell, id, assumed.join(", "), seen.join(", ")]] : [];
  });
  const titles = ["model", "setting", "metric", "value", "low", "high", "n", "id", "assumed", "training_images"];
  return [titles, ...rows.flatMap(cellsOf)];
}
