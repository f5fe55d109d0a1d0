// Studies: ask what another cluster, policy or load would do, follow the progress, and compare results.

import { el, setShown } from "../base/elements.js";
import { number, span } from "../base/format.js";
import { bar, card, heading } from "../base/pieces.js";
import { go, link } from "../base/router.js";
import { makeTable } from "../base/table.js";
import * as client from "../client.js";
import { makeStudyForm } from "./study_form.js";

const POLL_MS = 700;
const IS_UNDER_WAY = ["waiting", "running"];

export function makePage(context) {
  const chosen = new Set();
  const form = makeStudyForm({ onAsked: (study) => go(link(["studies", study.id])) });
  const compare = el("button", { type: "button", disabled: true, onclick: () => go(link(["studies", [...chosen][0]], { with: [...chosen][1] })) }, "Compare the two");
  const table = makeTable({
    label: "Studies", keyOf: (study) => study.id, columns: columns(context.act, chosen, showChoice),
    empty: "No study yet. The form above starts one.",
  });
  const element = el("div", { class: "page" }, heading("Studies"),
    card("What if?", form.element, { about: "the control plane and its scheduler run in virtual time on your workload" }),
    card("Studies of this server", table.element, { isFlush: true, tools: compare }));
  let poll = null;

  function showChoice() {
    compare.disabled = chosen.size !== 2;
  }

  return {
    element,
    title: "Studies",
    async load(view) {
      const [{ studies }, choices] = await Promise.all([client.listStudies(), client.getStudyChoices(), view]);
      return { studies: studies.filter(({ kind }) => kind === "whatif").reverse(), choices };
    },
    show({ studies, choices }) {
      form.show(choices);
      for (const id of chosen) if (!studies.some((study) => study.id === id)) chosen.delete(id);
      table.show(studies, {});
      setShown(compare, studies.filter(({ state }) => state === "done").length > 1);
      showChoice();
      clearTimeout(poll);
      if (studies.some(({ state }) => IS_UNDER_WAY.includes(state))) poll = setTimeout(context.redraw, POLL_MS);
    },
    close: () => clearTimeout(poll),
  };
}

const columns = (act, chosen, onChoice) => [
  {
    key: "choose", name: "", cell: (study) => (study.state === "done" ? el("input", {
      type: "checkbox", "aria-label": `Compare ${study.title}`, checked: chosen.has(study.id),
      onchange: (event) => { chosen[event.target.checked ? "add" : "delete"](study.id); onChoice(); },
    }) : ""),
  },
  { key: "title", name: "Question", style: "name", cell: (study) => el("a", { href: link(["studies", study.id]) }, study.title || study.id.slice(0, 8)) },
  { key: "state", name: "State", cell: (study) => study.state },
  { key: "progress", name: "Progress", cell: (study) => bar(study.total, [[study.done]], `${study.done} of ${study.total} runs`) },
  { key: "runs", name: "Runs", style: "number wide", cell: (study) => `${number(study.done)}/${number(study.total)}` },
  { key: "left", name: "Left", style: "number wide", cell: (study) => (study.seconds_left === null ? "–" : span(study.seconds_left)) },
  { key: "problem", name: "", style: "note wide", cell: (study) => study.problem },
  {
    key: "act", name: "", cell: (study) => IS_UNDER_WAY.includes(study.state)
      && el("button", { type: "button", onclick: () => act(() => client.cancelStudy(study.id)) }, "Cancel"),
  },
];
