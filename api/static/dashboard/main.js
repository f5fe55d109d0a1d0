// The table of pages, and the start. To add a page: a module in pages/ and a line here.

import { shortcut, showHelp } from "./base/keys.js";
import { go, link, pageLink } from "./base/router.js";
import { nextTheme } from "./base/theme.js";
import { follow } from "./live.js";
import { focusSearch } from "./search.js";
import { startShell } from "./shell.js";
import { startTimeMachine } from "./time/machine.js";

/**
 * `path` has placeholders that begin with a colon. A page with a `name` is in the navigation, and `key`
 * follows "g" in its shortcut.
 * @typedef {Object} PageEntry
 * @property {string[]} path
 * @property {() => Promise<{makePage: Function}>} module
 * @property {string} [name]
 * @property {string} [icon]
 * @property {string} [key]
 */

/** @type {PageEntry[]} */
const PAGES = [
  { path: [], name: "Overview", icon: "overview", key: "o", module: () => import("./pages/overview.js") },
  { path: ["jobs"], name: "Jobs", icon: "jobs", key: "j", module: () => import("./pages/jobs.js") },
  { path: ["jobs", ":namespace", ":name"], module: () => import("./pages/job.js") },
  { path: ["queues"], name: "Queues", icon: "queues", key: "q", module: () => import("./pages/queues.js") },
  { path: ["queues", ":queue"], module: () => import("./pages/queues.js") },
  { path: ["nodes"], name: "Nodes", icon: "nodes", key: "n", module: () => import("./pages/nodes.js") },
  { path: ["nodes", ":node"], module: () => import("./pages/node.js") },
  { path: ["timeline"], name: "Timeline", icon: "timeline", key: "t", module: () => import("./pages/timeline.js") },
  { path: ["forks"], name: "Fork", icon: "fork", key: "f", module: () => import("./pages/forks.js") },
  { path: ["forks", ":id"], module: () => import("./pages/fork.js") },
  { path: ["studies"], name: "Studies", icon: "studies", key: "s", module: () => import("./pages/studies.js") },
  { path: ["studies", ":id"], module: () => import("./pages/study.js") },
  { path: ["incidents"], name: "Incidents", icon: "incidents", key: "i", module: () => import("./pages/incidents.js") },
  { path: ["settings"], name: "Settings", icon: "settings", key: ",", module: () => import("./pages/settings.js") },
];

for (const { name, key, path } of PAGES)
  if (name) shortcut(`g ${key}`, "Go to", name, () => go(pageLink(path)));
shortcut("/", "Everywhere", "Search jobs, nodes and queues", focusSearch);
shortcut("?", "Everywhere", "Show this list", showHelp);
shortcut("D", "Everywhere", "Change colours: system, light, dark", nextTheme);

if (!location.hash.startsWith("#/")) history.replaceState(null, "", link([]));
startTimeMachine(document.getElementById("time"));
startShell(PAGES);
follow();
