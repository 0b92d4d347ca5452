/** Numbers and names formatted as in the terminal's tables. */

/** @import { Estimate, ModelEntry, SettingEntry } from "./types.d.ts" */

/** From this many images on a percentage has two decimals; below, one: the second would be noise. */
const FINE_N = 1000;

export const MISSING = "–";

/** @type {Map<string, string>} */
const marks = new Map();

/**
 * Notes which models are marked wherever they are named: † something was assumed, ‡ trained on images of the data.
 * @type {(models: ModelEntry[]) => void}
 */
export function setMarks(models) {
  marks.clear();
  for (const { name, assumed, training_images: seen } of models) {
    marks.set(name, `${assumed.length ? "†" : ""}${seen.length ? "‡" : ""}`);
  }
}

/**
 * A model's name with its marks, as in the terminal's tables.
 * @type {(model: string) => string}
 */
export function marked(model) {
  return model + (marks.get(model) ?? "");
}

/**
 * Decimals that n images can carry; where n is not known the published digits are trusted.
 * @type {(n: number | null, unit?: string) => number}
 */
export function digits(n, unit = "%") {
  if (unit !== "%") return 3;
  return n !== null && n < FINE_N ? 1 : 2;
}

/**
 * Like toFixed, but an exact half goes to the even neighbour, as in Python: 6.25 is 6.2, not 6.3.
 * @type {(value: number, places: number) => string}
 */
export function fixed(value, places) {
  const shown = value.toFixed(places);
  const next = Math.abs(value) * 10 ** (places + 1);
  if (Math.abs(next - Math.round(next)) > 1e-3) return shown; // far from a half: spare the long way
  const whole = Math.abs(value).toFixed(places + 40);
  const rest = whole.slice(whole.length - 40);
  if (rest[0] !== "5" || /[^0]/.test(rest.slice(1))) return shown;
  const kept = whole.slice(0, whole.length - 40).replace(/\.$/, "");
  if (Number(kept.at(-1)) % 2) return shown;
  return value < 0 ? `-${kept}` : kept;
}

/**
 * A value as tables show it: percentages without their sign.
 * @type {(value: number | null | undefined, places: number, unit?: string, options?: { signed?: boolean }) => string}
 */
export function number(value, places, unit = "%", { signed = false } = {}) {
  if (value === null || value === undefined || !Number.isFinite(value)) return MISSING;
  const shown = fixed(unit === "%" ? value * 100 : value, places);
  if (Number(shown) === 0) return shown.replace("-", "");
  return signed && value > 0 ? `+${shown}` : shown;
}

/**
 * `[75.75, 76.50]`, or nothing where there is no interval.
 * @type {(low: number | null, high: number | null, places: number, unit?: string,
 *   options?: { signed?: boolean }) => string}
 */
export function interval(low, high, places, unit = "%", options = {}) {
  if (low === null || high === null || !Number.isFinite(low) || !Number.isFinite(high)) return "";
  return `[${number(low, places, unit, options)}, ${number(high, places, unit, options)}]`;
}

/**
 * The value and the interval of an estimate, as text.
 * @type {(cell: Estimate | null, unit?: string, places?: number) => [string, string]}
 */
export function estimateTexts(cell, unit = "%", places = cell ? digits(cell[3], unit) : 0) {
  if (!cell) return ["", ""];
  return [number(cell[0], places, unit), interval(cell[1], cell[2], places, unit)];
}

/** @type {(n: number) => string} */
export function count(n) {
  return Math.round(n).toString().replace(/\B(?=(\d{3})+$)/g, ",");
}

/**
 * "1 model", "3 models".
 * @type {(n: number, what: string) => string}
 */
export function countOf(n, what) {
  return `${count(n)} ${what}${n === 1 ? "" : "s"}`;
}

/**
 * "95 %".
 * @type {(level: number) => string}
 */
export function levelText(level) {
  return `${Number((level * 100).toPrecision(10))} %`;
}

/**
 * The first few names and how many more there are.
 * @type {(names: string[], most?: number) => string}
 */
export function few(names, most = 4) {
  const shown = names.slice(0, most).join(", ");
  return names.length <= most ? shown : `${shown} and ${names.length - most} more`;
}

/**
 * A long name with its middle cut out: beginnings and ends tell models apart.
 * @type {(name: string, most: number) => string}
 */
export function shortened(name, most) {
  if (name.length <= most) return name;
  const tail = Math.floor((most - 1) / 2);
  return `${name.slice(0, most - 1 - tail)}…${name.slice(name.length - tail)}`;
}

/**
 * The words of a setting's unit, for axes and headings.
 * @type {(setting: SettingEntry) => string}
 */
export function measured(setting) {
  return setting.unit === "%" ? `${setting.metric}, %` : setting.metric;
}

/**
 * A category as readers call it.
 * @type {(category: string) => string}
 */
export function categoryName(category) {
  /** @type {Record<string, string>} */
  const names = {
    standard: "Standard training",
    robustness_intervention: "Robustness intervention",
    more_data: "More data",
    own: "This workspace",
    "": "Category not known",
  };
  return names[category] ?? spaced(category);
}

/**
 * gaussian_noise as people write it.
 * @type {(name: string) => string}
 */
export function spaced(name) {
  return name.replaceAll("_", " ");
}

/**
 * Whether a name holds every word of a query, in any order and case.
 * @type {(name: string, query: string) => boolean}
 */
export function matches(name, query) {
  const lower = name.toLowerCase();
  return query.toLowerCase().split(/\s+/).every((word) => lower.includes(word));
}
