/** The summary: models in a few numbers, worst corruptions with images, confusions, and what to run next. */

import { combobox } from "./combobox.js";
import { confusionMatrix } from "./confusion.js";
import { heading, remarks, searchField } from "./controls.js";
import { breakable, el, isPrinting } from "./dom.js";
import { countOf, estimateTexts, marked, matches, spaced } from "./format.js";
import { saveCsvButton } from "./save.js";
import { defineSection } from "./sections.js";
import { choose, chosen } from "./state.js";
import { sortedTable } from "./tables.js";

/**
 * @import {
 *   Confusion, CsvRow, ExampleImage, Summary, SummaryLine, SummaryModel, Table, TableColumn, WorstCorruption
 * } from "./types.d.ts"
 */

/** Confusions that are listed below a matrix, which shows them all. */
const LISTED_CONFUSIONS = 6;
/** With more models than this the table of all models has a search field. */
const MODELS_IN_SIGHT = 10;
/** @type {Record<string, string>} */
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
function buildSummary(host, summary) {
  const { models, warnings, commands } = summary;
  const names = models.map((model) => model.model);
  const several = models.length > 1;
  const pick = combobox({
    label: "Model", options: () => names, value: names[0], onPick: (name) => choose({ model: name }),
  });
  const overview = several ? allModels(summary) : null;
  const details = el("div");
  host.append(...alarm(warnings));
  if (overview) host.append(overview.node, el("div", { class: "controls" }, pick.node));
  host.append(details, ...next(commands));
  return () => {
    const picked = models.find((model) => model.model === chosen("model")) ?? models[0];
    pick.set(picked.model);
    overview?.show();
    details.replaceChildren(
      el("h2", {}, breakable(marked(picked.model))),
      el("div", { class: "tiles" }, picked.facts.map((fact) => tile(fact, picked))),
      several ? "" : remarks(summary.notes) ?? "",
      ...corruptions(picked), ...confusions(picked));
  };
}

/**
 * The facts of several models side by side; a model's name shows it in detail.
 * @type {(summary: Summary) => { node: HTMLElement; show(): void }}
 */
function allModels({ models, notes }) {
  /** @type {Table<SummaryModel>} */
  const table = sortedTable({ id: "summary", label: "All models", order: "" });
  const search = searchField("Find a model", chosen("q"));
  const counter = el("p", { class: "soft", role: "status" });
  const shared = sharedCorruptions(models);
  const incomparable = sharedRemark(models);
  const images = imagesOfModels(models);
  const sameImages = new Set(images).size === 1;
  const columns = overviewColumns(models, shared === "", sameImages ? [] : images)
    .filter(({ key }) => key !== "published" || !incomparable);
  const caption = [...notes];
  if (sameImages && images[0]) caption.unshift(`without shift: ${images[0]}`);
  if (incomparable) caption.unshift(`published models: ${incomparable}`);
  if (shared) caption.unshift(`under corruption: mean accuracy over ${shared}`);
  const many = models.length > MODELS_IN_SIGHT;
  const node = el("div", { class: "overview" },
    heading("All models", many && search.input), many && counter, table.node, remarks(caption));
  return {
    node,
    show() {
      const query = many ? chosen("q").trim() : "";
      const rows = models.filter((model) => !query || matches(model.model, query));
      const total = countOf(models.length, "model");
      counter.textContent = query ? `${rows.length} of ${total}` : total;
      search.set(query);
      table.show(rows, columns);
    },
  };
}

/**
 * What every accuracy under corruption is a mean of; "" where that differs, or there is none.
 * @type {(models: SummaryModel[]) => string}
 */
function sharedCorruptions(models) {
  const families = new Set(models.map((model) => model.corrupted_over).filter(Boolean));
  const [first] = families;
  return families.size === 1 ? first : "";
}

/**
 * The images that each accuracy is about: "on photos (n = 344)", and which they are where as many others are meant.
 * @type {(models: SummaryModel[]) => string[]}
 */
function imagesOfModels(models) {
  const images = models.map((model) => factOf(model, "accuracy")?.remark ?? "");
  const provenances = models.map(({ provenance }) => provenance);
  const looksEqual = new Set(images).size === 1;
  return looksEqual && new Set(provenances).size > 1 ? provenances : images;
}

/**
 * Why no model can be compared with published ones; "" if one can, or if the reasons differ.
 * @type {(models: SummaryModel[]) => string}
 */
function sharedRemark(models) {
  const [first, ...others] = models.map((model) => factOf(model, "published"));
  if (!first || first.number !== null) return "";
  const same = others.every((fact) => fact?.value === first.value && fact.interval === first.interval);
  return same ? `${first.value} ${first.interval}` : "";
}

