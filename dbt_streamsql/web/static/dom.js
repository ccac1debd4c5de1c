// Elements from names and texts. Texts become text nodes: nothing that came from a table's name,
// a query or an error is ever read as markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

export const h = (tag, attributes, ...children) =>
  filled(document.createElement(tag), attributes, children);

export const svg = (tag, attributes, ...children) =>
  filled(document.createElementNS(SVG, tag), attributes, children);

// A table; a column is [head, kind], kind "number", "name", "time" or "". A cell is a text or a node.
export function table(caption, columns, rows) {
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", {},
      h("caption", {}, caption),
      h("thead", {}, h("tr", {},
        columns.map(([head, kind]) => h("th", { scope: "col", class: kind }, head)))),
      h("tbody", {}, rows.map((row) => h("tr", {},
        row.map((cell, at) => h("td", { class: columns[at][1] }, cell)))))));
}

export const facts = (pairs) =>
  h("dl", { class: "facts" }, pairs.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));

export const stateOf = (state) => h("span", { class: `state ${state}` }, state);
