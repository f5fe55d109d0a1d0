// Icons of 16 by 16 units, drawn with one stroke in the colour of the text.

import { svg } from "./elements.js";

const PATHS = {
  overview: "M2 9.5h3v4H2zM6.5 5.5h3v8h-3zM11 2.5h3v11h-3z",
  jobs: "M2.5 3.5h11M2.5 8h11M2.5 12.5h7",
  queues: "M8 2.5v4M3.5 13.5v-3.5h9v3.5M8 6.5v3.5M6.5 2.5h3",
  nodes: "M2.5 2.5h4.5v4.5H2.5zM9 2.5h4.5v4.5H9zM2.5 9h4.5v4.5H2.5zM9 9h4.5v4.5H9z",
  timeline: "M2.5 4h6M5.5 8h8M3.5 12h5",
  fork: "M4.5 2.5v11M4.5 9c0-3 7-1.5 7-5M9.5 5l2-2 2 2",
  studies: "M6.5 2.5h3M7 2.5v4l-3.8 6a.7.7 0 0 0 .6 1h8.4a.7.7 0 0 0 .6-1L9 6.5v-4M5 10.5h6",
  incidents: "M8 2.5 14 13.5H2zM8 6.5v3.5M8 11.8v.2",
  settings: "M2.5 4.5h6M11.5 4.5h2M10 3v3M2.5 11.5h2M7.5 11.5h6M6 10v3",
  search: "M7 12a5 5 0 1 0 0-10 5 5 0 0 0 0 10zM10.6 10.6 14 14",
  sun: "M8 10.8a2.8 2.8 0 1 0 0-5.6 2.8 2.8 0 0 0 0 5.6zM8 1.5v1.3M8 13.2v1.3M1.5 8h1.3M13.2 8h1.3M3.4 3.4l.9.9M11.7 11.7l.9.9M3.4 12.6l.9-.9M11.7 4.3l.9-.9",
  moon: "M13 9.6A5.5 5.5 0 0 1 6.4 3 5.5 5.5 0 1 0 13 9.6z",
  auto: "M8 13.5a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11zM8 2.5v11M8 5h3.5M8 8h5M8 11h3.5",
  help: "M5.8 6a2.2 2.2 0 1 1 3.4 1.8c-.8.5-1.2.9-1.2 1.7M8 12v.2",
  play: "M5 3.5v9l7-4.5z",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  back: "M10 3.5 5.5 8l4.5 4.5",
  forward: "M6 3.5 10.5 8 6 12.5",
  zoomIn: "M7 11a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM10 10l3.5 3.5M7 5.4v3.2M5.4 7h3.2",
  zoomOut: "M7 11a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM10 10l3.5 3.5M5.4 7h3.2",
  all: "M2.5 4v8M13.5 4v8M4.5 8h7M6.5 6l-2 2 2 2M9.5 6l2 2-2 2",
};

/** Return an icon; it is decoration, so its button or link needs a name of its own. */
export function icon(name) {
  return svg("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, svg("path", { d: PATHS[name] }));
}
