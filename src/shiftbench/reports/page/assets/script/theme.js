/** Light or dark: as the system says, until the reader chooses. */

import { byId } from "./dom.js";

/** @typedef {"" | "light" | "dark"} Theme */

const KEY = "shiftbench-theme";
/** @type {Record<Theme, string>} */
const NAMES = { "": "system", light: "light", dark: "dark" };

/** @type {Record<Theme, string>} */
const SYMBOLS = { "": "◐", light: "☀", dark: "☾" };

/**
 * Shows the remembered theme, and the one that the reader picks here or in another tab.
 * @type {(onChange: () => void) => void}
 */
export function setUpTheme(onChange) {
  const button = byId("theme");
  let theme = remembered();
  /** @type {(next: Theme) => void} */
  const change = (next) => {
    theme = next;
    showTheme(theme, button);
    onChange();
  };
  showTheme(theme, button);
  button.addEventListener("click", () => {
    change(nextTheme(theme));
    remember(theme);
  });
  // Another tab chose; or this page was loaded again before the browser had stored what the reader chose.
  addEventListener("storage", (event) => {
    if (event.key === KEY) change(remembered());
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", onChange);
}

/** @type {(theme: Theme, button: HTMLElement) => void} */
function showTheme(theme, button) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  button.textContent = SYMBOLS[theme];
  button.setAttribute("aria-label", `Colours: ${NAMES[theme]}. Change`);
  button.title = `Colours: ${NAMES[theme]}`;
}

/**
 * The theme that the button offers next: system, light, dark, system.
 * @type {(theme: Theme) => Theme}
 */
function nextTheme(theme) {
  const themes = /** @type {Theme[]} */ (Object.keys(NAMES));
  return themes[(themes.indexOf(theme) + 1) % themes.length];
}

/**
 * A browser may deny storage to a page that was opened from a file; the choice then lasts until the page is closed.
 * @type {() => Theme}
 */
function remembered() {
  try {
    const theme = localStorage.getItem(KEY);
    return theme === "light" || theme === "dark" ? theme : "";
  } catch {
    return "";
  }
}

/** @type {(theme: Theme) => void} */
function remember(theme) {
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // The theme still holds for this visit.
  }
}
