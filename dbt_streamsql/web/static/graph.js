// The topology as SVG: nodes are links, so Tab goes through them and Enter opens the table.

import dagre from "./vendor/dagre.js";
import { svg } from "./dom.js";
import { delay, rows, tableUrl } from "./format.js";

const LETTER = 7.6;
const LINE = 17;

export function graph(topology) {
  const onPath = new Set((topology.path?.steps ?? []).map((step) => step.table));
  const layout = new dagre.graphlib.Graph().setGraph({ rankdir: "LR", nodesep: 28, ranksep: 40, marginx: 12, marginy: 12 });
  layout.setDefaultEdgeLabel(() => ({}));
  for (const node of topology.nodes) {
    const lines = linesOf(node, onPath.has(node.table));
    const longest = Math.max(...lines.map(([text]) => text.length));
    layout.setNode(node.table, { width: longest * LETTER + 24, height: lines.length * LINE + 14 });
  }
  for (const edge of topology.edges) {
    const text = labelOf(edge);
    layout.setEdge(edge.source, edge.sink, { width: text.length * 6.6 + 10, height: 18, labelpos: "c" });
  }
  dagre.layout(layout);
  const { width, height } = layout.graph();
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Topology: tables and what they feed" },
    svg("defs", {}, marker("arrow", "arrow"), marker("arrow-path", "arrow path")),
    topology.edges.map((edge) => drawnEdge(edge, layout.edge(edge.source, edge.sink))),
    topology.edges.map((edge) => labelledEdge(edge, layout.edge(edge.source, edge.sink))),
    topology.nodes.map((node) => drawnNode(node, layout.node(node.table), onPath.has(node.table))));
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

function marker(id, kind) {
  return svg("marker", { id, viewBox: "0 0 10 10", refX: 9, refY: 5, markerWidth: 10, markerHeight: 10, markerUnits: "userSpaceOnUse", orient: "auto" },
    svg("path", { class: kind, d: "M0 0L10 5L0 10z" }));
}

const kindOf = (edge) =>
  `edge${edge.critical ? " path" : ""}${edge.state === "behind" ? " late" : ""}`;

function drawnEdge(edge, at) {
  const points = at.points.map(({ x, y }) => `${x} ${y}`);
  return svg("g", { class: kindOf(edge), "data-edge": `${edge.source} ${edge.sink}`, "aria-hidden": true },
    svg("path", { d: `M${points.join("L")}`, "marker-end": `url(#${edge.critical ? "arrow-path" : "arrow"})` }));
}

// Above all lines: a label is read where lines cross.
function labelledEdge(edge, at) {
  const text = labelOf(edge);
  return text && svg("g", { class: kindOf(edge), "aria-hidden": true },
    svg("rect", { x: at.x - text.length * 3.2, y: at.y - 9, width: text.length * 6.4, height: 18 }),
    svg("text", { x: at.x, y: at.y + 4, "text-anchor": "middle" }, text));
}

function drawnNode(node, at, onPath) {
  const left = at.x - at.width / 2;
  const top = at.y - at.height / 2;
  const lines = linesOf(node, onPath);
  return svg("a", {
    class: `node ${node.state}${onPath ? " path" : ""}`,
    href: tableUrl(node.table),
    "data-key": `node ${node.table}`,
  },
  svg("rect", { x: left, y: top, width: at.width, height: at.height, rx: ["root", "stream"].includes(node.kind) ? 16 : 5 },
    svg("title", {}, node.table)),
  // The spaces keep the lines apart for who listens to the link.
  lines.map(([text, kind], line) =>
    [" ", svg("text", { class: kind, x: left + 12, y: top + 21 + line * LINE }, text)]));
}
