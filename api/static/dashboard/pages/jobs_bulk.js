// Changing several jobs at once: a column of checkboxes, and a bar with what can be done with the chosen.

import { askFirst, fields } from "../base/ask.js";
import { el, setShown } from "../base/elements.js";
import { count, number } from "../base/format.js";
import * as client from "../client.js";

const NAMED_MAX = 8;
const ACTIONS = [
  { action: "suspend", name: "Suspend", effects: ["They stop, and do not start until they are resumed."] },
  { action: "resume", name: "Resume", effects: ["Those that are suspended queue again."] },
  { action: "amend", name: "Move", effects: ["Those that wait change their queue or priority."], form: moveForm },
  { action: "cancel", name: "Cancel", effects: ["They end for good; their records stay."], isDangerous: true },
  { action: "delete", name: "Delete", effects: ["They end and leave every list; their events stay in the log."], isDangerous: true },
];

/** Return the column and the bar. */
export function makeBulk({ act, redraw }) {
  /** Ids of the chosen jobs, each with NAMESPACE/NAME. @type {Map<string, string>} */
  const chosen = new Map();
  const about = el("b"), result = el("span", { class: "dim", role: "status" });
  const bar = el("div", { class: "tools bulk", hidden: true }, about,
    ACTIONS.map((action) => el("button", { type: "button", class: action.isDangerous ? "danger" : null, onclick: () => ask(action) }, action.name)),
    el("button", { type: "button", class: "plain", onclick: clear }, "Choose none"));
  const every = el("input", { type: "checkbox", "aria-label": "Choose all jobs of this list", onchange: () => chooseAll(every.checked) });
  const state = { isPast: false, shown: [] };

  const fullName = (job) => `${job.namespace}/${job.name}`;

  function toggle(job, isChosen) {
    if (isChosen) chosen.set(job.id, fullName(job));
    else chosen.delete(job.id);
    update();
  }

  function chooseAll(isChosen) {
    for (const job of state.shown) toggle(job, isChosen);
    redraw();
  }

  function clear() {
    chosen.clear();
    update();
    redraw();
  }

  function update() {
    setShown(bar, chosen.size > 0 && !state.isPast);
    about.textContent = `${count(chosen.size, "job")} chosen`;
    every.checked = chosen.size > 0 && chosen.size === state.shown.length;
  }

  async function ask({ action, name, effects, isDangerous = false, form }) {
    const jobs = [...chosen.values()], made = form?.() ?? { element: null, body: () => ({}) };
    const named = jobs.slice(0, NAMED_MAX).join(", ") + (jobs.length > NAMED_MAX ? ` and ${number(jobs.length - NAMED_MAX)} more` : "");
    const agreed = await askFirst({ title: `${name} ${count(jobs.length, "job")}?`, action: name, effects: [...effects, named], isDangerous, form: made.element });
    if (!agreed) return;
    await act(async () => {
      const { done, refused, items } = await client.changeJobs({ action, jobs, ...made.body() });
      const first = items.find((item) => !item.done);
      result.textContent = `${number(done)} done${refused ? `, ${number(refused)} refused: ${first.job}: ${first.message}` : ""}`;
      chosen.clear();
      update();
    });
  }

  return {
    element: el("div", { class: "bulk-box" }, bar, result),
    column: {
      key: "choose", name: "", style: "choose wide", heading: every,
      cell: (job) => !state.isPast && el("input", {
        type: "checkbox", checked: chosen.has(job.id), "aria-label": `Choose ${fullName(job)}`, onchange: (event) => toggle(job, event.target.checked),
      }),
    },
    show(items, isPast) {
      Object.assign(state, { isPast, shown: items });
      every.disabled = isPast;
      const known = new Set(items.map((job) => job.id));
      for (const id of [...chosen.keys()]) if (!known.has(id)) chosen.delete(id);
      update();
    },
  };
}

function moveForm() {
  const queue = el("input", { placeholder: "as it is" }), priority = el("input", { type: "number", placeholder: "as it is" });
  return {
    element: fields([["Queue", queue], ["Priority", priority]]),
    body: () => ({ ...(queue.value && { queue: queue.value }), ...(priority.value && { priority: Number(priority.value) }) }),
  };
}
