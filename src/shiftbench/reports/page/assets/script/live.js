/** The live viewer: the same page, fed again and again while a run goes on. */

/** @import { Page } from "./types.d.ts" */

const EVERY = 2000;
/** A server that went away is asked less often. */
const WHEN_LOST = 6000;

/**
 * Fetches the payload now and every two seconds; `onPayload` gets each new one, `onState` "live" or "lost".
 * @type {(address: string, onPayload: (page: Page) => void, onState: (state: "live" | "lost") => void) => void}
 */
export function follow(address, onPayload, onState) {
  /** @type {string | null} */
  let tag = null;
  const ask = async () => {
    let pause = EVERY;
    try {
      if (!document.hidden && !isBusy()) tag = (await fetchOnce(address, tag, onPayload)) ?? tag;
      onState("live");
    } catch (problem) {
      console.warn(`shiftbench: ${problem}`);
      pause = WHEN_LOST;
      onState("lost");
    }
    setTimeout(ask, pause);
  };
  ask();
}

/** @type {(address: string, tag: string | null, onPayload: (page: Page) => void) => Promise<string | null>} */
async function fetchOnce(address, tag, onPayload) {
  const answer = await fetch(address, { cache: "no-store", headers: tag ? { "If-None-Match": tag } : {} });
  if (answer.status === 304) return tag;
  if (!answer.ok) throw new Error(`the viewer answered ${answer.status}`);
  onPayload(await answer.json());
  return answer.headers.get("ETag");
}

/**
 * Nothing is redrawn under the reader's hands.
 * @type {() => boolean}
 */
function isBusy() {
  const hands = 'dialog[open], [role="combobox"][aria-expanded="true"], .brush[visibility="visible"]';
  return document.querySelector(hands) !== null;
}
