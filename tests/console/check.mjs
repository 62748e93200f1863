// Opens every page of the console in a headless Chromium, wide and narrow, light and dark, and checks that
// * no error is logged, and every request goes to this server;
// * axe-core finds no serious fault;
// * the first paint comes in time, and nothing is wider than the screen;
// * the keyboard and the zoom of the heat map work.
//
// node check.mjs CHROMIUM ADDRESS FOLDER: the screenshots go to FOLDER. The last line is `N passed, N failed`.
// node check.mjs CHROMIUM ADDRESS FOLDER SECONDS: only keeps the overview open for that long.

import { mkdirSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const require = createRequire(join(process.env.CONSOLE_MODULES, "package.json"));
const puppeteer = require("puppeteer-core");
const axe = require("axe-core");

const [chromium, address, folder] = process.argv.slice(2);
const origin = `http://${address}`;
const FIRST_PAINT_MS = 300;
const SCREENS = { desktop: { width: 1440, height: 900 }, phone: { width: 390, height: 844, isMobile: true, hasTouch: true } };

let passed = 0;
let failed = 0;

function check(name, problems) {
  if (problems.length === 0) {
    passed += 1;
    return;
  }
  failed += 1;
  console.log(`FAIL ${name}`);
  for (const problem of problems) console.log(`     ${problem}`);
}

/** Answers of a cluster of 30 servers with 10,000 tablets in 40 tables: the server under test is alone. */
function clusterAnswers() {
  const server = (number) => ({
    server: number,
    state: { 1: "leads", 7: "drains", 29: "silent", 30: "ended" }[number] ?? "serves",
    version: "0.1.0",
    bigtable: `10.0.0.${number}:8086`,
    hbase: `10.0.0.${number}:16020`,
    http: `10.0.0.${number}:8088`,
    tablets: 334,
    memtable_bytes: number * 10_000_000,
    log_bytes: number * 20_000_000,
  });
  const cell = (at) => ({ server: at === 17 ? null : (at % 30) + 1, start: `row${at}`, tablets: 2, unsettled: at % 40 === 17 ? 1 : 0 });
  const table = (at) => ({ table: `shop/orders${at}`, tablets: 250, bytes: 5e9, cells: Array.from({ length: at === 0 ? 1 : 120 }, (_, of) => cell(at + of)) });
  const waiting = (at) => ({ table: "shop/orders1", tablet: `${1000 + at}`, start: `row${at}`, owner: 29, to: at % 2 ? 3 : null, waits_for: "the log of server 29 to be sealed" });
  return {
    "/api/me": { observes: true, browses: true, cluster: true },
    "/api/cluster": {
      leader: 1,
      servers: Array.from({ length: 30 }, (_, at) => server(at + 1)),
      tablets: 10_000,
      unsettled: 120,
      waiting: Array.from({ length: 100 }, (_, at) => waiting(at)),
      check: { ago: 12, files: 81_000, findings: ["two servers serve tablet 1007"], more: 2 },
      total: 40,
      offset: 0,
      tables: Array.from({ length: 30 }, (_, at) => table(at)),
    },
  };
}

/** Answers of a server whose works on backups run, have found damage, and have failed. */
function backupAnswers() {
  const work = (number, task, state, rest = {}) => ({
    number,
    task,
    backup: "daily-28",
    destination: "s3://elsewhere/stele",
    begun: 1_790_000_000 + number * 100,
    ended: state === "running" ? null : 1_790_000_042 + number * 100,
    state,
    step: "copying files",
    files: 1200,
    files_done: 700,
    bytes: 5_400_000_000,
    bytes_done: state === "running" ? 2_000_000_000 : 5_400_000_000,
    bytes_copied: 106_000_000,
    tables: [],
    problems: [],
    ...rest,
  });
  const works = [
    work(4, "create", "running"),
    work(3, "verify", "damaged", { problems: ["sst/000017.sst: a checksum is wrong", "and 4 more"] }),
    work(2, "restore", "failed", { problems: ["table shop/orders exists"] }),
    work(1, "create", "done"),
  ];
  return { "/api/backups": { works, archive: { place: "s3://elsewhere/log", lag_seconds: 7.4, lag_bytes: 3_000_000, failures: 0, ranges: 1 } } };
}

/** Answers some calls of a page itself. */
async function intercept(page, answers) {
  await page.setRequestInterception(true);
  page.on("request", (request) => {
    const answer = answers[new URL(request.url()).pathname];
    if (answer) request.respond({ status: 200, contentType: "application/json", body: JSON.stringify(answer) });
    else request.continue();
  });
}

/** The pages, with an element that is there when a page has its data, and answers that the server does not give. */
async function pages() {
  const tablets = await (await fetch(`${origin}/api/tablets?sort=size&limit=1`)).json();
  const busiest = tablets.tablets[0];
  return [
    ["overview", "#/", ".tiles .tile"],
    ["cluster", "#/cluster", ".strip .owner", clusterAnswers()],
    ["tables", "#/tables", "#content tbody td"],
    ["table", `#/table?name=${encodeURIComponent(busiest.table)}`, "#content tbody td"],
    ["tablets", "#/tablets", "#content tbody td"],
    ["tablet", `#/tablet?id=${busiest.id}`, ".tree .run"],
    ["heat", `#/heat?table=${encodeURIComponent(busiest.table)}`, ".keys:not(:empty)"],
    ["slow", "#/slow", "#content table"],
    ["snapshots", "#/snapshots", "#content table"],
    ["backups", "#/backups", "#content table"],
    ["backups-busy", "#/backups", "#content .alert", backupAnswers()],
    ["rows", `#/rows?table=${encodeURIComponent(busiest.table)}`, "#content tbody td"],
    ["rules", "#/rules", "#content table"],
  ];
}

/** A page of the browser that notes what must not happen. */
async function open(browser, screen, scheme) {
  const page = await browser.newPage();
  await page.setViewport({ ...SCREENS[screen], deviceScaleFactor: 1 });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }, { name: "prefers-reduced-motion", value: "reduce" }]);
  const faults = [];
  page.on("console", (message) => ["error", "warn"].includes(message.type()) && faults.push(`console: ${message.text()}`));
  page.on("pageerror", (error) => faults.push(`error: ${error.message}`));
  page.on("requestfailed", (request) => faults.push(`failed: ${request.url()} ${request.failure()?.errorText}`));
  page.on("request", (request) => {
    if (!request.url().startsWith(`${origin}/`) && !request.url().startsWith("data:")) faults.push(`foreign request: ${request.url()}`);
  });
  page.on("response", (response) => response.status() >= 400 && faults.push(`status ${response.status()}: ${response.url()}`));
  return { page, faults };
}

