// Elements are made with text only: nothing that a server or a client named is ever read as markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes; `on…` are listeners, `class` and others are attributes, absent ones are left out. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same of SVG. */
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "css") Object.assign(element.style, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** A selector of the element that takes the place of this one when a page is drawn again. */
function successor(element) {
  for (const name of ["data-key", "href", "aria-label"]) {
    const value = element.getAttribute(name);
    if (value !== null) return `${element.localName}[${name}="${CSS.escape(value)}"]`;
  }
  return null;
}

/** Replaces the children of an element. The focus stays, and so do the places to which parts of it were scrolled. */
export function replace(element, ...children) {
  const focused = element.contains(document.activeElement) && document.activeElement !== element ? successor(document.activeElement) : null;
  const scrolled = [...element.querySelectorAll(".scroll")].map((part) => [successor(part), part.scrollLeft]).filter(([, left]) => left > 0);
  element.replaceChildren(...children.flat(Infinity).filter((child) => child));
  for (const [selector, left] of scrolled) {
    const part = element.querySelector(selector);
    if (part) part.scrollLeft = left;
  }
  if (focused) element.querySelector(focused)?.focus({ preventScroll: true });
}

/** A panel with a heading. */
export function panel(title, body, { now = null, flush = false } = {}) {
  return h(
    "section",
    { class: "panel" },
    h("header", {}, h("h2", {}, title), now),
    h("div", { class: flush ? "body flush" : "body" }, body),
  );
}

export function tag(text, kind = "") {
  return h("span", { class: `tag ${kind}` }, text);
}
