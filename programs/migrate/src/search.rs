//! Finds rows that have changed since a time, by the timestamps of their cells. It sees what timestamps show: a row that came
//! past the WAL with old timestamps, by a bulk load for example, is found by a comparison of all rows only.

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use halcyon_client::{ClientError, Scan};
use halcyon_schema::TableName;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::Migration;
use crate::side::Side;
use crate::state::{Range, RowOf};

/// Scans that are open at a server at a time. They are many small ones, and the server has clients to serve meanwhile: HBase
/// refuses calls when 300 wait (`hbase.ipc.server.max.callqueue.length`).
const SCANS_PER_SERVER_MAX: usize = 8;
/// A write that was under way at a mark may have an older timestamp, and be seen later.
pub(crate) const UNDER_WAY_MS: i64 = 2_000;

/// The ranges of all tables, with the server that had each when they were looked up.
#[derive(Clone)]
pub(crate) struct Places {
    side: Side,
    ranges: Vec<(String, (usize, TableName, Range))>,
}

impl Places {
    /// Where the ranges are at a side now.
    pub(crate) async fn find(migration: &Migration, side: &Side) -> Result<Places, String> {
        let tables: Vec<(TableName, Vec<Range>)> = {
            let state = migration.state.lock();
            state.tables.iter().map(|one| (one.table(), one.ranges.clone())).collect()
        };
        let mut places = Vec::new();
        for (number, (table, ranges)) in tables.into_iter().enumerate() {
            let regions = side.admin.regions(&table).await;
            let regions = regions.map_err(|error| side.failed(&format!("regions of {table}"), error))?;
            for range in ranges {
                let after = regions.partition_point(|found| *found.region.start_key() <= range.start);
                let found = regions.get(after.saturating_sub(1)).and_then(|found| found.server.as_ref());
                let server = found.map(ToString::to_string).unwrap_or_default();
                places.push((server, (number, table.clone(), range)));
            }
        }
        Ok(Places { side: side.clone(), ranges: places })
    }

    /// Rows that the side has got since a time of its own clock, with deleted ones. `None` if there are more than `count_max`.
    pub(crate) async fn changed_since(
        &self,
        since_ms: i64,
        count_max: usize,
    ) -> Result<Option<BTreeSet<RowOf>>, String> {
        let since_ms = since_ms.saturating_sub(UNDER_WAY_MS);
        let count = Arc::new(AtomicUsize::new(0));
        let side = self.side.clone();
        let found = per_server(self.ranges.clone(), SCANS_PER_SERVER_MAX, move |(table, name, range)| {
            let (side, count) = (side.clone(), Arc::clone(&count));
            async move {
                let rows = changed_in(&side, &name, &range, since_ms, &count, count_max).await;
                let rows = rows.map_err(|error| side.failed(&format!("scan of {name}"), error))?;
                Ok(rows.into_iter().map(|row| RowOf { table, row }).collect::<Vec<_>>())
            }
        });
        let changed: BTreeSet<RowOf> = found.await?.into_iter().flatten().collect();
        Ok((changed.len() <= count_max).then_some(changed))
    }
}

/// Does work that is at servers, `limit` pieces of each server at a time. The first error ends all.
async fn per_server<W, T, F, Fut>(work: Vec<(String, W)>, limit: usize, task: F) -> Result<Vec<T>, String>
where
    F: Fn(W) -> Fut,
    Fut: Future<Output = Result<T, String>> + Send + 'static,
    T: Send + 'static,
{
    let mut limits: HashMap<String, Arc<Semaphore>> = HashMap::new();
    let mut tasks = JoinSet::new();
    for (server, piece) in work {
        let limit = Arc::clone(limits.entry(server).or_insert_with(|| Arc::new(Semaphore::new(limit))));
        let piece = task(piece);
        tasks.spawn(async move {
            let _one = limit.acquire().await.map_err(|error| error.to_string())?;
            piece.await
        });
    }
    let mut done = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        done.push(ended.unwrap_or_else(|error| Err(format!("a task of a search failed: {error}")))?);
    }
    Ok(done)
}

/// `count` has the rows of all ranges. Beyond `count_max` the search is given up.
async fn changed_in(
    side: &Side,
    name: &TableName,
    range: &Range,
    since_ms: i64,
    count: &AtomicUsize,
    count_max: usize,
) -> Result<Vec<Bytes>, ClientError> {
    let scan = Scan::new().start(&range.start).raw(true).all_versions().time_range(since_ms, i64::MAX);
    let scan = scan.cache_blocks(false).allow_partial_rows();
    let scan = if range.end.is_empty() { scan } else { scan.stop(&range.end) };
    let mut scanner = side.cluster.table(name.clone(), 0).scan(scan);
    let mut rows: Vec<Bytes> = Vec::new();
    while count.load(Ordering::Relaxed) <= count_max {
        let Some(row) = scanner.next().await? else { break };
        if rows.last().is_none_or(|last| last != row.key()) && !row.is_empty() {
            rows.push(Bytes::copy_from_slice(row.key()));
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
    scanner.close().await;
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parking_lot::Mutex;

    use super::*;

    /// All regions of a table were scanned at once, some hundred at each server, in the middle of a cut over.
    #[tokio::test]
    async fn a_server_has_few_scans_open() {
        let work: Vec<(String, usize)> =
            (0..2_000).map(|at| (format!("server-{}", at % 3), at % 3)).collect();
        let open = Arc::new(Mutex::new(([0_usize; 3], [0_usize; 3])));
        let seen = Arc::clone(&open);
        let done = per_server(work, SCANS_PER_SERVER_MAX, move |server| {
            let open = Arc::clone(&open);
            async move {
                {
                    let (now, most) = &mut *open.lock();
                    now[server] += 1;
                    most[server] = most[server].max(now[server]);
                }
                tokio::time::sleep(Duration::from_micros(10)).await;
                open.lock().0[server] -= 1;
                Ok(1)
            }
        });
        assert_eq!(done.await.unwrap().len(), 2_000);
        assert_eq!(*seen.lock(), ([0; 3], [SCANS_PER_SERVER_MAX; 3]));
    }

    #[tokio::test]
    async fn an_error_ends_a_search() {
        let work = vec![(String::new(), 1), (String::new(), 2)];
        let done =
            per_server(work, 1, |at| async move { if at == 1 { Err("gone".to_string()) } else { Ok(at) } });
        assert_eq!(done.await.unwrap_err(), "gone");
    }
}
