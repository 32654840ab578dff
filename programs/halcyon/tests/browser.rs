//! Every page of the console in a real browser: two widths, both colour schemes, without a table and with 1,000
//! regions under load. `make browser` finds or installs Chromium and runs this.
//!
//! On each page: no error of the console, no request to elsewhere, nothing wider than the screen, every chart drawn,
//! every control named, text with enough contrast, and numbers that agree with the API.

#![allow(clippy::disallowed_methods)] // files and time are the real ones

pub(crate) mod devtools;
pub(crate) mod visit;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{Client, Server, decoded, family, fresh_dir, put, site, specifier};
use devtools::Browser;
use halcyon_cell::Cell;
use halcyon_proto::pb;
use halcyon_schema::RegionInfo;
use visit::{Visit, browser};

const VIEWS: [&str; 5] = ["overview", "tables", "slow", "procedures", "settings"];
const REGIONS: usize = 1000;
/// A key that would be markup if it were not escaped.
const HOSTILE_KEY: &str = "zz<img src=x onerror=alert(1)>";
/// Every scan is slow, and every answer over 100 kB is large; gets and puts are neither.
const WARN_LIMITS: [(&str, &str); 2] =
    [("hbase.ipc.warn.response.time.scan", "0"), ("hbase.ipc.warn.response.size", "100000")];
const SLOW_SCANS: usize = 20;

