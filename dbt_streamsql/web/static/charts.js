// One figure over the newest barriers, as bars: the newest one is at the right.

import { svg } from "./dom.js";

const WIDTH = 150;
const HEIGHT = 40;

// `value` of a point is a number, or null for none; `said` writes a number for people.
export function bars(what, points, value, said) {
  const known = points.map(value).filter((each) => each !== null && each !== undefined);
  if (!known.length) return "";
  const most = Math.max(...known);
  const step = WIDTH / points.length;
  const told = `${what} over ${points.length} changes: at most ${said(most)}, newest ${said(known[known.length - 1])}`;
  return svg("svg", { width: WIDTH, height: HEIGHT, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": told },
    svg("title", {}, told),
    points.map((point, at) => {
      const height = Math.max(((value(point) ?? 0) / Math.max(most, 1e-9)) * (HEIGHT - 2), 1);
      const kind = point.mode === "full" ? "bar slow" : "bar";
      return svg("rect", { class: kind, x: at * step, y: HEIGHT - height, width: Math.max(step - 1, 1), height });
    }));
}
