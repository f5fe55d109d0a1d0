// How a bar of the Gantt chart looks: a run is filled, what starts is lighter, a wait is hollow, a
// forecast is dashed with a whisker to its 90 % bound, an outage is hatched. The end of a run that did
// not succeed has an edge in its colour.

import { color } from "../base/theme.js";

const END_COLORS = { failed: "bad", preemption: "preempt", consolidation: "preempt", node_lost: "lost", cancelled: "off", suspended: "off" };
const GOOD_ENDS = ["", "succeeded", "released"];

/** Return the colour token of the end of a run, null for a good one. Other causes are restarts. */
export const endColor = (end) => (GOOD_ENDS.includes(end) ? null : END_COLORS[end] ?? "warn");

const TEXT_PX_MIN = 54;

/** Draw a bar. Times after the cursor were not known at the instant that is looked at. */
export function drawBar(context, bar, x, y, view) {
  const left = x(bar.from), width = Math.max(1, x(bar.to) - left);
  context.globalAlpha = view.cursor !== null && bar.from > view.cursor ? 0.25 : 1;
  if (bar.kind === "run") drawRun(context, bar, x, y, left, width, view);
  else if (bar.kind === "wait") drawWait(context, bar, y, left, width);
  else if (bar.kind === "plan") drawPlan(context, bar, x, y, left, width, view);
  else drawOutage(context, bar, y, left, width);
  context.globalAlpha = 1;
}

function drawRun(context, bar, x, y, left, width, view) {
  const up = bar.running === null ? left + width : Math.min(left + width, Math.max(left, x(bar.running)));
  const shade = context.globalAlpha;
  context.fillStyle = view.colorOf(bar);
  context.fillRect(up, y, left + width - up, bar.height);
  context.globalAlpha = shade * 0.45;
  context.fillRect(left, y, up - left, bar.height);
  context.globalAlpha = shade;
  if (endColor(bar.end) && width > 3) {
    context.fillStyle = color(endColor(bar.end));
    context.fillRect(left + width - 2, y, 2, bar.height);
  }
  const from = Math.max(0, left), room = left + width - from;
  if (bar.height >= 12 && room > TEXT_PX_MIN) drawText(context, bar.job.name.split("/").at(-1), from + 5, y + bar.height / 2 + 4, room - 8);
}

function drawText(context, text, x, y, width) {
  context.textAlign = "left";
  context.fillStyle = "#10151d";
  if (context.measureText(text).width <= width) context.fillText(text, x, y);
}

function drawWait(context, bar, y, left, width) {
  context.strokeStyle = color(bar.end ? "bad" : "line-strong");
  context.lineWidth = 1;
  context.strokeRect(left + 0.5, y + bar.height * 0.3, Math.max(1, width - 1), Math.max(2, bar.height * 0.4));
}

function drawPlan(context, bar, x, y, left, width, view) {
  context.globalAlpha *= 0.22;
  context.fillStyle = view.colorOf(bar);
  context.fillRect(left, y, width, bar.height);
  context.globalAlpha = 1;
  if (bar.height < 5) return;
  context.strokeStyle = view.colorOf(bar);
  context.setLineDash([4, 3]);
  context.strokeRect(left + 0.5, y + 0.5, Math.max(1, width - 1), bar.height - 1);
  context.setLineDash([]);
  if (bar.late) {
    context.fillStyle = view.colorOf(bar);
    context.fillRect(left + width, y + bar.height / 2 - 0.5, x(bar.late) - left - width, 1);
    context.fillRect(x(bar.late) - 1, y + bar.height / 2 - 3, 1, 6);
  }
}

function drawOutage(context, bar, y, left, width) {
  context.fillStyle = color(bar.end === "cordoned" ? "wait-tint" : "bad-tint");
  context.fillRect(left, y, width, bar.height);
  context.fillStyle = color(bar.end === "cordoned" ? "wait" : "bad");
  context.fillRect(left, y + bar.height - 1, width, 1);
}

/** Draw the present and the instant that is looked at. */
export function drawNow(context, x, { now, cursor }, height) {
  context.fillStyle = color("good");
  context.fillRect(x(now) - 0.75, 16, 1.5, height);
  if (cursor === null) return;
  context.fillStyle = color("accent");
  context.fillRect(x(cursor) - 1, 16, 2, height);
}