/** @type {(models: SummaryModel[], saysCorruptions: boolean, images: string[]) => TableColumn<SummaryModel>[]} */
function overviewColumns(models, saysCorruptions, images) {
  const names = Object.keys(HEADINGS).filter((name) => models.some((model) => factOf(model, name)));
  return [
    {
      key: "model", heading: "model",
      value: (model) => model.model,
      texts: (model) => [marked(model.model)],
      onPick: (model) => choose({ model: model.model }),
    },
    ...names.map((name) => /** @type {TableColumn<SummaryModel>} */ ({
      key: name, heading: HEADINGS[name], numeric: true, low: name === "calibration",
      value: (model) => factOf(model, name)?.number ?? null,
      texts: (model) => cellTexts(model, name, saysCorruptions, images[models.indexOf(model)] ?? ""),
    })),
  ];
}

/**
 * The value first; below it the interval, and what a reader must know to compare the value with others.
 * @type {(model: SummaryModel, name: string, saysCorruptions: boolean, images: string) => string[]}
 */
function cellTexts(model, name, saysCorruptions, images) {
  const fact = factOf(model, name);
  if (!fact) return [""];
  const texts = [fact.value, fact.interval.replace(/,$/, "")];
  if (name === "accuracy" && model.assumed.length) texts.push("preprocessing assumed");
  if (name === "accuracy" && images) texts.push(images);
  if (name === "corrupted" && saysCorruptions) texts.push(model.corrupted_over);
  return texts;
}

/** @type {(model: SummaryModel, name: string) => SummaryLine | undefined} */
function factOf({ facts }, name) {
  return facts.find((fact) => fact.heading === name);
}

/** @type {(warnings: string[]) => HTMLElement[]} */
function alarm(warnings) {
  if (!warnings.length) return [];
  const more = warnings.length > 1 ? ` (and ${warnings.length - 1} more: see Warnings)` : "";
  return [el("p", { class: "notice problem" }, `${warnings[0]}${more}`)];
}

/** @type {(fact: SummaryLine, model: SummaryModel) => HTMLElement} */
function tile({ heading: name, value, interval, remark }, { assumed }) {
  const unbroken = value.replace(" %", "\u00a0%");
  const warning = name === "accuracy" && assumed.length > 0
    && el("em", { class: "assumed" }, `preprocessing assumed: ${assumed.join(", ")}`);
  return el("div", { class: "tile" }, el("h3", {}, HEADINGS[name] ?? name), el("strong", {}, unbroken), warning,
    el("span", {}, [interval, remark].filter(Boolean).join(" ")));
}

/** @type {(model: SummaryModel) => HTMLElement[]} */
function corruptions({ worst }) {
  if (!worst.length) return [];
  const origins = new Set(worst.filter(({ images }) => images.length).map(originOfImages));
  const [shared] = origins.size === 1 ? origins : [""];
  const words = origins.size
    ? `Mean accuracy over all severities. Images without and with the corruption${shared && ` (${shared})`}, as the `
      + "model sees them: those that only the corruption makes it misclassify, if there are any."
    : "Mean accuracy over all severities.";
  return [
    el("h2", {}, "Worst corruptions"), el("p", { class: "soft" }, words),
    el("div", { class: "worst" }, worst.map((corruption) => worstCorruption(corruption, shared === ""))),
  ];
}

/** @type {(corruption: WorstCorruption) => string} */
function originOfImages({ family, severity }) {
  return `${family}, severity ${severity}`;
}

/** @type {(corruption: WorstCorruption, saysOrigin: boolean) => HTMLElement} */
function worstCorruption(corruption, saysOrigin) {
  const { family, corruption: name, accuracy, images } = corruption;
  const [value, ends] = estimateTexts(accuracy);
  const open = () => choose({ view: "corruptions", family, corruption: name }, { remember: true });
  return el("div", { class: "worst-one" },
    el("h3", {}, el("button", { type: "button", class: "link", on: { click: open } }, spaced(name)), ` ${value} %`,
      el("small", {}, ` ${ends}`)),
    images.length > 0 && saysOrigin && el("p", { class: "soft" }, originOfImages(corruption)),
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
  const listed = matrix.length ? pairs.slice(0, LISTED_CONFUSIONS) : pairs;
  return [
    heading(`Confusions on ${setting}`, save),
    ...(matrix.length ? confusionMatrix(classes, matrix) : []),
    pairs.length ? list(listed) : el("p", {}, "Every image is classified correctly."),
  ];
}

/** @type {(pairs: Confusion[]) => HTMLElement} */
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

/** @type {(pairs: Confusion[]) => CsvRow[]} */
function pairsCsv(pairs) {
  const rows = pairs.map(({ label, prediction, count, of }) => [label, prediction, count, of]);
  return [["label", "prediction", "count", "of"], ...rows];
}
