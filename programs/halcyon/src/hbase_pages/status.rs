//! `/master-status`, `/rs-status` and `/table.jsp`: pages for people, at the addresses that HBase's pages have.
//!
//! They are plain tables without scripts. The console (`/`) has more and follows the server live.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use halcyon_master::Master;
use halcyon_schema::TableName;
use serde::Deserialize;

use super::cluster::{cluster_page, table_of_cluster};
use super::conf::escaped;
use super::region_server::{Counted, regions};
use super::{Pages, html, made, text};
use crate::console::key_text;
use crate::surroundings::{Fact, Scope};

/// Regions that a page lists. The console pages through all.
const REGIONS_MAX: usize = 1000;
const STYLE: &str = "body{font-family:sans-serif;margin:1.5rem;max-width:80rem}table{border-collapse:collapse;margin:.5rem 0}\
    td,th{border:1px solid #8888;padding:.2rem .5rem;text-align:left;overflow-wrap:anywhere}\
    @media(prefers-color-scheme:dark){body{background:#111;color:#ddd}a{color:#8bf}}";

pub async fn master(State((pages, master)): State<(Pages, Arc<Master>)>) -> Response {
    made(move || match pages.sources.surroundings.cluster() {
        Some(cluster) => html(cluster_page(&pages, cluster)),
        None => html(master_page(&pages, &master)),
    })
    .await
}

pub async fn region_server(State(pages): State<Pages>) -> Response {
    made(move || html(region_server_page(&pages))).await
}

#[derive(Deserialize)]
pub struct Parameters {
    name: Option<String>,
}

pub async fn table(
    State(pages): State<Pages>,
    parameters: Result<Query<Parameters>, QueryRejection>,
) -> Response {
    let Ok(Query(Parameters { name: Some(name) })) = parameters else {
        return text(StatusCode::BAD_REQUEST, "Name the table: /table.jsp?name=TABLE\n");
    };
    made(move || match TableName::parse(name.as_bytes()) {
        Ok(name) => table_page(&pages, &name),
        Err(_) => text(StatusCode::BAD_REQUEST, "The parameter name is not the name of a table.\n"),
    })
    .await
}

/// A page in the making.
pub struct Page(String);

impl Page {
    pub fn new(title: &str) -> Page {
        let links = [("Console", "/"), ("Metrics", "/jmx"), ("Settings", "/conf"), ("Dump", "/dump")];
        Page::with_links(title, &links)
    }

    /// The links are names and addresses.
    pub fn with_links(title: &str, links: &[(&str, &str)]) -> Page {
        let title = escaped(title);
        let links: Vec<String> =
            links.iter().map(|(name, address)| format!("<a href=\"{address}\">{name}</a>")).collect();
        Page(format!(
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
             content=\"width=device-width\"><title>{title}</title><style>{STYLE}</style></head><body><h1>{title}</h1>\
             <p>{}</p>",
            links.join(" ")
        ))
    }

    pub fn sentence(&mut self, text: &str) {
        let _ = write!(self.0, "<p>{}</p>", escaped(text));
    }

    pub fn sentence_with_link(&mut self, text: &str, name: &str, address: &str) {
        let (text, name, address) = (escaped(text), escaped(name), escaped(address));
        let _ = write!(self.0, "<p>{text}<a href=\"{address}\">{name}</a></p>");
    }

    /// Text of cells is escaped here and nowhere else.
    pub fn table(&mut self, title: &str, columns: &[&str], rows: impl Iterator<Item = Vec<String>>) {
        self.table_of(title, columns, rows.map(|row| (None, row)));
    }

