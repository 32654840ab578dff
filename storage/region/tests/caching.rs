//! Which blocks of a family's files are in the cache, by the family's attributes: a reader that may not go to the
//! disk finds its row, or is told that it would have to.

mod common;

use bytes::Bytes;
use common::*;
use halcyon_cell::{CellType, ErrorKind};
use halcyon_region::{ReadMode, Scan};
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

#[test]
fn a_family_that_prefetches_is_in_memory_when_it_is_open() {
    for (prefetch, expected) in [("true", ROWS), ("false", 0)] {
        let mut bench = flushed(family().with("PREFETCH_BLOCKS_ON_OPEN", prefetch));
        bench.reopen().unwrap();
        assert_eq!(in_memory(&bench), expected);
    }
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
