// What happened to a job: its phases as a strip over time, and each event as a sentence.

import { el } from "../base/elements.js";
import { clockTime, count, span, stamp } from "../base/format.js";
import { card } from "../base/pieces.js";
import { lookAtEvent } from "../instant.js";

/** @import * as t from "../types.js" */

const TONES = {
  JobFailed: "bad", RanksLost: "bad", JobUnschedulable: "bad", JobRestarting: "warn", RankRestarting: "warn",
  GangStarted: "good", JobSucceeded: "good",
};
// The phase that a job enters with an event.
const PHASE_OF = {
  JobSubmitted: "Queued", GangPlaced: "Starting", GangStarted: "Running", JobRestarting: "Restarting", JobRequeued: "Queued",
  JobSuspended: "Suspended", JobResumed: "Queued", JobUnschedulable: "Unschedulable", JobSchedulable: "Queued",
  JobSucceeded: "Succeeded", JobFailed: "Failed", JobCancelled: "Cancelled",
};
const FINISHED = ["Succeeded", "Failed", "Cancelled"];

/** Return the card of the story; the latest event comes last. @param {{story: t.Story, at: number}} data */
export function storyCard({ story, at }) {
  const { items, total } = story;
  const about = total > items.length ? `the last ${items.length} of ${count(total, "event")}` : count(total, "event");
  const made = card("Story", [phaseStrip(items, at), el("div", { class: "story-box" }, el("ol", { class: "story" }, items.map((event) => el("li", { class: TONES[event.type] },
    el("button", { type: "button", class: "link when", title: `Look at the state after this event, ${stamp(event.at)}`, onclick: () => lookAtEvent(event.position) }, clockTime(event.at, at)),
    el("span", {}, event.message, event.actor && el("span", { class: "dim" }, ` (${event.actor})`))))))], { about });
  made.dataset.key = "story";
  return made;
}

/** Return the phases over time as one bar; its parts are as long as the phases were. */
function phaseStrip(items, at) {
  const parts = [];
  for (const event of items) {
    const phase = PHASE_OF[event.type], last = parts.at(-1);
    if (!phase || last?.phase === phase) continue;
    if (last) last.to = event.at;
    parts.push({ phase, from: event.at, to: Math.max(at, event.at) });
  }
  const shown = parts.filter(({ phase }) => !FINISHED.includes(phase));
  if (!shown.length) return null;
  const length = shown.at(-1).to - shown[0].from || 1;
  const label = shown.map(({ phase, from, to }) => `${phase} for ${span(to - from)}`).join(", ");
  return el("div", { class: "strip", role: "img", "aria-label": label }, shown.map(({ phase, from, to }) => el("i", {
    class: phase, title: `${phase} for ${span(to - from)}, from ${clockTime(from)}`, style: { "flex-grow": Math.max(0.004, (to - from) / length).toFixed(4) },
  })));
}
