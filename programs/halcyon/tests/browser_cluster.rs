//! The console of a cluster in a real browser. `testing/browser/cluster.sh` starts ZooKeeper, HDFS, two masters and two region
//! servers, kills some, and runs the tests of this file in between.

#![allow(clippy::disallowed_methods)] // files and time are the real ones

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use crate::browser::devtools::Browser;
use crate::browser::visit::{Visit, browser};

const VIEWS: [&str; 6] = ["cluster", "balance", "recoveries", "procedures", "overview", "settings"];

/// What the script knows of the cluster.
fn told(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is set by testing/browser/cluster.sh"))
}

fn active<'b>(browser: &'b mut Browser, load: &'static str) -> Visit<'b> {
    Visit::new(browser, format!("http://{}", told("HALCYON_ACTIVE_PAGES")), load)
}

fn ask(visit: &mut Visit<'_>, path: &str) -> Value {
    let fetched = format!("(async () => (await fetch('{path}')).json())()");
    visit.browser.evaluate(&fetched)
}

/// What a port answers to a program. The page of a standby lets no script ask.
fn get(address: &str, path: &str) -> (u64, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_string())
}

fn text(visit: &mut Visit<'_>, path: &str) -> (u64, String) {
    let fetched = format!(
        "(async () => {{ const it = await fetch('{path}'); return [it.status, await it.text()] }})()"
    );
    let found = visit.browser.evaluate(&fetched);
    (found[0].as_u64().unwrap(), found[1].as_str().unwrap().to_string())
}

fn attribute(visit: &mut Visit<'_>, bean: &str, name: &str) -> Value {
    let path = format!("/jmx?get=Hadoop:service=HBase,name=Master,sub={bean}::{name}");
    ask(visit, &path)["beans"][0][name].clone()
}

/// Two region servers and two masters, nothing has died.
#[test]
#[ignore = "needs a cluster: make browser-cluster"]
fn a_cluster_at_rest() {
    let mut browser = browser("browser-cluster-rest");
    let mut visit = active(&mut browser, "cluster");
    visit.all_views(&VIEWS);
    visit.view("cluster", 1440, "light");
    let cluster = ask(&mut visit, "/api/v1/cluster");
    assert_eq!(cluster["online_count"], 2, "{cluster}");
    assert_eq!(cluster["standby"].as_array().unwrap().len(), 1, "{cluster}");
    assert_eq!(cluster["open_count"], cluster["regions_count"], "{cluster}");
    assert_eq!(cluster["takeovers"][0]["master"], cluster["active"], "{cluster}");
    use_the_page(&mut visit);
    garbage_is_refused(&mut visit);
    assert_eq!(attribute(&mut visit, "Server", "numRegionServers"), 2);
    assert_eq!(attribute(&mut visit, "Server", "numDeadRegionServers"), 0);
    let load = attribute(&mut visit, "Server", "averageLoad").as_f64().unwrap();
    assert_eq!(load, cluster["open_count"].as_f64().unwrap() / 2.0);
    assert_eq!(attribute(&mut visit, "AssignmentManager", "ritCount"), 0);
    let (status, page) = text(&mut visit, "/master-status");
    let servers = ask(&mut visit, "/api/v1/servers")["servers"].clone();
    assert_eq!((status, servers.as_array().unwrap().len()), (200, 2));
    for server in servers.as_array().unwrap() {
        let link = format!(
            "<a href=\"{}\">{}</a>",
            server["link"].as_str().unwrap(),
            server["name"].as_str().unwrap()
        );
        assert!(page.contains(&link), "{link} in {page}");
    }
    let checks = visit.checks;
    println!("a cluster at rest: {checks} checks");
}

/// Keyboard and controls.
fn use_the_page(visit: &mut Visit<'_>) {
    visit.view("balance", 1440, "light");
    visit.browser.evaluate("document.querySelector('#balance-bars svg').focus()");
    visit.browser.press("ArrowRight");
    visit.browser.press("ArrowRight");
    let bar = visit.browser.evaluate("document.getElementById('balance-bar').textContent");
    assert!(bar.as_str().unwrap().ends_with(" regions"), "{bar}");
    visit.browser.evaluate(
        "[...document.querySelectorAll('#balance-tables .link')].find(it => it.textContent === 't').click()",
    );
    visit.browser.wait_until(
        "the bars of a table",
        "document.querySelector('#balance-bars h2').textContent === 'Regions of t on each server'",
    );
    visit.view("cluster", 1440, "light");
    let choose = "(() => { const it = document.querySelector('#server-list select'); it.value = 'dead'; \
                  it.dispatchEvent(new Event('change')); return true })()";
    visit.browser.evaluate(choose);
    let none = "document.querySelector('#server-list .empty').checkVisibility()";
    visit.browser.wait_until("no dead server", none);
    // a page that this port does not have leads to the first
    let url = format!("{}/?x#tables", visit.base);
    visit.browser.call("Page.navigate", serde_json::json!({ "url": url }));
    visit.browser.wait_until("the first page", "document.body?.dataset.loaded === 'cluster'");
    visit.checks += 4;
}

