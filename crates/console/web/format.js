// Numbers and times as people read them.

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const COUNT_UNITS = ["", "k", "M", "G", "T"];

function scaled(number, base, units) {
  let at = 0;
  while (Math.abs(number) >= (at === 0 ? base : base * 0.9995) && at < units.length - 1) {
    number /= base;
    at += 1;
  }
  if (at === 0 && Math.abs(number) < 0.005) return ["0", units[0]];
  const digits = at === 0 ? (number % 1 === 0 || number >= 100 ? 0 : number < 1 ? 2 : 1) : number >= 99.95 ? 0 : number >= 9.995 ? 1 : 2;
  return [number.toFixed(digits), units[at]];
}

/** The number and its unit, apart. */
export function bytesParts(bytes) {
  return bytes === null || bytes === undefined ? ["–", ""] : scaled(bytes, 1024, BYTE_UNITS);
}

export function bytes(number) {
  const [value, unit] = bytesParts(number);
  return unit ? `${value} ${unit}` : value;
}

export function countParts(number) {
  return number === null || number === undefined ? ["–", ""] : scaled(number, 1000, COUNT_UNITS);
}

export function count(number) {
  return countParts(number).join("");
}

export function perSecond(number) {
  return number === null || number === undefined ? "–" : `${count(number)}/s`;
}

export function bytesPerSecond(number) {
  return number === null || number === undefined ? "–" : `${bytes(number)}/s`;
}

export function percent(part) {
  return part === null || part === undefined ? "–" : `${(part * 100).toFixed(part < 0.1 && part > 0 ? 1 : 0)} %`;
}

/** A duration in seconds. */
export function durationParts(seconds) {
  if (seconds === null || seconds === undefined) return ["–", ""];
  if (seconds === 0) return ["0", "s"];
  if (seconds < 0.000_999_5) return [(seconds * 1e6).toFixed(0), "µs"];
  if (seconds < 0.9995) return [(seconds * 1e3).toPrecision(seconds < 0.1 ? 2 : 3), "ms"];
  if (seconds < 99.5) return [Number(seconds.toPrecision(3)).toString(), "s"];
  if (seconds < 5940) return [Math.round(seconds / 60).toString(), "min"];
  if (seconds < 169_200) return [(seconds / 3600).toFixed(seconds < 36_000 ? 1 : 0), "h"];
  return [Math.round(seconds / 86_400).toString(), "d"];
}

export function duration(seconds) {
  return durationParts(seconds).join(" ").trim();
}

/** A time in seconds since 1970, in the zone of the reader. */
export function time(seconds) {
  return seconds ? new Date(seconds * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" }) : "–";
}

export function clock(seconds, withSeconds = true) {
  return new Date(seconds * 1000).toLocaleTimeString(undefined, {
    hour: "2-digit",
    minute: "2-digit",
    second: withSeconds ? "2-digit" : undefined,
    hourCycle: "h23",
  });
}

/** Rows from `start` to `end`. */
export function range(start, end) {
  const from = start === "" ? "−∞" : start;
  return end === null || end === undefined ? `${from} … ∞` : `${from} … ${end}`;
}

export function plural(number, one, many = `${one}s`) {
  return `${number.toLocaleString()} ${number === 1 ? one : many}`;
}
