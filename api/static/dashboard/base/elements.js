// Elements and keyed updates. Text is always text, never markup: nothing here writes HTML.

const SVG = "http://www.w3.org/2000/svg";

/** @typedef {Node|string|number|null|undefined|false|Child[]} Child */

/**
 * Return an element. Attributes that are null, undefined or false are left out, true makes an empty
 * attribute, and `onclick` and the like add a listener. `style` is an object of properties.
 * @param {string} tag
 * @param {Object<string, any>} [attributes]
 * @param {...Child} children
 * @returns {HTMLElement}
 */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Return an SVG element; see `el`. @returns {SVGElement} */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") setStyle(made, value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...present(children));
  return made;
}

/** Set CSS properties. The content security policy forbids style attributes in markup, not this. */
export function setStyle(element, properties) {
  for (const [name, value] of Object.entries(properties)) element.style.setProperty(name, value);
}

function present(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false && child !== "");
}

/**
 * Make `wanted` the children of `parent` and keep each child that is already equal, so that focus,
 * selection and scroll position survive. Children are matched by `data-key`.
 * @param {Element} parent
 * @param {Child[]} wanted
 */
export function patch(parent, wanted) {
  const next = present(wanted).filter((child) => child instanceof Element);
  const known = new Map([...parent.children].map((child) => [child.dataset?.key, child]));
  const focus = focusWithin(parent);
  next.forEach((child, i) => {
    const old = known.get(child.dataset.key);
    const kept = old && same(old, child) ? old : child;
    if (old && kept !== old && old.parentNode === parent) old.replaceWith(kept);
    if (parent.children[i] !== kept) parent.insertBefore(kept, parent.children[i] ?? null);
  });
  while (parent.children.length > next.length) parent.lastElementChild.remove();
  if (focus && !document.contains(focus.element)) restore(parent, focus);
}

// A child may carry `data-version` instead of being compared node by node (charts, canvases).
const same = (old, child) =>
  child.dataset.version === undefined ? old.isEqualNode(child) : old.dataset.version === child.dataset.version;

function focusWithin(parent) {
  const element = document.activeElement;
  const keyed = parent.contains(element) ? element.closest("[data-key]") : null;
  if (!keyed || keyed === parent) return null;
  const controls = [...keyed.querySelectorAll("a, button, input, select, textarea")];
  return { element, key: keyed.dataset.key, index: controls.indexOf(element) };
}

function restore(parent, { key, index }) {
  const again = parent.querySelector(`[data-key="${CSS.escape(key)}"]`);
  const controls = again ? [...again.querySelectorAll("a, button, input, select, textarea")] : [];
  (controls[Math.max(0, index)] ?? controls[0] ?? again)?.focus?.();
}

/** Replace the text of an element only if it differs, so that screen readers stay quiet. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Show or hide an element. */
export function setShown(element, isShown) {
  if (element.hidden === isShown) element.hidden = !isShown;
}

