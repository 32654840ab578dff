//! The books of backups in a cluster of several servers: read and written as any client does it.

use std::time::Duration;

use halcyon_cell::{Cell, Error, ErrorKind, Result};
use halcyon_client::{ClientError, Cluster, ClusterAddress, ClusterOptions, Put, Scan};
use halcyon_contract::BackupBooks;
use halcyon_env::Mutex;
use halcyon_schema::TableName;
use tokio::runtime::Handle;

/// Longest time of one read or write. The tool, which waits, tries again.
const TIME_MAX: Duration = Duration::from_secs(20);

/// See the head of the file. Not to be used from a thread of a runtime.
pub struct ClusterBooks {
    runtime: Handle,
    address: ClusterAddress,
    /// Connected to when it is first needed; not kept after an error.
    cluster: Mutex<Option<Cluster>>,
}

impl ClusterBooks {
    /// Those of the cluster that a ZooKeeper, `quorum` and base path, is of. Calls run on `runtime`.
    pub fn new(runtime: Handle, (quorum, base): (Vec<String>, String)) -> ClusterBooks {
        let address = ClusterAddress::ZooKeeper { quorum, base };
        ClusterBooks { runtime, address, cluster: Mutex::new(None) }
    }

    fn ask<T, F>(&self, table: &TableName, ask: impl FnOnce(Cluster) -> F) -> Result<T>
    where
        F: Future<Output = std::result::Result<T, ClientError>>,
    {
        let known = self.cluster.lock().clone();
        let asked = async {
            let cluster = match known {
                Some(cluster) => cluster,
                None => {
                    let options = ClusterOptions { operation_timeout: TIME_MAX, ..ClusterOptions::default() };
                    let cluster = Cluster::connect(self.address.clone(), options).await?;
                    *self.cluster.lock() = Some(cluster.clone());
                    cluster
                }
            };
            ask(cluster).await
        };
        let failed = |why: &dyn std::fmt::Display| {
            *self.cluster.lock() = None;
            Error::new(ErrorKind::Busy, format!("{table}, which is needed for backups: {why}"))
        };
        match self.runtime.block_on(async { tokio::time::timeout(TIME_MAX, asked).await }) {
            Ok(answered) => answered.map_err(|error| failed(&error)),
            Err(late) => Err(failed(&late)),
        }
    }
}

impl BackupBooks for ClusterBooks {
    fn rows(&self, table: &TableName) -> Result<Option<Vec<Vec<Cell>>>> {
        self.ask(table, async |cluster| {
            let mut rows = Vec::new();
            let mut scanner = cluster.table(table.clone(), 0).scan(Scan::new());
            loop {
                match scanner.next().await {
                    Ok(Some(row)) => rows.push(row.into_cells()),
                    Ok(None) => return Ok(Some(rows)),
                    Err(error) if error.is_exception("TableNotFoundException") => return Ok(None),
                    Err(error) => return Err(error),
                }
            }
        })
    }

    fn put(&self, table: &TableName, cells: Vec<Cell>) -> Result<()> {
        let mut puts: Vec<Put> = Vec::new();
        for of_row in cells.chunk_by(|a, b| a.row() == b.row()) {
            let put = of_row.iter().fold(Put::new(of_row[0].row()), |put, cell| put.cell(cell.clone()));
            puts.push(put);
        }
        self.ask(table, async |cluster| cluster.table(table.clone(), 0).put_all(puts).await)
    }
}
