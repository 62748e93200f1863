// Rows of a table, a page at a time; cells can be written and deleted.

import { ROWS_WAIT_MS, get, post } from "./api.js";
import { ask, choice, field } from "./dialogs.js";
import { h, replace, tag } from "./dom.js";
import * as f from "./format.js";
import { table } from "./table.js";
import * as values from "./values.js";

const LIMIT = 50;

export const rowsPage = {
  title: "Rows",
  // A page is read when it is asked for.
  every: 2_000_000_000,
  mount(root, query) {
    const wanted = { table: query.get("table") ?? "", prefix: query.get("prefix") ?? "", limit: LIMIT, versions: 1 };
    const state = { wanted, format: "text", before: [], list: h("div") };
    state.refresh = async () => {
      if (!wanted.table) return replace(state.list, h("p", { class: "note" }, "Choose a table."));
      replace(state.list, view(await get("rows", wanted, ROWS_WAIT_MS), state));
    };
    replace(root, head(state), state.list);
    return state.refresh;
  },
};

function head(state) {
  const { wanted } = state;
  const input = (name, key, attributes = {}) => {
    const set = () => (wanted[key] = element.value);
    const element = h("input", { value: wanted[key] ?? "", oninput: set, autocomplete: "off", spellcheck: "false", ...attributes });
    return field(name, element);
  };
  const names = h("datalist", { id: "tables" });
  get("tables", { limit: 500 }).then((answer) => replace(names, answer.tables.map((row) => h("option", { value: row.table }))), () => {});
  const show = async (event) => {
    event.preventDefault();
    delete wanted.after;
    state.before = [];
    location.replace(`#/rows?${new URLSearchParams({ table: wanted.table, prefix: wanted.prefix })}`);
    await fail(state, state.refresh);
  };
  const formats = choice("Values as", values.FORMATS, state.format, (event) => ((state.format = event.target.value), fail(state, state.refresh)));
  return [
    h("div", { class: "head" }, h("h1", {}, "Rows"), h("span", { class: "sub" }, "patterns are regular expressions of the whole name or value")),
    h(
      "form",
      { class: "fields", onsubmit: show },
      input("Table", "table", { list: "tables", type: "search", required: true }),
      names,
      input("Prefix of keys", "prefix"),
      input("Family pattern", "family"),
      input("Column pattern", "column"),
      input("Value pattern", "value"),
      input("Versions", "versions", { type: "number", min: 1, max: 100 }),
      field("Values as", formats),
      h("div", { class: "field" }, h("button", { class: "plain", type: "submit" }, "Show")),
    ),
  ];
}

/** Shows the error of an action above the rows. */
async function fail(state, action) {
  try {
    await action();
  } catch (error) {
    replace(state.list, h("div", { class: "alert bad", role: "alert" }, h("b", {}, "No rows: "), error.message));
  }
}

function view(answer, state) {
  const cells = answer.rows.flatMap((row) => {
    const own = row.cells.map((cell, at) => ({ ...cell, row: row.row, isFirst: at === 0 }));
    return row.has_more ? [...own, { row: row.row, isMore: true }] : own;
  });
  const edit = (cell) => editor(state, answer, cell);
  const columns = [
    { name: "row", cell: (cell) => (cell.isFirst ? cell.row : h("span", { class: "soft" }, "″")), kind: "k" },
    { name: "column", cell: (cell) => (cell.isMore ? h("span", { class: "soft" }, "more cells") : `${cell.family}:${cell.column}`), kind: "k" },
    { name: "value", cell: (cell) => (cell.isMore ? "" : value(cell, state.format)), kind: "k" },
    { name: "time", cell: (cell) => (cell.isMore ? "" : time(cell.time, answer.unit)), kind: "w opt" },
    { name: "", cell: (cell) => (cell.isMore ? "" : actions(cell, state, edit)), kind: "w" },
  ];
  const first = { table: state.wanted.table, row: "", family: answer.families[0] ?? "", column: "" };
  return h(
    "section",
    { class: "panel" },
    table({ label: "Cells", columns, rows: cells, empty: "there are no such rows" }),
    h(
      "div",
      { class: "pager" },
      h("span", {}, f.plural(answer.rows.length, "row")),
      h("button", { class: "plain", type: "button", onclick: () => edit({ ...first, isNew: true }) }, "New cell"),
      h("span", { class: "grow" }),
      h("button", { class: "plain", "data-key": "back", disabled: state.before.length === 0, onclick: () => back(state) }, "Previous"),
      h("button", { class: "plain", "data-key": "next", disabled: answer.next === null, onclick: () => next(state, answer.next) }, "Next"),
    ),
  );
}

