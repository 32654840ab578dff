// Timelines of recoveries: what the deaths of servers and the takeovers of masters cost, part by part.

import { ask } from "./api.js";
import { panel } from "./charts.js";
import { when } from "./cluster.js";
import { DataTable, h, setText, tip } from "./dom.js";
import { bytes, count, milliseconds } from "./format.js";
import { svg } from "./svg.js";

const SHOWN = 25;
const STRIP = 24;
const AXIS = 22;
/** A recovery that took so many times the median. */
const OUTLIER = 8;
const KINDS = [["", "All"], ["server", "Region servers"], ["takeover", "Takeovers"], ["former-master", "Former masters"]];
const PHASES = {
  detect: ["--s7", "Detect: from the last report to the notice. The death was in between"],
  join: ["--s7", "Join: a new master looks for the region servers"],
  fence: ["--s6", "Fence: the WALs are taken from the dead server"],
  meta: ["--s4", "Meta: hbase:meta is open elsewhere"],
  split: ["--s2", "Split: its WALs are read and written by region"],
  open: ["--s3", "Open: its regions are opened elsewhere"],
};

const endOf = (phase, now) => phase.end_ms ?? now;
const lengthOf = (phase, now) => Math.max(0, endOf(phase, now) - phase.begin_ms);
const phaseOf = (one, name) => one.phases.find((phase) => phase.phase === name);
const since = (one, ms) => (ms === null ? "–" : milliseconds(Math.max(0, ms - one.noticed_ms)));

/** What the picture shows, as a sentence. */
function sentence(one, now) {
  const parts = one.phases.map((phase) => `${phase.phase} ${milliseconds(lengthOf(phase, now))}${phase.end_ms === null ? " so far" : ""}`);
  const state = one.ended_ms === null ? "under way for" : "took";
  return `Recovery of ${one.server || "no master before"} ${state} ${milliseconds(one.took_ms)}: ${parts.join(", ") || "there was nothing to do"}.`;
}

export class Recoveries {
  constructor() {
    this.kind = h("select", { "aria-label": "Kind of recovery", on: { change: () => this.update() } }, KINDS.map(([value, text]) => h("option", { value, text })));
    const change = () => {
      this.isChosen = true;
      this.#draw();
    };
    this.own = h("input", { type: "checkbox", on: { change } });
    const scale = h("label", {}, this.own, " Each on a scale of its own");
    this.rows = h("ol", { class: "timelines" });
    this.empty = h("p", { class: "empty", text: "No server has died and no master has taken over, as far as is known. The next one appears here while it is recovered." });
    const legend = h("ul", { class: "legend" }, Object.entries(PHASES).map(([, [variable, text]]) => {
      const swatch = h("span", { class: "swatch" });
      swatch.style.setProperty("--colour", `var(${variable})`);
      return h("li", {}, swatch, h("span", { class: "name", text }));
    }));
    const pictures = panel({ id: "timelines", title: "Recoveries", about: "", controls: [scale, this.kind] }, legend, this.rows, this.empty);
    this.about = pictures.element.querySelector(".about");
    this.resized = new ResizeObserver(() => this.#draw());
    this.resized.observe(this.rows);
    this.element = h("div", { class: "stack" }, pictures.element, this.#table());
  }

  #table() {
    this.list = new DataTable({
      caption: "Times of recoveries",
      cards: true,
      empty: "No recovery is kept.",
      columns: [
        { title: "Noticed", head: true, value: (one) => one.noticed_ms, show: (one) => when(one.noticed_ms, this.answer.now_ms) },
        { title: "Of", class: "long", value: (one) => one.server, show: (one) => `${one.kind}${one.server ? ` ${one.server}` : ", no master before"}` },
        { title: "How", class: "long", wide: true, show: (one) => one.noticed },
        { title: "Fenced", num: true, help: "After the notice", show: (one) => since(one, one.fenced_ms) },
        { title: "Meta", num: true, help: "hbase:meta was open elsewhere, after the notice", show: (one) => since(one, one.meta_opened_ms) },
        { title: "Split", num: true, help: "The last WAL was split, after the notice", show: (one) => since(one, one.split_ms) },
        { title: "WALs", num: true, value: (one) => one.wal_bytes, show: (one) => `${count(one.wals_count)}, ${bytes(one.wal_bytes)}` },
        { title: "Opened", num: true, help: "The last region was open elsewhere, after the notice", show: (one) => since(one, one.last_opened_ms) },
        { title: "Regions", num: true, value: (one) => one.regions_count, show: (one) => (one.opened_count === one.regions_count ? count(one.regions_count) : `${count(one.opened_count)} of ${count(one.regions_count)}`) },
        { title: "Took", num: true, value: (one) => one.took_ms, show: (one) => (one.ended_ms === null ? `${milliseconds(one.took_ms)} so far` : milliseconds(one.took_ms)) },
        { title: "By", class: "long", wide: true, show: (one) => `${one.master}, epoch ${one.epoch}` },
      ],
    });
    return panel({ id: "recovery-list", title: "Times", about: "The same in numbers. All times but the first are from the notice on." }, this.list.element).element;
  }

  async update() {
    this.answer = await ask("recoveries", { kind: this.kind.value, limit: SHOWN });
    this.list.set(this.answer.recoveries);
    const { count: all, recoveries, kept_max: kept } = this.answer;
    const cut = all > recoveries.length ? ` The newest ${count(recoveries.length)} of ${count(all)} are shown.` : "";
    setText(this.about, `From the notice of a death, at 0, to the last region open elsewhere. The last ${count(kept)} are kept, over changes of the master too.${cut}`);
    this.#draw();
  }

  destroy() {
    this.resized.disconnect();
  }

  #draw() {
    if (!this.answer) return;
    const { recoveries, now_ms: now } = this.answer;
    const width = Math.floor(this.rows.clientWidth);
    this.empty.hidden = recoveries.length > 0;
    this.rows.hidden = recoveries.length === 0;
    if (width === 0) return;
    const spans = recoveries.map((one) => span(one, now));
    const lengths = spans.map((it) => it.to).sort((a, b) => a - b);
    // One that took very long would leave nothing to see of the others.
    if (!this.isChosen) this.own.checked = lengths.at(-1) > OUTLIER * lengths[lengths.length >> 1];
    const common = { from: Math.min(0, ...spans.map((it) => it.from)), to: Math.max(1, ...spans.map((it) => it.to)) };
    this.rows.replaceChildren(...recoveries.map((one, at) => row(one, this.own.checked ? spans[at] : common, width, now)));
  }
}

