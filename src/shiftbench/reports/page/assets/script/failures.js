/** Failures: the pictures that a classifier was most confidently wrong about, as they were and as it saw them. */

import { combobox } from "./combobox.js";
import { heading } from "./controls.js";
import { el, isPrinting } from "./dom.js";
import { count, countOf, number } from "./format.js";
import { saveCsvButton } from "./save.js";
import { choose, chosen } from "./state.js";

export const failuresSection = {
  id: "failures",
  title: "Failures",
  has: (page) => page.failures.some((list) => list.images.length),
  build: buildFailures,
};

function buildFailures(host, page) {
  const lists = page.failures.filter((list) => list.images.length);
  const models = [...new Set(lists.map((list) => list.model))];
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
  const dialog = enlarged(page.pictures);
  host.append(
    heading("Failures", saveCsvButton("failures", () => failuresCsv(lists))),
    el("div", { class: "controls" }, pickModel.node, pickSetting.node), words, cards, dialog.node);
  return () => {
    const { model, setting } = current();
    const list = lists.find((one) => one.model === model && one.setting === setting);
    pickModel.set(model);
    pickSetting.set(setting);
    words.textContent = explainedList(list);
    cards.replaceChildren(...list.images.map((failure, i) => card(failure, page.pictures, () => dialog.open(list, i))));
  };
}

function explainedList({ total, images }) {
  const part = images.length < total ? `the ${count(images.length)} most confident ones` : "all of them";
  const illustrated = images.filter((failure) => failure.original !== null || failure.shifted !== null).length;
  const which = illustrated === images.length ? "Each" : `The first ${illustrated}`;
  const pictures = illustrated ? ` ${which} with the picture and what the classifier saw of it.` : "";
  return `${countOf(total, "image")} wrong; ${part}, most confident first.${pictures}`;
}

function card(failure, pictures, onOpen) {
  return el("button", { type: "button", class: "card", on: { click: onOpen } },
    ...pair(failure, pictures), ...facts(failure));
}

/** The picture and what the classifier saw of it, as far as they are at hand. */
function pair(failure, pictures) {
  const both = [["picture", failure.original], ["as the classifier saw it", failure.shifted]];
  const known = both.filter(([, at]) => at !== null && pictures[at] !== undefined);
  if (!known.length) return [];
  const loading = isPrinting() ? "eager" : "lazy";
  const image = ([what, at]) => el("img", { src: pictures[at], alt: `${failure.label}, ${what}`, loading });
  return [el("span", { class: "pair" }, known.map(image))];
}

function facts(failure) {
  const sure = failure.confidence === null ? "" : ` ${number(failure.confidence, 1)} %`;
  return [
    el("span", { class: "told" }, el("b", {}, failure.prediction), el("span", { class: "soft" }, sure)),
    el("span", {}, `label: ${failure.label}`),
    failure.of > 1 && el("span", { class: "soft" }, `wrong for ${failure.wrong} of ${failure.of} classifiers`),
  ];
}

/** The dialog in which one failure is seen large; arrow keys go on to the next. */
function enlarged(pictures) {
  const body = el("div");
  const close = el("button", { type: "button", class: "close", on: { click: () => node.close() } }, "Close");
  const node = el("dialog", { class: "enlarged", "aria-label": "One failure" }, body, close);
  let [list, at] = [null, 0];
  const show = () => {
    const failure = list.images[at];
    const place = `${failure.id} · ${list.setting} · ${list.model} · ${at + 1} of ${list.images.length}`;
    body.replaceChildren(...pair(failure, pictures), el("div", { class: "told-large" }, ...facts(failure)),
      el("p", { class: "soft" }, place));
  };
  node.addEventListener("keydown", (event) => {
    const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!way) return;
    at = Math.min(list.images.length - 1, Math.max(0, at + way));
    show();
  });
  node.addEventListener("click", (event) => event.target === node && node.close());
  return {
    node,
    open(nextList, nextAt) {
      [list, at] = [nextList, nextAt];
      show();
      node.showModal();
    },
  };
}

function failuresCsv(lists) {
  const row = (list, { id, label, prediction, confidence, wrong, of }) =>
    [list.model, list.setting, id, label, prediction, confidence, wrong, of];
  const header = ["model", "setting", "id", "label", "prediction", "confidence", "wrong", "of"];
  return [header, ...lists.flatMap((list) => list.images.map((failure) => row(list, failure)))];
}
