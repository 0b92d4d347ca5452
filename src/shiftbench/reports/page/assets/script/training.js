/** Training runs: every logged number over the steps. */

import { drawCurves, frame, linearSide } from "./chart.js";
import { figure, heading } from "./controls.js";
import { el, responsive } from "./dom.js";
import { spaced } from "./format.js";
import { lineSwatch } from "./palette.js";
import { saveCsvButton, saveSvgButton } from "./save.js";
import { defineSection } from "./sections.js";
import { tipContent } from "./tooltip.js";

/** @import { CsvRow, CurvePoint, TrainingCurve } from "./types.d.ts" */

const MOST_DOTS = 60;

defineSection({
  id: "training",
  title: "Training",
  order: 6,
  data: (page) => page.sections.training,
  build: buildTraining,
});

/** @type {(host: HTMLElement, runs: TrainingCurve[]) => () => void} */
function buildTraining(host, runs) {
  const measures = [...new Set(runs.flatMap((run) => Object.keys(run.series)))]
    .filter((measure) => runs.some((run) => run.series[measure]?.some(Number.isFinite)));
  const keys = runs.map((run, i) => el("span", { class: "key" }, lineSwatch(i), run.name));
  const charts = measures.map((measure) => {
    const save = saveSvgButton(`training-${measure}`, () => drawing.canvas.querySelector("svg"));
    const drawing = figure(spaced(measure), { buttons: [save] });
    return { measure, ...drawing };
  });
  host.append(
    heading("Training", saveCsvButton("training", () => trainingCsv(runs))),
    el("div", { class: "legend" }, keys), el("div", { class: "two-columns" }, charts.map((chart) => chart.node)));
  for (const { measure, canvas } of charts) {
    responsive(canvas, (width) => canvas.replaceChildren(trainingChart(runs, measure, width)));
  }
  return () => {};
}

/** @type {(runs: TrainingCurve[], measure: string, width: number) => SVGSVGElement} */
function trainingChart(runs, measure, width) {
  const height = Math.round(Math.min(300, Math.max(200, width * 0.55)));
  const logged = runs.map((run, i) => ({ run, i, values: run.series[measure] ?? [] }));
  const numbers = logged.flatMap(({ values }) => values.filter((value) => value !== null));
  const steps = runs.flatMap((run) => run.steps);
  const low = Math.min(...numbers);
  const high = Math.max(...numbers);
  const first = Math.min(...steps);
  const last = Math.max(...steps);
  const air = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  const x = linearSide(first, last > first ? last : first + 1, 58, width - 14, { gap: 56, label: "step" });
  const y = linearSide(low - air, high + air, height - 48, 12, { gap: 34 });
  const canvas = frame({ width, height, x, y, label: `${spaced(measure)} over steps, ${runs.length} runs` });
  const curves = logged.map(({ run, i, values }) => ({
    name: run.name, index: i, points: run.steps.map((step, k) => stepPoint(run, measure, step, values[k])),
  }));
  drawCurves(canvas, x, y, curves, { dots: steps.length < MOST_DOTS });
  return canvas.chart;
}

/**
 * @type {(run: TrainingCurve, measure: string, step: number, value: number | null | undefined) => CurvePoint | null}
 */
function stepPoint(run, measure, step, value) {
  if (value === null || value === undefined) return null;
  const text = value.toPrecision(4);
  return {
    x: step, y: value, low: null, high: null, label: `${run.name}, step ${step}: ${text}`,
    tip: () => tipContent(run.name, `step ${step}`, [[spaced(measure), text]]),
  };
}

/** @type {(runs: TrainingCurve[]) => CsvRow[]} */
function trainingCsv(runs) {
  const rows = runs.flatMap((run) => Object.entries(run.series).flatMap(([measure, values]) =>
    run.steps.map((step, i) => [run.name, measure, step, values[i]])));
  return [["run", "measure", "step", "value"], ...rows];
}
