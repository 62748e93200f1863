// Snapshots, which the Bigtable API calls backups.

import { get } from "./api.js";
import { h, replace } from "./dom.js";
import * as f from "./format.js";
import { pager, table } from "./table.js";

const LIMIT = 100;

export const snapshotsPage = {
  title: "Snapshots",
  every: 10_000,
  mount(root) {
    const wanted = { offset: 0, limit: LIMIT };
    const keptWanted = { offset: 0, limit: LIMIT };
    const refresh = async () => {
      const [answer, kept] = await Promise.all([get("snapshots", wanted), get("kept", keptWanted)]);
      replace(
        root,
        head(),
        list(answer, wanted, refresh, { title: "Snapshots and backups", empty: "there are no snapshots", what: "snapshots" }),
        list(kept, keptWanted, refresh, { title: "Kept after accidents", empty: "nothing was dropped lately", what: "kept tables" }),
      );
    };
    replace(root, head());
    return refresh;
  },
};

function head() {
  return h("div", { class: "head" }, h("h1", {}, "Snapshots"), h("span", { class: "sub" }, "and backups of the Bigtable API; they hold files and copy nothing"));
}

function list(answer, wanted, refresh, { title, empty, what }) {
  return h(
    "section",
    { class: "panel" },
    h("header", {}, h("h2", {}, title)),
    table({
      label: title,
      columns: [
        { name: "snapshot", cell: (row) => row.snapshot },
        { name: "of table", cell: (row) => h("a", { href: `#/table?name=${encodeURIComponent(row.table)}` }, row.table) },
        { name: "taken", cell: (row) => f.time(row.created), kind: "w" },
        { name: "expires", cell: (row) => (row.expires ? f.time(row.expires) : h("span", { class: "soft" }, "never")), kind: "w opt" },
        { name: "tablets", cell: (row) => row.tablets.toLocaleString(), kind: "n" },
        { name: "size", cell: (row) => f.bytes(row.bytes), kind: "n" },
      ],
      rows: answer.snapshots,
      empty,
    }),
    pager({ ...wanted, total: answer.total, shown: answer.snapshots.length, what, onpage: (offset) => ((wanted.offset = offset), refresh()) }),
  );
}
