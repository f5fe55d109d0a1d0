// What was at an instant. Pages read all that they show through `view(instant)`, so that the past and
// the present are the same code: the routes take `at` or `position`, and without them they answer about
// the present.

import * as client from "./client.js";
import { isReadOnly } from "./cluster.js";
import { expectedJobs, latestOutlook } from "./outlook.js";

/** @import * as t from "./types.js" */

const GROUP_MAX = 250;
const BARS_MAX = 50_000;
// The length of the span that stands for an instant.
const INSTANT_S = 0.01;

/**
 * The instant that is looked at: null for the present. With `event`, the state right after that event;
 * otherwise the last state at the time `at`.
 * @typedef {{at: number|null, event: number|null}|null} Instant
 */

/**
 * @typedef {Object} JobFilter
 * @property {string} [text]  any substring of the name, namespace, queue or kind
 * @property {string[]} [phases]
 * @property {string} [queue]
 * @property {string} [kind]
 * @property {string} [namespace]
 * @property {string} [user]
 * @property {string} [label]  KEY=VALUE, or KEY
 * @property {number|null} [lastS]  submitted in these last seconds
 */

/** Phases in the order in which people look for them, with the order of jobs in each. */
export const GROUPS = [
  { phases: ["Running", "Starting", "Restarting"], order: "newest" },
  { phases: ["Queued"], order: "oldest" },
  { phases: ["Unschedulable"], order: "oldest" },
  { phases: ["Suspended"], order: "newest" },
  { phases: ["Failed"], order: "newest" },
  { phases: ["Succeeded", "Cancelled"], order: "newest" },
];
export const PHASES = GROUPS.flatMap((group) => group.phases);

/** Return the query parameters that name an instant. @param {Instant} instant */
const parameters = (instant) =>
  (instant === null ? {} : instant.event === null ? { at: instant.at } : { position: instant.event });

/**
 * Return what is known of an instant. Every answer has `at`, and in the past `position`.
 * @param {Instant} instant
 */
export function view(instant) {
  // A log that is only shown is past as a whole: nothing is forecast, and nothing can be changed.
  const when = parameters(instant), isPast = instant !== null || isReadOnly();
  // In the present time goes on after the last event.
  const dated = ({ at, position }) => (isPast ? { at, position } : { at: client.now() });

  return {
    isPast,

    /** The number of jobs by phase, the nodes, and the GPUs in use. */
    async summary() {
      const [nodes, counts] = await Promise.all([client.listNodes(when), client.countJobs(when)]);
      return { ...dated(nodes), phases: counts.data.phases, nodes: nodes.data, gpus: gpusOf(nodes.data) };
    },

    /** @param {JobFilter} filter @returns {Promise<{at: number, items: t.JobView[], more: boolean}>} */
    async jobs(filter = {}) {
      const isWanted = (phase) => !filter.phases?.length || filter.phases.includes(phase);
      const groups = GROUPS.map((group) => ({ ...group, phases: group.phases.filter(isWanted) })).filter(({ phases }) => phases.length);
      const { queue, kind, namespace, user, label } = filter, search = (filter.text ?? "").trim();
      const since = filter.lastS ? Math.max(0, (instant?.at ?? client.now()) - filter.lastS) : null;
      const pages = await Promise.all(groups.map(({ phases, order }) =>
        client.listJobs({ ...when, phase: phases, search, queue, kind, namespace, user, label, since, order, limit: GROUP_MAX })));
      const items = pages.flatMap(({ data }) => data.items);
      return { ...dated(pages[0]), items, more: pages.some(({ data }) => data.next !== null) };
    },

    /** The first jobs that wait, each with its place and its reason. @returns {Promise<t.WaitingLine>} */
    async line(query = {}) {
      const line = await client.getLine({ ...when, ...query });
      return { ...dated(line), ...line.data };
    },

    /** When jobs are likely to start and end, by NAMESPACE/NAME; in the past nothing is forecast. */
    expected: () => (isPast ? new Map() : expectedJobs()),

    /** The forecast of the cluster; null in the past. @returns {t.Outlook|null} */
    outlook: () => (isPast ? null : latestOutlook()),

    /** One job in full, and why it is in its phase. */
    async job(namespace, name) {
      const [detail, why] = await Promise.all([client.getJob(namespace, name, when), client.getWhy(namespace, name, when)]);
      return { ...dated(detail), detail: detail.data, why: why.data };
    },

    /** What had happened to a job. @returns {Promise<t.Story>} */
    async story(namespace, name) {
      return (await client.getStory(namespace, name, when)).data;
    },

    async nodes() {
      const nodes = await client.listNodes(when);
      return { ...dated(nodes), items: nodes.data };
    },

    /**
     * Which job holds which device: by name of the node, by number of the device, NAMESPACE/NAME. `at` is
     * the time of the other answers.
     * @returns {Promise<Map<string, string[]>>}
     */
    async holders(at) {
      const span = isPast ? { from: Math.max(0, at - INSTANT_S), to: at } : { last_s: 1 };
      return holdersOf(await client.getTimeline({ ...span, lanes: "nodes", limit: BARS_MAX }));
    },

    async node(name) {
      const node = await client.getNode(name, when);
      return { ...dated(node), node: node.data };
    },

    async queues() {
      const queues = await client.listQueues(when);
      return { ...dated(queues), items: queues.data };
    },

    async policy() {
      const policy = await client.getPolicy(when);
      return { ...dated(policy), policy: policy.data };
    },
  };
}

/** Return the holders of devices at the end of a timeline of nodes. @param {t.Timeline} timeline */
function holdersOf({ bars, jobs, nodes, origin, to }) {
  const holders = new Map();
  bars.job.forEach((job, i) => {
    if (bars.to[i] !== null && origin + bars.to[i] < to) return;
    const name = nodes[bars.node[i]]?.name, devices = holders.get(name) ?? [];
    for (let device = 0, rest = bars.devices[i]; rest > 0; device++, rest = Math.floor(rest / 2))
      if (rest % 2) devices[device] = jobs[job].name;
    holders.set(name, devices);
  });
  return holders;
}

/** Return the GPUs of nodes that respond: those in use, and all. */
function gpusOf(nodes) {
  const ready = nodes.filter((node) => node.ready);
  const sum = (of) => ready.reduce((total, node) => total + of(node), 0);
  return { used: sum((node) => node.gpus_used), total: sum((node) => node.gpus) };
}
