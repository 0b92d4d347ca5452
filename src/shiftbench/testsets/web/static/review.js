// Keys for reviewers: arrows move between pictures, letters press the buttons of the one in focus.
"use strict";

const cards = [...document.querySelectorAll("#cards > .card")];

function columns() {
  const wrap = cards.findIndex((card) => card.offsetTop > cards[0].offsetTop);
  return wrap < 0 ? cards.length : wrap;
}

function move(step) {
  const here = cards.findIndex((card) => card.contains(document.activeElement));
  const next = cards[here < 0 ? 0 : here + step];
  if (next) next.focus();
}

function act(letter) {
  const card = cards.find((one) => one.contains(document.activeElement));
  const found = (card ?? document).querySelector(`[data-key="${letter}"]`) ??
    (letter === "f" ? document.querySelector('[data-key="f"]') : null);
  if (!found || (!card && letter !== "f")) return false;
  if (found.tagName === "INPUT") found.focus();
  else found.click();
  return true;
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const writing = event.target.matches("input:not([type=checkbox]), select, textarea");
  if (writing) {
    if (event.key === "Escape") event.target.closest(".card")?.focus();
    return;
  }
  const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns(), ArrowDown: columns() };
  if (event.key in steps && cards.length) {
    move(steps[event.key]);
    event.preventDefault();
  } else if (/^[bdefku]$/.test(event.key) && act(event.key)) {
    event.preventDefault();
  }
});

// After a mark the page comes back to the same picture.
const marked = location.hash && document.getElementById(location.hash.slice(1));
if (marked) marked.focus();
else if (cards.length) cards[0].focus({ preventScroll: true });
