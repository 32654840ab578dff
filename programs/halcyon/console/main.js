// The page: its head, which view is shown, and when it is read anew.

import { ask, RANGES } from "./api.js";
import { Balance } from "./balance.js";
import { Cluster } from "./cluster.js";
import { byId, h, setText, tip } from "./dom.js";
import { clock, count, duration } from "./format.js";
import { Procedures, Settings, SlowCalls, Tables } from "./lists.js";
import { Overview } from "./overview.js";
import { Recoveries } from "./recoveries.js";

const VIEWS = { cluster: Cluster, balance: Balance, recoveries: Recoveries, overview: Overview, tables: Tables, slow: SlowCalls, procedures: Procedures, settings: Settings };
// The first is shown if no other is asked for. The master of a cluster has no regions of its own.
const VIEWS_OF = {
  cluster: ["overview", "tables", "slow", "procedures", "settings"],
  server: ["overview", "tables", "slow", "settings"],
  master: ["cluster", "balance", "recoveries", "procedures", "overview", "settings"],
};
const PERIOD_MS = 2000;
const SLOW_PERIOD_MS = 10_000;
const ROLES = { master: "master", "region-server": "region server" };

let scope = "cluster";
let view = null;
let viewName = "";
let range = "15m";
let timer = 0;
let failedSince = 0;
let isUpdating = false;

function remembered(name, allowed) {
  try {
    const value = localStorage.getItem(`halcyon-${name}`);
    return allowed.includes(value) ? value : null;
  } catch {
    return null; // storage is off
  }
}

function remember(name, value) {
  try {
    localStorage.setItem(`halcyon-${name}`, value);
  } catch {
    // storage is off: the choice lasts as long as the page
  }
}

// ---- head ----

async function updateHead() {
  const summary = await ask("summary");
  setText(byId("role"), ROLES[summary.role] ?? summary.role);
  setText(byId("server"), summary.server);
  setText(byId("version"), summary.version);
  setText(byId("uptime"), duration(summary.up_s));
  setText(byId("regions-count"), count(summary.regions_count));
  setText(byId("tables-count"), count(summary.tables_count));
  showPlace(summary);
  byId("verdict").dataset.severity = summary.health.severity;
  setText(byId("verdict-sentence"), summary.health.sentence);
  const others = summary.health.others.map((finding) => finding.sentence);
  const list = byId("verdict-others");
  if ([...list.children].map((item) => item.textContent).join() !== others.join()) {
    list.replaceChildren(...others.map((text) => h("li", { text })));
  }
  document.title = `${summary.health.severity === "good" ? "" : "● "}Halcyon ${ROLES[summary.role]} ${summary.server.split(",")[0]}`;
}

/** Where one server of many stands in its cluster. */
function showPlace({ place }) {
  const list = byId("place");
  const shown = place.map(({ name, value, link }) => h("div", {}, h("dt", { text: name }),
    h("dd", {}, link ? h("a", { href: link, rel: "noreferrer", text: value }) : value)));
  if (list.textContent !== shown.map((fact) => fact.textContent).join("")) list.replaceChildren(...shown);
  list.hidden = shown.length === 0;
}

function noteFailure(error) {
  failedSince ||= Date.now();
  byId("offline").hidden = false;
  setText(byId("offline"), `No answer since ${clock(failedSince)}: ${error.message}. The page asks again every few seconds.`);
}

function noteSuccess() {
  failedSince = 0;
  byId("offline").hidden = true;
}

// ---- views ----

/** Which views there are depends on whose port this is. */
function setScope(found) {
  scope = Object.hasOwn(VIEWS_OF, found) ? found : "cluster";
  document.body.dataset.scope = scope;
  for (const link of document.querySelectorAll("nav a")) link.hidden = !VIEWS_OF[scope].includes(link.hash.slice(1));
  if (scope === "master") setText(document.querySelector('nav a[href="#overview"]'), "This process");
}

function show() {
  const name = location.hash.slice(1);
  const wanted = VIEWS_OF[scope].includes(name) ? name : VIEWS_OF[scope][0];
  if (wanted === viewName) return;
  view?.destroy?.();
  tip.hide();
  viewName = wanted;
  view = new VIEWS[wanted]();
  byId("main").replaceChildren(view.element);
  document.body.dataset.view = wanted;
  byId("range").hidden = wanted !== "overview";
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${wanted}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  update();
}

/** Reads everything anew, then waits for the next turn. */
async function update() {
  clearTimeout(timer);
  if (isUpdating) {
    timer = setTimeout(update, 50);
    return;
  }
  isUpdating = true;
  const updated = view;
  try {
    await Promise.all([updateHead(), updated.update(range)]);
    noteSuccess();
    document.body.dataset.loaded = viewName;
  } catch (error) {
    noteFailure(error);
  }
  isUpdating = false;
  const isSlow = viewName === "overview" && range !== "15m";
  timer = setTimeout(update, updated === view ? (isSlow ? SLOW_PERIOD_MS : PERIOD_MS) : 0);
}

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  remember("theme", theme);
  view?.restyle?.();
  if (view) update();
}

async function start() {
  range = remembered("range", Object.keys(RANGES)) ?? "15m";
  for (const input of document.querySelectorAll("#range input")) {
    input.checked = input.value === range;
    input.addEventListener("change", () => {
      range = input.value;
      remember("range", range);
      update();
    });
  }
  const theme = byId("theme");
  theme.value = remembered("theme", ["light", "dark"]) ?? "auto";
  theme.addEventListener("change", () => setTheme(theme.value));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    view?.restyle?.();
    update();
  });
  try {
    setScope((await ask("summary")).scope);
  } catch (error) {
    noteFailure(error);
  }
  addEventListener("hashchange", show);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) clearTimeout(timer);
    else update();
  });
  show();
}

start();
