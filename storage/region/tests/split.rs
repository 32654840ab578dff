//! Files of one region that others read through references: splits, merges, compactions after them, and deaths of
//! the machine at every sync point of all that.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::common::*;
use bytes::Bytes;
use halcyon_cache::BlockCache;
use halcyon_cell::{CellType, Result, SharedCells};
use halcyon_env::sim::{CrashMode, Fault, Operation, SimFileSystem};
use halcyon_env::{FileSystem, ManualClock};
use halcyon_memstore::ChunkPool;
use halcyon_region::*;
use halcyon_schema::{FamilyDescriptor, RegionInfo, TableDescriptor};
use halcyon_testkit::for_each_seed;
use halcyon_wal::{Wal, WalConfig};

/// A log and what goes with it, for regions that are opened and closed in peace.
struct Lab {
    fs: Arc<SimFileSystem>,
    services: RegionServices,
    table: Arc<TableDescriptor>,
}

/// Rows and the value of `f:a` in each; every third row has a column in `g`, too.
type Rows = BTreeMap<String, u32>;

impl Lab {
    fn on(fs: Arc<SimFileSystem>, life: u32) -> Result<Lab> {
        let env = env_of(&fs, &Arc::new(ManualClock::at(1_000_000)));
        let name = format!("s{life}");
        let config = WalConfig::new(root().join("WALs").join(&name), root().join("oldWALs"), name);
        let services = RegionServices {
            wal: Wal::open(env.clone(), config)?,
            env,
            cache: Arc::new(BlockCache::new(1 << 20)),
            mob_files: MobFileCache::new(1000, 0.5),
            chunks: ChunkPool::new(64 << 10, 4),
            settings: settings(),
            wal_root: None,
        };
        let cipher = if is_encrypted() { "AES" } else { "" };
        let family = |name| FamilyDescriptor::new(name).unwrap().with("BLOCKSIZE", "128");
        let families = ["f", "g"].map(|name| family(name).with("ENCRYPTION", cipher));
        Ok(Lab { fs, services, table: table(&families) })
    }

    fn info(&self, start: &str, end: &str, id: u64) -> RegionInfo {
        let key = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        RegionInfo::new(self.table.name().clone(), key(start), key(end), id)
    }

    fn open(&self, info: &RegionInfo) -> Result<Arc<Region>> {
        Region::open(self.services.clone(), Path::new("/root"), info.clone(), self.table.clone())
    }

    fn put(&self, region: &Arc<Region>, row: &str, value: u32, rows: &mut Rows) -> Result<()> {
        let mut cells = vec![parse_cell(row, &format!("f:a={value}"), CellType::Put, true)];
        if value.is_multiple_of(3) {
            cells.push(parse_cell(row, &format!("g:b={value}"), CellType::Put, true));
        }
        let put = mutation(MutationKind::Put, row.as_bytes(), cells);
        let outcome = region.mutate(vec![put], false, Nonce::default(), ReadMode::AnyDisk)?;
        self.services.wal.drive();
        outcome.ticket.wait()?;
        rows.insert(row.to_string(), value);
        Ok(())
    }

    /// A region with 60 rows in three files for each family, closed.
    fn parent(&self, rows: &mut Rows) -> Result<RegionInfo> {
        let info = self.info("", "", 1);
        let region = self.open(&info)?;
        for round in 0..3 {
            for number in (round..60).step_by(2) {
                self.put(&region, &format!("r{number:02}"), round * 100 + number, rows)?;
            }
            region.flush(None)?;
        }
        region.close(false)?;
        Ok(info)
    }

    /// The first of these that has no directory, as the master chooses them.
    fn unused(&self, named: impl Fn(u64) -> Vec<RegionInfo>) -> Result<Vec<RegionInfo>> {
        for id in 2.. {
            let mut is_used = false;
            for region in named(id) {
                is_used |= self.fs.exists(&region.dir(Path::new("/root")))?;
            }
            if !is_used {
                return Ok(named(id));
            }
        }
        unreachable!("there are more numbers than attempts")
    }

