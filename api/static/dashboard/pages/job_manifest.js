// The manifest of a job in its own or the native form, and the environment of a rank. They are read when
// a person opens them.

import { el } from "../base/elements.js";
import { card } from "../base/pieces.js";
import * as client from "../client.js";

/** Return the card. */
export function makeManifest({ namespace, name }) {
  const manifest = opened("Manifest", [["own", "as submitted"], ["native", "native form"]], (to) => client.getManifest(namespace, name, { to }));
  const environment = opened("Environment of rank 0", [], () => client.getRank(namespace, name, 0));
  return { element: card("Definition", [manifest, environment]) };
}

function opened(title, forms, read) {
  const text = el("pre", { tabindex: "0", class: "log", "aria-label": title });
  const form = el("select", { "aria-label": "Form", onchange: load }, forms.map(([value, about]) => el("option", { value }, about)));
  const copy = el("button", { type: "button", onclick: () => navigator.clipboard?.writeText(text.textContent) }, "Copy");

  async function load() {
    text.textContent = "reading…";
    try {
      text.textContent = JSON.stringify(await read(form.value), null, 2);
    } catch (error) {
      text.textContent = error.message;
    }
  }

  const details = el("details", { ontoggle: () => { if (details.open && !text.textContent) load(); } },
    el("summary", {}, title), el("div", { class: "tools" }, forms.length > 0 && form, copy), text);
  return details;
}
