// The numbers of a fork: totals of both branches, and the jobs whose story differs.

import { el } from "../base/elements.js";
import { clockTime, number, span } from "../base/format.js";
import { namedJob } from "../base/pieces.js";

const TOTALS = [
  ["started", "Jobs started", number], ["succeeded", "Succeeded", number], ["failed", "Failed", number], ["restarts", "Restarts", number],
  ["preemptions", "Preemptions", number], ["wait_s_mean", "Mean wait", span], ["gpu_hours", "GPU-hours used", hours], ["gpu_hours_lost", "GPU-hours lost", hours],
];
const JOBS_MAX = 100;

/** Return the totals of the control and of the branch with the change. */
export function totalsTable({ one, other }) {
  const rows = TOTALS.map(([key, name, text]) => {
    const [before, after] = [one[key], other[key]];
    const isSame = before === null || after === null || text(before) === text(after);
    return el("tr", {}, el("th", { scope: "row" }, name), cell(before, text), cell(after, text),
      el("td", { class: "number" }, isSame ? "" : `${after > before ? "+" : "−"}${text(Math.abs(after - before))}`));
  });
  return table("Totals", ["", "Control", "With the change", "Difference"], rows);
}

/** Return the jobs whose story differs, the most important first. */
export function jobsApart(jobs, { at }) {
  if (!jobs.length) return el("p", { class: "empty" }, "No job has another story.");
  const rows = jobs.slice(0, JOBS_MAX).map((job) => el("tr", {},
    el("td", { class: "name" }, namedJob(job.job)), pair(job.started_at, at), pair(job.finished_at, at),
    el("td", {}, both(job.outcome.map((text) => text || "goes on"))), el("td", { class: "number" }, both(job.restarts.map(number)))));
  return table("Jobs whose story differs", ["Job", "Starts", "Ends", "Outcome", "Restarts"], rows);
}

const table = (label, heads, rows) => el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, el("table", { "aria-label": label },
  el("thead", {}, el("tr", {}, heads.map((text, i) => (text ? el("th", { scope: "col", class: i && label === "Totals" ? "number" : "" }, text) : el("td"))))), el("tbody", {}, rows)));

function hours(value) {
  return value.toLocaleString("en", { maximumFractionDigits: 1 });
}

const cell = (value, text) => el("td", { class: "number" }, value === null ? "–" : text(value));
const pair = (times, now) => el("td", { class: "when" }, both(times.map((time) => (time === null ? "–" : clockTime(time, now)))));
const both = ([one, other]) => (one === other ? one : el("span", {}, el("s", {}, one), " ", el("b", {}, other)));
