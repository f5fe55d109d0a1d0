// Jobs over time: nodes with their GPUs as lanes, or a lane per job, with waits, restarts, outages, and
// forecasts to the right of now.

import { el } from "../base/elements.js";
import { number, words } from "../base/format.js";
import { card, heading } from "../base/pieces.js";
import { setQuery } from "../base/router.js";
import { color } from "../base/theme.js";
import { colorOf } from "../charts/colors.js";
import { makeGantt } from "../charts/gantt.js";
import { endColor } from "../charts/gantt_bars.js";
import { rowsOf } from "../charts/gantt_rows.js";
import * as client from "../client.js";
import { setSpan, timeSpan } from "../time/span.js";

const BARS_MAX = 20_000;
// Of the width, how much shows the future when the axis ends now.
const FUTURE = 0.2;
const LEGEND_MAX = 14;

const COLORS = {
  queue: (bar) => bar.job?.queue ?? "",
  job: (bar) => bar.job?.name ?? "",
  user: (bar) => bar.job?.user ?? "",
  state: (bar) => (bar.isOpen || bar.kind === "plan" ? "running" : bar.end),
};

export function makePage(context) {
  const lanes = choice("Lanes", "lanes", { nodes: "Nodes and GPUs", jobs: "Jobs" });
  const by = choice("Colour", "color", { queue: "By queue", job: "By job", user: "By user", state: "By end" });
  const about = el("span", { class: "dim" }), legend = el("div", { class: "legend" });
  const gantt = makeGantt({ onSpan: (from, to) => setSpan(from, Math.min(to, client.now())) });
  const element = el("div", { class: "page timeline" },
    heading("Timeline", about, lanes, by),
    card("", [gantt.element, legend]));

  const chosen = (name, values, otherwise) => {
    const value = context.address.query.get(name);
    return values.includes(value) ? value : otherwise;
  };

  return {
    element,
    title: "Timeline",
    async load(view) {
      const { from, to, isAll } = timeSpan(), length = to - from;
      const wanted = chosen("lanes", ["nodes", "jobs"], "nodes");
      const isNow = isAll || to >= client.now() - length * 0.02;
      // More than what is in sight, so that panning shows something at once.
      const query = isAll ? {} : { from: Math.max(0, from - length / 2), to: Math.min(client.now(), to + length / 2) };
      const [timeline, when] = await Promise.all([
        client.getTimeline({ ...query, lanes: wanted, limit: BARS_MAX }),
        view.isPast ? view.policy() : { at: client.now() },
      ]);
      return { at: when.at, position: when.position, isPast: view.isPast, timeline, outlook: isNow ? view.outlook() : null, lanes: wanted, from, to: isNow ? to + length * FUTURE : to };
    },
    show({ at, isPast, timeline, outlook, lanes: wanted, from, to }) {
      const name = chosen("color", Object.keys(COLORS), "queue");
      lanes.querySelector("select").value = wanted;
      by.querySelector("select").value = name;
      const { rows, height } = rowsOf(timeline, outlook, wanted);
      gantt.show({ rows, height, from, to, now: timeline.now, cursor: isPast ? at : null, colorOf: painter(name), labels: true });
      const missing = timeline.bars_total - timeline.bars.job.length;
      about.textContent = `${number(timeline.jobs.length)} jobs, ${number(timeline.bars.job.length)} bars${missing > 0 ? `, ${number(missing)} small ones left out` : ""}`;
      legend.replaceChildren(...legendOf(rows, name));
    },
  };
}

/** Return the colour of a bar; the end of a job has the colour of its mark. */
function painter(name) {
  const key = COLORS[name];
  if (name !== "state") return (bar) => colorOf(key(bar));
  return (bar) => color(key(bar) === "running" ? "part-productive" : endColor(key(bar)) ?? "done");
}

function legendOf(rows, name) {
  if (name === "job") return [el("span", {}, "Each job has its own colour. Point at a bar to read it, click to open the job.")];
  const paint = painter(name), seen = new Map();
  for (const row of rows)
    for (const bar of row.bars) if (bar.job && bar.kind !== "wait" && seen.size < LEGEND_MAX) seen.set(COLORS[name](bar), paint(bar));
  return [...seen].sort().map(([text, fill]) => el("span", {}, el("i", { style: { background: fill } }), words(text) || "none"));
}

const choice = (label, name, values) => el("label", { class: "dim" }, `${label} `,
  el("select", { onchange: (event) => setQuery({ [name]: event.target.value }) },
    Object.entries(values).map(([value, text]) => el("option", { value }, text))));
