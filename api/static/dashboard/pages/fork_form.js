// The form of a fork: an instant, how far to run, and a list of changes. Each kind of change has its own
// inputs and says how it becomes part of the request.

import { el, setShown, setText } from "../base/elements.js";
import { field } from "../base/fields.js";
import { iso, stamp } from "../base/format.js";
import { keepFor } from "../base/keep.js";
import { address } from "../base/router.js";
import * as client from "../client.js";
import { instantOf, readTime } from "../instant.js";

/** @import * as t from "../types.js" */

const AHEAD = [["", "as far as the log goes"], ["3600", "1 hour"], ["21600", "6 hours"], ["86400", "1 day"], ["604800", "1 week"]];
// From the present there is no recorded future, so a length is chosen for the person.
const AHEAD_NOW = "3600";
// What the inputs suggest need not be newer.
const FRESH_S = 10;

/**
 * A kind of change: `inputs` are [name, label, list of suggestions or null], and `add(request, values)`
 * puts the change into the request.
 */
const CHANGES = {
  add_nodes: {
    name: "Add nodes", inputs: [["count", "How many", null, { type: "number", min: 1, max: 10000, value: 2 }]],
    add: (wanted, { count }) => { wanted.add_nodes = (wanted.add_nodes ?? 0) + Number(count); },
  },
  cordon: {
    name: "Cordon a node", inputs: [["node", "Node", "nodes"]],
    add: (wanted, { node }) => (wanted.cordon ??= []).push(node),
  },
  without_fault: {
    name: "Without the faults of a node", inputs: [["node", "Node (all: of every node)", "faulty"]],
    add: (wanted, { node }) => (wanted.without_fault ??= []).push(node),
  },
  with_fault: {
    name: "A node fails", inputs: [["node", "Node", "nodes"], ["minutes", "Back after minutes", null, { type: "number", min: 1, value: 30 }]],
    add: (wanted, { node, minutes }) => (wanted.with_fault ??= []).push({ node, at: wanted.at + 1, repair_s: 60 * Number(minutes) }),
  },
  discipline: {
    name: "Another discipline", inputs: [["value", "Discipline", "disciplines"]],
    add: (wanted, { value }) => set(wanted, "policy", value),
  },
  quota: {
    name: "Another quota", inputs: [["queue", "Queue", "queues"], ["value", "GPUs of its own", null, { type: "number", min: 0, value: 64 }]],
    add: (wanted, { queue, value }) => set(wanted, `queue.${queue}.nominal`, value),
  },
  priority: {
    name: "Another priority", inputs: [["job", "Job", "jobs"], ["value", "Priority", null, { type: "number", value: 100 }]],
    add: (wanted, { job, value }) => set(wanted, `job.${job}.priority`, value),
  },
  queue: {
    name: "A job in another queue", inputs: [["job", "Job", "jobs"], ["value", "Queue", "queues"]],
    add: (wanted, { job, value }) => set(wanted, `job.${job}.queue`, value),
  },
  setting: {
    name: "Any other setting", inputs: [["name", "Setting, such as policy.packing", null], ["value", "Value", null]],
    add: (wanted, { name, value }) => set(wanted, name, value),
  },
};

const set = (wanted, name, value) => { (wanted.set ??= {})[name] = String(value); };

let made = 0;

