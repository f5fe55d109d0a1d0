// The lines that ranks of a job wrote: any rank, searched, followed, saved.

import { el, setShown } from "../base/elements.js";
import { count } from "../base/format.js";
import { card } from "../base/pieces.js";
import * as client from "../client.js";

const TAIL = 1000;

/** Return the card of the logs. */
export function makeLogs({ namespace, name, redraw }) {
  const state = { rank: null, lines: [] };
  const rank = el("input", { type: "number", min: "0", value: "0", "aria-label": "Rank", class: "rank", onchange: () => { state.rank = Number(rank.value); redraw(); } });
  const search = el("input", { type: "search", placeholder: "Find in lines", "aria-label": "Find in lines", oninput: draw });
  const follow = el("input", { type: "checkbox", checked: true, id: "follow" });
  const save = el("button", { type: "button", onclick: download }, "Save");
  const lines = el("pre", { class: "log", tabindex: "0", "aria-label": "Lines" });
  const about = el("span", { class: "dim" });
  const element = card("Lines", lines, {
    tools: el("div", { class: "tools" }, about, el("label", {}, "rank ", rank), search, el("label", {}, follow, " follow"), save),
  });

  async function load(detail) {
    if (detail.attempt === null || detail.job.array) return [];
    const asked = state.rank ?? detail.failure?.rank ?? 0;
    try {
      return (await client.getLogs(namespace, name, { rank: asked, tail: TAIL })).lines;
    } catch (error) {
      if (error instanceof client.Unreachable) throw error;
      return [error.message];
    }
  }

  function show(found, detail) {
    setShown(element, found !== null && detail.attempt !== null);
    if (found === null || detail.attempt === null) return;
    rank.max = detail.attempt.ranks.length - 1;
    if (state.rank === null) rank.value = detail.failure?.rank ?? 0;
    state.lines = found;
    draw();
  }

  function draw() {
    const wanted = search.value.toLowerCase();
    const chosen = wanted ? state.lines.filter((line) => line.toLowerCase().includes(wanted)) : state.lines;
    const text = chosen.join("\n") || (wanted ? "No line has this." : "It has not written anything.");
    about.textContent = wanted ? `${count(chosen.length, "line")} of ${state.lines.length}` : `the last ${count(state.lines.length, "line")}`;
    if (lines.textContent !== text) {
      lines.textContent = text;
      if (follow.checked) lines.scrollTop = lines.scrollHeight;
    }
  }

  function download() {
    const url = URL.createObjectURL(new Blob([state.lines.join("\n"), "\n"], { type: "text/plain" }));
    el("a", { href: url, download: `${namespace}-${name}-rank-${rank.value}.log` }).click();
    URL.revokeObjectURL(url);
  }

  return { element, load, show };
}
