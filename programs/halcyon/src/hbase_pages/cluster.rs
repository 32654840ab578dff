//! `/master-status` of the active master of a cluster: HBase's lists as plain tables.

use halcyon_master::{RecoveryKind, STUCK_MS};
use halcyon_schema::TableName;

use super::Pages;
use super::status::{Page, up_text};
use crate::cluster::{Cluster, Picture, ServerRow, ServerState, kind_text, noticed_text};
use crate::console::key_text;

/// Lines of each list. The console pages through all.
const LINES_MAX: usize = 1000;
const RECOVERIES_SHOWN: usize = 20;

pub fn cluster_page(pages: &Pages, cluster: &Cluster) -> String {
    let (sources, picture) = (&pages.sources, cluster.picture());
    let mut page = Page::new("Master");
    page.facts([
        ("Master", picture.active.clone()),
        ("Version", env!("CARGO_PKG_VERSION").to_string()),
        ("Cluster", sources.cluster_id.clone()),
        ("Up", up_text(pages)),
        ("Active", format!("{} s", (picture.at_ms - picture.active_ms).max(0) / 1000)),
        ("Epoch", picture.epoch.to_string()),
        ("Average load", format!("{:.2} regions on each server", picture.average_load())),
        ("Balancer", if picture.is_balancer_on { "on" } else { "off" }.to_string()),
        ("Regions in transition", picture.transitions.len().to_string()),
        ("Of these for more than 60 s", picture.stuck_count().to_string()),
    ]);
    const { assert!(STUCK_MS == 60_000) };
    lists(&mut page, &picture);
    let rows = cluster
        .master
        .procedures()
        .into_iter()
        .take(LINES_MAX)
        .map(|it| vec![it.id.to_string(), it.name.to_string(), it.owner, it.state, it.locks.join(", ")]);
    page.table("Procedures", &["Number", "Procedure", "Owner", "State", "Locks"], rows);
    page.end()
}

/// A table with the number of its regions on each server; `None` if there is no such table.
pub fn table_of_cluster(picture: &Picture, name: &TableName) -> Option<String> {
    let table = picture.spread.tables.iter().find(|table| table.table == *name)?;
    let mut page = Page::new(&format!("Table {name}"));
    page.facts([
        ("State", table.state.to_string()),
        ("Regions", table.regions_count.to_string()),
        ("Open regions", table.open_count.to_string()),
    ]);
    let mut by_server = table.by_server.clone();
    by_server.sort_by_key(|(at, count)| (std::cmp::Reverse(*count), *at));
    let rows = by_server.iter().take(LINES_MAX).map(|(at, count)| {
        let server = &picture.spread.servers[*at];
        let row = picture.servers.iter().find(|row| row.server == *server);
        (row.and_then(ServerRow::link), vec![server.to_string(), count.to_string()])
    });
    page.table_of(&title("Servers", by_server.len()), &["Server", "Open regions"], rows);
    Some(page.end())
}

/// `Region servers`, or how many of them are listed.
fn title(what: &str, count: usize) -> String {
    if count > LINES_MAX { format!("{what}: the first {LINES_MAX} of {count}") } else { what.to_string() }
}

