// A stacked area chart over time with an optional band for the future, drawn as SVG. The colours are
// those of the style sheet, a pointer shows the numbers of a bin, and a click looks at that instant.

import { el, setShown, svg } from "../base/elements.js";
import { clockTime, number } from "../base/format.js";
import { lookAt } from "../instant.js";
import { linear, timeTicks, valueTicks } from "./scale.js";

const LEFT = 44, RIGHT = 8, TOP = 8, BOTTOM = 22;

/**
 * @typedef {Object} StackData
 * @property {number} from  begin of the first bin
 * @property {number} bin_s
 * @property {Object<string, number[]>} values  by key of the series, one per bin
 * @property {number} until  right end of the axis
 * @property {number|null} cursor  the instant that is looked at
 * @property {{from: number, bin_s: number, p10: number[], p50: number[], p90: number[], now: number, current: number}|null} [future]
 *   bins of the forecast; its lines begin at the instant `now` with the level `current`
 * @property {number[]} [line]  a line over the areas
 * @property {number} [top]  what the vertical axis has to reach, so that several charts are alike
 */

/**
 * Return a chart. A series is drawn above those before it; `color` is a token of the style sheet.
 * @param {{label: string, height?: number, series: {key: string, name: string, color: string}[], unit?: string,
 *   line?: {name: string, color: string}}} options
 */
export function makeStack({ label, height = 190, series, unit = "", line = null, lookable = true }) {
  const drawing = svg("svg", { class: "chart", role: "img", "aria-label": label, height });
  const hint = el("div", { class: "hint", hidden: true });
  const element = el("div", { class: "stage" }, drawing, hint);
  /** @type {{data: StackData|null, x: any, width: number}} */
  const state = { data: null, x: null, width: 0 };

  new ResizeObserver(() => {
    if (drawing.clientWidth !== state.width) draw();
  }).observe(drawing);

  function draw() {
    const width = state.width = drawing.clientWidth;
    if (!state.data || width < 80) return;
    const { data } = state;
    drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const x = state.x = linear(data.from, data.until, width - LEFT - RIGHT);
    const sums = stacked(series, data);
    const tops = [...(sums.at(-1)?.tops ?? [0]), ...(data.future?.p90 ?? []), ...(data.line ?? [])];
    const ticks = valueTicks(Math.max(...tops, data.top ?? 0));
    const y = linear(ticks.at(-1), 0, height - TOP - BOTTOM);
    drawing.replaceChildren(
      svg("g", { transform: `translate(${LEFT} ${TOP})` },
        grid(ticks, y, width), times(data, x, width, height),
        sums.map(({ color, path }) => svg("path", { d: path(x, y), style: { fill: `var(--${color})` } })),
        data.future?.p50.length > 0 && futureOf(data.future, x, y),
        data.line && line && svg("path", { class: "line", d: polyline(data.line, data, x, y), style: { stroke: `var(--${line.color})` } }),
        data.future && svg("line", { class: "now", x1: x(pastEnd()), x2: x(pastEnd()), y1: 0, y2: height - TOP - BOTTOM }),
        data.cursor !== null && marker(x(Math.min(data.cursor, data.until)), height)));
  }

  drawing.addEventListener("pointermove", (event) => {
    const at = timeOf(event);
    setShown(hint, at !== null);
    if (at === null) return;
    hint.replaceChildren(...linesAt(at).map((text) => el("div", {}, text)));
    const left = event.clientX - drawing.getBoundingClientRect().left;
    hint.style.left = `${left > state.width / 2 ? left - hint.offsetWidth - 14 : left + 14}px`;
    hint.style.top = "8px";
  });
  drawing.addEventListener("pointerleave", () => setShown(hint, false));
  if (lookable) drawing.addEventListener("click", (event) => {
    const at = timeOf(event);
    if (at !== null && at < pastEnd()) lookAt(at);
  });

  const pastEnd = () => state.data.from + state.data.bin_s * (state.data.values[series[0].key]?.length ?? 0);

  function timeOf(event) {
    if (!state.data || !state.x) return null;
    const at = state.x.invert(event.clientX - drawing.getBoundingClientRect().left - LEFT);
    return at >= state.data.from && at <= state.data.until ? at : null;
  }

  function linesAt(at) {
    const { data } = state, bin = Math.floor((at - data.from) / data.bin_s), head = `${clockTime(at)} UTC`;
    if (at >= pastEnd()) {
      const next = data.future && Math.min(data.future.p50.length - 1, Math.floor((at - data.future.from) / data.future.bin_s));
      return data.future ? [head, `expected ${number(data.future.p50[next])}, ${number(data.future.p10[next])} to ${number(data.future.p90[next])}${unit}`] : [head];
    }
    const texts = series.map(({ key, name }) => [name, data.values[key]?.[bin] ?? 0]).reverse().filter(([, value]) => value > 0);
    return [head, ...texts.map(([name, value]) => `${name}: ${number(value)}${unit}`), ...(data.line && line ? [`${line.name}: ${number(data.line[bin] ?? 0)}${unit}`] : [])];
  }

  return {
    element,
    /** @param {StackData} data */
    show(data) {
      state.data = data;
      draw();
    },
  };
}