fn visit<'b>(browser: &'b mut Browser, server: &Server, port: &str, load: &'static str) -> Visit<'b> {
    Visit::new(browser, format!("http://{}", server.address(port)), load)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Chromium: make browser"]
async fn a_server_without_tables_says_what_will_appear() {
    let dir = fresh_dir("browser-empty");
    let server = Server::start(&dir, &[]);
    let mut browser = browser("browser-empty-profile");
    let mut visit = visit(&mut browser, &server, "master-info", "empty");
    visit.all_views(&VIEWS);
    visit.view("procedures", 1440, "light");
    let text = visit.browser.evaluate("document.querySelector('main').innerText");
    assert!(text.as_str().unwrap().contains("No procedure is under way."), "{text}");
    println!("without tables: {} checks", visit.checks);
    server.stop();
    let _ = std::fs::remove_dir_all(&dir);
}

/// Reads and writes rows of every hundredth region and many of one, until it is told to end.
async fn load(server: &Server, regions: Vec<RegionInfo>, ends: Arc<AtomicBool>, done: Arc<AtomicU64>) {
    let client = Client::connect(server).await;
    for turn in 0u64.. {
        if ends.load(Ordering::Relaxed) {
            return;
        }
        let hot = if turn.is_multiple_of(4) {
            (turn as usize * 100 + 7) % regions.len()
        } else {
            regions.len() / 3
        };
        let region = &regions[hot];
        let row = format!("{}{:04}", String::from_utf8_lossy(region.start_key()), turn % 1000);
        let cell = Cell::put(row.as_bytes(), b"f", b"q", i64::MAX, b"0123456789");
        client.mutate(region, put(1), &[cell]).await.unwrap();
        client.value(region, &row).await.unwrap();
        done.fetch_add(2, Ordering::Relaxed);
    }
}

/// Scans, which are slow here, and one large answer.
async fn slow_and_large_calls(client: &Client, regions: &[RegionInfo]) {
    // The name of the last region has the hostile key.
    for region in regions.iter().rev().step_by(REGIONS / SLOW_SCANS - 1).take(SLOW_SCANS) {
        let request = pb::ScanRequest {
            region: Some(specifier(region)),
            scan: Some(pb::Scan::default()),
            number_of_rows: Some(10),
            close_scanner: Some(true),
            ..Default::default()
        };
        let answer: pb::ScanResponse = decoded(&client.call("Scan", &request, &[]).await.unwrap());
        assert!(!answer.more_results_in_region(), "nothing was written yet");
    }
    client.put(&regions[0], "0-large", &[b'x'; 200_000]).await.unwrap();
    assert_eq!(client.value(&regions[0], "0-large").await.unwrap().map(|value| value.len()), Some(200_000));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Chromium: make browser"]
async fn a_loaded_server_with_a_thousand_regions_looks_right() {
    let dir = fresh_dir("browser-loaded");
    let config = site(&dir, &WARN_LIMITS);
    let server = Arc::new(Server::start(&dir, &["--config", config.to_str().unwrap()]));
    let client = Client::connect(&server).await;
    let mut keys: Vec<String> = (1..REGIONS - 3).map(|at| format!("{at:05}")).collect();
    keys.push(HOSTILE_KEY.to_string());
    let splits: Vec<&[u8]> = keys.iter().map(String::as_bytes).collect();
    let regions = client.create_table("orders", vec![family("f"), family("details")], &splits).await;
    client
        .create_table(
            "a-table-with-a-rather-long-name-that-must-not-make-a-page-wider",
            vec![family("f")],
            &[],
        )
        .await;
    slow_and_large_calls(&client, &regions).await;
    let (ends, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let loading = {
        let (server, regions, ends, done) = (server.clone(), regions.clone(), ends.clone(), done.clone());
        tokio::spawn(async move { load(&server, regions, ends, done).await })
    };
    while done.load(Ordering::Relaxed) < 500 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for region in regions.iter().step_by(250) {
        client.flush(region).await.unwrap();
    }
    let checks = {
        let server = server.clone();
        let visits = move || {
            let mut browser = browser("browser-loaded-profile");
            let mut visit = visit(&mut browser, &server, "regionserver-info", "loaded");
            visit.all_views(&VIEWS);
            use_the_page(&mut visit);
            look_at_lists(&mut visit);
            another_name_is_refused(&mut visit);
            visit.checks
        };
        tokio::task::spawn_blocking(visits).await.unwrap()
    };
    ends.store(true, Ordering::Relaxed);
    loading.await.unwrap();
    println!("with {REGIONS} regions: {checks} checks, {} calls meanwhile", done.load(Ordering::Relaxed));
    Arc::try_unwrap(server).unwrap_or_else(|_| panic!("the load has ended")).stop();
    let _ = std::fs::remove_dir_all(&dir);
}

/// Slow calls and settings with what this server was given.
fn look_at_lists(visit: &mut Visit<'_>) {
    visit.view("slow", 1440, "light");
    let kinds = visit.browser.evaluate("checks.cells('#slow-list', 'Kind')");
    let count = |kind: &str| kinds.as_array().unwrap().iter().filter(|found| *found == kind).count();
    assert_eq!((count("slow"), count("large")), (SLOW_SCANS, 1), "{kinds}");
    let asked = visit.browser.evaluate("checks.cells('#slow-list', 'Asked for').join()");
    assert!(asked.as_str().unwrap().contains("zz<img src=x"), "the page shows the key as text: {asked}");
    assert_eq!(visit.browser.evaluate("document.querySelectorAll('main img, main script').length"), 0);
    visit.view("settings", 1440, "light");
    visit.browser.evaluate("document.querySelector('#setting-list input[type=checkbox]').click()");
    for (name, value) in WARN_LIMITS {
        let row = format!("checks.row('#setting-list', '{name}')");
        let row = visit.browser.evaluate(&row);
        let shows = |column: &str, text: &str| {
            assert!(row[column].as_str().unwrap().starts_with(text), "{name}: {column} in {row}");
        };
        shows("Value", value);
        shows("Source", "hbase-site.xml");
        shows("Default", if name.ends_with("scan") { "not set" } else { "104857600" });
    }
    visit.checks += 9;
}

/// DNS rebinding: a page from elsewhere whose name points to this machine.
fn another_name_is_refused(visit: &mut Visit<'_>) {
    let port = visit.base.rsplit_once(':').unwrap().1.to_string();
    let url = format!("http://{}:{port}/", devtools::REBOUND_NAME);
    visit.browser.call("Page.navigate", serde_json::json!({ "url": url }));
    let says = "document.body?.innerText.includes('The header Host names another machine')";
    visit.browser.wait_until("the refusal", says);
    visit.checks += 1;
}

/// Keyboard, pointer and controls.
fn use_the_page(visit: &mut Visit<'_>) {
    visit.view("tables", 1440, "light");
    // the hostile key is text
    let find =
        "[...document.querySelectorAll('#region-list select option')].map(option => option.value).join()";
    assert_eq!(visit.browser.evaluate(find), "requests,size,key");
    let go = "(() => { const select = document.querySelector('#region-list select'); select.value = 'key'; \
              select.dispatchEvent(new Event('change')); const links = [...document.querySelectorAll('#table-list .link')]; \
              links.find(link => link.textContent === 'orders').click(); return true })()";
    visit.browser.evaluate(go);
    visit.browser.wait_until(
        "the regions of the table",
        "document.querySelector('.pager .muted').textContent.endsWith(' of 998')",
    );
    for page in 1..REGIONS / 100 {
        visit.browser.evaluate(
            "(() => { [...document.querySelectorAll('.pager button')].at(-1).click(); return true })()",
        );
        let turned =
            format!("document.querySelector('.pager .muted').textContent.startsWith('{page}01 to ')");
        visit.browser.wait_until("the next regions", &turned);
    }
    let markup = "document.querySelectorAll('main img, main script').length";
    assert_eq!(visit.browser.evaluate(markup), 0);
    let text = visit.browser.evaluate("document.querySelector('main').textContent");
    let shown =
        visit.browser.evaluate("(async () => (await (await fetch('/api/v1/regions?limit=1000')).text()))()");
    assert!(shown.as_str().unwrap().contains("onerror"), "the API has the key");
    assert!(text.as_str().unwrap().contains("zz<img src=x"), "the page shows the key as text");

    visit.view("overview", 1440, "light");
    visit.browser.evaluate("document.querySelector('.keymap canvas').focus()");
    visit.browser.press("ArrowUp");
    visit.browser.press("ArrowLeft");
    let cell = visit.browser.evaluate("document.getElementById('keymap-cell').textContent");
    assert!(cell.as_str().unwrap().contains("requests/s"), "{cell}");
    // one crosshair for all charts
    let at = visit.browser.evaluate("checks.middleOf('#calls .u-over')");
    visit.browser.move_pointer(at[0].as_f64().unwrap(), at[1].as_f64().unwrap());
    visit.browser.wait_until("a shared crosshair", "checks.crosshairs() >= 5");
    let times = visit.browser.evaluate("[...new Set([...document.querySelectorAll('.at')].map(time => time.textContent).filter(Boolean))].length");
    assert_eq!(times, 1, "all charts show the same moment");
    // another range, another scheme
    visit.browser.forget_events();
    visit.browser.evaluate("document.querySelector('#range input[value=\"1h\"]').click()");
    visit.browser.wait_until(
        "points of the hour",
        "performance.getEntriesByType('resource').some(entry => entry.name.includes('series?range=1h'))",
    );
    visit.browser.evaluate("(() => { const theme = document.getElementById('theme'); theme.value = 'dark'; theme.dispatchEvent(new Event('change')); return true })()");
    visit.browser.wait_until("dark colours", "checks.isDark()");
    std::thread::sleep(Duration::from_millis(500));
    visit.check("charts after a change of colours", "checks.chartsNotDrawn()");
    assert_eq!(visit.browser.errors(), Vec::<String>::new());
    visit.browser.evaluate("localStorage.clear()");
    // the first stop of the keyboard leads past the navigation
    visit.view("settings", 1440, "light");
    visit.browser.press("Tab");
    assert_eq!(visit.browser.evaluate("document.activeElement.textContent"), "Skip to content");
    visit.checks += 8;
}
