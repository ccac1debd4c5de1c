// The plan of a view as a drawing, and the same figures as a table.

import { h, table } from "./dom.js";
import { drawing } from "./drawing.js";
import { rows, seconds, short, size, tableUrl } from "./format.js";

const LONGEST = 40;

export function plan({ mode, barrier, nodes }) {
  const drawn = nodes.map((node) => ({
    id: node.id,
    key: `plan ${node.id}`,
    kind: `${family(node)}${node.inside ? " inside" : ""}`,
    lines: linesOf(node),
    href: node.table && node.id !== "view" ? tableUrl(node.table) : null,
    title: [node.text, node.strategy].filter(Boolean).join("\n") || node.kind,
    round: node.kind === "scan",
  }));
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const edges = nodes.flatMap((node) => node.inputs.map((input) => ({
    from: input, to: node.id, text: "", kind: byId.get(input).inside ? "inside" : "",
  })));
  return [
    h("p", { class: "soft" }, barrier === null
      ? "The view has no version yet."
      : `Figures of barrier ${barrier}, the newest change${mode === "full" ? ", in full" : ""}. An operator without figures was not measured by itself.`),
    h("div", { class: "scroll plan", tabindex: 0, role: "region", "aria-label": "Plan as a graph" },
      drawing("Plan: operators and what they read; the table below has the same figures", "TB", drawn, edges)),
    table("Operators, each before what it reads",
      [["Id", ""], ["Operator", "name"], ["Key", ""], ["Changed", "number"], ["Rows", "number"], ["Size", "number"], ["Seconds", "number"], ["Keeps state", ""], ["Stored", ""], ["How", "name"]],
      nodes.map((node) => [
        /^\d/.test(node.id) && node.id !== "0" ? node.id : "", [node.kind, node.text && ` ${node.text}`], node.keys.join(", "),
        node.changed ?? "", rows(node.rows), size(node.size), seconds(node.seconds), node.ttl, stored(node),
        node.inside ? "with the state table" : node.strategy])),
  ];
}

const stored = (node) => (node.stored === null ? ""
  : node.stored ? h("a", { href: tableUrl(node.table), "data-key": `stored ${node.id}` }, "stored") : "can be stored");

// Without the catalog; what was cut off is the tooltip.
const label = (name) => name.split(".").slice(1).join(".") || name;
const cut = (text) => (text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text);

function linesOf(node) {
  const named = node.id === "view" || node.kind === "scan";
  const lines = [[cut(named ? label(node.text) : node.kind), "title"]];
  if (named) lines.push([node.kind, "state-text"]);
  else if (node.text) lines.push([cut(node.text), "soft"]);
  if (node.changed !== null) lines.push([`${node.changed.toLocaleString("en")} rows changed`, "soft"]);
  if (node.rows) lines.push([`${rows(node.rows)} rows${node.seconds === null ? "" : `, ${seconds(node.seconds)}`}`, "soft"]);
  if (node.size) lines.push([size(node.size), "soft"]);
  if (node.ttl) lines.push([cut(`keeps state ${node.ttl}`), "soft"]);
  if (node.stored) lines.push([cut(`stored in ${short(node.table)}`), "state-text"]);
  else if (node.stored === false) lines.push(["can be stored", "soft"]);
  return lines;
}

// The color says what kind of operator it is; its name says it too.
function family({ id, kind, stored: isStored }) {
  if (isStored) return "op-stored";
  if (id === "view" || kind === "query") return "op-view";
  if (kind === "scan") return "op-scan";
  if (kind.endsWith("join")) return "op-join";
  if (["group", "distinct", "window", "limit", "wide table"].includes(kind)) return "op-group";
  return "op-row";
}
