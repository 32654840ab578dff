//! Random scripts over the oracle and an engine that works like HBase's store: a memstore and files, whose cells
//! go through a stepwise matcher at every read, flush and compaction.

mod matcher;
mod new_version;

use std::collections::BTreeMap;

use halcyon_cell::{Cell, CellComparator};
use halcyon_testkit::{Engine, FamilyOptions, MajorRows, OracleScan, Random, check_seeds, minimize};
use matcher::{Purpose, walk};

/// Which mistake the engine makes, to see that scripts find it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    LosesMemstoreOnReopen,
    DropsMarkersInMinorCompactions,
    DropsOneVersionTooMany,
    ForgetsCellsOnFlush,
    IgnoresTimeRange,
    /// A minor compaction leaves one of its files in the store, and the next opening reads it.
    ReadsACompactedFileAgain,
    /// After a crash all is replayed, as if no file had a sequence id.
    ReplaysWhatWasFlushed,
}

struct FilesEngine {
    families: Vec<FamilyOptions>,
    memstore: Vec<Cell>,
    /// What a crash writes to the memstore again.
    log: Vec<Cell>,
    files: Vec<Vec<Cell>>,
    /// By mistake, a file that was compacted.
    left: Vec<Vec<Cell>>,
    now_ms: i64,
    random: Random,
    mistake: Mistake,
}

impl FilesEngine {
    fn new(families: &[FamilyOptions], mistake: Mistake) -> FilesEngine {
        FilesEngine {
            families: families.to_vec(),
            memstore: Vec::new(),
            log: Vec::new(),
            files: Vec::new(),
            left: Vec::new(),
            now_ms: 0,
            random: Random::new(1),
            mistake,
        }
    }

    fn options(&self, family: &[u8]) -> FamilyOptions {
        self.families.iter().find(|it| it.name == family).expect("a known family").clone()
    }

    /// Sorts cells and lets those of each row and family go through the matcher.
    fn rewrite(&self, mut cells: Vec<Cell>, purpose: &Purpose<'_>) -> Vec<Cell> {
        cells.sort_by(|a, b| CellComparator::Default.compare(a.get(), b.get()));
        cells
            .chunk_by(|a, b| (a.row(), a.family()) == (b.row(), b.family()))
            .flat_map(|store| {
                let mut options = self.options(store[0].family());
                if self.mistake == Mistake::DropsOneVersionTooMany && !matches!(purpose, Purpose::Read(_)) {
                    options.versions_max = (options.versions_max - 1).max(1);
                }
                walk(store, &options, purpose, self.now_ms)
            })
            .collect()
    }
}

impl Engine for FilesEngine {
    fn set_now_ms(&mut self, now_ms: i64) {
        self.now_ms = now_ms;
    }

    fn apply(&mut self, cells: &[Cell]) -> Result<(), String> {
        for cell in cells {
            for cells in [&mut self.memstore, &mut self.log] {
                cells.retain(|it| it.get().key() != cell.get().key() || it.seq() != cell.seq());
                cells.push(cell.clone());
            }
        }
        // Now and then an in-memory compaction.
        if self.memstore.len().is_multiple_of(4) {
            let memstore = std::mem::take(&mut self.memstore);
            self.memstore = self.rewrite(memstore, &Purpose::RetainMarkers);
        }
        Ok(())
    }

