// The JSON routes below `api/`, and the login.

export class Refused extends Error {}

export async function get(path) {
  const answer = await fetch(`api/${path}`, { credentials: "same-origin", cache: "no-store" });
  if (answer.status === 401) throw new Refused("a token is required");
  if (answer.status === 404) throw new Error("The table or barrier does not exist, or is past its retention.");
  if (!answer.ok) throw new Error(`The service answers ${answer.status}.`);
  return answer.json();
}

const post = (path, body) => fetch(path, {
  method: "POST",
  credentials: "same-origin",
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify(body),
});

export const login = async (token) => (await post("login", { token })).ok;
export const loginByCode = async (code) => (await post("login", { code })).ok;
export const logout = () => post("logout", {});

// { answer } or { problem }, a text.
export async function query(sql, barrier) {
  const answer = await post("api/query", barrier === null ? { sql } : { sql, barrier });
  const body = await answer.json().catch(() => ({}));
  if (answer.ok) return { answer: body };
  if (answer.status === 401) throw new Refused("a token is required");
  const text = body.message ?? (typeof body.detail === "string" ? body.detail : `The service answers ${answer.status}.`);
  const more = [body.given && `Given: ${body.given}`, body.allowed && `Allowed: ${body.allowed}`, body.hint && `Hint: ${body.hint}`];
  return { problem: [text, ...more.filter(Boolean)].join("\n") };
}