    /// As [`Page::table`]; the first cell of a row may lead to a page.
    pub fn table_of(
        &mut self,
        title: &str,
        columns: &[&str],
        rows: impl Iterator<Item = (Option<String>, Vec<String>)>,
    ) {
        let cells = |tag: &str, texts: &[String]| -> String {
            texts.iter().map(|text| format!("<{tag}>{}</{tag}>", escaped(text))).collect()
        };
        let columns: Vec<String> = columns.iter().map(|column| column.to_string()).collect();
        let _ = write!(self.0, "<h2>{}</h2><table><tr>{}</tr>", escaped(title), cells("th", &columns));
        for (link, row) in rows {
            let row = match (link, row.split_first()) {
                (Some(link), Some((first, rest))) => {
                    let (link, first) = (escaped(&link), escaped(first));
                    format!("<td><a href=\"{link}\">{first}</a></td>{}", cells("td", rest))
                }
                _ => cells("td", &row),
            };
            let _ = write!(self.0, "<tr>{row}</tr>");
        }
        self.0.push_str("</table>");
    }

    pub fn facts<const N: usize>(&mut self, facts: [(&str, String); N]) {
        self.table("Server", &["", ""], facts.into_iter().map(|(name, value)| vec![name.to_string(), value]));
    }

    /// Where the server stands in its cluster; nothing if it is all of it. Links lead to pages of other servers.
    pub fn place(&mut self, facts: &[Fact]) {
        if facts.is_empty() {
            return;
        }
        self.0.push_str("<h2>Cluster</h2><table>");
        for Fact { name, value, link } in facts {
            let (name, value) = (escaped(name), escaped(value));
            let value = match link {
                Some(link) => format!("<a href=\"{}\">{value}</a>", escaped(link)),
                None => value,
            };
            let _ = write!(self.0, "<tr><td>{name}</td><td>{value}</td></tr>");
        }
        self.0.push_str("</table>");
    }

    pub fn end(mut self) -> String {
        self.0.push_str("</body></html>\n");
        self.0
    }
}

pub fn up_text(pages: &Pages) -> String {
    format!("{} s", (pages.sources.clock.now_ms() - pages.sources.started_ms).max(0) / 1000)
}

fn master_page(pages: &Pages, master: &Master) -> String {
    let sources = &pages.sources;
    let mut page = Page::new("Master");
    let server_name = sources.region_server.server_name().to_string();
    page.facts([
        ("Version", env!("CARGO_PKG_VERSION").to_string()),
        ("Cluster", sources.cluster_id.clone()),
        ("Up", up_text(pages)),
        ("Regions in transition", master.regions_in_transition_count().to_string()),
    ]);
    let regions = regions(sources);
    let requests = sources.region_server.server_load().total_number_of_requests();
    let server = vec![server_name, regions.len().to_string(), requests.to_string()];
    page.table("Region servers", &["Server", "Regions", "Requests"], std::iter::once(server));
    let mut by_table: BTreeMap<String, (usize, u64)> = BTreeMap::new();
    for region in &regions {
        let sums = by_table.entry(region.info.table().to_string()).or_default();
        *sums = (sums.0 + 1, sums.1 + region.stats.store_file_bytes);
    }
    let states = master.table_states();
    let rows = states.iter().map(|(name, state)| {
        let (count, bytes) = by_table.get(name).copied().unwrap_or_default();
        vec![name.clone(), format!("{state:?}").to_uppercase(), count.to_string(), bytes.to_string()]
    });
    page.table("Tables", &["Table", "State", "Open regions", "Bytes of store files"], rows);
    let procedures = master.procedures();
    let rows = procedures
        .into_iter()
        .map(|it| vec![it.id.to_string(), it.name.to_string(), it.owner, it.state, it.locks.join(", ")]);
    page.table("Procedures", &["Number", "Procedure", "Owner", "State", "Locks"], rows);
    page.end()
}

