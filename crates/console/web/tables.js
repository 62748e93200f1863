// Lists of tables and of tablets.

import { get } from "./api.js";
import { h, panel, replace, tag } from "./dom.js";
import * as f from "./format.js";
import { number, pager, table } from "./table.js";

const LIMIT = 100;

function link(name) {
  return h("a", { href: `#/table?name=${encodeURIComponent(name)}` }, name);
}

function heatLink(name) {
  return h("a", { href: `#/heat?table=${encodeURIComponent(name)}`, "aria-label": `heat of ${name}` }, "heat");
}

function rowsLink(name) {
  return h("a", { href: `#/rows?table=${encodeURIComponent(name)}`, "aria-label": `rows of ${name}` }, "rows");
}

export const tablesPage = {
  title: "Tables",
  every: 5_000,
  mount(root, query) {
    const wanted = { search: query.get("search") ?? "", offset: 0, limit: LIMIT };
    const list = h("div");
    const refresh = async () => {
      const answer = await get("tables", wanted);
      replace(list, tableList(answer, wanted, refresh));
    };
    const search = h("input", {
      type: "search",
      placeholder: "Search tables",
      "aria-label": "Search tables",
      value: wanted.search,
      oninput: () => {
        wanted.search = search.value;
        wanted.offset = 0;
        refresh();
      },
    });
    replace(root, h("div", { class: "head" }, h("h1", {}, "Tables"), h("span", { class: "grow" }), search), list);
    return refresh;
  },
};

function tableList(answer, wanted, refresh) {
  const flags = (row) => [
    row.enabled ? null : tag("disabled", "warn"),
    row.read_only ? tag("read only", "warn") : null,
    row.protected ? tag("protected") : null,
    row.waiting > 0 ? tag(`${row.waiting} waiting`) : null,
    row.served < row.tablets ? tag(`${row.tablets - row.served} elsewhere`) : null,
  ];
  return h(
    "section",
    { class: "panel" },
    table({
      label: "Tables",
      columns: [
        { name: "table", cell: (row) => link(row.table) },
        { name: "state", cell: flags },
        { name: "tablets", cell: (row) => row.tablets.toLocaleString(), kind: "n" },
        { name: "size", cell: (row) => number(row.bytes, f.bytes), kind: "n" },
        { name: "memtables", cell: (row) => number(row.memtable_bytes, f.bytes), kind: "n opt" },
        { name: "files", cell: (row) => number(row.files, f.count), kind: "n opt" },
        { name: "debt", cell: (row) => number(row.debt_bytes, f.bytes), kind: "n opt" },
        { name: "rows read", cell: (row) => number(row.reads, f.perSecond), kind: "n" },
        { name: "rows written", cell: (row) => number(row.writes, f.perSecond), kind: "n" },
        { name: "families", cell: (row) => families(row), kind: "soft opt" },
        { name: "", cell: (row) => [rowsLink(row.table), " ", heatLink(row.table)], kind: "w opt" },
      ],
      rows: answer.tables,
      empty: wanted.search ? "no table has this in its name" : "there are no tables yet",
    }),
    pager({ ...wanted, total: answer.total, shown: answer.tables.length, what: "tables", onpage: (offset) => ((wanted.offset = offset), refresh()) }),
  );
}

function families(row) {
  const shown = row.families.slice(0, 6).join(", ");
  return row.family_count > 6 ? `${shown} and ${row.family_count - 6} more` : shown;
}

/** Tablets of one table. */
export const tablePage = {
  title: "Table",
  every: 5_000,
  mount(root, query) {
    return mountTablets(root, query.get("name") ?? "", "row");
  },
};

/** Tablets of all tables. */
export const tabletsPage = {
  title: "Tablets",
  every: 5_000,
  mount(root) {
    return mountTablets(root, "", "busy");
  },
};

function mountTablets(root, name, sort) {
  const wanted = { table: name, sort, offset: 0, limit: LIMIT };
  const list = h("div");
  const refresh = async () => {
    const answer = await get("tablets", wanted);
    replace(list, tabletList(answer, wanted, refresh));
  };
  const title = name
    ? [h("span", { class: "crumbs" }, h("a", { href: "#/tables" }, "Tables"), " /"), h("h1", {}, name), h("span", { class: "grow" }), heatLink(name)]
    : [h("h1", {}, "Tablets"), h("span", { class: "sub" }, "of all tables; the headings choose the order")];
  replace(root, h("div", { class: "head" }, title), list);
  return refresh;
}

function tabletList(answer, wanted, refresh) {
  const columns = [
    { name: "tablet", cell: (row) => h("a", { href: `#/tablet?id=${row.id}` }, row.id), kind: "w" },
    wanted.table ? null : { name: "table", cell: (row) => link(row.table) },
    { name: "rows from", cell: (row) => (row.start === "" ? h("span", { class: "soft" }, "−∞") : row.start), kind: "k", sort: "row" },
    { name: "to", cell: (row) => row.end ?? h("span", { class: "soft" }, "∞"), kind: "k opt" },
    { name: "size", cell: (row) => number(row.bytes, f.bytes), kind: "n", sort: "size" },
    { name: "memtables", cell: (row) => number(row.memtable_bytes, f.bytes), kind: "n opt", sort: "memory" },
    { name: "runs", cell: (row) => number(row.runs, f.count), kind: "n opt" },
    { name: "files", cell: (row) => number(row.files, f.count), kind: "n opt", sort: "files" },
    { name: "debt", cell: (row) => number(row.debt_bytes, f.bytes), kind: "n opt", sort: "debt" },
    { name: "rows read", cell: (row) => number(row.reads, f.perSecond), kind: "n", sort: "busy" },
    { name: "written", cell: (row) => number(row.writes, f.perSecond), kind: "n" },
    { name: "state", cell: states, sort: "waits" },
    { name: "owner", cell: owner, kind: "w opt" },
  ].filter((column) => column);
  return h(
    "section",
    { class: "panel" },
    table({
      label: "Tablets",
      columns,
      rows: answer.tablets,
      sorted: wanted.sort,
      onsort: (sort) => ((wanted.sort = sort), (wanted.offset = 0), refresh()),
      empty: "there are no tablets yet",
    }),
    pager({ ...wanted, total: answer.total, shown: answer.tablets.length, what: "tablets", onpage: (offset) => ((wanted.offset = offset), refresh()) }),
  );
}

function owner(row) {
  if (row.place === "here") return h("span", { class: "soft" }, `this server, epoch ${row.epoch}`);
  return tag(row.place, row.place === "damaged" ? "bad" : "");
}

/** The waits of a tablet, with their times. */
export function states(row) {
  return row.waits.map(({ wait, seconds }) => {
    const kind = wait.endsWith("failing") ? "bad" : wait === "writes slowed" ? "warn" : "";
    return tag(`${wait} ${f.duration(seconds)}`, kind);
  });
}

/** The facts of a list in a panel, for other pages. */
export function factsPanel(title, facts) {
  return panel(title, h("dl", { class: "facts" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))));
}
