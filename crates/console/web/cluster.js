// The cluster: its servers, and the owner of each part of each table.

import { get } from "./api.js";
import { h, replace, tag } from "./dom.js";
import * as f from "./format.js";
import { number, pager, table } from "./table.js";

const LIMIT = 30;
const COLOURS = 6;
const KINDS = { "silent": "bad", "ended": "warn", "drains": "warn" };

export const clusterPage = {
  title: "Cluster",
  every: 5_000,
  mount(root) {
    const wanted = { offset: 0, limit: LIMIT };
    const refresh = async () => {
      const answer = await get("cluster", wanted);
      replace(root, head(answer), trouble(answer), findings(answer.check), servers(answer), map(answer, wanted, refresh), waiting(answer));
    };
    replace(root, h("div", { class: "head" }, h("h1", {}, "Cluster")));
    return refresh;
  },
};

function head(answer) {
  const lives = answer.servers.filter((server) => !KINDS[server.state] || server.state === "drains").length;
  return h("div", { class: "head" }, h("h1", {}, "Cluster"), h("span", { class: "sub" }, `${f.plural(lives, "server")} · ${f.plural(answer.tablets, "tablet")} · ${checked(answer.check)}`));
}

/** The age of the last check in words. */
function checked(check) {
  if (check.ago === null) return "not checked yet";
  return `${f.plural(check.files, "file")} checked ${check.ago} s ago`;
}

/** Contradictions between the catalog, tablets and files. */
function findings(check) {
  if (check.findings.length === 0) return null;
  const more = check.more > 0 ? h("li", {}, `and ${check.more} more`) : null;
  return h("div", { class: "alert", role: "alert" }, h("b", {}, "The check of the cluster found contradictions"), h("ul", {}, check.findings.map((finding) => h("li", {}, finding)), more));
}

function trouble(answer) {
  if (answer.unsettled === 0) return null;
  const verb = answer.unsettled === 1 ? "is" : "are";
  return h("div", { class: "alert", role: "alert" }, h("b", {}, `${f.plural(answer.unsettled, "tablet")} ${verb} not served, or ${answer.unsettled === 1 ? "moves" : "move"}`));
}

/** The place of a server's colour: servers in the order of their numbers, so that a colour stays while none comes or goes. */
function places(answer) {
  return new Map(answer.servers.map((server, at) => [server.server, at]));
}

/** The mark of a server: its colour, and after the last colour its hatching. */
function mark(at) {
  return at === undefined ? "owner none" : `owner o${(at % COLOURS) + 1}${at % (2 * COLOURS) >= COLOURS ? " hatched" : ""}`;
}

function servers(answer) {
  const place = places(answer);
  const link = (server) => (server.http ? h("span", { class: "k" }, server.http) : h("span", { class: "soft" }, "–"));
  return h(
    "section",
    { class: "panel" },
    h("header", {}, h("h2", {}, "Servers")),
    table({
      label: "Servers",
      columns: [
        { name: "server", cell: (row) => [h("span", { class: mark(place.get(row.server)) }), ` ${row.server}`], kind: "w" },
        { name: "state", cell: (row) => tag(row.state, KINDS[row.state] ?? "") },
        { name: "tablets", cell: (row) => number(row.tablets, f.count), kind: "n" },
        { name: "memtables", cell: (row) => number(row.memtable_bytes, f.bytes), kind: "n" },
        { name: "log", cell: (row) => number(row.log_bytes, f.bytes), kind: "n" },
        { name: "Bigtable", cell: (row) => row.bigtable || "–", kind: "k opt" },
        { name: "HBase", cell: (row) => row.hbase || "–", kind: "k opt" },
        { name: "console", cell: link, kind: "w opt" },
        { name: "version", cell: (row) => row.version || "–", kind: "soft opt" },
      ],
      rows: answer.servers,
    }),
  );
}

function map(answer, wanted, refresh) {
  const place = places(answer);
  return h(
    "section",
    { class: "panel" },
    h("header", {}, h("h2", {}, "Owners of tablets"), h("span", { class: "soft" }, "each bar is a table, from its first row to its last")),
    table({
      label: "Owners of tablets",
      columns: [
        { name: "table", cell: (row) => h("a", { href: `#/table?name=${encodeURIComponent(row.table)}` }, row.table), kind: "w" },
        { name: "tablets", cell: (row) => number(row.tablets, f.count), kind: "n" },
        { name: "size", cell: (row) => number(row.bytes, f.bytes), kind: "n opt" },
        { name: "owners", cell: (row) => strip(row, place), kind: "strip-cell" },
      ],
      rows: answer.tables,
      empty: "there are no tables yet",
    }),
    pager({ ...wanted, total: answer.total, shown: answer.tables.length, what: "tables", onpage: (offset) => ((wanted.offset = offset), refresh()) }),
  );
}

function strip(row, place) {
  const cell = (group) => {
    const owner = group.server === null ? "no server" : `server ${group.server}`;
    const title = `${f.plural(group.tablets, "tablet")} from ${group.start === "" ? "−∞" : group.start}: ${owner}${group.unsettled ? `, ${group.unsettled} not settled` : ""}`;
    const classes = `${mark(place.get(group.server))}${group.unsettled ? " unsettled" : ""}`;
    return h("span", { class: classes, title, css: { flexGrow: group.tablets } });
  };
  return h("div", { class: "strip", role: "img", "aria-label": `owners of ${row.table}: ${summary(row)}` }, row.cells.map(cell));
}

/** The same in words: how many tablets have which owner. */
function summary(row) {
  const counts = new Map();
  for (const group of row.cells) counts.set(group.server, (counts.get(group.server) ?? 0) + group.tablets);
  return [...counts].map(([server, tablets]) => `${server === null ? "no server" : `server ${server}`} has about ${tablets}`).join(", ");
}

function waiting(answer) {
  if (answer.waiting.length === 0) return null;
  return h(
    "section",
    { class: "panel" },
    h("header", {}, h("h2", {}, "Tablets that wait"), answer.unsettled > answer.waiting.length ? h("span", { class: "soft" }, `the first ${answer.waiting.length}`) : null),
    table({
      label: "Tablets that wait",
      columns: [
        { name: "tablet", cell: (row) => row.tablet, kind: "w" },
        { name: "table", cell: (row) => row.table },
        { name: "rows from", cell: (row) => (row.start === "" ? h("span", { class: "soft" }, "−∞") : row.start), kind: "k opt" },
        { name: "server", cell: (row) => row.owner ?? "–", kind: "n" },
        { name: "moves to", cell: (row) => row.to ?? "–", kind: "n opt" },
        { name: "waits for", cell: (row) => row.waits_for || "its owner" },
        { name: "seconds", cell: (row) => row.waited, kind: "n" },
      ],
      rows: answer.waiting,
    }),
  );
}
