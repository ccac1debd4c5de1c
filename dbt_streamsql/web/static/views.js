// The four views. Each is (data, status) -> the children of <main>.

import { bars } from "./charts.js";
import { facts, h, stateOf, table } from "./dom.js";
import { barrierUrl, delay, moment, percent, rows, seconds, size, tableUrl } from "./format.js";
import { gantt, pathBar, said, slowest } from "./gantt.js";
import { graph } from "./graph.js";
import { plan } from "./plan.js";

const link = (name, key) => h("a", { href: tableUrl(name), "data-key": `${key} ${name}` }, name);
const barrierLink = (number, key) =>
  h("a", { href: barrierUrl(number), "data-key": `${key} ${number}` }, String(number));
const STATES = {
  root: "written by others",
  current: "up to date with its inputs",
  behind: "an input has a newer version",
  staged: "computed, not published yet",
  unbuilt: "no version yet",
  failing: "its target does not take it",
};

const limits = ({ warn_after: warn, error_after: error }) =>
  [warn !== null && `${seconds(warn)} (warn)`, error !== null && `${seconds(error)} (error)`].filter(Boolean).join(", ");

const from = ({ origins }) => origins === null ? "" : !origins.length ? "no column"
  : origins.map(({ table: name, column, kind }, at) =>
    [at ? ", " : "", link(name, `from ${column}`), `.${column}`, kind === "identity" ? "" : ` (${kind})`]);

const stale = (limit) => limit && [" ", h("span", { class: "state failing" }, `stale (${limit})`)];

export function topologyView(topology, status) {
  if (!topology.nodes.length) {
    return [h("h1", {}, "Topology"), h("p", {}, "No view is defined in this warehouse yet.")];
  }
  const path = topology.path;
  const slow = path && slowest(path);
  const critical = slow && h("p", { id: "critical" },
    `Critical path of barrier ${path.barrier}: `, said(path), ". Slowest: ",
    h("span", { class: "slow" }, link(slow, "slow")), ".");
  return [
    h("h1", {}, "Topology"),
    critical,
    h("div", { class: "scroll graph", tabindex: 0, role: "region", "aria-label": "Graph" }, graph(topology)),
    h("ul", { class: "legend", "aria-label": "States" }, Object.entries(STATES).map(([state, means]) =>
      h("li", {}, stateOf(state), h("span", { class: "soft" }, `: ${means}`)))),
    h("h2", {}, "Tables"),
    table("Newest change of each table",
      [["Table", "name"], ["State", ""], ["Barrier", "number"], ["Mode", ""], ["Rows", "number"], ["Cost", "number"], ["In full", "number"], ["Delay", "number"], ["Size", "number"], ["Changed", "time"]],
      topology.nodes.map((node) => [
        link(node.table, "row"), [stateOf(node.state), stale(status.stale[node.table])],
        node.barrier === null ? "" : barrierLink(node.barrier, `of ${node.table}`),
        node.mode, rows(node.rows), seconds(node.seconds), seconds(node.last_full), delay(node.delay, node.delay_exact), size(node.size),
        h("span", { title: moment(node.changed_at) }, moment(node.changed_at))])),
    h("h2", {}, "Edges"),
    table("What feeds what, with the delay and rows of the newest change",
      [["From", "name"], ["To", "name"], ["State", ""], ["Delay", "number"], ["Rows", "number"], ["Critical", ""]],
      topology.edges.map((edge) => [edge.source, edge.sink, stateOf(edge.state), delay(edge.delay), rows(edge.rows), edge.critical ? "yes" : ""])),
    h("h2", {}, "What contributes most"),
    table("Jobs on the critical paths of the newest barriers",
      [["Job", "name"], ["Seconds", "number"], ["Share", "number"], ["On the path of", "number"], ["Slowest of", "number"]],
      status.contributions.map((job) => [
        link(job.table, "most"), seconds(job.seconds), percent(job.share), `${job.barriers} barriers`, `${job.bottleneck_of} barriers`])),
  ];
}

