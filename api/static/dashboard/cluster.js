// The whole cluster at a glance: GPUs, jobs, nodes and queues, now or at any event of the past.

import { count, el, gpusAsked, jobAddress, patch, row, span, table } from "./elements.js";

// Jobs are shown in this order: who has GPUs or will soon, who waits in the order of the line, who
// was put aside, and who has ended.
const GROUPS = [
  { phases: ["Running", "Starting", "Restarting"], order: "newest" },
  { phases: ["Queued"], order: "oldest" },
  { phases: ["Unschedulable"], order: "oldest" },
  { phases: ["Suspended"], order: "newest" },
  { phases: ["Succeeded", "Failed", "Cancelled"], order: "newest" },
];
const PHASES = GROUPS.flatMap((group) => group.phases);
const GROUP_SHOWN = 200;
const JOBS_SHOWN = 600;
const NODES_SHOWN = 400;

const JOB_COLUMNS = [
  ["Job"], ["Phase"], ["GPUs", "number"], ["Ranks", "number wide"], ["Kind", "wide"], ["Queue", "wide"],
  ["Restarts", "number wide"], ["Age", "number wide"], ["Note"],
];
const QUEUE_COLUMNS = [
  ["Queue"], ["GPUs used", "number"], ["Own", "number"], ["At most", "number"], ["Waiting", "number"], ["Line"],
];

// The parts of the page, made once; `show` fills them with what is.
export function clusterPage(askAgain) {
  const tiles = el("div", { class: "tiles" });
  const search = el("input", { type: "search", placeholder: "Find jobs", "aria-label": "Find jobs by name, namespace, queue or kind" });
  const phase = el("select", { "aria-label": "Phase" },
    el("option", { value: "" }, "Any phase"), PHASES.map((each) => el("option", {}, each)));
  const jobs = table("jobs", JOB_COLUMNS);
  const jobsTold = el("small");
  const queues = table("queues", QUEUE_COLUMNS);
  const racks = el("div", { class: "racks" });
  const nodesTold = el("small");
  let last = null;

  const made = el("div", {}, tiles,
    el("h2", {}, "Jobs ", jobsTold), el("div", { class: "tools" }, search, phase), jobs.made,
    el("h2", {}, "Nodes ", nodesTold), racks,
    el("h2", {}, "Queues"), queues.made);

  function show(found) {
    last = found;
    patch(tiles, tilesOf(found));
    showJobs(found);
    nodesTold.textContent = found.nodes.length > NODES_SHOWN
      ? `the first ${NODES_SHOWN} of ${found.nodes.length}` : "";
    patch(racks, racksOf(found.nodes.slice(0, NODES_SHOWN)));
    patch(queues.body, found.queues.map(queueRow));
  }

  function showJobs(found) {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = found.jobs.filter((job) => (!phase.value || job.phase === phase.value) && matches(job, words));
    const shown = wanted.slice(0, JOBS_SHOWN);
    jobsTold.textContent = shown.length < wanted.length || found.more
      ? `${shown.length.toLocaleString("en")} of very many; find the others by name or phase` : "";
    patch(jobs.body, shown.length ? shown.map((job) => jobRow(job, found.at)) : [nobody(found, words)]);
  }

  // What is there already is shown at once, and the server is asked for the rest.
  const again = () => {
    if (last) showJobs(last);
    askAgain();
  };
  search.addEventListener("input", again);
  phase.addEventListener("change", again);
  const wanted = () => ({ phase: phase.value, name: search.value.trim().split(/[\s/]+/).pop() });
  return { made, show, wanted };
}

function nobody(found, words) {
  const told = found.jobs.length || words.length ? ["No such jobs."] : [
    "No jobs yet. ", el("code", {}, "muster submit examples/pytorchjob.yaml"), " submits one."];
  return el("tr", { "data-key": "" }, el("td", { colspan: JOB_COLUMNS.length, class: "dim" }, told));
}

const matches = (job, words) => {
  const text = `${job.namespace}/${job.name} ${job.queue} ${job.kind}`.toLowerCase();
  return words.every((word) => text.includes(word));
};

function tilesOf(found) {
  const { gpus, phases } = found;
  const lost = found.nodes.filter((node) => !node.ready).length;
  const cordoned = found.nodes.filter((node) => node.ready && node.cordoned).length;
  const running = (phases.Running ?? 0) + (phases.Starting ?? 0);
  const tile = (key, number, told, bad) =>
    el("div", { class: bad ? "tile bad" : "tile", "data-key": key }, el("b", {}, String(number)), el("span", {}, told));
  return [
    tile("gpus", `${gpus.used.toLocaleString("en")} / ${gpus.total.toLocaleString("en")}`, "GPUs in use"),
    tile("running", running.toLocaleString("en"), "jobs run or start"),
    tile("queued", ((phases.Queued ?? 0) + (phases.Restarting ?? 0)).toLocaleString("en"), "jobs wait"),
    ...(phases.Unschedulable ? [tile("unschedulable", phases.Unschedulable.toLocaleString("en"), "jobs unschedulable", true)] : []),
    tile("failed", (phases.Failed ?? 0).toLocaleString("en"), "jobs failed", phases.Failed > 0),
    tile("nodes", found.nodes.length.toLocaleString("en"),
      ["nodes", lost ? `, ${lost} lost` : "", cordoned ? `, ${cordoned} cordoned` : ""].join(""), lost > 0),
  ];
}

