// Elements and words. Text is always text, never markup: nothing here writes HTML.

// An element with attributes and children; null and undefined children are left out.
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null) made.setAttribute(name, value);
  made.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

// Makes the children of `parent` those given, and keeps the ones that are the same already: so what
// a person has focused, selected or scrolled stays as it is. Keys are in `data-key`.
export function patch(parent, wanted) {
  const held = document.activeElement;
  const place = parent.contains(held) ? held.closest("[data-key]") : null;
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  wanted.forEach((next, i) => {
    const old = known.get(next.dataset.key);
    const kept = old && old.isEqualNode(next) ? old : next;
    if (old && kept !== old) old.replaceWith(kept);
    if (parent.children[i] !== kept) parent.insertBefore(kept, parent.children[i] ?? null);
  });
  while (parent.children.length > wanted.length) parent.lastElementChild.remove();
  if (place && !document.contains(held)) {
    const again = [...parent.children].find((child) => child.dataset.key === place.dataset.key);
    again?.querySelector("a, button")?.focus();
  }
}

export function table(kind, columns) {
  const head = columns.map(([name, style]) => el("th", { class: style ?? "", scope: "col" }, name));
  const body = el("tbody");
  const made = el("table", { class: kind }, el("thead", {}, el("tr", {}, head)), body);
  return { made: el("div", { class: "scroll" }, made), body };
}

export function row(key, cells) {
  return el("tr", { "data-key": key }, cells.map(([content, style]) => el("td", { class: style ?? "" }, content)));
}

// A length of time in the two largest units, as the command line writes it.
export function span(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m${String(s % 60).padStart(2, "0")}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}h${String(Math.floor((s % 3600) / 60)).padStart(2, "0")}m`;
  return `${Math.floor(s / 86400)}d${Math.floor((s % 86400) / 3600)}h`;
}

export function stamp(at) {
  return new Date(at * 1000).toISOString().replace("T", " ").slice(0, 19) + " UTC";
}

// The time of day, with the whole of it for whoever points at it.
export function moment(at) {
  return el("time", { datetime: new Date(at * 1000).toISOString(), title: stamp(at) }, stamp(at).slice(11, 19));
}

export function count(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number > 0 && number <= 1 ? "" : "s"}`;
}

// GPUs that a job asks for, with fractions; memory where it shares by memory and has nothing yet.
export function gpusAsked(job) {
  if (!job.gpus && job.gpu_memory_mib) return `${(job.gpu_memory_mib / 1024).toLocaleString("en")} Gi`;
  return job.gpus.toLocaleString("en");
}

export const jobAddress = (namespace, name) =>
  `#/job/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
