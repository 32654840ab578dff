//! Splits the WALs of earlier servers: the edits of each region move to its `recovered.edits`.
//!
//! ```text
//! WALs/<dead>            -> WALs/<dead>-splitting                   the dead server cannot write any more
//! <dead>-splitting/*     -> data/../<region>/recovered.edits/*      durable before the next step
//! <dead>-splitting/*     -> oldWALs/                                the directory is removed
//! ```
//!
//! Each step may be repeated after a crash.

use std::path::{Path, PathBuf};

use halcyon_cell::Result;
use halcyon_env::Env;
use halcyon_schema::{RegionInfo, TableName, layout};
use halcyon_wal::{RECOVERED_EDITS_DIR, split_logs};

const SPLITTING: &str = "-splitting";
const LEFT_LOGS: &str = "recovered.wals";

/// Splits every log under `WALs`. To be called while no region server of this root directory runs; *blocking*.
/// Returns the number of logs.
pub(crate) fn recover_logs(env: &Env, root: &Path) -> Result<usize> {
    let wals = layout::wals_dir(root);
    env.fs.create_dir_all(&wals)?;
    env.fs.create_dir_all(&layout::old_wals_dir(root))?;
    let mut count = 0;
    for entry in env.fs.list(&wals)? {
        if entry.is_dir {
            let dir = begin_splitting(env, &wals, &entry.name)?;
            count += split(env, root, &dir)?;
        }
    }
    Ok(count)
}

/// Splits logs that stand in a region's own directory, where HBase's master brings its own when it starts, before it
/// replays them (`MasterRegion.REPLAY_EDITS_DIR`).
pub(crate) fn recover_left_logs(env: &Env, root: &Path, region: &RegionInfo) -> Result<usize> {
    let dir = region.dir(root).join(LEFT_LOGS);
    if env.fs.exists(&dir) { split(env, root, &dir) } else { Ok(0) }
}

fn begin_splitting(env: &Env, wals: &Path, name: &str) -> Result<PathBuf> {
    let dir = wals.join(name);
    if name.ends_with(SPLITTING) {
        return Ok(dir);
    }
    let splitting = wals.join(format!("{name}{SPLITTING}"));
    env.fs.rename(&dir, &splitting)?;
    env.fs.sync_dir(wals)?;
    Ok(splitting)
}

fn split(env: &Env, root: &Path, dir: &Path) -> Result<usize> {
    let destination = |encoded: &[u8], table: &[u8]| edits_dir(env, root, encoded, table);
    let report = split_logs(env, dir, &destination)
        .map_err(|error| error.context(format_args!("splitting the logs of {}", dir.display())))?;
    if !report.logs.is_empty() {
        tracing::info!(
            dir = %dir.display(),
            logs = report.logs.len(),
            torn = report.torn.len(),
            entries = report.entries,
            dropped = report.dropped,
            files = report.files.len(),
            "split the logs of a server that is gone"
        );
    }
    let old_wals = layout::old_wals_dir(root);
    for log in &report.logs {
        let name = log.file_name().expect("a log has a name");
        env.fs.rename(log, &old_wals.join(name))?;
    }
    env.fs.sync_dir(&old_wals)?;
    env.fs.remove_dir_all(dir)?;
    env.fs.sync_dir(dir.parent().expect("logs lie in a directory of some other"))?;
    Ok(report.logs.len())
}

/// Where the edits of a region go; `None` if the region is gone.
fn edits_dir(env: &Env, root: &Path, encoded: &[u8], table: &[u8]) -> Option<PathBuf> {
    let table = TableName::parse(table).ok()?;
    let encoded = std::str::from_utf8(encoded).ok()?;
    let dir = layout::region_dir(root, &table, encoded);
    env.fs.exists(&dir).then(|| dir.join(RECOVERED_EDITS_DIR))
}
