// Forks: the past continued otherwise. The form asks what to change at which instant; below are the
// forks that this server has run.

import { el } from "../base/elements.js";
import { number, stamp } from "../base/format.js";
import { bar, card, heading } from "../base/pieces.js";
import { go, link, pageLink } from "../base/router.js";
import { makeTable } from "../base/table.js";
import * as client from "../client.js";
import { makeForkForm } from "./fork_form.js";

const POLL_MS = 700;

export function makePage(context) {
  const form = makeForkForm({ onRun: run });
  const table = makeTable({ label: "Forks", keyOf: (study) => study.id, columns: columns(context), empty: "No fork was run yet." });
  const element = el("div", { class: "page" }, heading("Fork"),
    card("What if, from this instant on?", form.element, { about: "the recorded past is continued in the simulator, with and without your change" }),
    card("Forks that were run", table.element, { isFlush: true }));
  let poll = null;

  async function run(wanted) {
    const study = await client.startFork(wanted);
    go(pageLink(["forks", study.id]));
  }

  return {
    element,
    title: "Fork",
    async load(view) {
      const [{ studies }, known] = await Promise.all([client.listStudies(), form.load(view)]);
      return { at: known.at, position: known.position, known, forks: studies.filter(({ kind }) => kind === "fork").reverse() };
    },
    show(data) {
      form.show(data.known);
      table.show(data.forks, data);
      clearTimeout(poll);
      if (data.forks.some(({ state }) => ["waiting", "running"].includes(state))) poll = setTimeout(context.redraw, POLL_MS);
    },
    close: () => clearTimeout(poll),
  };
}

const columns = ({ act }) => [
  { key: "title", name: "Change", style: "name", cell: (fork) => el("a", { href: link(["forks", fork.id]) }, fork.title) },
  { key: "at", name: "From", style: "when", cell: (fork) => (fork.at === null ? "" : stamp(fork.at)) },
  { key: "state", name: "State", cell: (fork) => fork.problem || fork.state },
  { key: "progress", name: "Progress", style: "wide", cell: (fork) => bar(fork.total, [[fork.done]], `${number(fork.done)} of ${number(fork.total)} steps`) },
  {
    key: "act", name: "", cell: (fork) => (["waiting", "running"].includes(fork.state)
      ? el("button", { type: "button", onclick: () => act(() => client.cancelStudy(fork.id)) }, "Cancel") : ""),
  },
];
