//! After an error of a WAL file its last entries stand in the next one too, so replay meets them twice.

use crate::common::{Bench, root};
use halcyon_cell::{Cell, SeqId};
use halcyon_env::FileSystem;
use halcyon_region::Scan;
use halcyon_schema::FamilyDescriptor;
use halcyon_wal::{Durability, Wal, WalConfig, WalEntry};

const ENTRIES: u64 = 70;
/// So that replay flushes after 64 entries, and again among those that it meets for the second time.
const VALUE_BYTES: usize = 1 << 20;

fn cell(seq: u64) -> Cell {
    Cell::put(format!("row{seq:03}").as_bytes(), b"f", b"q", 1, &vec![seq as u8; VALUE_BYTES])
}

/// A file of the WAL of a server that died.
fn leave_wal(bench: &Bench, first_seq: u64) {
    let config = WalConfig::new(root().join("WALs/dead"), root().join("oldWALs"), "dead");
    let wal = Wal::open(bench.env(), config).unwrap();
    for seq in first_seq..first_seq + ENTRIES {
        let cell = cell(seq);
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
}

/// A flush among them took the sequence id of the entry at hand, which was below that of the flush before: the region
/// could not be opened.
#[test]
fn a_flush_among_entries_that_are_replayed_twice_holds_all_before_it() {
    let mut bench = Bench::new(&[FamilyDescriptor::new("f").unwrap().with("VERSIONS", "3")]);
    let first_seq = bench.region.open_seq_num().get() + 1;
    bench.region.close(false).unwrap();
    bench.wal.close().unwrap();
    leave_wal(&bench, first_seq);
    leave_wal(&bench, first_seq);
    assert_eq!(bench.fs.list(&root().join("WALs/dead")).unwrap().len(), 2);
    bench.take_over().unwrap();
    for major in [false, true] {
        let rows = bench.scan(Scan { max_versions: 3, ..Scan::default() }).unwrap();
        assert_eq!(rows.len() as u64, ENTRIES);
        for (row, seq) in rows.iter().zip(first_seq..) {
            assert_eq!(row.len(), 1, "{seq}: a cell that was replayed twice is one cell");
            assert_eq!((row[0].row(), row[0].value()), (cell(seq).row(), cell(seq).value()));
        }
        bench.compact(major).unwrap();
    }
}
