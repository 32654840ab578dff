//! How it is known that a cluster has got all edits of another one.
//!
//! A small table exists on both sides and is replicated like the others. It has regions on each region server. A mark is
//! a row in each of these regions, so it is in the WAL of each server behind all edits that the server has acknowledged
//! before. WALs are sent in their order: when all rows of a mark have arrived, so have the edits of earlier requests. Edits of
//! the mark's own request may be visible some milliseconds later, or after a retry: the side that gets it applies the parts of a
//! request in an order of its own. The next request is sent when all of that is done, so a second mark, written when the first
//! one has arrived, shows that all edits before the first one are there ([`drain`]). The lag that servers report would do as
//! well, but it reaches the master every three seconds only.
//!
//! A server of HBase with `hbase.wal.provider` = `multiwal` has some WALs, by default two, and gives one to each region that it
//! opens, in turn (`RegionGroupingProvider`, `BoundedGroupingStrategy`). No client learns which. Regions that it opens one after
//! the other have all of them, and sixteen in any order miss one of two WALs once in thirty thousand times.
//!
//! Edits of a server that died are sent by another one, from a queue of their own. Marks say nothing of them:
//! [`waiting`] does.
//!
//! The rows of a mark get their timestamps from the servers, so they also show the servers' clocks ([`stamps`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use halcyon_client::{Get, Put, RegionLocation, Row, ServerName, TableDescriptor};
use halcyon_schema::{FamilyDescriptor, TableName};
use tokio::time::Instant;

use crate::side::{MARKS, PEER, SCOPE, Side};

/// Regions for each server: so many that the balancer gives each server some, and that these are in all of its WALs.
const REGIONS_PER_SERVER: usize = 16;
const REGIONS_MAX: usize = 1000;
const LOOK_PERIOD: Duration = Duration::from_millis(20);
/// Far longer than edits need that are under way.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(600);
/// A region is moved within this time.
const MOVE_TIME_MAX: Duration = Duration::from_secs(30);
/// Tries to write a mark while regions of the table move.
const TRIES_MAX: usize = 20;
/// Between two lines about edits of servers that died.
const TOLD_PERIOD: Duration = Duration::from_secs(30);
/// The qualifier of a mark begins so. Each mark has one of its own: a server whose clock is behind would write a mark below that of
/// another server or of the other side, where nobody finds it.
const MARK: &[u8] = b"t";

/// Rows in the WALs of each server.
pub(crate) struct Mark {
    rows: Vec<Bytes>,
    qualifier: Vec<u8>,
    /// When it was written, by the earliest clock of the side's servers, in milliseconds since 1970.
    pub(crate) written_ms: i64,
    /// The same by the latest clock: no edit before the mark has a later timestamp of a server.
    pub(crate) highest_ms: i64,
    pub(crate) began: Instant,
}

impl Mark {
    /// What the earliest clock of the side shows now.
    pub(crate) fn now_ms(&self) -> i64 {
        self.written_ms.saturating_add(i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX))
    }
}

pub(crate) fn table() -> TableName {
    TableName::parse(MARKS.as_bytes()).expect("the name is a valid one")
}

/// What peers would get of the table.
pub(crate) fn descriptor() -> TableDescriptor {
    let family = FamilyDescriptor::new("m").expect("the name is a valid one").with(SCOPE, "1");
    TableDescriptor::new(table()).with_family(family)
}

/// Makes the table, if there is none.
pub(crate) async fn create(side: &Side) -> Result<(), String> {
    if side.descriptor(&table()).await?.is_some() {
        return Ok(());
    }
    let servers = side.admin.region_servers().await.map_err(|error| side.failed("servers", error))?;
    let count = (servers.len() * REGIONS_PER_SERVER).clamp(1, REGIONS_MAX);
    let splits = (1..count).map(|number| Bytes::from(format!("{number:04}"))).collect();
    let created = side.admin.create_table(&descriptor(), splits).await;
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
    for _ in 0..TRIES_MAX {
        let before = placed(side).await?;
        let qualifier = qualifier();
        let rows: Vec<Bytes> = before.values().flatten().cloned().collect();
        let times = write(side, &rows, &qualifier).await?;
        // A region that moved meanwhile has its row in another server's WAL.
        if placed(side).await? == before {
            let least = times.iter().min().copied().ok_or_else(|| side.failed("a mark", "it has no rows"))?;
            let highest_ms = times.iter().max().copied().unwrap_or(least);
            return Ok(Mark { rows, qualifier, written_ms: least, highest_ms, began });
        }
    }
    Err(side
        .failed("marks", format!("regions of {MARKS} moved in each of {TRIES_MAX} tries to write a mark")))
}

