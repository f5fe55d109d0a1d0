// The time machine at the top of every page: the axis, its buttons, and its shortcuts.

import { el, setShown, setText } from "../base/elements.js";
import { iso, number, relative, stamp } from "../base/format.js";
import { icon } from "../base/icons.js";
import { shortcut } from "../base/keys.js";
import { go, onAddress, pageLink } from "../base/router.js";
import { now } from "../client.js";
import { isReadOnly } from "../cluster.js";
import { instant, lookAt, lookAtNow, onInstant } from "../instant.js";
import { connection, onConnection } from "../live.js";
import { makeAxis } from "./axis.js";
import { onMarks, refreshMarks, startMarks } from "./marks.js";
import { cursor, drawn, isPlaying, pause, play, playing, SPEEDS, step, stepMark } from "./player.js";
import { logBegin, showAll, timeSpan, zoom } from "./span.js";

const parts = {};

/** Build the time machine in `element`; it shows itself when the log has events. */
export function startTimeMachine(element) {
  parts.element = element;
  parts.tip = el("div", { class: "tip", hidden: true });
  parts.axis = makeAxis({
    cursor,
    onLook: (at) => { pause(); (at === null ? lookAtNow() : lookAt(at)); },
    onStep: step,
    tip: showTip,
  });
  parts.when = el("output", { class: "when" });
  parts.play = button("play", "Play (p)", togglePlay);
  parts.now = el("button", { type: "button", class: "now", title: "Look at the present (.)", onclick: () => { pause(); lookAtNow(); } }, "Now");
  parts.speed = el("select", { "aria-label": "Speed of playing", title: "Speed of playing", onchange: (event) => { playing.speed = Number(event.target.value); } },
    SPEEDS.map((speed) => el("option", { value: speed, selected: speed === playing.speed }, `${number(speed)}×`)));
  element.append(
    el("div", { class: "controls" },
      button("back", "Previous event ([)", () => step(-1)), parts.play, button("forward", "Next event (])", () => step(1)), parts.speed,
      parts.when,
      el("span", { class: "grow" }),
      el("button", { type: "button", class: "fork", title: "Fork here: continue from this instant with a change (f)", onclick: forkHere }, icon("fork"), "Fork here"),
      button("zoomOut", "Show more time (-)", () => zoom(2, middle())), button("zoomIn", "Show less time (+)", () => zoom(0.5, middle())),
      button("all", "Show the whole log (a)", showAll), parts.now),
    el("div", { class: "track" }, parts.axis.element, parts.tip));
  addShortcuts();
  onInstant(show);
  onAddress(() => {
    show();
    if (parts.begun) refreshMarks();
  });
  onMarks(parts.axis.redraw);
  onConnection(begin);
  setInterval(show, 1000);
}

/** Report which instant the page shows. */
export function shown(what) {
  drawn(what);
  show();
}

const button = (name, label, act) =>
  el("button", { type: "button", class: "plain", title: label, "aria-label": label.replace(/ \(.*/, ""), onclick: act }, icon(name));

// Zooming keeps the instant that is looked at in its place; from now, it keeps the right end.
const middle = () => cursor() ?? timeSpan().to;

async function begin() {
  if (connection.status !== "live" || parts.begun) return;
  parts.begun = true;
  if ((await logBegin().catch(() => null)) === null) {
    parts.begun = false;
    setTimeout(begin, 2000);
    return;
  }
  setShown(parts.element, true);
  show();
  startMarks();
}

function togglePlay() {
  if (isPlaying()) pause();
  else play(timeSpan().from);
  show();
}

function show() {
  const at = cursor(), isPast = instant() !== null;
  parts.play.replaceChildren(icon(isPlaying() ? "pause" : "play"));
  parts.play.setAttribute("aria-label", isPlaying() ? "Pause" : "Play");
  parts.now.toggleAttribute("disabled", !isPast);
  const event = isPast ? playing.position : connection.head;
  const place = event === null ? "" : ` · event ${number(event)} of ${number(connection.head)}`;
  setText(parts.now, isReadOnly() ? "End" : "Now");
  setText(parts.when, isPast ? (at === null ? "…" : `${stamp(at)} · ${relative(at, now())}${place}`) : `${isReadOnly() ? `the end of the log, ${stamp(now())}` : "now"}${place}`);
  parts.element.classList.toggle("past", isPast);
  parts.axis.redraw();
}

function showTip(tip) {
  setShown(parts.tip, tip !== null);
  if (!tip) return;
  parts.tip.replaceChildren(...tip.lines.map((line) => el("div", {}, line)));
  const width = parts.axis.element.clientWidth;
  parts.tip.style.left = `${Math.min(Math.max(0, tip.x - parts.tip.offsetWidth / 2), width - parts.tip.offsetWidth)}px`;
}

/** Open the form of a fork at the instant that is looked at. */
function forkHere() {
  pause();
  const wanted = instant();
  go(pageLink(["forks"], wanted?.at != null ? { at: iso(wanted.at) } : {}));
}

function addShortcuts() {
  const group = "Time machine";
  shortcut("[", group, "One event back", () => step(-1));
  shortcut("]", group, "One event forward", () => step(1));
  shortcut("{", group, "To the previous mark", () => stepMark(-1));
  shortcut("}", group, "To the next mark", () => stepMark(1));
  shortcut("p", group, "Play or pause", togglePlay);
  shortcut(".", group, "To the present", () => { pause(); lookAtNow(); });
  shortcut("+", group, "Show less time", () => zoom(0.5, middle()));
  shortcut("-", group, "Show more time", () => zoom(2, middle()));
  shortcut("f", group, "Fork here", forkHere);
  shortcut("a", group, "Show the whole log", showAll);
}
