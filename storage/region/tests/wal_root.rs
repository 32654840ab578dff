//! A region whose WALs and recovered edits have a root directory of their own, in another file system (`hbase.wal.dir`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::*;
use bytes::Bytes;
use halcyon_cache::BlockCache;
use halcyon_cell::{Cell, SeqId, SharedCells};
use halcyon_env::sim::SimFileSystem;
use halcyon_env::{Env, FileSystem};
use halcyon_memstore::ChunkPool;
use halcyon_region::*;
use halcyon_schema::{FamilyDescriptor, RegionInfo};
use halcyon_wal::{Durability, Wal, WalConfig, WalEntry, split_logs};

const WALS: &str = "/wals";

/// One edit that a server left in `recovered.edits`.
fn leave_edit(env: &Env, info: &RegionInfo, edits: &Path, seq: u64) {
    let dir = PathBuf::from(format!("/dead/{seq}"));
    let wal = Wal::open(env.clone(), WalConfig::new(dir.clone(), "/old", "dead")).unwrap();
    let cell = Cell::put(format!("row{seq}").as_bytes(), b"f", b"q", 1, b"v");
    let entry = WalEntry {
        region: info.encoded_name().as_bytes(),
        table: b"t",
        seq: SeqId::new(seq),
        write_time_ms: 1,
        nonce_group: 0,
        nonce: 0,
        cluster_ids: &[],
        replicated: &[],
        cells: &[cell.get()],
    };
    wal.append(&entry, Durability::SyncWal, Box::new(|_| ())).unwrap();
    wal.drive();
    wal.close().unwrap();
    split_logs(env, &dir, &|_, _| Ok(Some(edits.to_path_buf()))).unwrap();
}

/// Servers from before the property was set left edits in the region's directory; both are replayed, and what is written
/// goes below the root of WALs.
#[test]
fn edits_of_both_root_directories_are_replayed() {
    let (fs, wal_fs) = (SimFileSystem::new(), SimFileSystem::new());
    let table = table(&[FamilyDescriptor::new("f").unwrap()]);
    let info = RegionInfo::new(table.name().clone(), Bytes::new(), Bytes::new(), 1);
    let (in_root, apart) = ([root(), WALS.into()]).map(|root| info.dir(&root).join("recovered.edits")).into();
    leave_edit(&fs.env(), &info, &in_root, 70);
    leave_edit(&wal_fs.env(), &info, &apart, 50);
    let config = WalConfig::new(Path::new(WALS).join("WALs/s"), Path::new(WALS).join("oldWALs"), "s");
    let services = RegionServices {
        env: fs.env(),
        wal: Wal::open(wal_fs.env(), config).unwrap(),
        cache: Arc::new(BlockCache::new(1 << 20)),
        mob_files: MobFileCache::new(1000, 0.5),
        chunks: ChunkPool::new(64 << 10, 4),
        settings: settings(),
        wal_root: Some(WalRoot { env: wal_fs.env(), path: WALS.into() }),
    };
    let open = || Region::open(services.clone(), &root(), info.clone(), table.clone()).unwrap();
    let region = open();
    assert_eq!(region.open_seq_num(), SeqId::new(71));
    let mut scanner = region.scanner(Scan::default(), ReadMode::AnyDisk).unwrap();
    for row in ["row50", "row70"] {
        let mut cells = SharedCells::new();
        scanner.next_shared(&mut ScanLimits::NONE.clone(), &mut cells).unwrap();
        assert_eq!(
            cells.split_off(0)[0].row(),
            row.as_bytes(),
            "an older edit that stands in the other directory"
        );
    }
    drop(scanner);
    let markers = |fs: &dyn FileSystem, dir: &Path| -> Vec<String> {
        fs.list(dir).unwrap_or_default().into_iter().map(|entry| entry.name).collect()
    };
    assert_eq!(markers(&*wal_fs.env().fs, &apart), ["71.seqid"]);
    assert!(markers(&*fs.env().fs, &in_root).is_empty(), "replayed, and no marker");
    region.close(false).unwrap();
    // The number of the last opening counts, though no file tells of it.
    assert_eq!(open().open_seq_num(), SeqId::new(72));
}
