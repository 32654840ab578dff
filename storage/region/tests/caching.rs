//! Which blocks of a family's files are in the cache, by the family's attributes: a reader that may not go to the
//! disk finds its row, or is told that it would have to.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::*;
use bytes::Bytes;
use halcyon_cache::FileId;
use halcyon_cell::{CellType, ErrorKind};
use halcyon_env::FileSystem;
use halcyon_region::{BlockReads, NextState, ReadMode, Scan, ScanLimits};
use halcyon_schema::FamilyDescriptor;

const ROWS: usize = 60;

/// Small blocks: the index and the filter have blocks of their own.
fn family() -> FamilyDescriptor {
    FamilyDescriptor::new("f")
        .unwrap()
        .with("BLOCKSIZE", "256")
        .with("DATA_BLOCK_ENCODING", "DIFF")
        .with_configuration("hfile.index.block.max.size", "128")
        .with_configuration("hfile.index.block.min.entries", "2")
        .with_configuration("io.storefile.bloom.block.size", "128")
}

fn row(number: usize) -> String {
    format!("row{number:03}")
}

/// A region of one family with some rows in one file.
fn flushed(family: FamilyDescriptor) -> Bench {
    let bench = Bench::new(&[family]);
    write(&bench);
    bench
}

fn write(bench: &Bench) {
    for number in 0..ROWS {
        let row = row(number);
        let cell = parse_cell(&row, &format!("f:q=value{number}"), CellType::Put, false);
        bench.mutate(mutation(halcyon_region::MutationKind::Put, row.as_bytes(), vec![cell])).unwrap();
    }
    bench.region.flush(None).unwrap();
}

fn get(bench: &Bench, number: usize, mode: ReadMode) -> Result<usize, ErrorKind> {
    let row = Bytes::from(row(number));
    let scan = Scan {
        start_row: row.clone(),
        include_start_row: true,
        stop_row: row,
        include_stop_row: true,
        ..Scan::default()
    };
    bench.region.get(scan, mode).map(|cells| cells.len()).map_err(|e| e.kind())
}

fn in_memory(bench: &Bench) -> usize {
    let found = (0..ROWS).map(|number| get(bench, number, ReadMode::CacheOnly));
    found
        .filter(|found| match found {
            Ok(count) => *count == 1,
            Err(kind) => {
                assert_eq!(*kind, ErrorKind::NeedsDisk);
                false
            }
        })
        .count()
}

#[test]
fn blocks_of_a_flush_are_cached_if_the_family_says_so() {
    assert_eq!(in_memory(&flushed(family())), 0);
    let roots = family().with("CACHE_INDEX_ON_WRITE", "true").with("CACHE_BLOOMS_ON_WRITE", "true");
    assert_eq!(in_memory(&flushed(roots)), 0, "the data blocks are not there");
    let all = family().with("CACHE_DATA_ON_WRITE", "true");
    let bench = flushed(all.clone());
    assert_eq!(in_memory(&bench), ROWS);
    write(&bench);
    bench.compact(true).unwrap();
    assert_eq!(in_memory(&bench), 0, "data blocks of a compaction are not");

    let bench = flushed(all.with_configuration("hbase.rs.cachecompactedblocksonwrite", "true"));
    write(&bench);
    bench.compact(true).unwrap();
    assert_eq!(in_memory(&bench), ROWS);
}

/// When the wanted columns were read it went on to the next row: to another block, if the row was the last one of its own.
#[test]
fn a_get_of_columns_reads_no_block_behind_its_row() {
    let bench = flushed(family());
    for number in 0..ROWS {
        let reads = Arc::new(BlockReads::default());
        let mut scan = Scan::of_row(Bytes::from(row(number)));
        scan.families.insert(Bytes::from("f"), Some([Bytes::from("q")].into()));
        (scan.cache_blocks, scan.reads) = (false, Some(reads.clone()));
        assert_eq!(bench.region.get(scan, ReadMode::AnyDisk).unwrap().len(), 1);
        assert_eq!(reads.disk_count.load(Ordering::Relaxed), 1, "row {number}");
    }
}

#[test]
fn a_family_that_prefetches_is_read_ahead_behind_its_opening() {
    for (prefetch, expected) in [("true", ROWS), ("false", 0)] {
        let mut bench = flushed(family().with("PREFETCH_BLOCKS_ON_OPEN", prefetch));
        bench.region.evict_blocks();
        bench.reopen().unwrap();
        assert_eq!(in_memory(&bench), 0, "opening does not wait for it");
        assert_eq!(bench.region.prefetch_wanted(), expected > 0);
        bench.region.prefetch();
        assert!(!bench.region.prefetch_wanted());
        assert_eq!(in_memory(&bench), expected);
    }
    // A setting of the family says the same.
    let bench = flushed(family().with_configuration("hbase.rs.prefetchblocksonopen", "true"));
    assert!(bench.region.prefetch_wanted(), "the file of a flush, too");
}

#[test]
fn reading_ahead_ends_when_the_region_closes_and_when_the_cache_is_full() {
    let mut bench = flushed(family().with("PREFETCH_BLOCKS_ON_OPEN", "true"));
    let region = bench.region.clone();
    bench.reopen().unwrap();
    region.prefetch();
    assert_eq!(in_memory(&bench), 0, "that region has closed");
    // And many blocks more, of a kilobyte each.
    for number in 0..600 {
        let cell =
            parse_cell(&format!("s{number:03}"), &format!("f:q={}", "v".repeat(1000)), CellType::Put, false);
        let row = format!("s{number:03}");
        bench.mutate(mutation(halcyon_region::MutationKind::Put, row.as_bytes(), vec![cell])).unwrap();
    }
    bench.region.flush(None).unwrap();
    bench.region.prefetch();
    let all = bench.cache.stats().inserts_count;
    assert!(all > 600);
    bench.reopen().unwrap();
    bench.region.evict_blocks();
    bench.cache.resize(128 << 10);
    bench.cache.settle();
    bench.region.prefetch();
    let taken_in = bench.cache.stats().inserts_count - all;
    assert!(taken_in > 50 && taken_in < all / 2, "{taken_in} of {all} blocks");
}

