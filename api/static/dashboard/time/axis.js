// The time axis: one line over the span of the log, with marks, the instant that is looked at, and now.
// It is a slider for the keyboard and for screen readers.

import { clockTime, span, stamp } from "../base/format.js";
import { color, token } from "../base/theme.js";
import { makeCanvas } from "../charts/canvas.js";
import { MARK_COLORS } from "../charts/colors.js";
import { linear, timeTicks } from "../charts/scale.js";
import { now } from "../client.js";
import { knownMarks, MARK_NAMES, marksIn } from "./marks.js";
import { setSpan, timeSpan, zoom } from "./span.js";

const HEIGHT = 58;
const EDGE = 12;
const LINE_Y = 36;
const BUCKET = 4;
// Closer to the right end than this is the present.
const NOW_PX = 8;

/**
 * Return the axis. `cursor()` is the instant that is looked at, null for now; `onLook(at)` is called
 * with an instant, or null for now; `tip` shows what is under the pointer.
 */
export function makeAxis({ cursor, onLook, onStep, tip }) {
  const canvas = makeCanvas({
    height: HEIGHT, draw,
    attributes: { class: "axis", tabindex: "0", role: "slider", "aria-label": "Instant that is looked at" },
  });
  const element = canvas.element;
  const drag = { mode: null, fromX: 0, x: 0 };

  const scale = (width) => {
    const { from, to } = timeSpan();
    const inner = linear(from, to, width - 2 * EDGE);
    const at = (time) => EDGE + inner(time);
    at.invert = (x) => Math.min(to, Math.max(from, inner.invert(x - EDGE)));
    return at;
  };

  function draw(context, width, height) {
    const { from, to } = timeSpan(), x = scale(width);
    context.font = `11px ${token("font")}`;
    drawTicks(context, x, timeTicks(from, to, Math.max(2, width / 90)));
    drawLine(context, x, width, cursor(), to);
    for (const mark of bucketed(knownMarks(), x, from, to)) drawMark(context, mark);
    drawCursor(context, x, cursor() ?? Math.min(to, now()), cursor() === null, height);
    if (drag.mode === "span") {
      context.fillStyle = color("select");
      context.fillRect(Math.min(drag.fromX, drag.x), 4, Math.abs(drag.x - drag.fromX), LINE_Y + 4);
    }
    describe(from, to);
  }

  function describe(from, to) {
    const at = cursor();
    element.setAttribute("aria-valuemin", Math.floor(from));
    element.setAttribute("aria-valuemax", Math.ceil(to));
    element.setAttribute("aria-valuenow", Math.round(at ?? to));
    element.setAttribute("aria-valuetext", at === null ? "now" : stamp(at));
  }

  function lookAtX(x) {
    const width = canvas.size().width, { to, isAll } = timeSpan();
    const isNow = x >= width - EDGE - NOW_PX && (isAll || to >= now() - 1);
    onLook(isNow ? null : scale(width).invert(x));
  }

  const xOf = (event) => event.clientX - element.getBoundingClientRect().left;

  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    element.setPointerCapture(event.pointerId);
    Object.assign(drag, { mode: event.shiftKey ? "span" : "look", fromX: xOf(event), x: xOf(event) });
    if (drag.mode === "look") lookAtX(drag.x);
  });
  element.addEventListener("pointermove", (event) => {
    const x = xOf(event);
    if (drag.mode === "look") lookAtX(x);
    if (drag.mode === "span") {
      drag.x = x;
      canvas.redraw();
    }
    hover(x);
  });
  element.addEventListener("pointerup", (event) => {
    if (drag.mode === "span" && Math.abs(xOf(event) - drag.fromX) > 5) {
      const at = scale(canvas.size().width);
      setSpan(...[at.invert(drag.fromX), at.invert(xOf(event))].sort((a, b) => a - b));
    }
    drag.mode = null;
    canvas.redraw();
  });
  element.addEventListener("pointercancel", () => { drag.mode = null; });
  element.addEventListener("pointerleave", () => tip(null));
  element.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, scale(canvas.size().width).invert(xOf(event)));
  }, { passive: false });
  element.addEventListener("keydown", (event) => {
    const { from, to } = timeSpan(), at = cursor() ?? to, step = (to - from) / 100;
    const wanted = {
      ArrowLeft: at - step, ArrowRight: at + step, PageDown: at - 10 * step, PageUp: at + 10 * step, Home: from,
    }[event.key];
    if (wanted !== undefined) onLook(wanted >= now() ? null : Math.max(from, wanted));
    else if (event.key === "End") onLook(null);
    else if (event.key === "ArrowUp" || event.key === "ArrowDown") onStep(event.key === "ArrowUp" ? 1 : -1);
    else return;
    event.preventDefault();
  });

  function hover(x) {
    const at = scale(canvas.size().width), time = at.invert(x);
    const near = marksIn(at.invert(x - BUCKET), at.invert(x + BUCKET));
    const texts = near.slice(0, 4).map((mark) => `${clockTime(mark.at)} ${mark.job || mark.node}${mark.job || mark.node ? ": " : ""}${mark.message || MARK_NAMES[mark.kind]}`);
    if (near.length > 4) texts.push(`and ${near.length - 4} more`);
    tip({ x, lines: [`${stamp(time)} · ${span(now() - time)} ago`, ...texts] });
  }

  return { element, redraw: canvas.redraw };
}

