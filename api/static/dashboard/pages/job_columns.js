// The columns of the table of jobs.

import { el } from "../base/elements.js";
import { gpusAsked, number, span } from "../base/format.js";
import { jobName, phaseBadge, startsIn } from "../base/pieces.js";
import { queueLink } from "../base/router.js";
import { PHASES } from "../view.js";

/** @type {import("../base/table.js").Column[]} */
export const JOB_COLUMNS = [
  { key: "name", name: "Job", style: "name", cell: (job) => jobName(job), sort: (job) => `${job.namespace}/${job.name}` },
  { key: "phase", name: "Phase", cell: (job) => phaseBadge(job.phase, job.deleting ? " (deleting)" : ""), sort: (job) => PHASES.indexOf(job.phase) },
  { key: "gpus", name: "GPUs", style: "number", cell: gpusAsked, sort: (job) => job.gpus },
  { key: "ranks", name: "Ranks", style: "number wider", cell: (job) => `${job.ranks_running}/${job.ranks}`, sort: (job) => job.ranks },
  { key: "queue", name: "Queue", style: "wide", cell: (job) => el("a", { href: queueLink(job.queue) }, job.queue), sort: (job) => job.queue },
  { key: "user", name: "User", style: "wider", cell: (job) => job.user || "–", sort: (job) => job.user },
  { key: "kind", name: "Kind", style: "wider", cell: (job) => job.kind, sort: (job) => job.kind },
  { key: "priority", name: "Priority", style: "number wider", cell: (job) => number(job.priority), sort: (job) => job.priority },
  { key: "restarts", name: "Restarts", style: "number wide", cell: (job) => number(job.restarts), sort: (job) => job.restarts },
  { key: "age", name: "Age", style: "number wide", cell: (job, { at }) => span(at - job.submitted_at), sort: (job) => -job.submitted_at },
  { key: "in", name: "In phase", style: "number wider", cell: (job, { at }) => span(at - since(job)), sort: (job) => -since(job) },
  { key: "place", name: "Place", style: "number wide", cell: (job) => (job.place_in_queue === null ? "" : number(job.place_in_queue)), sort: (job) => job.place_in_queue },
  { key: "starts", name: "Starts in", style: "number", cell: (job, { at }) => (job.phase === "Queued" ? startsIn(job.expected, null, at) : ""), sort: (job) => job.expected?.start?.p50 ?? null },
  { key: "why", name: "Why", style: "note", cell: (job) => el("div", { class: "clamp", title: noteOf(job) || null }, noteOf(job)) },
];

/** Return since when a job is in its phase, as far as its row says. */
const since = (job) => job.finished_at ?? (job.phase === "Running" ? job.running_at : job.phase === "Starting" ? job.placed_at : job.queued_at) ?? job.submitted_at;

const STATES = ["pending", "queued", "running", "suspended", "succeeded", "failed", "cancelled"];

function noteOf(job) {
  if (job.array) return STATES.filter((state) => job.array[state]).map((state) => `${number(job.array[state])} ${state}`).join(", ");
  return job.wait_message || job.message;
}
