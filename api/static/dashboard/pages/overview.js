// The whole cluster at a glance.

import { el, patch } from "../base/elements.js";
import { number, percent, span } from "../base/format.js";
import { bar, card, heading, jobName, namedJob, phaseBadge, startsIn, tile } from "../base/pieces.js";
import { go, link, pageLink } from "../base/router.js";
import { makeTable } from "../base/table.js";
import { makeNodeMap, mapLegend } from "../charts/nodemap.js";
import { makeCauses, makeCharts } from "./overview_charts.js";

const WAITING_SHOWN = 8;

export function makePage() {
  const tiles = el("div", { class: "tiles" });
  const map = makeNodeMap();
  const charts = makeCharts(), causes = makeCauses();
  const waiting = makeTable({
    label: "First in line", keyOf: (row) => row.job, columns: WAITING,
    empty: "No job waits.",
  });
  const troubled = makeTable({
    label: "In trouble", keyOf: (job) => job.id, columns: TROUBLED, empty: "No job restarts, and none failed.",
  });
  const element = el("div", { class: "page" },
    heading("Overview", whatIf()), tiles, charts.elements,
    card("GPUs", map.element, { tools: mapLegend() }),
    el("div", { class: "split" },
      card("First in line", waiting.element, { isFlush: true, tools: el("a", { href: pageLink(["jobs"], { phase: "Queued" }) }, "All that wait") }),
      el("div", { class: "page" }, card("In trouble", troubled.element, { isFlush: true }), causes.element)));

  return {
    element,
    title: "Overview",
    async load(view) {
      const [summary, history, waits, troubles, reasons] = await Promise.all([
        view.summary(), charts.load(view), view.line({ limit: WAITING_SHOWN }), view.jobs({ phases: ["Restarting", "Failed", "Unschedulable"] }), causes.load()]);
      return { ...summary, holders: await view.holders(summary.at), history, reasons, isPast: view.isPast, waits: waits.items, expected: view.expected(), troubles: troubles.items };
    },
    show(data) {
      patch(tiles, tilesOf(data));
      charts.show(data.history, data.isPast ? data.at : null);
      causes.show(data.reasons);
      map.show(data.nodes, data.holders);
      if (data.waits.length === 0 && Object.values(data.phases).every((n) => n === 0)) waiting.setEmpty(...firstSteps());
      waiting.show(data.waits, data);
      troubled.show(data.troubles.slice(0, WAITING_SHOWN), data);
    },
  };
}

/** Return the question that starts a study with the jobs of the last week. */
function whatIf() {
  const more = el("input", { type: "number", min: 1, max: 10000, value: 20, "aria-label": "Nodes more" });
  return el("form", { class: "ask-more", onsubmit: (event) => { event.preventDefault(); go(link(["studies"], { add: more.value, days: 7 })); } },
    el("span", {}, "What if we had"), more, el("span", {}, "nodes more?"), el("button", {}, "Ask"));
}

const firstSteps = () => ["No jobs yet. ", el("code", {}, "muster submit examples/pytorchjob.yaml"), " submits one."];

const WAITING = [
  { key: "job", name: "Job", style: "name", cell: (row) => namedJob(row.job) },
  { key: "gpus", name: "GPUs", style: "number", cell: (row) => number(row.gpus) },
  { key: "waits", name: "Waits", style: "number", cell: (row, { at }) => span(at - row.queued_at) },
  { key: "starts", name: "Starts in", style: "number", cell: (row, { at, expected }) => startsIn(expected.get(row.job), row.planned_at, at) },
  { key: "why", name: "Why", style: "note", cell: (row) => row.message },
];

const TROUBLED = [
  { key: "job", name: "Job", style: "name", cell: (job) => jobName(job) },
  { key: "phase", name: "Phase", cell: (job) => phaseBadge(job.phase) },
  { key: "restarts", name: "Restarts", style: "number wide", cell: (job) => number(job.restarts) },
  { key: "why", name: "Why", style: "note", cell: (job) => job.message },
];

function tilesOf({ gpus, phases, nodes }) {
  const of = (...names) => names.reduce((sum, name) => sum + (phases[name] ?? 0), 0);
  const lost = nodes.filter((node) => !node.ready).length, cordoned = nodes.filter((node) => node.ready && node.cordoned).length;
  const states = [lost && `${lost} lost`, cordoned && `${cordoned} cordoned`].filter(Boolean).join(", ");
  const jobs = (...phase) => `${pageLink(["jobs"])}${pageLink(["jobs"]).includes("?") ? "&" : "?"}${phase.map((each) => `phase=${each}`).join("&")}`;
  return [
    tile({ key: "gpus", value: number(gpus.used), unit: `/ ${number(gpus.total)}`, caption: `GPUs in use, ${percent(gpus.used, gpus.total)}`,
      bar: bar(gpus.total, [[gpus.used]], `${percent(gpus.used, gpus.total)} in use`) }),
    tile({ key: "running", value: number(of("Running", "Starting")), caption: "run or start", href: jobs("Running", "Starting") }),
    tile({ key: "queued", value: number(of("Queued", "Restarting")), caption: "wait", href: jobs("Queued", "Restarting") }),
    of("Unschedulable") > 0 && tile({ key: "unschedulable", value: number(of("Unschedulable")), caption: "unschedulable", href: jobs("Unschedulable"), isBad: true }),
    tile({ key: "failed", value: number(of("Failed")), caption: "failed", href: jobs("Failed"), isBad: of("Failed") > 0 }),
    tile({ key: "done", value: number(of("Succeeded")), caption: "succeeded", href: jobs("Succeeded") }),
    tile({ key: "nodes", value: number(nodes.length), caption: states ? `nodes, ${states}` : "nodes", href: pageLink(["nodes"]), isBad: lost > 0 }),
  ];
}
