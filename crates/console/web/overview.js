// The overview: rates, latencies, memory, log, compactions, and everything that holds writes up.

import { get } from "./api.js";
import { chart, legend } from "./chart.js";
import { h, panel, replace, tag } from "./dom.js";
import * as f from "./format.js";
import { table } from "./table.js";

const POINTS_MAX = 360;
const CAUSES = {
  wait_memory: ["memory", "Writes are slowed: memtables fill faster than they are flushed."],
  wait_compaction: ["compaction", "Writes are slowed: compactions are behind."],
  wait_stopped: ["stopped", "Writes are stopped until memtables are flushed."],
  wait_reservation: ["batches", "Batches in flight take all the memory there is for them."],
  wait_large: ["large writes", "Large writes wait until they fit into memory."],
  wait_gate: ["split", "The tablet is split or merged, or rows of it are dropped."],
  wait_latch: ["same rows", "Others write the same rows."],
  wait_log_queue: ["log queue", "As much is queued for the log as may be."],
  wait_log: ["log", "The log appends and syncs."],
  wait_append: ["append", "Large batches are appended to the log."],
  wait_apply: ["memtable", "Large batches are inserted into memtables."],
  wait_followers: ["group", "A writer commits the records of others."],
};

const CONSUMERS = {
  batches: "copies for the log",
  rows: "rows read for writes",
  values: "large values",
  ahead: "readahead",
  peers: "other servers",
  filters: "bloom filters",
  tokens: "request tokens",
  heat: "key visualizer",
};
// Memory that is meant to be full.
const FILLED = ["memtables", "block cache", "row cache"];

export const overviewPage = {
  title: "Overview",
  every: 5_000,
  mount(root) {
    const history = { times: [], series: {} };
    let since = 0;
    return async () => {
      const [overview, newer] = await Promise.all([get("overview"), get("history", { since })]);
      extend(history, newer);
      since = history.times.at(-1) ?? 0;
      replace(root, view(overview, history));
    };
  },
};

function extend(history, newer) {
  history.times = [...history.times, ...newer.times].slice(-POINTS_MAX);
  for (const [name, values] of Object.entries(newer.series)) {
    history.series[name] = [...(history.series[name] ?? []), ...values].slice(-POINTS_MAX);
  }
}

function view(overview, history) {
  const values = overview.values ?? {};
  return [
    h(
      "div",
      { class: "head" },
      h("h1", {}, "Overview"),
      h("span", { class: "sub" }, `version ${overview.version}`),
      h("span", { class: "sub" }, overview.data),
      h("span", { class: "grow" }),
      h("span", { class: "sub opt" }, Object.entries(overview.ports).map(([name, at]) => `${name} ${at}`).join(" · ")),
    ),
    alerts(overview, values),
    tiles(overview, values),
    h("div", { class: "grid" }, charts(history)),
    h("div", { class: "grid" }, memory(overview, values), waits(overview, values)),
  ];
}

function alerts(overview, values) {
  const alert = (kind, name, text) => h("div", { class: `alert ${kind}`, role: "alert" }, h("b", {}, name), " ", text);
  const found = [];
  if (overview.stage === "recovering") found.push(alert("", "Recovering.", "The server reads its data and does not serve yet."));
  if (overview.writes_refused) found.push(alert("bad", "Writes are refused.", "The disk is full; reads continue."));
  for (const damaged of overview.damaged ?? []) {
    found.push(alert("bad", `Tablet ${damaged.tablet} is not served.`, damaged.error));
  }
  for (const kind of overview.waiting ?? []) {
    if (kind.wait.endsWith("failing")) {
      found.push(alert("bad", `${f.plural(kind.tablets, "tablet")}: ${kind.wait}`, `since ${f.duration(kind.longest)}.`));
    }
  }
  for (const name of ["wait_stopped", "wait_memory", "wait_compaction"]) {
    if (values[name] > 0.05) found.push(alert("", CAUSES[name][1], `Writers wait ${f.duration(values[name])} in each second.`));
  }
  return found;
}

function tile(name, [value, unit], more, kind = "") {
  return h(
    "div",
    { class: `tile ${kind}` },
    h("div", { class: "name" }, name),
    h("div", { class: "value" }, value, unit ? h("small", {}, unit) : null),
    h("div", { class: "more" }, more || " "),
  );
}

function rate(number) {
  const [value, unit] = f.countParts(number);
  return [`${value}${unit}`, number === undefined || number === null ? "" : "/s"];
}

