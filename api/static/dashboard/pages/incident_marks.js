// The failures and changes of a span in order. A click looks at the state right after the event; the
// event that is looked at is marked.

import { el, patch } from "../base/elements.js";
import { clockTime, iso, number } from "../base/format.js";
import { link } from "../base/router.js";
import * as client from "../client.js";
import { lookAtEvent } from "../instant.js";
import { MARK_NAMES } from "../time/marks.js";

const NAMED_MAX = 200;
const SHOWN_MAX = 100;

export function makeMarkList() {
  const list = el("ol", { class: "steps" }), more = el("p", { class: "dim" });
  return {
    element: el("div", { class: "stepper", tabindex: "0", role: "region", "aria-label": "Failures and changes in order" }, list, more),
    load: (span) => client.getMarks({ ...span, bins: 1, limit: NAMED_MAX }),
    show({ items, total }, position) {
      const shown = items.slice(-SHOWN_MAX);
      patch(list, shown.map((mark) => el("li", { "data-key": mark.position, "aria-current": mark.position === position ? "step" : null },
        el("button", { type: "button", class: "link", onclick: () => lookAtEvent(mark.position) }, clockTime(mark.at, shown.at(-1).at)),
        el("span", { class: `badge mark-${mark.kind}` }, MARK_NAMES[mark.kind] ?? mark.kind),
        el("span", { class: "text" }, [mark.job || mark.node, mark.message].filter(Boolean).join(": "), mark.kind === "node_lost" && mark.node && forkLink(mark)))));
      more.textContent = total > shown.length ? `The last ${number(shown.length)} of ${number(total)}; a shorter span shows the others.` : total ? "" : "Nothing failed, and nothing was changed.";
    },
  };
}

// A second before the fault, so that the fork can leave it out.
const forkLink = (mark) => [" ", el("a", { href: link(["forks"], { at: iso(mark.at - 1), without_fault: mark.node }) }, "What if it had not failed?")];
