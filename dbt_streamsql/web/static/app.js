// Routes (#/, #/trends, #/barriers, #/barrier/N, #/table/NAME, #/query), login, theme.

import { Refused, get, login, loginByCode, logout } from "./api.js";
import { h } from "./dom.js";
import { seconds } from "./format.js";
import { Live } from "./live.js";
import { queryView } from "./query.js";
import { barrierView, barriersView, tableView, topologyView, trendsView } from "./views.js";

const main = document.getElementById("main");
const problem = document.getElementById("problem");
const state = document.getElementById("state");
const buttons = Object.fromEntries(["refresh", "theme", "logout"].map((id) => [id, document.getElementById(id)]));
const isOn = () => buttons.refresh.getAttribute("aria-pressed") === "true";
const live = new Live(() => isOn() && !main.querySelector("form.login"), () => render(false), () => headline());
let shown = "";
let asked = 0;
let last = null;
let moves = false;

function route() {
  const [, page = "", name = ""] = location.hash.match(/^#\/([^/]*)\/?(.*)$/) ?? [];
  if (page === "trends") return { title: "Trends", page, view: trendsView, load: () => get("trends") };
  if (page === "barriers") return { title: "Barriers", page, view: barriersView, load: () => get("barriers") };
  if (page === "barrier") {
    return { title: `Barrier ${name}`, page: "barriers", view: barrierView, load: () => get(`barriers/${encodeURIComponent(name)}`) };
  }
  // What was typed stays: it is shown once.
  if (page === "query") return { title: "Query", page, view: queryView, load: () => get("queries"), once: true };
  if (page === "table") {
    const table = decodeURIComponent(name);
    return { title: table, page: "", view: tableView, load: () => get(`table?name=${encodeURIComponent(table)}`) };
  }
  return { title: "Topology", page: "topology", view: topologyView, load: () => get("topology") };
}

async function render(moved) {
  const mine = ++asked;
  // An answer that another one overtakes leaves the focus to that one.
  moves ||= moved;
  const at = route();
  try {
    const [data, status] = await Promise.all([at.load(), get("status")]);
    if (mine !== asked) return;
    told("");
    last = { status, at: Date.now() };
    headline();
    buttons.logout.hidden = !sessionStorage.getItem("login");
    // The time of the answer alone is no news.
    const text = location.hash + (at.once ? "" : JSON.stringify([data, at.view === topologyView ? status : status.stale], (key, value) => (key === "now" || key === "age" ? 0 : value)));
    if (text !== shown) {
      shown = text;
      show(at.view(data, status));
    }
    document.title = `${at.title} · streamsql`;
    live.listen();
  } catch (error) {
    if (mine !== asked) return;
    if (error instanceof Refused) {
      live.stop();
      ask();
    }
    else told(error.message);
  }
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === at.page) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (moves) main.focus();
  moves = false;
}

// What had the focus has it again, and what was scrolled stays where it was.
function show(children) {
  const key = document.activeElement?.dataset?.key;
  const scrolled = [...main.querySelectorAll(".scroll")].map((box) => [box.scrollLeft, box.scrollTop]);
  main.replaceChildren(...children.flat(Infinity).filter(Boolean));
  main.querySelectorAll(".scroll").forEach((box, at) => box.scrollTo(...(scrolled[at] ?? [0, 0])));
  if (key) [...main.querySelectorAll("[data-key]")].find((element) => element.dataset.key === key)?.focus();
}

function told(text) {
  problem.textContent = text;
  problem.hidden = !text;
}

// The age grows between two answers.
function headline() {
  if (!last) return;
  const { status } = last;
  const parts = [status.barrier ? `Barrier ${status.barrier}` : "No barrier yet"];
  if (status.age !== null) parts.push(`committed ${seconds(status.age + (Date.now() - last.at) / 1000)} ago`);
  for (const barrier of status.unfinished) parts.push(`barrier ${barrier.id} in ${barrier.state}`);
  if (status.owner) parts.push("running");
  parts.push(`${status.leases} leases`);
  state.textContent = parts.join(", ");
}

function ask() {
  if (main.querySelector("form.login")) return;
  shown = "";
  last = null;
  state.textContent = "";
  const token = h("input", { id: "token", type: "password", autocomplete: "off", required: true });
  const enter = async (event) => {
    event.preventDefault();
    if (await login(token.value.trim())) {
      sessionStorage.setItem("login", "yes");
      told("");
      await render(true);
    } else {
      told("This token is not known.");
      token.select();
    }
  };
  show([h("h1", {}, "Log in"), h("form", { class: "login", onsubmit: enter },
    h("label", { for: "token" }, "Token of MetaService"), token, h("button", { type: "submit" }, "Log in"))]);
  token.focus();
}

const darkSystem = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ?? (darkSystem.matches ? "dark" : "light")) === "dark";
const tellTheme = () => buttons.theme.setAttribute("aria-pressed", String(isDark()));

buttons.theme.addEventListener("click", () => {
  const theme = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("theme", theme);
  tellTheme();
});
buttons.refresh.addEventListener("click", () => {
  const on = !isOn();
  buttons.refresh.setAttribute("aria-pressed", String(on));
  if (on) render(false);
  else live.stop();
});
buttons.logout.addEventListener("click", async () => {
  await logout();
  sessionStorage.removeItem("login");
  buttons.logout.hidden = true;
  live.stop();
  ask();
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
const kept = localStorage.getItem("theme");
if (kept === "dark" || kept === "light") document.documentElement.dataset.theme = kept;
tellTheme();
darkSystem.addEventListener("change", tellTheme);
addEventListener("hashchange", () => render(true));

// A link that signs in: its code works once, so it leaves the address.
async function start() {
  const code = location.hash.match(/^#code=(.+)$/)?.[1];
  if (code) {
    history.replaceState(null, "", "#/");
    if (await loginByCode(code)) sessionStorage.setItem("login", "yes");
    else told("This link has been used, or is too old. Log in with a token, or ask for a new link.");
  }
  await render(false);
}
start();
