// Colours of phases, marks and jobs, from the tokens of the style sheet.

import { color } from "../base/theme.js";

export const PHASE_COLORS = {
  Running: "good", Starting: "busy", Restarting: "warn", Queued: "wait", Unschedulable: "bad",
  Suspended: "off", Failed: "bad", Succeeded: "done", Cancelled: "off",
};

export const MARK_COLORS = {
  failure: "bad", node_lost: "lost", fault: "lost", restart: "warn", preemption: "preempt", policy: "accent", queue: "accent", cordon: "wait",
};

/** Return the colour of a phase. */
export const phaseColor = (phase) => color(PHASE_COLORS[phase] ?? "off");

const hashes = new Map();

/** Return a colour for a job, a queue or a user: the same one wherever it is drawn. */
export function colorOf(text) {
  let hue = hashes.get(text);
  if (hue === undefined) {
    let hash = 2166136261;
    for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 16777619);
    // Multiples of the golden angle lie far from each other.
    hue = ((hash >>> 0) % 360) * 137.508 % 360;
    hashes.set(text, hue);
  }
  return `oklch(0.66 0.13 ${hue.toFixed(0)})`;
}
