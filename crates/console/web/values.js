// Values of cells: bytes as text, hexadecimal digits, or a number of 64 bits.

export const FORMATS = ["text", "hex", "int64"];

export function fromBase64(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

export function toBase64(bytes) {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text);
}

function asText(bytes) {
  try {
    // A decoder drops a byte order mark unless it is told to ignore its meaning.
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return null;
  }
}

function asHex(bytes) {
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
}

function asNumber(bytes) {
  return bytes.length === 8 ? new DataView(bytes.buffer).getBigInt64(0).toString() : null;
}

/** Bytes in a format, or in hexadecimal digits where they have none. Returns the text and the format that it has. */
export function show(bytes, format) {
  const text = format === "text" ? asText(bytes) : format === "int64" ? asNumber(bytes) : null;
  return text === null ? [asHex(bytes), "hex"] : [text, format];
}

/** The same for a text area, which makes a line feed of each carriage return. */
export function showEditable(bytes, format) {
  const [text, is] = show(bytes, format);
  return text.includes("\r") ? [asHex(bytes), "hex"] : [text, is];
}

/** The bytes of a text in a format; an error says why it is none. */
export function parse(text, format) {
  if (format === "text") return new TextEncoder().encode(text);
  if (format === "hex") {
    const digits = text.replace(/\s+/g, "");
    if (digits.length % 2 !== 0 || /[^0-9a-fA-F]/.test(digits)) throw new Error("hexadecimal digits come in pairs of 0-9 and a-f");
    return Uint8Array.from(digits.match(/../g) ?? [], (pair) => parseInt(pair, 16));
  }
  if (!/^\s*-?\d+\s*$/.test(text)) throw new Error("an int64 has digits only");
  const number = BigInt(text);
  if (number !== BigInt.asIntN(64, number)) throw new Error("the number has more than 64 bits");
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigInt64(0, number);
  return bytes;
}
