// The key visualizer: which ranges of rows are read and written, over time.

import { get } from "./api.js";
import { h, replace } from "./dom.js";
import * as f from "./format.js";
import { draw, drawScale, layout, operations } from "./heatmap.js";

const KEYS_SHOWN = 12;
// The shortest time that is shown.
const LEAST = 120;
const SPANS = [[1_800, "30 min"], [14_400, "4 h"], [86_400, "1 day"], [172_800, "2 days"]];

export const heatPage = {
  title: "Heat",
  every: 5_000,
  mount(root, query) {
    return new HeatView(root, query.get("table") ?? "").refresh;
  },
};

class HeatView {
  constructor(root, table) {
    this.table = table;
    this.kind = "both";
    this.span = SPANS[0][0];
    // Zoomed parts, each within the one before.
    this.zooms = [];
    this.answer = null;
    this.refresh = this.refresh.bind(this);
    this.build(root);
  }

  build(root) {
    this.choice = h("select", { "aria-label": "Table", onchange: () => this.change(() => ((this.table = this.choice.value), (this.zooms = []))) });
    this.kinds = buttons("Kind of operations", [["both", "Both"], ["reads", "Reads"], ["writes", "Writes"]], this.kind, (kind) => {
      this.kind = kind;
      this.paint();
    });
    this.spans = buttons("Time", SPANS.map(([seconds, name]) => [String(seconds), name]), String(this.span), (span) =>
      this.change(() => ((this.span = Number(span)), (this.zooms = this.zooms.map((zoom) => ({ ...zoom, from: undefined, to: undefined }))))),
    );
    this.back = h("button", { class: "plain", type: "button", disabled: true, onclick: () => this.change(() => this.zooms.pop()) }, "Zoom out");
    this.canvas = h("canvas", { tabindex: "0", role: "img", "aria-label": "Heat map" });
    this.box = h("div", { class: "heat" }, this.canvas);
    this.axis = h("div", { class: "heatkeys", "aria-hidden": "true" });
    this.times = h("div", { class: "heataxis" });
    this.scale = h("canvas", { "aria-hidden": "true" });
    this.most = h("span");
    this.keys = h("div", { class: "keys" });
    this.hot = h("div");
    this.select();
    replace(
      root,
      h("div", { class: "head" }, h("h1", {}, "Heat"), h("span", { class: "sub opt" }, "time to the right, rows downward; drag to zoom")),
      h("div", { class: "tools" }, this.choice, this.kinds, this.spans, this.back),
      h(
        "section",
        { class: "panel" },
        h("div", { class: "body" }, this.keys, h("div", { class: "heatbox" }, this.axis, this.box, this.times), h("div", { class: "legend" }, h("span", { class: "scale" }, "none", this.scale, this.most))),
      ),
      this.hot,
    );
  }

  async change(how) {
    how();
    this.back.disabled = this.zooms.length === 0;
    await this.refresh();
  }

  async refresh() {
    await this.listTables();
    if (!this.table) {
      this.answer = null;
      this.empty("There are no tables yet.");
      return;
    }
    const zoom = this.zooms.at(-1) ?? {};
    const now = Math.floor(Date.now() / 1000);
    const answer = await get("heat", {
      table: this.table,
      start: zoom.start,
      end: zoom.end,
      // Before the start of the server nothing is known.
      from: zoom.from ?? Math.min(now - LEAST, Math.max(now - this.span, this.started)),
      to: zoom.to,
    });
    this.answer = answer;
    this.paint();
  }

  async listTables() {
    if (this.choice.options.length > 0 && this.listed > Date.now() - 30_000) return;
    this.listed = Date.now();
    const [{ tables }, { started }] = await Promise.all([get("tables", { limit: 500 }), get("overview")]);
    this.started = started;
    const names = tables.map((table) => table.table);
    if (!this.table) this.table = tables.toSorted((a, b) => b.reads + b.writes - (a.reads + a.writes))[0]?.table ?? "";
    else if (!names.includes(this.table)) names.unshift(this.table);
    replace(this.choice, names.map((name) => h("option", { value: name, selected: name === this.table }, name)));
  }

  empty(text) {
    this.box.querySelector(".empty")?.remove();
    if (text) this.box.append(h("div", { class: "empty" }, text));
  }

