//! Random scripts over a region and the oracle: every read must agree, through flushes, compactions (in memory
//! too), reopenings and crashes.
//!
//! Once for each compaction policy. `HALCYON_SEEDS` sets how many scripts are tried, `HALCYON_SEED` the first one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::scripts::{descriptor, region_scan};
use crate::common::*;
use halcyon_cell::{Cell, CellComparator, CellType};
use halcyon_env::sim::{CrashMode, SimDisk};
use halcyon_env::{Clock, FileSystem};
use halcyon_hfile::{FileMeta, HFileWriter, WriterOptions};
use halcyon_region::*;
use halcyon_schema::FamilyDescriptor;
use halcyon_testkit::{Engine, FamilyOptions, MajorRows, OracleScan, check_seeds, is_part};

struct RegionEngine {
    bench: Bench,
    /// Every fifth write comes as HFiles, of which there were so many.
    loads: Option<u64>,
    crashes: u64,
    writes: u64,
    policy: Policy,
}

/// Compactions of one stripe that had everything of its rows, in all scripts.
static DROPPED_IN_PART: AtomicUsize = AtomicUsize::new(0);

impl RegionEngine {
    fn new(families: &[FamilyOptions], policy: Policy, disk: SimDisk) -> RegionEngine {
        let families: Vec<FamilyDescriptor> =
            families.iter().map(|options| descriptor(options, policy)).collect();
        let bench = Bench::on(Arc::new(disk.files(1)), &families);
        RegionEngine { bench, loads: None, crashes: 0, writes: 0, policy }
    }

    /// Writes the cells to HFiles and loads these.
    fn load(&mut self, cells: &[Cell], number: u64) -> halcyon_cell::Result<()> {
        let order = |a: &Cell, b: &Cell| CellComparator::Default.compare_keys(a.get().key(), b.get().key());
        let mut files = Vec::new();
        for family in self.bench.table.families() {
            let mut of_family: Vec<Cell> = Vec::new();
            for cell in cells.iter().filter(|cell| cell.family() == family.name()) {
                of_family.retain(|other| order(other, cell).is_ne()); // the last one counts
                of_family.push(cell.clone());
            }
            if of_family.is_empty() {
                continue;
            }
            of_family.sort_by(order);
            let dir = std::path::Path::new("/out").join(&*family.name_str());
            self.bench.fs.create_dir_all(&dir)?;
            let path = dir.join(format!("{number:08x}"));
            let options = WriterOptions { block_size: 64, include_tags: true, ..WriterOptions::default() };
            let mut writer = HFileWriter::create(&self.bench.env(), &path, options)?;
            of_family.iter().try_for_each(|cell| writer.append(cell.get()))?;
            writer.finish(FileMeta::default())?;
            self.bench.fs.sync_dir(&dir)?;
            files.push(BulkLoadFile { family: family.name().clone(), path, from: None, copy: false });
        }
        let load = BulkLoad { files, assign_seq: true, cluster_ids: Vec::new(), replicate: false };
        match self.bench.region.bulk_load(&load)? {
            BulkLoadOutcome::Loaded { .. } => Ok(()),
            other => panic!("{other:?}"),
        }
    }
}

impl Engine for RegionEngine {
    fn set_now_ms(&mut self, now_ms: i64) {
        let ahead = now_ms - self.bench.clock.now_ms();
        assert!(ahead >= 0, "scripts start later than the bench's clock");
        self.bench.clock.advance(Duration::from_millis(ahead as u64));
    }

