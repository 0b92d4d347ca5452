/** Calibration: how well confidence predicts accuracy. Reliability diagrams and response-rate curves. */

import { drawCurves, frame, linearSide } from "./chart.js";
import { combobox } from "./combobox.js";
import { figure, heading, modelChooser } from "./controls.js";
import { el, responsive } from "./dom.js";
import { estimateTexts, count, marked, MISSING, number } from "./format.js";
import { reliabilityDiagram } from "./reliability.js";
import { saveCsvButton, saveSvgButton } from "./save.js";
import { defineSection } from "./sections.js";
import { choose, chosen, chosenList } from "./state.js";
import { sortedTable } from "./tables.js";
import { tipContent } from "./tooltip.js";

/** @import { CalibrationEntry, CsvRow, CurvePoint, Estimate, TableColumn } from "./types.d.ts" */

const FIRST_MODELS = 4;
const PANEL_WIDTH = 270;
const MOST_WIDE = 860;
/** @type {("rms" | "ece" | "aurra")[]} */
const MEASURES = ["rms", "ece", "aurra"];

defineSection({
  id: "calibration",
  title: "Calibration",
  order: 4,
  data: (page) => page.sections.calibration,
  build: buildCalibration,
});

/** @type {(host: HTMLElement, entries: CalibrationEntry[]) => () => void} */
function buildCalibration(host, entries) {
  const models = [...new Set(entries.map((entry) => entry.model))];
  const settings = [...new Set(entries.map((entry) => entry.setting))];
  const pick = combobox({
    label: "Setting", options: () => settings, value: settings[0], onPick: (name) => choose({ calibration: name }),
  });
  const chooser = el("div");
  const reliability = figure("Reliability", {
    caption: "Accuracy against mean confidence, per bin, with intervals. On the diagonal, confidence equals accuracy; "
      + "below it, the model is overconfident. The bars at the bottom show the number of images per bin.",
  });
  const response = figure("Accuracy over response rate", {
    buttons: [saveSvgButton("response-rate", () => response.canvas.querySelector("svg"))],
    caption: "Accuracy on the most confident share of the images. AURRA is the area under the curve.",
  });
  const table = sortedTable({ id: "calibration", label: "Calibration", order: "model" });
  host.append(
    heading("Calibration", saveCsvButton("calibration", () => calibrationCsv(entries))),
    el("div", { class: "controls" }, pick.node), chooser, table.node, reliability.node, response.node);

  /** @type {CalibrationEntry[]} */
  let shown = [];
  /** @type {(entry: CalibrationEntry) => number} */
  const index = (entry) => models.indexOf(entry.model);
  const drawReliability = responsive(reliability.canvas, (width) => {
    const across = Math.max(1, Math.floor(width / PANEL_WIDTH));
    const each = Math.min(360, Math.floor((width - (across - 1) * 12) / across));
    const panels = shown.map((entry) => reliabilityPanel(entry, each, index(entry)));
    reliability.canvas.replaceChildren(el("div", { class: "multiples" }, panels));
  });
  const drawResponse = responsive(response.canvas, (width) => {
    response.canvas.replaceChildren(responseChart(shown, Math.min(width, MOST_WIDE), index));
  });
  return () => {
    const setting = settings.includes(chosen("calibration")) ? chosen("calibration") : settings[0];
    const picked = new Set(chosenList("curves", models.slice(0, FIRST_MODELS)));
    const here = entries.filter((entry) => entry.setting === setting);
    shown = here.filter((entry) => picked.has(entry.model));
    pick.set(setting);
    chooser.replaceChildren(modelChooser(models, picked));
    table.show(here, calibrationColumns());
    drawReliability();
    drawResponse();
  };
}

/** @type {() => TableColumn<CalibrationEntry>[]} */
function calibrationColumns() {
  /**
   * @type {(key: typeof MEASURES[number], heading: string, title: string, low: boolean) =>
   *   TableColumn<CalibrationEntry>}
   */
  const column = (key, title, explained, low) => ({
    key, heading: title, title: explained, numeric: true, low,
    value: (entry) => entry[key]?.[0] ?? null,
    texts: (entry) => (entry[key] ? estimateTexts(entry[key]) : [MISSING]),
  });
  return [
    { key: "model", heading: "model", value: (entry) => entry.model, texts: (entry) => [marked(entry.model)] },
    { key: "n", heading: "n", numeric: true, value: (entry) => entry.n, texts: (entry) => [count(entry.n)] },
    column("rms", "RMS calibration error, %", "root mean square of confidence minus accuracy; lower is better", true),
    column("ece", "ECE, %", "expected calibration error; lower is better", true),
    column("aurra", "AURRA, %", "area under the response rate accuracy curve; higher is better", false),
  ];
}

/** @type {(entry: CalibrationEntry, width: number, index: number) => HTMLElement} */
function reliabilityPanel(entry, width, index) {
  const chart = reliabilityDiagram(entry, width, index);
  const measures = MEASURES.filter((key) => entry[key]);
  const numbers = measures.map((key) => `${key.toUpperCase()} ${estimateTexts(entry[key])[0]}`);
  const save = saveSvgButton(`reliability-${entry.model}`, () => chart);
  return el("div", { class: "multiple" },
    el("div", { class: "figure-head" }, el("h4", {}, marked(entry.model)), el("div", { class: "saves" }, save)),
    el("p", { class: "soft" }, numbers.join(" · ")), chart);
}

/** @type {(entries: CalibrationEntry[], width: number, index: (entry: CalibrationEntry) => number) => SVGSVGElement} */
function responseChart(entries, width, index) {
  const height = Math.round(Math.min(400, Math.max(260, width * 0.5)));
  const values = entries.flatMap((entry) => entry.curve.map(([, accuracy]) => accuracy));
  const low = Math.max(0, Math.floor(Math.min(1, ...values) * 10 - 0.5) / 10);
  const x = linearSide(0, 1, 58, width - 14, { times: 100, gap: 50, label: "response rate, %" });
  const y = linearSide(low, 1, height - 48, 12, { times: 100, gap: 36, label: "accuracy, %" });
  const canvas = frame({ width, height, x, y, label: `Accuracy over response rate, ${entries.length} models` });
  drawCurves(canvas, x, y, entries.map((entry) => ({
    name: entry.model, index: index(entry), points: entry.curve.map((pair) => responsePoint(entry, ...pair)),
  })), { dots: false });
  return canvas.chart;
}

/** @type {(entry: CalibrationEntry, rate: number, accuracy: number) => CurvePoint} */
function responsePoint(entry, rate, accuracy) {
  const rateText = number(rate, 1);
  const accuracyText = number(accuracy, 1);
  return {
    x: rate, y: accuracy, low: null, high: null,
    label: `${entry.model}: ${accuracyText} % at response rate ${rateText} %`,
    tip: () => tipContent(entry.model, entry.setting, [["response rate", rateText], ["accuracy", accuracyText]]),
  };
}

/** @type {(entries: CalibrationEntry[]) => CsvRow[]} */
function calibrationCsv(entries) {
  const header = ["model", "setting", "n", ...MEASURES.flatMap((key) => [key, `${key}_low`, `${key}_high`])];
  /** @type {(cell: Estimate | null) => CsvRow} */
  const ends = (cell) => (cell ? cell.slice(0, 3) : [null, null, null]);
  /** @type {(entry: CalibrationEntry) => CsvRow} */
  const row = (entry) => [entry.model, entry.setting, entry.n, ...MEASURES.flatMap((key) => ends(entry[key]))];
  return [header, ...entries.map(row)];
}
