// The key map: requests per second by key range (down) and time (across).

import { panel } from "./charts.js";
import { colour, h, setText, tip } from "./dom.js";
import { clock, count, si } from "./format.js";

const GUTTER = 148;
const AXIS = 24;
const WIDE = 700;
const STOPS = ["--heat-0", "--heat-1", "--heat-2", "--heat-3", "--heat-4"];

/** Red, green and blue of a CSS colour such as `#1f5fd0`. */
const channels = (hex) => [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));

function scale() {
  const stops = STOPS.map((name) => channels(colour(name)));
  return (share) => {
    const place = Math.min(1, Math.max(0, share)) * (stops.length - 1);
    const low = Math.min(stops.length - 2, Math.floor(place));
    const mixed = stops[low].map((from, at) => Math.round(from + (stops[low + 1][at] - from) * (place - low)));
    return `rgb(${mixed.join(" ")})`;
  };
}

const rangeText = (row) => row.is_one_key ? `key ${row.start}` : `${row.start === "" ? "first key" : row.start} – ${row.end === "" ? "last key" : row.end}`;

export class KeyMap {
  #answer = null;
  #cell = null;
  #crosshair = null;

  constructor({ onChange }) {
    this.requests = h("select", { "aria-label": "Requests", on: { change: onChange } },
      h("option", { value: "all", text: "Reads and writes" }), h("option", { value: "reads", text: "Reads" }), h("option", { value: "writes", text: "Writes" }));
    this.table = h("select", { "aria-label": "Table", on: { change: onChange } }, h("option", { value: "", text: "All tables" }));
    this.canvas = h("canvas", { tabindex: "0", role: "img", "aria-label": "Requests by key range and time: none yet", "aria-describedby": "keymap-cell" });
    this.cell = h("p", { id: "keymap-cell", class: "hidden", "aria-live": "polite" });
    this.most = h("span");
    this.empty = h("p", { class: "empty", text: "No region is open. Key ranges appear here once a table exists; their colour shows requests per second." });
    this.hotKeys = h("ol", { class: "hot-keys", "aria-label": "Hot keys" });
    this.map = h("div", { class: "keymap" }, this.canvas,
      h("div", { class: "scale" }, h("span", { text: "0" }), h("i", { "aria-hidden": "true" }), this.most));
    const about = "Requests per second by key range and time. Regions are cut where their requests go, by samples of the rows asked for; a bright row is a hot range or a hot key.";
    const { element } = panel({ id: "keymap", title: "Hot keys and key ranges", about, controls: [this.requests, this.table], full: true }, this.map, this.hotKeys, this.empty, this.cell);
    this.element = element;
    this.resized = new ResizeObserver(() => this.draw());
    this.resized.observe(this.map);
    this.#listen();
  }

  destroy() {
    this.resized.disconnect();
  }

  update(answer, tables) {
    this.#answer = answer;
    const names = ["", ...tables];
    if (names.join("\n") !== [...this.table.options].map((option) => option.value).join("\n")) {
      const chosen = this.table.value;
      this.table.replaceChildren(...names.map((name) => h("option", { value: name, text: name || "All tables" })));
      this.table.value = names.includes(chosen) ? chosen : "";
    }
    this.draw();
  }

  setCrosshair(second) {
    this.#crosshair = second;
    this.draw();
  }