/// Answers of a cluster of 1,000 servers and 100,000 regions, and how long the page takes to draw them.
#[test]
#[ignore = "needs a cluster: make browser-cluster"]
fn a_huge_cluster_stays_usable() {
    let mut browser = browser("browser-cluster-huge");
    let source = serde_json::json!({ "source": include_str!("browser/huge.js") });
    browser.call("Page.addScriptToEvaluateOnNewDocument", source);
    let mut visit = active(&mut browser, "huge");
    visit.all_views(&["cluster", "balance", "recoveries"]);
    for (view, list, lines) in [("cluster", "#server-list", 100), ("balance", "#balance-tables", 100)] {
        visit.view(view, 1440, "light");
        for page in ["101 to 200 of ", "201 to 300 of "] {
            let next = format!("[...document.querySelectorAll('{list} .pager button')].at(-1).click()");
            visit.browser.evaluate(&next);
            let turned =
                format!("document.querySelector('{list} .pager .muted').textContent.startsWith('{page}')");
            visit.browser.wait_until("the next page", &turned);
        }
        let rows = format!("document.querySelectorAll('{list} tbody tr').length");
        assert_eq!(visit.browser.evaluate(&rows), lines);
    }
    visit.view("cluster", 1440, "light");
    let markup = "document.querySelectorAll('main img, main script').length";
    assert_eq!(visit.browser.evaluate(markup), 0, "a name became markup");
    let elements = visit.browser.evaluate("document.querySelectorAll('*').length").as_u64().unwrap();
    assert!(elements < 10_000, "{elements} elements");
    println!("a huge cluster: {} checks, {elements} elements", visit.checks);
}

fn garbage_is_refused(visit: &mut Visit<'_>) {
    for path in [
        "servers?limit=0",
        "servers?limit=99999999999999999999",
        "servers?state=asleep",
        "servers?order=%00",
        "transitions?offset=-1",
        "balance?table=%3Cscript%3E",
        "recoveries?limit=201",
        "recoveries?kind=none",
        "cluster?x=1",
    ] {
        let (status, text) = text(visit, &format!("/api/v1/{path}"));
        assert_eq!(status, 400, "{path}: {text}");
        assert!(text.starts_with("{\"error\":\""), "{path}: {text}");
    }
    let (status, _) = text(visit, "/api/v1/servers?name=%3Cimg%20src%3Dx%3E&offset=18446744073709551615");
    assert_eq!(status, 200);
    visit.checks += 10;
}

/// The pages of the master that waits.
#[test]
#[ignore = "needs a cluster: make browser-cluster"]
fn a_standby_leads_to_the_active_master() {
    let mut browser = browser("browser-cluster-standby");
    let standby = format!("http://{}", told("HALCYON_STANDBY_PAGES"));
    let mut visit = Visit::new(&mut browser, standby.clone(), "standby");
    for path in ["/", "/master-status"] {
        visit.browser.call("Page.navigate", serde_json::json!({ "url": format!("{standby}{path}") }));
        visit
            .browser
            .wait_until("the page", "document.body?.innerText.includes('This master is not active.')");
        let link = visit.browser.evaluate("document.querySelector('p a[href*=\"master-status\"]').href");
        let active = told("HALCYON_ACTIVE_PAGES");
        let port = active.rsplit(':').next().unwrap();
        assert!(link.as_str().unwrap().ends_with(&format!(":{port}/master-status")), "{link}");
    }
    visit.picture("standby-1440", 1440);
    let address = told("HALCYON_STANDBY_PAGES");
    let bean = "/jmx?get=Hadoop:service=HBase,name=Master,sub=Server::tag.isActiveMaster";
    assert!(get(&address, bean).1.contains("\"tag.isActiveMaster\": \"false\""), "{:?}", get(&address, bean));
    assert!(get(&address, "/api/v1/summary").1.contains("\"scope\":\"standby\""));
    assert_eq!(get(&address, "/health"), (200, "OK\n".to_string()));
    let (status, text) = get(&address, "/api/v1/servers?x=%00");
    assert_eq!(status, 404);
    assert!(text.contains("Active master: http://"), "{text}");
}