function drawTicks(context, x, ticks) {
  context.textBaseline = "alphabetic";
  for (const { at, text, isDay } of ticks) {
    context.fillStyle = color("line-strong");
    context.fillRect(Math.round(x(at)), LINE_Y, 1, 5);
    context.fillStyle = color(isDay ? "ink" : "dim");
    context.textAlign = "center";
    context.fillText(text, x(at), LINE_Y + 18);
  }
}

function drawLine(context, x, width, cursor, to) {
  context.fillStyle = color("line-strong");
  context.fillRect(EDGE, LINE_Y - 1, width - 2 * EDGE, 2);
  context.fillStyle = color("accent");
  context.fillRect(EDGE, LINE_Y - 1, x(Math.min(cursor ?? to, to)) - EDGE, 2);
}

/** Join marks that would lie on top of each other: one per kind and bucket, with their number. */
function bucketed(marks, x, from, to) {
  const buckets = new Map();
  for (const [kind, counts] of Object.entries(marks?.counts ?? {})) {
    counts.forEach((count, bin) => {
      const at = marks.from + (bin + 0.5) * marks.bin_s;
      if (!count || at < from || at > to) return;
      const place = Math.round(x(at) / BUCKET) * BUCKET, key = `${place} ${kind}`;
      buckets.set(key, { x: place, kind, count: count + (buckets.get(key)?.count ?? 0) });
    });
  }
  // Kinds that matter most are drawn last, above the others.
  const order = Object.keys(MARK_NAMES);
  return [...buckets.values()].sort((a, b) => order.indexOf(b.kind) - order.indexOf(a.kind));
}

function drawMark(context, { x, kind, count }) {
  const height = Math.min(26, 8 + 4 * Math.log2(count + 1));
  context.fillStyle = color(MARK_COLORS[kind] ?? "dim");
  context.fillRect(x - 0.75, LINE_Y - 2 - height, 1.5, height);
  context.beginPath();
  context.arc(x, LINE_Y - 2 - height, 2.5, 0, 7);
  context.fill();
}

function drawCursor(context, x, at, isNow, height) {
  const at_x = x(at);
  context.fillStyle = color(isNow ? "good" : "accent");
  context.fillRect(at_x - 1, 6, 2, height - 24);
  context.beginPath();
  context.arc(at_x, LINE_Y, 6, 0, 7);
  context.fill();
  context.strokeStyle = color("paper");
  context.lineWidth = 2;
  context.stroke();
}