function tiles(overview, values) {
  const pair = (a, b) => `p50 ${f.duration(a)} · p95 ${f.duration(b)}`;
  return h(
    "div",
    { class: "tiles" },
    tile("Read calls", rate(values.reads), values.errors > 0 ? `${f.perSecond(values.errors)} errors` : "no errors"),
    tile("Write calls", rate(values.writes), values.refused > 0 ? `${f.perSecond(values.refused)} refused` : "none refused", values.refused > 0 ? "bad" : ""),
    tile("Read p99", f.durationParts(values.read_p99), pair(values.read_p50, values.read_p95)),
    tile("Write p99", f.durationParts(values.write_p99), pair(values.write_p50, values.write_p95)),
    tile("Memory", f.bytesParts(values.resident), `of ${f.bytes(overview.memory_budget)}`, values.resident > overview.memory_budget + 200e6 ? "warn" : ""),
    tile("Block cache hits", [f.percent(values.block_hits), ""], `rows ${f.percent(values.row_hits)}`),
    tile("Log", f.bytesParts(values.log_bytes), `sync p99 ${f.duration(values.sync_p99)}`),
    tile("Compaction debt", f.bytesParts(values.debt), `${f.plural(values.compactions ?? 0, "job")} running`, values.pressure > 0 ? "warn" : ""),
    tile("Tablets", [(values.tablets ?? 0).toLocaleString(), ""], `${f.count(values.connections)} connections`, values.damaged > 0 ? "bad" : ""),
    tile("Disk free", f.bytesParts(values.free), overview.writes_refused ? "writes are refused" : "", overview.writes_refused ? "bad" : ""),
  );
}

function charts({ times, series }) {
  const line = (name, key, kind, dash) => ({ name, values: series[key] ?? times.map(() => null), kind, dash });
  const draw = (title, lines, format, options = {}) =>
    panel(title, [chart({ title, times, lines, format, ...options }), legend(lines)]);
  return [
    draw("Calls", [line("reads", "reads", "read"), line("writes", "writes", "write"), line("errors", "errors", "bad")], f.perSecond),
    draw(
      "Latency",
      [
        line("read p99", "read_p99", "read"),
        line("read p50", "read_p50", "read", true),
        line("write p99", "write_p99", "write"),
        line("write p50", "write_p50", "write", true),
      ],
      f.duration,
    ),
    draw(
      "Memory",
      [
        line("block cache", "blocks", "1"),
        line("row cache", "rows", "2"),
        line("indexes, filters", "indexes", "3"),
        line("memtables", "memtables", "4"),
        line("reserved", "reserved", "5"),
      ],
      f.bytes,
      { stacked: true, base: 1024 },
    ),
    draw(
      "Files written and read",
      [
        line("log", "log_written", "6"),
        line("flushes", "flushed", "write"),
        line("compactions write", "compaction_written", "1"),
        line("compactions read", "compaction_read", "1", true),
      ],
      f.bytesPerSecond,
      { base: 1024 },
    ),
    draw("Log and debt", [line("log kept", "log_bytes", "6"), line("compaction debt", "debt", "write")], f.bytes, { base: 1024 }),
    draw(
      "Writers wait",
      [
        line("log", "wait_log", "6"),
        line("memory", "wait_memory", "4"),
        line("compaction", "wait_compaction", "1"),
        line("stopped", "wait_stopped", "bad"),
        line("same rows", "wait_latch", "2"),
        line("split", "wait_gate", "5"),
      ],
      (value) => `${f.duration(value)}/s`,
      { stacked: true },
    ),
  ];
}

function memory(overview, values) {
  const rows = (overview.memory ?? []).map((consumer) => {
    const part = consumer.limit > 0 ? Math.min(1, consumer.used / consumer.limit) : 0;
    const bar = h("span", { class: part > 0.9 && !FILLED.includes(consumer.name) ? "bar warn" : "bar" }, h("i", { css: { width: `${(part * 100).toFixed(1)}%` } }));
    return [h("span", { class: "w" }, CONSUMERS[consumer.name] ?? consumer.name), bar, h("span", { class: "n" }, `${f.bytes(consumer.used)} / ${f.bytes(consumer.limit)}`)];
  });
  const now = h("span", { class: "now" }, `resident ${f.bytes(values.resident)}`);
  return panel("Memory by consumer", rows.length ? h("div", { class: "meter" }, rows) : h("p", { class: "soft" }, "recovering"), { now });
}

function waits(overview, values) {
  const causes = Object.entries(CAUSES)
    .map(([key, [name, text]]) => ({ name, text, value: values[key] ?? 0 }))
    .filter((cause) => cause.value > 0.0005)
    .sort((a, b) => b.value - a.value);
  const tablets = overview.longest_waits ?? [];
  return panel(
    "Waits",
    [
      table({
        label: "Causes for which writers wait",
        columns: [
          { name: "writers wait for", cell: (row) => row.name, kind: "w" },
          { name: "in a second", cell: (row) => f.duration(row.value), kind: "n" },
          { name: "meaning", cell: (row) => h("span", { class: "soft" }, row.text) },
        ],
        rows: causes,
        empty: "no writer waits",
      }),
      table({
        label: "Tablets that wait",
        columns: [
          { name: "tablet", cell: (row) => h("a", { href: `#/tablet?id=${row.tablet}` }, row.tablet), kind: "w" },
          { name: "table", cell: (row) => row.table },
          { name: "state", cell: (row) => tag(row.wait, row.wait.endsWith("failing") ? "bad" : row.wait === "writes slowed" ? "warn" : "") },
          { name: "since", cell: (row) => f.duration(row.seconds), kind: "n" },
        ],
        rows: tablets,
        empty: "no tablet waits",
      }),
    ],
    { flush: true },
  );
}
