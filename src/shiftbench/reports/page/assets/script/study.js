/** One pair of axes: which models have a place, the line through the baseline, and every model's robustness. */

import { effectiveRobustness, fitBaseline, relativeRobustness } from "./fit.js";
import { count, countOf, few, levelText } from "./format.js";
import { placeable, SCALES } from "./scales.js";

/** The axes to begin with: the first shift worth looking at, else a setting with a reference, else the first two. */
export function firstAxes(results) {
  if (results.shifts.length) return results.shifts[0];
  const names = results.settings.map((setting) => setting.name);
  const shifted = results.settings.find((setting) => names.includes(setting.reference));
  return shifted ? { x: shifted.reference, y: shifted.name } : { x: names[0], y: names[1] ?? names[0] };
}

/** Everything that plot, text and table say about one choice of axes and scale. */
export function studyOf(results, { x, y, scale, showAll }) {
  const at = new Map(results.settings.map((setting, i) => [setting.name, i]));
  const [xAt, yAt] = [at.get(x), at.get(y)];
  const [xSetting, ySetting] = [results.settings[xAt], results.settings[yAt]];
  const shift = results.shifts.find((one) => one.x === x && one.y === y) ?? null;
  const inPercent = xSetting.unit === "%" && ySetting.unit === "%";
  const axis = SCALES[inPercent ? scale : "linear"];
  const study = { xSetting, ySetting, shift, scale: axis, level: results.level, inPercent, baseline: results.baseline };
  study.minX = shift?.min_x ?? null;
  study.pivot = shift?.pivot ?? null;
  const cellsOf = (i) => [results.cells[i][xAt], results.cells[i][yAt]];
  study.points = results.models.map((model, i) => pointOf(model, ...cellsOf(i), study, showAll));
  study.parts = fitBaseline(fittedPoints(study), axis.name, { level: results.level, pivot: study.pivot });
  const fitted = new Set(study.parts.flatMap((part) => part.line.names ?? []));
  for (const point of study.points) judge(point, study, results, fitted, yAt);
  study.notes = [...scaleNotes(study, scale), ...pointNotes(study), ...lineNotes(study)];
  return study;
}

function pointOf(model, x, y, study, showAll) {
  const known = Boolean(x && y);
  const above = study.minX === null || (known && x[0] >= study.minX);
  return {
    name: model.name, own: model.own, category: model.category || (model.own ? "own" : ""), baseModel: model.base_model,
    candidate: model.fitted && above, x, y, known, above,
    placed: known && placeable(study.scale, x[0]) && placeable(study.scale, y[0]),
    shown: known && (above || model.own || showAll),
  };
}

function fittedPoints(study) {
  return study.points.filter((p) => p.candidate && p.placed).map((p) => ({ name: p.name, x: p.x[0], y: p.y[0] }));
}

function judge(point, study, results, fitted, yAt) {
  point.fitted = fitted.has(point.name);
  point.effective = point.known ? effectiveRobustness(point.x, point.y, study.parts) : null;
  const base = point.baseModel ? results.models.findIndex((model) => model.name === point.baseModel) : -1;
  const baseCell = base >= 0 ? results.cells[base][yAt] : null;
  point.relative = point.y && baseCell ? relativeRobustness(point.y, baseCell) : null;
}

/** 0.55 as "55 %". */
export function shareText(share) {
  return `${Number((share * 100).toPrecision(6))} %`;
}

function scaleNotes(study, wished) {
  if (study.inPercent || wished === "linear") return [];
  const odd = [study.xSetting, study.ySetting].filter((setting) => setting.unit !== "%");
  const metrics = [...new Set(odd.map((setting) => setting.metric))].join(" and ");
  return [`no share of images, so that it has no ${wished} and both axes are linear: ${metrics}`];
}

function pointNotes(study) {
  const names = (test) => study.points.filter(test).map((point) => point.name);
  const missing = names((p) => !p.known);
  const below = names((p) => p.known && !p.above && !p.own);
  const edge = names((p) => p.shown && !p.placed);
  const onPivot = study.pivot === null ? [] : names((p) => p.candidate && p.known && p.x[0] === study.pivot);
  const listed = (models) => `${countOf(models.length, "model")} (${few(models)})`;
  return [
    below.length && `not fitted, shown on demand: ${listed(below)}, below ${shareText(study.minX)} on x`,
    missing.length && `without a number on one of the axes: ${listed(missing)}`,
    edge.length && `not fitted and drawn at the edge, 0 % and 100 % have no ${study.scale.name}: ${listed(edge)}`,
    onPivot.length && `on the pivot and in neither fit: ${few(onPivot)}`,
  ].filter(Boolean);
}

function lineNotes(study) {
  const sided = (side, note) => (side ? `${side}: ${note}` : note);
  const notes = study.parts.flatMap(({ side, line }) => (line.notes ?? []).map((note) => sided(side, note)));
  const fit = study.parts.find((part) => !part.line.reason)?.line;
  if (!fit) return notes;
  const hasInterval = (axis) => study.points.some((point) => point.known && point[axis][1] !== null);
  const sources = [...["y", "x"].filter(hasInterval).map((axis) => `images of ${axis}`), "fit"].join(", ");
  return [
    ...notes,
    `line: ${levelText(study.level)} intervals from ${count(fit.resamples)} resamples of the models`,
    `ρ: y minus the line, percentage points; ${levelText(study.level)} intervals: ${sources}`,
  ];
}
