// The map of nodes: a cell per GPU, a box per node, a block per rack, on a canvas, so that 10,000 GPUs
// are drawn in a few milliseconds.
//
// Racks flow from left to right like words. The cells are as large as the number of GPUs allows.

import { el, setShown } from "../base/elements.js";
import { count, number } from "../base/format.js";
import { go, nodeLink } from "../base/router.js";
import { color } from "../base/theme.js";
import { makeCanvas } from "./canvas.js";
import { colorOf } from "./colors.js";

const SIZES = [14, 11, 9, 7, 5];
const HEIGHT_MAX = 620;
const TITLE = 18;

/**
 * Return the map. `show(nodes, holders)` draws, with the job of each device as far as it is known;
 * `mark(text)` dims nodes without that text in name or jobs.
 */
export function makeNodeMap() {
  const state = { nodes: [], holders: new Map(), boxes: [], titles: [], marked: "", cell: SIZES[0] };
  const hint = el("div", { class: "hint", hidden: true });
  const canvas = makeCanvas({
    height: (width) => layOut(state, width), draw,
    attributes: { class: "nodemap", role: "img" },
  });

  function draw(context) {
    context.font = `600 11px ${getComputedStyle(canvas.element).fontFamily}`;
    context.fillStyle = color("dim");
    for (const { text, x, y, width } of state.titles) context.fillText(cut(context, text, width), x, y);
    for (const box of state.boxes) drawNode(context, box, state);
  }

  const boxAt = (event) => {
    const { left, top } = canvas.element.getBoundingClientRect();
    const x = event.clientX - left, y = event.clientY - top;
    return { x, y, box: state.boxes.find((b) => x >= b.x - 2 && x <= b.x + b.width + 2 && y >= b.y - 2 && y <= b.y + b.height + 2) };
  };
  canvas.element.addEventListener("pointermove", (event) => {
    const { x, y, box } = boxAt(event);
    setShown(hint, Boolean(box));
    if (!box) return;
    hint.replaceChildren(...describe(box.node).map((line) => el("div", {}, line)));
    hint.style.left = `${Math.min(x + 14, canvas.size().width - hint.offsetWidth)}px`;
    hint.style.top = `${y + 16}px`;
  });
  canvas.element.addEventListener("pointerleave", () => setShown(hint, false));
  canvas.element.addEventListener("click", (event) => {
    const { box } = boxAt(event);
    if (box) go(nodeLink(box.node.name));
  });

  return {
    element: el("div", { class: "stage" }, canvas.element, hint),
    show(nodes, holders) {
      Object.assign(state, { nodes, holders });
      canvas.element.setAttribute("aria-label", summary(nodes));
      canvas.redraw();
    },
    mark(text) {
      state.marked = text.toLowerCase();
      canvas.redraw();
    },
  };
}

function summary(nodes) {
  const used = nodes.reduce((sum, node) => sum + node.gpus_used, 0), all = nodes.reduce((sum, node) => sum + node.gpus, 0);
  const lost = nodes.filter((node) => !node.ready).length;
  return `Map of ${count(nodes.length, "node")}: ${number(used)} of ${count(all, "GPU")} in use${lost ? `, ${count(lost, "node")} lost` : ""}. The table of nodes has the same.`;
}

/** Place every node; return the height. Smaller cells are tried until the map is low enough. */
function layOut(state, width) {
  const racks = new Map();
  for (const node of state.nodes) racks.set(node.rack, [...(racks.get(node.rack) ?? []), node]);
  for (const cell of SIZES) {
    const height = flow(state, racks, width, cell);
    if (height <= HEIGHT_MAX || cell === SIZES.at(-1)) return height;
  }
}