/// The server `HALCYON_KILLED`, which had `hbase:meta`, was killed and recovered.
#[test]
#[ignore = "needs a cluster: make browser-cluster"]
fn a_killed_server_has_a_timeline() {
    let killed = told("HALCYON_KILLED");
    let mut browser = browser("browser-cluster-killed");
    let mut visit = active(&mut browser, "killed");
    visit.all_views(&["cluster", "recoveries", "balance"]);
    visit.view("recoveries", 1440, "light");
    let all = ask(&mut visit, "/api/v1/recoveries?kind=server&limit=200");
    let found = all["recoveries"].as_array().unwrap().iter().find(|it| it["server"] == killed.as_str());
    let it = found.unwrap_or_else(|| panic!("no {killed} in {all}")).clone();
    let at = |name: &str| it[name].as_i64().unwrap_or_else(|| panic!("no {name} in {it}"));
    assert_eq!(it["noticed"], "no process listens at its address", "{it}");
    let order = ["heard_ms", "noticed_ms", "fenced_ms", "split_ms", "ended_ms"].map(at);
    assert!(order.is_sorted(), "{it}");
    assert!(at("wals_count") >= 1 && at("wal_bytes") > 0, "{it}");
    assert!(at("regions_count") >= 1 && it["opened_count"] == it["regions_count"], "{it}");
    let phases: Vec<&str> =
        it["phases"].as_array().unwrap().iter().map(|phase| phase["phase"].as_str().unwrap()).collect();
    assert_eq!(phases, ["detect", "fence", "meta", "split", "open"], "the server had hbase:meta: {it}");
    let shown = format!(
        "document.querySelector('#timelines li[data-number=\"{}\"] svg').getAttribute('aria-label')",
        it["number"]
    );
    let shown = visit.browser.evaluate(&shown);
    assert!(shown.as_str().unwrap().starts_with(&format!("Recovery of {killed} took ")), "{shown}");
    let fences = ask(&mut visit, "/api/v1/cluster")["fences"].clone();
    assert!(fences.as_array().unwrap().iter().any(|fence| fence["server"] == killed.as_str()), "{fences}");
    let crashes = attribute(&mut visit, "Server", "ServerCrashSubmittedCount").as_u64().unwrap();
    assert!(crashes >= 1 || std::env::var_os("HALCYON_TAKEN_OVER").is_some(), "{crashes}");
    let (_, metrics) = text(&mut visit, "/metrics");
    for part in ["fenced", "meta_opened", "split", "ended"] {
        let series = format!("halcyon_cluster_last_recovery_seconds{{part=\"{part}\"}} ");
        assert!(metrics.contains(&series), "{series} in {metrics}");
    }
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/METRICS.md")).unwrap();
    for series in page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()) {
        let is_missing =
            series.starts_with("halcyon_cluster_") && !metrics.contains(&format!("# TYPE {series} "));
        assert!(!is_missing, "docs/METRICS.md has {series}, and the master does not");
    }
}

/// The active master was killed after that; the other one is active now.
#[test]
#[ignore = "needs a cluster: make browser-cluster"]
fn a_takeover_keeps_what_was_known() {
    a_killed_server_has_a_timeline();
    let before = told("HALCYON_MASTER_BEFORE");
    let mut browser = browser("browser-cluster-takeover");
    let mut visit = active(&mut browser, "takeover");
    visit.all_views(&["cluster", "recoveries"]);
    visit.view("recoveries", 1440, "light");
    let cluster = ask(&mut visit, "/api/v1/cluster");
    assert_eq!(cluster["takeovers"][0]["before"], before.as_str(), "{cluster}");
    let epochs = [0, 1].map(|at| cluster["takeovers"][at]["epoch"].as_u64().unwrap());
    assert_eq!(epochs[0], epochs[1] + 1, "{cluster}");
    let fenced = cluster["fences"].as_array().unwrap().iter().find(|it| it["server"] == before.as_str());
    assert_eq!(fenced.unwrap_or_else(|| panic!("{cluster}"))["kind"], "former master");
    assert_eq!((&cluster["online_count"], &cluster["dead_count"]), (&2.into(), &0.into()), "{cluster}");
    assert_eq!(
        attribute(&mut visit, "Server", "numDeadRegionServers"),
        0,
        "the former master was no region server"
    );
    let takeovers = ask(&mut visit, "/api/v1/recoveries?kind=takeover");
    let phases = takeovers["recoveries"][0]["phases"].as_array().unwrap().clone();
    let names: Vec<&str> = phases.iter().map(|phase| phase["phase"].as_str().unwrap()).collect();
    assert_eq!(names, ["join", "fence", "split", "meta", "open"], "{takeovers}");
    let standby = text(&mut visit, "/state").1;
    assert!(standby.contains("Standby masters: none"), "{standby}");
    let verdict = visit.browser.evaluate("document.getElementById('verdict').innerText");
    assert!(verdict.as_str().unwrap().contains("There is no standby master."), "{verdict}");
}
