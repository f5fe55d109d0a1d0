// What kind of cluster this is, in words for the banner.

import { number } from "./base/format.js";
import { getCluster } from "./client.js";
import { connection, onConnection } from "./live.js";

/** @type {import("./types.js").ClusterView|null} */
let cluster = null;

const listeners = new Set();

// A server that came back may be another one.
onConnection(async () => {
  if (connection.status !== "live") return;
  cluster = await getCluster().catch(() => cluster);
  for (const listener of listeners) listener();
});

/** Call `listener` when it is known what cluster this is. */
export const onCluster = (listener) => listeners.add(listener);

/** Return whether the server only shows a log: nothing can be changed, and time stands still. */
export const isReadOnly = () => cluster?.read_only ?? false;

/** Return "simulated, 60× speed", or an empty text while it is not known. */
export function describeCluster() {
  if (!cluster) return "";
  const speed = cluster.speed === 1 ? "" : `${number(cluster.speed)}× speed`;
  return [isReadOnly() && "read-only", cluster.kind, speed].filter(Boolean).join(", ");
}

/** Return what is known of the cluster; null before it is known. */
export const clusterView = () => cluster;
