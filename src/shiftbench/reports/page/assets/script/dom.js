/** Nodes, made by code alone: every text goes in as text, so that no model's name can become markup. */

/** Narrower than this nothing is drawn: what is not laid out yet has no width, or one pixel. */
const LEAST_WIDTH = 100;
const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

/** An HTML element: attributes (false and null are left out), `on: {event: listener}`, then children and strings. */
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG_NAMESPACE, tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") listen(node, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

function listen(node, listeners) {
  for (const [event, listener] of Object.entries(listeners)) node.addEventListener(event, listener);
}

/** Styles by CSSOM: the page's policy forbids style attributes. */
export function styled(node, properties) {
  for (const [name, value] of Object.entries(properties)) node.style.setProperty(name, value);
  return node;
}

/** A name that may be broken after its punctuation, so that narrow columns stay narrow. */
export function breakable(name) {
  return name.split(/(?<=[._\-/:])(?=[^._\-/:])/).flatMap((piece, i) => (i ? [el("wbr"), piece] : [piece]));
}

/** Says something to screen readers without moving the focus. */
export function announce(text) {
  document.getElementById("announcer").textContent = text;
}

/** Draws now and again whenever the host's width changes. */
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

/** An identifier for `for` and `aria-controls` that no other element has. */
export function freshId(stem) {
  freshId.count = (freshId.count ?? 0) + 1;
  return `${stem}-${freshId.count}`;
}

/** On paper everything is shown at once. */
export function isPrinting() {
  return document.documentElement.classList.contains("printing");
}