function next(state, after) {
  state.before.push(state.wanted.after);
  state.wanted.after = after;
  return fail(state, state.refresh);
}

function back(state) {
  state.wanted.after = state.before.pop();
  return fail(state, state.refresh);
}

function value(cell, format) {
  const bytes = values.fromBase64(cell.value);
  const isCut = bytes.length < cell.bytes;
  const [text, as] = values.show(bytes, format);
  return [
    h("span", { class: "value" }, isCut ? `${text}…` : text),
    as === format ? null : tag(as),
    isCut ? tag(f.bytes(cell.bytes)) : null,
  ];
}

function time(stamp, unit) {
  // Digits of 64 bits: a number is good enough to show, and for nothing else.
  const seconds = Number(stamp) / (unit === "micros" ? 1e6 : 1e3);
  const known = seconds > 0 && seconds < 1e11;
  return h("span", { title: stamp }, known ? f.time(seconds) : stamp);
}

function actions(cell, state, edit) {
  const name = `${cell.row} ${cell.family}:${cell.column}`;
  return h(
    "div",
    { class: "tools" },
    h("button", { class: "plain small", type: "button", "aria-label": `Edit ${name}`, onclick: () => edit(cell) }, "Edit"),
    h("button", { class: "plain small", type: "button", "aria-label": `Delete ${name}`, onclick: () => remove(cell, state) }, "Delete"),
  );
}

async function remove(cell, state) {
  const { table: name } = state.wanted;
  const done = await ask({
    title: "Delete this cell?",
    body: h("p", { class: "k wide" }, `${name}, row ${cell.row}, ${cell.family}:${cell.column}, time ${cell.time}`),
    button: "Delete",
    danger: true,
    send: () => post("cell/delete", { table: name, row: cell.row, family: cell.family, column: cell.column, time: cell.time }),
  });
  if (done) await fail(state, state.refresh);
}

/** Edits a cell, whose whole value is read before, or makes one. */
async function editor(state, answer, cell) {
  const name = state.wanted.table;
  let whole = { value: "", bytes: 0 };
  if (!cell.isNew) {
    try {
      whole = await get("cell", { table: name, row: cell.row, family: cell.family, column: cell.column, time: cell.time });
    } catch (error) {
      return replace(state.list, h("div", { class: "alert bad", role: "alert" }, error.message));
    }
  }
  const bytes = values.fromBase64(whole.value);
  const [shown, as] = values.showEditable(bytes, cell.isNew ? "text" : state.format);
  const text = h("textarea", { rows: 6, spellcheck: "false", "aria-label": "Value", maxlength: 800_000 }, shown);
  let format = as;
  const convert = (event) => {
    try {
      const [converted, is] = values.showEditable(values.parse(text.value, format), event.target.value);
      [text.value, format] = [converted, is];
    } catch {
      // The text stays as it is, and is read in its former format.
    }
    event.target.value = format;
  };
  const input = (label, key) => [field(label, (inputs[key] = h("input", { value: cell[key] ?? "", disabled: !cell.isNew, autocomplete: "off", spellcheck: "false" })))];
  const inputs = {};
  const stamp = h("input", { value: "", placeholder: "now", inputmode: "numeric", autocomplete: "off" });
  const done = await ask({
    title: cell.isNew ? "New cell" : "Edit cell",
    body: [
      input("Row", "row"),
      input("Family", "family"),
      input("Column", "column"),
      field(`Time (${answer.unit})`, stamp),
      field("Format", choice("Format", values.FORMATS, as, convert)),
      field("Value", text, true),
      whole.bytes > bytes.length ? h("p", { class: "alert" }, `Only the beginning of ${f.bytes(whole.bytes)} is shown: saving replaces all of it.`) : null,
    ],
    button: "Save",
    send: () => {
      if (stamp.value !== "" && !/^\d+$/.test(stamp.value)) throw new Error("a time has digits only");
      const place = { table: name, row: inputs.row.value, family: inputs.family.value, column: inputs.column.value };
      const at = stamp.value === "" ? {} : { time: stamp.value };
      return post("cell", { ...place, ...at, value: values.toBase64(values.parse(text.value, format)) });
    },
  });
  if (done) await fail(state, state.refresh);
}
