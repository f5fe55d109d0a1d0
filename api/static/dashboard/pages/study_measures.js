// The measures of the scenarios of one study or of two: a column for each scenario.

import { el } from "../base/elements.js";
import { number, span } from "../base/format.js";

const SHOWN = ["wait_mean_s", "wait_p50_s", "wait_p90_s", "jct_mean_s", "makespan_s", "occupancy", "productive", "lost", "fragmented", "restarts", "preemptions", "cost"];
const IS_SHARE = new Set(["occupancy", "productive", "lost", "fragmented"]);
const SCENARIOS_MAX = 24;

/** Return the table. The first scenario is the base with which the others are compared. */
export function measuresTable(answers) {
  const columns = answers.flatMap(({ result }) => result.scenarios.slice(0, SCENARIOS_MAX).map((scenario) => ({ scenario })));
  const base = columns[0].scenario, labels = answers[0].result.measures;
  const rows = SHOWN.filter((name) => columns.some(({ scenario }) => scenario.measures[name]?.mean)).map((name) => el("tr", {},
    el("th", { scope: "row" }, labels[name] ?? name),
    columns.map(({ scenario }) => cell(name, scenario.measures[name], scenario === base ? null : base.measures[name]))));
  const heads = [el("tr", {}, el("td"), columns.map(({ scenario }) => el("th", { scope: "col", class: "number" }, scenario.name)))];
  if (answers.length > 1) heads.unshift(el("tr", {}, el("td"), answers.map(({ study, result }) => el("th", { scope: "colgroup", colspan: Math.min(SCENARIOS_MAX, result.scenarios.length) }, study.title))));
  return el("div", { class: "scroll measures", tabindex: "0", role: "region", "aria-label": "Measures" },
    el("table", { "aria-label": "Measures" }, el("thead", {}, heads), el("tbody", {}, rows)));
}

function cell(name, measure, base) {
  if (measure?.mean === null || measure === undefined) return el("td", { class: "number" }, "–");
  const text = textOf(name, measure.mean);
  const interval = measure.low === null ? "" : `${textOf(name, measure.low)} to ${textOf(name, measure.high)}`;
  return el("td", { class: "number", title: interval }, text, interval && el("small", { class: "dim" }, ` ±${textOf(name, (measure.high - measure.low) / 2)}`),
    base?.mean ? el("div", { class: "dim" }, difference(measure.mean, base.mean)) : "");
}

function difference(value, base) {
  const change = (100 * (value - base)) / base;
  return Math.abs(change) < 0.5 ? "the same" : `${change > 0 ? "+" : "−"}${number(Math.round(Math.abs(change)))}%`;
}

const textOf = (name, value) => (name.endsWith("_s") ? span(value) : IS_SHARE.has(name) ? `${number(Math.round(1000 * value) / 10)}%` : number(value));
