// A question before an action. It says what the action does, and where the server can tell, what would
// happen right away: which jobs would start, stop, move or end. Nothing is changed before the answer.

import { openDialog } from "./dialogs.js";
import { el } from "./elements.js";
import { count } from "./format.js";

/** @import * as t from "../types.js" */

const NAMED_MAX = 6;
const PAUSE_MS = 250;
const GROUPS = [["starts", "Would start"], ["stops", "Would stop and wait"], ["moves", "Would start again elsewhere"], ["ends", "Would end"]];

/**
 * Ask before an action.
 * @param {{title: string, action: string, effects?: any[], preview?: () => Promise<t.Preview>, form?: HTMLElement|null,
 *   isDangerous?: boolean}} question  `preview` is asked again whenever `form` changes
 * @returns {Promise<boolean>} whether the person agreed
 */
export function askFirst({ title, action, effects = [], preview = null, form = null, isDangerous = false }) {
  return new Promise((answer) => {
    let agreed = false;
    const button = el("button", {
      type: "button", class: isDangerous ? "danger" : "primary", onclick: () => { agreed = true; dialog.close(); },
    }, action);
    const ahead = el("div", { class: "ahead", role: "status" });
    const known = effects.filter(Boolean);
    const dialog = openDialog({
      title,
      content: [form, known.length > 0 && el("ul", { class: "effects" }, known.map((effect) => el("li", {}, effect))), preview && ahead],
      buttons: [button],
      className: "ask",
    });
    if (preview) keepAhead({ preview, form, ahead, button });
    (form?.querySelector("input, select") ?? button).focus();
    dialog.addEventListener("close", () => answer(agreed));
  });
}

/** Show what would happen, now and after each change of the form. */
function keepAhead({ preview, form, ahead, button }) {
  let asked = 0, due = null;

  async function show() {
    const turn = ++asked;
    ahead.replaceChildren(el("p", { class: "dim" }, "Working out what would happen…"));
    try {
      const found = await preview();
      if (turn !== asked) return;
      ahead.replaceChildren(...describe(found));
      button.disabled = false;
    } catch (error) {
      if (turn !== asked) return;
      // A change that the server would refuse cannot be agreed to.
      button.disabled = error.status !== undefined && error.status < 500;
      ahead.replaceChildren(el("p", { class: "refused" }, error.message));
    }
  }

  form?.addEventListener("input", () => {
    clearTimeout(due);
    due = setTimeout(show, PAUSE_MS);
  });
  show();
}

/** @param {t.Preview} preview */
function describe(preview) {
  const sentences = el("ul", { class: "effects" }, preview.summary.map((sentence) => el("li", {}, sentence)));
  const lists = GROUPS.filter(([key]) => preview[key].length > 0).map(([key, name]) => {
    const jobs = preview[key], rest = jobs.length - NAMED_MAX;
    return el("details", { open: jobs.length <= NAMED_MAX }, el("summary", {}, `${name}: ${count(jobs.length, "job")}`),
      el("ul", { class: "jobs" }, jobs.slice(0, rest > 0 ? NAMED_MAX : jobs.length).map((job) => el("li", {},
        el("b", {}, job.job), ` ${count(job.gpus, "GPU")}`, job.nodes.length > 0 && ` on ${job.nodes.slice(0, 3).join(", ")}${job.nodes.length > 3 ? " …" : ""}`,
        job.message && el("div", { class: "dim" }, job.message))), rest > 0 && el("li", { class: "dim" }, `and ${rest} more`)));
  });
  return [sentences, ...lists];
}

/** Return a form of labelled fields: `[[label, control], ...]`. */
export const fields = (rows) => el("div", { class: "fields" }, rows.map(([label, control]) => el("label", {}, el("span", {}, label), control)));
