// Dialogs: content in an overlay, and the question for the token.

import { el } from "./elements.js";

/**
 * Open a dialog. Escape and the close button close it; it is then removed.
 * @returns {HTMLDialogElement}
 */
export function openDialog({ title, content, buttons = [], className = "" }) {
  const dialog = el("dialog", { class: className, "aria-label": title });
  const close = el("button", { type: "button", onclick: () => dialog.close() }, buttons.length ? "Back" : "Close");
  dialog.append(el("h2", {}, title), ...[content].flat().filter(Boolean), el("div", { class: "buttons" }, close, buttons));
  dialog.addEventListener("close", () => dialog.remove());
  // A click on the backdrop has the dialog itself as its target.
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/**
 * Ask for the token of this server.
 * @returns {Promise<string>} empty if the person gave none
 */
export function askToken() {
  return new Promise((answer) => {
    const input = el("input", { id: "token", type: "password", autocomplete: "off", required: true });
    const form = el("form", { method: "dialog" },
      el("p", {}, "This server answers other machines too, so it needs a token. ", el("code", {}, "muster up"), " prints where the token is kept."),
      el("label", { for: "token" }, "Token"), input, el("button", { class: "primary" }, "Continue"));
    const dialog = el("dialog", { id: "ask-token", "aria-label": "Token" }, el("h2", {}, "A token is needed"), form);
    dialog.addEventListener("close", () => {
      dialog.remove();
      answer(input.value.trim());
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
