//! How it is known that a cluster has got all edits of another one.
//!
//! A small table exists on both sides and is replicated like the others. It has regions on each region server. A mark is
//! a row in each of these regions, so it is in the WAL of each server behind all edits that the server has acknowledged
//! before. WALs are sent in their order: when all rows of a mark have arrived, so have these edits. The lag that servers
//! report would do as well, but it reaches the master every three seconds only.
//!
//! A server of HBase with `hbase.wal.provider` = `multiwal` has some WALs, by default two, and gives one to each region that it
//! opens, in turn (`RegionGroupingProvider`, `BoundedGroupingStrategy`). No client learns which. Regions that it opens one after
//! the other have all of them, and sixteen in any order miss one of two WALs once in thirty thousand times.
//!
//! Edits of a server that died are sent by another one, from a queue of their own. Marks say nothing of them:
//! [`waiting`] does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use halcyon_client::{Get, RegionLocation, ServerName, TableDescriptor};
use halcyon_schema::{FamilyDescriptor, TableName};
use tokio::time::Instant;

use crate::side::{MARKS, PEER, SCOPE, Side, mark_put};

/// Regions for each server: so many that the balancer gives each server some, and that these are in all of its WALs.
const REGIONS_PER_SERVER: usize = 16;
const REGIONS_MAX: usize = 1000;
const LOOK_PERIOD: Duration = Duration::from_millis(20);
/// Far longer than edits need that are under way.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(600);
/// A region is moved within this time.
const MOVE_TIME_MAX: Duration = Duration::from_secs(30);

/// Rows in the WALs of each server.
pub(crate) struct Mark {
    rows: Vec<Bytes>,
    token: Vec<u8>,
    /// When it was written, by the earliest clock of the side's servers, in milliseconds since 1970.
    pub(crate) written_ms: i64,
    pub(crate) began: Instant,
}

pub(crate) fn table() -> TableName {
    TableName::parse(MARKS.as_bytes()).expect("the name is a valid one")
}

/// Makes the table, if there is none.
pub(crate) async fn create(side: &Side) -> Result<(), String> {
    if side.descriptor(&table()).await?.is_some() {
        return Ok(());
    }
    let servers = side.admin.region_servers().await.map_err(|error| side.failed("servers", error))?;
    let count = (servers.len() * REGIONS_PER_SERVER).clamp(1, REGIONS_MAX);
    let splits = (1..count).map(|number| Bytes::from(format!("{number:04}"))).collect();
    let family = FamilyDescriptor::new("m").expect("the name is a valid one").with(SCOPE, "1");
    let created = side.admin.create_table(&TableDescriptor::new(table()).with_family(family), splits).await;
    match created {
        Err(error) if !error.is_exception("TableExistsException") => {
            Err(side.failed(&format!("creation of {MARKS}"), error))
        }
        _ => Ok(()),
    }
}

/// Deletes the table, if there is one.
pub(crate) async fn drop_table(side: &Side) -> Result<(), String> {
    if side.descriptor(&table()).await?.is_none() {
        return Ok(());
    }
    side.admin.drop_table(&table()).await.map_err(|error| side.failed(&format!("drop of {MARKS}"), error))
}

/// Writes a mark.
pub(crate) async fn set(side: &Side) -> Result<Mark, String> {
    let began = Instant::now();
    loop {
        let before = placed(side).await?;
        let token: [u8; 16] = halcyon_env::random_bytes();
        let rows: Vec<Bytes> = before.values().flatten().cloned().collect();
        let client = side.cluster.table(table(), 0);
        let puts = rows.iter().map(|row| mark_put(row, &token));
        client.put_all(puts).await.map_err(|error| side.failed("a mark", error))?;
        let gets = rows.iter().map(Get::new);
        let read = client.get_all(gets).await.map_err(|error| side.failed("a mark", error))?;
        let times = read.iter().filter_map(|row| Some(row.cell("m", "t")?.timestamp()));
        let written_ms = times.min().ok_or_else(|| side.failed("a mark", "its rows are gone"))?;
        // A region that moved meanwhile has its row in another server's WAL.
        if placed(side).await? == before {
            return Ok(Mark { rows, token: token.to_vec(), written_ms, began });
        }
    }
}

