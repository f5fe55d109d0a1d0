// Stepping through the log and playing it.

import { now } from "../client.js";
import { instant, lookAt, lookAtEvent, lookAtNow } from "../instant.js";
import { connection } from "../live.js";
import { markAfter, markBefore } from "./marks.js";

const TICK_MS = 250;
export const SPEEDS = [1, 10, 60, 600, 3600];

/** What is drawn at the moment, and whether it plays. */
export const playing = { speed: 60, timer: null, at: null, position: null };

/** Remember which instant is drawn. */
export function drawn({ at, position }) {
  playing.at = at;
  playing.position = position;
}

/** Return the instant that is looked at in seconds; null for now. */
export const cursor = () => {
  const wanted = instant();
  return wanted === null ? null : wanted.at ?? playing.at;
};

/** Return the event that is looked at, also if it is not drawn yet. */
function position() {
  const wanted = instant();
  return wanted === null ? connection.head : wanted.event ?? playing.position ?? connection.head;
}

/** Go one event forward or back. */
export function step(direction) {
  pause();
  const next = position() + direction;
  if (next >= connection.head) lookAtNow();
  else lookAtEvent(Math.max(0, next));
}

/** Go to the next or the previous mark. */
export function stepMark(direction) {
  pause();
  const mark = direction > 0 ? markAfter(position()) : markBefore(position());
  if (mark) lookAtEvent(mark.position);
  else if (direction > 0) lookAtNow();
}

export const isPlaying = () => playing.timer !== null;

/** Play from the instant that is looked at, or from `begin` when that is now. */
export function play(begin) {
  let at = cursor() ?? begin, last = performance.now();
  playing.timer = setInterval(() => {
    const passed = (performance.now() - last) / 1000;
    last = performance.now();
    at += passed * playing.speed;
    if (at < now()) lookAt(at);
    else {
      pause();
      lookAtNow();
    }
  }, TICK_MS);
}

export function pause() {
  clearInterval(playing.timer);
  playing.timer = null;
}
