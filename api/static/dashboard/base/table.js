// Tables: columns declared once, rows updated by key, the order kept in the address (`sort=-age`).

import { el, patch } from "./elements.js";
import { address, setQuery } from "./router.js";

/**
 * `cell(row, data)` returns the content; `sort(row)` the value to sort by, absent if the column cannot
 * be sorted. `style` is the class of its cells: number, wide (hidden on phones), name, note.
 * @typedef {Object} Column
 * @property {string} key
 * @property {string} name
 * @property {string} [style]
 * @property {(row: any, data: any) => any} cell
 * @property {(row: any) => number|string|null} [sort]
 * @property {HTMLElement} [heading]  in place of the name
 */

/**
 * Return a table. `keyOf(row)` is unique; `rowClass(row)` and `rowStyle(row)` are optional.
 * @param {{columns: Column[], keyOf: (row: any) => string, label: string, empty?: any}} options
 */
export function makeTable({ columns, keyOf, label, empty = "Nothing here.", rowClass = () => null, rowStyle = () => null }) {
  const body = el("tbody");
  // A header without a name would be read as an empty one.
  const heads = columns.map((column) => (column.name ? el("th", { scope: "col", class: column.style }, head(column)) : el("td", { class: column.style })));
  const table = el("table", { "aria-label": label }, el("thead", {}, el("tr", {}, heads)), body);
  const none = el("div", { class: "empty", hidden: true }, empty);
  const element = el("div", { class: "scroll", tabindex: "-1" }, table, none);

  /** Show rows; `data` is passed to the cells. Without a chosen order they stay as they are. */
  function show(rows, data) {
    const order = orderOf(columns);
    columns.forEach((column, i) => {
      if (order?.column === column) heads[i].setAttribute("aria-sort", order.isDown ? "descending" : "ascending");
      else heads[i].removeAttribute("aria-sort");
    });
    patch(body, (order ? sorted(rows, order) : rows).map((row) => line(row, data)));
    table.hidden = rows.length === 0;
    none.hidden = rows.length > 0;
  }

  const line = (row, data) => el("tr", { "data-key": keyOf(row), class: rowClass(row), style: rowStyle(row) ?? {} },
    columns.map((column) => el("td", { class: column.style }, column.cell(row, data))));

  return { element, show, setEmpty: (...content) => none.replaceChildren(...content) };
}

const head = ({ key, name, sort, heading }) => heading ?? (sort ? el("button", { type: "button", onclick: () => turn(key) }, name) : name);

/** Sort by a column; again: the other way; a third time: no order. */
function turn(key) {
  const now = address().query.get("sort");
  setQuery({ sort: { [key]: `-${key}`, [`-${key}`]: null }[now] ?? (now === `-${key}` ? null : key) });
}

function orderOf(columns) {
  const wanted = address().query.get("sort") ?? "";
  const column = columns.find(({ key, sort }) => sort && key === wanted.replace(/^-/, ""));
  return column ? { column, isDown: wanted.startsWith("-") } : null;
}

// Rows without a value come last in both directions.
function sorted(rows, { column, isDown }) {
  const keyed = rows.map((row) => [column.sort(row), row]);
  const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b) : a - b);
  keyed.sort(([a], [b]) => (a === null ? (b === null ? 0 : 1) : b === null ? -1 : compare(a, b) * (isDown ? -1 : 1)));
  return keyed.map(([, row]) => row);
}
