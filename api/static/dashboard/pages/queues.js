// The tree of queues: quota, use, what is borrowed and what waits.

import { el, patch } from "../base/elements.js";
import { number } from "../base/format.js";
import { bar, card, facts, heading } from "../base/pieces.js";
import { pageLink, queueLink } from "../base/router.js";
import { makeTable } from "../base/table.js";
import { Refused } from "../client.js";
import { isReadOnly } from "../cluster.js";
import { instant } from "../instant.js";
import { newQueueButton, queueActions } from "./queue_form.js";

export function makePage({ parameters, act }) {
  const table = makeTable({
    label: "Queues", keyOf: (queue) => queue.name, columns: COLUMNS, empty: "There are no queues.",
    rowClass: (queue) => (queue.depth ? "child" : null), rowStyle: (queue) => ({ "--depth": queue.depth }),
  });
  const one = el("div"), actions = el("div", { class: "tools" });
  const name = parameters.queue ?? null;
  const element = el("div", { class: "page queues" }, heading(name ?? "Queues", actions), one, card(name ? "All queues" : "", table.element, { isFlush: true }));

  return {
    element,
    title: name ?? "Queues",
    load: (view) => view.queues(),
    show(data) {
      table.show(inTree(data.items), data);
      const queue = data.items.find((each) => each.name === name), isNow = instant() === null && !isReadOnly();
      patch(actions, !isNow ? [] : name ? (queue ? queueActions(queue, act) : []) : [newQueueButton(act)]);
      if (!name) return;
      if (!queue) throw new Refused(404, { detail: `There is no queue ${name}.` });
      patch(one, [detail(queue, data.items)]);
    },
  };
}

const limit = (value) => (value === null || value === undefined ? "–" : number(value));

const COLUMNS = [
  { key: "name", name: "Queue", style: "name", cell: (queue) => el("a", { href: queueLink(queue.name) }, queue.name) },
  { key: "use", name: "Use", style: "wide", cell: useBar },
  { key: "used", name: "GPUs used", style: "number", cell: (queue) => number(queue.gpus_used) },
  { key: "own", name: "Quota", style: "number", cell: (queue) => limit(queue.nominal) },
  { key: "borrowed", name: "Borrowed", style: "number wide", cell: (queue) => number(queue.gpus_borrowed) },
  { key: "lent", name: "Lent", style: "number wide", cell: (queue) => number(queue.gpus_lent) },
  { key: "max", name: "Ceiling", style: "number wide", cell: (queue) => limit(queue.gpus_max) },
  { key: "waiting", name: "Waiting", style: "number", cell: (queue) => number(queue.jobs_waiting) },
  { key: "unschedulable", name: "Unschedulable", style: "number wide", cell: (queue) => number(queue.jobs_unschedulable) },
  { key: "weight", name: "Weight", style: "number wide", cell: (queue) => number(queue.weight) },
  { key: "discipline", name: "Discipline", style: "wide", cell: (queue) => queue.discipline },
];

function useBar(queue) {
  const whole = queue.nominal ?? queue.gpus_max;
  if (!whole) return "";
  const own = queue.gpus_used - queue.gpus_borrowed;
  return bar(Math.max(whole, queue.gpus_used), [[own], [queue.gpus_borrowed, "borrowed"]], `${number(queue.gpus_used)} of ${number(whole)} GPUs used`);
}

/** Return the queues in the order of their tree, each with its depth. */
export function inTree(queues) {
  const names = new Set(queues.map((queue) => queue.name)), found = [];
  const below = (parent, depth) => {
    for (const queue of queues) {
      const above = names.has(queue.parent) ? queue.parent : "";
      // A queue is shown once, whatever its parents say.
      if (above !== parent || found.some((each) => each.name === queue.name)) continue;
      found.push({ ...queue, depth });
      below(queue.name, depth + 1);
    }
  };
  below("", 0);
  return found;
}

function detail(queue, queues) {
  const below = queues.filter((each) => each.parent === queue.name).map((each) => el("a", { href: queueLink(each.name) }, each.name));
  return card("This queue", facts([
    ["Above it", queue.parent && el("a", { href: queueLink(queue.parent) }, queue.parent)],
    ["Below it", below.length > 0 && below.flatMap((link, i) => (i ? [", ", link] : [link]))],
    ["GPUs used", number(queue.gpus_used)],
    ["Borrowed", queue.gpus_borrowed > 0 && number(queue.gpus_borrowed)],
    ["Lent", queue.gpus_lent > 0 && number(queue.gpus_lent)],
    ["Quota", limit(queue.nominal)], ["Ceiling", limit(queue.gpus_max)],
    ["Borrows at most", limit(queue.borrow_max)], ["Lends at most", limit(queue.lend_max)],
    ["Weight", number(queue.weight)], ["Discipline", queue.discipline],
    ["Jobs", el("a", { href: pageLink(["jobs"], { queue: queue.name }) }, `${number(queue.jobs_waiting)} waiting, all jobs of this queue`)],
  ]));
}
