// Which page is shown, when it is drawn again, and at what event of the log.

import { clusterNow, clusterPage, clusterThen } from "./cluster.js";
import { el, stamp } from "./elements.js";
import { jobNow, jobPage, jobThen } from "./job.js";
import * as server from "./server.js";

// Drawn again at most this often while events come, and at least this often while none do.
const SOONEST_MS = 1000;
const LATEST_MS = 5000;
const AGAIN_MS = 2000;

const at = (id) => document.getElementById(id);
const main = at("main"), state = at("state"), trouble = at("trouble");
const slider = at("position"), when = at("when");

// `past` is the event that is looked at, or null for now.
const view = { head: 0, past: null, page: null, drawing: false, again: false };

function addressed() {
  const parts = location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decoded);
  return parts[0] === "job" && parts.length === 3 ? { namespace: parts[1], name: parts[2] } : null;
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

async function draw() {
  if (view.drawing) {
    view.again = true;
    return;
  }
  view.drawing = true;
  const asked = location.hash;
  try {
    await (addressed() ? drawJob(addressed()) : drawCluster());
    trouble.hidden = true;
  } catch (error) {
    if (error.status === 401) askToken();
    else tell(error.message);
  } finally {
    view.drawing = false;
    if (view.again || asked !== location.hash) {
      view.again = false;
      draw();
    }
  }
}

async function drawCluster() {
  const found = view.past === null
    ? await clusterNow(server, view.page?.wanted())
    : clusterThen(await stateThen());
  if (addressed()) return;
  if (!view.page) {
    view.page = clusterPage(draw);
    main.replaceChildren(view.page.made);
    document.title = "Muster";
  }
  view.page.show(found);
  tellState(found.at);
}

async function drawJob({ namespace, name }) {
  const found = view.past === null
    ? await jobNow(namespace, name, server)
    : jobThen(await stateThen(`${namespace}/${name}`));
  view.page = null;
  const made = jobPage(found, { change: changed, isPast: view.past !== null });
  // Someone who reads or is about to press a button is not disturbed by what has not changed.
  if (!main.firstElementChild?.isEqualNode(made)) keepPlace(() => main.replaceChildren(made));
  document.title = `${name} - Muster`;
  tellState(found.at);
}

function keepPlace(redraw) {
  const key = main.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  redraw();
  if (key) main.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
}

const stateThen = (job) =>
  server.get(`/v1/state?position=${view.past}${job ? `&job=${encodeURIComponent(job)}` : ""}`);

async function changed(path) {
  try {
    await server.change(path);
  } catch (error) {
    tell(error.message);
  }
  draw();
}

function tell(message) {
  trouble.textContent = message;
  trouble.hidden = false;
}

function tellState(now) {
  if (state.className !== "lost") state.className = view.past === null ? "live" : "past";
  const word = { live: "live", past: "the past", lost: "no connection" }[state.className];
  state.textContent = `${word}, ${stamp(now)}, event ${(view.past ?? view.head).toLocaleString("en")} of ${view.head.toLocaleString("en")}`;
  when.textContent = view.past === null ? "drag to see any past event" : stamp(now);
}

function setHead(position) {
  view.head = Math.max(view.head, position);
  slider.max = Math.max(1, view.head);
  tellState(server.clock.now);
  if (view.past === null) slider.value = slider.max;
  at("time").hidden = view.head < 1;
}

function look(position) {
  view.past = position >= view.head ? null : position;
  if (view.past === null) slider.value = slider.max;
  draw();
}

slider.addEventListener("change", () => look(Number(slider.value)));
slider.addEventListener("input", () => { when.textContent = `event ${Number(slider.value).toLocaleString("en")}`; });
at("now").addEventListener("click", () => look(Infinity));

function askToken() {
  const dialog = at("ask-token");
  if (!dialog.open) dialog.showModal();
}

at("ask-token").addEventListener("close", () => {
  if (at("token").value) server.keepToken(at("token").value.trim());
  at("token").value = "";
  draw();
});

addEventListener("hashchange", () => {
  if (location.hash === "#main") return;
  view.page = null;
  scrollTo(0, 0);
  draw();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) draw(); });

// Hears that something happened, and draws then; the stream begins again where it broke.
async function follow() {
  let due = null;
  const soon = () => {
    due ??= setTimeout(() => { due = null; if (!document.hidden && view.past === null) draw(); }, SOONEST_MS);
  };
  for (;;) {
    try {
      setHead((await server.get("/v1/events?limit=1")).head);
      state.className = view.past === null ? "live" : "past";
      await server.hear(view.head, (position) => { setHead(position); soon(); });
    } catch (error) {
      state.className = error.status === 401 ? "" : "lost";
    }
    await new Promise((done) => setTimeout(done, AGAIN_MS));
  }
}

setInterval(() => { if (!document.hidden && view.past === null && !at("ask-token").open) draw(); }, LATEST_MS);
main.replaceChildren(el("p", { class: "dim" }, "Reading …"));
draw();
follow();