export function trendsView({ tables }) {
  if (!tables.length) return [h("h1", {}, "Trends"), h("p", {}, "No table has changed yet.")];
  const costs = tables.filter((trend) => trend.epochs && trend.in_full !== null);
  const spent = costs.reduce((sum, trend) => sum + trend.seconds, 0);
  const full = costs.reduce((sum, trend) => sum + trend.in_full, 0);
  return [
    h("h1", {}, "Trends"),
    full > 0 && h("p", { id: "saved" },
      `Changes were applied in ${seconds(spent)}. As many refreshes in full, each as long as the newest one of its view, take ${seconds(full)}.`),
    table("Each table over the newest barriers: a bar for every change, the newest at the right; refreshes in full in another color",
      [["Table", "name"], ["Delay", ""], ["Cost", ""], ["Rows", ""], ["Epochs from changes", "number"], ["They took", "number"], ["In full", "number"], ["Saved", "number"]],
      tables.map(({ table: name, points, ...trend }) => [
        link(name, "trend"),
        bars("Delay", points, (point) => point.delay, seconds),
        bars("Cost", points, (point) => point.seconds, seconds),
        bars("Changed rows", points, (point) => point.rows_inserted + point.rows_deleted, String),
        trend.epochs, seconds(trend.seconds), seconds(trend.in_full),
        trend.in_full === null ? "" : seconds(trend.in_full - trend.seconds)])),
  ];
}

export function barriersView({ barriers }) {
  const longest = Math.max(...barriers.map((barrier) => barrier.path.seconds), 0);
  return [
    h("h1", {}, "Barriers"),
    h("p", { class: "soft" }, "The bars are the critical paths: jobs one after the other, the slowest in another colour, waiting in thin."),
    table("Newest barriers first",
      [["Barrier", "number"], ["State", ""], ["Begun", "time"], ["Took", "number"], ["Critical path", ""], ["Slowest job", "name"], ["Tables", ""], ["Greatest delay", "number"]],
      barriers.map((barrier) => [
        barrierLink(barrier.id, "barrier"), barrier.state, moment(barrier.started_at), seconds(barrier.seconds),
        barrier.path.steps.length ? pathBar(barrier.path, longest) : "",
        slowest(barrier.path) ?? "",
        Object.entries(barrier.modes).map(([mode, count]) => `${count} ${mode}`).join(", "),
        delay(barrier.delay)])),
  ];
}

export function barrierView(data) {
  const at = data.summary;
  const late = new Map(data.delays.map((item) => [item.table, item]));
  const slow = slowest(at.path);
  return [
    h("h1", {}, `Barrier ${at.id}`),
    facts([["State", at.state], ["Begun", moment(at.started_at)], ["Took", seconds(at.seconds) || "not ended"],
      ["Greatest delay", delay(at.delay) || "none"], ["Critical path", said(at.path)]]),
    h("p", {},
      at.id > 1 && h("a", { href: barrierUrl(at.id - 1), "data-key": "previous" }, "Previous barrier"), " ",
      h("a", { href: barrierUrl(at.id + 1), "data-key": "next" }, "Next barrier")),
    h("h2", {}, "Timeline"),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Timeline" }, gantt(data) ?? "Nothing ran."),
    h("p", { class: "soft" }, "Thick: the job ran. Thin: it waited for the others of the barrier, then was published."),
    h("h2", {}, "Jobs"),
    table("What each job did",
      [["Table", "name"], ["State", ""], ["Mode", ""], ["Started", "time"], ["Finished", "time"], ["Cost", "number"], ["Read", "number"], ["Rows", "number"], ["Delay", "number"], ["Since a change of", "name"]],
      data.jobs.map((job) => {
        const delayed = late.get(job.table);
        const name = link(job.table, "job");
        return [
          job.table === slow ? [name, " ", h("span", { class: "slow" }, "slowest")] : name,
          job.state, job.mode, moment(job.started_at), moment(job.finished_at), seconds(job.seconds),
          job.rows_read ?? "", rows([job.rows_inserted, job.rows_deleted]),
          delay(delayed?.seconds, delayed?.since.exact), delayed?.since.root ?? ""];
      })),
    h("h2", {}, "Where the delay went"),
    table("Delay = waiting + jobs + aligning + publishing",
      [["Table", "name"], ["Delay", "number"], ["Waiting", "number"], ["Jobs of its path", ""], ["Aligning", "number"], ["Publishing", "number"]],
      data.delays.map((item) => [
        item.table, delay(item.seconds, item.since.exact), seconds(item.waiting),
        item.steps.map((step) => `${step.table} ${seconds(step.queued + step.seconds)} (${percent(step.share)})`).join(", "),
        seconds(item.aligning), seconds(item.publishing)])),
    h("h2", {}, "Roots"),
    table("The versions that were read",
      [["Table", "name"], ["Version", ""], ["Committed", "time"]],
      data.roots.map(([name, snapshot, committed]) => [link(name, "root"), snapshot === null ? "" : String(snapshot), moment(committed)])),
  ];
}

