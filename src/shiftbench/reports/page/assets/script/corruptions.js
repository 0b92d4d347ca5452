/** Corruptions: the error of every type as a heat map, and accuracy over severity as curves. */

import { figure, heading, modelChooser, remarks, segmented } from "./controls.js";
import { el, responsive } from "./dom.js";
import { spaced } from "./format.js";
import { heatMap, heatScale } from "./heatmap.js";
import { saveCsvButton, saveSvgButton } from "./save.js";
import { defineSection } from "./sections.js";
import { severityChart } from "./severity.js";
import { choose, chosen, chosenList } from "./state.js";

/** @import { CorruptionFamily, CorruptionRow, CsvRow, Estimate, ResultGrid } from "./types.d.ts" */

/** More curves than this in one small chart are hard to tell apart. */
const FIRST_CURVES = 6;
/** Two of the small charts stand beside each other on a phone, five on a desk. */
const SMALL_WIDTH = [165, 215];

defineSection({
  id: "corruptions",
  title: "Corruptions",
  order: 3,
  data: ({ sections }) => sections.corruptions?.map((family) => withAccuracies(family, sections.results)),
  build: buildCorruptions,
});

/**
 * A family with its accuracies, which the results have already.
 * @type {(family: CorruptionFamily, results: ResultGrid | undefined) => CorruptionFamily}
 */
function withAccuracies(family, results) {
  if (!family.settings.length || !results) return family;
  const at = new Map(results.settings.map((setting, i) => [setting.name, i]));
  const cells = new Map(results.models.map((model, i) => [model.name, results.estimates[i]]));
  /** @type {(model: string, setting: string) => Estimate | null} */
  const cell = (model, setting) => cells.get(model)?.[at.get(setting) ?? -1] ?? null;
  const rows = family.rows.map((row) => ({
    ...row, clean: cell(row.model, family.clean),
    accuracy: family.settings.map((names) => names.map((name) => cell(row.model, name))),
  }));
  return { ...family, rows };
}

/** @type {(host: HTMLElement, families: CorruptionFamily[]) => () => void} */
function buildCorruptions(host, families) {
  const prefixes = families.map((family) => family.prefix);
  /** @type {(prefix: string) => void} */
  const onPick = (prefix) => choose({ family: prefix, corruption: null, model: null });
  const pick = segmented("Family", prefixes, prefixes[0], onPick);
  const body = el("div");
  if (prefixes.length > 1) host.append(el("div", { class: "controls" }, pick.node));
  host.append(body);
  let drawn = { prefix: "", refresh: () => {} };
  return () => {
    const prefix = prefixes.includes(chosen("family")) ? chosen("family") : prefixes[0];
    pick.set(prefix);
    if (drawn.prefix !== prefix) drawn = { prefix, refresh: buildFamily(body, families[prefixes.indexOf(prefix)]) };
    drawn.refresh();
  };
}

/** @type {(host: HTMLElement, family: CorruptionFamily) => () => void} */
function buildFamily(host, family) {
  const names = family.rows.map((row) => row.model);
  const shown = () => new Set(chosenList("curves", names.slice(0, FIRST_CURVES)));
  const what = family.baseline ? "corruption error" : "mean error";
  const heat = el("div", { class: "table-box heat", role: "region", "aria-label": `${family.prefix}: ${what}s` });
  const scale = el("div", { class: "heat-scale" });
  const chooser = el("div");
  const detail = figure("", {
    buttons: [saveSvgButton(`${family.prefix}-curve`, () => detail.canvas.querySelector("svg"))],
  });
  const multiples = figure("Accuracy over severity", {
    buttons: [saveCsvButton(`${family.prefix}-accuracy`, () => curvesCsv(family))],
    caption: "One chart per corruption, one line per model, with intervals. The first point is the clean accuracy. "
      + "All charts have the same axes.",
  });
  host.replaceChildren(
    heading(`${family.prefix}: ${what} per corruption`,
      saveCsvButton(`${family.prefix}-errors`, () => errorsCsv(family))),
    el("p", { class: "soft" }, `${explained(family)} Lower is better. Select a cell to show its curve.`),
    heat, scale, remarks(family.notes) ?? "", chooser, detail.node, multiples.node);
  const drawDetail = responsive(detail.canvas, (width) => showDetail(detail, family, shown(), width));
  const drawMultiples = responsive(multiples.canvas, (width) => {
    multiples.canvas.replaceChildren(smallMultiples(family, shown(), width));
  });
  return () => {
    heat.replaceChildren(...heatMap(family));
    scale.replaceChildren(...heatScale(family));
    chooser.replaceChildren(modelChooser(names, shown()));
    drawDetail();
    drawMultiples();
  };
}