async function audit(page) {
  await page.evaluate(axe.source);
  const results = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  const serious = results.violations.filter((violation) => ["serious", "critical"].includes(violation.impact));
  return serious.map((violation) => `${violation.id}: ${violation.help}: ${violation.nodes.slice(0, 3).map((node) => node.target.join(" ")).join("; ")}`);
}

async function visit(browser, [name, hash, ready, answers], screen, scheme) {
  const label = `${name}, ${screen}, ${scheme}`;
  const { page, faults } = await open(browser, screen, scheme);
  if (answers) await intercept(page, answers);
  await page.goto(`${origin}/${hash}`, { waitUntil: "load" });
  const isReady = await page.waitForSelector(ready, { timeout: 15_000 }).then(() => true, () => false);
  check(`${label}: has its data`, isReady ? [] : [`no ${ready}`, ...faults]);
  const paint = await page.evaluate(
    () =>
      new Promise((resolve) => {
        const entry = () => performance.getEntriesByName("first-contentful-paint")[0]?.startTime;
        const poll = () => (entry() === undefined ? setTimeout(poll, 20) : resolve(entry()));
        poll();
      }),
  );
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  await page.screenshot({ path: join(folder, `${name}-${screen}-${scheme}.png`), fullPage: screen === "desktop" });
  check(`${label}: no error, no foreign request`, faults);
  check(`${label}: accessible`, await audit(page));
  check(`${label}: no wider than the screen`, overflow > 0 ? [`by ${overflow} pixels`] : []);
  await page.close();
  return paint;
}

/** The keyboard: pages, help, the skip link. */
async function keyboard(browser) {
  const { page, faults } = await open(browser, "desktop", "light");
  await page.goto(`${origin}/`, { waitUntil: "load" });
  await page.waitForSelector(".tiles .tile");
  const problems = [];
  for (const [key, hash] of [["t", "#/tables"], ["h", "#/heat"], ["s", "#/slow"], ["b", "#/tablets"], ["n", "#/snapshots"], ["u", "#/backups"], ["r", "#/rows"], ["a", "#/rules"], ["o", "#/"]]) {
    await page.keyboard.press("g");
    await page.keyboard.press(key);
    await page.waitForFunction((hash) => location.hash === hash, { timeout: 2_000 }, hash).catch(() => problems.push(`g ${key} does not lead to ${hash}`));
  }
  await page.keyboard.press("?");
  if (!(await page.$eval("#keys", (dialog) => dialog.open))) problems.push("? shows no help");
  await page.keyboard.press("Escape");
  await page.keyboard.press("g");
  await page.keyboard.press("t");
  await page.waitForSelector("input[type=search]");
  await page.keyboard.press("/");
  if (!(await page.evaluate(() => document.activeElement.matches("input[type=search]")))) problems.push("/ does not lead to the search");
  await page.keyboard.type("no such table");
  await page.waitForFunction(() => document.querySelector("td.soft")?.textContent.includes("no table"), { timeout: 5_000 }).catch(() => problems.push("the search finds too much"));
  check("keyboard", [...problems, ...faults]);
  await page.close();
}

