/** Light or dark: as the system says, until the reader chooses. */

import { byId } from "./dom.js";

/** @typedef {"" | "light" | "dark"} Theme */

const KEY = "shiftbench-theme";
/** @type {Record<Theme, string>} */
const NAMES = { "": "system", light: "light", dark: "dark" };

/** @type {(onChange: () => void) => void} */
export function setUpTheme(onChange) {
  const button = byId("theme");
  /** @type {(theme: Theme) => void} */
  const apply = (theme) => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    button.textContent = { "": "◐", light: "☀", dark: "☾" }[theme];
    button.setAttribute("aria-label", `Colours: ${NAMES[theme]}. Change`);
    button.title = `Colours: ${NAMES[theme]}`;
  };
  let theme = remembered();
  apply(theme);
  button.addEventListener("click", () => {
    const order = /** @type {Theme[]} */ (Object.keys(NAMES));
    theme = order[(order.indexOf(theme) + 1) % order.length];
    apply(theme);
    remember(theme);
    onChange();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", onChange);
}

/**
 * A page from a file may be denied a memory; it then forgets, and nothing else happens.
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
    // not remembered
  }
}
