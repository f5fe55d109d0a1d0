// Settings: the policy by which the cluster is scheduled, the server, and this browser.

import { el } from "../base/elements.js";
import { number } from "../base/format.js";
import { card, facts, heading } from "../base/pieces.js";
import { setTheme, theme } from "../base/theme.js";
import * as client from "../client.js";

export function makePage() {
  const policy = el("pre", { tabindex: "0", "aria-label": "Policy" }), server = el("div"), accuracy = el("div");
  const choose = el("select", { id: "theme", onchange: () => setTheme(choose.value) },
    [["auto", "As the system"], ["light", "Light"], ["dark", "Dark"]].map(([value, text]) => el("option", { value, selected: value === theme() }, text)));
  const element = el("div", { class: "page" }, heading("Settings"),
    el("div", { class: "split" },
      card("Server", server), card("This browser", el("p", {}, el("label", { for: "theme" }, "Colours "), choose)),
      card("Forecasts", accuracy, { about: "their error so far" })),
    card("Policy", policy, { about: "how the cluster is scheduled" }),
    el("p", { class: "dim" }, el("a", { href: "/docs" }, "HTTP API"), " · ", el("a", { href: "/metrics" }, "Metrics")));

  return {
    element,
    title: "Settings",
    async load(view) {
      const [{ policy: rules, ...when }, readiness, errors] = await Promise.all([view.policy(), client.getReadiness(), client.getForecastAccuracy()]);
      return { ...when, rules, readiness, errors };
    },
    show({ rules, readiness, errors }) {
      policy.textContent = JSON.stringify(rules, null, 2);
      server.replaceChildren(facts([["Role", readiness.role], ["Leader", readiness.leader], ["Events", number(readiness.position)]]));
      const late = (each) => (each.mean_error_s === null ? "none to compare yet" : `off by ${number(Math.round(each.mean_error_s))} s on average, ${number(each.count)} compared`);
      accuracy.replaceChildren(facts([["Made", number(errors.made)], ["Starts", late(errors.starts)], ["Ends", late(errors.finishes)]]));
    },
  };
}
