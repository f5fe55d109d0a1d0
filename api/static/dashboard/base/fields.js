// Fields of forms: a label with its input, and a form that shows why it was refused.

import { el, setShown, setText } from "./elements.js";

let made = 0;

/** Return an input with its label above it, and an optional explanation below. */
export function field(label, input, about = "") {
  input.id ||= `field-${++made}`;
  const note = about && el("small", { id: `${input.id}-about`, class: "dim" }, about);
  if (note) input.setAttribute("aria-describedby", note.id);
  return el("div", { class: "field" }, el("label", { for: input.id }, label), input, note);
}

/** Return a select of [value, text] pairs. */
export const choose = (name, pairs, attributes = {}) =>
  el("select", { name, ...attributes }, pairs.map(([value, text]) => el("option", { value }, text)));

/** Return a form; `onSend()` sends it, and what it throws is shown under the fields. */
export function makeForm({ content, action, onSend, className = "" }) {
  const problem = el("p", { class: "problem", role: "alert", hidden: true });
  const button = el("button", { class: "primary" }, action);
  const element = el("form", { class: className, onsubmit: send }, content, el("div", { class: "tools" }, el("span", { class: "grow" }), button), problem);

  async function send(event) {
    event.preventDefault();
    setShown(problem, false);
    button.disabled = true;
    try {
      await onSend();
    } catch (error) {
      setText(problem, error.message);
      setShown(problem, true);
    }
    button.disabled = false;
  }

  return element;
}
