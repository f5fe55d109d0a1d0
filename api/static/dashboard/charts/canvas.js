// A canvas that is sharp on every screen, and drawn again when its size or the colours change.

import { el } from "../base/elements.js";
import { onTheme } from "../base/theme.js";

/**
 * Return a canvas as wide as its parent. `draw(context, width, height)` works in CSS pixels.
 * @returns {{element: HTMLCanvasElement, redraw: () => void, size: () => {width: number, height: number}}}
 */
export function makeCanvas({ height, draw, attributes = {} }) {
  const element = el("canvas", attributes);
  const size = { width: 0, height: typeof height === "number" ? height : 0 };
  let due = null;

  function redraw() {
    due ??= requestAnimationFrame(() => {
      due = null;
      if (element.isConnected && size.width > 0) paint();
    });
  }

  function paint() {
    if (typeof height === "function") size.height = Math.max(1, height(size.width));
    const ratio = devicePixelRatio || 1;
    const [width, tall] = [Math.round(size.width * ratio), Math.round(size.height * ratio)];
    if (element.width !== width || element.height !== tall) {
      Object.assign(element, { width, height: tall });
      element.style.height = `${size.height}px`;
    }
    const context = element.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, size.width, size.height);
    draw(context, size.width, size.height);
  }

  new ResizeObserver(() => {
    const width = element.clientWidth;
    if (width !== size.width) {
      size.width = width;
      redraw();
    }
  }).observe(element);
  onTheme(redraw);
  return { element, redraw, size: () => size };
}
