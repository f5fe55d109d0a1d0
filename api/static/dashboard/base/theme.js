// Light, dark, or as the system has it; the choice is kept in this browser.

import { el } from "./elements.js";
import { icon } from "./icons.js";

const KEY = "muster-theme";
const THEMES = ["auto", "light", "dark"];
const ICONS = { auto: "auto", light: "sun", dark: "moon" };
const NAMES = { auto: "as the system", light: "light", dark: "dark" };

const listeners = new Set();

/** Call `listener` when colours change, so that canvases are drawn again. */
export const onTheme = (listener) => listeners.add(listener);

export const theme = () => (THEMES.includes(localStorage.getItem(KEY)) ? localStorage.getItem(KEY) : "auto");

/** Use a theme from now on. */
export function setTheme(name) {
  if (name === "auto") localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, name);
  apply();
}

export const nextTheme = () => setTheme(THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length]);

const colors = new Map();

/** Return a colour of the style sheet as it is now, for canvases. */
export function color(name) {
  let found = colors.get(name);
  if (found === undefined) {
    const probe = el("span", { style: { color: `var(--${name})` } });
    document.body.append(probe);
    found = getComputedStyle(probe).color;
    probe.remove();
    colors.set(name, found);
  }
  return found;
}

/** Return another token of the style sheet, for canvases: a font or a number. */
export const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function apply() {
  colors.clear();
  if (theme() === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme();
  for (const listener of listeners) listener();
}

/** Return the button that goes through the themes. */
export function themeButton() {
  const button = el("button", { type: "button", class: "plain", onclick: nextTheme });
  const show = () => {
    const label = `Colours: ${NAMES[theme()]}`;
    button.replaceChildren(icon(ICONS[theme()]));
    button.setAttribute("aria-label", label);
    button.title = label;
  };
  onTheme(show);
  show();
  return button;
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
apply();
