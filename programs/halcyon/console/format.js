// Numbers as people read them. Every figure on the page comes through here.

const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

/** Three significant digits. */
function short(value) {
  const size = Math.abs(value);
  if (size >= 100 || value === 0) return plain.format(value);
  return value.toLocaleString("en", { maximumFractionDigits: size >= 10 ? 1 : 2 });
}

export const count = (value) => (isNumber(value) ? plain.format(value) : "–");

/** `12.3 k`, for rates and large counts. */
export function si(value) {
  if (!isNumber(value)) return "–";
  for (const [limit, sign] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (Math.abs(value) >= limit) return `${short(value / (sign === "k" ? 1e3 : limit))} ${sign}`;
  }
  return short(value);
}

/** A rate in a column: one decimal below 100, so that columns align. */
export function rate(value) {
  if (!isNumber(value)) return "–";
  return value === 0 ? "0" : value < 100 ? value.toFixed(1) : si(value);
}

export function bytes(value) {
  if (!isNumber(value)) return "–";
  for (const [shift, unit] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (Math.abs(value) >= shift) return `${short(value / shift)} ${unit}`;
  }
  return `${short(value)} B`;
}

export function milliseconds(value) {
  if (!isNumber(value)) return "–";
  if (value >= 60_000) return duration(value / 1000);
  if (value >= 1000) return `${short(value / 1000)} s`;
  if (value >= 1 || value === 0) return `${short(value)} ms`;
  return `${short(value * 1000)} µs`;
}

export const share = (value) => (isNumber(value) ? `${(value * 100).toFixed(value >= 0.9995 || value === 0 ? 0 : 1)} %` : "–");

export function duration(seconds) {
  if (!isNumber(seconds)) return "–";
  const whole = Math.floor(seconds);
  const [d, hours, m, s] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60, whole % 60];
  if (d > 0) return `${d} d ${hours} h`;
  if (hours > 0) return `${hours} h ${m} min`;
  if (m > 0) return `${m} min ${s} s`;
  return `${s} s`;
}

const pad = (number) => String(number).padStart(2, "0");

export function clock(ms, withSeconds = true) {
  const date = new Date(ms);
  const text = `${pad(date.getHours())}:${pad(date.getMinutes())}`;
  return withSeconds ? `${text}:${pad(date.getSeconds())}` : text;
}

/** How ticks of an axis are written: short, without a time unit. */
export function onAxis(unit) {
  if (unit.startsWith("bytes")) return bytes;
  if (unit === "ms") return milliseconds;
  if (unit === "share") return (value) => `${Math.round(value * 100)} %`;
  return (value) => (value >= 1e6 ? `${short(value / 1e6)} M` : value >= 1e3 ? `${short(value / 1e3)} k` : short(value));
}

/** How a unit of the API is written. */
export function by(unit) {
  switch (unit) {
    case "bytes": return bytes;
    case "bytes/s": return (value) => (isNumber(value) ? `${bytes(value)}/s` : "–");
    case "ms": return milliseconds;
    case "share": return share;
    default: return unit.endsWith("/s") ? (value) => (isNumber(value) ? `${si(value)}/s` : "–") : si;
  }
}
