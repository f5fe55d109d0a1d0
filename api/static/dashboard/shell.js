// The frame around every page: navigation, connection, and when which page is drawn.
//
// A page module exports `makePage(context)`, which returns
//
//     { element, title, load(view), show(data), close() }
//
// `load` reads what the page needs at an instant (view.js) and `show` draws it. The frame calls both
// when the address or the instant changes and, in the present, when something happened; a page does
// not know when. `title` is a text and `close` is optional. `context.address` is always the current
// address, `context.parameters` has the values of the placeholders, and `context.act(change)` sends a
// change and draws again.

import { askToken } from "./base/dialogs.js";
import { el, patch, setShown, setText } from "./base/elements.js";
import { clockTime, span } from "./base/format.js";
import { icon } from "./base/icons.js";
import { showHelp } from "./base/keys.js";
import { address, onAddress, pageLink } from "./base/router.js";
import { themeButton } from "./base/theme.js";
import * as client from "./client.js";
import { clusterView, describeCluster, isReadOnly, onCluster } from "./cluster.js";
import { instant, onInstant } from "./instant.js";
import { connection, onConnection, onNewEvent, report } from "./live.js";
import { onOutlook } from "./outlook.js";
import { missingPage } from "./pages/missing.js";
import { makePace } from "./pace.js";
import { searchBox } from "./search.js";
import { shown } from "./time/machine.js";
import { view } from "./view.js";

// In the present a page is drawn again at least this often, also if nothing happens.
const LATEST_MS = 8000;

const at = (id) => document.getElementById(id);
const frame = { pages: [], entry: null, parameters: {}, made: null, path: "", drawing: false, again: false, drawnAt: 0, loadedAt: 0 };
const pace = makePace();

/** Show the page of the address from now on. */
export function startShell(pages) {
  frame.pages = pages;
  at("search").append(searchBox());
  at("switches").append(
    el("button", { type: "button", class: "plain", title: "Keyboard shortcuts (?)", "aria-label": "Keyboard shortcuts", onclick: showHelp }, icon("help")),
    themeButton());
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    at("main").focus();
  });
  onAddress(draw);
  onInstant(draw);
  onOutlook(draw);
  onCluster(draw);
  onConnection(() => {
    showConnection();
    if (connection.status === "live") draw();
    if (connection.status === "token") signIn();
  });
  drawOnEvents();
  setInterval(tick, 1000);
  draw();
}

function drawOnEvents() {
  let due = null;
  onNewEvent(() => {
    due ??= setTimeout(() => {
      due = null;
      if (!document.hidden && instant() === null) draw();
    }, pace.wait());
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) draw(); });
}

function tick() {
  showConnection();
  const isIdle = document.hidden || instant() !== null || connection.status !== "live";
  if (!isIdle && Date.now() - frame.drawnAt > LATEST_MS) draw();
}

// ---------------------------------------------------------------- drawing

/** Draw the page of the address; one at a time, and the latest wish wins. */
async function draw() {
  if (frame.drawing) {
    frame.again = true;
    return;
  }
  frame.drawing = true;
  do {
    frame.again = false;
    const asked = location.hash;
    try {
      await drawOnce();
      setShown(at("notice"), false);
    } catch (error) {
      if (asked === location.hash) fail(error);
    }
    frame.drawnAt = Date.now();
  } while (frame.again);
  frame.drawing = false;
}

async function drawOnce() {
  const here = address(), when = instant();
  showNavigation(here);
  const { entry, parameters } = match(here.path);
  if (!entry) return showMissing("There is no such page", `Nothing is at ${location.hash}.`);
  const { makePage } = await load(entry);
  if (frame.made === null || frame.path !== here.path.join("/")) place(entry, parameters, makePage, here);
  const made = frame.made;
  document.body.dataset.when = when === null ? "present" : "past";
  const began = performance.now();
  const data = await made.load(view(when));
  pace.loaded(performance.now() - began);
  if (frame.made !== made) return;
  frame.loadedAt = data?.at ?? client.now();
  made.show(data);
  made.element.removeAttribute("aria-busy");
  document.title = `${made.title} · Muster`;
  shown({ at: data?.at ?? null, position: data?.position ?? null });
  showConnection();
}

/** Load the module of a page. Browsers report a server that is gone as a type error. */
async function load(entry) {
  try {
    return await entry.module();
  } catch (error) {
    throw error instanceof TypeError ? new client.Unreachable("The server does not answer.") : error;
  }
}

function match(path) {
  for (const entry of frame.pages) {
    if (entry.path.length !== path.length) continue;
    const fits = entry.path.every((part, i) => part.startsWith(":") || part === path[i]);
    if (!fits) continue;
    const named = entry.path.flatMap((part, i) => (part.startsWith(":") ? [[part.slice(1), path[i]]] : []));
    return { entry, parameters: Object.fromEntries(named) };
  }
  return { entry: null, parameters: {} };
}

function place(entry, parameters, makePage, here) {
  frame.made?.close?.();
  frame.path = here.path.join("/");
  frame.made = makePage({ get address() { return address(); }, parameters, act, redraw: draw });
  frame.made.element.setAttribute("aria-busy", "true");
  at("main").replaceChildren(frame.made.element);
  scrollTo(0, 0);
}

/** Send a change, and draw again whatever became of it. */
async function act(change) {
  try {
    await change();
    await draw();
    return true;
  } catch (error) {
    fail(error);
    return false;
  }
}

// ---------------------------------------------------------------- what went wrong

function fail(error) {
  report(error);
  if (error.status === 401) return signIn();
  if (error.status === 404) return showMissing("Nothing is at this address", error.message);
  if (!(error instanceof client.Refused || error instanceof client.Unreachable)) console.error(error);
  setText(at("notice"), error.message);
  setShown(at("notice"), true);
}

function showMissing(title, message) {
  frame.made?.close?.();
  frame.made = null;
  document.title = "Not found · Muster";
  at("main").replaceChildren(missingPage({ title, message, isPast: instant() !== null }));
}

async function signIn() {
  if (at("ask-token")) return;
  const token = await askToken();
  if (token) client.keepToken(token);
  draw();
}

// ---------------------------------------------------------------- the frame itself

function showNavigation(here) {
  patch(at("nav"), frame.pages.filter((page) => page.name).map((page) => el("a", {
    "data-key": page.name,
    href: pageLink(page.path),
    "aria-current": (here.path[0] ?? "") === (page.path[0] ?? "") ? "page" : null,
  }, icon(page.icon), el("span", {}, page.name))));
}

function showConnection() {
  const { status, since } = connection;
  const element = at("connection");
  const text = {
    connecting: "connecting…",
    live: isReadOnly() ? "a log, read-only" : `live · ${clockTime(client.now())} UTC`,
    reconnecting: `no connection for ${span((Date.now() - since) / 1000)}`,
    token: "a token is needed",
  }[status];
  element.dataset.status = status;
  setText(element, text);
  const isStale = status === "reconnecting" && instant() === null;
  document.body.toggleAttribute("data-stale", isStale);
  element.title = isStale && frame.loadedAt ? `What is shown is of ${clockTime(frame.loadedAt)} UTC.` : "";
  document.body.toggleAttribute("data-read-only", isReadOnly());
  setText(at("cluster"), describeCluster());
  at("cluster").title = clusterView()?.description ?? "";
}
