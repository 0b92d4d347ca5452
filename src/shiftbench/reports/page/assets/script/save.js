/** Charts and tables as files: made in the page and handed to the browser, nothing leaves the machine. */

import { el } from "./dom.js";

/** @import { CsvRow } from "./types.d.ts" */

const STYLES = [
  "fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linejoin",
  "paint-order", "opacity", "font-family", "font-size", "font-weight", "text-anchor", "visibility",
];

/**
 * A button that saves what `content` returns.
 * @type {(label: string, describe: string, type: string, content: () => { name: string; text: string }) => HTMLElement}
 */
function saveButton(label, describe, type, content) {
  const save = () => {
    const { name, text } = content();
    const url = URL.createObjectURL(new Blob([text], { type }));
    const link = el("a", { href: url, download: fileName(name) });
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  };
  const name = `Save ${describe} as ${label}`;
  return el("button", { type: "button", class: "save", "aria-label": name, on: { click: save } }, label);
}

/**
 * Saves a chart, in the colours for paper.
 * @type {(describe: string, find: () => SVGSVGElement | null) => HTMLElement}
 */
export function saveSvgButton(describe, find) {
  return saveButton("SVG", describe, "image/svg+xml", () => ({ name: `${describe}.svg`, text: svgText(find()) }));
}

/**
 * Saves a table with all its digits; `rows` returns lists of cells, the header first.
 * @type {(describe: string, rows: () => CsvRow[]) => HTMLElement}
 */
export function saveCsvButton(describe, rows) {
  return saveButton("CSV", describe, "text/csv", () => ({ name: `${describe}.csv`, text: csvText(rows()) }));
}

/** @type {(name: string) => string} */
function fileName(name) {
  return name.replace(/[^\w.-]+/g, "-").replace(/^[-.]+/, "").slice(-120);
}

/**
 * The chart with its styles written into it, for a file has no style sheet.
 * @type {(chart: SVGSVGElement | null) => string}
 */
function svgText(chart) {
  if (!chart) return "";
  const root = document.documentElement;
  const theme = root.dataset.theme;
  root.dataset.theme = "light";
  const copy = /** @type {SVGSVGElement} */ (chart.cloneNode(true));
  const twins = [copy, ...copy.querySelectorAll("*")];
  for (const [i, node] of [chart, ...chart.querySelectorAll("*")].entries()) {
    const style = getComputedStyle(node);
    for (const name of STYLES) twins[i].setAttribute(name, style.getPropertyValue(name));
    for (const name of ["class", "tabindex", "role"]) twins[i].removeAttribute(name);
  }
  if (theme === undefined) delete root.dataset.theme;
  else root.dataset.theme = theme;
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  for (const gone of copy.querySelectorAll("[data-screen-only]")) gone.remove();
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(copy)}\n`;
}

/** @type {(rows: CsvRow[]) => string} */
function csvText(rows) {
  return rows.map((row) => row.map(csvCell).join(",")).join("\n") + "\n";
}

/**
 * Numbers with all digits; a name that a spreadsheet would run as a formula gets a leading apostrophe.
 * @type {(value: CsvRow[number]) => string}
 */
function csvCell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = value.replace(/\s+/g, " ").trim();
  const safe = /^[=+\-@]/.test(text) ? `'${text}` : text;
  return /[",]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
