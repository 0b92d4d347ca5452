/** How the numbers came about, and what the reader must know before trusting them. */

import { el } from "./dom.js";

export const methodsSection = {
  id: "methods",
  title: "Methods",
  has: (page) => page.methods.length > 0,
  build(host, page) {
    host.append(el("h2", {}, "Methods"), ...page.methods.map((section) => el("section", { class: "prose" },
      el("h3", {}, section.heading),
      section.paragraphs.map((text) => el("p", {}, text)),
      section.items?.length ? el("ul", {}, section.items.map((text) => el("li", {}, text))) : null)));
    return () => {};
  },
};

export const warningsSection = {
  id: "warnings",
  title: "Warnings",
  has: (page) => page.warnings.length > 0,
  build(host, page) {
    const items = page.warnings.map((text) => el("li", {}, text));
    host.append(el("h2", {}, "Warnings"), el("ul", { class: "prose warnings" }, items));
    return () => {};
  },
};
