// A Gantt chart on a canvas. Only the rows in sight are drawn, so that panning stays smooth with many
// thousand bars. Dragging pans, the wheel scrolls, with Ctrl it zooms; a click opens the job.

import { el, setShown } from "../base/elements.js";
import { clockTime, count, span, words } from "../base/format.js";
import { go, jobLink, nodeLink } from "../base/router.js";
import { color } from "../base/theme.js";
import { makeCanvas } from "./canvas.js";
import { drawBar, drawNow } from "./gantt_bars.js";
import { linear, timeTicks } from "./scale.js";

const TOP = 24;
const CLICK_PX = 4;
const SETTLED_MS = 250;

/**
 * Return the chart. `onSpan(from, to)` is called when the person has chosen another span of time, and
 * `show(view)` draws `{rows, height, from, to, now, cursor, colorOf(bar), labels}`.
 */
export function makeGantt({ onSpan, height = () => Math.max(280, innerHeight - 330) }) {
  const state = { view: null, from: 0, to: 1, top: 0, drag: null, settle: null, isMoving: false };
  const hint = el("div", { class: "hint", hidden: true });
  const canvas = makeCanvas({
    height, draw,
    attributes: { class: "gantt", tabindex: "0", role: "img", "aria-label": "Timeline" },
  });
  const element = canvas.element;
  const left = () => (canvas.size().width < 600 ? 70 : 130);
  const inner = () => canvas.size().width - left();
  const xOf = () => linear(state.from, state.to, inner());

  function draw(context, width, height) {
    if (!state.view) return;
    const x = xOf(), { view } = state, edge = left();
    context.font = `11px ${getComputedStyle(element).fontFamily}`;
    const shown = view.rows.filter((row) => row.y + row.height >= state.top && row.y <= state.top + height - TOP);
    context.save();
    context.beginPath();
    context.rect(edge, 0, width - edge, height);
    context.clip();
    context.translate(edge, 0);
    drawGrid(context, x, width - edge, height);
    for (const row of shown) {
      for (const bar of row.bars) {
        const y = TOP + row.y - state.top + bar.top;
        if (bar.to >= state.from && bar.from <= state.to && y > TOP - row.height) drawBar(context, bar, x, y, view);
      }
    }
    drawNow(context, x, view, height);
    context.restore();
    drawLabels(context, shown, edge, view);
  }

  function drawGrid(context, x, width, height) {
    context.textAlign = "center";
    for (const { at, text } of timeTicks(state.from, state.to, Math.max(2, width / 100))) {
      context.fillStyle = color("line");
      context.fillRect(Math.round(x(at)), TOP - 4, 1, height);
      context.fillStyle = color("dim");
      context.fillText(text, x(at), 12);
    }
  }

  function drawLabels(context, rows, edge, view) {
    context.fillStyle = color("paper");
    context.fillRect(0, 0, edge - 6, TOP);
    context.textAlign = "left";
    let lowest = TOP;
    for (const row of rows) {
      const y = TOP + row.y - state.top + row.height / 2 + 4;
      if (y < lowest || (view.labels && row.height < 9 && y < lowest + 11)) continue;
      lowest = y + 10;
      context.fillStyle = color("dim");
      context.fillText(shorten(context, row.label, edge - 12), 0, y);
    }
  }

  // ------------------------------------------------------------ moving

  function move(from, to, top = state.top) {
    const most = Math.max(0, (state.view?.height ?? 0) - (canvas.size().height - TOP));
    Object.assign(state, { from, to, top: Math.min(most, Math.max(0, top)) });
    canvas.redraw();
  }

  function settled() {
    clearTimeout(state.settle);
    state.isMoving = true;
    state.settle = setTimeout(() => {
      state.isMoving = false;
      onSpan(state.from, state.to);
    }, SETTLED_MS);
  }

  function zoom(factor, around) {
    move(around - (around - state.from) * factor, around + (state.to - around) * factor);
    settled();
  }

  element.addEventListener("wheel", (event) => {
    event.preventDefault();
    const pixels = event.deltaMode ? event.deltaY * 16 : event.deltaY;
    if (event.ctrlKey || event.metaKey) return zoom(pixels > 0 ? 1.2 : 1 / 1.2, xOf().invert(event.offsetX - left()));
    const across = event.shiftKey ? pixels : event.deltaX;
    const shift = (across / inner()) * (state.to - state.from);
    move(state.from + shift, state.to + shift, state.top + (event.shiftKey ? 0 : pixels));
    if (across) settled();
  }, { passive: false });
  element.addEventListener("pointerdown", (event) => {
    element.setPointerCapture(event.pointerId);
    state.drag = { x: event.clientX, y: event.clientY, from: state.from, to: state.to, top: state.top, isFar: false };
  });
  element.addEventListener("pointermove", (event) => {
    const { drag } = state;
    if (!drag) return hover(event);
    const dx = event.clientX - drag.x, dy = event.clientY - drag.y;
    drag.isFar ||= Math.hypot(dx, dy) > CLICK_PX;
    if (!drag.isFar) return;
    const shift = (-dx / inner()) * (drag.to - drag.from);
    move(drag.from + shift, drag.to + shift, drag.top - dy);
  });
  element.addEventListener("pointerup", (event) => {
    const { drag } = state;
    state.drag = null;
    if (drag?.isFar) settled();
    else if (drag) open(event);
  });
  element.addEventListener("pointerleave", () => setShown(hint, false));
  element.addEventListener("keydown", (event) => {
    const length = state.to - state.from, step = { ArrowLeft: -0.15, ArrowRight: 0.15 }[event.key];
    const down = { ArrowDown: 60, ArrowUp: -60, PageDown: 400, PageUp: -400 }[event.key];
    if (step) {
      move(state.from + step * length, state.to + step * length);
      settled();
    } else if (down) move(state.from, state.to, state.top + down);
    else return;
    event.preventDefault();
  });

  // ------------------------------------------------------------ pointing

  function under(event) {
    const at = xOf().invert(event.offsetX - left()), y = event.offsetY - TOP + state.top;
    const row = event.offsetY < TOP ? null : state.view?.rows.find((each) => y >= each.y && y <= each.y + each.height);
    const slack = (state.to - state.from) / inner();
    const bar = row?.bars.findLast((each) => at >= each.from - slack && at <= each.to + slack && y >= row.y + each.top && y <= row.y + each.top + each.height);
    return { row, bar: event.offsetX >= left() ? bar : null };
  }

  function hover(event) {
    const { row, bar } = under(event);
    element.style.cursor = bar?.job || (row && event.offsetX < left()) ? "pointer" : "grab";
    setShown(hint, Boolean(bar));
    if (!bar) return;
    hint.replaceChildren(...describe(bar, row).map((line) => el("div", {}, line)));
    hint.style.left = `${Math.min(event.offsetX + 14, canvas.size().width - hint.offsetWidth)}px`;
    hint.style.top = `${event.offsetY + 16}px`;
  }

  function open(event) {
    const { row, bar } = under(event), name = bar?.job?.name ?? (row?.bars[0]?.job?.name === row?.label ? row?.label : null);
    if (name) go(jobLink({ namespace: name.split("/")[0], name: name.split("/").slice(1).join("/") }));
    else if (row && event.offsetX < left()) go(nodeLink(row.label));
  }

  return {
    element: el("div", { class: "stage" }, element, hint),
    zoom,
    show(view) {
      state.view = view;
      // A person who pans is not moved back by data that come meanwhile.
      if (!state.drag && !state.isMoving) move(view.from, view.to);
      canvas.redraw();
    },
  };
}

function describe(bar, row) {
  const times = `${clockTime(bar.from)} to ${bar.isOpen ? "now" : clockTime(bar.to)}, ${span(bar.to - bar.from)}`;
  if (bar.kind === "outage") return [`${row.label} ${bar.end}`, times];
  if (bar.kind === "wait") return [bar.job.name, bar.end || "waits", times];
  if (bar.kind === "plan") return [bar.job.name, `expected until ${clockTime(bar.to)}${bar.late ? `, by ${clockTime(bar.late)} with 90%` : ""}`];
  return [bar.job.name, `attempt ${bar.attempt}, ${count(bar.gpus, "GPU")}, queue ${bar.job.queue}`, times, bar.end && `ended: ${words(bar.end)}`].filter(Boolean);
}

function shorten(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let length = text.length;
  while (length > 1 && context.measureText(`…${text.slice(-length)}`).width > width) length--;
  return `…${text.slice(-length)}`;
}
