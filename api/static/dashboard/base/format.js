// Numbers, times and lengths of time as text.

import { el } from "./elements.js";

/** Return a length of time in its two largest units, as the command line writes it. */
export function span(seconds) {
  if (seconds === null || seconds === undefined || !isFinite(seconds)) return "–";
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m${String(s % 60).padStart(2, "0")}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}h${String(Math.floor((s % 3600) / 60)).padStart(2, "0")}m`;
  return `${Math.floor(s / 86400)}d${Math.floor((s % 86400) / 3600)}h`;
}

/** Return an instant as 2026-11-18 10:00:00 UTC. */
export function stamp(at) {
  return `${iso(at).replace("T", " ").slice(0, 19)} UTC`;
}

/** Return an instant in ISO 8601 with milliseconds. */
export const iso = (at) => new Date(at * 1000).toISOString();

/** Return the time of day of an instant; its date too if that differs from the date of `now`. */
export function clockTime(at, now = at) {
  const text = iso(at), day = text.slice(0, 10);
  return day === iso(now).slice(0, 10) ? text.slice(11, 19) : `${day.slice(5)} ${text.slice(11, 16)}`;
}

/** Return a `time` element for an instant. */
export function moment(at, now = at) {
  return el("time", { datetime: iso(at), title: stamp(at) }, clockTime(at, now));
}

/** Return "in 5m00s" or "5m00s ago" for an instant. */
export const relative = (at, now) => (at > now ? `in ${span(at - now)}` : `${span(now - at)} ago`);

/** Return a number with separators, and fractions only where there are any. */
export const number = (value) => value.toLocaleString("en", { maximumFractionDigits: 2 });

/** Return "1 GPU" or "2 GPUs". */
export const count = (value, noun) => `${number(value)} ${noun}${value > 0 && value <= 1 ? "" : "s"}`;

export const percent = (part, whole) => (whole > 0 ? `${Math.round((100 * part) / whole)}%` : "–");

/** Return "node_lost" and "NodeLost" as "node lost". */
export const words = (name) => name.replaceAll("_", " ").replace(/(?!^)([A-Z])/g, " $1").toLowerCase();

/** Return what a job requests: GPUs with fractions, or GPU memory before its placement. */
export function gpusAsked(job) {
  return !job.gpus && job.gpu_memory_mib ? `${number(job.gpu_memory_mib / 1024)} Gi` : number(job.gpus);
}

/** Return the name of a job; the default namespace is left out. */
export const shortName = (job) => (job.namespace === "default" ? job.name : `${job.namespace}/${job.name}`);
