/** Failures: the images that a model was most confidently wrong about, the original and what the model saw. */

import { combobox } from "./combobox.js";
import { heading } from "./controls.js";
import { el, isPrinting } from "./dom.js";
import { count, countOf, marked, number } from "./format.js";
import { saveCsvButton } from "./save.js";
import { defineSection } from "./sections.js";
import { choose, chosen } from "./state.js";

/** @import { Child, CsvRow, FailureList, Failures, Mistake } from "./types.d.ts" */

defineSection({
  id: "failures",
  title: "Failures",
  order: 5,
  data: (page) => page.sections.failures,
  build: buildFailures,
});

/** @type {(host: HTMLElement, failures: Failures) => () => void} */
function buildFailures(host, failures) {
  const { lists, thumbnails } = failures;
  const models = [...new Set(lists.map((list) => list.model))];
  /** @type {(model: string) => string[]} */
  const settingsOf = (model) => lists.filter((list) => list.model === model).map((list) => list.setting);
  const current = () => {
    const model = models.includes(chosen("model")) ? chosen("model") : models[0];
    const settings = settingsOf(model);
    return { model, setting: settings.includes(chosen("failures")) ? chosen("failures") : settings[0] };
  };
  const pickModel = combobox({
    label: "Model", options: () => models, value: models[0], onPick: (model) => choose({ model }),
  });
  const pickSetting = combobox({
    label: "Setting", options: () => settingsOf(current().model), value: "",
    onPick: (name) => choose({ failures: name }),
  });
  const words = el("p", { class: "soft", role: "status" });
  const cards = el("div", { class: "cards" });
  const dialog = enlarged(failures, () => refresh());
  host.append(
    heading("Failures", saveCsvButton("failures", () => failuresCsv(lists))),
    el("div", { class: "controls" }, pickModel.node, pickSetting.node), words, cards, dialog.node);
  const refresh = () => {
    const { model, setting } = current();
    const list = lists.find((candidate) => candidate.model === model && candidate.setting === setting) ?? lists[0];
    pickModel.set(model);
    pickSetting.set(setting);
    words.textContent = `${marked(model)}: ${explainedList(list)} ${countedTags(list)}`;
    cards.replaceChildren(...list.images.map((failure, i) => card(failure, thumbnails, () => dialog.open(list, i))));
  };
  return refresh;
}

/**
 * How many of the shown images have each tag, most frequent first.
 * @type {(list: FailureList) => string}
 */
function countedTags({ images }) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const tag of images.flatMap((failure) => failure.tags)) counts.set(tag, (counts.get(tag) ?? 0) + 1);
  const words = [...counts].toSorted((a, b) => b[1] - a[1]).map(([tag, n]) => `${tag} ${n}`);
  return words.length ? `Tags: ${words.join(", ")}.` : "";
}

/** @type {(list: FailureList) => string} */
function explainedList({ total, images }) {
  const sure = images.some((failure) => failure.confidence !== null);
  const some = sure ? `the ${count(images.length)} most confident are shown` : `${count(images.length)} are shown`;
  const part = (images.length < total ? some : "all are shown") + (sure ? ", sorted by confidence" : "");
  const illustrated = images.filter((failure) => failure.original !== null || failure.shifted !== null).length;
  const which = illustrated === images.length ? "Each" : `The first ${illustrated}`;
  const shown = illustrated ? ` ${which} with the original and the image as the model saw it.` : "";
  return `${countOf(total, "misclassified image")}; ${part}.${shown}`;
}

/** @type {(failure: Mistake, thumbnails: string[], onOpen: () => void) => HTMLElement} */
function card(failure, thumbnails, onOpen) {
  return el("button", { type: "button", class: "card", on: { click: onOpen } },
    ...pair(failure, thumbnails), ...facts(failure));
}

/**
 * The original and what the model saw, as far as they are available.
 * @type {(failure: Mistake, thumbnails: string[]) => HTMLElement[]}
 */
function pair(failure, thumbnails) {
  const loading = isPrinting() ? "eager" : "lazy";
  /** @type {(at: number | null, what: string) => HTMLElement[]} */
  const image = (at, what) =>
    at === null ? [] : [el("img", { src: thumbnails[at], alt: `${failure.label}, ${what}`, loading })];
  const images = [...image(failure.original, "original"), ...image(failure.shifted, "as the model saw it")];
  return images.length ? [el("span", { class: "pair" }, images)] : [];
}

