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
    const refresh = async () => {
      const answer = await get("snapshots", wanted);
      replace(root, head(), list(answer, wanted, refresh));
    };
    replace(root, head());
    return refresh;
  },
};

function head() {
  return h("div", { class: "head" }, h("h1", {}, "Snapshots"), h("span", { class: "sub" }, "and backups of the Bigtable API; they hold files and copy nothing"));
}

function list(answer, wanted, refresh) {
  return h(
    "section",
    { class: "panel" },
    table({
      label: "Snapshots",
      columns: [
        { name: "snapshot", cell: (row) => row.snapshot },
        { name: "of table", cell: (row) => h("a", { href: `#/table?name=${encodeURIComponent(row.table)}` }, row.table) },
        { name: "taken", cell: (row) => f.time(row.created), kind: "w" },
        { name: "expires", cell: (row) => (row.expires ? f.time(row.expires) : h("span", { class: "soft" }, "never")), kind: "w opt" },
        { name: "tablets", cell: (row) => row.tablets.toLocaleString(), kind: "n" },
        { name: "size", cell: (row) => f.bytes(row.bytes), kind: "n" },
      ],
      rows: answer.snapshots,
      empty: "there are no snapshots",
    }),
    pager({ ...wanted, total: answer.total, shown: answer.snapshots.length, what: "snapshots", onpage: (offset) => ((wanted.offset = offset), refresh()) }),
  );
}