fn region_server_page(pages: &Pages) -> String {
    let sources = &pages.sources;
    let mut page = Page::new("Region server");
    let stats = sources.region_server.stats();
    let cache = &stats.cache;
    page.facts([
        ("Server", sources.region_server.server_name().to_string()),
        ("Version", env!("CARGO_PKG_VERSION").to_string()),
        ("Cluster", sources.cluster_id.clone()),
        ("Up", up_text(pages)),
        ("Failure", sources.region_server.failure().unwrap_or_else(|| "none".to_string())),
        ("Memstores", format!("{} B of {} B", stats.memstore_bytes, stats.memstore_high_bytes)),
        ("Block cache", format!("{} B of {} B", cache.used_bytes, cache.capacity_bytes)),
        ("Block cache hits and misses", format!("{}, {}", cache.hits_count, cache.misses_count)),
        ("WAL files", format!("{}, {} B", stats.wal.files_count, stats.wal.files_bytes)),
        (
            "Flush queue, compaction queue",
            format!("{}, {}", stats.queued_flushes_count, stats.queued_compactions_count),
        ),
    ]);
    page.place(&sources.surroundings.facts());
    region_table(&mut page, &regions(sources));
    page.end()
}

fn region_table(page: &mut Page, regions: &[Counted]) {
    let columns =
        ["Region", "Start key", "End key", "Reads", "Writes", "Memstore", "Store files", "Bytes", "Locality"];
    let rows = regions.iter().take(REGIONS_MAX).map(|region| {
        let (info, stats) = (&region.info, &region.stats);
        vec![
            key_text(info.region_name()),
            key_text(info.start_key()),
            key_text(info.end_key()),
            stats.read_requests.to_string(),
            stats.write_requests.to_string(),
            stats.memstore.data_bytes.to_string(),
            stats.store_files.to_string(),
            stats.store_file_bytes.to_string(),
            region.locality(),
        ]
    });
    let title = match regions.len() {
        count if count > REGIONS_MAX => format!("Regions: the first {REGIONS_MAX} of {count}"),
        count => format!("{count} regions"),
    };
    page.table(&title, &columns, rows);
}

fn table_page(pages: &Pages, name: &TableName) -> Response {
    let sources = &pages.sources;
    if let Some(cluster) = sources.surroundings.cluster() {
        return match table_of_cluster(&cluster.picture(), name) {
            Some(page) => html(page),
            None => text(StatusCode::NOT_FOUND, no_table(Scope::Master, name)),
        };
    }
    let mut regions = regions(sources);
    regions.retain(|region| region.info.table() == name);
    let state = match sources.surroundings.table_states().remove(&name.to_string()) {
        Some(state) => state,
        None if !regions.is_empty() => "ENABLED".to_string(),
        None => return text(StatusCode::NOT_FOUND, no_table(sources.surroundings.scope(), name)),
    };
    let mut page = Page::new(&format!("Table {name}"));
    let descriptor =
        sources.region_server.regions().online().into_iter().find(|it| it.region.info().table() == name);
    page.facts([("State", state), ("Open regions", regions.len().to_string())]);
    if let Some(online) = descriptor {
        let families = online.region.table().families();
        let rows = families.iter().map(|family| vec![family.name_str().to_string()]);
        page.table("Families", &["Family"], rows);
    }
    region_table(&mut page, &regions);
    html(page.end())
}

fn no_table(scope: Scope, name: &TableName) -> String {
    match scope {
        Scope::Cluster | Scope::Master => format!("There is no table {name}.\n"),
        Scope::Server => format!("No region of a table {name} is open at this server.\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_text() {
        let mut page = Page::new("<title>");
        page.table("<h>", &["<c>"], std::iter::once(vec!["<script>alert(1)</script>".to_string()]));
        let (value, link) = ("<script>".to_string(), Some("http://h\"><script>:1/".to_string()));
        page.place(&[Fact { name: "<c>", value, link }]);
        let page = page.end();
        assert!(page.contains("<td>&lt;script&gt;alert(1)&lt;/script&gt;</td>"), "{page}");
        assert!(!page.contains("<script") && !page.contains("<title><title>") && !page.contains("<c>"));
    }
}
