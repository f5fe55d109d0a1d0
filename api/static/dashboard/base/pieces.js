// Pieces that several pages are made of.

import { el } from "./elements.js";
import { shortName, span } from "./format.js";
import { jobLink } from "./router.js";

/** Return a card with a heading. */
export const card = (title, content, { about = "", isFlush = false, className = "", tools = null } = {}) =>
  el("section", { class: `card ${isFlush ? "flush" : ""} ${className}` },
    title && el("header", {}, el("h2", {}, title), about && el("span", { class: "dim" }, about), tools && [el("span", { class: "grow" }), tools]),
    content);

/** Return the heading of a page, with its tools at the right. */
export const heading = (title, ...tools) =>
  el("div", { class: "heading" }, el("h1", {}, title), el("span", { class: "grow" }), tools);

/** Return a phase as a coloured badge. */
export const phaseBadge = (phase, more = "") => el("span", { class: `badge ${phase}` }, phase, more);

/** Return a link to a job. */
export const jobName = (job) => el("a", { href: jobLink(job) }, shortName(job));

/** Return a link to the job NAMESPACE/NAME. */
export function namedJob(fullName) {
  const [namespace, ...name] = fullName.split("/");
  return jobName({ namespace, name: name.join("/") });
}

/** Return when a waiting job is likely to start; its planned start where nothing is forecast. */
export function startsIn(expected, plannedAt, now) {
  const at = expected?.start?.p50 ?? plannedAt ?? null;
  if (at === null) return "–";
  const late = expected?.start?.p90;
  return el("span", { title: late ? `by ${span(late - now)} with 90%` : null }, at > now ? span(at - now) : "now");
}

/** Return a number over a caption, as a link if `href` is given. */
export const tile = ({ key, value, unit = "", caption, href = null, isBad = false, bar = null }) =>
  el(href ? "a" : "div", { class: isBad ? "tile bad" : "tile", "data-key": key, href },
    el("b", {}, value, unit && el("small", {}, ` ${unit}`)), el("span", {}, caption), bar);

/** Return a bar of parts of a whole: `[[value, className], ...]`. */
export const bar = (whole, parts, label) => el("div", { class: "bar", role: "img", "aria-label": label },
  parts.map(([value, className = ""]) => el("i", { class: className, style: { width: `${whole > 0 ? Math.min(100, (100 * value) / whole) : 0}%` } })));

/** Return a list of names and values; rows without a value are left out. */
export const facts = (rows) => el("dl", { class: "facts" },
  rows.filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false)
    .map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