function jobRow(job, now) {
  const name = el("a", { href: jobAddress(job.namespace, job.name) },
    job.namespace === "default" ? job.name : `${job.namespace}/${job.name}`);
  return row(job.id, [
    [name, "name"],
    [job.deleting ? `${job.phase} (deleting)` : job.phase, `phase ${job.phase}`],
    [gpusAsked(job), "number"],
    [`${job.ranks_running}/${job.ranks}`, "number wide"],
    [job.kind, "wide"],
    [job.queue, "wide"],
    [String(job.restarts), "number wide"],
    [span(now - job.submitted_at), "number wide"],
    [noteOf(job, now), "note"],
  ]);
}

function noteOf(job, now) {
  if (job.phase === "Running" && job.running_at !== null) return `for ${span(now - job.running_at)}`;
  if (job.phase === "Starting") return `${job.ranks_running} of ${job.ranks} ranks are up`;
  if (job.phase === "Restarting" && job.retry_at !== null) return `again in ${span(job.retry_at - now)}`;
  if (job.phase === "Queued") return job.message || `for ${span(now - job.queued_at)}`;
  if (job.phase === "Unschedulable") return job.message;
  if (job.phase === "Succeeded" && job.running_at !== null) return `ran ${span(job.finished_at - job.running_at)}`;
  return [job.reason.replaceAll("_", " "), job.message].filter(Boolean).join(": ");
}

function racksOf(nodes) {
  const racks = new Map();
  for (const node of nodes) {
    if (!racks.has(node.rack)) racks.set(node.rack, []);
    racks.get(node.rack).push(node);
  }
  return [...racks].map(([rack, inside]) =>
    el("div", { class: "rack", "data-key": rack }, el("h3", {}, rack || "no rack"), inside.map(nodeLine)));
}

function nodeLine(node) {
  const used = node.ready ? node.gpus_used : 0;
  const taken = node.ready ? node.gpus - node.gpus_free : 0;
  const whole = taken - node.shared.length;
  const state = !node.ready ? "lost" : node.cordoned ? "cordoned" : "";
  const told = `${node.name}: ${used.toLocaleString("en")} of ${count(node.gpus, "GPU")} used${state && `, ${state}`}`;
  const about = [told, node.message, ...node.jobs].filter(Boolean).join("\n");
  const squares = Array.from({ length: Math.min(node.gpus, 64) }, (_, i) => el("i", { class: i < whole ? "used" : i < taken ? "shared" : "" }));
  return el("div", { class: `node ${state}`, title: about }, el("span", {}, node.name),
    el("span", { class: "gpus", role: "img", "aria-label": told }, squares), state && el("span", {}, state));
}

function queueRow(queue) {
  const limit = (number) => (number === null ? "-" : String(number));
  return row(queue.name, [
    [queue.name, "name"], [queue.gpus_used.toLocaleString("en"), "number"], [limit(queue.nominal), "number"],
    [limit(queue.gpus_max), "number"], [String(queue.jobs_waiting), "number"],
    [queue.discipline.replaceAll("_", " ")],
  ]);
}

// What the page shows, from the live server. Of very many jobs only some come; those of one phase, or
// whose names begin so, are asked for.
export async function clusterNow({ get, getText, all, clock }, { phase = "", name = "" } = {}) {
  const list = ({ phases, order }, more = "") =>
    get(`/v1/jobs?order=${order}&limit=${GROUP_SHOWN}&${phases.map((each) => `phase=${each}`).join("&")}${more}`);
  const groups = GROUPS.filter((group) => !phase || group.phases.includes(phase))
    .map((group) => (phase ? { ...group, phases: [phase] } : group));
  const named = name ? groups.map((group) => list(group, `&name=${encodeURIComponent(name)}`)) : [];
  const [pages, nodes, queues, numbers] = await Promise.all(
    [Promise.all([...groups.map((group) => list(group)), ...named]), all("/v1/nodes"), all("/v1/queues"), getText("/metrics")]);
  const jobs = new Map(pages.flatMap((page) => page.items).map((job) => [job.id, job]));
  return {
    at: clock.now,
    jobs: inOrder([...jobs.values()]),
    more: pages.some((page) => page.next !== null),
    nodes, queues,
    gpus: gpusOf(nodes),
    phases: phasesOf(numbers),
  };
}

function inOrder(jobs) {
  const sorted = [...jobs].sort((a, b) => a.submitted_at - b.submitted_at);
  return GROUPS.flatMap(({ phases, order }) => {
    const group = sorted.filter((job) => phases.includes(job.phase));
    return order === "newest" ? group.reverse() : group;
  });
}

// The same from a state of the past.
export function clusterThen(state) {
  const phases = {};
  for (const job of state.jobs) phases[job.phase] = (phases[job.phase] ?? 0) + 1;
  return {
    at: state.at,
    jobs: inOrder(state.jobs),
    more: false,
    nodes: state.nodes,
    queues: state.queues,
    gpus: gpusOf(state.nodes),
    phases,
  };
}

function gpusOf(nodes) {
  const ready = nodes.filter((node) => node.ready);
  const sum = (of) => ready.reduce((total, node) => total + of(node), 0);
  return { used: sum((node) => node.gpus_used), total: sum((node) => node.gpus) };
}

function phasesOf(numbers) {
  const found = numbers.matchAll(/^muster_jobs\{phase="(\w+)"\} (\S+)$/gm);
  return Object.fromEntries([...found].map(([, phase, number]) => [phase, Number(number)]));
}