/** Where the picture of a recovery begins and ends, in milliseconds from the notice on. */
function span(one, now) {
  const begins = one.phases.map((phase) => phase.begin_ms - one.noticed_ms);
  const ends = one.phases.map((phase) => endOf(phase, now) - one.noticed_ms);
  return { from: Math.min(0, ...begins), to: Math.max(1, ...ends) };
}

/** Steps of an axis: 1, 2 or 5 times a power of ten, about one in each 90 pixels. */
function step(length, width) {
  const wanted = (length * 90) / Math.max(width, 90);
  const power = 10 ** Math.floor(Math.log10(wanted));
  return power * [1, 2, 5, 10].find((times) => power * times >= wanted);
}

function row(one, { from, to }, width, now) {
  const x = (ms) => ((ms - from) / (to - from)) * (width - 2) + 1;
  const bar = (phase) => {
    const [begin, end] = [x(phase.begin_ms - one.noticed_ms), x(endOf(phase, now) - one.noticed_ms)];
    const rect = svg("rect", { class: `phase ${phase.phase}${phase.end_ms === null ? " running" : ""}`, x: begin, y: 2, width: Math.max(2, end - begin), height: STRIP - 4, rx: 2 });
    const lines = [`${phase.phase}: ${milliseconds(lengthOf(phase, now))}`, phase.text, phase.end_ms === null ? "under way" : ""].filter(Boolean);
    rect.addEventListener("pointermove", (event) => tip.show(event.clientX, event.clientY, lines));
    rect.addEventListener("pointerleave", () => tip.hide());
    return rect;
  };
  const ticks = [];
  const every = step(to - from, width);
  for (let ms = Math.ceil(from / every) * every; ms <= to; ms += every) {
    const anchor = x(ms) < 24 ? "start" : x(ms) > width - 24 ? "end" : "middle";
    ticks.push(svg("line", { class: ms === 0 ? "notice" : "tick", x1: x(ms), x2: x(ms), y1: 0, y2: STRIP + 4 }));
    ticks.push(svg("text", { x: x(ms), y: STRIP + AXIS - 6, "text-anchor": anchor, text: ms === 0 ? "0" : ms < 0 ? `−${milliseconds(-ms)}` : milliseconds(ms) }));
  }
  const picture = svg("svg", { width, height: STRIP + AXIS, role: "img", "aria-label": sentence(one, now) }, ...ticks, ...one.phases.map(bar));
  const facts = [
    one.ended_ms === null ? `under way for ${milliseconds(one.took_ms)}` : milliseconds(one.took_ms),
    `${count(one.wals_count)} ${one.wals_count === 1 ? "WAL" : "WALs"}, ${bytes(one.wal_bytes)}`,
    `${one.opened_count === one.regions_count ? "" : `${count(one.opened_count)} of `}${count(one.regions_count)} ${one.regions_count === 1 ? "region" : "regions"}`,
    phaseOf(one, "meta") ? "with hbase:meta" : "",
  ].filter(Boolean).join(" · ");
  const title = h("p", {}, h("strong", { text: `${when(one.noticed_ms, now)} ` }), `${one.kind} `, h("span", { class: "mono", text: one.server || "no master before" }),
    one.ended_ms === null ? h("span", { class: "tag bad", text: "under way" }) : null);
  return h("li", { data: { number: one.number } }, title, picture, h("p", { class: "muted", text: `${facts} · ${one.noticed}` }));
}
