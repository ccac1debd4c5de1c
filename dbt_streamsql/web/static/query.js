// A query over one published barrier: a text, a number, and the rows.

import { Refused, query } from "./api.js";
import { h, table } from "./dom.js";
import { seconds } from "./format.js";

let typed = "";
const NUMBERS = /^(tinyint|smallint|int|bigint|float|double|decimal)/;

export function queryView({ enabled, barrier }) {
  if (!enabled) {
    return [
      h("h1", {}, "Query"),
      h("p", {}, "Queries are off. This option of the service turns them on; a Spark of its own then starts with the first query:"),
      h("pre", { tabindex: 0, role: "region", "aria-label": "Command" }, "streamsql meta serve --queries"),
    ];
  }
  const text = h("textarea", { id: "sql", spellcheck: "false", autocomplete: "off", required: true, "data-key": "sql" });
  text.value = typed;
  const at = h("input", { id: "at", type: "number", min: 1, step: 1, placeholder: barrier ? `newest, ${barrier}` : "newest", "data-key": "at" });
  const run = h("button", { type: "submit", "data-key": "run" }, "Run");
  const said = h("p", { class: "soft", role: "status" });
  const result = h("div", { class: "result" });
  const ask = async (event) => {
    event.preventDefault();
    if (run.getAttribute("aria-disabled") || !form.reportValidity()) return;
    run.setAttribute("aria-disabled", "true");
    said.textContent = "Running. The first query starts Spark, which takes a while.";
    result.replaceChildren();
    try {
      const { answer, problem } = await query(text.value, at.value === "" ? null : Number(at.value));
      said.textContent = answer ? summary(answer) : "The query was not answered.";
      result.replaceChildren(answer ? rows(answer) : h("p", { class: "refused", role: "alert" }, problem));
    } catch (error) {
      said.textContent = error instanceof Refused ? "Log in first: open another page." : "The service cannot be reached.";
    }
    run.removeAttribute("aria-disabled");
  };
  text.addEventListener("input", () => { typed = text.value; });
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) ask(event);
  });
  const form = h("form", { class: "query", onsubmit: ask },
    h("label", { for: "sql" }, "One SELECT over tables of the topology"), text,
    h("div", { class: "row" }, h("label", { for: "at" }, "At barrier"), at, run, h("span", { class: "soft" }, "or Ctrl+Enter")));
  return [h("h1", {}, "Query"), form, said, result];
}

function summary({ barrier, rows: found, more, seconds: took }) {
  const count = `${more ? "The first " : ""}${found.length} row${found.length === 1 ? "" : "s"}`;
  return `${count}, ${barrier ? `as of barrier ${barrier}` : "of no table"}, in ${seconds(took)}.`;
}

const rows = ({ columns, rows: found }) =>
  table("Rows", columns.map(([name, kind]) => [[name, h("span", { class: "kind" }, ` ${kind}`)], NUMBERS.test(kind) ? "number" : "value"]),
    found.map((row) => row.map((value) => (value === null ? h("span", { class: "null" }, "NULL") : value))));