    fn split(&self, parent: &RegionInfo, row: &str) -> Result<[RegionInfo; 2]> {
        let text = |key: &[u8]| String::from_utf8(key.to_vec()).unwrap();
        let named = |id| {
            vec![self.info(&text(parent.start_key()), row, id), self.info(row, &text(parent.end_key()), id)]
        };
        let daughters: [RegionInfo; 2] = self.unused(named)?.try_into().unwrap();
        Region::split_files(&self.services, Path::new("/root"), &self.table, parent, &daughters)?;
        Ok(daughters)
    }

    fn merge(&self, parents: &[RegionInfo]) -> Result<RegionInfo> {
        let merged = self.unused(|id| vec![self.info("", "", id)])?.remove(0);
        Region::merge_files(&self.services, Path::new("/root"), &self.table, parents, &merged)?;
        Ok(merged)
    }

    fn check(&self, region: &Arc<Region>, rows: &Rows) {
        let expected: Vec<_> =
            rows.iter().filter(|(row, _)| region.info().contains_row(row.as_bytes())).collect();
        for reversed in [false, true] {
            let scan = Scan { reversed, ..Scan::default() };
            let mut scanner = region.scanner(scan, ReadMode::AnyDisk).unwrap();
            let mut found = Vec::new();
            loop {
                let mut cells = SharedCells::new();
                let state = scanner.next_shared(&mut ScanLimits::NONE.clone(), &mut cells).unwrap();
                let cells = cells.split_off(0);
                if let Some(first) = cells.first() {
                    let value = u64::from_be_bytes(first.value().try_into().unwrap()) as u32;
                    found.push((String::from_utf8_lossy(first.row()).into_owned(), value));
                    let columns = 1 + cells.iter().filter(|cell| cell.family() == b"g").count();
                    assert_eq!(cells.len(), columns);
                }
                if state == NextState::Exhausted {
                    break;
                }
            }
            if reversed {
                found.reverse();
            }
            assert_eq!(found.iter().map(|(row, value)| (row, value)).collect::<Vec<_>>(), expected);
        }
        for (row, value) in expected {
            let get = Scan::of_row(Bytes::copy_from_slice(row.as_bytes()));
            let cells = region.get(get, ReadMode::AnyDisk).unwrap();
            assert_eq!(cells[0].value(), u64::from(*value).to_be_bytes(), "{row}");
        }
    }

    fn files(&self, info: &RegionInfo) -> Vec<String> {
        let dirs = ["f", "g"].map(|family| info.dir(Path::new("/root")).join(family));
        dirs.iter().flat_map(|dir| self.fs.list(dir).unwrap()).map(|file| file.name).collect()
    }
}

fn compact(region: &Region) {
    let request = CompactionRequest { major: false, user: false };
    region.compact(None, request, &mut &AtomicBool::new(false)).unwrap();
}

fn lab() -> (Lab, Rows, RegionInfo) {
    let lab = Lab::on(Arc::new(SimFileSystem::new()), 1).unwrap();
    let mut rows = Rows::new();
    let parent = lab.parent(&mut rows).unwrap();
    (lab, rows, parent)
}

/// A client that has no answer may repeat its call after the region was split or merged: then a daughter gets it.
#[test]
fn daughters_know_the_operations_that_their_parent_has_done() {
    let (lab, _, parent) = lab();
    let region = lab.open(&parent).unwrap();
    let nonce = Nonce { group: 4, nonce: 77 };
    let cell = parse_cell("r10", "f:a=1", CellType::Put, true);
    let append = mutation(MutationKind::Append, b"r10", vec![cell]);
    let outcome = region.mutate(vec![append], false, nonce, ReadMode::AnyDisk).unwrap();
    lab.services.wal.drive();
    outcome.ticket.wait().unwrap();
    region.close(false).unwrap();
    let daughters = lab.split(&parent, "r20").unwrap();
    for daughter in &daughters {
        let region = lab.open(daughter).unwrap();
        compact(&region);
        region.close(false).unwrap();
        let known: Vec<Nonce> = region.take_replayed_nonces().iter().map(|found| found.nonce).collect();
        assert_eq!(known, [nonce]);
    }
    let merged = lab.open(&lab.merge(&daughters).unwrap()).unwrap();
    let known = merged.take_replayed_nonces();
    assert!(!known.is_empty() && known.iter().all(|found| found.nonce == nonce));
}

