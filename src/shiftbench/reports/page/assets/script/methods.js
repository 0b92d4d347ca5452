/** How the numbers were computed, and what the reader must know before trusting them. */

import { el } from "./dom.js";
import { defineSection } from "./sections.js";

defineSection({
  id: "methods",
  title: "Methods",
  order: 7,
  data: (page) => page.sections.methods,
  build(host, sections) {
    host.append(el("h2", {}, "Methods"), ...sections.map((section) => el("section", { class: "prose" },
      el("h3", {}, section.heading),
      section.paragraphs.map((text) => el("p", {}, text)),
      section.items?.length ? el("ul", {}, section.items.map((text) => el("li", {}, text))) : null)));
    return () => {};
  },
});

defineSection({
  id: "warnings",
  title: "Warnings",
  order: 8,
  data: (page) => (page.warnings.length ? page.warnings : null),
  build(host, warnings) {
    const items = warnings.map((text) => el("li", {}, text));
    host.append(el("h2", {}, `Warnings (${warnings.length})`), el("ul", { class: "prose warnings" }, items));
    return () => {};
  },
});
