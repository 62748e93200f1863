// Charts of series over time: lines, or areas on top of each other.

import { h, s } from "./dom.js";
import { clock } from "./format.js";

const WIDTH = 600;
const HEIGHT = 132;

/** The least round number that is not below `value`. */
function ceiling(value, base) {
  if (!(value > 0)) return base === 1024 ? 1024 : 1;
  if (base === 1024) {
    const unit = 1024 ** Math.floor(Math.log(value) / Math.log(1024));
    const steps = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
    return unit * steps.find((step) => step * unit >= value);
  }
  const unit = 10 ** Math.floor(Math.log10(value));
  return unit * [1, 2, 2.5, 5, 10].find((step) => step * unit >= value * 0.9999);
}

/**
 * A chart. `lines` are `{ name, values, kind, dash }`, one value for each of `times` (null for none); `format` shows a value.
 * It is an image to a screen reader, with the last values as its text.
 */
export function chart({ title, times, lines, format, stacked = false, base = 1000 }) {
  const box = h("div", { class: "chart", role: "img", "aria-label": describe(title, lines, format) });
  const length = times.length;
  if (length < 2 || lines.every((line) => line.values.every((value) => value === null))) {
    box.append(h("div", { class: "empty" }, length < 2 ? "collecting" : "nothing yet"));
    return box;
  }
  const layers = stacked ? stack(lines) : lines.map((line) => ({ ...line, upper: line.values, lower: null }));
  const most = Math.max(0, ...layers.flatMap((layer) => layer.upper.filter((value) => value !== null)));
  const top = ceiling(most, base);
  const first = times[0];
  const span = Math.max(1, times[length - 1] - first);
  const x = (at) => ((times[at] - first) / span) * WIDTH;
  const y = (value) => HEIGHT - (value / top) * HEIGHT;
  const svg = s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  for (const part of [0, 0.5, 1]) {
    svg.append(s("line", { class: "axis", x1: 0, x2: WIDTH, y1: HEIGHT * part, y2: HEIGHT * part }));
  }
  // The uppermost layer first, so that the lower ones cover it.
  for (const layer of [...layers].reverse()) {
    if (stacked) svg.append(s("path", { class: `area s-${layer.kind}`, d: area(layer, x, y) }));
    else svg.append(s("path", { class: `line s-${layer.kind}${layer.dash ? " dash" : ""}`, d: path(layer.upper, x, y) }));
  }
  box.append(
    svg,
    ...[0, 0.5, 1].map((part) => h("span", { class: "label", css: { top: `${part * 100}%` } }, part === 1 ? "0" : format(top * (1 - part)))),
    h("span", { class: "time left" }, clock(first)),
    h("span", { class: "time right" }, clock(times[length - 1])),
  );
  hover(box, times, lines, format);
  return box;
}

export function legend(lines) {
  return h(
    "div",
    { class: "legend" },
    lines.map((line) => h("span", {}, h("i", { class: `swatch s-${line.kind}${line.dash ? " dash" : ""}` }), line.name)),
  );
}

function describe(title, lines, format) {
  const last = (line) => line.values.findLast((value) => value !== null);
  const now = lines.map((line) => `${line.name} ${last(line) === undefined ? "none" : format(last(line))}`);
  return `${title}: ${now.join(", ")}`;
}

function stack(lines) {
  const sum = lines[0].values.map(() => 0);
  return lines.map((line) => {
    const lower = [...sum];
    line.values.forEach((value, at) => (sum[at] += value ?? 0));
    return { ...line, lower, upper: [...sum] };
  });
}

function path(values, x, y) {
  let d = "";
  let pen = "M";
  values.forEach((value, at) => {
    if (value === null) {
      pen = "M";
      return;
    }
    d += `${pen}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    // A value between two gaps is a point of its own.
    if (pen === "M" && (values[at + 1] ?? null) === null) d += "h1.5";
    pen = "L";
  });
  return d;
}

function area(layer, x, y) {
  const up = layer.upper.map((value, at) => `${x(at).toFixed(1)} ${y(value).toFixed(1)}`);
  const down = layer.lower.map((value, at) => `${x(at).toFixed(1)} ${y(value).toFixed(1)}`).reverse();
  return `M${up.join("L")}L${down.join("L")}Z`;
}

function hover(box, times, lines, format) {
  const cross = h("div", { class: "cross", hidden: true });
  const tip = h("div", { class: "tip", hidden: true });
  box.append(cross, tip);
  const hide = () => (cross.hidden = tip.hidden = true);
  box.addEventListener("pointerleave", hide);
  box.addEventListener("pointermove", (event) => {
    const bounds = box.getBoundingClientRect();
    const part = Math.min(1, Math.max(0, (event.clientX - bounds.left) / bounds.width));
    const wanted = times[0] + part * (times[times.length - 1] - times[0]);
    let at = times.findIndex((time) => time >= wanted);
    if (at > 0 && wanted - times[at - 1] < times[at] - wanted) at -= 1;
    if (at < 0) at = times.length - 1;
    cross.hidden = tip.hidden = false;
    const left = ((times[at] - times[0]) / Math.max(1, times[times.length - 1] - times[0])) * 100;
    cross.style.left = `${left}%`;
    tip.style.left = left > 55 ? "auto" : `calc(${left}% + 8px)`;
    tip.style.right = left > 55 ? `calc(${100 - left}% + 8px)` : "auto";
    tip.replaceChildren(
      h("div", { class: "soft" }, clock(times[at])),
      ...lines.map((line) => {
        const value = line.values[at];
        return h("div", {}, h("i", { class: `swatch s-${line.kind}` }), ` ${line.name} `, value === null ? "–" : format(value));
      }),
    );
  });
}