#[test]
fn daughters_read_their_halves_and_write_their_own() {
    let (lab, mut rows, parent) = lab();
    let newest = lab.open(&parent).unwrap();
    let seq = newest.open_seq_num();
    newest.close(false).unwrap();
    let daughters = lab.split(&parent, "r20").unwrap();
    for daughter in &daughters {
        let region = lab.open(daughter).unwrap();
        assert!(region.has_references() && region.compaction_wanted());
        assert!(region.open_seq_num() > seq, "sequence ids go on behind the parent's");
        assert_eq!(region.stats().references, 6);
        lab.check(&region, &rows);
        let row = if daughter.start_key().is_empty() { "r10" } else { "r30" };
        lab.put(&region, row, 7777, &mut rows).unwrap();
        lab.put(&region, &format!("{row}x"), 9999, &mut rows).unwrap();
        region.flush(None).unwrap();
        lab.check(&region, &rows);
        compact(&region);
        assert!(!region.has_references());
        assert!(lab.files(daughter).iter().all(|file| !file.contains('.')));
        lab.check(&region, &rows);
        region.close(false).unwrap();
    }
    // The parent's files were needed for reading only; now they are not needed at all.
    lab.fs.remove_dir_all(&parent.dir(Path::new("/root"))).unwrap();
    for daughter in &daughters {
        lab.check(&lab.open(daughter).unwrap(), &rows);
    }
}

/// As a table that was made of a snapshot in HDFS has them. Such regions could be neither split nor merged.
#[test]
fn daughters_of_links_read_their_halves() {
    let (lab, rows, parent) = lab();
    let root = Path::new("/root");
    for family in ["f", "g"] {
        let dir = parent.dir(root).join(family);
        let source = root.join("archive/data/default/source/0f").join(family);
        lab.fs.create_dir_all(&source).unwrap();
        for entry in lab.fs.list(&dir).unwrap() {
            lab.fs.rename(&dir.join(&entry.name), &source.join(&entry.name)).unwrap();
            lab.fs.put_new(&dir.join(format!("source=0f-{}", entry.name)), b"").unwrap();
        }
    }
    let daughters = lab.split(&parent, "r20").unwrap();
    for daughter in &daughters {
        let region = lab.open(daughter).unwrap();
        assert_eq!(region.stats().references, 6);
        lab.check(&region, &rows);
        region.close(false).unwrap();
    }
    let refused = lab.merge(&daughters).unwrap_err();
    assert!(refused.message().contains("is a reference"), "{refused}");
    for daughter in &daughters {
        let region = lab.open(daughter).unwrap();
        compact(&region);
        assert!(!region.has_references());
        lab.check(&region, &rows);
        region.close(false).unwrap();
    }
    lab.check(&lab.open(&lab.merge(&daughters).unwrap()).unwrap(), &rows);
}

/// A snapshot names what is in the directories, and says of each reference which half it is.
#[test]
fn a_snapshot_names_files_and_references() {
    let (lab, _, parent) = lab();
    let named = |info: &RegionInfo| {
        let region = lab.open(info).unwrap();
        let manifest = region.snapshot_manifest();
        region.close(false).unwrap();
        assert_eq!(manifest.region_info, info.to_pb());
        let mut files: Vec<_> =
            manifest.family_files.into_iter().flat_map(|family| family.store_files).collect();
        files.sort_by(|a, b| a.name.cmp(&b.name));
        files
    };
    let whole = named(&parent);
    assert!(!whole.is_empty() && whole.iter().all(|file| file.reference.is_none()));
    let daughters = lab.split(&parent, "r20").unwrap();
    for (daughter, top) in daughters.iter().zip([false, true]) {
        let files = named(daughter);
        assert_eq!(files.len(), lab.files(daughter).len());
        for file in files {
            let (name, _) = file.name.split_once('.').expect("a reference names its parent");
            let of = whole.iter().find(|of| of.name == name).expect("the file of the parent");
            assert_eq!(file.file_size, of.file_size);
            let reference = file.reference.expect("a snapshot keeps what the reference says");
            assert_eq!(reference.range, i32::from(!top), "TOP is 0");
            assert!(reference.splitkey.windows(3).any(|part| part == b"r20"));
        }
    }
}

