// Tables with headings that sort, and pages.

import { h } from "./dom.js";

/**
 * A table. `columns` are `{ name, cell, kind, sort }`: `cell(row)` gives the content, `kind` the class of the column, `sort`
 * the order that its heading asks for. `sorted` is the order of the rows, `onsort` is called with another.
 */
export function table({ label, columns, rows, sorted, onsort, empty = "none" }) {
  const heading = (column) => {
    if (!column.sort) return h("th", { scope: "col", class: column.kind }, column.name);
    const is = column.sort === sorted;
    const button = h("button", { type: "button", "data-key": `sort-${column.sort}`, onclick: () => onsort(column.sort) }, column.name);
    return h("th", { scope: "col", class: column.kind, "aria-sort": is ? (column.sort === "row" ? "ascending" : "descending") : null }, button);
  };
  const body = rows.length
    ? rows.map((row) => h("tr", {}, columns.map((column) => h("td", { class: column.kind }, column.cell(row)))))
    : h("tr", {}, h("td", { colspan: columns.length, class: "soft" }, empty));
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    h("table", {}, h("thead", {}, h("tr", {}, columns.map(heading))), h("tbody", {}, body)),
  );
}

/** Buttons to the pages of a list. */
export function pager({ total, offset, limit, shown, onpage, what }) {
  const first = total === 0 ? 0 : offset + 1;
  return h(
    "div",
    { class: "pager" },
    h("span", {}, `${first.toLocaleString()}–${(offset + shown).toLocaleString()} of ${total.toLocaleString()} ${what}`),
    h("span", { class: "grow" }),
    h("button", { class: "plain", "data-key": "back", disabled: offset === 0, onclick: () => onpage(Math.max(0, offset - limit)) }, "Previous"),
    h("button", { class: "plain", "data-key": "next", disabled: offset + shown >= total, onclick: () => onpage(offset + limit) }, "Next"),
  );
}

/** A number, paler if it is nothing. */
export function number(value, format) {
  return h("span", { class: value ? null : "zero" }, format(value));
}
