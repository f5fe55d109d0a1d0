// The page for an address that leads nowhere. It offers no actions on anything.

import { el } from "../base/elements.js";
import { pageLink } from "../base/router.js";
import { lookAtNow } from "../instant.js";

export function missingPage({ title, message, isPast }) {
  return el("div", { class: "page missing" },
    el("h1", {}, title),
    el("p", {}, message),
    isPast && el("p", {}, "This is the past: it may not have been there yet. ",
      el("button", { type: "button", onclick: lookAtNow }, "Look at the present")),
    el("p", {}, "See ", el("a", { href: pageLink([]) }, "the overview"), " or ", el("a", { href: pageLink(["jobs"]) }, "all jobs"),
      ", or press ", el("kbd", {}, "/"), " to search."));
}
