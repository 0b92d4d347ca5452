// Progressive enhancement of plain forms: keyboard shortcuts, a counter, and a timer that is renewed while active.
"use strict";

const form = /** @type {HTMLFormElement} */ (document.getElementById("answer"));
/** @type {NodeListOf<HTMLInputElement>} */
const inputs = form.querySelectorAll("input[name=image]");
const tiles = [...inputs];
const count = document.getElementById("count");
const clock = /** @type {HTMLElement} */ (document.getElementById("clock"));

function showCount() {
  const chosen = tiles.filter((tile) => tile.checked).length;
  if (count) count.textContent = `${chosen} selected`;
  // If all images are deselected on the check page, "None of these" must be chosen instead.
  const submit = /** @type {HTMLButtonElement | null} */ (document.getElementById("submit"));
  if (submit && tiles.length) submit.disabled = chosen === 0;
}

function columns() {
  const tops = tiles.map((tile) => /** @type {HTMLElement | null} */ (tile.closest(".tile"))?.offsetTop ?? 0);
  const wrap = tops.findIndex((top) => top > tops[0]);
  return wrap < 0 ? tiles.length : wrap;
}

/** @type {(id: string) => boolean} */
function press(id) {
  const button = document.getElementById(id);
  if (button) button.click();
  return Boolean(button);
}

/** @type {(event: KeyboardEvent) => void} */
function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (document.activeElement?.matches("input:not([type=checkbox])")) return;
  const here = tiles.findIndex((tile) => tile === document.activeElement);
  /** @type {Record<string, number>} */
  const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns(), ArrowDown: columns() };
  let done = true;
  if (event.key in steps) {
    const next = here < 0 ? 0 : here + steps[event.key];
    if (tiles[next]) tiles[next].focus();
  } else if (event.key === "Enter" && here >= 0) {
    tiles[here].click(); // the browser handles space
  } else if (event.key === "n") {
    done = press("none");
  } else if (event.key === "r") {
    done = press("review");
  } else {
    done = false;
  }
  if (done) event.preventDefault();
}

// The menu of an image covers others.
document.addEventListener("click", ({ target }) => {
  for (const menu of form.querySelectorAll("details[open]")) {
    if (target instanceof Node && !menu.contains(target)) menu.removeAttribute("open");
  }
});
form.addEventListener("change", showCount);
if (tiles.length) document.addEventListener("keydown", key);
showCount();
window.addEventListener("pageshow", showCount); // a browser that goes back remembers what was checked

// The timer of the lease
let ends = Date.now() + 1000 * Number(clock.dataset.seconds);
const lease = 1000 * Number(clock.dataset.seconds);
let active = false;
let renewed = Date.now();
for (const kind of ["pointerdown", "keydown", "scroll"]) {
  addEventListener(kind, () => { active = true; }, { passive: true });
}

function showTime() {
  const left = Math.max(0, Math.floor((ends - Date.now()) / 1000));
  const minutes = `${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")}`;
  clock.textContent = left ? `Time left: ${minutes}` : "Time is up; this task was returned to the queue.";
  clock.classList.toggle("late", left < 60);
}

async function renew() {
  // At most once per twentieth of the lease, and at most every five seconds.
  if (!active || Date.now() - renewed < Math.max(5000, lease / 20) || Date.now() > ends) return;
  active = false;
  renewed = Date.now();
  const body = new URLSearchParams({ form: String(new FormData(form).get("form")) });
  try {
    const answer = await fetch(clock.dataset.renew ?? "", { method: "POST", body });
    if (answer.ok) ends = Date.now() + 1000 * (await answer.json()).seconds;
  } catch {
    // Offline: the next activity tries again.
  }
}

showTime();
setInterval(() => { showTime(); renew(); }, 1000);
