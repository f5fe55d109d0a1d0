// The span of time that the axis and the charts show: the whole log, or a part of it in the address.

import { iso } from "../base/format.js";
import { address, setQuery } from "../base/router.js";
import { getHistory, now } from "../client.js";
import { readTime } from "../instant.js";

const LENGTH_S_MIN = 1;
let first = null;

/** Return when the log begins; null while it is empty. */
export async function logBegin() {
  first ??= (await getHistory()).first?.at ?? null;
  return first;
}

/** Return the span of the axis. `isAll` says that it is the whole log. */
export function timeSpan() {
  const { query } = address();
  const from = readTime(query.get("from")), to = readTime(query.get("to"));
  const begin = first ?? now() - 60, end = Math.max(now(), begin + LENGTH_S_MIN);
  if (from === null || to === null || to - from < LENGTH_S_MIN) return { from: begin, to: end, isAll: true };
  return { from, to, isAll: false };
}

/** Show a part of the log; parts outside of it are cut off. */
export function setSpan(from, to) {
  const begin = first ?? from, end = now();
  const length = Math.min(end - begin, Math.max(LENGTH_S_MIN, to - from));
  const start = Math.min(Math.max(begin, from), end - length);
  if (length >= end - begin - LENGTH_S_MIN) setQuery({ from: null, to: null });
  else setQuery({ from: iso(start), to: iso(start + length) });
}

/** Make the span longer or shorter around an instant. */
export function zoom(factor, around) {
  const { from, to } = timeSpan();
  setSpan(around - (around - from) * factor, around + (to - around) * factor);
}

export const showAll = () => setQuery({ from: null, to: null });
