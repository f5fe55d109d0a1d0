// What failed in the span of the time axis, where, whose, and what it cost; a list to step through, what
// people wrote about it, and a page to share.

import { el, patch, setShown } from "../base/elements.js";
import { iso, number, stamp, words } from "../base/format.js";
import { keepFor } from "../base/keep.js";
import { card, heading, tile } from "../base/pieces.js";
import * as client from "../client.js";
import { timeSpan } from "../time/span.js";
import { makeAnnotations } from "./incident_annotations.js";
import { makeMarkList } from "./incident_marks.js";

const GROUPS = [["by_cause", "Cause"], ["by_node", "Node"], ["by_user", "User"], ["by_image", "Image"], ["by_exit_code", "Exit code"]];
const ROWS_MAX = 12;
// The server folds the whole log for an analysis.
const FRESH_S = 20;

export function makePage(context) {
  const sentences = el("ul", { class: "sentences" }), tiles = el("div", { class: "tiles" }), groups = el("div", { class: "split" });
  const marks = makeMarkList(), annotations = makeAnnotations(context);
  const about = el("p", { class: "dim" }), body = el("div", { class: "page" }), none = el("p", { class: "empty", hidden: true }, "The log has no events in this span of time.");
  const verified = el("span", { class: "dim", role: "status" });
  const verify = el("button", { type: "button", onclick: check }, "Verify the log");
  const share = el("button", { type: "button", onclick: save, title: "Save one HTML file that needs nothing else" }, "Share as a file");
  body.append(card("What happened", sentences, { className: "why" }), tiles,
    el("div", { class: "split" }, card("Step through it", marks.element, { isFlush: true }), annotations.element), groups);
  const element = el("div", { class: "page" }, heading("Incidents", verified, verify, share), about, none, body);

  const keep = keepFor(FRESH_S);
  const span = () => {
    const { from, to, isAll } = timeSpan();
    return isAll ? {} : { from, to };
  };

  async function check() {
    verify.disabled = true;
    verified.textContent = "deciding the log again…";
    try {
      const answer = await client.verifyLog();
      verified.textContent = answer.decided_alike ? `today's code decides all ${number(answer.position)} events alike` : `the first difference is at event ${number(answer.difference.position)}`;
    } catch (error) {
      verified.textContent = error.message;
    }
    verify.disabled = false;
  }

  async function save() {
    await context.act(async () => {
      const page = await client.getIncidentPage(span());
      const url = URL.createObjectURL(new Blob([page], { type: "text/html" }));
      el("a", { href: url, download: `incident-${iso(timeSpan().from).slice(0, 10)}.html` }).click();
      setTimeout(() => URL.revokeObjectURL(url), 10_000);
    });
  }

  return {
    element,
    title: "Incidents",
    async load(view) {
      const [incident, named, kept, when] = await Promise.all([
        keep(JSON.stringify(span()), () => client.getIncident(span()).catch((error) => { if (error.code === "no_such_position") return null; throw error; })),
        marks.load(span()), annotations.load(), view.isPast ? view.policy() : { at: client.now() }]);
      return { at: when.at, position: when.position, incident, named, kept };
    },
    show({ at, incident, named, kept, position }) {
      setShown(none, incident === null);
      setShown(body, incident !== null);
      annotations.show(kept, at);
      if (!incident) return;
      const { analysis } = incident;
      about.textContent = `From ${stamp(analysis.since)} to ${stamp(analysis.until)}. Choose another span on the time axis: Shift and drag.`;
      patch(sentences, incident.sentences.map((text, i) => el("li", { "data-key": i }, text)));
      patch(tiles, tilesOf(analysis));
      marks.show(named, position);
      patch(groups, GROUPS.filter(([key]) => analysis[key].length).map(([key, name]) => groupCard(name, analysis[key])).concat(nodesCard(analysis.nodes)));
    },
  };
}

const tilesOf = (analysis) => [
  tile({ key: "jobs", value: number(analysis.jobs), caption: "jobs" }),
  tile({ key: "failed", value: number(analysis.failed), caption: "failed", isBad: analysis.failed > 0 }),
  tile({ key: "lost", value: number(analysis.attempts_lost), caption: "attempts failed", isBad: analysis.attempts_lost > 0 }),
  tile({ key: "hours", value: hours(analysis.gpu_hours), caption: "GPU-hours used" }),
  tile({ key: "hours-lost", value: hours(analysis.gpu_hours_lost), caption: "GPU-hours lost", isBad: analysis.gpu_hours_lost > 0 }),
];

const hours = (value) => value.toLocaleString("en", { maximumFractionDigits: 1 });

function groupCard(name, groups) {
  const rows = groups.slice(0, ROWS_MAX).map((group) => [words(group.name), number(group.attempts), number(group.jobs), hours(group.gpu_hours_lost)]);
  return keyed(name, card(`By ${name.toLowerCase()}`, table(`By ${name.toLowerCase()}`, [name, "Failed attempts", "Jobs", "GPU-hours lost"], rows), { isFlush: true }));
}

function nodesCard(nodes) {
  const failing = nodes.filter((node) => node.losses || node.failed_attempts).slice(0, ROWS_MAX);
  if (!failing.length) return [];
  const rows = failing.map((node) => [node.node, number(node.losses), hours(node.down_hours), number(node.failed_attempts)]);
  return [keyed("nodes", card("Nodes", table("Nodes", ["Node", "Losses", "Hours down", "Failed attempts"], rows), { isFlush: true }))];
}

function keyed(key, element) {
  element.dataset.key = key;
  return element;
}

const table = (label, heads, rows) => el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, el("table", { "aria-label": label },
  el("thead", {}, el("tr", {}, heads.map((text, i) => el("th", { scope: "col", class: i ? "number" : "" }, text)))),
  el("tbody", {}, rows.map((row) => el("tr", {}, row.map((text, i) => el("td", { class: i ? "number" : "name" }, text)))))));
