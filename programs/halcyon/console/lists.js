// Pages of lists: tables with their regions, procedures and locks, settings.

import { ask } from "./api.js";
import { panel } from "./charts.js";
import { DataTable, h, setText } from "./dom.js";
import { bytes, clock, count, duration, milliseconds, rate } from "./format.js";

const REGIONS_PAGE = 100;

/** Times in a sentence of the server as people read them. */
const withClock = (text) => text.replace(/(\d{13}) ms \(Unix time\)/, (_, ms) => clock(Number(ms)));

const loadColumns = [
  { title: "Reads/s", num: true, help: "Read requests per second, over the last seconds", value: (row) => row.reads_per_s, show: (row) => rate(row.reads_per_s) },
  { title: "Writes/s", num: true, help: "Write requests per second, over the last seconds", value: (row) => row.writes_per_s, show: (row) => rate(row.writes_per_s) },
  { title: "Reads", num: true, wide: true, help: "Read requests since the regions were opened", value: (row) => row.reads_count, show: (row) => count(row.reads_count) },
  { title: "Writes", num: true, wide: true, help: "Write requests since the regions were opened", value: (row) => row.writes_count, show: (row) => count(row.writes_count) },
  { title: "Files", num: true, wide: true, help: "Store files", value: (row) => row.files_count, show: (row) => count(row.files_count) },
  { title: "Size", num: true, help: "Bytes of store files", value: (row) => row.file_bytes, show: (row) => bytes(row.file_bytes) },
  { title: "Memstore", num: true, wide: true, help: "Bytes of cells that are not flushed", value: (row) => row.memstore_bytes, show: (row) => bytes(row.memstore_bytes) },
];

export class Tables {
  #chosen = "";
  #offset = 0;

