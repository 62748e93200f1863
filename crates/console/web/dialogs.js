// Dialogs with fields.

import { h, replace } from "./dom.js";

/** A field with its name above it. */
export function field(name, input, wide = false) {
  return h("label", { class: wide ? "field wide" : "field" }, h("span", {}, name), input);
}

/** A choice of some texts. */
export function choice(name, texts, chosen, onchange) {
  const options = texts.map((text) => h("option", { value: text, selected: text === chosen }, text));
  return h("select", { "aria-label": name, onchange }, options);
}

/**
 * Asks with a dialog. `send()` carries the question out, and its error is shown; the dialog closes when it succeeds. Resolves
 * to whether it did.
 */
export function ask({ title, body, button, danger = false, send }) {
  const message = h("p", { class: "alert bad", role: "alert", hidden: true });
  const go = h("button", { class: danger ? "danger" : "main", type: "submit" }, button);
  const close = h("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
  let done = false;
  const submit = async (event) => {
    event.preventDefault();
    go.disabled = true;
    try {
      await send();
      done = true;
      dialog.close();
    } catch (error) {
      replace(message, h("span", {}, error.message));
      message.hidden = false;
    }
    go.disabled = false;
  };
  const form = h("form", { onsubmit: submit }, h("div", { class: "fields" }, body), message, h("div", { class: "tools" }, go, close));
  const dialog = h("dialog", { class: "form", "aria-label": title }, h("h2", {}, title), form);
  document.body.append(dialog);
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(done);
    });
    dialog.showModal();
  });
}
