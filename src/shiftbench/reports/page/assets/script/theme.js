/** Light or dark: as the system says, until the reader chooses. */

const KEY = "shiftbench-theme";
const NAMES = { "": "as the system", light: "light", dark: "dark" };

export function setUpTheme(onChange) {
  const button = document.getElementById("theme");
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
    const order = Object.keys(NAMES);
    theme = order[(order.indexOf(theme) + 1) % order.length];
    apply(theme);
    remember(theme);
    onChange();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", onChange);
}

/** A page from a file may be denied a memory; it then forgets, and nothing else happens. */
function remembered() {
  try {
    const theme = localStorage.getItem(KEY) ?? "";
    return theme in NAMES ? theme : "";
  } catch {
    return "";
  }
}

function remember(theme) {
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // not remembered
  }
}
