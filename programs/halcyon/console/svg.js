// Elements of pictures. As with other elements, what comes from the server is only ever text.

import { byId } from "./dom.js";

/** The page has one such element, so that no script needs the address that names them. */
const NAMESPACE = byId("pictures").namespaceURI;

/** Makes an element of SVG. `attributes` may hold `text`. */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(NAMESPACE, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null) continue;
    if (name === "text") element.textContent = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}
