// Search across jobs, nodes and queues by any substring: a combobox with a list of what was found.

import { el, setShown } from "./base/elements.js";
import { count } from "./base/format.js";
import { icon } from "./base/icons.js";
import { go, jobLink, nodeLink, queueLink } from "./base/router.js";
import { instant } from "./instant.js";
import { view } from "./view.js";

const EACH_MAX = 8;
const PAUSE_MS = 120;

const box = { input: null, list: null, found: [], chosen: -1, due: null, asked: "" };

/** Return the search box. */
export function searchBox() {
  box.list = el("ul", { id: "matches", role: "listbox", "aria-label": "Matches", hidden: true });
  box.input = el("input", {
    type: "search", placeholder: "Search  /", role: "combobox", autocomplete: "off", spellcheck: "false",
    "aria-label": "Search jobs, nodes and queues", "aria-controls": "matches", "aria-expanded": "false", "aria-autocomplete": "list",
    oninput: ask, onkeydown: pressed, onfocus: ask, onblur: close,
  });
  return el("div", { class: "search" }, icon("search"), box.input, box.list);
}

export const focusSearch = () => box.input.focus();

function ask() {
  clearTimeout(box.due);
  box.asked = box.input.value.trim().toLowerCase();
  if (!box.asked) return close();
  box.due = setTimeout(search, PAUSE_MS);
}

async function search() {
  const asked = box.asked, now = view(instant());
  const [jobs, nodes, queues] = await Promise.all([now.jobs({ text: asked }), now.nodes(), now.queues()]).catch(() => [null]);
  if (asked !== box.asked || !jobs) return;
  const named = (items) => items.filter((item) => item.name.toLowerCase().includes(asked)).slice(0, EACH_MAX);
  box.found = [
    ...jobs.items.slice(0, EACH_MAX).map((job) => ({ kind: "job", name: `${job.namespace}/${job.name}`, about: job.phase, href: jobLink(job) })),
    ...named(nodes.items).map((node) => ({ kind: "node", name: node.name, about: count(node.gpus, "GPU"), href: nodeLink(node.name) })),
    ...named(queues.items).map((queue) => ({ kind: "queue", name: queue.name, about: `${queue.jobs_waiting} waiting`, href: queueLink(queue.name) })),
  ];
  choose(box.found.length ? 0 : -1);
}

function choose(index) {
  box.chosen = index;
  box.list.replaceChildren(...(box.found.length ? box.found.map(option) : [el("li", { class: "dim", role: "option", "aria-disabled": "true" }, "Nothing has this in its name.")]));
  setShown(box.list, true);
  box.input.setAttribute("aria-expanded", "true");
  box.input.setAttribute("aria-activedescendant", index < 0 ? "" : `found-${index}`);
  box.list.children[index]?.scrollIntoView({ block: "nearest" });
}

const option = ({ kind, name, about, href }, i) => el("li", {
  id: `found-${i}`, role: "option", "aria-selected": String(i === box.chosen),
  // The box keeps the focus until the press has opened the link.
  onpointerdown: (event) => { event.preventDefault(); open(href); },
}, el("span", { class: "kind" }, kind), el("b", {}, name), el("span", { class: "dim" }, about));

function pressed(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step && box.found.length) {
    event.preventDefault();
    choose((box.chosen + step + box.found.length) % box.found.length);
  } else if (event.key === "Enter" && box.found[box.chosen]) open(box.found[box.chosen].href);
  else if (event.key === "Escape") {
    box.input.value = "";
    close();
    box.input.blur();
  }
}

function open(href) {
  box.input.value = "";
  close();
  box.input.blur();
  go(href);
}

function close() {
  box.asked = "";
  clearTimeout(box.due);
  setShown(box.list, false);
  box.input.setAttribute("aria-expanded", "false");
  box.input.removeAttribute("aria-activedescendant");
}
