// Scales and ticks, shared by the time axis and all charts.

const TIME_STEPS = [1, 5, 15, 30, 60, 300, 900, 1800, 3600, 10800, 21600, 43200, 86400, 172800, 604800, 2592000];

/** Return a function from [from, to] to [0, size], with `invert` for the way back. */
export function linear(from, to, size) {
  const length = to - from || 1;
  const scale = (value) => ((value - from) / length) * size;
  scale.invert = (x) => from + (x / size) * length;
  return scale;
}

/** Return the instants of ticks, and how each is written: `{at, text, isDay}`. */
export function timeTicks(from, to, countMax) {
  const step = TIME_STEPS.find((each) => (to - from) / each <= countMax) ?? Math.ceil((to - from) / countMax / 2592000) * 2592000;
  const ticks = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) ticks.push({ at, ...tickText(at, step) });
  return ticks;
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

function tickText(at, step) {
  const date = new Date(at * 1000), isDay = at % 86400 === 0;
  if (isDay || step >= 86400) return { text: `${date.getUTCDate()} ${MONTHS[date.getUTCMonth()]}`, isDay: true };
  return { text: date.toISOString().slice(11, step < 60 ? 19 : 16), isDay: false };
}

/** Return round values from 0 to at least `max`. */
export function valueTicks(max, countMax = 4) {
  if (!(max > 0)) return [0, 1];
  const rough = max / countMax, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const ticks = [];
  for (let i = 0; i * step < max + step; i++) ticks.push(i * step);
  return ticks;
}
