/** A field in which one types a few letters and chooses from what matches; all by keyboard or by pointer. */

import { el, freshId } from "./dom.js";
import { matches } from "./format.js";

/** @import { Combobox } from "./types.d.ts" */

const MOST_SHOWN = 400;

/**
 * `options()` gives the names to choose from. With `free` the typed text itself counts (a search), and `onInput` hears
 * every letter; without, only a name of the list is taken, and the field falls back to the last one.
 * @type {(options: { label: string; options: () => string[]; value: string; onPick: (name: string) => void;
 *   onInput?: (text: string) => void; free?: boolean; placeholder?: string }) => Combobox}
 */
export function combobox({ label, options, value, onPick, onInput, free = false, placeholder = "" }) {
  const ids = { field: freshId("field"), list: freshId("list") };
  let current = value;
  let active = -1;
  /** @type {string[]} */
  let shown = [];
  const list = el("ul", { role: "listbox", id: ids.list, "aria-label": label, hidden: true });
  const input = el("input", {
    id: ids.field, type: free ? "search" : "text", role: "combobox", placeholder, value,
    autocomplete: "off", spellcheck: "false",
    "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": ids.list,
  });
  const node = el("div", { class: "combo" }, el("label", { for: ids.field }, label), input, list);

  /** @type {(query: string) => void} */
  const open = (query) => {
    shown = options().filter((name) => !query || matches(name, query)).slice(0, MOST_SHOWN);
    /** @type {(name: string, i: number) => HTMLElement} */
    const option = (name, i) => el("li", { role: "option", id: `${ids.list}-${i}`, "data-at": i }, name);
    list.replaceChildren(...shown.map(option));
    if (!shown.length) list.append(el("li", { class: "soft", "aria-disabled": "true" }, "no matches"));
    list.hidden = free && !query;
    input.setAttribute("aria-expanded", String(!list.hidden));
    activate(free ? -1 : shown.indexOf(current));
  };
  const close = () => {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  /** @type {(place: number) => void} */
  const activate = (place) => {
    active = place;
    for (const [i, item] of [...list.children].entries()) item.setAttribute("aria-selected", String(i === place));
    if (place < 0) return input.removeAttribute("aria-activedescendant");
    input.setAttribute("aria-activedescendant", `${ids.list}-${place}`);
    const { offsetTop, offsetHeight } = /** @type {HTMLElement} */ (list.children[place]);
    list.scrollTop = Math.min(offsetTop, Math.max(list.scrollTop, offsetTop + offsetHeight - list.clientHeight));
  };
  /** @type {(name: string) => void} */
  const pick = (name) => {
    current = input.value = name;
    close();
    onPick(name);
  };
  const settle = () => {
    close();
    if (!free) input.value = current;
  };

  input.addEventListener("focus", () => input.select());
  input.addEventListener("click", () => list.hidden && open(free ? input.value : ""));
  input.addEventListener("input", () => {
    open(input.value);
    if (!free && shown.length) activate(0);
    onInput?.(input.value);
  });
  input.addEventListener("blur", settle);
  input.addEventListener("keydown", (event) => {
    /** @type {Record<string, number>} */
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 };
    if (event.key in moves) {
      event.preventDefault();
      if (list.hidden) open(free ? input.value : "");
      else if (shown.length) activate(Math.min(shown.length - 1, Math.max(0, active + moves[event.key])));
    } else if (event.key === "Enter" && !list.hidden && active >= 0) {
      event.preventDefault();
      pick(shown[active]);
    } else if (event.key === "Enter") {
      close();
    } else if (event.key === "Escape") {
      event.stopPropagation();
      if (free && list.hidden && input.value) onInput?.((input.value = ""));
      settle();
    }
  });
  // Before the field loses its focus, or the list would be gone when the click arrives.
  list.addEventListener("pointerdown", (event) => event.preventDefault());
  list.addEventListener("click", (event) => {
    const item = /** @type {Element} */ (event.target).closest("[data-at]");
    if (item) pick(shown[Number(item.getAttribute("data-at"))]);
  });
  return {
    node, input,
    set(name) {
      if (document.activeElement !== input) input.value = name;
      current = name;
    },
  };
}
