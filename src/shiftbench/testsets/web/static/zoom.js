// Enlarges images in a dialog: links with data-zoom, and the key z on the focused image. Without script they are links.
"use strict";

(() => {
  const dialog = document.createElement("dialog");
  dialog.className = "zoomed";
  dialog.setAttribute("aria-label", "Enlarged image");
  const image = document.createElement("img");
  image.alt = "Enlarged image";
  dialog.append(image);
  document.body.append(dialog);
  dialog.addEventListener("click", () => dialog.close());

  /** @type {(link: Element | null | undefined) => boolean} */
  function show(link) {
    const address = link instanceof HTMLElement ? link.dataset.zoom : undefined;
    if (!address) return false;
    image.src = address;
    dialog.showModal();
    return true;
  }

  document.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || !(event.target instanceof Element)) return;
    if (show(event.target.closest("[data-zoom]"))) event.preventDefault();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "z" || event.ctrlKey || event.metaKey || event.altKey) return;
    const here = document.activeElement;
    if (here?.matches("input:not([type=checkbox]), select, textarea")) return;
    if (dialog.open) dialog.close();
    else show(here?.closest(".tile, .card")?.querySelector("[data-zoom]"));
  });
})();
