// What the time axis marks: failures, restarts, preemptions, lost nodes, changes of policy. The server
// counts all marks of a span in bins and names some of them; the axis asks again when the span changes
// and, in the present, when something happened.

import { getMarks, now } from "../client.js";
import { onNewEvent } from "../live.js";
import { timeSpan } from "./span.js";

/** @import * as t from "../types.js" */

const BINS = 300;
const NAMED_MAX = 500;
const PAUSE_MS = 2500;

/** Kinds in the order of the legend; the others that the server knows are drawn in grey. */
export const MARK_NAMES = {
  failure: "failure", node_lost: "node lost", fault: "fault", restart: "restart", preemption: "preemption", cordon: "cordon",
  policy: "policy change", queue: "queue change", node_back: "node back", uncordon: "uncordon", leader: "new leader",
};

/** @type {t.Marks|null} */
let marks = null;
const state = { asked: "", due: null };
const listeners = new Set();

/** Call `listener` when marks have come. */
export const onMarks = (listener) => listeners.add(listener);

/** Return the marks that were read last; null before. */
export const knownMarks = () => marks;

/** Return the named marks of a span of time. */
export const marksIn = (from, to) => marks?.items.filter(({ at }) => at >= from && at <= to) ?? [];

/** Return the named marks next to a position. */
export const markAfter = (position) => marks?.items.find((mark) => mark.position > position) ?? null;
export const markBefore = (position) => marks?.items.findLast((mark) => mark.position < position) ?? null;

/** Follow the log from now on. */
export function startMarks() {
  onNewEvent(later);
  read();
}

/** Read the marks if the span is another one than that of the marks. */
export function refreshMarks() {
  const { from, to, isAll } = timeSpan();
  const wanted = isAll ? "all" : `${from} ${to}`;
  if (wanted !== state.asked) read();
}

function later() {
  state.due ??= setTimeout(() => {
    state.due = null;
    if (!document.hidden && timeSpan().to >= now() - 60) read();
  }, PAUSE_MS);
}

async function read() {
  const { from, to, isAll } = timeSpan();
  state.asked = isAll ? "all" : `${from} ${to}`;
  const asked = state.asked;
  try {
    const answer = await getMarks({ ...(isAll ? {} : { from, to }), bins: BINS, limit: NAMED_MAX });
    if (asked !== state.asked) return;
    marks = answer;
    for (const listener of listeners) listener();
  } catch {
    // The connection is reported elsewhere; the marks of before stay.
  }
}