function flow(state, racks, width, cell) {
  Object.assign(state, { boxes: [], titles: [], cell });
  let x = 0, y = 0, low = 0;
  for (const [rack, nodes] of racks) {
    const block = blockOf(nodes, cell, width);
    if (x > 0 && x + block.width > width) [x, y] = [0, y + low + 14];
    if (x === 0) low = 0;
    state.titles.push({ text: rack || "no rack", x, y: y + 12, width: block.width + 6 });
    for (const box of block.boxes) state.boxes.push({ ...box, x: x + box.x, y: y + TITLE + box.y });
    low = Math.max(low, TITLE + block.height);
    x += block.width + 18;
  }
  return y + low + 4;
}

/** Place the nodes of one rack as near to a square as they come. */
function blockOf(nodes, cell, width) {
  const across = (node) => Math.min(node.gpus || 1, node.gpus > 16 ? 16 : 8);
  const one = (node) => ({ width: across(node) * cell + 4, height: Math.ceil((node.gpus || 1) / across(node)) * cell + 4 });
  const widest = Math.max(...nodes.map((node) => one(node).width)) + 4;
  const columns = Math.max(1, Math.min(Math.floor(width / widest), Math.ceil(Math.sqrt((nodes.length * (cell + 8)) / widest))));
  const boxes = [];
  let y = 0, low = 0;
  nodes.forEach((node, i) => {
    if (i && i % columns === 0) [y, low] = [y + low + 4, 0];
    const size = one(node);
    boxes.push({ node, x: (i % columns) * widest, y, ...size, across: across(node) });
    low = Math.max(low, size.height);
  });
  return { boxes, width: Math.min(columns, nodes.length) * widest - 4, height: y + low };
}

function drawNode(context, { node, x, y, width, height, across }, { cell, marked, holders }) {
  const isDim = marked && !`${node.name} ${node.rack} ${node.jobs.join(" ")}`.toLowerCase().includes(marked);
  context.globalAlpha = isDim ? 0.18 : 1;
  context.fillStyle = color("tint");
  context.beginPath();
  context.roundRect(x, y, width, height, 3);
  context.fill();
  const fills = cellsOf(node, holders.get(node.name));
  for (let i = 0; i < node.gpus; i++) {
    context.fillStyle = fills[i];
    context.fillRect(x + 2 + (i % across) * cell + 0.5, y + 2 + Math.floor(i / across) * cell + 0.5, cell - 1, cell - 1);
  }
  if (!node.ready || node.cordoned) {
    context.strokeStyle = color(node.ready ? "wait" : "bad");
    context.lineWidth = 1.5;
    context.stroke();
  }
  context.globalAlpha = 1;
}

/** Return the colour of each GPU of a node; of devices whose holders are not known, the first are used. */
function cellsOf(node, held) {
  if (!node.ready) return new Array(node.gpus).fill(color("bad-tint"));
  if (held) return Array.from({ length: node.gpus }, (_, i) => (held[i] ? colorOf(held[i]) : color("free")));
  const used = node.gpus - node.gpus_free, fill = node.jobs.length === 1 ? colorOf(node.jobs[0]) : color("used");
  return Array.from({ length: node.gpus }, (_, i) => (i < used ? fill : color("free")));
}

function describe(node) {
  const state = !node.ready ? ", lost" : node.cordoned ? ", cordoned" : "";
  const jobs = node.jobs.slice(0, 5);
  if (node.jobs.length > jobs.length) jobs.push(`and ${node.jobs.length - jobs.length} more`);
  return [`${node.name}: ${number(node.ready ? node.gpus_used : 0)} of ${count(node.gpus, "GPU")} in use${state}`, node.message, ...jobs].filter(Boolean);
}

function cut(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let length = text.length;
  while (length > 1 && context.measureText(`${text.slice(0, length)}…`).width > width) length--;
  return `${text.slice(0, length)}…`;
}

/** Return what the colours of the map mean. */
export const mapLegend = () => el("div", { class: "legend" },
  [["used", "in use, coloured by job"], ["", "free"], ["lost", "lost"], ["cordoned", "cordoned"]].map(([name, text]) => el("span", {}, el("i", { class: name }), text)));
