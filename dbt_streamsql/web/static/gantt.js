// When the jobs of a barrier ran, as bars over time; and what a critical path consists of.

import { svg } from "./dom.js";
import { seconds, short } from "./format.js";

const ROW = 30;
const WIDTH = 760;
const RIGHT = 190;

export function gantt(barrier) {
  const jobs = barrier.jobs.filter((job) => job.started_at !== null);
  if (!jobs.length) return null;
  const slow = slowest(barrier.summary.path);
  const begin = Math.min(...jobs.map((job) => job.started_at));
  const end = Math.max(...jobs.map((job) => job.written_at ?? job.finished_at), barrier.summary.ended_at ?? 0);
  const label = Math.max(...jobs.map((job) => short(job.table).length)) * 7.8 + 24;
  const across = (at) => label + ((at - begin) / Math.max(end - begin, 0.001)) * WIDTH;
  const height = jobs.length * ROW + 34;
  const width = label + WIDTH + RIGHT;
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Timeline of barrier ${barrier.summary.id}; the table below has the same figures` },
    ticks(end - begin).map((tick) => [
      svg("line", { class: "axis", x1: across(begin + tick), x2: across(begin + tick), y1: 6, y2: height - 22 }),
      svg("text", { class: "soft", x: across(begin + tick), y: height - 6, "text-anchor": "middle" }, seconds(tick))]),
    jobs.map((job, row) => {
      const y = row * ROW + 8;
      const start = across(job.started_at);
      const stop = across(job.finished_at);
      const kind = job.table === slow ? "bar slow" : "bar";
      return svg("g", {},
        svg("text", { x: label - 10, y: y + 16, "text-anchor": "end" }, short(job.table)),
        job.written_at !== null &&
          svg("rect", { class: "bar wait", x: stop, y: y + 5, width: Math.max(across(job.written_at) - stop, 0), height: 12 }),
        svg("rect", { class: kind, x: start, y, width: Math.max(stop - start, 2), height: 22, rx: 2 }),
        svg("text", { class: "soft", x: across(job.written_at ?? job.finished_at) + 8, y: y + 16 },
          `${seconds(job.seconds)}, ${job.mode}${job.table === slow ? ", slowest" : ""}`));
    }));
}

// The steps of a critical path as one bar; `longest` seconds are as wide as it gets.
export function pathBar(path, longest) {
  const width = 260;
  let at = 0;
  const scale = width / Math.max(longest, 0.001);
  const slow = slowest(path);
  const parts = path.steps.flatMap((step) => {
    const queued = Math.max(step.queued, 0) * scale;
    const long = step.seconds * scale;
    const drawn = [
      svg("rect", { class: "bar wait", x: at, y: 5, width: queued, height: 8 }),
      svg("rect", { class: step.table === slow ? "bar slow" : "bar", x: at + queued, y: 1, width: Math.max(long - 1, 1), height: 16 })];
    at += queued + long;
    return drawn;
  });
  const rest = Math.max(path.seconds * scale - at, 0);
  return svg("svg", { width, height: 18, role: "img", "aria-label": said(path) },
    svg("title", {}, said(path)), parts,
    svg("rect", { class: "bar wait", x: at, y: 5, width: rest, height: 8 }));
}

export const slowest = (path) =>
  path.steps.reduce((most, step) => (!most || step.seconds > most.seconds ? step : most), null)?.table;

export const said = (path) =>
  path.steps.map((step) => `${short(step.table)} ${seconds(step.seconds)}`).join(" → ") || "nothing ran";

function ticks(span) {
  const raw = span / 6;
  const size = 10 ** Math.floor(Math.log10(Math.max(raw, 0.001)));
  const step = [1, 2, 5, 10].map((by) => by * size).find((by) => by >= raw) ?? size;
  return Array.from({ length: Math.floor(span / step) + 1 }, (_, at) => at * step);
}
