// All nodes: the map by racks, and the list.

import { el } from "../base/elements.js";
import { count, number } from "../base/format.js";
import { bar, card, heading, namedJob } from "../base/pieces.js";
import { nodeLink, setQuery } from "../base/router.js";
import { makeTable } from "../base/table.js";
import { makeNodeMap, mapLegend } from "../charts/nodemap.js";

const SHOWN_MAX = 500;
const JOBS_SHOWN = 3;

export function makePage(context) {
  const search = el("input", { type: "search", placeholder: "Filter by node, rack or job", "aria-label": "Filter nodes", oninput: () => setQuery({ q: search.value }) });
  const told = el("span", { class: "dim" });
  const map = makeNodeMap();
  const table = makeTable({ label: "Nodes", keyOf: (node) => node.name, columns: COLUMNS, empty: "No node is like that." });
  const element = el("div", { class: "page nodes" }, heading("Nodes", told, search),
    card("Racks", map.element, { tools: mapLegend() }), card("", table.element, { isFlush: true }));

  return {
    element,
    title: "Nodes",
    async load(view) {
      const nodes = await view.nodes();
      return { ...nodes, holders: await view.holders(nodes.at) };
    },
    show(data) {
      const text = context.address.query.get("q") ?? "";
      if (document.activeElement !== search) search.value = text;
      map.show(data.items, data.holders);
      map.mark(text);
      const wanted = data.items.filter((node) => `${node.name} ${node.rack} ${node.gpu_type} ${node.jobs.join(" ")}`.toLowerCase().includes(text.toLowerCase()));
      told.textContent = wanted.length > SHOWN_MAX ? `the first ${SHOWN_MAX} of ${number(wanted.length)} in the list` : count(wanted.length, "node");
      table.show(wanted.slice(0, SHOWN_MAX), data);
    },
  };
}

export function nodeState(node) {
  if (!node.ready) return el("span", { class: "badge bad" }, "lost");
  return el("span", { class: node.cordoned ? "badge warn" : "badge good" }, node.cordoned ? "cordoned" : "ready");
}

const COLUMNS = [
  { key: "name", name: "Node", style: "name", cell: (node) => el("a", { href: nodeLink(node.name) }, node.name), sort: (node) => node.name },
  { key: "state", name: "State", cell: nodeState, sort: (node) => (node.ready ? (node.cordoned ? 1 : 2) : 0) },
  { key: "rack", name: "Rack", style: "wide", cell: (node) => node.rack || "–", sort: (node) => node.rack },
  { key: "type", name: "GPU", style: "wide", cell: (node) => node.gpu_type || "–", sort: (node) => node.gpu_type },
  { key: "use", name: "Use", style: "wide", cell: (node) => bar(node.gpus, [[node.gpus_used]], `${number(node.gpus_used)} of ${number(node.gpus)} GPUs used`) },
  { key: "used", name: "Used", style: "number", cell: (node) => `${number(node.gpus_used)}/${number(node.gpus)}`, sort: (node) => node.gpus_used },
  { key: "free", name: "Free", style: "number", cell: (node) => number(node.gpus_free), sort: (node) => node.gpus_free },
  { key: "jobs", name: "Jobs", style: "note", cell: jobsOf, sort: (node) => node.jobs.length },
];

function jobsOf(node) {
  const names = node.jobs.slice(0, JOBS_SHOWN).flatMap((name, i) => (i ? [", ", namedJob(name)] : [namedJob(name)]));
  const more = node.jobs.length > JOBS_SHOWN ? [` and ${node.jobs.length - JOBS_SHOWN} more`] : [];
  return [...names, ...more, node.message && `${node.jobs.length ? "; " : ""}${node.message}`];
}
