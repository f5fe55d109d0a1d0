// One job: why it is where it is, its ranks, its restarts, what happened to it, what its ranks wrote.

import { count, el, gpusAsked, moment, row, span, stamp, table } from "./elements.js";

const RANKS_SHOWN = 200;
const EVENTS_SHOWN = 200;
// By phase, what a person may ask for.
const ASKED = {
  Queued: ["suspend", "cancel"], Unschedulable: ["suspend", "cancel"], Starting: ["suspend", "cancel"], Running: ["suspend", "cancel"],
  Restarting: ["suspend", "cancel"], Suspended: ["resume", "cancel"],
};
const QUESTIONS = {
  suspend: "Stop all ranks until the job is resumed?",
  cancel: "Stop the job for good? Its record stays.",
};

export async function jobNow(namespace, name, { get, clock }) {
  const path = pathOf(namespace, name);
  const [detail, why] = await Promise.all([get(path), get(`${path}/why`)]);
  const events = await get(`${path}/events?limit=1000`);
  const rank = detail.failure?.rank ?? 0;
  const written = detail.attempt === null ? [] : (await get(`${path}/logs?rank=${rank}`).catch(() => ({ lines: [] }))).lines;
  return { at: clock.now, detail, why, events: events.items, rank, written };
}

export function jobThen(state) {
  return { at: state.at, detail: state.job.detail, why: state.job.why, events: [], rank: 0, written: [] };
}

