// The instant that is looked at. It is kept in the address: `at` is a time, `event` a position of the
// log. While a person drags or plays, it changes more often than browsers let the address change, so
// it is held here and written to the address a little later.

import { iso } from "./base/format.js";
import { address, onAddress, setQuery } from "./base/router.js";

const WRITE_MS = 400;

/** @import { Instant } from "./view.js" */

const listeners = new Set();
/** @type {{instant: Instant, due: number|null}} */
const held = { instant: null, due: null };

/** Return the instant that is looked at; null for the present. @returns {Instant} */
export const instant = () => (held.due === null ? instantOf(address()) : held.instant);

/** Return the instant in an address; null for the present, or if it cannot be read. */
export function instantOf({ query }) {
  const at = readTime(query.get("at")), event = readPosition(query.get("event"));
  return at === null && event === null ? null : { at, event };
}

export function readTime(text) {
  if (!text) return null;
  const seconds = /^\d+(\.\d+)?$/.test(text) ? Number(text) : Date.parse(text) / 1000;
  return Number.isFinite(seconds) && seconds >= 0 ? seconds : null;
}

const readPosition = (text) => (/^\d{1,15}$/.test(text ?? "") ? Number(text) : null);

/** Call `listener` when a held instant changes; a change of the address is reported by the router. */
export const onInstant = (listener) => listeners.add(listener);

/** Look at a time. */
export const lookAt = (at) => look({ at, event: null });

/** Look at the state right after an event. */
export const lookAtEvent = (event) => look({ at: null, event });

/** Look at the present. */
export const lookAtNow = () => look(null);

function look(wanted) {
  held.instant = wanted;
  held.due ??= setTimeout(write, WRITE_MS);
  for (const listener of listeners) listener();
}

function write() {
  held.due = null;
  const { at = null, event = null } = held.instant ?? {};
  setQuery({ at: at === null ? null : iso(at), event: event === null ? null : String(event) });
}

// A new address replaces an instant that was not written yet.
onAddress(() => {
  clearTimeout(held.due);
  held.due = null;
});
