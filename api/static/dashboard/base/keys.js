// Keyboard shortcuts, single or as a sequence ("g j"), and the overlay that lists them.

import { el } from "./elements.js";
import { openDialog } from "./dialogs.js";

const SEQUENCE_MS_MAX = 1200;

/** @type {Map<string, {about: string, group: string, act: () => void}>} */
const shortcuts = new Map();
const pressed = { keys: "", at: 0 };

/**
 * Add a shortcut.
 * @param {string} keys  "?" or "g j"
 * @param {string} group  its heading in the overlay
 * @param {string} about
 * @param {() => void} act
 */
export function shortcut(keys, group, about, act) {
  shortcuts.set(keys, { group, about, act });
}

const typesText = (target) => target.closest?.("input:not([type=checkbox]), textarea, select, [contenteditable]");

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || typesText(event.target)) return;
  if (document.querySelector("dialog[open]")) return;
  const name = event.key === " " ? "space" : event.key;
  const isNext = pressed.keys && Date.now() - pressed.at < SEQUENCE_MS_MAX;
  const keys = isNext && shortcuts.has(`${pressed.keys} ${name}`) ? `${pressed.keys} ${name}` : name;
  Object.assign(pressed, { keys: name, at: Date.now() });
  // A button or a link that has the focus is pressed with these keys.
  if (["space", "Enter"].includes(name) && event.target.closest("a, button, summary")) return;
  const found = shortcuts.get(keys);
  if (!found || event.defaultPrevented) return;
  event.preventDefault();
  pressed.keys = "";
  found.act();
});

/** Open the overlay with all shortcuts. */
export function showHelp() {
  const groups = new Map();
  for (const [keys, { group, about }] of shortcuts) groups.set(group, [...(groups.get(group) ?? []), [keys, about]]);
  openDialog({
    title: "Keyboard shortcuts",
    className: "help",
    content: el("div", { class: "columns" }, [...groups].map(([group, rows]) => el("section", {},
      el("h3", {}, group),
      el("dl", { class: "keys" }, rows.map(([keys, about]) => [
        el("dt", {}, keys.split(" ").map((key) => el("kbd", {}, key))), el("dd", {}, about),
      ]))))),
  });
}
