// What people wrote about instants, and the form to write about the one that is looked at.

import { el, patch, setText } from "../base/elements.js";
import { field, makeForm } from "../base/fields.js";
import { stamp } from "../base/format.js";
import { card } from "../base/pieces.js";
import * as client from "../client.js";
import { lookAt } from "../instant.js";

export function makeAnnotations(context) {
  const list = el("ul", { class: "notes" }), kept = el("p", { class: "dim" });
  const text = el("textarea", { required: true, maxlength: 10000 }), about = el("input", { autocomplete: "off", maxlength: 320, placeholder: "namespace/name or a node" });
  const when = el("span", {});
  const state = { at: null };
  const form = makeForm({
    className: "note-form", action: "Annotate",
    content: [field("What you know about this instant", text), field("About (optional)", about), el("p", { class: "dim" }, "at ", when)],
    async onSend() {
      await client.addAnnotation({ at: state.at, text: text.value, about: about.value.trim() });
      text.value = "";
      about.value = "";
      context.redraw();
    },
  });

  return {
    element: card("Annotations", [list, form, kept]),
    load: client.listAnnotations,
    show({ annotations, kept_in: place }, at) {
      state.at = at;
      setText(when, stamp(at));
      setText(kept, place ? `They are kept in ${place}, beside the log and not in it.` : "They are kept until this server ends: its log is no file.");
      patch(list, annotations.map((each) => el("li", { "data-key": each.id },
        el("div", { class: "dim" }, el("button", { type: "button", class: "link", onclick: () => lookAt(each.at) }, stamp(each.at)), each.about && ` · ${each.about}`, ` · ${each.author} `,
          el("button", { type: "button", class: "link", "aria-label": `Remove the annotation of ${stamp(each.at)}`, onclick: () => context.act(() => client.removeAnnotation(each.id)) }, "Remove")),
        el("div", { class: "text" }, each.text))));
    },
  };
}
