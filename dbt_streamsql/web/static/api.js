// The JSON routes below `api/`, and the login.

export class Refused extends Error {}

export async function get(path) {
  const answer = await fetch(`api/${path}`, { credentials: "same-origin", cache: "no-store" });
  if (answer.status === 401) throw new Refused("a token is needed");
  if (!answer.ok) {
    const body = await answer.json().catch(() => ({}));
    throw new Error(typeof body.detail === "string" ? body.detail : `the service answers ${answer.status}`);
  }
  return answer.json();
}

const post = (path, body) => fetch(path, {
  method: "POST",
  credentials: "same-origin",
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify(body),
});

export const login = async (token) => (await post("login", { token })).ok;
export const logout = () => post("logout", {});
