// Works on backups at destinations outside of the data, and the archive of the log.

import { get } from "./api.js";
import { h, replace, tag } from "./dom.js";
import * as f from "./format.js";
import { table } from "./table.js";

const KINDS = { running: "", done: "good", damaged: "bad", failed: "bad" };

export const backupsPage = {
  title: "Backups",
  every: 5_000,
  mount(root) {
    const refresh = async () => {
      const answer = await get("backups");
      replace(root, head(), trouble(answer.works), archive(answer.archive), works(answer.works));
    };
    replace(root, head());
    return refresh;
  },
};

function head() {
  return h("div", { class: "head" }, h("h1", {}, "Backups"), h("span", { class: "sub" }, "copies at destinations outside of the data; snapshots have a page of their own"));
}

/** The newest work that found damage, or failed. */
function trouble(works) {
  const ended = works.find((work) => work.state !== "running");
  if (!ended || ended.problems.length === 0) return null;
  const title = ended.state === "failed" ? `${ended.task} of ${ended.backup} failed` : `${ended.task} found damage in ${ended.backup}`;
  return h("div", { class: "alert", role: "alert" }, h("b", {}, title), h("ul", {}, ended.problems.map((problem) => h("li", {}, problem))));
}

function archive(archive) {
  const facts = archive
    ? [
        ["Place", archive.place],
        ["Newest moment", `${f.duration(archive.lag_seconds)} ago`],
        ["Log that waits", f.bytes(archive.lag_bytes)],
        ["Gaps since the start", Math.max(0, archive.ranges - 1).toLocaleString()],
        ["Failed rounds since the start", archive.failures.toLocaleString()],
      ]
    : [];
  const body = archive
    ? h("dl", { class: "facts" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))))
    : h("p", { class: "soft" }, "This server archives its log nowhere, so tables can be restored to the moments of backups only.");
  return h("section", { class: "panel" }, h("header", {}, h("h2", {}, "Archive of the log")), h("div", { class: "body" }, body));
}

function works(works) {
  return h(
    "section",
    { class: "panel" },
    h("header", {}, h("h2", {}, "Works")),
    table({
      label: "Works on backups",
      columns: [
        { name: "work", cell: (work) => `${work.task} ${work.backup}` },
        { name: "state", cell: (work) => tag(work.state === "running" ? work.step : work.state, KINDS[work.state]) },
        { name: "done", cell: (work) => (work.bytes > 0 ? f.percent(work.bytes_done / work.bytes) : "–"), kind: "n" },
        { name: "size", cell: (work) => f.bytes(work.bytes), kind: "n" },
        { name: "copied", cell: (work) => f.bytes(work.bytes_copied), kind: "n opt" },
        { name: "begun", cell: (work) => f.time(work.begun), kind: "w" },
        { name: "took", cell: (work) => (work.ended === null ? h("span", { class: "soft" }, "runs") : f.duration(work.ended - work.begun)), kind: "n" },
        { name: "destination", cell: (work) => work.destination, kind: "opt" },
      ],
      rows: works,
      empty: "no work since this server was started, or leads its cluster; stele backup begins one",
    }),
  );
}
