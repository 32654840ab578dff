// Charts against time, all with one crosshair. uPlot draws; the legend and the tables are our own.

import { colour, h, setText, tip } from "./dom.js";
import { by, clock, onAxis } from "./format.js";

const uPlot = globalThis.uPlot;
const SYNC = "console";
const LATEST_POINTS = 5;

export const palette = (at) => `--s${(at % 10) + 1}`;

/** A box with a title, a sentence and room for controls. */
export function panel({ id, title, about, controls = [], full = false }, ...children) {
  const heading = h("h2", { id: `${id}-title`, text: title });
  const time = h("span", { class: "muted at" });
  const head = h("header", {}, heading, time, h("div", { class: "controls" }, controls), h("p", { class: "about", text: about }));
  const element = h("section", { id, class: full ? "panel full" : "panel", "aria-labelledby": `${id}-title` }, head, children);
  return { element, time };
}

/** The y scale that holds what is drawn: from 0, or powers of ten. */
function yRange({ log, top, floor }) {
  if (log) {
    return (_, min, max) => {
      if (!(max > 0)) return [floor, floor * 100];
      const low = 10 ** Math.floor(Math.log10(Math.max(min, 1e-3)));
      return [Math.min(low, floor), Math.max(10 ** Math.ceil(Math.log10(max * 1.05)), floor * 10)];
    };
  }
  return (_, min, max) => [0, Math.max(top ?? 0, (max || 0) * 1.1) || 1];
}

function powersOfTen(_, __, min, max) {
  const powers = [];
  for (let power = Math.round(Math.log10(min)); power <= Math.round(Math.log10(max)); power += 1) powers.push(10 ** power);
  return powers;
}

const POWERS_OF_TWO = Array.from({ length: 48 }, (_, power) => 2 ** power);
const WHOLE = [1, 2, 5].flatMap((first) => [first, first * 10, first * 100, first * 1e3, first * 1e4]).sort((a, b) => a - b);

/** Steps of ticks that read well in a unit. */
function steps(unit) {
  if (unit.startsWith("bytes")) return POWERS_OF_TWO;
  return unit === "" ? WHOLE : undefined;
}

