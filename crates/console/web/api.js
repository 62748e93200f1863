// Calls of the API of this server.

const WAIT_MS = 15_000;
/** Longer than the server looks for rows before it says that there are none. */
export const ROWS_WAIT_MS = 40_000;
/** The token stays in this tab, and is sent by scripts of the console only. */
const TOKEN = "stele-token";

/** An error whose call needs a token, or another one. */
export class NotKnown extends Error {}

export function hasToken() {
  return sessionStorage.getItem(TOKEN) !== null;
}

/** Sends this token with all later calls; `null` for none. */
export function useToken(token) {
  if (token === null) sessionStorage.removeItem(TOKEN);
  else sessionStorage.setItem(TOKEN, token);
}

/** The answer to a call, within a time; an error has the sentence of the server. */
export async function get(path, parameters = {}, waitMs = WAIT_MS) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== null && value !== "") query.set(name, value);
  }
  const suffix = query.size > 0 ? `?${query}` : "";
  return call(`${path}${suffix}`, {}, waitMs);
}

/** The answer to a change. */
export async function post(path, body) {
  return call(path, {
    method: "POST",
    headers: { "content-type": "application/json", "x-stele-console": "1" },
    body: JSON.stringify(body),
  });
}

async function call(path, options, waitMs = WAIT_MS) {
  const headers = { ...options.headers };
  if (hasToken()) headers.authorization = `Bearer ${sessionStorage.getItem(TOKEN)}`;
  let response;
  try {
    response = await fetch(`/api/${path}`, { ...options, headers, credentials: "omit", signal: AbortSignal.timeout(waitMs) });
  } catch (error) {
    throw new Error(error.name === "TimeoutError" ? "the server does not answer" : "the server is not reached");
  }
  let answer;
  try {
    answer = await response.json();
  } catch {
    throw new Error(`the server answered with status ${response.status}`);
  }
  if (response.status === 401) throw new NotKnown(answer.error);
  if (!response.ok) throw new Error(answer.error ?? `status ${response.status}`);
  return answer;
}

/** As a function call of the API, but `null` where the server has not recovered yet or has no such thing. */
export async function tryGet(path, parameters) {
  try {
    return await get(path, parameters);
  } catch {
    return null;
  }
}