/** Return, for each series, the tops of its bins and a function that makes its path. */
function stacked(series, { values, from, bin_s: length }) {
  const bins = Math.max(0, ...series.map(({ key }) => values[key]?.length ?? 0));
  let below = new Array(bins).fill(0);
  return series.map(({ key, color }) => {
    const floor = below, tops = below.map((low, i) => low + (values[key]?.[i] ?? 0));
    below = tops;
    const step = (x, y, levels, isBack) => {
      const edges = levels.flatMap((level, i) => [[from + i * length, level], [from + (i + 1) * length, level]]);
      return (isBack ? edges.reverse() : edges).map(([at, level]) => `${x(at).toFixed(1)} ${y(level).toFixed(1)}`).join("L");
    };
    return { color, tops, path: (x, y) => (bins ? `M${step(x, y, tops, false)}L${step(x, y, floor, true)}Z` : "") };
  });
}

const polyline = (levels, { from, bin_s: length }, x, y) =>
  levels.map((level, i) => (level === null ? "" : `${i && levels[i - 1] !== null ? "L" : "M"}${x(from + (i + 0.5) * length).toFixed(1)} ${y(level).toFixed(1)}`)).join("");

const grid = (ticks, y, width) => ticks.map((tick) => [
  svg("line", { class: "grid", x1: 0, x2: width - LEFT - RIGHT, y1: y(tick), y2: y(tick) }),
  svg("text", { class: "label", x: -8, y: y(tick) + 4, "text-anchor": "end" }, number(tick)),
]);

function times({ from, until }, x, width, height) {
  return timeTicks(from, until, Math.max(2, width / 110)).map(({ at, text }) =>
    svg("text", { class: "label", x: x(at), y: height - TOP - 5, "text-anchor": "middle" }, text));
}

function futureOf({ from, bin_s: length, p10, p50, p90, now, current }, x, y) {
  const begin = `${x(now).toFixed(1)} ${y(current).toFixed(1)}`;
  const points = (levels) => levels.map((level, i) => [from + (i + 0.5) * length, level]).filter(([at]) => at > now)
    .map(([at, level]) => `${x(at).toFixed(1)} ${y(level).toFixed(1)}`);
  return [
    svg("path", { class: "band", d: `M${[begin, ...points(p90), ...points(p10).reverse()].join("L")}Z` }),
    svg("path", { class: "line future", d: `M${[begin, ...points(p50)].join("L")}` }),
  ];
}

const marker = (x, height) => svg("line", { class: "cursor", x1: x, x2: x, y1: 0, y2: height - TOP - BOTTOM });

/** Return the legend of series. */
export const legendOf = (series) => el("div", { class: "legend" },
  [...series].reverse().map(({ name, color }) => el("span", {}, el("i", { style: { background: `var(--${color})` } }), name)));
