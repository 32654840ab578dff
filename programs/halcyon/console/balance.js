// How regions are spread over the servers: a bar for each server, and a line for each table.

import { ask } from "./api.js";
import { panel } from "./charts.js";
import { afterTyping, Pager } from "./cluster.js";
import { DataTable, h, setText, tip } from "./dom.js";
import { count } from "./format.js";
import { svg } from "./svg.js";

/** As many servers have their names in the picture. */
const NAMED_MAX = 24;
const ROW = 40;
const HEIGHT = 200;
const FOOT = 4;
const TOP = 16;
const LEFT = 44;

const figure = (value) => (Number.isInteger(value) ? count(value) : value.toFixed(value < 1 ? 2 : 1));

export class Balance {
  #table = "";
  #at = null;

  constructor() {
    this.picture = svg("svg", { class: "bars", height: HEIGHT, tabindex: 0, role: "img" });
    this.picture.addEventListener("keydown", (event) => this.#key(event));
    this.picture.addEventListener("pointermove", (event) => this.#point(event));
    this.picture.addEventListener("pointerleave", () => tip.hide());
    this.picture.addEventListener("blur", () => this.#mark(null));
    this.cell = h("p", { id: "balance-bar", class: "muted", "aria-live": "polite" });
    this.box = h("div", { class: "picture" }, this.picture);
    this.resized = new ResizeObserver(() => this.#draw());
    this.resized.observe(this.box);
    this.all = h("button", { type: "button", text: "All tables", hidden: true, on: { click: () => this.#choose("") } });
    this.barList = new DataTable({
      caption: "Regions by server",
      empty: "No region server is online.",
      sort: { at: 1, down: true },
      columns: [
        { title: "Server", head: true, class: "long", value: (bar) => bar.server, show: (bar) => name(bar) },
        { title: "Regions", num: true, value: (bar) => bar.regions_count, show: (bar) => count(bar.regions_count) },
      ],
    });
    const bars = panel({ id: "balance-bars", title: "Regions on each server", about: "", controls: [this.all] }, this.box, this.cell,
      h("details", {}, h("summary", { text: "The bars as a list" }), this.barList.element));
    this.about = bars.element.querySelector(".about");
    this.title = bars.element.querySelector("h2");
    this.element = h("div", { class: "stack" }, bars.element, this.#tables());
  }

  #tables() {
    this.name = h("input", { type: "search", placeholder: "Filter by name", "aria-label": "Filter tables by name", on: { input: afterTyping(() => this.pages.turn(0)) } });
    const open = (table) => h("button", { type: "button", class: "link", text: table, on: { click: () => this.#choose(table) } });
    this.list = new DataTable({
      caption: "Tables",
      empty: "No table matches.",
      columns: [
        { title: "Table", head: true, class: "long", show: (table) => open(table.name) },
        { title: "State", wide: true, show: (table) => table.state },
        { title: "Regions", num: true, show: (table) => count(table.regions_count) },
        { title: "Open", num: true, show: (table) => count(table.open_count) },
        { title: "Servers", num: true, help: "Servers that have a region of it", show: (table) => count(table.servers_count) },
        { title: "Fewest", num: true, wide: true, help: "Regions of it on the server with the fewest", show: (table) => count(table.min) },
        { title: "Mean", num: true, wide: true, show: (table) => figure(table.mean) },
        { title: "Most", num: true, help: "Regions of it on the server with the most", show: (table) => count(table.max) },
      ],
    });
    this.pages = new Pager(async (offset, limit) => {
      const answer = await ask("balance", { table: this.#table, name: this.name.value.trim(), offset, limit });
      this.#show(answer);
      return { all: answer.count, shown: answer.tables.length };
    });
    return panel({ id: "balance-tables", title: "Tables", about: "Choose a table for its regions on each server.", controls: [this.name] }, this.list.element, this.pages.element).element;
  }

  update() {
    return this.pages.update();
  }

  destroy() {
    this.resized.disconnect();
  }

  #show(answer) {
    this.answer = answer;
    this.list.set(answer.tables);
    this.barList.set(answer.bars);
    setText(this.title, this.#table ? `Regions of ${this.#table} on each server` : "Regions on each server");
    const grouped = answer.bars.some((bar) => bar.servers_count > 1) ? " A bar is of several servers, and as high as the one with the most." : "";
    const sentence = `${figure(answer.mean)} regions on each server in the mean, ${count(answer.max)} on the one with the most. The line is the mean.${grouped}`;
    setText(this.about, sentence);
    this.picture.setAttribute("aria-label", `${sentence} Arrow keys go from bar to bar.`);
    this.#draw();
  }

  #choose(table) {
    this.#table = table;
    this.all.hidden = !table;
    this.#mark(null);
    this.pages.update();
    if (table) this.title.scrollIntoView({ block: "center" });
  }

  #draw() {
    const width = Math.floor(this.box.clientWidth);
    if (!this.answer || width === 0) return;
    const isNamed = this.answer.bars.length <= NAMED_MAX;
    const height = isNamed ? Math.max(1, this.answer.bars.length) * ROW : HEIGHT;
    this.picture.setAttribute("width", width);
    this.picture.setAttribute("height", height);
    this.picture.replaceChildren(...(isNamed ? this.#rows(width) : this.#columns(width)));
    this.#mark(this.#at);
  }

  /** Few servers: a row for each, with its name. */
  #rows(width) {
    const { bars, mean, max } = this.answer;
    const x = (value) => (value / Math.max(max, 1)) * (width - 56);
    this.barAt = (_, y) => Math.floor(y / ROW);
    const one = (bar, at) => [
      svg("text", { x: 0, y: at * ROW + 14, text: `${name(bar)}${bar.is_draining ? " (draining)" : ""}` }),
      svg("rect", { class: bar.is_draining ? "draining" : undefined, x: 0, y: at * ROW + 20, width: Math.max(1, x(bar.regions_count)), height: 12, rx: 2 }),
      svg("text", { x: x(bar.regions_count) + 8, y: at * ROW + 30, text: count(bar.regions_count) }),
    ];
    const line = (_, at) => svg("line", { class: "mean", x1: x(mean), x2: x(mean), y1: at * ROW + 17, y2: at * ROW + 35 });
    return [...bars.flatMap(one), ...bars.map(line)];
  }

  /** Many servers: a column for each. */
  #columns(width) {
    const { bars, mean, max } = this.answer;
    const top = Math.max(max, 1);
    const y = (value) => HEIGHT - FOOT - (value / top) * (HEIGHT - FOOT - TOP);
    const step = (width - LEFT) / bars.length;
    const gap = step > 6 ? Math.min(4, step * 0.2) : 0;
    this.barAt = (x) => Math.floor((x - LEFT) / step);
    const one = (bar, at) => svg("rect", {
      class: bar.is_draining ? "draining" : undefined, x: LEFT + at * step, y: y(bar.regions_count),
      width: Math.max(0.5, step - gap), height: HEIGHT - FOOT - y(bar.regions_count),
    });
    const label = (value) => svg("text", { x: LEFT - 8, y: y(value) + 4, "text-anchor": "end", text: figure(value) });
    const isApart = Math.abs(y(mean) - y(top)) > 14 && Math.abs(y(mean) - y(0)) > 14;
    return [
      svg("line", { class: "base", x1: LEFT, x2: width, y1: y(0), y2: y(0) }), ...bars.map(one),
      svg("line", { class: "mean", x1: LEFT, x2: width, y1: y(mean), y2: y(mean) }), label(top), label(0), isApart ? label(mean) : "",
    ];
  }

  #mark(at) {
    this.#at = at;
    this.picture.querySelectorAll("rect").forEach((bar, of) => bar.classList.toggle("marked", of === at));
    const bar = at === null ? null : this.answer?.bars[at];
    setText(this.cell, bar ? text(bar) : "");
  }

  #key(event) {
    const last = (this.answer?.bars.length ?? 0) - 1;
    const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    if (!step || last < 0) return;
    event.preventDefault();
    this.#mark(Math.min(last, Math.max(0, this.#at === null ? 0 : this.#at + step)));
  }

  #point(event) {
    const { left, top } = this.picture.getBoundingClientRect();
    const bar = this.answer?.bars[this.barAt?.(event.clientX - left, event.clientY - top)];
    if (bar) tip.show(event.clientX, event.clientY, [name(bar), `${count(bar.regions_count)} regions`, bar.is_draining ? "draining" : ""].filter(Boolean));
    else tip.hide();
  }
}

const name = (bar) => (bar.servers_count > 1 ? `${bar.server} and the ${count(bar.servers_count - 1)} after it` : bar.server);
const text = (bar) => `${name(bar)}: ${count(bar.regions_count)} regions${bar.is_draining ? ", draining" : ""}`;
