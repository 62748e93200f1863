// Slow calls: the last ones, or the slowest since the start.

import { get } from "./api.js";
import { h, replace, tag } from "./dom.js";
import * as f from "./format.js";
import { table } from "./table.js";

export const slowPage = {
  title: "Slow calls",
  every: 5_000,
  mount(root) {
    const wanted = { order: "last" };
    const body = h("div");
    const refresh = async () => replace(body, view(await get("slow", wanted)));
    const choice = (order, text) =>
      h("button", {
        class: "plain",
        type: "button",
        "aria-pressed": String(wanted.order === order),
        onclick: (event) => {
          wanted.order = order;
          for (const button of event.target.parentElement.children) button.setAttribute("aria-pressed", String(button === event.target));
          refresh();
        },
      }, text);
    replace(
      root,
      h(
        "div",
        { class: "head" },
        h("h1", {}, "Slow calls"),
        h("span", { class: "grow" }),
        h("div", { class: "group", role: "group", "aria-label": "Which calls" }, choice("last", "Last"), choice("slowest", "Slowest since the start")),
      ),
      body,
    );
    return refresh;
  },
};

function view(answer) {
  if (answer.threshold === null) {
    return h("p", { class: "note" }, "Slow calls are not kept: the setting slow_call is off.");
  }
  const rows = (call) => {
    if (call.kind === "get" || call.kind === "row operation" || (call.kind === "write" && call.ranges === 1)) return call.start;
    return f.range(call.start, call.end);
  };
  const ranges = (call) => (call.ranges > 1 ? h("div", { class: "soft" }, call.kind === "write" ? `${f.plural(call.ranges, "row")}` : f.plural(call.ranges, "range")) : null);
  return h(
    "section",
    { class: "panel" },
    h("header", {}, h("h2", {}, `${f.plural(answer.count, "call")} of ${f.duration(answer.threshold)} or longer since the start`)),
    h(
      "div",
      { class: "body flush" },
      table({
        label: "Slow calls",
        columns: [
          { name: "ended", cell: (call) => h("time", { title: f.time(call.time) }, f.clock(call.time)), kind: "w soft opt" },
          { name: "took", cell: (call) => h("b", {}, f.duration(call.seconds)), kind: "n" },
          { name: "call", cell: (call) => [tag(call.kind), call.error ? tag(call.error, "bad") : null], kind: "w" },
          {
            name: "table and rows",
            cell: (call) => [h("a", { href: `#/table?name=${encodeURIComponent(call.table)}` }, call.table), h("div", { class: "k" }, rows(call)), ranges(call)],
            kind: "rows",
          },
          { name: "rows returned, written", cell: (call) => f.count(call.rows), kind: "n" },
          { name: "cells seen", cell: (call) => (call.kind === "write" ? "–" : f.count(call.cells_seen)), kind: "n opt" },
          { name: "cells passed", cell: (call) => f.count(call.cells_passed), kind: "n opt" },
          { name: "blocks read", cell: (call) => f.count(call.blocks_read), kind: "n opt" },
        ],
        rows: answer.calls,
        empty: "no call was slow",
      }),
    ),
  );
}
