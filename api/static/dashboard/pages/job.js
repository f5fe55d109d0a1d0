// One job: why it is where it is, its story, ranks, restarts, lines, and what can be done with it.

import { el, patch, setShown } from "../base/elements.js";
import { count, gpusAsked, moment, number, span, stamp, words } from "../base/format.js";
import { card, facts, heading, namedJob, phaseBadge } from "../base/pieces.js";
import { nodeLink, pageLink, queueLink } from "../base/router.js";
import { makeTable } from "../base/table.js";
import { isReadOnly } from "../cluster.js";
import { instant } from "../instant.js";
import { actionsOf } from "./job_actions.js";
import { makeLogs } from "./job_logs.js";
import { makeManifest } from "./job_manifest.js";
import { storyCard } from "./job_story.js";

const RANKS_SHOWN = 512;

export function makePage({ parameters: { namespace, name }, act, redraw }) {
  const badge = el("span"), actions = el("div", { class: "tools" });
  const why = el("div", { class: "page" }), story = el("div", { class: "page" }), about = el("div", { class: "page" });
  const ranks = makeTable({ label: "Ranks", keyOf: (rank) => String(rank.rank), columns: RANKS, empty: "It has no ranks yet: it was not placed." });
  const ranksAbout = el("span", { class: "dim" });
  const restarts = makeTable({ label: "Restarts", keyOf: (restart) => `${restart.at} ${restart.attempt}`, columns: RESTARTS, empty: "It never restarted." });
  const logs = makeLogs({ namespace, name, redraw }), manifest = makeManifest({ namespace, name });
  const element = el("div", { class: "page job" },
    el("p", {}, el("a", { href: pageLink(["jobs"]) }, "Jobs"), ` / ${namespace}`), heading(name, badge, actions), why,
    el("div", { class: "columns-2-1" }, story, about),
    card("Ranks", ranks.element, { isFlush: true, tools: ranksAbout }), card("Restarts", restarts.element, { isFlush: true }), logs.element, manifest.element);

  return {
    element,
    title: name,
    async load(view) {
      const [job, events] = await Promise.all([view.job(namespace, name), view.story(namespace, name)]);
      const lines = view.isPast ? null : await logs.load(job.detail);
      return { ...job, story: events, lines };
    },
    show(data) {
      const { detail, at } = data, { job } = detail;
      badge.replaceChildren(phaseBadge(job.phase, job.deleting ? " (deleting)" : ""));
      patch(actions, instant() === null && !isReadOnly() ? actionsOf(detail, act) : []);
      patch(why, [whyCard(data)]);
      patch(story, [storyCard(data)]);
      patch(about, [factsCard(data), failureCard(detail)]);
      ranks.show(detail.attempt?.ranks.slice(0, RANKS_SHOWN) ?? [], data);
      ranksAbout.textContent = aboutRanks(detail.attempt);
      restarts.show(detail.restarts, { at });
      logs.show(data.lines, detail);
      setShown(manifest.element, instant() === null && !job.array);
    },
  };
}

function aboutRanks(attempt) {
  if (!attempt) return "";
  const cut = attempt.ranks.length > RANKS_SHOWN ? `, the first ${RANKS_SHOWN} of ${number(attempt.ranks.length)}` : "";
  return `attempt ${attempt.number}, ${attempt.state.toLowerCase()}${cut}`;
}

function keyed(key, element) {
  if (element) element.dataset.key = key;
  return element;
}

// ---------------------------------------------------------------- why

function whyCard({ why, at }) {
  const reasons = why.reasons.filter((reason) => reason.message !== why.summary || reason.helps);
  return keyed("why", el("section", { class: "card why" },
    el("p", {}, why.summary),
    reasons.length > 0 && el("ul", {}, reasons.map((reason) => el("li", {}, reason.message,
      reason.helps && el("div", { class: "helps" }, `It would help if ${reason.helps}.`)))),
    why.ahead.length > 0 && el("p", { class: "dim" }, "Ahead of it: ", why.ahead.slice(0, 8).flatMap((name, i) => (i ? [", ", namedJob(name)] : [namedJob(name)])),
      why.ahead.length > 8 && ` and ${number(why.ahead.length - 8)} more`),
    forecastLine(why, at)));
}

