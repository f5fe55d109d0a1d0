// Addresses. Every page and the instant that it shows is a deep link:
//
//     #/jobs/default/resnet?at=2026-11-18T10:00:00.000Z
//
// The path and the query are in the fragment, so that the server needs to know one page only, a proxy
// may serve it below any prefix, and a saved file opens by itself. `at` and `event` name the instant,
// `from` and `to` the span of the time axis; they are kept from page to page. The other parameters
// belong to the page.

const KEPT = ["at", "event", "from", "to"];

const listeners = new Set();

/**
 * @typedef {Object} Address
 * @property {string[]} path  the decoded parts: ["jobs", "default", "resnet"]
 * @property {URLSearchParams} query
 */

/** Return the current address. @returns {Address} */
export function address() {
  return parse(location.hash);
}

/** Return the address in a fragment. @returns {Address} */
export function parse(hash) {
  const text = hash.replace(/^#?\/?/, "");
  const cut = text.indexOf("?");
  const path = cut < 0 ? text : text.slice(0, cut);
  return {
    path: path.split("/").filter(Boolean).map(decoded),
    query: new URLSearchParams(cut < 0 ? "" : text.slice(cut + 1)),
  };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Return the fragment of a path and a query, which may be an object or URLSearchParams. */
export function link(path, query = {}) {
  const parameters = new URLSearchParams(query);
  const text = parameters.toString().replaceAll("%3A", ":").replaceAll("%2F", "/").replaceAll("%2C", ",");
  return `#/${path.map(encodeURIComponent).join("/")}${text && `?${text}`}`;
}

/** Return a link to another page, with the same instant and span of time as here. */
export function pageLink(path, query = {}) {
  const here = address().query, kept = {};
  for (const name of KEPT) if (here.has(name)) kept[name] = here.get(name);
  return link(path, { ...kept, ...query });
}

export const jobLink = (job) => pageLink(["jobs", job.namespace, job.name]);
export const nodeLink = (name) => pageLink(["nodes", name]);
export const queueLink = (name) => pageLink(["queues", name]);

/** Go to a fragment. With `replace` the back button skips the present one. */
export function go(fragment, { replace = false } = {}) {
  if (fragment === location.hash) return;
  if (replace) history.replaceState(null, "", fragment);
  else history.pushState(null, "", fragment);
  changed();
}

/** Change parameters of the present address; null removes one. */
export function setQuery(changes, options = { replace: true }) {
  const { path, query } = address();
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") query.delete(name);
    else query.set(name, value);
  }
  go(link(path, query), options);
}

/** Call `listener` with the address whenever it changes. */
export function onAddress(listener) {
  listeners.add(listener);
}

function changed() {
  const now = address();
  for (const listener of listeners) listener(now);
}

addEventListener("hashchange", changed);
