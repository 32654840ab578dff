//! Files of recovered edits whose edits overlap. A WAL whose file was late or failed has a round twice, and each of its files is
//! split by another server.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use crate::common::{Bench, root, set_replay_flush_bytes};
use halcyon_cell::{Cell, ErrorKind, Result, SeqId};
use halcyon_env::FileSystem;
use halcyon_region::{MobFileCache, Region, RegionServices, RegionSettings, Scan};
use halcyon_schema::FamilyDescriptor;
use halcyon_wal::{Durability, OnDamage, Wal, WalConfig, WalEntry, split_log_files};

/// A replay flushes after about 64 of them.
const VALUE_BYTES: usize = 1000;
const FLUSH_BYTES: u64 = 64 << 10;

pub fn row_of(seq: u64) -> String {
    format!("row{seq:04}")
}

/// A row of its own.
pub fn cell_of(seq: u64) -> Cell {
    Cell::put(row_of(seq).as_bytes(), b"f", b"q", 1, &vec![seq as u8; VALUE_BYTES])
}

/// One file of the WAL of a server that died.
fn leave_wal(bench: &Bench, name: &str, seqs: RangeInclusive<u64>) -> PathBuf {
    let dir = root().join("dead").join(name);
    let wal = Wal::open(bench.env(), WalConfig::new(dir.clone(), root().join("oldWALs"), name)).unwrap();
    for seq in seqs {
        let cell = cell_of(seq);
        let cells = [cell.get()];
        let entry = WalEntry {
            region: bench.info.encoded_name().as_bytes(),
            table: b"t",
            seq: SeqId::new(seq),
            write_time_ms: 1,
            nonce_group: 0,
            nonce: 0,
            cluster_ids: &[],
            replicated: &[],
            cells: &cells,
        };
        wal.append(&entry, Durability::SyncWal, Box::new(|_| ())).unwrap();
        wal.drive();
    }
    dir.join(&bench.fs.list(&dir).unwrap().remove(0).name)
}

/// As region servers of a cluster do it with each file of a dead server.
pub fn split_alone(bench: &Bench, log: &Path) -> Result<()> {
    let edits = bench.region.dir().join("recovered.edits");
    let one_by_one =
        |count: usize, work: &(dyn Fn(usize) -> Result<()> + Sync)| (0..count).try_for_each(work);
    let destination = |_: &[u8], _: &[u8]| Ok(Some(edits.clone()));
    split_log_files(&bench.env(), vec![log.to_path_buf()], &destination, &one_by_one, OnDamage::Refuse)
        .map(drop)
}

/// Leaves files with these of the edits, counted from the first one, opens the region, and looks for all of them.
fn replay(files: &[RangeInclusive<u64>]) {
    set_replay_flush_bytes(FLUSH_BYTES);
    let mut bench = Bench::new(&[FamilyDescriptor::new("f").unwrap().with("VERSIONS", "3")]);
    let first = bench.region.open_seq_num().get() + 1;
    bench.region.close(false).unwrap();
    bench.wal.close().unwrap();
    for (number, seqs) in files.iter().enumerate() {
        let log = leave_wal(&bench, &format!("w{number}"), first + seqs.start()..=first + seqs.end());
        split_alone(&bench, &log).unwrap();
    }
    bench.fs.remove_dir_all(&root().join("dead")).unwrap();
    bench.take_over().unwrap();
    let last = files.iter().map(|seqs| *seqs.end()).max().unwrap();
    let rows = bench.scan(Scan { max_versions: 3, ..Scan::default() }).unwrap();
    let found: Vec<(Vec<u8>, usize)> = rows.iter().map(|row| (row[0].row().to_vec(), row.len())).collect();
    let expected: Vec<_> = (first..=first + last).map(|seq| (row_of(seq).into_bytes(), 1)).collect();
    assert_eq!(found, expected, "{files:?}: each edit is there, once");
}

/// A spare file that has lost a race has a round from the middle of the current file. It was replayed before that, since its last
/// entry is older; the flush that came then said that all before it is in files, and edits that were acknowledged were
/// passed over.
#[test]
fn a_spare_file_that_lost_a_race_hides_no_edit() {
    replay(&[0..=60, 61..=70]);
    replay(&[0..=60, 61..=70, 65..=68]);
    replay(&[0..=50, 51..=150, 62..=65]);
    replay(&[0..=50, 51..=150, 62..=65, 100..=149]);
}

/// A file that failed has all of its last round, and the one that took its place a part, or the other way round.
#[test]
fn a_file_that_was_replaced_hides_no_edit() {
    replay(&[0..=70, 60..=70]);
    replay(&[0..=70, 60..=66]);
    replay(&[0..=66, 60..=130]);
    replay(&[0..=70, 60..=70, 60..=140]);
}

/// A damaged file kept its region from opening, and there was no way on.
#[test]
fn what_is_damaged_is_passed_over_if_that_is_wanted() {
    let mut bench = Bench::new(&[FamilyDescriptor::new("f").unwrap()]);
    let first = bench.region.open_seq_num().get() + 1;
    bench.region.close(false).unwrap();
    bench.wal.close().unwrap();
    let log = leave_wal(&bench, "w0", first..=first + 9);
    split_alone(&bench, &log).unwrap();
    bench.fs.remove_dir_all(&root().join("dead")).unwrap();
    let edits = bench.region.dir().join("recovered.edits");
    let file = edits.join(format!("{:019}", first + 9));
    let mut bytes = bench.fs.read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    bench.fs.replace(&file, &bytes).unwrap();
    assert_eq!(bench.take_over().unwrap_err().kind(), ErrorKind::Corrupt);
    let services = bench.services_with(MobFileCache::new(1000, 0.5));
    let settings = RegionSettings { replay_skips_errors: true, ..services.settings.clone() };
    let services = RegionServices { settings, ..services };
    bench.region = Region::open(services, &root(), bench.info.clone(), bench.table.clone()).unwrap();
    assert_eq!(bench.scan(Scan::default()).unwrap().len(), 9);
    let names: Vec<String> = bench.fs.list(&edits).unwrap().into_iter().map(|entry| entry.name).collect();
    let aside = format!("{:019}.", first + 9);
    assert!(names.len() == 2 && names.iter().any(|name| name.starts_with(&aside)), "{names:?}");
    bench.take_over().unwrap();
    assert_eq!(bench.scan(Scan::default()).unwrap().len(), 9);
}

/// Files that are more than stay open.
#[test]
fn many_files_are_merged() {
    let mut files: Vec<_> = (0..40).map(|number| number * 10..=number * 10 + 9).collect();
    replay(&files);
    files.extend((0..39).map(|number| number * 10 + 5..=number * 10 + 14));
    replay(&files);
}