#[test]
fn a_half_without_rows_refers_to_nothing() {
    let (lab, rows, parent) = lab();
    let daughters = lab.split(&parent, "r99").unwrap();
    assert_eq!(lab.files(&daughters[0]).len(), 6);
    assert!(lab.files(&daughters[1]).is_empty());
    for daughter in &daughters {
        lab.check(&lab.open(daughter).unwrap(), &rows);
    }
}

#[test]
fn merged_regions_and_references_to_the_archive() {
    let (lab, mut rows, parent) = lab();
    let daughters = lab.split(&parent, "r20").unwrap();
    let refused = lab.merge(&daughters).unwrap_err();
    assert!(refused.message().contains("is a reference"), "{refused}");
    for daughter in &daughters {
        let region = lab.open(daughter).unwrap();
        compact(&region);
        region.close(false).unwrap();
    }
    let merged = lab.merge(&daughters).unwrap();
    assert_eq!(lab.files(&merged).len(), 4);
    let region = lab.open(&merged).unwrap();
    lab.check(&region, &rows);
    lab.put(&region, "r19", 1, &mut rows).unwrap();
    lab.put(&region, "r20", 2, &mut rows).unwrap();
    lab.check(&region, &rows);
    region.close(false).unwrap();
    // References hold also when the files are archived, as those of a snapshot are.
    let archive = Path::new("/root/archive/data/default/t");
    for daughter in &daughters {
        let dir = daughter.dir(Path::new("/root"));
        lab.fs.remove_dir_all(&archive.join(daughter.encoded_name())).unwrap(); // her own references
        lab.fs.rename(&dir, &archive.join(daughter.encoded_name())).unwrap();
    }
    let region = lab.open(&merged).unwrap();
    lab.check(&region, &rows);
    compact(&region);
    lab.check(&region, &rows);
}

/// Rows that both have: what was written later counts, as in one region. Rows between regions that are apart are nobody's.
#[test]
fn regions_that_overlap_or_are_apart_are_merged() {
    let (lab, _, _) = lab();
    let mut rows = Rows::new();
    let filled = |start: &str, end: &str, id, numbers: std::ops::Range<u32>, rounds: u32, rows: &mut Rows| {
        let info = lab.info(start, end, id);
        let region = lab.open(&info).unwrap();
        for round in 0..rounds {
            for number in numbers.clone() {
                lab.put(&region, &format!("r{number:02}"), 1000 * id as u32 + 100 * round + number, rows)
                    .unwrap();
            }
            region.flush(None).unwrap();
        }
        region.close(false).unwrap();
        info
    };
    let first = filled("", "r40", 101, 0..40, 1, &mut rows);
    let second = filled("r20", "r60", 102, 20..60, 3, &mut rows); // with higher sequence ids, as it has more edits
    let last = filled("r80", "", 103, 80..99, 1, &mut rows);
    let merged = lab.merge(&[first, second, last]).unwrap();
    assert_eq!(lab.files(&merged).len(), 10);
    let region = lab.open(&merged).unwrap();
    lab.check(&region, &rows);
    lab.put(&region, "r30", 1, &mut rows).unwrap();
    lab.put(&region, "r70", 2, &mut rows).unwrap();
    compact(&region);
    lab.check(&region, &rows);
}

