// The form of a what-if: which workload, on which clusters, under which policies, how often.

import { el, setShown } from "../base/elements.js";
import { number } from "../base/format.js";
import { choose, field, makeForm } from "../base/fields.js";
import { address } from "../base/router.js";
import * as client from "../client.js";

const WORKLOADS = [
  ["log", "The jobs of this cluster"], ["trace", "A trace file"], ["synthetic", "A synthetic load like this cluster's"],
];
const DAYS = [["1", "the last day"], ["7", "the last week"], ["30", "the last 30 days"], ["", "the whole log"]];

/** Return the form; `onAsked(study)` is called when the server has taken the question. */
export function makeStudyForm({ onAsked }) {
  const query = address().query;
  const workload = choose("workload", WORKLOADS);
  const days = choose("days", DAYS);
  days.value = query.get("days") ?? "7";
  const file = el("input", { type: "file", accept: ".csv,.txt,text/csv" });
  const length = el("input", { type: "number", min: 0.1, max: 3650, step: "any", value: 7 });
  const load = el("input", { value: query.get("load") ?? "1", inputmode: "decimal" });
  const sizes = el("input", { value: query.get("add") === null ? "0, 2" : `0, ${query.get("add")}`, inputmode: "numeric" });
  const nodes = el("input", { placeholder: "64x8:H100, 96x8" });
  const faults = choose("faults", []), packing = choose("packing", []);
  const replications = el("input", { type: "number", min: 1, max: 1000, value: 1 });
  const policies = el("div", { class: "checks" });
  const about = el("p", { class: "dim" });
  const parts = {
    days: field("Jobs of", days), file: field("Trace", file, "CSV with the columns id, submit, gpus, duration; at most 1 MiB"),
    length: field("Days to draw", length),
  };
  const element = makeForm({
    className: "study-form", action: "Run the study", onSend: send,
    content: [
      el("fieldset", {}, el("legend", {}, "Workload"), el("div", { class: "fields" },
        field("From", workload), Object.values(parts), field("Load factors", load, "1 is the load as it was; 1, 1.2 compares"))),
      el("fieldset", {}, el("legend", {}, "Clusters"), about, el("div", { class: "fields" },
        field("This cluster with more nodes", sizes, "0 is the cluster as it is"), field("Other clusters", nodes, "NODESxGPUS, separated by commas"), field("Faults of nodes", faults))),
      el("fieldset", {}, el("legend", {}, "Policies"), policies, el("div", { class: "fields" },
        field("Packing", packing), field("Replications", replications, "with more than 1 there are confidence intervals"))),
    ],
  });
  workload.addEventListener("change", showParts);
  showParts();

  function showParts() {
    setShown(parts.days, workload.value !== "trace");
    setShown(parts.file, workload.value === "trace");
    setShown(parts.length, workload.value === "synthetic");
  }

  async function send() {
    const wanted = {
      policies: [...policies.querySelectorAll("input:checked")].map((input) => input.value + (packing.value && `+${packing.value}`)),
      loads: numbers(load.value, "Load factors"), add_nodes: numbers(sizes.value, "More nodes"),
      nodes: parted(nodes.value), faults: [faults.value || "none"], replications: Number(replications.value),
    };
    if (!wanted.policies.length) throw new Error("Choose at least one policy.");
    if (workload.value === "trace") {
      if (!file.files.length) throw new Error("Choose a trace file.");
      wanted.trace_csv = await file.files[0].text();
    } else if (days.value) wanted.last_days = Number(days.value);
    if (workload.value === "synthetic") wanted.synthetic_days = Number(length.value);
    onAsked(await client.askWhatIf(wanted));
  }

  return {
    element,
    /** Show what may be chosen. @param {import("../types.js").StudyChoices} choices */
    show(choices) {
      about.textContent = `This cluster has ${number(choices.nodes)} nodes with ${number(choices.gpus)} GPUs.`;
      if (policies.children.length) return;
      policies.append(...choices.disciplines.map(({ name, description }, i) => el("label", { title: description },
        el("input", { type: "checkbox", value: name, checked: i === 0 }), ` ${name}`)));
      packing.append(el("option", { value: "" }, "as the policy has it"), ...choices.packings.map(({ name, description }) => el("option", { value: name, title: description }, name)));
      faults.append(...choices.faults.map((name) => el("option", { value: name }, name)));
    },
  };
}

const parted = (text) => text.split(/[\s,]+/).filter(Boolean);

function numbers(text, name) {
  const values = parted(text).map(Number);
  if (values.some((value) => !Number.isFinite(value))) throw new Error(`${name}: “${text}” is no list of numbers.`);
  return values;
}
