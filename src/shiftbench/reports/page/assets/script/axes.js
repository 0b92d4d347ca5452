/** What the reader chooses about the scatter plot: a shift or two settings, the scale, a model to look for. */

import { combobox } from "./combobox.js";
import { segmented } from "./controls.js";
import { el } from "./dom.js";
import { SCALES } from "./scales.js";
import { choose, chosen } from "./state.js";
import { shareText } from "./study.js";

/** @import { Choice, Combobox, ResultGrid, ShiftEntry, Study } from "./types.d.ts" */

/**
 * The controls; `set` shows the current choice in them. `showAll` stands elsewhere, in the legend.
 * @type {(results: ResultGrid) => {
 *   node: HTMLElement; showAll: HTMLElement; set(choice: Choice, study: Study, query: string): void }}
 */
export function axisControls(results) {
  const settings = results.settings.map((setting) => setting.name);
  const shift = shiftField(results.shifts);
  const x = combobox({ label: "x axis", options: () => settings, value: "", onPick: (name) => choose({ x: name }) });
  const y = combobox({ label: "y axis", options: () => settings, value: "", onPick: (name) => choose({ y: name }) });
  const find = combobox({
    label: "Find a model", free: true, placeholder: "part of a name", value: chosen("q"),
    options: () => results.models.map((model) => model.name),
    onPick: (name) => choose({ q: name || null }),
    onInput: (text) => choose({ q: text || null }),
  });
  /** @type {(name: string) => void} */
  const onScale = (name) => choose({ scale: name });
  const scale = segmented("Axes", Object.keys(SCALES), "logit", onScale);
  const onShowAll = () => choose({ all: showAll.checked ? "1" : null });
  const showAll = el("input", { type: "checkbox", on: { change: onShowAll } });
  const showAllText = el("span");
  const showAllLabel = el("label", { class: "check" }, showAll, showAllText);
  return {
    node: el("div", { class: "controls" }, shift?.node, x.node, y.node, find.node, scale.node),
    showAll: showAllLabel,
    set(choice, study, query) {
      shift?.set(study.shift?.name ?? "");
      x.set(choice.x);
      y.set(choice.y);
      find.set(query);
      scale.set(study.scale.name);
      scale.allow((name) => study.inPercent || name === "linear");
      showAll.checked = choice.showAll;
      showAllLabel.hidden = study.points.every((point) => point.above);
      showAllText.textContent = study.minX === null ? "" : `also models below ${shareText(study.minX)}`;
    },
  };
}

/**
 * Quick choices of two axes, where there is more than one.
 * @type {(shifts: ShiftEntry[]) => Combobox | null}
 */
function shiftField(shifts) {
  if (shifts.length < 2) return null;
  /** @type {(name: string) => void} */
  const pick = (name) => {
    const shift = shifts.find((candidate) => candidate.name === name);
    if (shift) choose({ x: shift.x, y: shift.y });
  };
  const options = () => shifts.map((shift) => shift.name);
  return combobox({ label: "Shift", options, value: "", onPick: pick, placeholder: "custom axes" });
}
