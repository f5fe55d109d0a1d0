// One fork: its progress, and then both futures on one time axis, what differs in the server's
// sentences, and the control run as its honesty check.

import { el, patch, setShown } from "../base/elements.js";
import { number, stamp } from "../base/format.js";
import { bar, card, heading } from "../base/pieces.js";
import { link } from "../base/router.js";
import * as client from "../client.js";
import { makeFutures } from "./fork_futures.js";
import { jobsApart, totalsTable } from "./fork_tables.js";

const POLL_MS = 400;

export function makePage(context) {
  const { id } = context.parameters;
  const title = el("h1", {}, "Fork"), about = el("p", { class: "dim" });
  const progress = el("div", { role: "status" }), body = el("div", { class: "page", hidden: true });
  const sentences = el("ul", { class: "sentences" }), trust = el("p");
  const badge = el("span", { class: "badge" });
  const futures = makeFutures();
  const totals = el("div"), jobs = el("div");
  body.append(
    card("What differs", sentences, { className: "why" }),
    card("How far to trust it", [trust, el("p", { class: "dim" }, "The control run continues the same past without the change. The closer it is to what really happened, the better the model.")], { tools: badge }),
    futures.element,
    card("Totals", totals, { isFlush: true }), card("Jobs whose story differs", jobs, { isFlush: true }));
  const element = el("div", { class: "page" }, el("div", { class: "heading" }, title, el("span", { class: "grow" }),
    el("a", { href: link(["forks"]) }, "All forks")), about, progress, body);
  const state = { poll: null, result: null };

  return {
    element,
    title: "Fork",
    async load() {
      const study = await client.getStudy(id);
      if (study.state === "done") state.result ??= await client.getForkResult(id);
      return { study, result: state.result };
    },
    show({ study, result }) {
      title.textContent = study.title;
      clearTimeout(state.poll);
      if (["waiting", "running"].includes(study.state)) state.poll = setTimeout(context.redraw, POLL_MS);
      patch(progress, result ? [] : [progressOf(study, context)]);
      if (!result || !body.hidden) return;
      const { forked } = result, [first, ...rest] = result.sentences;
      about.textContent = `Forked at ${stamp(forked.at)}, run until ${stamp(forked.until)}.`;
      setShown(body, true);
      trust.textContent = first;
      badge.classList.add(result.is_exact ? "good" : "warn");
      badge.textContent = result.is_exact ? "exact" : "close, not exact";
      patch(sentences, rest.map((text, i) => el("li", { "data-key": i }, text)));
      totals.replaceChildren(totalsTable(forked.comparison));
      jobs.replaceChildren(jobsApart(forked.comparison.jobs, forked));
      futures.show(result);
    },
    close: () => clearTimeout(state.poll),
  };
}

function progressOf(study, { act }) {
  const isOver = ["failed", "cancelled"].includes(study.state);
  return el("section", { class: "card", "data-key": `${study.state} ${study.done}` },
    el("p", {}, isOver ? `It ${study.state === "failed" ? "failed" : "was cancelled"}${study.problem ? `: ${study.problem}` : "."}` : `${study.state}: ${number(study.done)} of ${number(study.total)} steps`),
    !isOver && [bar(study.total || 1, [[study.done]], `${study.done} of ${study.total} steps`),
      el("p", {}, el("button", { type: "button", onclick: () => act(() => client.cancelStudy(study.id)) }, "Cancel"))]);
}
