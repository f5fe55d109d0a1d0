// One node: its devices, its jobs, and taking it out of use.

import { el, patch } from "../base/elements.js";
import { number } from "../base/format.js";
import { bar, card, facts, heading, namedJob } from "../base/pieces.js";
import { pageLink } from "../base/router.js";
import * as client from "../client.js";
import { isReadOnly } from "../cluster.js";
import { instant } from "../instant.js";
import { nodeActions } from "./node_actions.js";
import { nodeState } from "./nodes.js";

export function makePage({ parameters: { node: name }, act }) {
  const state = el("span"), actions = el("div", { class: "tools" }), body = el("div", { class: "page" });
  const element = el("div", { class: "page" },
    el("p", {}, el("a", { href: pageLink(["nodes"]) }, "Nodes")), heading(name, state, actions), body);

  return {
    element,
    title: name,
    async load(view) {
      const found = await view.node(name);
      const devices = view.isPast ? [] : (await client.getTelemetry().catch(() => ({ devices: [] }))).devices;
      return { ...found, devices: devices.filter((device) => device.node === name) };
    },
    show({ node, devices }) {
      state.replaceChildren(nodeState(node));
      patch(actions, instant() === null && !isReadOnly() ? nodeActions(node, act) : []);
      patch(body, [about(node), jobsOf(node), devicesOf(devices)]);
    },
  };
}

const about = (node) => keyed("about", card("About", facts([
  ["Rack", node.rack], ["GPUs", `${number(node.gpus)}${node.gpu_type ? ` × ${node.gpu_type}` : ""}`],
  ["Memory of a GPU", node.gpu_memory_mib > 0 && `${number(node.gpu_memory_mib / 1024)} GiB`],
  ["In use", [bar(node.gpus, [[node.gpus_used]], "in use"), `${number(node.gpus_used)} of ${number(node.gpus)}, ${number(node.gpus_free)} free`]],
  ["Note", node.message],
  ...Object.entries(node.resources).map(([resource, amount]) => [resource, `${node.resources_free[resource] ?? "0"} free of ${amount}`]),
])));

const jobsOf = (node) => keyed("jobs", card("Jobs here",
  node.jobs.length ? el("ul", {}, node.jobs.map((name) => el("li", {}, namedJob(name)))) : el("p", { class: "dim" }, "No job holds anything here.")));

const devicesOf = (devices) => devices.length > 0 && keyed("devices", card("Devices", el("div", { class: "devices" }, devices.map((device) =>
  el("div", { class: "device" }, el("b", {}, `GPU ${device.device}`),
    el("div", {}, device.job ? namedJob(device.job) : el("span", { class: "dim" }, "free")),
    bar(1, [[device.duty]], `${Math.round(100 * device.duty)}% busy`),
    el("div", { class: "dim" }, `${Math.round(100 * device.duty)}% busy, ${number(Math.round(device.memory_used_mib / 102.4) / 10)} of ${number(Math.round(device.memory_total_mib / 1024))} GiB`),
    el("div", { class: "dim" }, `${Math.round(device.temperature_c)} °C, ${Math.round(device.power_w)} W`)))), { about: "at this moment" }));

function keyed(key, element) {
  element.dataset.key = key;
  return element;
}
