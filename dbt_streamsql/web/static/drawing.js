// Boxes with lines of text, and arrows between them, as SVG. Every box can be reached with Tab: one
// with a page is a link, any other is an image with a name.

import dagre from "./vendor/dagre.js";
import { svg } from "./dom.js";

const LETTER = 7.6;
const LINE = 17;

// `direction`: LR or TB. A node is {id, kind, key, lines: [[text, class]], href?, title, round?}, an
// edge is {from, to, kind, text, strong?}. `kind` are classes, `key` is what keeps the focus.
export function drawing(label, direction, nodes, edges) {
  const layout = new dagre.graphlib.Graph().setGraph({ rankdir: direction, nodesep: 28, ranksep: 40, marginx: 12, marginy: 12 });
  layout.setDefaultEdgeLabel(() => ({}));
  for (const node of nodes) {
    const longest = Math.max(...node.lines.map(([text]) => text.length));
    layout.setNode(node.id, { width: longest * LETTER + 24, height: node.lines.length * LINE + 14 });
  }
  for (const { from, to, text } of edges) {
    layout.setEdge(from, to, text ? { width: text.length * 6.6 + 10, height: 18, labelpos: "c" } : {});
  }
  dagre.layout(layout);
  const { width, height } = layout.graph();
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": label },
    svg("defs", {}, marker("arrow", "arrow"), marker("arrow-path", "arrow path")),
    edges.map((edge) => line(edge, layout.edge(edge.from, edge.to))),
    edges.map((edge) => edge.text && lineText(edge, layout.edge(edge.from, edge.to))),
    nodes.map((node) => box(node, layout.node(node.id))));
}

function marker(id, kind) {
  return svg("marker", { id, viewBox: "0 0 10 10", refX: 9, refY: 5, markerWidth: 10, markerHeight: 10, markerUnits: "userSpaceOnUse", orient: "auto" },
    svg("path", { class: kind, d: "M0 0L10 5L0 10z" }));
}

function line(edge, at) {
  const points = at.points.map(({ x, y }) => `${x} ${y}`);
  return svg("g", { class: `edge ${edge.kind}`, "data-edge": `${edge.from} ${edge.to}`, "aria-hidden": true },
    svg("path", { d: `M${points.join("L")}`, "marker-end": `url(#${edge.strong ? "arrow-path" : "arrow"})` }));
}

// Above all lines: a label is read where lines cross.
function lineText({ kind, text }, at) {
  return svg("g", { class: `edge ${kind}`, "aria-hidden": true },
    svg("rect", { x: at.x - text.length * 3.2, y: at.y - 9, width: text.length * 6.4, height: 18 }),
    svg("text", { x: at.x, y: at.y + 4, "text-anchor": "middle" }, text));
}

function box(node, at) {
  const left = at.x - at.width / 2;
  const top = at.y - at.height / 2;
  const name = node.lines.map(([text]) => text).join(", ");
  const given = node.href
    ? ["a", { href: node.href }]
    : ["g", { tabindex: 0, role: "img", "aria-label": name }];
  return svg(given[0], { ...given[1], class: `node ${node.kind}`, "data-key": node.key },
    svg("rect", { x: left, y: top, width: at.width, height: at.height, rx: node.round ? 16 : 5 },
      svg("title", {}, node.title)),
    // The spaces keep the lines apart for who listens to the link.
    node.lines.map(([text, kind], row) =>
      [" ", svg("text", { class: kind, x: left + 12, y: top + 21 + row * LINE }, text)]));
}
