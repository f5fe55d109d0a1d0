// The forecast of the near future: when jobs are likely to start and end, and how busy the cluster will
// be. It is large and changes slowly, so one answer is kept and shared by all that show it; a page is
// drawn with the last one and again when a newer one has come.

import { getOutlook } from "./client.js";

/** @import * as t from "./types.js" */

const FRESH_MS = 20_000;

/** @type {{outlook: t.Outlook|null, jobs: Map<string, t.JobOutlook>, askedAt: number, isAsking: boolean}} */
const kept = { outlook: null, jobs: new Map(), askedAt: -Infinity, isAsking: false };
const listeners = new Set();

/** Call `listener` when another forecast has come. */
export const onOutlook = (listener) => listeners.add(listener);

/** Return the last forecast, null before the first has come; ask for a newer one if it is old. */
export function latestOutlook() {
  if (!kept.isAsking && performance.now() - kept.askedAt > FRESH_MS) ask();
  return kept.outlook;
}

/** Return the last forecast by NAMESPACE/NAME of the job. @returns {Map<string, t.JobOutlook>} */
export function expectedJobs() {
  latestOutlook();
  return kept.jobs;
}

async function ask() {
  kept.isAsking = true;
  try {
    kept.outlook = await getOutlook();
    kept.jobs = new Map(kept.outlook.jobs.map((each) => [each.job, each]));
    for (const listener of listeners) listener();
  } catch {
    // A busy server may refuse a forecast; it is asked again later.
  }
  kept.askedAt = performance.now();
  kept.isAsking = false;
}
