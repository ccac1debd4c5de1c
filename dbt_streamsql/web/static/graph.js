// The topology as a drawing: nodes are links, so Tab goes through them and Enter opens the table.

import { drawing } from "./drawing.js";
import { delay, rows, tableUrl } from "./format.js";

export function graph(topology) {
  const onPath = new Set((topology.path?.steps ?? []).map((step) => step.table));
  const nodes = topology.nodes.map((node) => ({
    id: node.table,
    key: `node ${node.table}`,
    kind: `${node.state}${onPath.has(node.table) ? " path" : ""}`,
    lines: linesOf(node, onPath.has(node.table)),
    href: tableUrl(node.table),
    title: node.table,
    round: ["root", "stream"].includes(node.kind),
  }));
  const edges = topology.edges.map((edge) => ({
    from: edge.source, to: edge.sink, text: labelOf(edge), strong: edge.critical,
    kind: `${edge.critical ? "path" : ""}${edge.state === "behind" ? " late" : ""}`,
  }));
  return drawing("Topology: tables and what they feed", "LR", nodes, edges);
}

// Without the catalog; the whole name is the tooltip.
const label = (table) => table.split(".").slice(1).join(".") || table;

function linesOf(node, onPath) {
  const lines = [[label(node.table), "title"], [stateText(node), "state-text"]];
  if (!["root", "stream"].includes(node.kind) && node.barrier !== null) {
    lines.push([`barrier ${node.barrier}, ${node.mode} ${rows(node.rows)}`, "soft"]);
  }
  if (node.delay !== null) lines.push([`delay ${delay(node.delay, node.delay_exact)}`, "soft"]);
  if (node.bottleneck) lines.push(["slowest job", "slow-text"]);
  else if (onPath) lines.push(["critical path", "slow-text"]);
  return lines;
}

const KINDS = { changelog: "changelog", state: "state table" };
const stateText = (node) => (node.kind in KINDS ? `${KINDS[node.kind]}, ${node.state}` : node.state);

function labelOf(edge) {
  const parts = edge.state === "current" ? [] : [edge.state];
  if (edge.delay !== null) parts.push(delay(edge.delay));
  if (edge.rows) parts.push(rows(edge.rows));
  return parts.join(", ");
}