#[test]
fn the_split_point_is_in_the_middle_of_the_largest_file() {
    let (lab, _, parent) = lab();
    let region = lab.open(&parent).unwrap();
    let row = region.split_point().unwrap().unwrap();
    assert!((&b"r20"[..]..=b"r40").contains(&&row[..]), "{row:?}");
    let empty = lab.open(&lab.info("x", "y", 1)).unwrap();
    assert_eq!(empty.split_point().unwrap(), None);
    let mut rows = Rows::new();
    lab.put(&empty, "x1", 1, &mut rows).unwrap();
    empty.flush(None).unwrap();
    assert_eq!(empty.split_point().unwrap(), None, "one row cannot be cut");
}

#[test]
fn rows_of_a_snapshot_are_copied_by_range() {
    let (lab, rows, parent) = lab();
    let target = lab.info("r20", "r40", 9);
    Region::create_on_disk(&lab.services.env, Path::new("/root"), &target, lab.table.families()).unwrap();
    for family in ["f", "g"] {
        let from = parent.dir(Path::new("/root")).join(family);
        for file in lab.fs.list(&from).unwrap() {
            let (from, to) =
                (from.join(&file.name), target.dir(Path::new("/root")).join(family).join(&file.name));
            for _twice in 0..2 {
                Region::copy_rows(&lab.services, &lab.table, &target, &from, &to).unwrap();
            }
        }
    }
    let region = lab.open(&target).unwrap();
    assert_eq!(region.stats().store_files, 6);
    lab.check(&region, &rows);
}

/// A snapshot may name a reference and also the file that a compaction just made of it.
#[test]
fn a_copy_of_what_was_compacted_is_put_away() {
    let (lab, rows, parent) = lab();
    let daughters = lab.split(&parent, "r20").unwrap();
    let region = lab.open(&daughters[0]).unwrap();
    compact(&region);
    region.close(false).unwrap();
    let (from, to) = (parent.dir(Path::new("/root")), daughters[0].dir(Path::new("/root")));
    let copied = lab.fs.list(&from.join("f")).unwrap().remove(0).name;
    let place = Path::new("f").join(&copied);
    let (from, to) = (from.join(&place), to.join(&place));
    Region::copy_rows(&lab.services, &lab.table, &daughters[0], &from, &to).unwrap();
    assert!(lab.files(&daughters[0]).contains(&copied));
    let region = lab.open(&daughters[0]).unwrap();
    assert!(!lab.files(&daughters[0]).contains(&copied));
    lab.check(&region, &rows);
}

#[test]
fn a_reference_that_leads_nowhere_is_damage() {
    let (lab, _, parent) = lab();
    let daughters = lab.split(&parent, "r20").unwrap();
    lab.fs.remove_dir_all(&parent.dir(Path::new("/root"))).unwrap();
    let error = lab.open(&daughters[0]).err().unwrap();
    assert_eq!(error.kind(), halcyon_cell::ErrorKind::Corrupt);
    assert!(error.message().contains("leads to no file"), "{error}");
}

/// The machine dies at every sync point of a split, a compaction and a merge. What was done is there; what was not
/// can be done again.
#[test]
fn every_sync_point() {
    let count = {
        let (lab, _, parent) = lab();
        let before = lab.fs.sync_points();
        reshape(&lab, &parent).unwrap();
        lab.fs.sync_points() - before
    };
    assert!(count > 30, "{count} sync points");
    for point in 1..=count {
        for mode in CrashMode::ALL {
            let (lab, rows, parent) = lab();
            lab.fs.fail_at(lab.fs.sync_points() + point);
            let stage = reshape(&lab, &parent).err().map_or(Stage::Merged, |(stage, _)| stage);
            let fs = Arc::new(lab.fs.crash(mode, point));
            let lab = Lab::on(fs, 2).unwrap();
            let what = format!("death at sync point {point} of {count}, {mode:?}, {stage:?}");
            let daughters = match stage {
                Stage::Begun => lab.split(&parent, "r20").unwrap_or_else(|e| panic!("{what}: {e}")),
                _ => [lab.info("", "r20", 2), lab.info("r20", "", 2)],
            };
            if stage == Stage::Merged {
                lab.check(&lab.open(&lab.info("", "", 2)).unwrap(), &rows);
                continue;
            }
            for daughter in &daughters {
                let region = lab.open(daughter).unwrap_or_else(|e| panic!("{what}: {e}"));
                lab.check(&region, &rows);
                compact(&region);
                lab.check(&region, &rows);
                region.close(false).unwrap();
            }
            let merged = lab.merge(&daughters).unwrap_or_else(|e| panic!("{what}: {e}"));
            lab.check(&lab.open(&merged).unwrap(), &rows);
        }
    }
}