#[test]
fn blocks_stay_for_the_next_opening_unless_the_family_or_a_setting_says_otherwise() {
    let cached = || family().with("CACHE_DATA_ON_WRITE", "true");
    let cases = [
        (cached(), ROWS),
        (cached().with("EVICT_BLOCKS_ON_CLOSE", "true"), 0),
        (cached().with_configuration("hbase.rs.evictblocksonclose", "true"), 0),
        (cached().with("EVICT_BLOCKS_ON_CLOSE", "false"), ROWS),
    ];
    for (family, expected) in cases {
        let mut bench = flushed(family.clone());
        assert_eq!(in_memory(&bench), ROWS);
        bench.reopen().unwrap();
        bench.cache.settle();
        assert_eq!(in_memory(&bench), expected, "{family:?}");
    }
}

#[test]
fn blocks_of_files_that_were_compacted_or_whose_region_was_removed_leave() {
    let bench = flushed(family().with("CACHE_DATA_ON_WRITE", "true"));
    write(&bench);
    let before = bench.cache.stats().blocks_count;
    let mut reader = bench.region.scanner(Scan::default(), ReadMode::AnyDisk).unwrap();
    bench.compact(true).unwrap();
    assert!(
        before > 0 && bench.cache.stats().blocks_count >= before,
        "nothing is done on the caller's thread"
    );
    bench.cache.settle();
    // Who still reads the old files puts nothing of them into the cache.
    let mut cells = Vec::new();
    while reader.next(&mut ScanLimits::NONE.clone(), &mut cells).unwrap() != NextState::Exhausted {}
    assert_eq!((cells.len(), bench.cache.stats().blocks_count), (ROWS, 0));

    assert_eq!((0..ROWS).filter(|number| get(&bench, *number, ReadMode::AnyDisk) == Ok(1)).count(), ROWS);
    assert_eq!(in_memory(&bench), ROWS);
    bench.region.close(false).unwrap();
    let Bench { region, fs, cache, .. } = bench;
    cache.sweep(&*fs, FileId::ZERO, 100);
    cache.settle();
    assert!(cache.stats().blocks_count > 0, "the file is there");
    fs.remove_dir_all(region.dir()).unwrap();
    cache.sweep(&*fs, FileId::ZERO, 100);
    cache.settle();
    assert!(cache.stats().blocks_count > 0, "somebody has it open");
    drop((region, reader));
    cache.sweep(&*fs, FileId::ZERO, 100);
    cache.settle();
    assert_eq!(cache.stats().blocks_count, 0);
}

#[test]
fn reads_put_data_blocks_into_the_cache_unless_the_family_forbids_it() {
    for (block_cache, expected) in [("true", ROWS), ("false", 0)] {
        let bench = flushed(family().with("BLOCKCACHE", block_cache));
        for number in 0..ROWS {
            assert_eq!(get(&bench, number, ReadMode::AnyDisk), Ok(1));
        }
        assert_eq!(in_memory(&bench), expected);
    }
}

/// Hot for a minute, by the timestamps of the cells.
fn tiered() -> FamilyDescriptor {
    let engine = "org.apache.hadoop.hbase.regionserver.DateTieredStoreEngine";
    family()
        .with_configuration("hbase.hstore.engine.class", engine)
        .with_configuration("hbase.hstore.datatiering.type", "TIME_RANGE")
        .with_configuration("hbase.hstore.datatiering.hot.age.millis", "60000")
}

#[test]
fn blocks_of_old_data_stay_out_of_the_cache() {
    let bench = flushed(tiered().with("CACHE_DATA_ON_WRITE", "true"));
    assert_eq!(in_memory(&bench), ROWS, "all of it is new");
    bench.region.evict_cold_blocks();
    assert_eq!(in_memory(&bench), ROWS);
    bench.clock.advance(Duration::from_secs(61));
    assert_eq!(in_memory(&bench), ROWS, "what is in the cache is read there");
    bench.region.evict_cold_blocks();
    bench.cache.settle();
    assert_eq!(in_memory(&bench), 0);
    let read_all = || (0..ROWS).for_each(|number| assert_eq!(get(&bench, number, ReadMode::AnyDisk), Ok(1)));
    read_all();
    assert_eq!(in_memory(&bench), 0, "a read leaves nothing of it there");

    // A file with a new cell is hot, whatever else is in it.
    let cell = parse_cell("new", "f:q=v", CellType::Put, false);
    bench.mutate(mutation(halcyon_region::MutationKind::Put, b"new", vec![cell])).unwrap();
    bench.region.flush(None).unwrap();
    bench.compact(true).unwrap();
    read_all();
    assert_eq!(in_memory(&bench), ROWS);
}

#[test]
fn old_data_are_not_read_ahead() {
    for (age_secs, expected) in [(0, ROWS), (61, 0)] {
        let mut bench = flushed(tiered().with("PREFETCH_BLOCKS_ON_OPEN", "true"));
        bench.region.evict_blocks();
        bench.clock.advance(Duration::from_secs(age_secs));
        bench.reopen().unwrap();
        bench.region.prefetch();
        assert_eq!(in_memory(&bench), expected, "{age_secs} s old");
    }
}