/// The timestamps that the servers of a side give now, each with its name. Not [`Mark`]s: nobody waits for these.
pub(crate) async fn stamps(side: &Side) -> Result<Vec<(ServerName, i64)>, String> {
    let firsts: Vec<(ServerName, Bytes)> = placed(side)
        .await?
        .into_iter()
        .filter_map(|(server, rows)| Some((server, rows.into_iter().next()?)))
        .collect();
    let rows: Vec<Bytes> = firsts.iter().map(|(_, row)| row.clone()).collect();
    let times = write(side, &rows, &qualifier()).await?;
    Ok(firsts.into_iter().map(|(server, _)| server).zip(times).collect())
}

fn qualifier() -> Vec<u8> {
    let token: [u8; 16] = halcyon_env::random_bytes();
    [MARK, &token].concat()
}

/// Writes rows, and returns the timestamps that servers gave them.
async fn write(side: &Side, rows: &[Bytes], qualifier: &[u8]) -> Result<Vec<i64>, String> {
    let client = side.cluster.table(table(), 0);
    let puts = rows.iter().map(|row| Put::new(row).column("m", qualifier, "1"));
    client.put_all(puts).await.map_err(|error| side.failed("a mark", error))?;
    let read = read(side, rows, qualifier).await?;
    let time = |row: &Row| Some(row.cell("m", qualifier)?.timestamp());
    let times: Option<Vec<i64>> = read.iter().map(time).collect();
    times.ok_or_else(|| side.failed("a mark", "its rows are gone"))
}

async fn read(side: &Side, rows: &[Bytes], qualifier: &[u8]) -> Result<Vec<Row>, String> {
    let gets = rows.iter().map(|row| Get::new(row).column("m", qualifier));
    side.cluster.table(table(), 0).get_all(gets).await.map_err(|error| side.failed("a mark", error))
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
    let found = read(to, &looked_for, &mark.qualifier).await?;
    let pairs = looked_for.into_iter().zip(found);
    Ok(pairs.filter(|(_, row)| row.is_empty()).map(|(row, _)| row).collect())
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

/// Waits until the other side has all that was acknowledged before. Returns the mark that shows it.
pub(crate) async fn drain(from: &Side, to: &Side) -> Result<Mark, String> {
    let mark = set(from).await?;
    arrive(from, to, &mark).await?;
    // the rest of the first one's request
    let second = set(from).await?;
    arrive(from, to, &second).await?;
    Ok(mark)
}

async fn arrive(from: &Side, to: &Side, mark: &Mark) -> Result<(), String> {
    match wait(to, mark, DRAIN_TIME_MAX).await? {
        Some(_) => Ok(()),
        None => Err(format!(
            "edits of the {} do not reach the {} within {DRAIN_TIME_MAX:?}: look at `status 'replication'` there",
            from.name, to.name
        )),
    }
}

/// Waits until a side has no edits left of servers that died. Servers report it some seconds late.
pub(crate) async fn of_dead_servers(side: &Side) -> Result<(), String> {
    let mut told: Option<Instant> = None;
    loop {
        let recovered = waiting(side).await?.recovered;
        if recovered == 0 {
            return Ok(());
        }
        if told.is_none_or(|told| told.elapsed() >= TOLD_PERIOD) {
            told = Some(Instant::now());
            println!(
                "{}: edits of servers that died are still being sent, from {recovered} queues",
                side.name
            );
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Edits that wait for our peers at a side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// Live region servers.
    pub(crate) servers: BTreeSet<ServerName>,
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
    let servers = metrics.servers.iter().map(|server| server.name.clone()).collect();
    let mut sum = Waiting { servers, ..Waiting::default() };
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
