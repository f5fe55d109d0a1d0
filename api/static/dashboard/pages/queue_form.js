// Editing a queue, with what the change would start and evict.

import { askFirst, fields } from "../base/ask.js";
import { el } from "../base/elements.js";
import * as client from "../client.js";

/** @import * as t from "../types.js" */

const NUMBERS = { nominal: "Quota", gpus_max: "Ceiling", borrow_max: "Borrows at most", lend_max: "Lends at most" };

/** Return the buttons for a queue. @param {t.QueueView} queue */
export const queueActions = (queue, act) => [
  el("button", { type: "button", "data-key": "edit", onclick: () => edit(queue, act) }, "Edit"),
  el("button", { type: "button", "data-key": "remove", class: "danger", onclick: () => remove(queue, act) }, "Remove"),
];

/** Return the button that makes a new queue. */
export const newQueueButton = (act) => el("button", { type: "button", onclick: () => edit(null, act) }, "New queue");

async function edit(queue, act) {
  const name = el("input", { value: queue?.name ?? "", required: true, disabled: queue !== null });
  const parent = el("input", { value: queue?.parent ?? "", placeholder: "none" });
  const numbers = Object.keys(NUMBERS).map((key) => [key, el("input", { type: "number", min: "0", value: queue?.[key] ?? "", placeholder: "no limit" })]);
  const weight = el("input", { type: "number", min: "0", step: "any", value: queue?.weight ?? 1 });
  const settings = () => ({
    ...kept(queue), parent: parent.value, weight: Number(weight.value),
    ...Object.fromEntries(numbers.map(([key, input]) => [key, input.value === "" ? null : Number(input.value)])),
  });
  const agreed = await askFirst({
    title: queue ? `Change queue ${queue.name}` : "New queue", action: queue ? "Change" : "Make it",
    form: fields([["Name", name], ["Below", parent], ...numbers.map(([key, input]) => [NUMBERS[key], input]), ["Weight", weight]]),
    preview: async () => {
      if (!name.value) throw new client.Refused(400, { detail: "Give it a name." });
      return client.defineQueue(name.value, settings(), client.DRY_RUN);
    },
  });
  if (agreed) await act(() => client.defineQueue(name.value, settings()));
}

/** Return the settings of a queue that the form does not show; a definition replaces all of them. */
const kept = (queue) => (queue ? { rank: queue.rank, flavors: queue.flavors, resources: queue.resources, discipline: queue.discipline, preempt: queue.preempt } : {});

async function remove(queue, act) {
  const agreed = await askFirst({ title: `Remove queue ${queue.name}?`, action: "Remove", isDangerous: true, preview: () => client.removeQueue(queue.name, client.DRY_RUN) });
  if (agreed) await act(() => client.removeQueue(queue.name));
}