export const pathOf = (namespace, name) =>
  `/v1/jobs/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;

export function jobPage(found, { change, isPast }) {
  const { detail, why, at } = found;
  const job = detail.job;
  return el("div", {},
    el("p", {}, el("a", { href: "#/" }, "All jobs")),
    el("h2", {}, `${job.namespace}/${job.name} `, el("span", { class: `phase ${job.phase}` }, job.phase),
      job.deleting ? el("small", {}, " is being deleted") : ""),
    whyOf(why, at),
    isPast ? "" : buttons(job, change),
    factsOf(detail, at),
    failureOf(detail.failure),
    ranksOf(detail.attempt),
    restartsOf(detail.restarts),
    writtenOf(found),
    eventsOf(found.events));
}

function whyOf(why, now) {
  const told = [el("p", {}, why.summary)];
  if (why.reasons.length > 1 || why.reasons.some((reason) => reason.helps))
    told.push(el("ul", {}, why.reasons.map((reason) =>
      el("li", {}, reason.message, reason.helps ? `; it helps if ${reason.helps}` : ""))));
  const forecast = why.forecast;
  if (forecast?.start_p50 > now) told.push(el("p", { class: "dim" },
    `Expected to start in ${span(forecast.start_p50 - now)}, its length from ${forecast.basis}.`));
  return el("div", { class: "why" }, told);
}

function buttons(job, change) {
  const asked = job.deleting ? [] : ASKED[job.phase] ?? [];
  return el("div", { class: "tools" }, asked.map((what) => {
    const made = el("button", { type: "button", "data-key": what }, what[0].toUpperCase() + what.slice(1));
    made.addEventListener("click", () => {
      if (QUESTIONS[what] && !confirm(`${job.namespace}/${job.name}: ${QUESTIONS[what]}`)) return;
      made.disabled = true;
      change(`${pathOf(job.namespace, job.name)}/${what}`);
    });
    return made;
  }));
}

const asked = (job) => (job.gpus || !job.gpu_memory_mib ? count(job.gpus, "GPU") : `${gpusAsked(job)} of GPU memory`);

// The numbers of its devices; of a shared one the part that it has.
const devicesOf = (rank) =>
  rank.share ? `${rank.devices[0]} (${rank.share / 10}%)` : rank.devices.join(", ") || "-";

function factsOf(detail, now) {
  const job = detail.job;
  const retries = job.failures_max === null ? `${job.failures}` : `${job.failures} of ${job.failures_max}`;
  const facts = [
    ["Kind", job.kind], ["Queue", job.queue], ["Priority", String(job.priority)],
    ["Asks for", `${count(job.ranks, "rank")}, ${asked(job)}`],
    ["Images", [...new Set(detail.spec.roles.map((role) => role.image).filter(Boolean))].join(", ")],
    ["Submitted", `${stamp(job.submitted_at)}, ${span(now - job.submitted_at)} ago`],
    ["Started", job.running_at && stamp(job.running_at)],
    ["Ended", job.finished_at && stamp(job.finished_at)],
    ["Retries spent", retries],
  ];
  return el("dl", { class: "facts" }, facts.filter(([, told]) => told).map(([name, told]) => [el("dt", {}, name), el("dd", {}, told)]));
}

function failureOf(failure) {
  if (!failure) return "";
  const told = [failure.exit_code === null ? failure.cause ?? "" : `exit code ${failure.exit_code}`, failure.message];
  return el("section", {}, el("h2", {}, "What failed"),
    el("p", {}, `${failure.name} on ${failure.node || "no node"}: ${told.filter(Boolean).join("; ").replaceAll("_", " ")}`),
    failure.lines.length ? el("pre", { tabindex: "0" }, failure.lines.join("\n")) : "");
}

function ranksOf(attempt) {
  if (!attempt) return "";
  const ranks = table("ranks", [["Rank"], ["State"], ["Node"], ["GPUs"], ["Up since"], ["End"]]);
  const shown = attempt.ranks.slice(0, RANKS_SHOWN);
  ranks.body.append(...shown.map((rank) => row(String(rank.rank), [
    [rank.name, "name"], [rank.state], [rank.node || "-"], [devicesOf(rank), "mono"],
    [rank.started_at ? moment(rank.started_at) : "-", "when"],
    [[rank.exit_code === null ? rank.cause?.replaceAll("_", " ") : `code ${rank.exit_code}`, rank.message].filter(Boolean).join(": "), "note"],
  ])));
  const more = attempt.ranks.length > shown.length ? `, the first ${RANKS_SHOWN} of ${attempt.ranks.length}` : "";
  return el("section", {}, el("h2", {}, `Attempt ${attempt.number} `, el("small", {}, attempt.state.toLowerCase() + more)), ranks.made);
}

function restartsOf(restarts) {
  if (!restarts.length) return "";
  const made = table("restarts", [["When"], ["Why"], ["Node"], [""]]);
  made.body.append(...restarts.map((each, i) => row(String(i), [
    [moment(each.at), "when"], [each.cause.replaceAll("_", " ")], [each.node || "-"], [each.message ?? "", "note"],
  ])));
  return el("section", {}, el("h2", {}, "Restarts"), made.made);
}

function writtenOf({ written, rank }) {
  if (!written.length) return "";
  return el("section", {}, el("h2", {}, "Lines ", el("small", {}, `the last of rank ${rank}`)),
    el("pre", { tabindex: "0" }, written.slice(-100).join("\n")));
}

function eventsOf(events) {
  if (!events.length) return "";
  const made = table("events", [["Event", "number"], ["When"], ["What"], [""]]);
  const shown = events.slice(-EVENTS_SHOWN).reverse();
  made.body.append(...shown.map((event) => row(String(event.position), [
    [String(event.position), "number"], [moment(event.at), "when"], [wordsOf(event.type), "when"], [payloadOf(event.payload), "note"],
  ])));
  return el("section", {}, el("h2", {}, "What happened ", el("small", {}, "the latest first")), made.made);
}

const plainOf = (name, value) =>
  name.endsWith("_at") ? stamp(value).slice(11, 19) : name === "reason" ? value.replaceAll("_", " ") : value;

// GangPlaced -> gang placed
const wordsOf = (type) => type.replace(/(?!^)([A-Z])/g, " $1").toLowerCase();

// What says nothing that is not on the page already.
const UNTOLD = ["job", "namespace", "name", "gpu_s"];

// The plain values of an event, why a gang restarts, and where it was placed.
function payloadOf(payload) {
  const told = Object.entries(payload)
    .filter(([name, value]) => !UNTOLD.includes(name) && value !== "" && value !== null && typeof value !== "object")
    .map(([name, value]) => `${name.replaceAll("_", " ")} ${plainOf(name, value)}`);
  if (Array.isArray(payload.placement)) told.push(`on ${[...new Set(payload.placement.map(([node]) => node))].join(", ")}`);
  if (payload.restart) told.push([payload.restart.cause?.replaceAll("_", " "), payload.restart.message].filter(Boolean).join(": "));
  return told.join("; ");
}