/** Return the form. `onRun(request)` sends it; what it throws is shown in the form. */
export function makeForkForm({ onRun }) {
  const id = `fork-${++made}`;
  const at = el("input", { id: `${id}-at`, autocomplete: "off", spellcheck: "false", size: 26 });
  const ahead = el("select", { id: `${id}-ahead` }, AHEAD.map(([value, text]) => el("option", { value }, text)));
  const rows = el("div", { class: "changes" });
  const kind = el("select", { "aria-label": "Kind of change" }, Object.entries(CHANGES).map(([value, { name }]) => el("option", { value }, name)));
  const problem = el("p", { class: "problem", role: "alert", hidden: true });
  const run = el("button", { class: "primary" }, "Run the fork");
  const lists = Object.fromEntries(["nodes", "faulty", "queues", "jobs", "disciplines"].map((name) => [name, el("datalist", { id: `${id}-${name}` })]));
  const element = el("form", { class: "fork-form", onsubmit: submit },
    el("div", { class: "fields" },
      field("From the instant", at), field("Run for", ahead)),
    rows,
    el("div", { class: "tools" }, kind, el("button", { type: "button", onclick: () => addRow(kind.value) }, "Add this change"), el("span", { class: "grow" }), run),
    problem, Object.values(lists));
  const state = { touched: false, shown: null, taken: new Set() };
  at.addEventListener("input", () => { state.touched = true; });

  function addRow(name, values = {}) {
    const change = CHANGES[name];
    const inputs = change.inputs.map(([key, label, list, attributes = {}]) => field(label,
      el("input", { name: key, required: true, autocomplete: "off", list: list && `${id}-${list}`, ...attributes, ...(values[key] === undefined ? {} : { value: values[key] }) })));
    const row = el("fieldset", { "data-change": name }, el("legend", {}, change.name), el("div", { class: "fields" }, inputs,
      el("button", { type: "button", class: "plain", title: "Remove this change", "aria-label": `Remove: ${change.name}`, onclick: () => row.remove() }, "×")));
    rows.append(row);
    row.querySelector("input").focus({ preventScroll: true });
  }

  async function submit(event) {
    event.preventDefault();
    setShown(problem, false);
    run.disabled = true;
    try {
      await onRun(request());
    } catch (error) {
      setText(problem, error.message);
      setShown(problem, true);
    }
    run.disabled = false;
  }

  /** Return the request that the form describes. */
  function request() {
    const instant = readTime(at.value.trim());
    if (instant === null) throw new Error(`“${at.value}” is no instant; write it as ${iso(client.now())}.`);
    const wanted = { at: instant };
    if (ahead.value) wanted.until = instant + Number(ahead.value);
    for (const row of rows.children) {
      const values = Object.fromEntries([...row.querySelectorAll("input")].map((input) => [input.name, input.value.trim()]));
      CHANGES[row.dataset.change].add(wanted, values);
    }
    return wanted;
  }

  /** Read what the inputs suggest, as it was at the instant. */
  const keep = keepFor(FRESH_S);
  const load = (view) => keep(address().query.toString(), () => read(view));

  async function read(view) {
    const [nodes, queues, jobs, choices, marks] = await Promise.all([
      view.nodes(), view.queues(), view.jobs({ phases: ["Running", "Starting", "Queued", "Restarting", "Unschedulable"] }),
      client.getStudyChoices(), client.getMarks({ bins: 1, limit: 500, kind: ["node_lost"] }).catch(() => null)]);
    return { at: nodes.at, position: nodes.position, isPast: view.isPast, nodes, queues, jobs, choices, marks };
  }

  function show({ at: when, isPast, nodes, queues, jobs, choices, marks }) {
    const lost = [...new Set((marks?.items ?? []).map(({ node }) => node))].filter(Boolean);
    addFromAddress();
    suggest(lists.nodes, nodes.items.map(({ name }) => [name]));
    suggest(lists.faulty, [["all", "every node"], ...lost.map((name) => [name])]);
    suggest(lists.queues, queues.items.map(({ name }) => [name]));
    suggest(lists.jobs, jobs.items.map((job) => [`${job.namespace}/${job.name}`, job.phase]));
    suggest(lists.disciplines, choices.disciplines.map(({ name, description }) => [name, description]));
    const wanted = `${instantOf(address())?.at ?? ""} ${instantOf(address())?.event ?? ""}`;
    if (state.touched && state.shown === wanted) return;
    if (state.shown === wanted && isPast) return;
    if (state.shown !== wanted) ahead.value = isPast ? "" : AHEAD_NOW;
    at.value = iso(instantOf(address())?.at ?? when);
    at.title = stamp(when);
    Object.assign(state, { touched: false, shown: wanted });
  }

  addFromAddress();
  if (!rows.children.length) addRow("add_nodes");

  return { element, load, show };

  // A link may bring a change with it: #/forks?cordon=node-0 or ?priority=default/a.
  function addFromAddress() {
    const { query } = address();
    for (const [name, change] of Object.entries(CHANGES)) {
      const value = query.get(name);
      if (value === null || state.taken.has(`${name}=${value}`)) continue;
      state.taken.add(`${name}=${value}`);
      addRow(name, { [change.inputs[0][0]]: value });
    }
  }
}

function suggest(list, options) {
  const text = JSON.stringify(options);
  if (list.dataset.options === text) return;
  list.dataset.options = text;
  list.replaceChildren(...options.slice(0, 2000).map(([value, label]) => el("option", { value }, label ?? value)));
}
