"""The topology as text: an indented tree, Mermaid, and Graphviz' dot. Pure."""

from __future__ import annotations

from dbt_streamsql import byte_sizes
from dbt_streamsql.meta.inspect.overview import Edge, Node, Topology

_ESCAPES = {"&": "#amp;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "`": "#96;"}


def printable(text: str) -> str:
    """The text with control characters except line breaks escaped: a terminal would obey them."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def text(topology: Topology) -> str:
    """Each root with everything that it feeds below it; `…` where a table was printed above."""
    nodes = {node.table: node for node in topology.nodes}
    sinks: dict[str, list[str]] = {}
    for edge in topology.edges:
        sinks.setdefault(edge.source, []).append(edge.sink)
    fed = {edge.sink for edge in topology.edges}
    lines: list[str] = []
    seen: set[str] = set()

    def write(table: str, depth: int) -> None:
        again = table in seen and table in sinks
        lines.append("  " * depth + _one_line(nodes[table]) + (" …" if again else ""))
        if table not in seen:
            seen.add(table)
            for sink in sinks.get(table, []):
                write(sink, depth + 1)

    for table in nodes:
        if table not in fed:
            write(table, 0)
    return "".join(f"{line}\n" for line in lines)


def mermaid(topology: Topology) -> str:
    """A flowchart for markdown pages that draw Mermaid."""
    ids = {node.table: f"n{index}" for index, node in enumerate(topology.nodes)}
    lines = ["flowchart LR"]
    for node in topology.nodes:
        label = "<br/>".join(_escaped(part) for part in (node.table, *_facts(node)))
        shape = ('[("', '")]') if node.kind in ("root", "stream") else ('["', '"]')
        lines.append(f"  {ids[node.table]}{shape[0]}{label}{shape[1]}")
    for edge in topology.edges:
        label = _edge_label(edge)
        arrow = "==>" if edge.critical else "-->"
        shown = f'|"{_escaped(label)}"|' if label else ""
        lines.append(f"  {ids[edge.source]} {arrow}{shown} {ids[edge.sink]}")
    return "".join(f"{line}\n" for line in lines)


def dot(topology: Topology) -> str:
    """A directed graph for Graphviz."""
    lines = ["digraph streamsql {", "  rankdir=LR;", "  node [shape=box];"]
    for node in topology.nodes:
        label = "\\n".join(_quoted(part) for part in (node.table, *_facts(node)))
        shape = ", shape=cylinder" if node.kind in ("root", "stream") else ""
        lines.append(f'  "{_quoted(node.table)}" [label="{label}"{shape}];')
    for edge in topology.edges:
        style = ", penwidth=3" if edge.critical else ""
        ends = f'"{_quoted(edge.source)}" -> "{_quoted(edge.sink)}"'
        lines.append(f'  {ends} [label="{_quoted(_edge_label(edge))}"{style}];')
    return "".join(f"{line}\n" for line in [*lines, "}"])


def _one_line(node: Node) -> str:
    facts = _facts(node)
    return node.table + (f"  [{', '.join(facts)}]" if facts else "")


def _facts(node: Node) -> list[str]:
    facts: list[str] = ["state table", node.state] if node.kind == "state" else [node.state]
    if node.kind not in ("root", "stream") and node.barrier is not None:
        facts.append(f"barrier {node.barrier}")
    if node.size is not None:
        facts.append(f"{node.size[0]:,} rows, {byte_sizes.as_text(node.size[1])}")
    if node.delay is not None:
        facts.append(f"delay {'' if node.delay_exact else '≥ '}{node.delay:.1f} s")
    if node.bottleneck:
        facts.append("slowest job")
    return facts


def _edge_label(edge: Edge) -> str:
    parts: list[str] = [edge.state] if edge.state != "current" else []
    parts += [f"{edge.delay:.1f} s"] if edge.delay is not None else []
    parts += [f"+{edge.rows[0]} -{edge.rows[1]}"] if edge.rows else []
    return ", ".join(parts)


def _escaped(label: str) -> str:
    return "".join(_ESCAPES.get(c, c) for c in label)


def _quoted(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
