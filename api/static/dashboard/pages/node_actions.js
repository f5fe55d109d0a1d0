// What can be done with a node. Each action shows first what it would do.

import { askFirst, fields } from "../base/ask.js";
import { el } from "../base/elements.js";
import * as client from "../client.js";
import { clusterView } from "../cluster.js";

/** @import * as t from "../types.js" */

const ACTIONS = [
  { key: "uncordon", name: "Uncordon", isFor: (node) => node.cordoned, change: client.uncordonNode },
  { key: "cordon", name: "Cordon", isFor: (node) => !node.cordoned, change: client.cordonNode, effects: ["What runs here goes on."] },
  { key: "drain", name: "Drain", isFor: (node) => node.ready, change: client.drainNode, isDangerous: true },
  { key: "forget", name: "Forget", isFor: (node) => !node.ready, change: client.forgetNode, isDangerous: true, effects: ["The node is given up as gone for good."] },
];
const FAULTS = {
  crash: "It crashes", spot_reclaim: "The provider takes it back", maintenance: "Maintenance", slow: "Its devices are slow", link: "Its network is slow", storage: "Its storage is slow",
};

/** Return the buttons for a node. @param {t.NodeView} node */
export function nodeActions(node, act) {
  const buttons = ACTIONS.filter((action) => action.isFor(node)).map(({ key, name, change, effects, isDangerous }) => el("button", {
    type: "button", "data-key": key, class: isDangerous ? "danger" : null,
    onclick: async () => {
      const agreed = await askFirst({ title: `${name} ${node.name}?`, action: name, effects, isDangerous, preview: () => change(node.name, client.DRY_RUN) });
      if (agreed) await act(() => change(node.name));
    },
  }, name));
  if (clusterView()?.kind === "simulated") buttons.push(faultButton(node, act));
  return buttons;
}

function faultButton(node, act) {
  return el("button", {
    type: "button", "data-key": "fault", class: "danger",
    onclick: async () => {
      const kind = el("select", {}, Object.entries(FAULTS).map(([value, text]) => el("option", { value }, text)));
      const minutes = el("input", { type: "number", min: "1", value: "10" });
      const agreed = await askFirst({
        title: `Make ${node.name} fail?`, action: "Make it fail", isDangerous: true, form: fields([["What happens", kind], ["Repaired after minutes", minutes]]),
        effects: ["This cluster is simulated: nothing real breaks. The fault is recorded as an event."],
      });
      if (agreed) await act(() => client.failNode(node.name, { kind: kind.value, duration_s: Math.max(1, Number(minutes.value)) * 60 }));
    },
  }, "Make it fail");
}