export function tableView(data, status) {
  const { node, definition } = data;
  const edges = (list, end, key) => (list.length
    ? list.map((edge, at) => [at ? ", " : "", link(edge[end], key), edge.state === "current" ? "" : ` (${edge.state})`])
    : "none");
  return [
    h("h1", {}, data.table),
    facts([
      ["State", node ? [stateOf(node.state), stale(status.stale[node.table])] : "dropped, or not read by any view"],
      ...(node && !["root", "stream"].includes(node.kind) ? [["Delay", delay(node.delay, node.delay_exact) || "none"], ["Newest change", `barrier ${node.barrier ?? "none"}, ${node.mode} ${rows(node.rows)}`]] : []),
      ...(node?.kind === "state" ? [["Holds", "the rows of a part of the queries of the views that read it"]] : []),
      ...(node?.freshness ? [["May be as old as", limits(node.freshness)]] : []),
      ...(node?.size ? [["Size", size(node.size)]] : []),
      ["Reads", edges(data.sources, "source", "reads")],
      ["Is read by", edges(data.readers, "sink", "readers")],
      ...(data.versions[0]?.approximate_since ? [["Approximate", `since barrier ${data.versions[0].approximate_since}: some of its state has expired by state_ttl`]] : []),
      ...(definition ? [["dbt node", definition.unique_id || "none"], ["Refresh mode", definition.refresh_mode]] : []),
    ]),
    definition && [
      h("h2", {}, "Schema"),
      table("Columns", [["Name", "name"], ["Type", ""], ["Computed from", "name"]],
        definition.columns.map((column) => [column.name, column.type, from(column)])),
      h("h2", {}, "Query"),
      h("pre", { tabindex: 0, role: "region", "aria-label": "Query" }, definition.sql)],
    (data.plan || data.explain) && h("h2", {}, "Plan"),
    data.plan && plan(data.plan),
    data.explain && [h("h3", {}, "Plan as text"), h("pre", { tabindex: 0, role: "region", "aria-label": "Plan" }, data.explain)],
    data.versions.length > 0 && [
      h("h2", {}, "Versions"),
      table("Newest first",
        [["Barrier", "number"], ["State", ""], ["Mode", ""], ["Rows", "number"], ["Read", "number"], ["Cost", "number"], ["Delay", "number"], ["Written", "time"], ["Snapshot", ""], ["Reason", "name"]],
        data.versions.map((version) => [
          barrierLink(version.barrier, "version"), version.state, version.mode,
          rows([version.rows_inserted, version.rows_deleted]), version.rows_read ?? "", seconds(version.seconds),
          delay(version.delay, version.delay_exact), version.mode === "noop" ? "" : moment(version.written_at),
          version.snapshot ?? "", version.reason]))],
    data.pins.length > 0 && [
      h("h2", {}, "Versions that barriers read"),
      table("Newest first", [["Barrier", "number"], ["Snapshot", ""], ["Committed", "time"]],
        data.pins.map((pin) => [barrierLink(pin.barrier, "pin"), pin.snapshot === null ? "" : String(pin.snapshot), moment(pin.committed_at)]))],
  ];
}