function axes(unit, log) {
  const format = onAxis(unit);
  const style = { stroke: colour("--muted"), grid: { stroke: colour("--line-soft"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
  const time = (_, splits) => splits.map((second) => clock(second * 1000, splits[1] - splits[0] < 60));
  return [
    { ...style, size: 24, space: 72, values: time },
    { ...style, size: 60, gap: 6, space: 36, incrs: log ? undefined : steps(unit), values: (_, splits) => splits.map(format), splits: log ? powersOfTen : undefined },
  ];
}

/** Points without neighbours, which a line does not show. */
function isolated(plot, at) {
  const points = plot.data[at];
  const is = (place) => points[place] !== null && points[place] !== undefined;
  const alone = [];
  for (let place = 0; place < points.length; place += 1) {
    if (is(place) && !is(place - 1) && !is(place + 1)) alone.push(place);
  }
  return alone.length > 0 ? alone : null;
}

/** What all charts share: size, crosshair, redrawing in other colours. */
class Chart {
  constructor({ height = 180 }) {
    this.height = height;
    this.over = h("p", { class: "over", hidden: true });
    this.box = h("div", { class: "chart" }, this.over);
    this.plot = null;
    this.resized = new ResizeObserver(() => this.#fit());
    this.resized.observe(this.box);
  }

  #fit() {
    const width = Math.floor(this.box.clientWidth);
    if (this.plot && width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: this.height });
  }

  draw(options, data) {
    const width = Math.floor(this.box.clientWidth);
    if (width === 0) return;
    if (!this.plot) {
      this.plot = new uPlot({
        width,
        height: this.height,
        legend: { show: false },
        padding: [10, 20, 0, 0],
        cursor: { y: false, drag: { x: false, y: false }, sync: { key: SYNC, scales: ["x", null] }, points: { size: 6 } },
        ...options(),
      }, data, this.box);
    } else {
      this.plot.setData(data);
    }
  }

  /** For other colours, or other series. */
  rebuild() {
    this.plot?.destroy();
    this.plot = null;
  }

  destroy() {
    this.rebuild();
    this.resized.disconnect();
  }

  empty(text) {
    this.over.hidden = !text;
    if (text) setText(this.over, text);
  }
}

/**
 * Lines, or a stack of areas. `series` is a list of `{name, label}`, or a function of the store that returns one.
 * `limit` is `{label, value()}`: a dashed line.
 */
export class TimeChart extends Chart {
  constructor(options) {
    super(options);
    this.options = options;
    this.legend = h("ul", { class: "legend" });
    const { element, time } = panel(options, this.box, this.legend);
    this.element = element;
    this.time = time;
    this.shown = "";
  }

  update(store) {
    const { series, stacked, limit } = this.options;
    const wanted = typeof series === "function" ? series(store) : series;
    const key = wanted.map((one) => one.name).join();
    if (key !== this.shown) {
      this.rebuild();
      this.shown = key;
      this.#makeLegend(wanted, store);
    }
    this.store = store;
    this.wanted = wanted;
    const values = wanted.map((one) => store.values(one.name));
    const hasValues = values.some((points) => points.some((value) => value !== null));
    this.empty(hasValues ? "" : this.options.empty);
    const drawn = stacked ? stack(values) : values;
    if (limit) drawn.push(store.times.map(() => limit.value()));
    this.draw(() => this.#plotOptions(wanted), [store.times, ...drawn]);
    this.#showValues(this.plot?.cursor.idx);
  }

  #plotOptions(wanted) {
    const { unit, stacked, limit, log, top, floor = 1 } = this.options;
    const lines = wanted.map((one, at) => {
      const stroke = colour(one.colour ?? palette(at));
      return { stroke, width: 1.5, fill: stacked ? stroke : undefined, points: { show: () => false, filter: stacked ? undefined : isolated, size: 4, fill: stroke, width: 0 } };
    });
    if (limit) lines.push({ stroke: colour("--muted"), width: 1.5, dash: [6, 4], points: { show: false } });
    return {
      scales: { x: { time: true, range: () => this.store.span() }, y: { distr: log ? 3 : 1, range: yRange({ log, top, floor }) } },
      axes: axes(unit, log),
      series: [{}, ...lines],
      hooks: { setCursor: [(plot) => this.#showValues(plot.cursor.idx)] },
    };
  }

  #makeLegend(wanted, store) {
    this.values = wanted.map((one) => h("span", { class: "value", data: { series: one.name } }));
    const items = wanted.map((one, at) => {
      const swatch = h("span", { class: "swatch" });
      swatch.style.setProperty("--colour", `var(${one.colour ?? palette(at)})`);
      const help = store.series.get(one.name)?.help ?? one.label;
      return h("li", { title: help }, swatch, h("span", { class: "name", text: one.label }), this.values[at]);
    });
    if (this.options.limit) {
      const swatch = h("span", { class: "swatch line" });
      swatch.style.setProperty("--colour", "var(--muted)");
      this.limitValue = h("span", { class: "value" });
      items.push(h("li", { title: this.options.limit.help }, swatch, h("span", { class: "name", text: this.options.limit.label }), this.limitValue));
    }
    this.legend.replaceChildren(...items);
  }

  #showValues(at) {
    const { times } = this.store;
    const format = by(this.options.unit);
    this.wanted.forEach((one, number) => {
      const points = this.store.values(one.name);
      const value = at === null || at === undefined ? latest(points) : points[at];
      setText(this.values[number], format(value));
      this.values[number].dataset.value = value ?? "";
    });
    if (this.options.limit) setText(this.limitValue, format(this.options.limit.value()));
    setText(this.time, at === null || at === undefined || !times[at] ? "" : clock(times[at] * 1000));
  }
}

/** The newest point that has a value; of the very last ones only. */
const latest = (points) => points.slice(-LATEST_POINTS).findLast((value) => value !== null && value !== undefined);

/** Each line is the sum of its values and of those below; the first is on top. */
function stack(values) {
  const stacked = [];
  let below = null;
  for (const points of [...values].reverse()) {
    const start = below;
    below = points.map((value, at) => (value === null ? null : value + (start?.[at] ?? 0)));
    stacked.unshift(below);
  }
  return stacked;
}

/** Points in time with a length: stalls and slow calls. A mark is `{at_ms, length_ms, kind, lines}`. */
export class MarkChart extends Chart {
  constructor(options) {
    super(options);
    this.options = options;
    this.kinds = new Map();
    this.legend = h("ul", { class: "legend" });
    const { element } = panel(options, this.box, this.legend, options.below ?? []);
    this.element = element;
    this.shown = "";
  }

  /** `kinds` is a list of `{name, value, help}` for the legend. */
  update(store, marks, kinds) {
    this.store = store;
    this.marks = marks;
    for (const { name } of kinds) if (!this.kinds.has(name)) this.kinds.set(name, palette(this.kinds.size));
    const names = kinds.map((kind) => kind.name);
    if (names.join() !== this.shown) {
      this.rebuild();
      this.shown = names.join();
    }
    this.legend.replaceChildren(...kinds.map((kind) => this.#legendItem(kind)));
    this.empty(marks.length > 0 ? "" : this.options.empty);
    const times = [...new Set(marks.map((mark) => mark.at_ms))].sort((a, b) => a - b);
    const at = new Map(times.map((time, place) => [time, place]));
    const lines = names.map(() => new Array(times.length).fill(null));
    for (const mark of marks) {
      const line = lines[names.indexOf(mark.kind)];
      if (line) line[at.get(mark.at_ms)] = mark.length_ms;
    }
    this.draw(() => this.#plotOptions(names), [times.map((ms) => ms / 1000), ...lines]);
  }

  #legendItem({ name, value, help }) {
    const swatch = h("span", { class: "swatch" });
    swatch.style.setProperty("--colour", `var(${this.kinds.get(name)})`);
    return h("li", { title: help }, swatch, h("span", { class: "name", text: name }), h("span", { class: "value", text: value }));
  }

  #plotOptions(names) {
    const points = (name) => {
      const fill = colour(this.kinds.get(name));
      return { stroke: fill, paths: () => null, points: { show: true, size: 8, width: 0, fill, space: 0 } };
    };
    return {
      scales: { x: { time: true, range: () => this.store.span() }, y: { distr: 3, range: yRange({ log: true, floor: this.options.floor }) } },
      axes: axes("ms", true),
      series: [{}, ...names.map(points)],
      hooks: { ready: [(plot) => this.#follow(plot)] },
    };
  }

  /** Shows the mark that is nearest to the pointer. */
  #follow(plot) {
    plot.over.addEventListener("mouseleave", () => tip.hide());
    plot.over.addEventListener("mousemove", (event) => {
      const { left, top } = plot.over.getBoundingClientRect();
      const distance = (mark) => Math.hypot(
        plot.valToPos(mark.at_ms / 1000, "x") - (event.clientX - left),
        plot.valToPos(mark.length_ms, "y") - (event.clientY - top),
      );
      const nearest = this.marks.reduce((best, mark) => {
        const away = distance(mark);
        return away < best.away ? { mark, away } : best;
      }, { mark: null, away: 24 });
      if (nearest.mark) tip.show(event.clientX, event.clientY, nearest.mark.lines);
      else tip.hide();
    });
  }
}

/** Moves the crosshair of all charts to a time, for what is not a chart of uPlot. */
export function onCrosshair(listener) {
  const listens = {
    pub(type, source) {
      if (type !== "mousemove" || !source?.cursor) return;
      listener(source.cursor.left < 0 ? null : source.posToVal(source.cursor.left, "x"));
    },
  };
  uPlot.sync(SYNC).sub(listens);
  return () => uPlot.sync(SYNC).unsub(listens);
}
