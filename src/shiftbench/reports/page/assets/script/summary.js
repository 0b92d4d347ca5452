/** The summary: a model in a few numbers, its worst corruptions with images, its confusions, and what to run next. */

import { combobox } from "./combobox.js";
import { confusionMatrix } from "./confusion.js";
import { heading } from "./controls.js";
import { breakable, el, isPrinting } from "./dom.js";
import { estimateTexts, marked, spaced } from "./format.js";
import { saveCsvButton } from "./save.js";
import { defineSection } from "./sections.js";
import { choose, chosen } from "./state.js";

/**
 * @import {
 *   ConfusionEntry, CsvRow, ExampleImage, Summary, SummaryFact, SummaryModel, WorstCorruption
 * } from "./types.d.ts"
 */

/** Confusions that are listed below a matrix, which shows them all. */
const FEW = 6;
const HEADINGS = {
  accuracy: "Accuracy", corrupted: "Under corruption", shifted: "Under other shifts", published: "Published models",
  "worst class": "Worst class", calibration: "Calibration",
};

defineSection({
  id: "summary",
  title: "Summary",
  order: 0,
  data: (page) => page.sections.summary,
  build: buildSummary,
});

/** @type {(host: HTMLElement, summary: Summary) => () => void} */
function buildSummary(host, { models, warnings, commands }) {
  const names = models.map((one) => one.model);
  const pick = combobox({
    label: "Model", options: () => names, value: names[0], onPick: (model) => choose({ model }),
  });
  const body = el("div");
  host.append(...alarm(warnings));
  if (models.length > 1) host.append(...overview(models), el("div", { class: "controls" }, pick.node));
  host.append(body, ...next(commands));
  return () => {
    const one = models.find((model) => model.model === chosen("model")) ?? models[0];
    pick.set(one.model);
    body.replaceChildren(
      el("h2", {}, breakable(marked(one.model))), el("div", { class: "tiles" }, one.facts.map(tile)),
      ...corruptions(one), ...confusions(one));
  };
}

/**
 * The facts of several models side by side; a model's name shows it in detail.
 * @type {(models: SummaryModel[]) => HTMLElement[]}
 */
function overview(models) {
  const columns = Object.entries(HEADINGS).filter(([name]) => models.some((one) => factOf(one, name)));
  const rows = models.map((one) => {
    const pick = () => choose({ model: one.model });
    const cells = columns.map(([name]) => {
      const fact = factOf(one, name);
      // Means over other corruptions, and estimates, must not look alike.
      const about = [fact?.interval.replace(/,$/, ""), name === "corrupted" && fact?.rest].filter(Boolean).join(" ");
      return el("td", { class: "number" }, fact?.value ?? "", about && el("small", {}, about));
    });
    const name = el("button", { type: "button", class: "link", on: { click: pick } }, breakable(marked(one.model)));
    return el("tr", {}, el("th", { scope: "row" }, name), cells);
  });
  const heads = columns.map(([, title]) => el("th", { scope: "col", class: "number corner" }, title));
  return [el("h2", {}, "All models"), el("div", { class: "table-box overview" }, el("table", {},
    el("thead", {}, el("tr", {}, el("th", { scope: "col", class: "corner" }, "model"), heads)),
    el("tbody", {}, rows)))];
}

/** @type {(model: SummaryModel, heading: string) => SummaryFact | undefined} */
function factOf({ facts }, name) {
  return facts.find((fact) => fact.heading === name);
}

/** @type {(warnings: string[]) => HTMLElement[]} */
function alarm(warnings) {
  if (!warnings.length) return [];
  const more = warnings.length > 1 ? ` (and ${warnings.length - 1} more: see Warnings)` : "";
  return [el("p", { class: "notice problem" }, `${warnings[0]}${more}`)];
}

