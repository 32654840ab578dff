//! Appends to a log of ours, without a region above it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use halcyon_cell::{Cell, SeqId};
use halcyon_client::ClientError;
use halcyon_env::spawn_thread;
use halcyon_wal::{Durability, SyncMode, Wal, WalConfig, WalEntry};
use serde_json::json;
use tokio::sync::oneshot;

use crate::limits::{Measure, Measured, STEP};
use crate::run::{Client, Step};

/// Longest the log's driver sleeps without work; ends it in time.
const DRIVER_WAIT: Duration = Duration::from_millis(20);

impl Measure<'_> {
    /// Appends to a log of ours, which many share, each waiting for its own.
    pub(super) async fn log(&self, mode: SyncMode) -> Result<Measured, String> {
        let name = match mode {
            SyncMode::Written => "a log, written",
            SyncMode::Fsync => "a log, fsync",
            SyncMode::Remote => "a log, on other machines",
        };
        let dir = std::path::absolute(&self.args.dir).map_err(|error| error.to_string())?;
        let dir = dir.join(format!("halcyon-limits-{}", std::process::id()));
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", dir.display());
        // beside files of somebody else's nothing is removed
        if self.env.fs.exists(&dir).map_err(|error| failed(&error))? {
            return Err(failed(&"is there already"));
        }
        let mut config = WalConfig::new(dir.join("WALs"), dir.join("oldWALs"), "limits");
        config.sync_mode = mode;
        let wal = Wal::open(self.env.clone(), config).map_err(|error| failed(&error))?;
        let stopping = Arc::new(AtomicBool::new(false));
        let (driven, stop) = (Arc::clone(&wal), Arc::clone(&stopping));
        let driver = spawn_thread("limits-log", move || {
            while !stop.load(Ordering::Relaxed) {
                driven.wait_for_work(DRIVER_WAIT);
                driven.drive();
            }
        });
        let driver = driver.map_err(|error| failed(&error))?;
        let appender = |number: usize| Appender {
            wal: Arc::clone(&wal),
            // a region of its own, so that its numbers rise without a lock
            region: format!("{number:032x}").into_bytes(),
            seq: SeqId::ZERO,
            cell: Cell::put(
                format!("{number:026}").as_bytes(),
                b"info0",
                b"0",
                1,
                &vec![b'v'; self.args.value_size],
            ),
        };
        let appenders: Vec<Appender> = (0..self.args.clients).map(appender).collect();
        let bytes = appenders[0].cell.bytes().len();
        let measured =
            self.run(name, appenders, bytes, json!({ "appends_at_once": self.args.clients })).await;
        stopping.store(true, Ordering::Relaxed);
        let ended = driver.join().map_err(|_| failed(&"the log's driver broke"));
        drop(wal);
        self.env.fs.remove_dir_all(&dir).map_err(|error| failed(&error))?;
        ended.map(|()| measured)
    }
}

struct Appender {
    wal: Arc<Wal>,
    region: Vec<u8>,
    seq: SeqId,
    cell: Cell,
}

impl Client for Appender {
    async fn step(&mut self) -> Result<Step, ClientError> {
        self.seq = self.seq.next();
        let (done, result) = oneshot::channel();
        let completion = Box::new(move |result: &halcyon_cell::Result<()>| {
            let _ = done.send(result.clone()); // the run may be over
        });
        let entry = WalEntry {
            region: &self.region,
            table: b"limits",
            seq: self.seq,
            write_time_ms: 1,
            nonce_group: 0,
            nonce: 0,
            cluster_ids: &[],
            replicated: &[],
            cells: &[self.cell.get()],
        };
        self.wal.append(&entry, Durability::SyncWal, completion).map_err(std::io::Error::other)?;
        match result.await {
            Ok(result) => result.map_err(std::io::Error::other)?,
            Err(_) => return Err(ClientError::Closed),
        }
        Ok(STEP)
    }
}
