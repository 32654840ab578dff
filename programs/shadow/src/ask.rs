//! Sends a read to a cluster, by the client library: regions, retries and scanners are its business.

use std::time::Duration;

use halcyon_client::{ClientError, Cluster, ClusterOptions, Get, Scan};
use halcyon_migrate::Address;
use halcyon_proto::pb;
use halcyon_schema::TableName;
use tokio::time::Instant;

use crate::read::{Answer, Cells, Part, Read, ScanRead};

/// Connections to each server: several, since a large answer delays those behind it.
const CONNECTIONS: usize = 4;

/// One of the clusters that are compared.
#[derive(Clone)]
pub(crate) struct System {
    pub(crate) address: Address,
    cluster: Cluster,
    limits: AskLimits,
}

/// What one read may cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskLimits {
    /// Time of a read with all its retries.
    pub(crate) timeout: Duration,
    /// Rows of a scan. Both sides end there.
    pub(crate) scan_rows_max: u32,
    /// Bytes of cells that are kept to show how they differ; a checksum has all.
    pub(crate) kept_bytes_max: usize,
}

/// What came of it, and how long it took.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The error is the simple class of an exception, or `Io`, `Timeout`.
    pub(crate) answer: Result<Answer, String>,
    pub(crate) took: Duration,
}

impl System {
    /// The error is a sentence for the user.
    pub(crate) async fn connect(name: &str, address: Address, limits: AskLimits) -> Result<System, String> {
        let options = ClusterOptions {
            connections_per_server: CONNECTIONS,
            operation_timeout: limits.timeout,
            call_timeout: limits.timeout,
            ..ClusterOptions::default()
        };
        let cluster = Cluster::connect(address.cluster().clone(), options).await;
        let cluster = cluster.map_err(|error| format!("cannot reach {name} {address}: {error}"))?;
        Ok(System { address, cluster, limits })
    }

    /// `slot` picks the connection.
    pub(crate) async fn ask(&self, read: &Read, slot: usize) -> Asked {
        let began = Instant::now();
        let answer = match tokio::time::timeout(self.limits.timeout, self.answer(read, slot)).await {
            Ok(answer) => answer.map_err(|error| error.class().to_string()),
            Err(_) => Err("Timeout".to_string()),
        };
        Asked { answer, took: began.elapsed() }
    }

    async fn answer(&self, read: &Read, slot: usize) -> Result<Answer, ClientError> {
        match read {
            Read::Get(table, get) => {
                let part = self.get(table, get, slot).await?;
                Ok(Answer { parts: vec![part] })
            }
            Read::Multi(gets) => self.multi(gets, slot).await,
            Read::Scan(table, read) => self.scan(table, read, slot).await,
        }
    }

    async fn get(&self, table: &TableName, get: &pb::Get, slot: usize) -> Result<Part, ClientError> {
        let table = self.cluster.table(table.clone(), slot);
        if get.existence_only() {
            return Ok(Part::Exists(table.exists(Get::from(get.clone())).await?));
        }
        let row = table.get(Get::from(get.clone())).await?;
        Ok(Part::Cells(Cells::of(row.into_cells(), self.limits.kept_bytes_max)))
    }

    /// Gets of one table go in one batch, as the client sent them. Those that ask for existence go one by one: a batch of the
    /// client library returns cells.
    async fn multi(&self, gets: &[(TableName, pb::Get)], slot: usize) -> Result<Answer, ClientError> {
        let mut parts: Vec<Option<Part>> = vec![None; gets.len()];
        let mut rest: Vec<usize> = Vec::new();
        for (at, (table, get)) in gets.iter().enumerate() {
            match get.existence_only() {
                true => parts[at] = Some(self.get(table, get, slot).await?),
                false => rest.push(at),
            }
        }
        while let Some(first) = rest.first() {
            let table = &gets[*first].0;
            let (now, later): (Vec<usize>, Vec<usize>) = rest.iter().partition(|at| gets[**at].0 == *table);
            let asked = now.iter().map(|at| Get::from(gets[*at].1.clone()));
            let rows = self.cluster.table(table.clone(), slot).get_all(asked).await?;
            for (at, row) in now.iter().zip(rows) {
                parts[*at] = Some(Part::Cells(Cells::of(row.into_cells(), self.limits.kept_bytes_max)));
            }
            rest = later;
        }
        Ok(Answer { parts: parts.into_iter().flatten().collect() })
    }

    async fn scan(&self, table: &TableName, read: &ScanRead, slot: usize) -> Result<Answer, ClientError> {
        let rows_max = self.limits.scan_rows_max;
        let limit = read.limit.map_or(rows_max, |limit| limit.min(rows_max));
        let mut scan = Scan::from(read.scan.clone()).limit(limit);
        if let Some(caching) = read.caching {
            scan = scan.caching(caching);
        }
        if read.scan.batch_size.unwrap_or(0) == 0 {
            scan = scan.allow_partial_rows(); // no row has to fit into memory
        }
        let mut cells = Cells::new(self.limits.kept_bytes_max);
        let mut scanner = self.cluster.table(table.clone(), slot).scan(scan);
        while let Some(row) = scanner.next().await? {
            row.into_cells().into_iter().for_each(|cell| cells.push(cell));
        }
        scanner.close().await;
        Ok(Answer { parts: vec![Part::Cells(cells)] })
    }
}