    fn apply(&mut self, cells: &[Cell]) -> Result<(), String> {
        let kind = if cells.iter().any(|cell| cell.cell_type() == CellType::Put) {
            MutationKind::Put
        } else {
            MutationKind::Delete
        };
        let cells: Vec<Cell> = cells.iter().map(|cell| cell.clone().with_seq(0)).collect();
        let row = cells[0].row().to_vec();
        self.writes += 1;
        if let Some(loads) = self.loads.filter(|_| self.writes.is_multiple_of(5)) {
            self.loads = Some(loads + 1);
            return self.load(&cells, loads).map_err(|e| e.to_string());
        }
        self.bench.mutate(mutation(kind, &row, cells)).map_err(|e| e.to_string())?;
        if self.writes.is_multiple_of(3) {
            self.bench.region.compact_memory().map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    fn scan(&mut self, scan: &OracleScan) -> Result<Vec<Vec<Cell>>, String> {
        let request = region_scan(scan);
        if scan.is_get() && scan.batch.is_none() {
            let cells = self.bench.region.get(request, ReadMode::AnyDisk).map_err(|e| e.to_string())?;
            return Ok(if cells.is_empty() { Vec::new() } else { vec![cells] });
        }
        let mut results = self.bench.scan(request).map_err(|e| e.to_string())?;
        if let Some(limit) = scan.limit {
            let mut rows = 0;
            let mut last: Option<Vec<u8>> = None;
            results.retain(|result| {
                let row = result[0].row();
                if last.as_deref() != Some(row) {
                    rows += 1;
                    last = Some(row.to_vec());
                }
                rows <= limit
            });
        }
        Ok(results)
    }

    fn flush(&mut self) -> Result<(), String> {
        self.bench.region.flush(None).map(|_| ()).map_err(|e| e.to_string())
    }

    fn compact(&mut self, major: bool) -> Result<Vec<MajorRows>, String> {
        let outcome = self.bench.compact(major).map_err(|e| e.to_string())?;
        self.bench.clean_mob_files().map_err(|e| e.to_string())?;
        if self.policy == Policy::Fifo {
            return match outcome.compacted_files {
                0 => Ok(Vec::new()),
                count => Err(format!("{count} files were rewritten")),
            };
        }
        let seen_by_oracle = |rows: &halcyon_region::MajorRows| MajorRows {
            family: Some(rows.family.to_vec()),
            start: rows.start.to_vec(),
            end: rows.end.to_vec(),
        };
        let in_part = outcome.major_rows.iter().filter(|rows| !rows.end.is_empty()).count();
        DROPPED_IN_PART.fetch_add(in_part, Ordering::Relaxed);
        Ok(outcome.major_rows.iter().map(seen_by_oracle).collect())
    }

    fn reopen(&mut self) -> Result<(), String> {
        self.bench.reopen().map_err(|e| e.to_string())
    }

    fn crash(&mut self) -> Result<(), String> {
        self.crashes += 1;
        let mode = CrashMode::ALL[self.crashes as usize % CrashMode::ALL.len()];
        let fs = Arc::new(self.bench.fs.crash(mode, self.crashes));
        self.bench.recover_on(fs).map_err(|e| e.to_string())
    }
}

fn agrees(policy: Policy, test: &str, seeds: u64) {
    agrees_on(SimDisk::Local, policy, test, seeds);
}

fn agrees_on(disk: SimDisk, policy: Policy, test: &str, seeds: u64) {
    let command = format!("-p halcyon-region --test all oracle:: {test}");
    check_seeds(&command, 1..1 + seeds, 300, |families| RegionEngine::new(families, policy, disk));
}

#[test]
fn random_scripts_agree_with_the_oracle() {
    agrees(Policy::Exploring, "random_scripts", 150);
}

/// Every fifth write is a bulk load.
#[test]
fn with_bulk_loads() {
    for (policy, first, seeds) in
        [(Policy::Exploring, 1, 30), (Policy::Stripe, 31, 15), (Policy::DateTiered, 46, 15)]
    {
        check_seeds(
            "-p halcyon-region --test all oracle:: with_bulk_loads",
            first..first + seeds,
            300,
            |families| RegionEngine { loads: Some(0), ..RegionEngine::new(families, policy, SimDisk::Local) },
        );
    }
}

#[test]
fn by_ratio() {
    agrees(Policy::RatioBased, "by_ratio", 40);
}

#[test]
fn by_windows_of_time() {
    agrees(Policy::DateTiered, "by_windows_of_time", 150);
}

#[test]
fn by_stripes() {
    agrees(Policy::Stripe, "by_stripes", 150);
    assert!(is_part(1..151) || DROPPED_IN_PART.load(Ordering::Relaxed) > 20);
}

#[test]
fn first_in_first_out() {
    agrees(Policy::Fifo, "first_in_first_out", 80);
}

#[test]
fn on_hdfs() {
    agrees_on(SimDisk::Hdfs, Policy::Exploring, "on_hdfs", 30);
}

/// Values in mob files: reads follow the references, and what is cleaned between is not missed.
#[test]
fn mob_files() {
    agrees(Policy::Mob, "mob_files", 100);
}

#[test]
fn mob_files_on_hdfs() {
    agrees_on(SimDisk::Hdfs, Policy::Mob, "mob_files_on_hdfs", 15);
}

#[test]
fn by_stripes_on_hdfs() {
    agrees_on(SimDisk::Hdfs, Policy::Stripe, "by_stripes_on_hdfs", 15);
}
