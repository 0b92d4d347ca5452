/** Small controls that several sections use. */

import { el, freshId } from "./dom.js";
import { marked } from "./format.js";
import { lineSwatch } from "./palette.js";
import { choose } from "./state.js";

/** @import { Child } from "./types.d.ts" */

const MOST_TOGGLES = 10;

/**
 * A heading with buttons beside it.
 * @type {(text: string, ...buttons: Child[]) => HTMLElement}
 */
export function heading(text, ...buttons) {
  return el("div", { class: "figure-head" }, el("h2", {}, text), el("div", { class: "saves" }, buttons));
}

/**
 * A figure: what it shows, the buttons that save it, the drawing, and a caption.
 * @type {(text: string, options?: { buttons?: Child[]; caption?: string; level?: "h2" | "h3" })
 *   => { node: HTMLElement; canvas: HTMLElement }}
 */
export function figure(text, { buttons = [], caption = "", level = "h3" } = {}) {
  const canvas = el("div", { class: "canvas" });
  const node = el("figure", {},
    el("div", { class: "figure-head" }, el(level, {}, text), el("div", { class: "saves" }, buttons)),
    canvas, caption && el("figcaption", {}, caption));
  return { node, canvas };
}

/**
 * A list of remarks, or null.
 * @type {(texts: string[]) => HTMLElement | null}
 */
export function remarks(texts) {
  return texts.length ? el("ul", { class: "remarks" }, texts.map((text) => el("li", {}, text))) : null;
}

/**
 * A field for part of a model's name: the reader's choice `q`, the same in every section.
 * @type {(label: string, value: string) => { input: HTMLInputElement; set(text: string): void }}
 */
export function searchField(label, value) {
  const input = el("input", {
    type: "search", placeholder: "part of a name", autocomplete: "off", "aria-label": label, value,
    on: { input: () => choose({ q: input.value || null }) },
  });
  return {
    input,
    set(text) {
      if (document.activeElement !== input) input.value = text;
    },
  };
}

/**
 * A choice of one of a few options.
 * @type {(legend: string, options: string[], value: string, onPick: (option: string) => void) => {
 *   node: HTMLElement; set(option: string): void; allow(allowed: (option: string) => boolean): void }}
 */
export function segmented(legend, options, value, onPick) {
  const name = freshId("choice");
  const inputs = options.map((option) => el("input", {
    type: "radio", name, value: option, checked: option === value, on: { change: () => onPick(option) },
  }));
  const node = el("fieldset", { class: "segmented" }, el("legend", {}, legend),
    el("div", {}, inputs.map((input) => el("label", {}, input, el("span", {}, input.value)))));
  return {
    node,
    set(option) {
      for (const input of inputs) input.checked = input.value === option;
    },
    allow(allowed) {
      for (const input of inputs) input.disabled = !allowed(input.value);
    },
  };
}

/**
 * Buttons that switch something on and off; each item: {value, label, swatch, on}.
 * @type {(label: string, items: { value: string; label: string; swatch: Node; on: boolean }[],
 *   onToggle: (value: string) => void) => HTMLElement}
 */
export function toggles(label, items, onToggle) {
  return el("div", { class: "toggles", role: "group", "aria-label": label }, items.map((item) => el("button", {
    type: "button", "aria-pressed": String(item.on), "data-value": item.value,
    on: { click: () => onToggle(item.value) },
  }, item.swatch, el("span", {}, item.label))));
}

/**
 * Whose curves are drawn: the reader's choice `curves`, the same in every section. `shown` is a set of names.
 * @type {(names: string[], shown: Set<string>) => HTMLElement}
 */
export function modelChooser(names, shown) {
  /** @type {(picked: string[]) => void} */
  const onChange = (picked) => choose({ curves: picked });
  if (names.length > MOST_TOGGLES) return ticklist({ summary: "Models", names, ticked: [...shown], onChange });
  const items = names.map((name, i) => (
    { value: name, label: marked(name), swatch: lineSwatch(i), on: shown.has(name) }));
  /** @type {(name: string) => void} */
  const toggle = (name) => onChange(names.filter((other) => (other === name ? !shown.has(name) : shown.has(other))));
  return el("div", { class: "legend" }, toggles("Models shown", items, toggle));
}

/**
 * A panel that opens: a list of names to tick, with a filter for long ones.
 * @type {(options: { summary: string; names: string[]; ticked: string[]; onChange: (picked: string[])
 *   => void }) => HTMLElement}
 */
export function ticklist({ summary, names, ticked, onChange }) {
  const boxes = names.map((name) => el("input", { type: "checkbox", value: name, checked: ticked.includes(name) }));
  const rows = boxes.map((box) => el("label", {}, box, el("span", {}, box.value)));
  const counter = el("span", {}, `${summary}: ${ticked.length} of ${names.length}`);
  const report = () => {
    const picked = boxes.filter((box) => box.checked).map((box) => box.value);
    counter.textContent = `${summary}: ${picked.length} of ${names.length}`;
    onChange(picked);
  };
  /** @type {(on: boolean) => () => void} */
  const setListed = (on) => () => {
    for (const [i, box] of boxes.entries()) if (!rows[i].hidden) box.checked = on;
    report();
  };
  const filter = el("input", {
    type: "search", placeholder: "filter", "aria-label": `Filter ${summary}`, autocomplete: "off",
    on: { input: () => {
      const query = filter.value.toLowerCase();
      for (const [i, row] of rows.entries()) row.hidden = !names[i].toLowerCase().includes(query);
    } },
  });
  return el("details", { class: "ticklist" }, el("summary", {}, counter),
    el("div", { class: "ticklist-head" }, filter,
      el("button", { type: "button", on: { click: setListed(true) } }, "all listed"),
      el("button", { type: "button", on: { click: setListed(false) } }, "none listed")),
    el("div", { class: "ticklist-body", role: "group", "aria-label": summary, on: { change: report } }, rows));
}
