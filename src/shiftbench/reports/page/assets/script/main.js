/** The page: reads the payload, shows one section at a time, and draws each when it is first looked at. */

import { showAbout } from "./about.js";
import { byId, el, isPrinting } from "./dom.js";
import { setMarks } from "./format.js";
import { follow } from "./live.js";
import { keepPlace } from "./place.js";
import { sections } from "./sections.js";
import { choose, chosen, onChoice, readAddress } from "./state.js";
import { setUpTheme } from "./theme.js";
import { hideTooltip } from "./tooltip.js";

/** @import { Child, Page, Progress } from "./types.d.ts" */

const FORMAT = 1;

/**
 * The payload that is shown.
 * @type {Page | null}
 */
let page = null;
/**
 * Its sections by id; `refresh` is null until a section is first drawn.
 * @type {Map<string, { build: () => () => void; refresh: (() => void) | null; tab: HTMLElement; panel: HTMLElement }>}
 */
let shown = new Map();

function start() {
  performance.mark("start");
  setUpTheme(refresh);
  setUpPrinting();
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault();
    byId("sections").focus();
  });
  onChoice(() => keepPlace(refresh));
  addEventListener("hashchange", readAddress);
  readAddress();
  const live = document.documentElement.dataset.live;
  if (live) follow(live, (next) => keepPlace(() => show(next)), showConnection);
  else show(JSON.parse(byId("payload").textContent ?? "null"));
  performance.measure("first draw", "start");
}

/**
 * Takes a payload, new or newer, and draws what is looked at.
 * @type {(payload: Page) => void}
 */
function show(payload) {
  page = payload;
  if (page?.format !== FORMAT) {
    const found = page ? `format ${page.format}` : "none";
    notice("problem", `The data of this page can't be read: expected format ${FORMAT}, found ${found}.`);
    return;
  }
  document.title = byId("title").textContent = page.title;
  showAbout(page);
  byId("footer").textContent = `shiftbench ${page.version}`;
  showProgress(page.progress);
  setMarks(page.sections.results?.models ?? []);
  layOut(page);
  refresh();
}

/**
 * Tabs and empty panels, one for each section that has something to show.
 * @type {(payload: Page) => void}
 */
function layOut(payload) {
  shown = new Map(sections.toSorted((a, b) => a.order - b.order).flatMap((section) => {
    const data = section.data(payload);
    if (!data) return [];
    const { tab, panel } = tabAndPanel(section.id, section.title);
    return [[section.id, { build: () => section.build(panel, data), tab, panel, refresh: null }]];
  }));
  const parts = [...shown.values()];
  byId("tabs").replaceChildren(
    el("div", { role: "tablist", "aria-label": "Sections", on: { keydown: walkTabs } }, parts.map((part) => part.tab)));
  byId("sections").replaceChildren(...parts.map((part) => part.panel));
  if (parts.length) return;
  byId("sections").append(el("p", { class: "waiting" }, "No results yet. They appear here as the run writes them."));
}

/** @type {(id: string, title: string) => { tab: HTMLButtonElement; panel: HTMLElement }} */
function tabAndPanel(id, title) {
  const open = () => choose({ view: id }, { remember: true });
  return {
    tab: el("button", {
      type: "button", role: "tab", id: `tab-${id}`, "aria-controls": `panel-${id}`, on: { click: open },
    }, title),
    panel: el("section", { class: "panel", role: "tabpanel", id: `panel-${id}`, "aria-labelledby": `tab-${id}` }),
  };
}

/** @type {(event: KeyboardEvent) => void} */
function walkTabs(event) {
  const tabs = [...shown.values()].map((part) => part.tab);
  const at = tabs.findIndex((tab) => tab === document.activeElement);
  /** @type {Record<string, number>} */
  const places = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 };
  const next = places[event.key];
  if (next === undefined || at < 0) return;
  event.preventDefault();
  const target = tabs[(next + tabs.length) % tabs.length];
  target.focus();
  target.click();
}

/** Shows the chosen section and draws it anew; on paper, all of them. */
function refresh() {
  if (!shown.size) return;
  hideTooltip();
  const first = [...shown.keys()][0];
  const view = shown.has(chosen("view")) ? chosen("view") : first;
  // A narrow screen has room for the first lines of the page on its first tab only.
  document.body.classList.toggle("beyond-first-tab", view !== first);
  for (const [id, part] of shown) {
    const current = id === view;
    part.tab.setAttribute("aria-selected", String(current));
    part.tab.tabIndex = current ? 0 : -1;
    if (current) reveal(part.tab);
    part.panel.hidden = !current && !isPrinting();
    if (part.panel.hidden) continue;
    part.refresh ??= part.build();
    part.refresh();
  }
}

/**
 * Brings a tab into sight where the bar is wider than the window; the page itself stays where it is.
 * @type {(tab: HTMLElement) => void}
 */
function reveal(tab) {
  const bar = /** @type {HTMLElement} */ (tab.parentElement);
  const left = tab.offsetLeft - bar.offsetLeft;
  bar.scrollLeft = Math.min(left, Math.max(bar.scrollLeft, left + tab.offsetWidth - bar.clientWidth));
}

/** Print previews show every section; so do browsers that only pretend to print. */
function setUpPrinting() {
  /** @type {(on: boolean) => void} */
  const set = (on) => {
    document.documentElement.classList.toggle("printing", on);
    refresh();
  };
  addEventListener("beforeprint", () => set(true));
  addEventListener("afterprint", () => set(false));
  matchMedia("print").addEventListener("change", (event) => set(event.matches));
}

/** @type {(kind: string, ...content: Child[]) => void} */
function notice(kind, ...content) {
  byId("notices").replaceChildren(el("p", { class: `notice ${kind}` }, content));
}

/** @type {(progress: Progress | null) => void} */
function showProgress(progress) {
  if (!progress) return byId("notices").replaceChildren();
  const { results_done: value, results_total: max, text } = progress;
  notice("progress", el("span", {}, text), max && el("progress", { value, max, "aria-label": `${value} of ${max}` }));
}

/** @type {(state: "live" | "lost") => void} */
function showConnection(state) {
  const words = "The viewer does not respond. This page shows what it last received and keeps trying.";
  if (state === "lost") notice("lost", words);
  else if (document.querySelector(".notice.lost")) showProgress(page?.progress ?? null);
}

// All modules of the page are one script: what they define is there once the document is.
addEventListener("DOMContentLoaded", start);
