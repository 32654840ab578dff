// The cluster of an active master: servers, regions in transition, masters, fences, the balancer.

import { ask } from "./api.js";
import { panel } from "./charts.js";
import { DataTable, h, setText } from "./dom.js";
import { bytes, clock, count, duration, milliseconds, rate } from "./format.js";

const PAGE = 100;
const MOVES_SHOWN = 5;
const STATES = { online: "online", draining: "draining", recovering: "being recovered", dead: "dead" };

/** Part of a list that the server turns. `load(offset, limit)` returns the number of all lines and of those shown. */
export class Pager {
  #offset = 0;

  constructor(load) {
    this.load = load;
    this.place = h("span", { class: "muted", "aria-live": "polite" });
    this.back = h("button", { type: "button", text: "Previous", on: { click: () => this.turn(this.#offset - PAGE) } });
    this.next = h("button", { type: "button", text: "Next", on: { click: () => this.turn(this.#offset + PAGE) } });
    this.element = h("div", { class: "pager" }, this.back, this.next, this.place);
  }

  turn(offset) {
    this.#offset = Math.max(0, offset);
    return this.update();
  }

  async update() {
    const asked = this.#offset;
    const { all, shown } = await this.load(asked, PAGE);
    if (asked !== this.#offset) return; // turned meanwhile
    if (shown === 0 && asked > 0) {
      await this.turn(asked - PAGE); // the list has become shorter
      return;
    }
    setText(this.place, all === 0 ? "" : `${count(asked + 1)} to ${count(asked + shown)} of ${count(all)}`);
    this.back.disabled = asked === 0;
    this.next.disabled = asked + shown >= all;
    this.element.hidden = all <= PAGE && asked === 0;
  }
}

/** Waits until the typing has paused. */
export function afterTyping(change) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(change, 250);
  };
}

/** `3 s ago`, or when it was if that is long ago. */
export function ago(ms, now) {
  const seconds = Math.max(0, (now - ms) / 1000);
  return seconds < 3600 ? `${duration(seconds)} ago` : when(ms, now);
}

/** A moment with its date if that is not today. */
export function when(ms, now) {
  const day = new Date(ms).toLocaleDateString("en-CA");
  return day === new Date(now).toLocaleDateString("en-CA") ? clock(ms) : `${day} ${clock(ms)}`;
}

/** `h,16020,1700000000000`: host and port, and below when it started. */
const shortName = (name) => name.split(",").slice(0, 2).join(":");

export class Cluster {
  constructor() {
    this.figures = h("dl", { class: "figures" });
    const head = panel({ id: "cluster-figures", title: "Cluster", about: "All region servers together, as they reported last." }, this.figures);
    const servers = this.#servers();
    const transitions = this.#transitions();
    this.element = h("div", { class: "stack" }, head.element, transitions, servers, this.#masters(), this.#fences(), this.#balancer());
  }

  #servers() {
    const update = () => this.serverPages.turn(0);
    this.name = h("input", { type: "search", placeholder: "Filter by name", "aria-label": "Filter servers by name", on: { input: afterTyping(update) } });
    this.state = h("select", { "aria-label": "State of servers", on: { change: update } },
      h("option", { value: "", text: "All states" }), Object.entries(STATES).map(([value, text]) => h("option", { value, text })));
    this.order = h("select", { "aria-label": "Order of servers", on: { change: update } },
      [["state", "What needs attention first"], ["name", "By name"], ["regions", "Most regions first"], ["requests", "Busiest first"], ["size", "Largest first"]].map(([value, text]) => h("option", { value, text })));
    const name = (one) => h("span", {}, one.link ? h("a", { href: one.link, rel: "noreferrer", text: `${one.host}:${one.port}` }) : `${one.host}:${one.port}`,
      one.has_meta ? h("span", { class: "tag", text: "hbase:meta" }) : null, h("span", { class: "meaning", text: `start code ${one.start_code}` }));
    const regions = (one) => h("span", {}, count(one.regions_count), this.#meter(one.regions_count));
    const known = (value, show) => (value === null ? "–" : show(value));
    this.list = new DataTable({
      caption: "Region servers",
      cards: true,
      empty: "No region server matches. A server appears here when it has joined.",
      columns: [
        { title: "Server", head: true, class: "long", show: name },
        { title: "State", show: (one) => h("span", { class: one.state === "online" ? "tag good" : "tag bad", text: STATES[one.state] }) },
        { title: "Regions", num: true, help: "Regions that are open there, as hbase:meta says", show: regions },
        { title: "Reads/s", num: true, help: "Between the last two reports", show: (one) => known(one.reads_per_s, rate) },
        { title: "Writes/s", num: true, help: "Between the last two reports", show: (one) => known(one.writes_per_s, rate) },
        { title: "Memstore", num: true, help: "In whole MiB by region, as servers report it", show: (one) => known(one.memstore_bytes, bytes) },
        { title: "Store files", num: true, help: "In whole MiB by region, as servers report it", show: (one) => known(one.file_bytes, bytes) },
        { title: "Locality", num: true, wide: true, help: "Part of the store files that is on the server's machine", show: (one) => known(one.locality, (part) => `${Math.round(part * 100)} %`) },
        { title: "Last report", num: true, show: (one) => known(one.report_age_ms, (age) => `${duration(age / 1000)} ago`) },
        { title: "Version", wide: true, help: "Of HBase's protocol, as the server's connection names it", show: (one) => one.version ?? "–" },
      ],
    });
    this.serverPages = new Pager(async (offset, limit) => {
      const answer = await ask("servers", { name: this.name.value.trim(), state: this.state.value, order: this.order.value, offset, limit });
      this.regionsMax = answer.regions_max;
      this.list.set(answer.servers);
      return { all: answer.count, shown: answer.servers.length };
    });
    return panel({ id: "server-list", title: "Region servers", about: "A link leads to the server’s own console.", controls: [this.name, this.state, this.order] }, this.list.element, this.serverPages.element).element;
  }

  #meter(value) {
    const part = h("i");
    part.style.width = `${this.regionsMax > 0 ? Math.min(100, (100 * value) / this.regionsMax) : 0}%`;
    return h("span", { class: "meter", "aria-hidden": "true" }, part);
  }

  #transitions() {
    this.moving = new DataTable({
      caption: "Regions in transition",
      cards: true,
      empty: "Every region is where it ought to be.",
      columns: [
        { title: "Table", head: true, class: "long", show: (one) => one.table },
        { title: "First key", class: "key", show: (one) => one.start || "–" },
        { title: "State", show: (one) => h("span", { class: one.state.startsWith("FAILED") ? "tag bad" : "tag", text: one.state.toLowerCase().replace("_", " ") }) },
        { title: "Since", num: true, show: (one) => duration(one.age_ms / 1000) },
        { title: "Reason", class: "long", show: (one) => one.reason },
        { title: "Procedure", show: (one) => (one.procedure === null ? "none" : h("a", { href: "#procedures", text: `${one.procedure} ${one.procedure_name}` })) },
        { title: "Encoded name", class: "key", wide: true, show: (one) => one.name },
      ],
    });
    this.movingPages = new Pager(async (offset, limit) => {
      const answer = await ask("transitions", { offset, limit });
      this.moving.set(answer.transitions);
      const stuck = answer.stuck_count > 0 ? ` ${count(answer.stuck_count)} of them for more than ${duration(answer.threshold_ms / 1000)}.` : "";
      const which = answer.count === 1 ? "1 region is on its way" : `${count(answer.count)} regions are on their way, the oldest first`;
      setText(this.movingAbout, answer.count === 0 ? "Regions on their way, with the reason and the procedure that works on them." : `${which}.${stuck}`);
      return { all: answer.count, shown: answer.transitions.length };
    });
    const { element } = panel({ id: "transition-list", title: "Regions in transition", about: "" }, this.moving.element, this.movingPages.element);
    this.movingAbout = element.querySelector(".about");
    return element;
  }

  #masters() {
    this.takeovers = new DataTable({
      caption: "Masters that became active",
      cards: true,
      empty: "No takeover is kept.",
      columns: [
        { title: "Epoch", head: true, show: (one) => `epoch ${count(one.epoch)}` },
        { title: "Master", class: "long", show: (one) => one.master },
        { title: "After", class: "long", show: (one) => one.before || "none" },
        { title: "Elected", num: true, show: (one) => when(one.elected_ms, this.now) },
        { title: "Served after", num: true, show: (one) => (one.served_ms === null ? "–" : milliseconds(one.served_ms - one.elected_ms)) },
      ],
    });
    this.masterFacts = h("dl", { class: "facts" });
    return panel({ id: "master-list", title: "Masters", about: "Each master that becomes active raises the epoch. What an earlier one still writes to ZooKeeper is refused." }, this.masterFacts, this.takeovers.element).element;
  }

  #fences() {
    this.fences = new DataTable({
      caption: "Who fenced whom",
      cards: true,
      empty: "No directory of WALs was taken away.",
      columns: [
        { title: "When", head: true, show: (one) => when(one.at_ms, this.now) },
        { title: "By the master", class: "long", show: (one) => `${one.master}, epoch ${one.epoch}` },
        { title: "From", class: "long", show: (one) => one.server },
        { title: "Which was a", show: (one) => one.kind },
        { title: "WALs", num: true, show: (one) => count(one.wals_count) },
      ],
    });
    return panel({ id: "fence-list", title: "Who fenced whom", about: "When a server is dead, its directory of WALs is renamed: it can write no more. Only then are its regions opened elsewhere." }, this.fences.element).element;
  }

  #balancer() {
    const moves = (run) => {
      const shown = run.moves.slice(0, MOVES_SHOWN).map(({ region, from, to }) => h("li", { text: `${region}: ${shortName(from)} → ${shortName(to)}` }));
      const rest = run.moves_count - shown.length;
      return run.moves_count === 0 ? "none" : h("ul", {}, shown, rest > 0 ? h("li", { class: "muted", text: `and ${count(rest)} more` }) : null);
    };
    this.runs = new DataTable({
      caption: "Runs of the balancer",
      cards: true,
      empty: "The balancer has not run since this master became active.",
      columns: [
        { title: "When", head: true, show: (run) => when(run.at_ms, this.now) },
        { title: "Runs alike", num: true, help: "Runs in a row that ended so", show: (run) => count(run.runs_count) },
        { title: "Moves", class: "long", show: moves },
        { title: "Reason", class: "long", show: (run) => run.reason },
      ],
    });
    this.balancerState = h("span", { class: "tag" });
    return panel({ id: "balancer-list", title: "Balancer", about: "Its last runs with their reasons, the newest first.", controls: [this.balancerState] }, this.runs.element).element;
  }

  async update() {
    const [answer] = await Promise.all([ask("cluster"), this.serverPages.update(), this.movingPages.update()]);
    this.now = answer.now_ms;
    this.#figures(answer);
    const fact = (name, value) => h("div", {}, h("dt", { text: name }), h("dd", { text: value }));
    this.masterFacts.replaceChildren(
      fact("Active", answer.active), fact("Epoch", count(answer.epoch)), fact("Since", ago(answer.elected_ms, this.now)),
      fact("Standby", answer.standby.join(" and ") || "none"));
    this.takeovers.set(answer.takeovers);
    this.fences.set(answer.fences);
    this.runs.set(answer.balancer);
    setText(this.balancerState, answer.is_balancer_on ? "on" : "off");
    this.balancerState.className = answer.is_balancer_on ? "tag good" : "tag bad";
  }

  #figures(answer) {
    const figure = (name, value, isBad = false) => h("div", { class: isBad ? "bad" : undefined }, h("dt", { text: name }), h("dd", { text: value }));
    const servers = answer.draining_count > 0 ? `${count(answer.online_count)}, ${count(answer.draining_count)} draining` : count(answer.online_count);
    const closed = answer.regions_count - answer.open_count;
    this.figures.replaceChildren(
      figure("Servers online", servers, answer.online_count === 0),
      figure("Being recovered", count(answer.recovering_count), answer.recovering_count > 0),
      figure("Dead", count(answer.dead_count)),
      figure("Regions open", closed > 0 ? `${count(answer.open_count)} of ${count(answer.regions_count)}` : count(answer.open_count)),
      figure("In transition", count(answer.transitions_count), answer.stuck_count > 0),
      figure("Regions per server", answer.average_load.toFixed(1)),
      figure("Reads/s", rate(answer.reads_per_s)),
      figure("Writes/s", rate(answer.writes_per_s)),
      answer.meta ? "" : figure("hbase:meta", "open nowhere", true),
      figure("Standby masters", count(answer.standby.length), answer.standby.length === 0),
    );
  }
}