  constructor() {
    const open = (name) => h("button", { type: "button", class: "link", text: name, on: { click: () => this.#choose(name) } });
    this.search = h("input", { type: "search", placeholder: "Filter by name", "aria-label": "Filter tables by name", on: { input: () => this.#draw() } });
    this.list = new DataTable({
      caption: "Tables",
      empty: "No table matches. A table appears here when it is created.",
      sort: { at: 0, down: false },
      columns: [
        { title: "Table", head: true, value: (table) => table.name, show: (table) => open(table.name) },
        { title: "State", wide: true, value: (table) => table.state, show: (table) => table.state },
        { title: "Families", wide: true, show: (table) => table.families.join(", ") || "–" },
        { title: "Regions", num: true, value: (table) => table.regions_count, show: (table) => count(table.regions_count) },
        ...loadColumns,
      ],
    });
    this.total = h("p", { class: "muted" });
    this.order = h("select", { "aria-label": "Order of regions", on: { change: () => this.#turn(0) } },
      h("option", { value: "requests", text: "Busiest first" }), h("option", { value: "size", text: "Largest first" }), h("option", { value: "key", text: "By first key" }));
    this.regions = new DataTable({
      caption: "Regions",
      empty: "This table has no open region.",
      columns: [
        { title: "Table", head: true, wide: true, show: (region) => region.table },
        { title: "First key", class: "key", show: (region) => region.start || "–" },
        { title: "End key", class: "key", show: (region) => region.end || "–" },
        { title: "Encoded name", class: "key", wide: true, show: (region) => region.name },
        ...loadColumns.map(({ value, ...column }) => column),
      ],
    });
    this.place = h("span", { class: "muted" });
    this.back = h("button", { type: "button", text: "Previous", on: { click: () => this.#turn(this.#offset - REGIONS_PAGE) } });
    this.next = h("button", { type: "button", text: "Next", on: { click: () => this.#turn(this.#offset + REGIONS_PAGE) } });
    this.all = h("button", { type: "button", text: "All tables", hidden: true, on: { click: () => this.#choose("") } });
    const tables = panel({ id: "table-list", title: "Tables", about: "Sums over the open regions of each table. Choose a table for its regions.", controls: [this.search] }, this.list.element, this.total);
    const regions = panel({ id: "region-list", title: "Regions", about: "Keys are escaped; values of cells are never shown.", controls: [this.all, this.order] }, this.regions.element,
      h("div", { class: "pager" }, this.back, this.next, this.place));
    this.regionsTitle = regions.element.querySelector("h2");
    this.element = h("div", { class: "stack" }, tables.element, regions.element);
  }

  async update() {
    const [answer] = await Promise.all([ask("tables"), this.#updateRegions()]);
    this.answer = answer;
    this.#draw();
  }

  #draw() {
    const wanted = this.search.value.trim().toLowerCase();
    const { tables = [], count: all = 0, scope } = this.answer ?? {};
    this.list.set(tables.filter((table) => table.name.toLowerCase().includes(wanted)));
    const cut = all > tables.length ? ` The first ${count(tables.length)} are listed.` : "";
    const which = scope === "server" ? " with open regions at this server" : ", hbase:meta included";
    setText(this.total, `${count(all)} ${all === 1 ? "table" : "tables"}${which}.${cut}`);
  }

  #choose(name) {
    this.#chosen = name;
    setText(this.regionsTitle, name ? `Regions of ${name}` : "Regions");
    this.all.hidden = !name;
    this.#turn(0);
    if (name) this.regionsTitle.scrollIntoView({ block: "center" });
  }

  #turn(offset) {
    this.#offset = Math.max(0, offset);
    this.#updateRegions();
  }

  async #updateRegions() {
    const answer = await ask("regions", { table: this.#chosen, order: this.order.value, limit: REGIONS_PAGE, offset: this.#offset });
    this.regions.set(answer.regions);
    const end = this.#offset + answer.regions.length;
    setText(this.place, answer.count === 0 ? "" : `${count(this.#offset + 1)} to ${count(end)} of ${count(answer.count)}`);
    this.back.disabled = this.#offset === 0;
    this.next.disabled = end >= answer.count;
  }
}

export class Procedures {
  constructor() {
    this.list = new DataTable({
      caption: "Procedures",
      cards: true,
      empty: "No procedure is under way. Creating, changing, splitting or moving a table appears here until it has ended.",
      columns: [
        { title: "Id", num: true, value: (one) => one.id, show: (one) => String(one.id) },
        { title: "Procedure", head: true, value: (one) => one.name, show: (one) => one.name },
        { title: "State and reason", class: "long", show: (one) => (one.is_failing ? h("span", {}, h("span", { class: "tag bad", text: "repeats" }), ` ${withClock(one.state)}`) : one.state) },
        { title: "Age", num: true, value: (one) => one.age_ms, show: (one) => duration(one.age_ms / 1000) },
        { title: "Submitted", wide: true, value: (one) => one.submitted_ms, show: (one) => clock(one.submitted_ms) },
        { title: "User", wide: true, show: (one) => one.owner || "the server" },
        { title: "Locks", class: "long", show: (one) => one.locks.join(", ") },
      ],
    });
    this.locks = new DataTable({
      caption: "Locks",
      empty: "No lock is held.",
      columns: [
        { title: "Resource", head: true, class: "long", show: (lock) => lock.resource },
        { title: "Mode", show: (lock) => lock.mode || "–" },
        { title: "Held by", show: (lock) => lock.holders.join(", ") || "–" },
        { title: "Waited for by", show: (lock) => lock.waiters.join(", ") || "–" },
      ],
    });
    const procedures = panel({ id: "procedure-list", title: "Procedures", about: "Procedures of the master that have not ended, with the step that fails and its last error." }, this.list.element);
    const locks = panel({ id: "lock-list", title: "Locks", about: "Tables and namespaces that procedures hold or wait for." }, this.locks.element);
    this.element = h("div", { class: "stack" }, procedures.element, locks.element);
  }

  async update() {
    const answer = await ask("procedures");
    this.list.set(answer.procedures);
    this.locks.set(answer.locks);
  }
}

/** `queue 300 ms, disk 20 ms`: the parts of a call's time, the longest first. */
export function partsText(call) {
  const parts = call.parts.filter(({ ms }) => ms >= 0.1).sort((a, b) => b.ms - a.ms).map(({ part, ms }) => `${part} ${milliseconds(ms)}`);
  return parts.concat(call.cache_misses > 0 ? [`${count(call.cache_misses)} cache misses`] : []).join(", ");
}

/** Says which calls the server keeps. */
export function limitsText({ threshold_ms: time, large_bytes: size }) {
  const kinds = [time !== null ? `took ${milliseconds(time)} or longer` : "", size !== null ? `had answers of more than ${bytes(size)}` : ""];
  return kinds.filter(Boolean).join(" or ") || "are over a limit; there is none";
}

export class SlowCalls {
  constructor() {
    const stalls = (call) => call.stalls.map((stall) => `${stall.cause} ${milliseconds(stall.length_ms)} (${stall.what})`).join("; ");
    const kind = (call) => [call.is_slow ? "slow" : "", call.is_large ? "large" : "", call.failed ? "failed" : ""].filter(Boolean).join(", ");
    this.list = new DataTable({
      caption: "Slow calls",
      cards: true,
      empty: "No call was slow or large. The limits are hbase.ipc.warn.response.time and .size; they may change at run time.",
      sort: { at: 0, down: true },
      columns: [
        { title: "Arrived", head: true, value: (call) => call.received_ms, show: (call) => clock(call.received_ms) },
        { title: "Took", num: true, value: (call) => call.took_ms, show: (call) => milliseconds(call.took_ms) },
        { title: "Answer", num: true, value: (call) => call.response_bytes, show: (call) => bytes(call.response_bytes) },
        { title: "Kind", value: kind, show: kind },
        { title: "Call", value: (call) => call.method, show: (call) => call.method },
        { title: "Where the time went", class: "long", help: "thread: network thread; work: disk pool; network: the client took the answer slowly", show: (call) => partsText(call) || "–" },
        { title: "Stalls meanwhile", class: "long", show: (call) => stalls(call) || "–" },
        { title: "Asked for", class: "long mono", show: (call) => call.param || call.region || "–" },
        { title: "Client", wide: true, value: (call) => call.client, show: (call) => call.client },
        { title: "User", wide: true, value: (call) => call.user, show: (call) => call.user || "–" },
      ],
    });
    const { element } = panel({ id: "slow-list", title: "Slow calls", about: "The last calls over a limit, and where their time went." }, this.list.element);
    this.about = element.querySelector(".about");
    this.element = element;
  }

  async update() {
    const answer = await ask("slow-calls");
    this.list.set(answer.calls);
    setText(this.about, `The last calls that ${limitsText(answer)}, and where their time went.`);
  }
}

export class Settings {
  constructor() {
    this.search = h("input", { type: "search", placeholder: "Filter by name or text", "aria-label": "Filter settings", on: { input: () => this.#draw() } });
    this.changed = h("input", { type: "checkbox", on: { change: () => this.#draw() } });
    const onlyChanged = h("label", {}, this.changed, " Only those that differ from the default");
    this.list = new DataTable({
      caption: "Settings",
      cards: true,
      empty: "No setting matches.",
      columns: [
        { title: "Setting", head: true, class: "long", value: (one) => one.name, show: (one) => h("span", {}, one.name, h("span", { class: "meaning", text: one.text.replaceAll("`", "") })) },
        { title: "Value", class: "long", show: (one) => this.#value(one) },
        { title: "Default", class: "long", show: (one) => h("span", { class: "mono", text: one.default === "" ? "empty" : one.default ?? "not set" }) },
        { title: "Unit", wide: true, class: "long", show: (one) => one.unit },
        { title: "Source", value: (one) => one.source, show: (one) => h("span", { class: one.source === "default" ? "tag" : "tag changed", text: one.source }) },
        { title: "Effect", wide: true, help: "Online: in force after update_config. Otherwise after a restart.", value: (one) => one.online, show: (one) => (one.online ? "online" : "restart") },
        { title: "Section", wide: true, value: (one) => one.section, show: (one) => one.section },
      ],
    });
    const about = "What is in force, where each value comes from, and its default.";
    this.element = panel({ id: "setting-list", title: "Settings", about, controls: [onlyChanged, this.search] }, this.list.element).element;
  }

  #value(one) {
    if (one.value === "") return "empty";
    const size = one.unit === "bytes" && Number(one.value) >= 1024 ? ` (${bytes(Number(one.value))})` : "";
    return h("span", { class: "mono", text: `${one.value}${size}` });
  }

  async update() {
    this.answer ??= await ask("settings");
    this.#draw();
  }

  #draw() {
    const wanted = this.search.value.trim().toLowerCase();
    const isShown = (one) => (!this.changed.checked || one.value !== one.default) && `${one.name} ${one.text}`.toLowerCase().includes(wanted);
    this.list.set((this.answer?.settings ?? []).filter(isShown));
  }
}
