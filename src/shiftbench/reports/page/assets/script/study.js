/** One pair of axes: which models have a place, the line through the baseline, and every model's robustness. */

import { effectiveRobustness, fitBaseline, relativeRobustness } from "./fit.js";
import { countOf, few, levelText } from "./format.js";
import { placeable, SCALES } from "./scales.js";

/** @import { Choice, Estimate, ModelEntry, Point, ResultGrid, ScaleName, Study } from "./types.d.ts" */

/**
 * The axes to begin with: the first shift, else the first two settings.
 * @type {(results: ResultGrid) => { x: string; y: string }}
 */
export function firstAxes(results) {
  if (results.shifts.length) return results.shifts[0];
  const names = results.settings.map((setting) => setting.name);
  return { x: names[0], y: names[1] ?? names[0] };
}

/**
 * Everything that plot, text and table show for one choice of axes and scale.
 * @type {(results: ResultGrid, choice: Choice) => Study}
 */
export function studyOf(results, { x, y, scale, showAll }) {
  const names = results.settings.map((setting) => setting.name);
  const xAt = names.indexOf(x);
  const yAt = names.indexOf(y);
  const xSetting = results.settings[xAt];
  const ySetting = results.settings[yAt];
  const inPercent = xSetting.unit === "%" && ySetting.unit === "%";
  const shift = results.shifts.find((candidate) => candidate.x === x && candidate.y === y) ?? null;
  /** @type {Study} */
  const study = {
    xSetting, ySetting, shift, inPercent, level: results.level, baseline: results.baseline,
    scale: SCALES[inPercent ? scale : "linear"], minX: shift?.min_x ?? null, pivot: shift?.pivot ?? null,
    points: [], missing: [], parts: [], notes: [],
  };
  for (const [i, model] of results.models.entries()) {
    const xCell = results.estimates[i][xAt];
    const yCell = results.estimates[i][yAt];
    if (xCell && yCell) study.points.push(pointOf(model, xCell, yCell, study, showAll));
    else study.missing.push(model.name);
  }
  study.parts = fitBaseline(fittedPoints(study), study.scale.name, {
    level: study.level, pivot: study.pivot, leastModels: results.least_line_models,
  });
  judge(study, new Map(results.models.map((model, i) => [model.name, results.estimates[i][yAt]])));
  study.notes = [...scaleNotes(study, scale), ...pointNotes(study), ...lineNotes(study)];
  return study;
}

/** @type {(model: ModelEntry, x: Estimate, y: Estimate, study: Study, showAll: boolean) => Point} */
function pointOf(model, x, y, study, showAll) {
  const above = study.minX === null || x[0] >= study.minX;
  return {
    name: model.name, own: model.own, category: model.category || (model.own ? "own" : ""), baseModel: model.base_model,
    candidate: model.fitted && above, x, y, above,
    placed: placeable(study.scale, x[0]) && placeable(study.scale, y[0]),
    shown: above || model.own || showAll,
    fitted: false, effective: null, relative: null,
  };
}

/**
 * Published models where the two axes have any; else, where the page allows it, the reader's own.
 * @type {(study: Study) => { name: string; x: number; y: number }[]}
 */
function fittedPoints(study) {
  const candidates = study.points.filter((p) => p.candidate && p.placed);
  const published = candidates.filter((p) => !p.own);
  return (published.length ? published : candidates).map((p) => ({ name: p.name, x: p.x[0], y: p.y[0] }));
}

/**
 * Every model's distances from the line and from its base model, of which `baseCells` has the y.
 * @type {(study: Study, baseCells: Map<string, Estimate | null>) => void}
 */
function judge(study, baseCells) {
  const fitted = new Set(study.parts.flatMap(({ line }) => (line.reason === undefined ? line.names : [])));
  for (const point of study.points) {
    const base = baseCells.get(point.baseModel);
    point.fitted = fitted.has(point.name);
    point.effective = effectiveRobustness(point.x, point.y, study.parts);
    point.relative = base ? relativeRobustness(point.y, base) : null;
  }
}

/**
 * 0.55 as "55 %".
 * @type {(share: number | null) => string}
 */
export function shareText(share) {
  return share === null ? "" : `${Number((share * 100).toPrecision(6))} %`;
}

/** @type {(study: Study, wished: ScaleName) => string[]} */
function scaleNotes(study, wished) {
  if (study.inPercent || wished === "linear") return [];
  const odd = [study.xSetting, study.ySetting].filter((setting) => setting.unit !== "%");
  const metrics = [...new Set(odd.map((setting) => setting.metric))].join(" and ");
  return [`both axes are linear: ${metrics} is not a share of images and has no ${wished}`];
}

/** @type {(study: Study) => string[]} */
function pointNotes(study) {
  /** @type {(test: (point: Point) => boolean) => string[]} */
  const names = (test) => study.points.filter(test).map((point) => point.name);
  /** @type {(text: string, models: string[]) => string[]} */
  const note = (text, models) =>
    models.length ? [`${text}: ${countOf(models.length, "model")} (${few(models)})`] : [];
  const onPivot = study.pivot === null ? [] : names((p) => p.candidate && p.x[0] === study.pivot);
  return [
    ...note(`below ${shareText(study.minX)} on x, so not fitted and shown on demand`, names((p) => !p.above && !p.own)),
    ...note("no result on one of the axes", study.missing),
    ...note(`not fitted and drawn at the edge, as 0 % and 100 % have no ${study.scale.name}`,
      names((p) => p.shown && !p.placed)),
    ...note("on the pivot and in neither fit", onPivot),
  ];
}

/** @type {(study: Study) => string[]} */
function lineNotes(study) {
  const lines = study.parts.flatMap(({ side, line }) => (line.reason === undefined ? [{ side, line }] : []));
  if (!lines.length) return [];
  const notes = lines.flatMap(({ side, line }) => line.notes.map((note) => (side ? `${side}: ${note}` : note)));
  /** @type {(axis: "x" | "y") => string[]} */
  const source = (axis) => (study.points.some((point) => point[axis][1] !== null) ? [`images of ${axis}`] : []);
  const sources = [...source("y"), ...source("x"), "fit"].join(", ");
  return [
    ...notes,
    `line: ${levelText(study.level)} intervals by Student's t`,
    `ρ: y minus the line, percentage points; ${levelText(study.level)} intervals: ${sources}`,
  ];
}
