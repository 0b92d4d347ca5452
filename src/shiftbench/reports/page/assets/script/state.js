/**
 * What the reader chose, kept in the address after '#', so that a view can be linked and bookmarked.
 * Values are lists of words; only what differs from the default is written.
 */

/** @type {Map<string, string[]>} */
const choices = new Map();
/** @type {Set<() => void>} */
const listeners = new Set();

/**
 * The first value of a choice, or the fallback where the reader made none.
 * @type {(key: string, fallback?: string) => string}
 */
export function chosen(key, fallback = "") {
  return choices.get(key)?.[0] ?? fallback;
}

/**
 * All values of a choice, or the fallback. An empty choice is one, too.
 * @type {(key: string, fallback?: string[]) => string[]}
 */
export function chosenList(key, fallback = []) {
  return choices.get(key)?.filter((value) => value !== "") ?? fallback;
}

/**
 * Makes choices: {key: value, list of values, or null for the default again}.
 * @type {(changes: Record<string, string | string[] | null>, options?: { remember?: boolean }) => void}
 */
export function choose(changes, { remember = false } = {}) {
  for (const [key, value] of Object.entries(changes)) {
    if (value === null) choices.delete(key);
    else choices.set(key, Array.isArray(value) ? (value.length ? value : [""]) : [String(value)]);
  }
  write(remember);
  tell();
}

/**
 * Calls back after every change.
 * @type {(listener: () => void) => void}
 */
export function onChoice(listener) {
  listeners.add(listener);
}

/** Reads the address, now and whenever it is changed by hand, by a link, or by going back. */
export function readAddress() {
  choices.clear();
  for (const [key, value] of new URLSearchParams(location.hash.slice(1))) {
    choices.set(key, [...(choices.get(key) ?? []), value]);
  }
  tell();
}

function tell() {
  for (const listener of listeners) listener();
}

/** @type {(remember: boolean) => void} */
function write(remember) {
  const words = new URLSearchParams();
  for (const [key, values] of choices) for (const value of values) words.append(key, value);
  const address = `#${words}`;
  if (address === location.hash) return;
  if (remember) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
}
