// What can be done with a job. Each action shows first what it would do.

import { askFirst, fields } from "../base/ask.js";
import { el } from "../base/elements.js";
import { go, jobLink, pageLink } from "../base/router.js";
import * as client from "../client.js";

/** @import * as t from "../types.js" */

const ACTIVE = ["Queued", "Unschedulable", "Starting", "Running", "Restarting"];
const FINISHED = ["Succeeded", "Failed", "Cancelled"];

/**
 * `phases` are those in which the action is offered; `form(detail)` returns its fields and `body()` what
 * they say; `change(namespace, name, body, query)` sends it, and with DRY_RUN asks what it would do.
 */
const ACTIONS = [
  { key: "suspend", name: "Suspend", phases: ACTIVE, change: without(client.suspendJob), effects: ["It does not start until it is resumed."] },
  { key: "resume", name: "Resume", phases: ["Suspended"], change: without(client.resumeJob) },
  { key: "scale", name: "Scale", phases: [...ACTIVE, "Suspended"], isFor: ({ job }) => job.array === null, form: scaleForm, change: client.scaleJob },
  { key: "move", name: "Move", phases: ["Queued", "Unschedulable", "Suspended"], isFor: ({ job }) => job.array === null, form: moveForm, change: client.amendJob },
  {
    key: "retry", name: "Retry", phases: ["Failed", "Cancelled", "Running"],
    isFor: ({ job }) => job.array !== null && job.array.failed + job.array.cancelled > 0, form: () => ({ element: null, body: () => ({}) }), change: client.retryJob,
  },
  {
    key: "rerun", name: "Run again", phases: FINISHED, isFor: ({ job }) => job.array === null, hasPreview: false, form: rerunForm, change: client.rerunJob,
    effects: ["It is submitted once more as a new job; this one stays as it is."], goesTo: (answer) => jobLink(answer.job),
  },
  { key: "cancel", name: "Cancel", phases: [...ACTIVE, "Suspended"], isDangerous: true, change: without(client.cancelJob), effects: ["It cannot be resumed. Its record and its events stay."] },
  {
    key: "delete", name: "Delete", phases: [...ACTIVE, "Suspended", ...FINISHED], isDangerous: true, change: without(client.deleteJob),
    effects: ["It leaves every list. Its events stay in the log, so the past still shows it."], goesTo: () => pageLink(["jobs"]),
  },
];

/** Return a change that has no body in the form of one that has. */
function without(change) {
  return (namespace, name, _, query) => change(namespace, name, query);
}

/** Return the buttons for a job. @param {t.JobDetail} detail */
export function actionsOf(detail, act) {
  const { job } = detail;
  if (job.deleting) return [];
  return ACTIONS.filter((action) => action.phases.includes(job.phase) && (action.isFor?.(detail) ?? true))
    .map((action) => el("button", {
      type: "button", "data-key": action.key, class: action.isDangerous ? "danger" : null, onclick: () => ask(action, detail, act),
    }, action.name));
}

async function ask({ name, effects, isDangerous, change, form, hasPreview = true, goesTo }, detail, act) {
  const { job } = detail, made = form?.(detail) ?? { element: null, body: () => undefined };
  const send = (query) => change(job.namespace, job.name, made.body(), query);
  const agreed = await askFirst({
    title: `${name} ${job.namespace}/${job.name}?`, action: name, effects, isDangerous, form: made.element,
    preview: hasPreview ? () => send(client.DRY_RUN) : null,
  });
  if (!agreed) return;
  let answer = null;
  const isDone = await act(async () => { answer = await send(); });
  if (isDone && goesTo) go(goesTo(answer));
}

function scaleForm({ spec }) {
  const roles = spec.roles ?? [];
  const role = el("select", {}, roles.map((each) => el("option", { value: each.name }, each.name)));
  const replicas = el("input", { type: "number", min: "0", max: "10000", value: roles[0]?.replicas ?? 1 });
  role.addEventListener("change", () => { replicas.value = roles.find((each) => each.name === role.value).replicas; });
  return { element: fields([["Role", role], ["Replicas", replicas]]), body: () => ({ role: role.value, replicas: Number(replicas.value) }) };
}

function moveForm({ job }) {
  const queue = el("input", { value: job.queue, required: true }), priority = el("input", { type: "number", value: job.priority });
  return {
    element: fields([["Queue", queue], ["Priority", priority]]),
    body: () => ({ ...(queue.value !== job.queue && { queue: queue.value }), ...(Number(priority.value) !== job.priority && { priority: Number(priority.value) }) }),
  };
}

function rerunForm() {
  const name = el("input", { placeholder: "a number is added to its name" });
  return { element: fields([["Name", name]]), body: () => (name.value.trim() ? { name: name.value.trim() } : {}) };
}