fn lists(page: &mut Page, picture: &Picture) {
    let number = |value: Option<u64>| value.map_or_else(|| "-".to_string(), |value| value.to_string());
    let rate = |value: Option<f64>| value.map_or_else(|| "-".to_string(), |value| format!("{value:.0}"));
    let row = |row: &ServerRow| {
        let report = row.report.as_ref();
        let age_s = report.map(|it| (picture.at_ms - it.reported_ms).max(0) as u64 / 1000);
        let state = if row.state == ServerState::Draining { "draining" } else { "online" };
        let cells = vec![
            row.server.to_string(),
            state.to_string(),
            report
                .and_then(|it| it.version)
                .map_or_else(|| "-".to_string(), |(major, minor)| format!("{major}.{minor}")),
            age_s.map_or_else(|| "-".to_string(), |age_s| format!("{age_s} s ago")),
            rate(report.and_then(|it| it.reads_per_s)),
            rate(report.and_then(|it| it.writes_per_s)),
            row.open_count.to_string(),
            number(report.map(|it| it.memstore_bytes)),
            number(report.map(|it| it.file_bytes)),
            report
                .and_then(|it| it.locality)
                .map_or_else(|| "-".to_string(), |part| format!("{:.0} %", part * 100.0)),
        ];
        (row.link(), cells)
    };
    let columns = [
        "Server",
        "State",
        "Version",
        "Last report",
        "Reads/s",
        "Writes/s",
        "Regions",
        "Bytes in memstores",
        "Bytes of store files",
        "Locality",
    ];
    let online = picture.online().count();
    page.table_of(&title("Region servers", online), &columns, picture.online().take(LINES_MAX).map(row));
    let dead = |state| picture.in_state(state).map(|row| row.server.to_string());
    let recovering = dead(ServerState::Recovering).map(|name| vec![name, "being recovered".to_string()]);
    let dead = dead(ServerState::Dead).map(|name| vec![name, "recovered".to_string()]);
    page.table("Dead region servers", &["Server", "State"], recovering.chain(dead).take(LINES_MAX));
    page.table("Backup masters", &["Master"], picture.standby.iter().map(|it| vec![it.to_string()]));
    let tables = picture.spread.tables.iter().take(LINES_MAX).map(|it| {
        let counts = [it.regions_count, it.open_count, it.by_server.len()].map(|count| count.to_string());
        let [regions, open, servers] = counts;
        vec![it.table.to_string(), it.state.to_string(), regions, open, servers]
    });
    let columns = ["Table", "State", "Regions", "Open regions", "Servers"];
    page.table(&title("Tables", picture.spread.tables.len()), &columns, tables);
    let transitions = picture.transitions.iter().take(LINES_MAX).map(|it| {
        let procedure = it.procedure.as_ref().map(|(id, name)| format!("{id} {name}")).unwrap_or_default();
        let age_s = (picture.at_ms - it.since_ms).max(0) / 1000;
        let (name, reason) = (key_text(it.region.region_name()), it.reason.clone());
        vec![name, it.state.to_string(), format!("{age_s} s"), reason, procedure]
    });
    let columns = ["Region", "State", "Since", "Reason", "Procedure"];
    page.table(&title("Regions in transition", picture.transitions.len()), &columns, transitions);
    let recoveries = picture.recoveries.iter().take(RECOVERIES_SHOWN).map(|it| {
        let since = |at_ms: Option<i64>| {
            at_ms.map_or_else(|| "-".to_string(), |at_ms| format!("{} ms", at_ms - it.noticed_ms))
        };
        let wals = format!("{}, {} B", it.wals_count, it.wal_bytes);
        let meta = if it.kind() == RecoveryKind::FormerMaster { None } else { it.meta_opened_ms };
        vec![
            kind_text(it.kind()).to_string(),
            it.server.clone(),
            it.noticed_ms.to_string(),
            noticed_text(it).to_string(),
            since(it.fenced_ms),
            since(meta),
            since(it.split_ms),
            wals,
            since(it.ended_ms),
            format!("{} of {}", it.opened_count, it.regions_count),
        ]
    });
    let columns = [
        "Recovery of",
        "Name",
        "Noticed (ms since 1970)",
        "How",
        "Fenced after",
        "hbase:meta open after",
        "WALs split after",
        "WALs",
        "Ended after",
        "Regions opened",
    ];
    page.table("The newest recoveries", &columns, recoveries);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cluster::tests::{picture, transition};

    #[test]
    fn lists_are_cut_and_names_are_text() {
        let mut picture = picture(1500, 2);
        picture.transitions = Arc::new((0..3000).map(|number| transition(number, 5)).collect());
        let mut page = Page::new("Master");
        lists(&mut page, &picture);
        let page = page.end();
        assert!(page.contains("Region servers: the first 1000 of 1500"), "the list of servers has a limit");
        assert!(page.contains("Regions in transition: the first 1000 of 3000"));
        assert!(page.contains("<a href=\"http://h0000:16030/\">h0000,16020,1</a>"));
        assert!(page.contains("orders,&lt;7&gt;,7.") && !page.contains("<7>"), "a key is text");
        assert!(page.len() < 2_000_000, "{}", page.len());
    }

    #[test]
    fn a_table_is_shown_by_server() {
        let picture = picture(1500, 2);
        let table = |name: &str| table_of_cluster(&picture, &TableName::parse(name.as_bytes()).unwrap());
        let page = table("orders").unwrap();
        assert!(page.contains("Servers: the first 1000 of 1500") && page.contains("<td>3000</td>"), "{page}");
        assert!(table("hbase:meta").unwrap().contains("h0000,16020,1"));
        assert_eq!(table("nosuch"), None);
    }
}
