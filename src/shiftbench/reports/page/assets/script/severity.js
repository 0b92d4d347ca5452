/** Accuracy over the severity of one corruption, a curve for each model. */

import { drawCurves, frame, linearSide } from "./chart.js";
import { estimateTexts, spaced } from "./format.js";
import { tipContent } from "./tooltip.js";

/** @import { CorruptionFamily, CorruptionRow, CurvePoint, Estimate, Side } from "./types.d.ts" */

/** @typedef {{ width: number; height: number; model?: string; large?: boolean }} ChartOptions */

/**
 * A chart of some rows of a family at one corruption; `model` is drawn in front of the others.
 * @type {(family: CorruptionFamily, at: number, rows: CorruptionRow[], options: ChartOptions) => SVGSVGElement}
 */
export function severityChart(family, at, rows, { width, height, model = "", large = false }) {
  const hasClean = rows.some((row) => row.clean);
  const name = family.corruptions[at];
  const x = severityAxis(family, hasClean, width, large);
  const y = linearSide(0, 1, height - (large ? 48 : 26), 10, {
    times: 100, gap: large ? 40 : 28, label: large ? "accuracy, %" : "",
  });
  const label = `${name}: accuracy over severity, ${rows.length} models`;
  const canvas = frame({ width, height, x, y, label });
  const curves = rows.map((row) => ({
    name: row.model, index: family.rows.indexOf(row), faded: Boolean(model) && row.model !== model,
    points: [
      ...(hasClean ? [pointOn(row, row.clean, 0, name)] : []),
      ...family.severities.map((severity, s) => pointOn(row, row.accuracy[at]?.[s], severity, name)),
    ],
  }));
  drawCurves(canvas, x, y, curves.sort((a, b) => Number(b.faded) - Number(a.faded)));
  return canvas.chart;
}

/**
 * Severity 0 is the clean image.
 * @type {(family: CorruptionFamily, hasClean: boolean, width: number, large: boolean) => Side}
 */
function severityAxis(family, hasClean, width, large) {
  const values = [...(hasClean ? [0] : []), ...family.severities];
  const first = Math.min(...values);
  const last = Math.max(...values);
  const air = (last - first || 1) * 0.04;
  return linearSide(first - air, last + air, large ? 58 : 34, width - 10, {
    values,
    text: (tick) => (tick === 0 && hasClean && large ? "clean" : String(tick)),
    label: large ? "severity" : "",
  });
}

/** @type {(row: CorruptionRow, cell: Estimate | null, severity: number, corruption: string) => CurvePoint | null} */
function pointOn(row, cell, severity, corruption) {
  if (!cell) return null;
  const [value, ends] = estimateTexts(cell);
  const where = severity === 0 ? "clean" : `${spaced(corruption)}, severity ${severity}`;
  return {
    x: severity, y: cell[0], low: cell[1], high: cell[2], label: `${row.model}, ${where}: ${value} %`,
    tip: () => tipContent(row.model, where, [["accuracy", value, ends]]),
  };
}
