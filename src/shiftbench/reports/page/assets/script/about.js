/** The first lines of the page: what was measured, when, with which version; and the answer in a sentence. */

import { breakable, byId, el } from "./dom.js";
import { count, countOf, few } from "./format.js";
import { choose } from "./state.js";

/** @import { About, Answer, Child, DatasetFact, Page, ResultGrid } from "./types.d.ts" */

/** Datasets that are named; of more, only the number is shown. */
const MOST_DATASETS = 2;

/** @type {(page: Page) => void} */
export function showAbout(page) {
  const { about, sections } = page;
  const facts = [
    fact("Data", dataWords(about)),
    fact("Models", sections.results ? modelWords(sections.results, about.settings) : []),
    fact("Results", dateWords(about)),
    fact("Page", [`${about.written} UTC, shiftbench ${page.version}`]),
    fact("Images", changedImages(about)),
  ];
  byId("about").replaceChildren(...facts.flat());
  showAnswer(page.answer);
}

/**
 * A term and its description; nothing where there is nothing to say.
 * @type {(name: string, words: Child[]) => HTMLElement[]}
 */
function fact(name, words) {
  if (!words.length) return [];
  return [el("div", {}, el("dt", {}, name), el("dd", {}, words))];
}

/** @type {(about: About) => Child[]} */
function dataWords({ datasets, published }) {
  const named = datasets.slice(0, MOST_DATASETS).map(datasetWords);
  const unnamed = datasets.length - named.length;
  if (unnamed > 0) named.push([countOf(unnamed, "more dataset")]);
  if (published) named.push([`the published table ${published}`]);
  return named.flatMap((words, i) => (i ? ["; ", ...words] : words));
}

/** @type {(dataset: DatasetFact) => Child[]} */
function datasetWords({ name, images, path }) {
  const words = [el("b", {}, countOf(images, "image")), " of ", name];
  if (!path || path === name) return words;
  return [...words, " (", el("span", { class: "path" }, breakable(path)), ")"];
}

/** @type {(results: ResultGrid, settings: number) => Child[]} */
function modelWords(results, settings) {
  const own = results.models.filter((model) => model.own).map((model) => model.name);
  const published = results.models.length - own.length;
  const words = [];
  if (own.length) words.push(`${count(own.length)} (${few(own, 4)})`);
  if (published) words.push(countOf(published, "published model"));
  if (settings) words.push(countOf(settings, "setting"));
  return [words.join(", ")];
}

/** @type {(about: About) => Child[]} */
function dateWords({ first_result: first, last_result: last, versions, datasets }) {
  if (!last) return datasets.length ? ["date not recorded"] : [];
  const dates = first.slice(0, 10) === last.slice(0, 10) ? last : `${first} to ${last}`;
  const version = versions.length ? `, shiftbench ${versions.join(" and ")}` : "";
  return [`${dates} UTC${version}`];
}

/** @type {(about: About) => Child[]} */
function changedImages({ converted, skipped }) {
  if (!converted && !skipped) return [];
  const words = [
    converted ? `${count(converted)} converted` : "",
    skipped ? `${count(skipped)} skipped` : "",
  ].filter(Boolean).join(", ");
  const open = () => choose({ view: "warnings" }, { remember: true });
  return [words, " (", el("button", { type: "button", class: "link", on: { click: open } }, "see Warnings"), ")"];
}

/** @type {(answer: Answer | null) => void} */
function showAnswer(answer) {
  const host = byId("answer");
  host.hidden = !answer;
  if (!answer) return;
  const { verdict, evidence, worst, next, command } = answer;
  const conclusion = `${verdict.charAt(0).toUpperCase()}${verdict.slice(1)}`;
  const rest = [evidence, worst, next && `next: ${next}`].filter(Boolean).join("; ");
  host.replaceChildren(
    el("strong", {}, conclusion), `: ${rest}`, ...(command ? [": ", el("code", {}, command)] : ["."]));
}
