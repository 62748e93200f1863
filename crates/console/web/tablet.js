// One tablet: memtables, runs, bloom filters, files, and its waits.

import { get } from "./api.js";
import { h, panel, replace, tag } from "./dom.js";
import * as f from "./format.js";
import { table } from "./table.js";
import { factsPanel, states } from "./tables.js";

export const tabletPage = {
  title: "Tablet",
  every: 3_000,
  mount(root, query) {
    const id = query.get("id") ?? "";
    const opened = new Set();
    return async () => {
      const tablet = await get("tablet", { id });
      replace(root, view(tablet, opened));
    };
  },
};

function view(tablet, opened) {
  const name = encodeURIComponent(tablet.table);
  return [
    h(
      "div",
      { class: "head" },
      h("span", { class: "crumbs" }, h("a", { href: "#/tables" }, "Tables"), " / ", h("a", { href: `#/table?name=${name}` }, tablet.table), " /"),
      h("h1", {}, `Tablet ${tablet.id}`),
      h("span", { class: "grow" }),
      h("a", { href: `#/heat?table=${name}` }, "heat of the table"),
    ),
    h("div", { class: "range" }, f.range(tablet.start, tablet.end)),
    tablet.flush_error ? h("div", { class: "alert bad", role: "alert" }, h("b", {}, "The last flush failed: "), tablet.flush_error) : null,
    factsPanel("Now", [
      ["state", tablet.waits.length ? states(tablet) : tag("nothing is waited for", "good")],
      ["rows read", `${f.perSecond(tablet.reads)} (${f.count(tablet.rows_read)} in all)`],
      ["rows written", `${f.perSecond(tablet.writes)} (${f.count(tablet.rows_written)} in all)`],
      ["mutations since opened", f.count(tablet.mutations)],
      ["files", `${f.bytes(tablet.bytes)} in ${f.plural(tablet.files, "file")}`],
      ["memtables", frozen(tablet)],
      ["compaction debt", f.bytes(tablet.debt_bytes)],
      ["expected garbage", f.percent(tablet.garbage_thousandths / 1000)],
      ["write pressure", tablet.compaction_pressure > 0 ? `${tablet.compaction_pressure} ‰, writes are slowed` : "none"],
      ["epoch", String(tablet.epoch)],
    ]),
    tablet.groups.map((group) => groupPanel(tablet, group, opened)),
  ].flat();
}

function frozen(tablet) {
  const waiting = tablet.frozen_bytes.reduce((sum, bytes) => sum + bytes, 0);
  const active = `${f.bytes(tablet.active_bytes)} active`;
  return waiting > 0 ? `${active}, ${f.bytes(waiting)} wait for a flush` : active;
}

function groupPanel(tablet, group, opened) {
  const most = Math.max(group.active_bytes, ...group.runs.map((run) => run.bytes), 1);
  const width = (bytes) => `${Math.max(0.6, (bytes / most) * 100).toFixed(2)}%`;
  const memory = h(
    "div",
    { class: "run" },
    h("span", { class: "soft" }, "memtable"),
    h("span", { class: "files", "aria-hidden": "true" }, h("i", { class: "memory", css: { width: width(group.active_bytes) } })),
    h("span", { class: "n soft" }, f.bytes(group.active_bytes)),
  );
  const runs = group.runs.map((run, at) => {
    const shown = run.files.reduce((sum, file) => sum + file.referenced, 0) || 1;
    const bars = run.files.map((file) =>
      h("i", {
        class: file.damaged ? "damaged" : run.is_bottom ? "bottom" : null,
        title: `${file.id}: ${f.bytes(file.referenced)}`,
        css: { width: `${((file.referenced / shown) * (run.bytes / most) * 100).toFixed(2)}%` },
      }),
    );
    return h(
      "div",
      { class: "run" },
      h("span", { class: "soft" }, run.is_bottom ? "bottom" : `run ${at + 1}`),
      h("span", { class: "files", "aria-hidden": "true" }, bars),
      h("span", { class: "n soft" }, f.bytes(run.bytes)),
    );
  });
  const title = tablet.groups.length > 1 || group.name ? `Locality group ${group.name || "default"}` : "Runs";
  const now = h("span", { class: "now" }, `${f.plural(group.run_count, "run")}, newest first`);
  return h("section", { class: "panel" }, [
    h("header", {}, h("h2", {}, title), now),
    h("div", { class: "body" }, h("div", { class: "tree" }, memory, runs)),
    group.runs.length ? [runTable(group), fileDetails(group, opened)] : null,
  ].flat());
}

function filters(run) {
  if (run.filter_bytes === 0) return h("span", { class: "soft" }, "none");
  const held = run.filter_bytes_held / run.filter_bytes;
  return held >= 1 ? f.bytes(run.filter_bytes) : `${f.bytes(run.filter_bytes_held)} of ${f.bytes(run.filter_bytes)}`;
}

function runTable(group) {
  return table({
    label: "Runs",
    columns: [
      { name: "run", cell: (row) => (row.is_bottom ? "bottom" : `run ${group.runs.indexOf(row) + 1}`), kind: "w" },
      { name: "files", cell: (row) => row.file_count, kind: "n" },
      { name: "size", cell: (row) => f.bytes(row.bytes), kind: "n" },
      { name: "cells", cell: (row) => f.count(row.cells), kind: "n" },
      { name: "tombstones", cell: (row) => f.count(row.deletes), kind: "n" },
      { name: "bloom filters in memory", cell: filters, kind: "n" },
    ],
    rows: group.runs,
  });
}

function fileDetails(group, opened) {
  const files = group.runs.flatMap((run, at) => run.files.map((file) => ({ ...file, run: run.is_bottom ? "bottom" : `run ${at + 1}` })));
  const missing = group.runs.reduce((sum, run) => sum + run.file_count - run.files.length, 0);
  const details = h(
    "details",
    { open: opened.has(group.name), ontoggle: () => (details.open ? opened.add(group.name) : opened.delete(group.name)) },
    h("summary", { "data-key": `files-${group.name}` }, `${f.plural(files.length, "file")}${missing > 0 ? `, ${missing} more are not listed` : ""}`),
    table({
      label: "Files",
      columns: [
        { name: "file", cell: (row) => row.id, kind: "k" },
        { name: "run", cell: (row) => row.run, kind: "w" },
        { name: "size", cell: (row) => (row.referenced < row.bytes ? `${f.bytes(row.referenced)} of ${f.bytes(row.bytes)}` : f.bytes(row.bytes)), kind: "n" },
        { name: "values apart", cell: (row) => (row.value_bytes ? f.bytes(row.value_bytes) : "–"), kind: "n opt" },
        { name: "rows", cell: (row) => f.count(row.rows), kind: "n opt" },
        { name: "cells", cell: (row) => f.count(row.cells), kind: "n opt" },
        { name: "filter", cell: (row) => (row.filter_bytes ? `${f.bytes(row.filter_bytes)}${row.filter_held ? "" : ", left out"}` : "none"), kind: "n opt" },
        { name: "first row", cell: (row) => row.first ?? tag("unknown", "bad"), kind: "k" },
        { name: "last row", cell: (row) => row.last ?? tag("unknown", "bad"), kind: "k opt" },
        { name: "made", cell: (row) => f.time(row.created), kind: "w soft opt" },
      ],
      rows: files,
    }),
  );
  return details;
}
