// Calls of the API of this server.

const WAIT_MS = 15_000;

/** The answer to a call; an error has the sentence of the server. */
export async function get(path, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== null && value !== "") query.set(name, value);
  }
  const suffix = query.size > 0 ? `?${query}` : "";
  let response;
  try {
    response = await fetch(`/api/${path}${suffix}`, { signal: AbortSignal.timeout(WAIT_MS) });
  } catch (error) {
    throw new Error(error.name === "TimeoutError" ? "the server does not answer" : "the server is not reached");
  }
  let answer;
  try {
    answer = await response.json();
  } catch {
    throw new Error(`the server answered with status ${response.status}`);
  }
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
