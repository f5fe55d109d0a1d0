// All jobs: filters in the address, sorted by any column, changed several at a time.

import { el, setShown } from "../base/elements.js";
import { count, number } from "../base/format.js";
import { card, heading } from "../base/pieces.js";
import { setQuery } from "../base/router.js";
import { makeTable } from "../base/table.js";
import { PHASES } from "../view.js";
import { JOB_COLUMNS } from "./job_columns.js";
import { makeBulk } from "./jobs_bulk.js";

const SHOWN_MAX = 1000;
const PAUSE_MS = 200;
const SINCE = { "": "Any time", 3600: "Last hour", 86400: "Last day", 604800: "Last week" };

export function makePage(context) {
  const search = el("input", { type: "search", placeholder: "Filter", "aria-label": "Filter by any part of name, namespace, queue, kind or user", oninput: () => later({ q: search.value }) });
  const label = el("input", { placeholder: "label=value", "aria-label": "Label", class: "short wide", oninput: () => later({ label: label.value }) });
  const phase = choice("Any phase", PHASES, (value) => setQuery({ phase: value }));
  const queue = choice("Any queue", [], (value) => setQuery({ queue: value }));
  const kind = choice("Any kind", [], (value) => setQuery({ kind: value }), "wide");
  const user = choice("Any user", [], (value) => setQuery({ user: value }), "wide");
  const since = el("select", { "aria-label": "Submitted", class: "wide", onchange: () => setQuery({ since: since.value }) },
    Object.entries(SINCE).map(([value, text]) => el("option", { value }, text)));
  const about = el("span", { class: "dim" });
  const bulk = makeBulk(context);
  const table = makeTable({ label: "Jobs", keyOf: (job) => job.id, columns: [bulk.column, ...JOB_COLUMNS] });
  const element = el("div", { class: "page jobs" },
    heading("Jobs", about),
    el("div", { class: "tools" }, search, phase, queue, kind, user, label, since,
      el("button", { type: "button", class: "plain", onclick: clear }, "Clear")),
    bulk.element,
    card("", table.element, { isFlush: true }));
  let due = null;

  function later(changes) {
    clearTimeout(due);
    due = setTimeout(() => setQuery(changes), PAUSE_MS);
  }

  function clear() {
    search.value = label.value = "";
    setQuery({ q: null, phase: null, queue: null, kind: null, user: null, label: null, since: null, sort: null });
  }

  const filter = () => {
    const { query } = context.address, text = (name) => query.get(name) ?? "";
    return { text: text("q"), phases: query.getAll("phase"), queue: text("queue"), kind: text("kind"), user: text("user"), label: text("label"), lastS: Number(text("since")) || null };
  };

  return {
    element,
    title: "Jobs",
    async load(view) {
      const [jobs, queues] = await Promise.all([view.jobs(filter()), view.queues()]);
      const expected = view.expected(), isPast = view.isPast;
      const items = jobs.items.map((job) => (job.phase === "Queued" ? { ...job, expected: expected.get(`${job.namespace}/${job.name}`) ?? null } : job));
      return { ...jobs, items, queues: queues.items, filter: filter(), isPast };
    },
    show(data) {
      const { items, more, filter: wanted } = data;
      if (document.activeElement !== search) search.value = wanted.text;
      if (document.activeElement !== label) label.value = wanted.label;
      phase.value = wanted.phases.length === 1 ? wanted.phases[0] : "";
      since.value = wanted.lastS ?? "";
      offer(queue, data.queues.map((each) => each.name), wanted.queue);
      offer(kind, [...new Set(items.map((job) => job.kind))].sort(), wanted.kind);
      offer(user, [...new Set(items.map((job) => job.user).filter(Boolean))].sort(), wanted.user);
      setShown(user, user.options.length > 1);
      about.textContent = items.length > SHOWN_MAX ? `the first ${number(SHOWN_MAX)} of ${number(items.length)}` : `${count(items.length, "job")}${more ? " and more: filter to see others" : ""}`;
      const isFiltered = context.address.query.size > 0;
      table.setEmpty(...(isFiltered ? ["No job is like that."] : ["No jobs yet. ", el("code", {}, "muster submit examples/pytorchjob.yaml"), " submits one."]));
      bulk.show(items, data.isPast);
      table.show(items.slice(0, SHOWN_MAX), data);
    },
  };
}

const choice = (any, values, chosen, className = null) => el("select", { "aria-label": any, class: className, onchange: (event) => chosen(event.target.value) },
  el("option", { value: "" }, any), values.map((value) => el("option", { value }, value)));

/** Offer values in a select; the chosen one is offered even if no row has it. */
function offer(select, values, chosen) {
  const all = chosen && !values.includes(chosen) ? [...values, chosen] : values;
  const now = [...select.options].slice(1).map((option) => option.value);
  if (now.join("\n") !== all.join("\n")) select.replaceChildren(select.options[0], ...all.map((value) => el("option", { value }, value)));
  select.value = chosen;
}
