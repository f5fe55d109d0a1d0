// One study: progress, then its findings in the server's sentences and its measures; with another study
// in the address (`with=ID`), both side by side.

import { el, patch, setShown } from "../base/elements.js";
import { number } from "../base/format.js";
import { bar, card } from "../base/pieces.js";
import { link } from "../base/router.js";
import * as client from "../client.js";
import { measuresTable } from "./study_measures.js";

const POLL_MS = 500;

export function makePage(context) {
  const { id } = context.parameters;
  const title = el("h1", {}, "Study"), progress = el("div", { role: "status" }), body = el("div", { class: "page", hidden: true });
  const report = el("div", { class: "tools" });
  const element = el("div", { class: "page" },
    el("div", { class: "heading" }, title, el("span", { class: "grow" }), report, el("a", { href: link(["studies"]) }, "All studies")), progress, body);
  const state = { poll: null, kept: new Map() };

  /** Read a study; what it found is read once, since it does not change. */
  async function read(study) {
    if (study.state !== "done") return null;
    if (!state.kept.has(study.id)) {
      const [result, { sentences }] = await Promise.all([client.getStudyResult(study.id), client.getFindings(study.id)]);
      state.kept.set(study.id, { study, result, sentences });
    }
    return state.kept.get(study.id);
  }

  return {
    element,
    title: "Study",
    async load() {
      const other = context.address.query.get("with");
      const studies = await Promise.all([id, other].filter(Boolean).map(client.getStudy));
      return { studies, answers: await Promise.all(studies.map(read)) };
    },
    show({ studies, answers }) {
      const [study] = studies;
      title.textContent = study.title;
      clearTimeout(state.poll);
      if (studies.some(({ state: now }) => ["waiting", "running"].includes(now))) state.poll = setTimeout(context.redraw, POLL_MS);
      patch(progress, studies.filter((each) => each.state !== "done").map((each) => progressOf(each, context)));
      const done = answers.filter(Boolean);
      if (!done.length || body.dataset.shown === done.map((each) => each.study.id).join()) return;
      body.dataset.shown = done.map((each) => each.study.id).join();
      setShown(body, true);
      if (studies.length === 1) report.replaceChildren(reportLink(id));
      body.replaceChildren(
        el("div", { class: done.length > 1 ? "split" : "page" }, done.map(({ study: each, sentences }) =>
          card(done.length > 1 ? each.title : "Findings", el("ul", { class: "sentences" }, sentences.map((text) => el("li", {}, text))), { className: "why" }))),
        card("Measures", measuresTable(done), { isFlush: true, about: done.some(({ result }) => result.replications > 1) ? "means, with their 95% intervals where there are several runs" : "of one run each" }));
    },
    close: () => clearTimeout(state.poll),
  };
}

function progressOf(study, { act }) {
  const isOver = ["failed", "cancelled"].includes(study.state);
  const text = isOver ? `It ${study.state === "failed" ? "failed" : "was cancelled"}${study.problem ? `: ${study.problem}` : "."}` : `${study.state}: ${number(study.done)} of ${number(study.total)} runs`;
  return el("section", { class: "card", "data-key": study.id }, el("p", {}, text),
    !isOver && [bar(study.total || 1, [[study.done]], `${study.done} of ${study.total} runs`),
      el("p", {}, el("button", { type: "button", onclick: () => act(() => client.cancelStudy(study.id)) }, "Cancel"))]);
}

// A link cannot carry a token, so where one is needed the report is read here and saved.
const reportLink = (id) => (client.hasToken()
  ? el("button", { type: "button", onclick: async () => save(await client.getReport(id), `study-${id.slice(0, 8)}.html`) }, "Save the report")
  : el("a", { href: `v1/studies/${encodeURIComponent(id)}/report`, target: "_blank", rel: "noopener" }, "Open the report"));

function save(text, name) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/html" }));
  el("a", { href: url, download: name }).click();
  URL.revokeObjectURL(url);
}