/** Dragging over the heat map zooms, and the button zooms out. */
async function zoom(browser, [, hash]) {
  const { page, faults } = await open(browser, "desktop", "dark");
  await page.goto(`${origin}/${hash}`, { waitUntil: "load" });
  await page.waitForSelector(".keys:not(:empty)");
  const problems = [];
  const keys = () => page.$eval(".keys", (element) => element.textContent);
  const before = await keys();
  const box = await (await page.$(".heat canvas")).boundingBox();
  await page.mouse.move(box.x + box.width * 0.3, box.y + box.height * 0.3);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.9, box.y + box.height * 0.7, { steps: 5 });
  await page.screenshot({ path: join(folder, "heat-select-desktop-dark.png") });
  await page.mouse.up();
  await page.waitForFunction((before) => document.querySelector(".keys").textContent !== before, { timeout: 5_000 }, before).catch(() => problems.push(`no zoom: ${before}`));
  await page.screenshot({ path: join(folder, "heat-zoom-desktop-dark.png") });
  const buttons = await page.$$("button.plain");
  for (const button of buttons) {
    if ((await button.evaluate((element) => element.textContent)) === "Zoom out") await button.click();
  }
  await page.waitForFunction(() => document.querySelector(".keys").textContent.startsWith("−∞"), { timeout: 5_000 }).catch(() => problems.push("no way back"));
  check("zoom of the heat map", [...problems, ...faults]);
  await page.close();
}

/** All tablets can be reached a page at a time. */
async function paging(browser) {
  const { page, faults } = await open(browser, "desktop", "light");
  await page.goto(`${origin}/#/tablets`, { waitUntil: "load" });
  await page.waitForSelector(".pager");
  const problems = [];
  const total = (await (await fetch(`${origin}/api/tablets?limit=1`)).json()).total;
  const text = () => page.$eval(".pager span", (element) => element.textContent);
  if (!(await text()).includes(`of ${total.toLocaleString("en-US")}`)) problems.push(`not ${total} tablets: ${await text()}`);
  if (total > 100) {
    await page.click("button[data-key=next]");
    await page.waitForFunction(() => document.querySelector(".pager span").textContent.startsWith("101"), { timeout: 5_000 }).catch(() => problems.push("no second page"));
  }
  const begun = performance.now();
  await fetch(`${origin}/api/tablets?sort=busy&offset=${Math.max(0, total - 100)}`).then((answer) => answer.json());
  const took = performance.now() - begun;
  console.log(`${total} tablets: the last page takes ${took.toFixed(0)} ms`);
  check("paging", [...problems, ...faults]);
  await page.close();
}

/** A cell is made, changed and deleted, and rights are given and taken. */
async function changing(browser, [, hash]) {
  const { page, faults } = await open(browser, "desktop", "light");
  const problems = [];
  const answer = await (await fetch(`${origin}/api/rows?limit=1&table=${hash.split("=")[1]}`)).json();
  const press = async (text) => {
    for (const button of await page.$$("button")) {
      if ((await button.evaluate((element) => element.textContent)) === text && (await button.isVisible())) return button.click();
    }
    problems.push(`no button ${text}`);
  };
  const fill = async (label, text) => {
    for (const field of await page.$$("dialog .field")) {
      if ((await field.evaluate((element) => element.firstChild.textContent)) !== label) continue;
      const input = await field.$("input, textarea");
      await input.click({ clickCount: 3 });
      await input.type(text);
    }
  };
  const shows = (text, wanted = true) =>
    page
      .waitForFunction((text, wanted) => !document.querySelector("dialog.form") && document.querySelector("#content tbody").textContent.includes(text) === wanted, { timeout: 5_000 }, text, wanted)
      .catch(() => problems.push(`${wanted ? "no" : "still"} ${text}`));
  await page.goto(`${origin}/${hash}&prefix=${encodeURIComponent("\\x00console")}`, { waitUntil: "load" });
  await page.waitForSelector("#content tbody td");
  await press("New cell");
  for (const [label, text] of [["Row", "\\x00console"], ["Family", answer.families[0]], ["Column", "checked"], ["Value", "first value"]]) await fill(label, text);
  await page.screenshot({ path: join(folder, "rows-new-desktop-light.png") });
  check("new cell: accessible", await audit(page));
  await press("Save");
  await shows("first value");
  await press("Edit");
  await page.waitForSelector("dialog.form");
  await fill("Value", "second value");
  await press("Save");
  await shows("second value");
  await press("Delete");
  await page.waitForSelector("dialog.form");
  await (await page.$("dialog button.danger")).click();
  await shows("second value", false);
  problems.push(...(await unchanged(page, press, hash.split("=")[1], answer.families[0])));
  await page.goto(`${origin}/#/rules`, { waitUntil: "load" });
  await page.waitForSelector("#content table");
  await press("Give rights");
  await fill("Resource", "cluster");
  await fill("Member", "group:checkers");
  await press("Give");
  await shows("group:checkers");
  await press("Take");
  await page.waitForSelector("dialog.form");
  await (await page.$("dialog button.danger")).click();
  await shows("group:checkers", false);
  check("changes of cells and rules", [...problems, ...faults]);
  await page.close();
}

