/** Keeps the reader's place while parts of the page are drawn anew: focus, cursor, scrolling, what was opened. */

/** Draws, then restores the place, as far as the new nodes have such a one. */
export function keepPlace(draw) {
  const root = document.getElementById("sections");
  const traces = [...root.querySelectorAll(":focus, details[open], .table-box, .ticklist-body")].map((node) => ({
    node,
    path: pathTo(node, root),
    focused: node === document.activeElement,
    cursor: node.type === "search" ? node.selectionStart : null,
    scroll: [node.scrollLeft, node.scrollTop],
  }));
  const [left, top] = [scrollX, scrollY];
  draw();
  for (const trace of traces) if (!trace.node.isConnected) restore(trace, root);
  if (scrollX !== left || scrollY !== top) scrollTo({ left, top, behavior: "instant" });
}

/** The node that now stands where another stood takes over from it. */
function restore({ node, path, focused, cursor, scroll }, root) {
  const next = path.reduce((here, step) => here?.children[step], root);
  if (next?.tagName !== node.tagName) return;
  if (next.tagName === "DETAILS") next.open = true;
  next.scrollTo(...scroll);
  if (!focused) return;
  next.focus({ preventScroll: true });
  if (cursor !== null) next.setSelectionRange(cursor, cursor);
}

function pathTo(node, root) {
  const steps = [];
  for (let here = node; here !== root; here = here.parentElement) {
    steps.unshift([...here.parentElement.children].indexOf(here));
  }
  return steps;
}