  /** Where rows and columns are, in CSS pixels. */
  #layout() {
    const { rows, columns } = this.#answer;
    const width = Math.floor(this.map.clientWidth);
    const gutter = width >= WIDE ? GUTTER : 0;
    const height = Math.min(400, Math.max(64, rows.length <= 10 ? rows.length * 28 : 200 + rows.length * 2));
    return { width, height, gutter, cellWidth: (width - gutter) / columns, rowHeight: height / rows.length };
  }

  draw() {
    const answer = this.#answer;
    const hasRows = Boolean(answer?.rows.length);
    this.map.hidden = !hasRows;
    this.#listHotKeys(answer?.hot_keys ?? []);
    this.empty.hidden = hasRows;
    if (!hasRows || this.map.clientWidth === 0) return;
    const layout = this.#layout();
    const dense = devicePixelRatio || 1;
    this.canvas.width = layout.width * dense;
    this.canvas.height = (layout.height + AXIS) * dense;
    this.canvas.style.height = `${layout.height + AXIS}px`;
    const context = this.canvas.getContext("2d");
    context.scale(dense, dense);
    this.#drawCells(context, layout);
    this.#drawTables(context, layout);
    this.#drawTimes(context, layout);
    setText(this.most, `${si(answer.largest)} requests/s`);
    this.canvas.dataset.rows = answer.rows.length;
    this.canvas.setAttribute("aria-label", `Requests by key range and time: ${count(answer.rows.length)} rows, at most ${si(answer.largest)} requests per second in one. Arrow keys read single cells.`);
  }

  /** The keys that are hot now. */
  #listHotKeys(keys) {
    this.hotKeys.hidden = keys.length === 0;
    this.hotKeys.replaceChildren(...keys.map(({ table, key, reads_per_s: reads, writes_per_s: writes }) =>
      h("li", {}, h("code", { text: key }), h("span", { text: `${table}: ${si(reads)} reads/s, ${si(writes)} writes/s` }))));
  }

  #drawCells(context, { gutter, cellWidth, rowHeight, height, width }) {
    const { values, largest } = this.#answer;
    const shade = scale();
    context.fillStyle = shade(0);
    context.fillRect(gutter, 0, width - gutter, height);
    const edge = (at, size) => Math.round(at * size);
    values.forEach((row, y) => {
      const [top, bottom] = [edge(y, rowHeight), edge(y + 1, rowHeight)];
      row.forEach((value, x) => {
        if (value <= 0) return;
        context.fillStyle = shade(0.06 + 0.94 * Math.sqrt(value / largest));
        const left = gutter + edge(x, cellWidth);
        context.fillRect(left, top, gutter + edge(x + 1, cellWidth) - left, Math.max(1, bottom - top));
      });
    });
    if (this.#cell) {
      const { x, y } = this.#cell;
      context.strokeStyle = colour("--text");
      context.strokeRect(gutter + x * cellWidth + 0.5, y * rowHeight + 0.5, Math.max(2, cellWidth - 1), Math.max(2, rowHeight - 1));
    }
  }

  /** A line between tables, and their names where there is room. */
  #drawTables(context, { gutter, rowHeight, width }) {
    const { rows } = this.#answer;
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    let first = 0;
    let lowest = -Infinity;
    rows.forEach((row, at) => {
      if (rows[at + 1]?.table === row.table) return;
      const [top, bottom] = [first * rowHeight, (at + 1) * rowHeight];
      first = at + 1;
      context.fillStyle = colour("--line");
      if (first < rows.length) context.fillRect(gutter, Math.round(bottom) - 0.5, width - gutter, 1);
      const middle = (top + bottom) / 2;
      if (gutter === 0 || middle < lowest + 16) return;
      lowest = middle;
      context.fillStyle = colour("--muted");
      context.fillText(fitted(context, row.table, gutter - 12), 0, Math.max(8, middle));
    });
  }

  #drawTimes(context, { gutter, height, width }) {
    const { first_ms: firstMs, step_s: step, columns } = this.#answer;
    const span = columns * step;
    const shown = width - gutter > 500 ? 6 : 3;
    context.fillStyle = colour("--muted");
    context.textBaseline = "bottom";
    for (let at = 0; at <= shown; at += 1) {
      context.textAlign = at === 0 ? "left" : at === shown ? "right" : "center";
      const text = clock(firstMs + (span * 1000 * at) / shown, span <= 900);
      context.fillText(text, gutter + ((width - gutter) * at) / shown, height + AXIS - 2);
    }
    context.textAlign = "left";
    if (this.#crosshair === null) return;
    const x = gutter + ((this.#crosshair * 1000 - firstMs) / (span * 1000)) * (width - gutter);
    if (x < gutter || x > width) return;
    context.strokeStyle = colour("--muted");
    context.setLineDash([4, 4]);
    context.strokeRect(Math.round(x) + 0.5, 0, 0, height);
    context.setLineDash([]);
  }

  #listen() {
    this.canvas.addEventListener("mousemove", (event) => {
      const cell = this.#cellAt(event);
      if (cell) tip.show(event.clientX, event.clientY, this.#lines(cell));
      else tip.hide();
    });
    this.canvas.addEventListener("mouseleave", () => tip.hide());
    this.canvas.addEventListener("blur", () => { this.#cell = null; this.draw(); });
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    this.canvas.addEventListener("keydown", (event) => {
      const step = steps[event.key];
      if (!step || !this.#answer?.rows.length) return;
      event.preventDefault();
      const { columns, rows } = this.#answer;
      const from = this.#cell ?? { x: columns - 1 - step[0], y: -step[1] };
      const within = (place, end) => Math.min(end - 1, Math.max(0, place));
      this.#cell = { x: within(from.x + step[0], columns), y: within(from.y + step[1], rows.length) };
      setText(this.cell, this.#lines(this.#cell).join(", "));
      this.draw();
    });
  }

  #cellAt(event) {
    if (!this.#answer?.rows.length) return null;
    const { left, top } = this.canvas.getBoundingClientRect();
    const { gutter, cellWidth, rowHeight } = this.#layout();
    const x = Math.floor((event.clientX - left - gutter) / cellWidth);
    const y = Math.floor((event.clientY - top) / rowHeight);
    const { columns, rows } = this.#answer;
    return x >= 0 && x < columns && y >= 0 && y < rows.length ? { x, y } : null;
  }

  #lines({ x, y }) {
    const { rows, values, first_ms: firstMs, step_s: step } = this.#answer;
    const row = rows[y];
    const joined = row.ranges > 1 ? [`${count(row.ranges)} ranges joined`] : [];
    const from = firstMs + x * step * 1000;
    return [`${si(values[y][x])} requests/s`, `table ${row.table}`, rangeText(row), ...joined, `${clock(from)} – ${clock(from + step * 1000)}`];
  }
}

function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let end = text.length;
  while (end > 1 && context.measureText(`${text.slice(0, end)}…`).width > width) end -= 1;
  return `${text.slice(0, end)}…`;
}
