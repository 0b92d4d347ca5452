/** Is it robustness, or just accuracy? The scatter of two settings, the line in words, and every model's distance. */

import { axisControls } from "./axes.js";
import { figure, remarks, toggles } from "./controls.js";
import { breakable, el } from "./dom.js";
import { fitWords } from "./fit-words.js";
import { categoryName } from "./format.js";
import { categorySlots, markerSwatch } from "./palette.js";
import { robustnessTable } from "./robustness-table.js";
import { saveSvgButton } from "./save.js";
import { SCALES } from "./scales.js";
import { scatterPlot } from "./scatter.js";
import { defineSection } from "./sections.js";
import { choose, chosen, chosenList } from "./state.js";
import { firstAxes, studyOf } from "./study.js";

/** @import { Choice, ResultGrid, Study } from "./types.d.ts" */

defineSection({
  id: "robustness",
  title: "Robustness",
  order: 1,
  data: (page) => (hasScatter(page.sections.results) ? page.sections.results : null),
  build: buildRobustness,
});

/**
 * One model, or one setting, makes no scatter.
 * @type {(results: ResultGrid | undefined) => boolean}
 */
function hasScatter(results) {
  return Boolean(results && results.models.length > 1 && results.settings.length > 1);
}

/** @type {(host: HTMLElement, results: ResultGrid) => () => void} */
function buildRobustness(host, results) {
  const slots = categorySlots(results.models.map((model) => model.category || (model.own ? "own" : "")));
  const controls = axisControls(results);
  const reset = el("button", { type: "button", class: "reset", hidden: true }, "Reset zoom");
  const { node, canvas } = figure("", {
    level: "h2",
    buttons: [reset, saveSvgButton("scatter", () => canvas.querySelector("svg"))],
    caption: "Each mark is a model, with intervals on both axes. A model on the line is as accurate under shift as its "
      + "accuracy without shift predicts; its distance above the line is its effective robustness ρ. Drag to zoom.",
  });
  const plot = scatterPlot(canvas, (zoomed) => (reset.hidden = !zoomed));
  reset.addEventListener("click", plot.reset);
  const legend = el("div", { class: "legend" });
  canvas.before(legend);
  const words = el("aside", { class: "fit-words", "aria-label": "The line" });
  const notes = el("div", { class: "notes" });
  const table = robustnessTable();
  host.append(controls.node, el("div", { class: "plot-and-words" }, node, words), notes, table.node);

  return () => {
    const choice = currentChoice(results);
    const study = cachedStudy(results, choice);
    const query = chosen("q").trim();
    const hidden = new Set(chosenList("hide"));
    const key = JSON.stringify([choice.x, choice.y, study.scale.name, choice.showAll]);
    controls.set(choice, study, query);
    node.querySelector("h2")?.replaceChildren(...breakable(`${choice.y} against ${choice.x}`));
    legend.replaceChildren(...legendOf(study, slots, hidden), controls.showAll);
    plot.draw({ study, slots, hidden, query, key });
    words.replaceChildren(...fitWords(study));
    notes.replaceChildren(remarks([...study.notes, ...results.notes]) ?? "");
    table.show(study, query);
  };
}

/**
 * The reader's axes where the page has them, else those to begin with.
 * @type {(results: ResultGrid) => Choice}
 */
function currentChoice(results) {
  const names = new Set(results.settings.map((setting) => setting.name));
  const first = firstAxes(results);
  /** @type {(key: "x" | "y") => string} */
  const axis = (key) => (names.has(chosen(key)) ? chosen(key) : first[key]);
  const x = axis("x");
  const y = axis("y");
  const published = results.shifts.find((shift) => shift.x === x && shift.y === y)?.scale;
  const scaleName = chosen("scale") || published;
  const scale = Object.values(SCALES).find((candidate) => candidate.name === scaleName) ?? SCALES.logit;
  return { x, y, scale: scale.name, showAll: chosen("all") === "1" };
}

/** @type {WeakMap<ResultGrid, { key: string; study: Study }>} */
const studies = new WeakMap();

/**
 * Searching and hiding do not change the study, so that it is computed once for each choice of axes.
 * @type {(results: ResultGrid, choice: Choice) => Study}
 */
function cachedStudy(results, choice) {
  const key = JSON.stringify(choice);
  const cached = studies.get(results);
  if (cached?.key === key) return cached.study;
  const study = studyOf(results, choice);
  studies.set(results, { key, study });
  return study;
}

/**
 * The categories, to be switched on and off, and what the lines mean.
 * @type {(study: Study, slots: Map<string, number>, hidden: Set<string>) => HTMLElement[]}
 */
function legendOf(study, slots, hidden) {
  const shown = study.points.filter((point) => point.shown);
  const items = [...slots].map(([category, slot]) => {
    const n = shown.filter((point) => point.category === category).length;
    const label = `${categoryName(category)} (${n})`;
    return { value: category, label, swatch: markerSwatch(slot), on: !hidden.has(category), n };
  });
  /** @type {(category: string) => void} */
  const toggle = (category) => {
    const next = new Set(hidden);
    if (!next.delete(category)) next.add(category);
    choose({ hide: next.size ? [...next] : null });
  };
  const sameUnit = study.xSetting.unit === study.ySetting.unit;
  const hasLine = study.parts.some((part) => !part.line.reason);
  return [
    toggles("Categories shown", items.filter((item) => item.n), toggle),
    ...(hasLine ? [el("span", { class: "key fit-key" }, "fit and its band")] : []),
    ...(sameUnit ? [el("span", { class: "key identity-key" }, "y = x")] : []),
  ];
}
