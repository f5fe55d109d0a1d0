// Rows of a Gantt chart from the columns of the server's timeline: a row per node with the devices below
// each other, or a row per job with its waits, attempts and forecast.

/** @import * as t from "../types.js" */

/**
 * A bar in seconds UTC. `top` and `height` are pixels inside its row; `kind` is run, wait, plan or outage.
 * @typedef {{kind: string, from: number, to: number, running: number|null, isOpen: boolean, top: number, height: number,
 *   job: t.TimelineJob|null, attempt: number, gpus: number, end: string, late?: number|null}} Bar
 * @typedef {{label: string, group: string, y: number, height: number, bars: Bar[]}} Row
 */

const GAP = 3;

/** Return the rows and their height together. @returns {{rows: Row[], height: number}} */
export function rowsOf(timeline, outlook, lanes) {
  const rows = lanes === "jobs" ? jobRows(timeline, outlook) : nodeRows(timeline, outlook);
  let y = 0;
  for (const row of rows) {
    row.y = y;
    y += row.height + GAP;
  }
  return { rows, height: y };
}

const absolute = (timeline, seconds) => timeline.origin + seconds;

/** Return the fields that all bars of the server have in common. */
function barAt(timeline, i) {
  const { bars, jobs, ends, origin, now } = timeline, to = bars.to[i];
  return {
    kind: "run", from: origin + bars.from[i], to: to === null ? now : origin + to, isOpen: to === null,
    running: bars.running[i] === null ? null : origin + bars.running[i],
    job: jobs[bars.job[i]], attempt: bars.attempt[i], gpus: bars.gpus[i], end: to === null ? "" : ends[bars.how[i]] ?? "",
  };
}

// ---------------------------------------------------------------- nodes

function nodeRows(timeline, outlook) {
  const { nodes, bars, outages, now } = timeline;
  const pixel = nodes.length <= 40 ? 3 : nodes.length <= 250 ? 2 : 1;
  const rows = nodes.map((node) => ({ label: node.name, group: node.rack, y: 0, height: Math.max(6, node.gpus * pixel), bars: [] }));
  outages.node.forEach((node, i) => {
    const to = outages.to[i];
    rows[node]?.bars.push({
      kind: "outage", from: absolute(timeline, outages.from[i]), to: to === null ? now : absolute(timeline, to), isOpen: to === null,
      running: null, top: 0, height: rows[node].height, job: null, attempt: 0, gpus: 0, end: outages.cordoned[i] ? "cordoned" : "down",
    });
  });
  const ends = new Map((outlook?.jobs ?? []).map((each) => [each.job, each.end]));
  bars.job.forEach((_, i) => {
    const row = rows[bars.node[i]];
    if (!row) return;
    const bar = barAt(timeline, i), end = bar.isOpen ? ends.get(bar.job.name) : null;
    for (const [first, count] of runs(bars.devices[i], bars.gpus[i])) {
      const place = { top: first * pixel, height: count * pixel };
      row.bars.push({ ...bar, ...place });
      if (end?.p50 > now) row.bars.push({ ...bar, ...place, kind: "plan", from: now, to: end.p50, late: end.p90, isOpen: false, end: "" });
    }
  });
  return rows;
}

/** Return the runs of devices in a set of bits, as [first, count]; without bits, the first ones. */
function runs(bits, gpus) {
  if (!bits) return [[0, Math.max(1, gpus)]];
  const found = [];
  for (let device = 0, rest = bits; rest > 0; device++, rest = Math.floor(rest / 2)) {
    if (rest % 2 === 0) continue;
    const last = found.at(-1);
    if (last && last[0] + last[1] === device) last[1] += 1;
    else found.push([device, 1]);
  }
  return found;
}

// ---------------------------------------------------------------- jobs

function jobRows(timeline, outlook) {
  const { jobs, bars, waits, now } = timeline;
  const height = jobs.length <= 60 ? 18 : jobs.length <= 400 ? 12 : 7;
  const place = { top: 0, height };
  const rows = jobs.map((job) => ({ label: job.name, group: job.queue, y: 0, height, bars: [] }));
  waits.job.forEach((job, i) => {
    const to = waits.to[i];
    rows[job].bars.push({
      kind: "wait", from: absolute(timeline, waits.from[i]), to: to === null ? now : absolute(timeline, to), isOpen: to === null,
      running: null, ...place, job: jobs[job], attempt: 0, gpus: jobs[job].gpus, end: waits.unschedulable[i] ? "unschedulable" : "",
    });
  });
  bars.job.forEach((job, i) => rows[job].bars.push({ ...barAt(timeline, i), ...place }));
  const expected = new Map((outlook?.jobs ?? []).map((each) => [each.job, each]));
  rows.forEach((row, i) => {
    const plan = planOf(expected.get(row.label), row.bars.at(-1), now);
    if (plan) row.bars.push({ ...plan, ...place, job: jobs[i], gpus: jobs[i].gpus });
  });
  const begin = (row) => Math.min(...row.bars.map((bar) => bar.from));
  return rows.filter((row) => row.bars.length).sort((a, b) => begin(a) - begin(b));
}

function planOf(expected, last, now) {
  if (!expected?.end?.p50) return null;
  const from = last?.kind === "run" && last.isOpen ? now : expected.start?.p50 ?? null;
  if (from === null || expected.end.p50 <= from) return null;
  return { kind: "plan", from, to: expected.end.p50, late: expected.end.p90, running: null, isOpen: false, attempt: 0, end: "" };
}
