/** The sections of the page. A section's module defines it here; nothing else lists it. */

/** @import { Section } from "./types.d.ts" */

/** @type {Section<any>[]} */
export const sections = [];

/** @type {<Data>(section: Section<Data>) => void} */
export function defineSection(section) {
  sections.push(section);
}
