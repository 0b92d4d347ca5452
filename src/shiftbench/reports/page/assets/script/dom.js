/** Nodes, made by code alone: every text goes in as text, so that no model's name can become markup. */

/** @import { Attributes, Child } from "./types.d.ts" */

/** Narrower than this nothing is drawn: what is not laid out yet has no width, or one pixel. */
const LEAST_WIDTH = 100;
let lastId = 0;
const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

/**
 * An HTML element: attributes (false and null are left out), `on: {event: listener}`, then children and strings.
 * @type {<K extends keyof HTMLElementTagNameMap>(tag: K, attributes?: Attributes, ...children: Child[])
 *   => HTMLElementTagNameMap[K]}
 */
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/**
 * The same for SVG.
 * @type {<K extends keyof SVGElementTagNameMap>(tag: K, attributes?: Attributes, ...children: Child[])
 *   => SVGElementTagNameMap[K]}
 */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG_NAMESPACE, tag), attributes, children);
}

/** @type {<T extends Element>(node: T, attributes: Attributes, children: Child[]) => T} */
function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value !== "object") node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const [event, listener] of Object.entries(attributes.on ?? {})) {
    node.addEventListener(event, /** @type {EventListener} */ (listener));
  }
  const present = children.flat(3).filter((child) => child !== null && child !== undefined && child !== false);
  node.append(.../** @type {(Node | string)[]} */ (present));
  return node;
}

/**
 * Styles by CSSOM: the page's policy forbids style attributes.
 * @type {<T extends HTMLElement>(node: T, properties: Record<string, string>) => T}
 */
export function styled(node, properties) {
  for (const [name, value] of Object.entries(properties)) node.style.setProperty(name, value);
  return node;
}

/**
 * A name that may be broken after its punctuation, so that narrow columns stay narrow.
 * @type {(name: string) => (string | HTMLElement)[]}
 */
export function breakable(name) {
  return name.split(/(?<=[._\-/:])(?=[^\d._\-/:])/).flatMap((piece, i) => (i ? [el("wbr"), piece] : [piece]));
}

/**
 * Says something to screen readers without moving the focus.
 * @type {(text: string) => void}
 */
export function announce(text) {
  byId("announcer").textContent = text;
}

/**
 * Draws now and again whenever the host's width changes.
 * @type {(host: HTMLElement, draw: (width: number) => void) => () => void}
 */
export function responsive(host, draw) {
  let width = 0;
  const redraw = () => {
    const now = Math.floor(host.clientWidth);
    if (now >= LEAST_WIDTH && now !== width) draw((width = now));
  };
  new ResizeObserver(redraw).observe(host);
  redraw();
  return () => {
    width = 0;
    redraw();
  };
}

/**
 * An identifier for `for` and `aria-controls` that no other element has.
 * @type {(stem: string) => string}
 */
export function freshId(stem) {
  return `${stem}-${++lastId}`;
}

/**
 * An element of the page's own frame.
 * @type {(id: string) => HTMLElement}
 */
export function byId(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}

/**
 * On paper everything is shown at once.
 * @type {() => boolean}
 */
export function isPrinting() {
  return document.documentElement.classList.contains("printing");
}