function forecastLine({ forecast, planned_at: planned }, at) {
  const parts = [];
  if (planned) parts.push(`planned start ${stamp(planned)}`);
  if (forecast?.start_p50 > at) parts.push(`expected start in ${span(forecast.start_p50 - at)}${forecast.start_p90 ? `, by ${span(forecast.start_p90 - at)} with 90%` : ""}`);
  if (forecast?.finish_p50 > at) parts.push(`expected end in ${span(forecast.finish_p50 - at)}`);
  if (forecast) parts.push(`lengths from ${forecast.basis}`);
  return parts.length > 0 && el("p", { class: "dim" }, `Forecast: ${parts.join("; ")}.`);
}

// ---------------------------------------------------------------- what it is

function factsCard({ detail, why, at }) {
  const { job, spec } = detail;
  const images = [...new Set((spec.roles ?? []).map((role) => role.image).filter(Boolean))];
  return keyed("facts", card("About", facts([
    ["Kind", job.kind],
    ["Queue", el("a", { href: queueLink(job.queue) }, job.queue)],
    ["Place in line", why.place_in_queue && number(why.place_in_queue)],
    ["Priority", number(job.priority)],
    ["Asks for", `${count(job.ranks, "rank")}, ${gpusAsked(job)}${job.gpus || !job.gpu_memory_mib ? ` ${job.gpus === 1 ? "GPU" : "GPUs"}` : " of GPU memory"}`],
    ["Holds", job.gpus_held > 0 && count(job.gpus_held, "GPU")],
    ["Waits for", job.waits_for.length > 0 && job.waits_for.join(", ")],
    ["Belongs to", job.owner && namedJob(job.owner)],
    ["Images", images.join(", ")],
    ["Submitted", [stamp(job.submitted_at), ` · ${span(at - job.submitted_at)} ago`]],
    ["Runs since", job.running_at && [stamp(job.running_at), ` · ${span((job.finished_at ?? at) - job.running_at)}`]],
    ["Ended", job.finished_at && stamp(job.finished_at)],
    ["Retries used", job.failures_max === null ? number(job.failures) : `${number(job.failures)} of ${number(job.failures_max)}`],
  ])));
}

function failureCard({ failure }) {
  if (!failure) return null;
  const how = failure.exit_code === null ? words(failure.cause ?? "") : `exit code ${failure.exit_code}`;
  return keyed("failure", card("What failed", [
    el("p", {}, failure.name, failure.node && [" on ", el("a", { href: nodeLink(failure.node) }, failure.node)], `: ${[how, failure.message].filter(Boolean).join("; ")}`),
    failure.lines.length > 0 && el("pre", { tabindex: "0", class: "log", "aria-label": "Its last lines" }, failure.lines.join("\n")),
  ]));
}

const RANKS = [
  { key: "rank", name: "Rank", style: "name", cell: (rank) => rank.name, sort: (rank) => rank.rank },
  { key: "state", name: "State", cell: (rank) => rank.state.toLowerCase(), sort: (rank) => rank.state },
  { key: "node", name: "Node", cell: (rank) => (rank.node ? el("a", { href: nodeLink(rank.node) }, rank.node) : "–"), sort: (rank) => rank.node },
  { key: "devices", name: "GPUs", style: "mono", cell: devicesOf },
  { key: "up", name: "Up", style: "number wide", cell: (rank, { at }) => (rank.started_at ? span((rank.ended_at ?? at) - rank.started_at) : "–"), sort: (rank) => rank.started_at },
  { key: "end", name: "End", style: "note wide", cell: (rank) => [rank.exit_code === null ? words(rank.cause ?? "") : `code ${rank.exit_code}`, rank.message].filter(Boolean).join(": ") },
];

/** Return the numbers of a rank's devices; of a shared one the part that it has. */
function devicesOf(rank) {
  if (rank.share) return `${rank.devices[0]} (${number(rank.share / 10)}%)`;
  return rank.devices.length ? rank.devices.join(" ") : "–";
}

const RESTARTS = [
  { key: "at", name: "When", style: "when", cell: (restart, { at }) => moment(restart.at, at) },
  { key: "attempt", name: "Attempt", style: "number", cell: (restart) => number(restart.attempt) },
  { key: "cause", name: "Cause", cell: (restart) => words(restart.cause) },
  { key: "node", name: "Node", style: "wide", cell: (restart) => (restart.node ? el("a", { href: nodeLink(restart.node) }, restart.node) : "–") },
  { key: "lost", name: "Work lost", style: "number wide", cell: (restart) => (restart.lost_s > 0 ? span(restart.lost_s) : "–") },
  { key: "budget", name: "Spends a retry", style: "wide", cell: (restart) => (restart.spends_budget ? "yes" : "no") },
  { key: "why", name: "Why", style: "note", cell: (restart) => restart.message },
];