/// The rows of the table on each live server, one for each of its regions there. Regions are moved to servers that have none.
async fn placed(side: &Side) -> Result<BTreeMap<ServerName, Vec<Bytes>>, String> {
    let until = Instant::now() + MOVE_TIME_MAX;
    loop {
        let servers = side.admin.region_servers().await.map_err(|error| side.failed("servers", error))?;
        let regions = side.admin.regions(&table()).await.map_err(|error| side.failed("marks", error))?;
        let mut rows: BTreeMap<ServerName, Vec<Bytes>> = BTreeMap::new();
        let mut spare: Vec<&RegionLocation> = Vec::new();
        for found in &regions {
            match &found.server {
                Some(server) if servers.contains(server) => {
                    let of_server = rows.entry(server.clone()).or_default();
                    if !of_server.is_empty() {
                        spare.push(found);
                    }
                    of_server.push(row_of(found));
                }
                _ => spare.push(found),
            }
        }
        let without: BTreeSet<&ServerName> =
            servers.iter().filter(|name| !rows.contains_key(*name)).collect();
        if without.is_empty() {
            return Ok(rows);
        }
        if spare.len() < without.len() || Instant::now() > until {
            let names: Vec<String> = without.iter().map(ToString::to_string).collect();
            return Err(
                side.failed("marks", format!("no region of {MARKS} can be moved to {}", names.join(", ")))
            );
        }
        for (server, found) in without.into_iter().zip(spare) {
            let moved = side.admin.move_region(found.region.encoded_name(), Some(server)).await;
            moved.map_err(|error| side.failed(&format!("move of a region of {MARKS}"), error))?;
        }
        tokio::time::sleep(LOOK_PERIOD * 10).await;
    }
}

fn row_of(found: &RegionLocation) -> Bytes {
    match found.region.start_key() {
        start if start.is_empty() => Bytes::from_static(b"0000"),
        start => start.clone(),
    }
}

/// The rows that the other side does not have of those that are looked for.
async fn missing(to: &Side, mark: &Mark, looked_for: Vec<Bytes>) -> Result<Vec<Bytes>, String> {
    let gets = looked_for.iter().map(Get::new);
    let found = to.cluster.table(table(), 0).get_all(gets).await;
    let found = found.map_err(|error| to.failed("a mark", error))?;
    let pairs = looked_for.into_iter().zip(found);
    Ok(pairs.filter(|(_, row)| row.value("m", "t") != Some(&mark.token)).map(|(row, _)| row).collect())
}

/// Waits until the other side has a mark; returns how long that took. `None` after `limit`.
pub(crate) async fn wait(to: &Side, mark: &Mark, limit: Duration) -> Result<Option<Duration>, String> {
    let until = Instant::now() + limit;
    let mut left = mark.rows.clone();
    loop {
        left = missing(to, mark, left).await?;
        if left.is_empty() {
            return Ok(Some(mark.began.elapsed()));
        }
        if Instant::now() >= until {
            return Ok(None);
        }
        tokio::time::sleep(LOOK_PERIOD).await;
    }
}

/// Sets a mark and waits until the other side has it: all that was acknowledged before is there then.
pub(crate) async fn drain(from: &Side, to: &Side) -> Result<Mark, String> {
    let mark = set(from).await?;
    match wait(to, &mark, DRAIN_TIME_MAX).await? {
        Some(_) => Ok(mark),
        None => Err(format!(
            "edits of the {} do not reach the {} within {DRAIN_TIME_MAX:?}: look at `status 'replication'` there",
            from.name, to.name
        )),
    }
}

/// Waits until a side has no edits left of servers that died. Servers report it some seconds late.
pub(crate) async fn of_dead_servers(side: &Side) -> Result<(), String> {
    let mut told = false;
    while waiting(side).await?.recovered > 0 {
        if !std::mem::replace(&mut told, true) {
            println!("{}: edits of servers that died are still being sent", side.name);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

/// Edits that wait for our peers at a side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// WALs that are not sent as a whole.
    pub(crate) wals: u64,
    /// Longest time for which an edit waits.
    pub(crate) lag_ms: u64,
    /// Entries that were sent.
    pub(crate) shipped: u64,
    /// Queues of servers that died.
    pub(crate) recovered: usize,
}

/// As servers report it: some seconds old.
pub(crate) async fn waiting(side: &Side) -> Result<Waiting, String> {
    let metrics = side.admin.cluster_metrics().await.map_err(|error| side.failed("metrics", error))?;
    let mut sum = Waiting::default();
    // the peer of the way back has a longer name that begins the same way
    let sources = metrics.servers.iter().flat_map(|server| &server.replication_sources);
    for source in sources.filter(|source| source.peer_id.starts_with(PEER)) {
        sum.wals += u64::from(source.queued_wals);
        sum.lag_ms = sum.lag_ms.max(source.lag_ms);
        sum.shipped += source.shipped_count;
        sum.recovered += usize::from(source.is_recovered);
    }
    Ok(sum)
}
