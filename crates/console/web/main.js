// Chooses the page by the address, refreshes it, and listens to the keyboard.

import { get, NotKnown, tryGet } from "./api.js";
import { backupsPage } from "./backups.js";
import { clusterPage } from "./cluster.js";
import { h, replace } from "./dom.js";
import { duration } from "./format.js";
import { heatPage } from "./heat.js";
import { overviewPage } from "./overview.js";
import { rowsPage } from "./rows.js";
import { rulesPage } from "./rules.js";
import { showCaller, signIn } from "./sign_in.js";
import { slowPage } from "./slow.js";
import { snapshotsPage } from "./snapshots.js";
import { tablePage, tablesPage, tabletsPage } from "./tables.js";
import { tabletPage } from "./tablet.js";

// A page is `{ title, every, mount(root, parameters) }`; `mount` returns a function that refreshes it.
const PAGES = {
  "": overviewPage,
  cluster: clusterPage,
  tables: tablesPage,
  table: tablePage,
  tablets: tabletsPage,
  tablet: tabletPage,
  heat: heatPage,
  slow: slowPage,
  snapshots: snapshotsPage,
  backups: backupsPage,
  rows: rowsPage,
  rules: rulesPage,
};
const MENU = { "": "overview", table: "tables", tablet: "tablets" };
const GO = { o: "#/", c: "#/cluster", t: "#/tables", b: "#/tablets", h: "#/heat", s: "#/slow", n: "#/snapshots", u: "#/backups", r: "#/rows", a: "#/rules" };
/** Pages of a caller that may not see the whole cluster. */
const OF_EVERYBODY = ["tables", "snapshots", "rows", "rules"];
const STATUS_EVERY_MS = 5_000;

const content = document.getElementById("content");
let refresh = null;
let timer = 0;
let paused = false;
let went = 0;
let statusTimer = 0;
let observes = true;

function parameters() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return [path, new URLSearchParams(query)];
}

function show() {
  clearTimeout(timer);
  const [name, query] = parameters();
  const page = PAGES[name] ?? overviewPage;
  document.title = name === "" ? "Stele" : `${page.title} · Stele`;
  const menu = MENU[name] ?? name;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === menu) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  delete content.dataset.ready;
  const root = h("div", { class: "page" });
  replace(content, root);
  // The children of a page are laid out as those of the content.
  root.style.display = "contents";
  refresh = page.mount(root, query);
  run(page, refresh);
}

async function run(page, of) {
  if (of !== refresh) return;
  if (!document.hidden && !(content.dataset.ready && (paused || isInUse()))) {
    try {
      await of();
      content.dataset.ready = "true";
    } catch (error) {
      if (of !== refresh) return;
      if (error instanceof NotKnown) return identify(error.message);
      const first = content.querySelector(".page > .alert.failed") ?? h("div", { class: "alert bad failed", role: "alert" });
      replace(first, h("b", {}, "No data: "), error.message);
      content.querySelector(".page")?.prepend(first);
      timer = setTimeout(() => run(page, of), page.every);
      return;
    }
    content.querySelector(".page > .alert.failed")?.remove();
  }
  if (of === refresh) timer = setTimeout(() => run(page, of), page.every);
}

/** Whether text is selected, or the pointer reads a chart: drawing the page again would take both away. */
function isInUse() {
  const selection = getSelection();
  return (!selection.isCollapsed && content.contains(selection.anchorNode)) || content.querySelector(".chart:hover") !== null;
}

async function status() {
  const element = document.getElementById("status");
  clearTimeout(statusTimer);
  if (!observes) return replace(element, h("span", { class: "dot good" }), h("span", {}, "connected"));
  const overview = document.hidden ? undefined : await tryGet("overview");
  if (overview === null) {
    replace(element, h("span", { class: "dot bad" }), h("span", {}, "no answer"));
  } else if (overview) {
    const troubled = overview.writes_refused || overview.damaged?.length > 0;
    const kind = overview.stage !== "ready" || troubled ? "warn" : "good";
    const text = paused ? "paused" : `${overview.stage} · up ${duration(overview.now - overview.started)}`;
    replace(element, h("span", { class: `dot ${kind}` }), h("span", {}, text));
  }
  statusTimer = setTimeout(status, STATUS_EVERY_MS);
}

function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, select, textarea, dialog")) return;
  const goes = performance.now() - went < 1500;
  went = 0;
  if (goes && GO[event.key]) location.hash = GO[event.key];
  else if (event.key === "g") went = performance.now();
  else if (event.key === "?") document.getElementById("keys").showModal();
  else if (event.key === "p") paused = !paused;
  else if (event.key === "/" && content.querySelector("input[type=search]")) {
    content.querySelector("input[type=search]").focus();
    event.preventDefault();
  }
}

addEventListener("hashchange", () => {
  show();
  content.focus({ preventScroll: true });
  scrollTo(0, 0);
});
addEventListener("keydown", key);
document.addEventListener("visibilitychange", () => {
  const [name] = parameters();
  if (!document.hidden) {
    clearTimeout(timer);
    run(PAGES[name] ?? overviewPage, refresh);
  }
});

/** Finds out who calls, with a question for a token where the server wants one, and begins. */
async function identify(reason) {
  let me = null;
  try {
    me = await get("me");
  } catch (error) {
    if (error instanceof NotKnown) {
      if (await signIn(reason)) return identify();
      return replace(content, h("p", { class: "note" }, "This server serves known callers only. ", h("button", { class: "plain", type: "button", onclick: () => identify() }, "Sign in")));
    }
  }
  observes = me?.observes ?? true;
  showCaller(document.getElementById("caller"), me);
  for (const link of document.querySelectorAll("nav a")) {
    const { page } = link.dataset;
    link.hidden = (!observes && !OF_EVERYBODY.includes(page)) || (page === "cluster" && !me?.cluster);
  }
  const [name] = parameters();
  if (!observes && !OF_EVERYBODY.includes(MENU[name] ?? name)) location.hash = "#/tables";
  show();
  status();
}

identify();