/** A value that is saved as it was shown stays the same, with its byte order mark and its line ends. */
async function unchanged(page, press, table, family) {
  const value = btoa("\xef\xbb\xbfa\r\nb");
  const place = { table: decodeURIComponent(table), row: "\\x00console", family, column: "bytes" };
  const send = async (path, body) => {
    const headers = { "content-type": "application/json", "x-stele-console": "1" };
    const answer = await fetch(`${origin}/api/${path}`, { method: "POST", headers, body: JSON.stringify(body) });
    return answer.ok ? [] : [`${path}: ${answer.status}`];
  };
  const problems = await send("cell", { ...place, value });
  await page.reload({ waitUntil: "load" });
  await page.waitForFunction(() => document.querySelector("#content tbody").textContent.includes("bytes"));
  await press("Edit");
  await page.waitForSelector("dialog.form");
  await press("Save");
  await page.waitForFunction(() => !document.querySelector("dialog.form"));
  const found = await (await fetch(`${origin}/api/rows?table=${table}&prefix=${encodeURIComponent(place.row)}&versions=2`)).json();
  const cells = found.rows[0].cells.filter((cell) => cell.column === place.column);
  if (cells.length !== 2) problems.push(`${cells.length} versions after a save`);
  for (const cell of cells) {
    if (cell.value !== value) problems.push(`saved unchanged, a value is ${cell.value}`);
    problems.push(...(await send("cell/delete", { ...place, time: cell.time })));
  }
  return problems;
}

/** The overview stays open, so that the server's own CPU time can be read meanwhile. */
async function stay(browser, seconds) {
  const { page, faults } = await open(browser, "desktop", "light");
  await page.goto(`${origin}/`, { waitUntil: "load" });
  await page.waitForSelector(".tiles .tile");
  await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  check("an open overview", faults);
  await page.close();
}

mkdirSync(folder, { recursive: true });
const browser = await puppeteer.launch({
  executablePath: chromium,
  args: ["--no-sandbox", "--disable-gpu", "--lang=en-US", "--force-color-profile=srgb"],
});
try {
  if (process.argv[5] !== undefined) await stay(browser, Number(process.argv[5]));
  else await checkAll(browser);
} finally {
  await browser.close();
}
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;

async function checkAll(browser) {
  const all = await pages();
  // The first page is loaded once before, so that no time of the browser's own start counts.
  await visit(browser, all[0], "desktop", "light");
  const paints = [];
  for (const screen of Object.keys(SCREENS)) {
    for (const scheme of ["light", "dark"]) {
      for (const page of all) paints.push([page[0], await visit(browser, page, screen, scheme)]);
    }
  }
  const [slowest, worst] = paints.reduce((most, paint) => (paint[1] > most[1] ? paint : most));
  const median = paints.map(([, paint]) => paint).sort((a, b) => a - b)[paints.length >> 1];
  console.log(`first paint: median ${median.toFixed(0)} ms, worst ${worst.toFixed(0)} ms (${slowest})`);
  check("first paint in time", median > FIRST_PAINT_MS ? [`median ${median.toFixed(0)} ms`] : []);
  await keyboard(browser);
  await zoom(browser, all.find(([name]) => name === "heat"));
  await paging(browser);
  await changing(browser, all.find(([name]) => name === "rows"));
}