    fn scan(&mut self, scan: &OracleScan) -> Result<Vec<Vec<Cell>>, String> {
        let mut scan = scan.clone();
        if self.mistake == Mistake::IgnoresTimeRange {
            scan.time_range = halcyon_testkit::TimeRange::ALL;
        }
        let cells: Vec<Cell> = self.files.iter().flatten().chain(&self.memstore).cloned().collect();
        let mut rows: BTreeMap<Vec<u8>, Vec<Cell>> = BTreeMap::new();
        for cell in self.rewrite(cells, &Purpose::Read(&scan)) {
            if scan.columns.is_empty() || scan.columns.contains_key(cell.family()) {
                rows.entry(cell.row().to_vec()).or_default().push(cell);
            }
        }
        let mut rows: Vec<(Vec<u8>, Vec<Cell>)> = rows.into_iter().collect();
        if scan.reversed {
            rows.reverse();
        }
        let before = |a: &[u8], b: &[u8]| if scan.reversed { a > b } else { a < b };
        rows.retain(|(row, _)| {
            let starts = scan.start_row.is_empty()
                || before(&scan.start_row, row)
                || (scan.start_inclusive && *row == scan.start_row);
            let goes_on = scan.stop_row.is_empty()
                || before(row, &scan.stop_row)
                || (scan.stop_inclusive && *row == scan.stop_row);
            starts && goes_on
        });
        let mut results = Vec::new();
        for (_, cells) in &mut rows {
            let mut counts: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
            cells.retain(|cell| {
                let count = counts.entry(cell.family().to_vec()).or_default();
                *count += 1;
                *count > scan.store_offset
                    && scan.store_limit.is_none_or(|limit| *count <= limit + scan.store_offset)
            });
        }
        rows.retain(|(_, cells)| !cells.is_empty());
        rows.truncate(scan.limit.unwrap_or(usize::MAX));
        for (_, cells) in rows {
            results.extend(cells.chunks(scan.batch.unwrap_or(usize::MAX)).map(<[Cell]>::to_vec));
        }
        Ok(results)
    }

    fn flush(&mut self) -> Result<(), String> {
        let mut memstore = std::mem::take(&mut self.memstore);
        if self.mistake == Mistake::ForgetsCellsOnFlush && memstore.len() > 5 {
            memstore.pop();
        }
        self.files.push(self.rewrite(memstore, &Purpose::RetainMarkers));
        if self.mistake != Mistake::ReplaysWhatWasFlushed {
            self.log.clear();
        }
        Ok(())
    }

    fn compact(&mut self, major: bool) -> Result<Vec<MajorRows>, String> {
        // A minor compaction takes a run of neighbouring files.
        let end = if major { self.files.len() } else { self.random.below(self.files.len() + 1) };
        let start = if major { 0 } else { self.random.below(end + 1) };
        let inputs: Vec<Vec<Cell>> = self.files.drain(start..end).collect();
        if self.mistake == Mistake::ReadsACompactedFileAgain && !major {
            self.left.extend(inputs.first().cloned());
        }
        let cells: Vec<Cell> = inputs.into_iter().flatten().collect();
        let earliest = cells.iter().filter(|it| !it.cell_type().is_delete()).map(Cell::timestamp).min();
        let purpose = if major || self.mistake == Mistake::DropsMarkersInMinorCompactions {
            Purpose::DropMarkers(earliest.unwrap_or(i64::MAX))
        } else {
            Purpose::RetainMarkers
        };
        let merged = self.rewrite(cells, &purpose);
        self.files.insert(start, merged);
        Ok(if major { vec![MajorRows::ALL] } else { Vec::new() })
    }

    fn reopen(&mut self) -> Result<(), String> {
        if self.mistake == Mistake::LosesMemstoreOnReopen {
            self.memstore.clear();
        }
        self.flush()?;
        self.log.clear();
        self.files.append(&mut self.left);
        Ok(())
    }

    /// All was synced, and what is replayed is flushed at once.
    fn crash(&mut self) -> Result<(), String> {
        self.memstore = std::mem::take(&mut self.log);
        self.files.append(&mut self.left);
        self.flush()
    }
}

#[test]
fn oracle_and_stepwise_engine_agree() {
    let command = "-p halcyon-testkit --test stepwise oracle_and";
    check_seeds(command, 0..2000, 150, |families| FilesEngine::new(families, Mistake::None));
}

#[test]
fn mistakes_are_found_and_made_short() {
    for mistake in [
        Mistake::LosesMemstoreOnReopen,
        Mistake::DropsMarkersInMinorCompactions,
        Mistake::DropsOneVersionTooMany,
        Mistake::ForgetsCellsOnFlush,
        Mistake::IgnoresTimeRange,
        Mistake::ReadsACompactedFileAgain,
        Mistake::ReplaysWhatWasFlushed,
    ] {
        let found = (0..50).find_map(|seed| {
            let script = halcyon_testkit::Script::random(seed, 200);
            let (short, mismatch) = minimize(&script, |families| FilesEngine::new(families, mistake));
            mismatch.map(|_| short)
        });
        let short = found.expect("some script finds the mistake");
        assert!(short.steps.len() <= 15, "still long:\n{short}");
    }
}
