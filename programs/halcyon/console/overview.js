// The first page: stalls, calls, memory, hot keys, queues, WAL and cache against time.

import { ask, SeriesStore } from "./api.js";
import { MarkChart, onCrosshair, panel, TimeChart } from "./charts.js";
import { DataTable, h } from "./dom.js";
import { bytes, clock, count, milliseconds, rate } from "./format.js";
import { KeyMap } from "./keymap.js";
import { limitsText, partsText } from "./lists.js";

const SOON = "Values appear within two seconds.";
const CLASSES = ["read", "scan", "write", "meta", "replication"];
const PERCENTILES = [["p50", "50 %"], ["p99", "99 %"], ["p999", "99.9 %"]];
const HOT_REGIONS = 10;
const LONGEST_STALLS = 20;
const SLOW_CALL = "slow call";

function slowCallLines(call) {
  const lines = [`${milliseconds(call.took_ms)} · ${call.method}`, partsText(call), call.param || call.region, `from ${call.client}, ${clock(call.received_ms)}`];
  return lines.filter(Boolean);
}

const named = (names) => Object.entries(names).map(([name, label]) => ({ name, label }));

export class Overview {
  #store = new SeriesStore();
  #memory = null;
  #class = "read";

  constructor() {
    const calls = named({ "calls.get": "Get", "calls.scan": "Scan", "calls.mutate": "Mutate", "calls.multi": "Multi", "calls.other": "Other", "calls.failed": "Failed", "calls.slow": "Slow", "calls.refused": "Refused" });
    this.stalls = this.#stallChart();
    this.calls = new TimeChart({ id: "calls", title: "Calls", about: "Calls per second by kind. Failed and slow calls count in their kind as well.", unit: "calls/s", series: calls, empty: SOON });
    this.latency = this.#latencyChart();
    this.memory = new TimeChart({
      id: "memory", title: "Memory", about: "Memory in use by each part of the server, against the budget of --memory.", unit: "bytes", stacked: true, full: true, height: 220, empty: SOON,
      series: (store) => [...store.series.keys()].filter((name) => name.startsWith("memory.") && name !== "memory.resident").map((name) => ({ name, label: name.slice(7) })),
      limit: { label: "budget", help: "The memory budget: --memory", value: () => this.#memory?.budget_bytes ?? null },
    });
    this.keymap = new KeyMap({ onChange: () => this.#updateKeys() });
    this.hot = this.#hotRegions();
    this.queues = new TimeChart({ id: "queues", title: "Queues", about: "What waits: flushes, compactions, calls. The largest number of each interval.", unit: "", series: named({ "queue.flush": "Flushes", "queue.compaction": "Compactions", "queue.disk": "Calls for the disk", "queue.calls": "Calls in all" }), empty: SOON });
    this.wal = new TimeChart({ id: "wal", title: "WAL syncs", about: "Time of a sync. Writes wait for it before they are acknowledged.", unit: "ms", log: true, floor: 0.1, series: named({ "wal.sync_longest": "Longest", "wal.sync_mean": "Mean" }), empty: "No sync in this range. The first write appears here within two seconds." });
    this.cache = new TimeChart({ id: "cache", title: "Cache hit rate", about: "Share of the blocks of each kind that were found in memory; of the cache file, in the file.", unit: "share", top: 1, series: named({ "cache.hit.data": "Data", "cache.hit.index": "Index", "cache.hit.bloom": "Bloom filter", "cache.hit.file": "Cache file" }), empty: "No block was read in this range. Reads of flushed rows appear here." });
    this.network = new TimeChart({ id: "network", title: "Network and WAL", about: "Bytes read from and written to clients, and appended to the WAL.", unit: "bytes/s", series: named({ "network.received": "Received", "network.sent": "Sent", "wal.bytes": "WAL" }), empty: SOON });
    this.work = new TimeChart({ id: "work", title: "Flushes and compactions", about: "Completed per second.", unit: "1/s", series: named({ "work.flushes": "Flushes", "work.memory_compactions": "In-memory compactions", "work.compactions": "Compactions" }), empty: SOON });
    this.held = new TimeChart({ id: "held", title: "Writers held back", about: "Writes that waited or were refused because memstores were full.", unit: "writes/s", series: named({ "writes.held_back": "Held back", "writes.refused": "Refused" }), empty: SOON });
    this.charts = [this.calls, this.latency, this.memory, this.queues, this.work, this.wal, this.held, this.cache, this.network];
    const order = [this.stalls, this.calls, this.latency, this.memory, this.keymap, this.hot, this.queues, this.work, this.wal, this.held, this.cache, this.network];
    this.element = h("div", { class: "grid" }, order.map((one) => one.element));
    this.forget = onCrosshair((second) => this.keymap.setCrosshair(second));
  }

  #stallChart() {
    this.longest = new DataTable({
      caption: "The longest stalls of the range",
      empty: "No stall in this range.",
      columns: [
        { title: "Ended", value: (mark) => mark.ended_ms, show: (mark) => clock(mark.ended_ms) },
        { title: "Length", num: true, value: (mark) => mark.length_ms, show: (mark) => milliseconds(mark.length_ms) },
        { title: "Cause", value: (mark) => mark.cause, show: (mark) => mark.cause },
        { title: "What", class: "long", show: (mark) => mark.what },
      ],
      sort: { at: 1, down: true },
    });
    const below = h("details", {}, h("summary", { text: "The longest stalls as a list" }), this.longest.element);
    return new MarkChart({
      id: "stalls", title: "Stalls and slow calls", full: true, height: 220, floor: 10, below,
      about: "Waits of 10 ms or more for a disk, a lock or a processor: the longest of each cause and interval. Point at one for its cause.",
      empty: "No stall in this range. A wait of 10 ms or more appears here within two seconds.",
    });
  }

  #latencyChart() {
    const options = CLASSES.map((name) => h("option", { value: name, text: `Class ${name}` }));
    const change = (event) => {
      this.#class = event.target.value;
      this.latency.update(this.#store);
    };
    const controls = [h("select", { "aria-label": "Class of calls", on: { change } }, options)];
    return new TimeChart({
      id: "latency", title: "Latency", about: "Time of a call inside the server, from reading the request to queueing the response.", unit: "ms", log: true, floor: 0.01, controls,
      series: () => PERCENTILES.map(([name, label]) => ({ name: `latency.${this.#class}.${name}`, label })),
      empty: "No call of this class in this range.",
    });
  }

  #hotRegions() {
    const table = new DataTable({
      caption: "Busiest regions now",
      empty: "No region is open.",
      columns: [
        { title: "Table", head: true, show: (region) => region.table },
        { title: "First key", class: "key", show: (region) => region.start || "–" },
        { title: "End key", class: "key", wide: true, show: (region) => region.end || "–" },
        { title: "Reads/s", num: true, show: (region) => rate(region.reads_per_s) },
        { title: "Writes/s", num: true, show: (region) => rate(region.writes_per_s) },
        { title: "Files", num: true, wide: true, show: (region) => count(region.files_count) },
        { title: "Size", num: true, show: (region) => bytes(region.file_bytes) },
        { title: "Memstore", num: true, wide: true, show: (region) => bytes(region.memstore_bytes) },
      ],
    });
    const about = `The ${HOT_REGIONS} regions with the most requests in the last seconds.`;
    const { element } = panel({ id: "hot", title: "Busiest regions", about, full: true }, table.element);
    return { element, table };
  }

  async update(range) {
    const changed = range !== this.range;
    this.range = range;
    const [, memory] = await Promise.all([this.#store.update(range), ask("memory")]);
    this.#memory = memory;
    for (const chart of this.charts) chart.update(this.#store);
    const isDue = changed || !this.listedAt || Date.now() - this.listedAt > 5000;
    if (isDue) {
      this.listedAt = Date.now();
      await Promise.all([this.#updateStalls(), this.#updateKeys(), this.#updateHot()]);
    }
  }

  async #updateStalls() {
    const [answer, slow] = await Promise.all([ask("stalls", { range: this.range }), ask("slow-calls")]);
    const marks = answer.marks.map((mark) => ({
      at_ms: mark.ended_ms, length_ms: mark.length_ms, kind: mark.cause,
      lines: [`${milliseconds(mark.length_ms)} · ${mark.cause}`, mark.what, `${clock(mark.ended_ms)}${mark.count > 1 ? `, the longest of ${count(mark.count)}` : ""}`],
    }));
    const inRange = new Set(answer.marks.map((mark) => mark.cause));
    const sum = (cause) => answer.marks.filter((mark) => mark.cause === cause).reduce((all, mark) => all + mark.count, 0);
    const kinds = answer.causes.filter(({ cause }) => inRange.has(cause)).map(({ cause, count: all, longest_ms: longest }) => ({
      name: cause, value: count(sum(cause)), help: `${count(sum(cause))} in this range. Since the start: ${count(all)}, the longest ${milliseconds(longest)}.`,
    }));
    const [begin] = this.#store.span();
    const slowCalls = slow.calls.filter((call) => call.received_ms + call.took_ms > begin * 1000);
    if (slowCalls.length > 0) {
      marks.push(...slowCalls.map((call) => ({ at_ms: Math.round(call.received_ms + call.took_ms), length_ms: call.took_ms, kind: SLOW_CALL, lines: slowCallLines(call) })));
      kinds.push({ name: SLOW_CALL, value: count(slowCalls.length), help: `Calls that ${limitsText(slow)}; see Slow calls.` });
    }
    this.stalls.update(this.#store, marks, kinds);
    this.longest.set([...answer.marks].sort((a, b) => b.length_ms - a.length_ms).slice(0, LONGEST_STALLS));
  }

  async #updateKeys() {
    const [answer, tables] = await Promise.all([
      ask("keys", { range: this.range, requests: this.keymap.requests.value, table: this.keymap.table.value, rows: 120 }),
      ask("tables"),
    ]);
    this.keymap.update(answer, tables.tables.filter((table) => table.regions_count > 0).map((table) => table.name));
  }

  async #updateHot() {
    const { regions } = await ask("regions", { limit: HOT_REGIONS });
    this.hot.table.set(regions);
  }

  /** Other colours. */
  restyle() {
    for (const chart of [...this.charts, this.stalls]) chart.rebuild();
    this.keymap.draw();
    this.listedAt = 0;
  }

  destroy() {
    for (const chart of [...this.charts, this.stalls, this.keymap]) chart.destroy();
    this.forget();
  }
}
