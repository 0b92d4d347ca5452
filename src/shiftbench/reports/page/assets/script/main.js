/** The page: reads the payload, shows one section at a time, and draws each when it is first looked at. */

import { calibrationSection } from "./calibration.js";
import { corruptionSection } from "./corruption.js";
import { el, isPrinting } from "./dom.js";
import { failuresSection } from "./failures.js";
import { countOf } from "./format.js";
import { follow } from "./live.js";
import { methodsSection, warningsSection } from "./methods.js";
import { keepPlace } from "./place.js";
import { resultsSection } from "./results.js";
import { robustnessSection } from "./robustness.js";
import { choose, chosen, onChoice, readAddress } from "./state.js";
import { setUpTheme } from "./theme.js";
import { hideTooltip } from "./tooltip.js";
import { trainingSection } from "./training.js";

const FORMAT = 1;

/** In the order of the tabs; a function, for the modules are one script in which this one may come first. */
function allSections() {
  return [
    robustnessSection, resultsSection, corruptionSection, calibrationSection, failuresSection, trainingSection,
    methodsSection, warningsSection,
  ];
}

/** The payload shown now, and its sections: id to {section, panel, tab, refresh}; refresh is null until first drawn. */
let page = null;
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
  else show(JSON.parse(byId("payload").textContent));
  performance.measure("first draw", "start");
}

function byId(id) {
  return document.getElementById(id);
}

/** Takes a payload, new or newer, and draws what is looked at. */
function show(payload) {
  page = payload;
  if (page?.format !== FORMAT) {
    const found = page ? `format ${page.format}` : "none";
    return notice("problem", `The data of this page can't be read: expected format ${FORMAT}, found ${found}.`);
  }
  document.title = byId("title").textContent = page.title;
  byId("subtitle").textContent = summary(page);
  byId("footer").textContent = `shiftbench ${page.version}`;
  showProgress(page.progress);
  layOut(allSections().filter((section) => section.has(page)));
  refresh();
}

function summary({ results }) {
  if (!results) return "";
  const own = results.models.filter((model) => model.own).length;
  const others = results.models.length - own;
  return [
    own && `${countOf(own, "model")} of this workspace`,
    others && countOf(others, own ? "published model" : "model"),
    countOf(results.settings.length, "setting"),
  ].filter(Boolean).join(" · ");
}

/** Tabs and empty panels, one for each section that has something to show. */
function layOut(sections) {
  shown = new Map(sections.map((section) => [section.id, { section, ...tabAndPanel(section), refresh: null }]));
  const parts = [...shown.values()];
  byId("tabs").replaceChildren(
    el("div", { role: "tablist", "aria-label": "Sections", on: { keydown: walkTabs } }, parts.map((part) => part.tab)));
  byId("sections").replaceChildren(...parts.map((part) => part.panel));
  if (sections.length) return;
  const waiting = "Nothing has been evaluated yet. What a run writes will be shown here.";
  byId("sections").append(el("p", { class: "waiting" }, waiting));
}

function tabAndPanel({ id, title }) {
  const words = id === "warnings" ? `${title} (${page.warnings.length})` : title;
  const open = () => choose({ view: id }, { remember: true });
  return {
    tab: el("button", {
      type: "button", role: "tab", id: `tab-${id}`, "aria-controls": `panel-${id}`, on: { click: open },
    }, words),
    panel: el("section", { class: "panel", role: "tabpanel", id: `panel-${id}`, "aria-labelledby": `tab-${id}` }),
  };
}

function walkTabs(event) {
  const tabs = [...shown.values()].map((part) => part.tab);
  const at = tabs.indexOf(document.activeElement);
  const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
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
  const view = shown.has(chosen("view")) ? chosen("view") : [...shown.keys()][0];
  for (const [id, part] of shown) {
    const current = id === view;
    part.tab.setAttribute("aria-selected", String(current));
    part.tab.tabIndex = current ? 0 : -1;
    if (current) reveal(part.tab);
    part.panel.hidden = !current && !isPrinting();
    if (part.panel.hidden) continue;
    part.refresh ??= part.section.build(part.panel, page);
    part.refresh();
  }
}

/** Brings a tab into sight where the bar is wider than the window; the page itself stays where it is. */
function reveal(tab) {
  const bar = tab.parentElement;
  const left = tab.offsetLeft - bar.offsetLeft;
  bar.scrollLeft = Math.min(left, Math.max(bar.scrollLeft, left + tab.offsetWidth - bar.clientWidth));
}

/** Print previews show every section; so do browsers that only pretend to print. */
function setUpPrinting() {
  const set = (on) => {
    document.documentElement.classList.toggle("printing", on);
    refresh();
  };
  addEventListener("beforeprint", () => set(true));
  addEventListener("afterprint", () => set(false));
  matchMedia("print").addEventListener("change", (event) => set(event.matches));
}

function notice(kind, ...content) {
  byId("notices").replaceChildren(el("p", { class: `notice ${kind}` }, content));
}

function showProgress(progress) {
  if (!progress) return byId("notices").replaceChildren();
  const { cells_done: value, cells_total: max, text } = progress;
  notice("progress", el("span", {}, text), max && el("progress", { value, max, "aria-label": `${value} of ${max}` }));
}

function showConnection(state) {
  const words = "The viewer does not answer. What was last read is shown; this page goes on asking.";
  if (state === "lost") notice("lost", words);
  else if (document.querySelector(".notice.lost")) showProgress(page?.progress);
}

// All modules of the page are one script: what they define is there once the document is.
addEventListener("DOMContentLoaded", start);
