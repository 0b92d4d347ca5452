// Keyboard shortcuts of the review pages: arrows move between images, letters press buttons of the focused one.
"use strict";

/** @type {NodeListOf<HTMLElement>} */
const found = document.querySelectorAll("#cards > .card");
const cards = [...found];

function columns() {
  const wrap = cards.findIndex((card) => card.offsetTop > cards[0].offsetTop);
  return wrap < 0 ? cards.length : wrap;
}

/** @type {(step: number) => void} */
function move(step) {
  const here = cards.findIndex((card) => card.contains(document.activeElement));
  const next = cards[here < 0 ? 0 : here + step];
  if (next) next.focus();
}

/** @type {(letter: string) => boolean} */
function act(letter) {
  const card = cards.find((one) => one.contains(document.activeElement));
  /** @type {HTMLElement | null} */
  const inCard = (card ?? document).querySelector(`[data-key="${letter}"]`);
  /** @type {HTMLElement | null} */
  const button = inCard ?? (letter === "f" ? document.querySelector('[data-key="f"]') : null);
  if (!button || (!card && letter !== "f")) return false;
  if (button.tagName === "INPUT") button.focus();
  else button.click();
  return true;
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const target = /** @type {HTMLElement} */ (event.target);
  if (target.matches("input:not([type=checkbox]), select, textarea")) {
    if (event.key === "Escape") cards.find((card) => card.contains(target))?.focus();
    return;
  }
  /** @type {Record<string, number>} */
  const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns(), ArrowDown: columns() };
  if (event.key in steps && cards.length) {
    move(steps[event.key]);
    event.preventDefault();
  } else if (/^[bdefku]$/.test(event.key) && act(event.key)) {
    event.preventDefault();
  }
});

// After a mark, focus the same image again.
const marked = location.hash && document.getElementById(location.hash.slice(1));
if (marked) marked.focus();
else if (cards.length) cards[0].focus({ preventScroll: true });