/** @type {(family: CorruptionFamily) => string} */
function explained(family) {
  if (!family.baseline) return "Mean error over all severities, in percent.";
  return `Error over all severities, in percent of the error of ${family.baseline}. First column: ${family.mean}.`;
}

/**
 * The chosen corruption large, the chosen model in front.
 * @type {(detail: { node: HTMLElement; canvas: HTMLElement }, family: CorruptionFamily, shown: Set<string>,
 *   width: number) => void}
 */
function showDetail(detail, family, shown, width) {
  const at = Math.max(0, family.corruptions.indexOf(chosen("corruption")));
  const model = family.rows.some((row) => row.model === chosen("model")) ? chosen("model") : "";
  const rows = family.rows.filter((row) => shown.has(row.model) || row.model === model);
  const height = Math.min(380, Math.max(240, width * 0.45));
  const title = /** @type {HTMLElement} */ (detail.node.querySelector("h3"));
  title.textContent = `${spaced(family.corruptions[at])}: accuracy over severity`;
  detail.canvas.replaceChildren(severityChart(family, at, rows, { width, height, model, large: true }));
}

/** @type {(family: CorruptionFamily, shown: Set<string>, width: number) => HTMLElement} */
function smallMultiples(family, shown, width) {
  const across = Math.max(1, Math.floor(width / SMALL_WIDTH[width < 560 ? 0 : 1]));
  const each = Math.floor((width - (across - 1) * 12) / across);
  const size = { width: each, height: Math.round(Math.min(190, each * 0.72)) };
  const rows = family.rows.filter((row) => shown.has(row.model));
  return el("div", { class: "multiples" }, family.corruptions.map((name, at) => {
    const onPick = () => choose({ corruption: name });
    return el("div", { class: "multiple" },
      el("button", { type: "button", class: "plain", on: { click: onPick } }, spaced(name)),
      severityChart(family, at, rows, size));
  }));
}

/** @type {(family: CorruptionFamily) => CsvRow[]} */
function errorsCsv(family) {
  /** @type {(row: CorruptionRow) => [string, Estimate | null][]} */
  const cells = (row) => [
    [family.mean, row.mce], [family.relative_mean, row.relative_mce],
    ...family.corruptions.map((name, at) => /** @type {[string, Estimate | null]} */ ([name, row.ce[at]])),
  ];
  const rows = family.rows.flatMap((row) =>
    cells(row).flatMap(([name, cell]) => (cell ? [[row.model, name, ...cell]] : [])));
  return [["model", "corruption", "value", "low", "high", "n"], ...rows];
}

/** @type {(family: CorruptionFamily) => CsvRow[]} */
function curvesCsv(family) {
  /** @type {(model: string, corruption: string, severity: number, cell: Estimate | null) => CsvRow[]} */
  const line = (model, corruption, severity, cell) => (cell ? [[model, corruption, severity, ...cell]] : []);
  const rows = family.rows.flatMap((row) => [
    ...line(row.model, "", 0, row.clean),
    ...family.corruptions.flatMap((name, at) =>
      family.severities.flatMap((severity, s) => line(row.model, name, severity, row.accuracy[at]?.[s]))),
  ]);
  return [["model", "corruption", "severity", "accuracy", "low", "high", "n"], ...rows];
}
