//! Nanoseconds per cell, to see where we are. Not a test: run it with
//! `cargo test --release -p halcyon-hfile --test bench -- --ignored --nocapture bench_`
#![allow(clippy::disallowed_methods)] // a scratch directory

use std::path::Path;
use std::sync::Arc;

use halcyon_cache::BlockCache;
use halcyon_cell::{Cell, CellScanner, Key};
use halcyon_env::Env;
use halcyon_hfile::{
    BlockEncoding, BloomType, Compression, FileMeta, HFile, HFileWriter, ReadMode, ReaderOptions,
    WriterOptions,
};

const CELLS_COUNT: usize = 1_000_000;
const CELLS_PER_ROW: usize = 4;

fn row(number: usize) -> Vec<u8> {
    format!("user{number:012}").into_bytes()
}

/// Cells of about 100 bytes.
fn cells() -> Vec<Cell> {
    let value = [b'v'; 48];
    (0..CELLS_COUNT)
        .map(|n| {
            let qualifier = [b'q', b'0' + (n % CELLS_PER_ROW) as u8];
            Cell::put(&row(n / CELLS_PER_ROW), b"f", &qualifier, 1_700_000_000_000, &value).with_seq(n as u64)
        })
        .collect()
}

/// Time this thread spent on a processor: other work on the machine does not count.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn timed<T>(env: &Env, what: &str, count: usize, body: impl FnOnce() -> T) -> T {
    let (start, cpu_start) = (env.clock.monotonic_ns(), cpu_ns());
    let result = body();
    let cpu = (cpu_ns() - cpu_start) as f64 / count as f64;
    let wall = (env.clock.monotonic_ns() - start) as f64 / count as f64;
    println!("{what:32} {cpu:8.1} ns of cpu {wall:8.1} ns of wall time");
    result
}

fn write(env: &Env, path: &Path, cells: &[Cell], options: WriterOptions) {
    let _ = env.fs.remove_file(path); // of an earlier run
    let mut writer = HFileWriter::create(env, path, options).unwrap();
    for cell in cells {
        writer.append(cell.get()).unwrap();
    }
    writer.finish(FileMeta::default()).unwrap();
}

#[test]
#[ignore = "a measurement"]
fn bench_write_scan_seek() {
    let env = Env::real();
    let path = std::env::temp_dir().join(format!("halcyon-hfile-bench-{}", std::process::id()));
    let cells = cells();
    println!("{} bytes per cell, {CELLS_COUNT} cells", cells[0].bytes().len());
    for (what, bloom, compression) in [
        ("write, ROW", BloomType::Row, Compression::None),
        ("write, no bloom", BloomType::None, Compression::None),
        ("write, ROWCOL", BloomType::RowCol, Compression::None),
        ("write, ROW, SNAPPY", BloomType::Row, Compression::Snappy),
        ("write, ROW, LZ4", BloomType::Row, Compression::Lz4),
        ("write, ROW, ZSTD", BloomType::Row, Compression::Zstd),
    ] {
        let options = WriterOptions { bloom, compression, ..Default::default() };
        timed(&env, what, CELLS_COUNT, || write(&env, &path, &cells, options));
    }
    for encoding in BlockEncoding::ALL {
        println!("encoding {}", encoding.name());
        let options = WriterOptions { encoding, ..Default::default() };
        timed(&env, "write, ROW", CELLS_COUNT, || write(&env, &path, &cells, options));
        read(&env, &path, &cells);
    }
    std::fs::remove_file(&path).unwrap();
}

fn read(env: &Env, path: &Path, cells: &[Cell]) {
    let cache = Arc::new(BlockCache::new(1 << 30));
    let file = HFile::open(env, path, &cache, ReaderOptions::default()).unwrap();
    println!("{} bytes", file.len());
    let mut scanner = file.scanner(ReadMode::AnyDisk, true);
    for what in ["scan, cold cache", "scan, warm cache", "scan, warm cache"] {
        timed(env, what, CELLS_COUNT, || {
            let mut bytes = 0;
            scanner.seek_to_first().unwrap();
            while let Some(cell) = scanner.peek() {
                bytes += cell.bytes().len();
                scanner.next().unwrap();
            }
            assert_eq!(bytes, cells.iter().map(|c| c.bytes().len()).sum::<usize>());
        });
    }
    println!("{} bytes in the cache", cache.stats().used_bytes);
    timed(env, "scan, warm, shared cells", CELLS_COUNT, || {
        scanner.seek_to_first().unwrap();
        while let Some(cell) = scanner.cell() {
            std::hint::black_box(cell);
            scanner.next().unwrap();
        }
    });
    let seeks = 300_000;
    let rows = CELLS_COUNT / CELLS_PER_ROW;
    let keys: Vec<Key> = (0..seeks).map(|n| Key::first_on_row(&row(n * 7_919 % rows))).collect();
    timed(env, "seek, cached", seeks, || {
        for key in &keys {
            scanner.seek(key.get()).unwrap();
            assert!(scanner.peek().is_some());
        }
    });
    timed(env, "seek and new scanner, cached", seeks, || {
        for key in &keys {
            let mut scanner = file.scanner(ReadMode::CacheOnly, true);
            scanner.seek(key.get()).unwrap();
            assert!(scanner.peek().is_some());
        }
    });
    timed(env, "seek_before, cached", seeks, || {
        for key in &keys {
            scanner.seek_before(key.get()).unwrap();
        }
    });
    let next_rows: Vec<Key> = (0..rows).map(|n| Key::first_on_row(&row(n))).collect();
    scanner.seek_to_first().unwrap();
    timed(env, "reseek to the next row", rows, || {
        for key in &next_rows {
            scanner.reseek(key.get()).unwrap();
        }
    });
    timed(env, "bloom, present and absent", seeks * 2, || {
        for key in &keys {
            let key = key.get();
            let row = key.row();
            assert!(file.may_contain_row(row, ReadMode::AnyDisk).unwrap());
            std::hint::black_box(file.may_contain_row(&row[..row.len() - 1], ReadMode::AnyDisk).unwrap());
        }
    });
}