  paint() {
    const answer = this.answer;
    if (!answer) return;
    const { most, grid } = draw(this.canvas, answer, this.kind);
    this.grid = grid;
    drawScale(this.scale, this.kind);
    this.most.textContent = most > 0 ? `${f.count(most)} rows in ${f.duration(answer.seconds)}` : "nothing";
    this.empty(most > 0 ? "" : "No rows were read or written in this part. Heat is kept in memory from the start of the server on.");
    const tablets = answer.tablets.filter((is) => is).length;
    this.keys.textContent = `${f.range(answer.starts[0], answer.end)} · ${f.plural(answer.starts.length, "range")}${tablets ? `, ${f.plural(tablets, "boundary", "boundaries")} of tablets` : ""}`;
    this.label();
    this.canvas.setAttribute("aria-label", this.describe());
    replace(this.hot, this.hottest());
  }

  /** Keys beside the map, times below it, and marks where tablets begin. */
  label() {
    const { answer, grid } = this;
    const keys = Math.min(KEYS_SHOWN, grid.height);
    const row = (at) => Math.floor((at * grid.height) / keys);
    const top = (row) => `${(row / grid.height) * 100}%`;
    replace(this.axis, [...Array(keys).keys()].map((at) => h("span", { css: { top: top(row(at)) } }, answer.starts[row(at)] || "−∞")));
    const seconds = answer.seconds * grid.width;
    const time = (part) => new Date((grid.first + part * seconds) * 1000);
    const format = seconds > 80_000 ? { weekday: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" } : { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
    replace(this.times, [0, 0.25, 0.5, 0.75, 1].map((part) => h("span", {}, time(part).toLocaleString(undefined, format))));
    for (const mark of this.box.querySelectorAll(".mark")) mark.remove();
    answer.tablets.forEach((begins, row) => begins && this.box.append(h("i", { class: "mark", css: { top: top(row) } })));
  }

  describe() {
    const top = ranked(this.answer, this.kind)[0];
    return top ? `Heat map of ${this.table}. The hottest range begins at row ${top.start || "the first"}.` : `Heat map of ${this.table}, empty.`;
  }

  /** The same in words: for readers that do not see the map, and for copying keys. */
  hottest() {
    const rows = ranked(this.answer, this.kind).slice(0, 8);
    if (!rows.length) return null;
    const open = (range) => this.change(() => this.zooms.push({ ...this.zooms.at(-1), start: range.start, end: range.end ?? undefined }));
    return h(
      "section",
      { class: "panel" },
      h("header", {}, h("h2", {}, "Hottest ranges")),
      h(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": "Hottest ranges" },
        h(
          "table",
          {},
          h("thead", {}, h("tr", {}, ["rows from", "to", "read", "written", ""].map((name, at) => h("th", { scope: "col", class: at > 1 && at < 4 ? "n" : null }, name)))),
          h(
            "tbody",
            {},
            rows.map((range) =>
              h(
                "tr",
                {},
                h("td", { class: "k" }, range.start === "" ? "−∞" : range.start),
                h("td", { class: "k" }, range.end ?? "∞"),
                h("td", { class: "n" }, f.count(range.reads)),
                h("td", { class: "n" }, f.count(range.writes)),
                h("td", { class: "n" }, this.answer.hidden ? null : h("button", { class: "plain small", type: "button", "data-key": `zoom-${range.start}`, onclick: () => open(range) }, "Zoom")),
              ),
            ),
          ),
        ),
      ),
    );
  }

  place(event) {
    const bounds = this.canvas.getBoundingClientRect();
    const within = (value, length) => Math.min(length - 1, Math.max(0, value));
    const [x, y] = [event.clientX - bounds.left, event.clientY - bounds.top];
    const { width, height } = this.grid ?? layout(this.answer);
    return {
      x: Math.min(bounds.width, Math.max(0, x)),
      y: Math.min(bounds.height, Math.max(0, y)),
      column: within(Math.floor((x / bounds.width) * width), width),
      row: within(Math.floor((y / bounds.height) * height), height),
    };
  }

  /** Dragging selects a part; without a button the pointer tells the figures under it. */
  select() {
    const tip = h("div", { class: "tip", hidden: true });
    const frame = h("div", { class: "select", hidden: true });
    this.box.append(tip, frame);
    let from = null;
    this.canvas.addEventListener("pointerdown", (event) => {
      if (!this.answer || event.button !== 0) return;
      from = this.place(event);
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (!this.answer) return;
      const to = this.place(event);
      this.tell(tip, to);
      frame.hidden = from === null;
      if (from) {
        const [left, top] = [Math.min(from.x, to.x), Math.min(from.y, to.y)];
        Object.assign(frame.style, { left: `${left}px`, top: `${top}px`, width: `${Math.abs(to.x - from.x)}px`, height: `${Math.abs(to.y - from.y)}px` });
      }
    });
    this.canvas.addEventListener("pointerup", (event) => {
      const to = from && this.place(event);
      frame.hidden = true;
      if (from && to && Math.abs(to.x - from.x) + Math.abs(to.y - from.y) > 8) this.zoom(from, to);
      from = null;
    });
    this.canvas.addEventListener("pointercancel", () => ((from = null), (frame.hidden = true)));
    this.canvas.addEventListener("pointerleave", () => (tip.hidden = true));
    this.canvas.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.zooms.length) this.change(() => this.zooms.pop());
    });
  }

  tell(tip, { x, y, column, row }) {
    const { answer, grid } = this;
    const { reads, writes } = operations(answer, grid, column, row);
    const time = grid.first + column * answer.seconds;
    const second = (number) => f.perSecond(number / answer.seconds);
    replace(
      tip,
      h("div", { class: "soft" }, `${f.time(time)}, ${f.duration(answer.seconds)}`),
      h("div", { class: "k" }, f.range(answer.starts[row], answer.starts[row + 1] ?? answer.end)),
      h("div", {}, `${second(reads)} read, ${second(writes)} written`),
      answer.tablets[row] ? h("div", { class: "soft" }, "a tablet begins here") : null,
    );
    tip.hidden = false;
    const [right, low] = [x > this.box.clientWidth / 2, y > this.box.clientHeight / 2];
    Object.assign(tip.style, {
      left: right ? "auto" : `${x + 14}px`,
      right: right ? `${this.box.clientWidth - x + 14}px` : "auto",
      top: low ? "auto" : `${y + 10}px`,
      bottom: low ? `${this.box.clientHeight - y + 10}px` : "auto",
    });
  }

  zoom(from, to) {
    const { answer, grid } = this;
    const [top, bottom] = [Math.min(from.row, to.row), Math.max(from.row, to.row)];
    const [left, right] = [Math.min(from.column, to.column), Math.max(from.column, to.column)];
    const time = (column) => grid.first + column * answer.seconds;
    // Without the right to read the rows, only the time can be zoomed.
    const zoom = answer.hidden ? {} : { start: answer.starts[top], end: answer.starts[bottom + 1] ?? answer.end ?? undefined };
    // A narrow selection is one of rows: the time stays, and goes on.
    const timed = right > left;
    Object.assign(zoom, timed ? { from: time(left), to: time(right + 1) } : { from: this.zooms.at(-1)?.from, to: this.zooms.at(-1)?.to });
    this.change(() => this.zooms.push(zoom));
  }
}

function buttons(label, choices, chosen, onchoose) {
  const group = h("div", { class: "group", role: "group", "aria-label": label });
  for (const [value, text] of choices) {
    const button = h("button", { class: "plain", type: "button", "aria-pressed": String(value === chosen) }, text);
    button.addEventListener("click", () => {
      for (const other of group.children) other.setAttribute("aria-pressed", String(other === button));
      onchoose(value);
    });
    group.append(button);
  }
  return group;
}

/** Ranges with operations, the hottest first. */
function ranked(answer, kind) {
  const height = answer.starts.length;
  const ranges = answer.starts.map((start, row) => ({ start, end: answer.starts[row + 1] ?? answer.end, reads: 0, writes: 0 }));
  answer.reads.forEach((reads, at) => (ranges[at % height].reads += reads));
  answer.writes.forEach((writes, at) => (ranges[at % height].writes += writes));
  const heat = (range) => (kind === "reads" ? range.reads : kind === "writes" ? range.writes : range.reads + range.writes);
  return ranges.filter((range) => heat(range) > 0).sort((a, b) => heat(b) - heat(a));
}
