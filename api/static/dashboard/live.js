// The connection: whether the server answers, since when, and what happens there.
//
// The event stream is the measure. Its server writes something every 15 s even if nothing happens, so a
// stream that is silent for longer counts as broken, whatever the network says.

import * as client from "./client.js";

const SILENCE_MS_MAX = 25_000;
const AGAIN_MS = 2000;

/** @typedef {"connecting"|"live"|"reconnecting"|"token"} Status */

/** @type {{status: Status, since: number, head: number, heardAt: number}} */
export const connection = { status: "connecting", since: Date.now(), head: 0, heardAt: Date.now() };

const onStatus = new Set(), onEvent = new Set();

/** Call `listener` when the status changes. */
export const onConnection = (listener) => onStatus.add(listener);
/** Call `listener` with each new event. */
export const onNewEvent = (listener) => onEvent.add(listener);

/** Report what a request met, so that a dead server shows at once. */
export function report(error) {
  if (error instanceof client.Unreachable) set("reconnecting");
}

function set(status) {
  if (status === connection.status) return;
  Object.assign(connection, { status, since: Date.now() });
  for (const listener of onStatus) listener(connection);
}

/** Follow the log for ever; the stream resumes where it broke. */
export async function follow() {
  for (;;) {
    try {
      const { head } = await client.listEvents({ limit: 1 });
      const missed = head > connection.head && connection.head > 0;
      connection.head = Math.max(connection.head, head);
      alive();
      if (missed) tell(null);
      await stream();
    } catch (error) {
      if (error.status === 401) set("token");
    }
    if (connection.status === "live") set("reconnecting");
    await new Promise((done) => setTimeout(done, AGAIN_MS));
  }
}

function alive() {
  connection.heardAt = Date.now();
  set("live");
}

async function stream() {
  const stop = new AbortController();
  const watch = setInterval(() => {
    if (Date.now() - connection.heardAt > SILENCE_MS_MAX) stop.abort();
  }, 1000);
  try {
    await client.followEvents(connection.head, {
      signal: stop.signal,
      alive,
      heard(event) {
        connection.head = event.position;
        tell(event);
      },
    });
  } finally {
    clearInterval(watch);
    stop.abort();
  }
}

// `event` is null if some were missed while there was no connection.
function tell(event) {
  for (const listener of onEvent) listener(event);
}