/** @type {(failure: Mistake) => Child[]} */
function facts(failure) {
  const sure = failure.confidence === null ? "" : ` ${number(failure.confidence, 1)} %`;
  return [
    el("span", { class: "facts" }, el("b", {}, failure.prediction), el("span", { class: "soft" }, sure)),
    el("span", {}, `label: ${failure.label}`),
    failure.of > 1 && el("span", { class: "soft" }, `wrong for ${failure.wrong} of ${failure.of} models`),
    failure.tags.length > 0 && el("span", { class: "tags" }, failure.tags.map((tag) => el("i", {}, tag))),
  ];
}

/**
 * Tags of one image that can be taken away, and a field for another one.
 * @type {(list: FailureList, failure: Mistake, failures: Failures, onChange: () => void) => HTMLElement}
 */
function tagEditor(list, failure, failures, onChange) {
  const problem = el("span", { role: "alert" });
  /** @type {(tag: string, on: boolean) => Promise<void>} */
  const post = async (tag, on) => {
    const body = JSON.stringify({ dataset: list.dataset, id: failure.id, tag, on });
    const headers = { "Content-Type": "application/json" };
    const answer = await fetch(failures.tagging, { method: "POST", headers, body }).catch(() => null);
    if (!answer?.ok) {
      problem.textContent = answer ? await answer.text() : "not saved: the server does not answer";
      return;
    }
    const tags = await answer.json();
    for (const other of failures.lists.filter((candidate) => candidate.dataset === list.dataset)) {
      for (const image of other.images) if (image.id === failure.id) image.tags = tags;
    }
    onChange();
  };
  const images = failures.lists.flatMap((candidate) => candidate.images);
  const usedTags = [...new Set(images.flatMap((image) => image.tags))].toSorted();
  const options = el("datalist", { id: "known-tags" }, usedTags.map((tag) => el("option", { value: tag })));
  const field = el("input", { list: "known-tags", maxlength: 40, "aria-label": "New tag", placeholder: "tag" });
  /** @type {(event: Event) => void} */
  const add = (event) => {
    event.preventDefault();
    if (field.value.trim()) void post(field.value, true);
  };
  const remove = failure.tags.map((tag) => el("button", {
    type: "button", "aria-label": `Remove tag ${tag}`, on: { click: () => void post(tag, false) },
  }, `${tag} ×`));
  return el("form", { class: "tag-editor", on: { submit: add } },
    remove, field, options, el("button", { type: "submit" }, "Add tag"), problem);
}

/**
 * The dialog in which one failure is seen large; arrow keys go on to the next.
 * @type {(failures: Failures, onTag: () => void) => { node: HTMLElement; open(list: FailureList, at: number): void }}
 */
function enlarged(failures, onTag) {
  const body = el("div");
  const close = el("button", { type: "button", class: "close", on: { click: () => node.close() } }, "Close");
  const node = el("dialog", { class: "enlarged", "aria-label": "One failure" }, body, close);
  /** @type {FailureList | null} */
  let list = null;
  let at = 0;
  const show = () => {
    if (!list) return;
    const failure = list.images[at];
    const place = `${failure.id} · ${list.setting} · ${marked(list.model)} · ${at + 1} of ${list.images.length}`;
    const tagged = () => {
      show();
      onTag();
    };
    body.replaceChildren(...pair(failure, failures.thumbnails), el("div", { class: "facts-large" }, ...facts(failure)),
      failures.tagging ? tagEditor(list, failure, failures, tagged) : "", el("p", { class: "soft" }, place));
  };
  node.addEventListener("keydown", (event) => {
    const way = Number(event.key === "ArrowRight") - Number(event.key === "ArrowLeft");
    if (!way || !list || event.target instanceof HTMLInputElement) return;
    at = Math.min(list.images.length - 1, Math.max(0, at + way));
    show();
  });
  node.addEventListener("click", (event) => event.target === node && node.close());
  return {
    node,
    open(nextList, nextAt) {
      list = nextList;
      at = nextAt;
      show();
      node.showModal();
    },
  };
}

/** @type {(lists: FailureList[]) => CsvRow[]} */
function failuresCsv(lists) {
  /** @type {(list: FailureList, failure: Mistake) => CsvRow} */
  const row = (list, { id, label, prediction, confidence, wrong, of, tags }) =>
    [list.model, list.setting, id, label, prediction, confidence, wrong, of, tags.join("; ")];
  const header = ["model", "setting", "id", "label", "prediction", "confidence", "wrong", "of", "tags"];
  return [header, ...lists.flatMap((list) => list.images.map((failure) => row(list, failure)))];
}