/// How far `reshape` came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Begun,
    Split,
    Merged,
}

fn reshape(lab: &Lab, parent: &RegionInfo) -> std::result::Result<(), (Stage, halcyon_cell::Error)> {
    let daughters = lab.split(parent, "r20").map_err(|error| (Stage::Begun, error))?;
    let rest = || -> Result<()> {
        for daughter in &daughters {
            let region = lab.open(daughter)?;
            let request = CompactionRequest { major: false, user: false };
            region.compact(None, request, &mut &AtomicBool::new(false))?;
            region.close(false)?;
        }
        lab.merge(&daughters)?;
        Ok(())
    };
    rest().map_err(|error| (Stage::Split, error))
}

/// What a master does until it succeeds: it opens and closes the parent, and makes daughters under new names.
fn split_in_the_end(lab: &Lab, parent: &RegionInfo, attempts_max: usize) -> [RegionInfo; 2] {
    for _ in 0..attempts_max {
        let attempt = || {
            lab.open(parent)?.close(false)?;
            lab.split(parent, "r20")
        };
        if let Ok(daughters) = attempt() {
            return daughters;
        }
    }
    panic!("no split in {attempts_max} attempts");
}

/// A removal of what an earlier attempt had left was carried out when the daughters of a later one were open: their files
/// were gone.
#[test]
fn daughters_stay_whatever_arrives_late() {
    for_each_seed("-p halcyon-region --test all split::daughters_stay_whatever", 0..200, |seed| {
        let lab = Lab::on(Arc::new(SimFileSystem::hdfs(seed)), 1).unwrap();
        let mut rows = Rows::new();
        let parent = lab.parent(&mut rows).unwrap();
        lab.fs.disturb(40);
        let daughters = split_in_the_end(&lab, &parent, 1000);
        lab.fs.clear_faults();
        let mut open: Vec<_> = daughters.iter().map(|daughter| lab.open(daughter).unwrap()).collect();
        lab.fs.deliver_late();
        lab.put(&open[1], "r21", 21, &mut rows).unwrap();
        open.iter().for_each(|region| lab.check(region, &rows));
        open.iter().for_each(|region| compact(region));
        for region in open.drain(..) {
            region.close(false).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
        for daughter in &daughters {
            let region = lab.open(daughter).unwrap();
            assert!(!region.has_references(), "seed {seed}");
            lab.check(&region, &rows);
        }
    });
}

/// As before, with an attempt that ends at any one of its operations, and a removal that is carried out at the end.
#[test]
fn no_late_removal_takes_daughters_away() {
    let attempt = |lab: &Lab, parent: &RegionInfo| split_in_the_end(lab, parent, 10);
    let begin = |seed| {
        let lab = Lab::on(Arc::new(SimFileSystem::hdfs(seed)), 1).unwrap();
        let mut rows = Rows::new();
        let parent = lab.parent(&mut rows).unwrap();
        (lab, rows, parent)
    };
    let operations = {
        let (lab, _, parent) = begin(1);
        let before = lab.fs.operations();
        attempt(&lab, &parent);
        lab.fs.operations() - before
    };
    assert!(operations > 50);
    for operation in 1..=operations {
        let (lab, rows, parent) = begin(operation);
        lab.fs.inject(Fault::any().nth(operation));
        for daughter in [lab.info("", "r20", 2), lab.info("r20", "", 2)] {
            lab.fs.inject(Fault::new(Operation::Remove, daughter.encoded_name()).but_done_later());
        }
        let daughters = attempt(&lab, &parent);
        lab.fs.clear_faults();
        let open = daughters.each_ref().map(|daughter| lab.open(daughter).unwrap());
        lab.fs.deliver_late();
        for region in open {
            region.close(false).unwrap();
            lab.check(&lab.open(region.info()).unwrap(), &rows);
        }
    }
}

/// Another master splits the region while this one stands still before one of its calls. It goes on when the daughters are
/// open, and changes nothing of theirs.
#[test]
fn a_master_that_thaws_takes_no_daughter_away() {
    let begin = |seed| {
        let lab = Lab::on(Arc::new(SimFileSystem::hdfs(seed)), 1).unwrap();
        let mut rows = Rows::new();
        let parent = lab.parent(&mut rows).unwrap();
        (lab, rows, parent)
    };
    for_each_seed("-p halcyon-region --test all split::a_master_that_thaws", 1..3, |seed| {
        let calls = {
            let (lab, _, parent) = begin(seed);
            let before = lab.fs.calls();
            lab.split(&parent, "r20").unwrap();
            lab.fs.calls() - before
        };
        for call in 1..=calls {
            let (lab, rows, parent) = begin(seed);
            let (other, slot) =
                (Lab::on(lab.fs.clone(), 2).unwrap(), Arc::new(parking_lot::Mutex::new(None)));
            let (of_other, parent_of_other) = (slot.clone(), parent.clone());
            lab.fs.pause_at(lab.fs.calls() + call, move || {
                let daughters = split_in_the_end(&other, &parent_of_other, 1);
                let open = daughters.each_ref().map(|daughter| other.open(daughter).unwrap());
                compact(&open[0]);
                *of_other.lock() = Some((other, open));
            });
            let _ = lab.split(&parent, "r20");
            let (other, open) = slot.lock().take().unwrap();
            for region in open {
                other.check(&region, &rows);
                region.close(false).unwrap();
                other.check(&other.open(region.info()).unwrap(), &rows);
            }
        }
    });
}

/// What is there may be an open region.
#[test]
fn names_that_are_taken_are_refused() {
    let (lab, _, parent) = lab();
    let daughters = lab.split(&parent, "r20").unwrap();
    let before = lab.files(&daughters[0]);
    let root = Path::new("/root");
    let error = Region::split_files(&lab.services, root, &lab.table, &parent, &daughters).unwrap_err();
    assert_eq!(error.kind(), halcyon_cell::ErrorKind::Io, "{error}");
    assert_eq!(lab.files(&daughters[0]), before);
}

/// The markers of sequence ids are where the WALs are: those of the parent were not found, and those of the daughters were
/// written where HBase does not look.
#[test]
fn markers_are_below_the_root_of_wals() {
    let wal_fs = SimFileSystem::new();
    let mut lab = Lab::on(Arc::new(SimFileSystem::new()), 1).unwrap();
    lab.services.wal_root = Some(WalRoot { env: wal_fs.env(), path: "/wals".into() });
    let mut rows = Rows::new();
    let parent = lab.parent(&mut rows).unwrap();
    // Only the markers tell of these openings.
    let mut last = None;
    for _ in 0..20 {
        let region = lab.open(&parent).unwrap();
        region.close(false).unwrap();
        last = Some(region.open_seq_num());
    }
    let last = last.unwrap();
    let daughters = lab.split(&parent, "r20").unwrap();
    for daughter in &daughters {
        assert!(!lab.fs.exists(&daughter.dir(Path::new("/root")).join("recovered.edits")).unwrap());
        assert_eq!(wal_fs.list(&daughter.dir(Path::new("/wals")).join("recovered.edits")).unwrap().len(), 1);
        let region = lab.open(daughter).unwrap();
        assert!(region.open_seq_num() > last);
        lab.check(&region, &rows);
        compact(&region);
        region.close(false).unwrap();
    }
    let merged = lab.merge(&daughters).unwrap();
    assert!(lab.open(&merged).unwrap().open_seq_num() > last);
}

#[test]
fn daughters_of_an_encrypted_region_read_their_halves() {
    encrypted(daughters_read_their_halves_and_write_their_own);
}
