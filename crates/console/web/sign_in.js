// The question for a token, and the name of the caller.

import { get, hasToken, useToken } from "./api.js";
import { ask, field } from "./dialogs.js";
import { h, replace } from "./dom.js";

/** Asks for a token until the server knows it. Resolves to whether it does. */
export function signIn(reason) {
  const token = h("input", { type: "password", required: true, autocomplete: "off", spellcheck: "false" });
  return ask({
    title: "Who are you?",
    body: [
      h("p", { class: "wide soft" }, "This server serves known callers only. Paste a bearer token; it stays in this tab."),
      reason ? h("p", { class: "alert wide" }, reason) : null,
      field("Token", token, true),
    ],
    button: "Sign in",
    send: async () => {
      useToken(token.value.trim());
      try {
        await get("me");
      } catch (error) {
        useToken(null);
        throw error;
      }
    },
  });
}

/** Shows the caller, with a button to forget the token. */
export function showCaller(element, me) {
  if (!me?.name) return replace(element);
  const forget = () => {
    useToken(null);
    location.reload();
  };
  replace(element, h("span", { title: `by ${me.by}` }, me.name), hasToken() ? h("button", { class: "plain small", type: "button", onclick: forget }, "Sign out") : null);
}
