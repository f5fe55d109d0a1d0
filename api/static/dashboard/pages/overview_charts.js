// The charts of the overview: where the GPUs were, what waited, and the outlook.

import { el, patch, setShown } from "../base/elements.js";
import { number } from "../base/format.js";
import { bar, card } from "../base/pieces.js";
import { legendOf, makeStack } from "../charts/stack.js";
import { getFailures, getUsage, now } from "../client.js";
import { MARK_NAMES } from "../time/marks.js";
import { timeSpan } from "../time/span.js";

const BINS = 120;
const CAUSES_SHOWN = 8;
const HORIZON_S_MIN = 900, HORIZON_S_MAX = 6 * 3600;

export const PARTS = [
  { key: "productive", name: "productive", color: "part-productive" },
  { key: "starting", name: "starting", color: "part-starting" },
  { key: "held_idle", name: "held idle", color: "part-idle" },
  { key: "fragmented", name: "blocked by fragmentation", color: "part-fragmented" },
  { key: "cordoned", name: "cordoned", color: "part-cordoned" },
  { key: "down", name: "lost", color: "part-down" },
  { key: "free", name: "free", color: "free" },
];
export const DEMAND = [{ key: "waiting_gpus", name: "GPUs that jobs wait for", color: "part-waiting" }];

/** Return the charts: `load(view)` reads their data, `show(data, cursor)` draws them. */
export function makeCharts() {
  const use = makeStack({ label: "Use of the GPUs over time. The tiles above have the numbers of this instant.", series: PARTS, height: 210 });
  const demand = makeStack({ label: "GPUs that waiting jobs ask for, over time.", series: DEMAND, height: 120 });

  return {
    elements: [
      card("Use of GPUs", use.element, { tools: legendOf(PARTS) }),
      card("Waiting demand", demand.element, { tools: legendOf(DEMAND) }),
    ],

    async load(view) {
      const { from, to, isAll } = timeSpan();
      const reachesNow = isAll || to >= now() - 1;
      const usage = await getUsage(isAll ? { bins: BINS } : { from, to, bins: BINS });
      return { usage, outlook: reachesNow ? view.outlook() : null };
    },

    show({ usage, outlook }, cursor) {
      const future = Math.min(HORIZON_S_MAX, Math.max(HORIZON_S_MIN, (usage.to - usage.from) / 3));
      const until = outlook ? usage.to + future : usage.to;
      const last = (...keys) => keys.reduce((sum, key) => sum + (usage[key].at(-1) ?? 0), 0);
      const band = (levels, current) => outlook && { ...bandBetween(outlook, levels, usage.to, until), now: usage.to, current };
      use.show({ from: usage.from, bin_s: usage.bin_s, values: usage, until, cursor, future: band(outlook?.used_gpus, last("productive", "starting", "held_idle")) });
      demand.show({ from: usage.from, bin_s: usage.bin_s, values: usage, until, cursor, future: band(outlook?.waiting_gpus, last("waiting_gpus")) });
    },
  };
}

/** Return the bins of a forecast that lie between two instants. */
function bandBetween({ made_at: madeAt, bin_s: length }, { p10, p50, p90 }, from, to) {
  const first = Math.max(0, Math.floor((from - madeAt) / length)), last = Math.ceil((to - madeAt) / length);
  return { from: madeAt + first * length, bin_s: length, p10: p10.slice(first, last), p50: p50.slice(first, last), p90: p90.slice(first, last) };
}

/** Return the card of failures, restarts and losses by cause. */
export function makeCauses() {
  const list = el("ul", { class: "causes" });
  const none = el("p", { class: "empty" }, "Nothing failed in this span of time.");
  return {
    element: card("Failures by cause", [list, none], { about: "in the span of the time axis" }),
    async load() {
      const { from, to, isAll } = timeSpan();
      return (await getFailures(isAll ? {} : { from, to })).items;
    },
    show(items) {
      const most = Math.max(1, ...items.map(({ count }) => count));
      setShown(none, items.length === 0);
      patch(list, items.slice(0, CAUSES_SHOWN).map(({ kind, cause, message, count }) => el("li", { "data-key": `${kind} ${cause}` },
        el("span", {}, `${MARK_NAMES[kind] ?? kind}: ${message}`), el("b", { class: "number" }, number(count)),
        bar(most, [[count, `kind-${kind}`]], `${count} times`))));
    },
  };
}