/** @type {(fact: SummaryFact) => HTMLElement} */
function tile({ heading: name, value, interval, rest }) {
  const title = HEADINGS[/** @type {keyof typeof HEADINGS} */ (name)] ?? name;
  const whole = value.replace(" %", "\u00a0%");
  return el("div", { class: "tile" }, el("h3", {}, title), el("strong", {}, whole),
    el("span", {}, [interval, rest].filter(Boolean).join(" ")));
}

/** @type {(model: SummaryModel) => HTMLElement[]} */
function corruptions({ worst }) {
  if (!worst.length) return [];
  const shown = worst.some((one) => one.images.length);
  const words = shown
    ? "Mean accuracy over all severities. Images without and with the corruption, as the model sees them: those that "
      + "only the corruption makes it misclassify, if there are any."
    : "Mean accuracy over all severities.";
  return [
    el("h2", {}, "Worst corruptions"), el("p", { class: "soft" }, words),
    el("div", { class: "worst" }, worst.map(corruption)),
  ];
}

/** @type {(one: WorstCorruption) => HTMLElement} */
function corruption({ family, corruption: name, accuracy, severity, images }) {
  const [value, ends] = estimateTexts(accuracy);
  const open = () => choose({ view: "corruptions", family, corruption: name }, { remember: true });
  return el("div", { class: "worst-one" },
    el("h3", {}, el("button", { type: "button", class: "link", on: { click: open } }, spaced(name)), ` ${value} %`,
      el("small", {}, ` ${ends}`)),
    images.length ? el("p", { class: "soft" }, `${family}, images at severity ${severity}`) : "",
    images.map(example));
}

/** @type {(image: ExampleImage) => HTMLElement} */
function example({ id, label, prediction, original, shifted }) {
  const loading = isPrinting() ? "eager" : "lazy";
  /** @type {(url: string | null, what: string) => HTMLElement | false} */
  const image = (url, what) => url !== null && el("img", { src: url, alt: `${label}, ${what}`, title: id, loading });
  const pair = [image(original, "original"), image(shifted, "as the model saw it")];
  return el("div", { class: "example" }, pair.some(Boolean) && el("span", { class: "pair" }, pair),
    el("span", {}, label, ...(label === prediction ? [" (correct)"] : [" → ", el("b", {}, prediction)])));
}

/** @type {(model: SummaryModel) => HTMLElement[]} */
function confusions({ setting, classes, matrix, confusions: pairs }) {
  if (!pairs.length && !matrix.length) return [];
  const save = saveCsvButton("confusions", () => (matrix.length ? matrixCsv(classes, matrix) : pairsCsv(pairs)));
  const listed = matrix.length ? pairs.slice(0, FEW) : pairs;
  return [
    heading(`Confusions on ${setting}`, save),
    ...(matrix.length ? confusionMatrix(classes, matrix) : []),
    pairs.length ? list(listed) : el("p", {}, "Every image is classified correctly."),
  ];
}

/** @type {(pairs: ConfusionEntry[]) => HTMLElement} */
function list(pairs) {
  return el("ol", { class: "confusions" }, pairs.map(({ label, prediction, count, of }) => el("li", {},
    el("b", {}, label), " classified as ", el("b", {}, prediction),
    el("small", {}, ` ${count} of ${of} image${of === 1 ? "" : "s"}`))));
}

/** @type {(commands: string[]) => HTMLElement[]} */
function next(commands) {
  if (!commands.length) return [];
  return [el("h2", {}, "Next"), el("div", { class: "commands" }, commands.map((line) => el("code", {}, line)))];
}

/** @type {(classes: string[], matrix: number[][]) => CsvRow[]} */
function matrixCsv(classes, matrix) {
  return [["label", ...classes], ...matrix.map((row, i) => [classes[i], ...row])];
}

/** @type {(pairs: ConfusionEntry[]) => CsvRow[]} */
function pairsCsv(pairs) {
  const rows = pairs.map(({ label, prediction, count, of }) => [label, prediction, count, of]);
  return [["label", "prediction", "count", "of"], ...rows];
}
