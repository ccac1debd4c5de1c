// Figures as people read them.

export const short = (table) => table.split(".").pop() || table;

export function seconds(value) {
  if (value === null || value === undefined) return "";
  if (Math.abs(value) < 100) return `${value.toFixed(1)} s`;
  if (Math.abs(value) < 6000) return `${(value / 60).toFixed(1)} min`;
  if (Math.abs(value) < 172800) return `${(value / 3600).toFixed(1)} h`;
  return `${(value / 86400).toFixed(1)} d`;
}

export const delay = (value, exact) =>
  value === null || value === undefined ? "" : `${exact === false ? "≥ " : ""}${seconds(value)}`;

export const rows = (pair) => (pair ? `+${pair[0]} −${pair[1]}` : "");

export function size(pair) {
  if (!pair) return "";
  const units = ["B", "KB", "MB", "GB", "TB", "PB"];
  let [count, bytes] = pair, unit = 0;
  while (bytes >= 1000 && unit < units.length - 1) { bytes /= 1000; unit += 1; }
  return `${count.toLocaleString("en")} rows, ${bytes.toFixed(unit ? 1 : 0)} ${units[unit]}`;
}

export const percent = (share) => `${Math.round(share * 100)} %`;

export function moment(value) {
  if (value === null || value === undefined) return "";
  const at = new Date(value * 1000);
  const pad = (number) => String(number).padStart(2, "0");
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ` +
    `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
}

export const tableUrl = (name) => `#/table/${encodeURIComponent(name)}`;
export const barrierUrl = (number) => `#/barrier/${number}`;
