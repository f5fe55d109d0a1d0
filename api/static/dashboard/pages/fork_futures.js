// The futures of a fork below each other on one time axis: what really happened, the control, and the
// branch with the change; as the use of GPUs, as waiting demand, or as bars of jobs.

import { el, setShown } from "../base/elements.js";
import { card } from "../base/pieces.js";
import { colorOf } from "../charts/colors.js";
import { makeGantt } from "../charts/gantt.js";
import { rowsOf } from "../charts/gantt_rows.js";
import { legendOf, makeStack } from "../charts/stack.js";
import { DEMAND, PARTS } from "./overview_charts.js";

const BRANCHES = [["changed", "With the change"], ["control", "Without it (control run)"], ["actual", "What really happened"]];
const SHOWN = [["use", "Use of GPUs"], ["demand", "Waiting demand"], ["jobs", "Jobs"]];

export function makeFutures() {
  const views = Object.fromEntries(SHOWN.map(([name]) => [name, el("div", { class: "futures" })]));
  const stacks = BRANCHES.map(([key, name]) => ({
    key,
    use: makeStack({ label: `Use of the GPUs: ${name}`, series: PARTS, height: 150, lookable: false }),
    demand: makeStack({ label: `GPUs that jobs wait for: ${name}`, series: DEMAND, height: 110, lookable: false }),
    gantt: makeGantt({ onSpan: () => {}, height: () => 240 }),
    name,
  }));
  for (const { use, demand, gantt, name } of stacks) {
    views.use.append(part(name, use.element));
    views.demand.append(part(name, demand.element));
    views.jobs.append(part(name, gantt.element));
  }
  views.use.append(legendOf(PARTS));
  const tabs = el("div", { role: "tablist", class: "tabs", "aria-label": "What to compare" }, SHOWN.map(([name, text]) =>
    el("button", { type: "button", role: "tab", id: `futures-tab-${name}`, onclick: () => choose(name), onkeydown: move }, text)));
  for (const [name] of SHOWN) {
    views[name].setAttribute("role", "tabpanel");
    views[name].setAttribute("aria-labelledby", `futures-tab-${name}`);
  }

  function choose(chosen) {
    SHOWN.forEach(([name], i) => {
      tabs.children[i].setAttribute("aria-selected", String(name === chosen));
      tabs.children[i].tabIndex = name === chosen ? 0 : -1;
      setShown(views[name], name === chosen);
    });
  }

  function move(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const here = [...tabs.children].indexOf(event.currentTarget);
    const next = tabs.children[(here + step + SHOWN.length) % SHOWN.length];
    next.focus();
    next.click();
    event.preventDefault();
    event.stopPropagation();
  }

  choose("use");
  return {
    element: card("Both futures", [tabs, Object.values(views)], { about: "on the same axis of time" }),
    show(result) {
      const { at: from, until } = result.forked;
      // The branches have the same axes, also where one has more nodes.
      const most = (key) => Math.max(...stacks.flatMap((branch) => result[branch.key].usage[key]));
      for (const { key, use, demand, gantt } of stacks) {
        const { usage, timeline } = result[key];
        const data = { from: usage.from, bin_s: usage.bin_s, values: usage, until, cursor: null };
        use.show({ ...data, top: most("total") });
        demand.show({ ...data, top: most("waiting_gpus") });
        const { rows, height } = rowsOf(timeline, null, "jobs");
        gantt.show({ rows, height, from, to: until, now: until, cursor: null, colorOf: (bar) => colorOf(bar.job?.queue ?? ""), labels: true });
      }
    },
  };
}

const part = (name, chart) => el("figure", {}, el("figcaption", {}, name), chart);
