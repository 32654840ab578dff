use halcyon_cell::{Cell, CellRef, CellScanner, CellType, ErrorKind, SeqId};
use halcyon_env::sim::SimFileSystem;
use proptest::prelude::*;

use super::*;
use crate::{BlockEncoding, BloomType, ChecksumType, Compression, FileMeta, HFileWriter, WriterOptions};

/// One file in memory.
struct Scratch(Env);

const NAME: &str = "/file";

impl Scratch {
    fn new() -> Scratch {
        Scratch(SimFileSystem::new().env())
    }

    fn put(&self, bytes: &[u8]) {
        self.0.fs.replace(Path::new(NAME), bytes).unwrap();
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.fs.read(Path::new(NAME)).unwrap()
    }
}

/// Writes the file, in place of an earlier one.
fn write(scratch: &Scratch, cells: &[Cell], options: WriterOptions) -> crate::WrittenFile {
    let _ = scratch.0.fs.remove_file(Path::new(NAME)); // there may be none
    let mut writer = HFileWriter::create(&scratch.0, Path::new(NAME), options).unwrap();
    for cell in cells {
        writer.append(cell.get()).unwrap();
    }
    writer.finish(FileMeta { max_seq_id: Some(SeqId::new(42)), ..Default::default() }).unwrap()
}

fn open_with(scratch: &Scratch, cache: &Arc<BlockCache>, options: ReaderOptions) -> Result<Arc<HFile>> {
    HFile::open(&scratch.0, Path::new(NAME), cache, options)
}

fn open(scratch: &Scratch) -> Arc<HFile> {
    open_with(scratch, &Arc::new(BlockCache::new(64 << 20)), ReaderOptions::default()).unwrap()
}

fn scan(file: &Arc<HFile>) -> Result<Vec<Cell>> {
    let mut scanner = file.scanner(ReadMode::AnyDisk, true);
    let mut cells = Vec::new();
    scanner.seek_to_first()?;
    while let Some(cell) = scanner.cell() {
        cells.push(cell);
        scanner.next()?;
    }
    Ok(cells)
}

/// Many rows with a few columns and versions each, markers and tags among them.
fn sample(rows: usize) -> Vec<Cell> {
    let mut cells = Vec::new();
    for row in 0..rows {
        let name = format!("row{row:06}");
        let name = name.as_bytes();
        if row % 10 == 3 {
            cells.push(Cell::build(name, b"f", b"", 500, CellType::DeleteFamily, b"", b"", 9));
        }
        for column in 0..(row % 4) + 1 {
            let qualifier = format!("q{column}");
            for version in 0..(row % 3) + 1 {
                let tags: &[u8] = if column == 1 { &[0, 2, 8, 1] } else { b"" };
                cells.push(Cell::build(
                    name,
                    b"f",
                    qualifier.as_bytes(),
                    1000 - version as i64,
                    CellType::Put,
                    format!("value {row} {column} {version}").as_bytes(),
                    tags,
                    (row * 7 % 1000) as u64,
                ));
            }
        }
    }
    cells
}

/// Small blocks and index chunks: several levels from little data.
fn deep(bloom: BloomType) -> WriterOptions {
    WriterOptions {
        block_size: 256,
        index_chunk_bytes: 300,
        index_entries_min: 3,
        bloom,
        bloom_chunk_bytes: 256,
        ..Default::default()
    }
}

const BLOOMS: [BloomType; 4] =
    [BloomType::None, BloomType::Row, BloomType::RowCol, BloomType::RowPrefixFixedLength(7)];

#[test]
fn cells_come_back_through_every_codec_checksum_and_bloom() {
    let scratch = Scratch::new();
    let cells = sample(2000);
    for compression in Compression::ALL {
        for (checksum, bloom) in [
            (ChecksumType::Crc32c, BloomType::Row),
            (ChecksumType::Crc32, BloomType::RowCol),
            (ChecksumType::Null, BloomType::RowPrefixFixedLength(7)),
        ] {
            let options = WriterOptions { compression, checksum, ..deep(bloom) };
            let written = write(&scratch, &cells, options);
            let file = open(&scratch);
            assert_eq!(written.bytes, file.len());
            assert!(file.index_levels() >= 4, "{} levels", file.index_levels());
            assert_eq!(scan(&file).unwrap(), cells);
            file.verify().unwrap();
        }
    }
}

#[test]
fn cells_come_back_through_every_encoding() {
    let scratch = Scratch::new();
    let cells = sample(2000);
    for (encoding, compress_tags) in BlockEncoding::ALL.into_iter().flat_map(|e| [(e, false), (e, true)]) {
        for compression in [Compression::None, Compression::Lz4] {
            let options = WriterOptions {
                encoding,
                compress_tags,
                compression,
                ..deep(BloomType::RowPrefixFixedLength(7))
            };
            write(&scratch, &cells, options);
            let file = open(&scratch);
            assert!(file.index_levels() >= 3, "{} levels", file.index_levels());
            assert_eq!(scan(&file).unwrap(), cells);
            file.verify().unwrap();
        }
    }
}

#[test]
fn blocks_of_encoded_cells_are_as_large_as_the_ratio_says() {
    let scratch = Scratch::new();
    let cells = sample(2000);
    let blocks = |encoded_block_size_ratio| {
        let encoding = BlockEncoding::FastDiff;
        let options = WriterOptions { encoding, encoded_block_size_ratio, ..deep(BloomType::None) };
        write(&scratch, &cells, options);
        let (file, mut index, mut count) = (open(&scratch), crate::index::IndexCursor::default(), 1);
        assert_eq!(scan(&file).unwrap(), cells);
        index.seek_to_first(&*file, ReadMode::AnyDisk).unwrap();
        while index.next(&*file, ReadMode::AnyDisk).unwrap() {
            count += 1;
        }
        count
    };
    let (plain, half, whole) = (blocks(0.0), blocks(0.5), blocks(1.0));
    assert!(whole * 3 < half * 2 && whole * 3 < plain * 2, "{plain}, {half}, {whole}");
}

#[test]
fn file_info_tells_what_the_cells_were() {
    let scratch = Scratch::new();
    let cells = sample(100);
    write(&scratch, &cells, WriterOptions { create_time_ms: Some(7), ..Default::default() });
    let file = open(&scratch);
    let info = file.info();
    assert_eq!(info.entry_count(), cells.len() as u64);
    assert_eq!(info.first_key(), Some(cells[0].get().key()));
    assert_eq!(info.last_key(), Some(cells[cells.len() - 1].get().key()));
    assert_eq!(
        (info.max_seq_id(), info.time_range(), info.create_time_ms()),
        (Some(SeqId::new(42)), Some((0, 1000)), Some(7))
    );
    assert_eq!((info.earliest_put_ts(), info.delete_family_count()), (Some(998), Some(10)));
    assert_eq!((info.max_mvcc().get(), info.is_major(), info.bloom_type()), (693, false, BloomType::Row));
    assert_eq!(file.index_levels(), 1);
    assert!(file.may_contain_delete_family(b"row000003", ReadMode::AnyDisk).unwrap());
    assert!(!file.may_contain_delete_family(b"row000004", ReadMode::AnyDisk).unwrap());
}

#[test]
fn a_file_without_cells_opens() {
    let scratch = Scratch::new();
    let written = write(&scratch, &[], WriterOptions::default());
    assert!(written.first_key.is_none() && written.time_range.is_none());
    let file = open(&scratch);
    file.verify().unwrap();
    assert_eq!((file.info().first_key(), file.info().time_range()), (None, None));
    assert!(file.mid_key(ReadMode::AnyDisk).unwrap().is_none());
    let mut scanner = file.scanner(ReadMode::CacheOnly, true);
    let key = Key::first_on_row(b"r");
    scanner.seek(key.get()).unwrap();
    assert!(scanner.peek().is_none());
    scanner.seek_before(key.get()).unwrap();
    scanner.seek_to_last().unwrap();
    scanner.next().unwrap();
    assert!(scanner.peek().is_none());
}

#[test]
fn blooms_know_what_is_there_and_mostly_what_is_not() {
    let scratch = Scratch::new();
    let cells = sample(3000);
    for bloom in BLOOMS {
        write(&scratch, &cells, deep(bloom));
        let file = open(&scratch);
        let mode = ReadMode::AnyDisk;
        for cell in &cells {
            assert!(file.may_contain_row(cell.row(), mode).unwrap());
            assert!(file.may_contain_row_col(cell.row(), cell.qualifier(), mode).unwrap());
        }
        let wrong = |found: &dyn Fn(usize) -> bool| (0..1000).filter(|&n| found(n)).count();
        let rows = wrong(&|n| file.may_contain_row(format!("row{n:06}x").as_bytes(), mode).unwrap());
        let columns =
            wrong(&|n| file.may_contain_row_col(format!("row{:06}", 4 * n).as_bytes(), b"q9", mode).unwrap());
        match bloom {
            BloomType::Row => assert!(rows < 30, "{rows}"),
            BloomType::RowCol => assert!(columns < 30 + 75, "{columns}"), // every tenth row has a marker
            _ => assert_eq!(rows, 1000, "{bloom:?}"),
        }
        if let BloomType::RowPrefixFixedLength(_) = bloom {
            assert!(!file.may_contain_row_prefix(b"zzzzzzzzz", mode).unwrap());
            assert!(file.may_contain_row_prefix(b"zz", mode).unwrap());
        }
    }
}

#[test]
fn memory_only_reads_ask_for_the_disk_and_then_do_without() {
    let scratch = Scratch::new();
    let cells = sample(500);
    write(&scratch, &cells, deep(BloomType::Row));
    let file = open(&scratch);
    let key = cells[700].get().key();
    let mut memory = file.scanner(ReadMode::CacheOnly, true);
    assert_eq!(memory.seek(key).unwrap_err().kind(), ErrorKind::NeedsDisk);
    assert!(memory.peek().is_none());
    assert_eq!(
        file.may_contain_row(b"row000001", ReadMode::CacheOnly).unwrap_err().kind(),
        ErrorKind::NeedsDisk
    );
    let mut disk = file.scanner(ReadMode::AnyDisk, true);
    disk.seek(key).unwrap();
    memory.seek(key).unwrap();
    assert_eq!(memory.cell().unwrap(), cells[700]);
    // Runs into the end of what is cached and says so.
    let error = loop {
        if let Err(error) = memory.next() {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::NeedsDisk);
    assert!(memory.peek().is_none());
}

#[test]
fn a_scanner_that_must_not_cache_leaves_data_blocks_out() {
    let scratch = Scratch::new();
    let cells = sample(100);
    write(&scratch, &cells, WriterOptions { block_size: 256, ..Default::default() });
    let cache = Arc::new(BlockCache::new(1 << 20));
    let file = open_with(&scratch, &cache, ReaderOptions::default()).unwrap();
    let mut scanner = file.scanner(ReadMode::AnyDisk, false);
    scanner.seek_to_last().unwrap();
    assert_eq!(cache.stats().blocks_count, 0);
    let file =
        open_with(&scratch, &cache, ReaderOptions { cache_data: false, ..Default::default() }).unwrap();
    assert_eq!(scan(&file).unwrap(), cells);
    assert_eq!(cache.stats().blocks_count, 0);
}

#[test]
fn bulk_loaded_cells_get_the_callers_sequence_id() {
    let scratch = Scratch::new();
    let cells = sample(20);
    write(&scratch, &cells, WriterOptions { include_mvcc: false, ..Default::default() });
    let cache = Arc::new(BlockCache::new(1 << 20));
    let options = ReaderOptions { cell_seq: Some(SeqId::new(77)), ..Default::default() };
    let file = open_with(&scratch, &cache, options).unwrap();
    let expected: Vec<_> = cells.iter().map(|c| c.clone().with_seq(77)).collect();
    assert_eq!(scan(&file).unwrap(), expected);
}

#[test]
fn cells_out_of_order_are_refused_and_equal_keys_stay_in_one_block() {
    let scratch = Scratch::new();
    let mut writer = HFileWriter::create(&scratch.0, Path::new(NAME), deep(BloomType::Row)).unwrap();
    writer.append(Cell::put(b"b", b"f", b"q", 1, b"").get()).unwrap();
    let error = writer.append(Cell::put(b"a", b"f", b"q", 1, b"").get()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);

    let mut cells = sample(20);
    let again: Vec<_> =
        (0..50).map(|n| Cell::put(b"row000019x", b"f", b"q", 1, b"v").with_seq(50 - n)).collect();
    cells.extend(again);
    cells.push(Cell::put(b"row000020", b"f", b"q", 1, b""));
    write(&scratch, &cells, deep(BloomType::Row));
    let file = open(&scratch);
    let mut scanner = file.scanner(ReadMode::AnyDisk, true);
    scanner.seek(cells[cells.len() - 3].get().key()).unwrap();
    assert_eq!(scanner.peek().unwrap().seq(), 50);
}

#[test]
fn the_middle_is_in_the_middle() {
    let scratch = Scratch::new();
    let cells = sample(4000);
    for options in [deep(BloomType::Row), WriterOptions { block_size: 1024, ..Default::default() }] {
        write(&scratch, &cells, options);
        let file = open(&scratch);
        let key = file.mid_key(ReadMode::AnyDisk).unwrap().unwrap();
        let before =
            cells.partition_point(|c| file.comparator().compare_keys(c.get().key(), key.get()).is_lt());
        assert!((cells.len() * 2 / 5..cells.len() * 3 / 5).contains(&before), "{before} of {}", cells.len());
    }
}

/// Reads all that a reader may ask for; errors are fine, panics and wrong cells are not.
fn read_everything(scratch: &Scratch, cells: &[Cell]) {
    let cache = Arc::new(BlockCache::new(1 << 20));
    let file = match open_with(scratch, &cache, ReaderOptions::default()) {
        Ok(file) => file,
        Err(error) => return check_error(&error),
    };
    match scan(&file) {
        // A flipped bit in file info or trailer may hide behind a key nobody asks for, but never in a cell.
        Ok(found) => assert!(found == cells, "other cells came back"),
        Err(error) => check_error(&error),
    }
    let mut scanner = file.scanner(ReadMode::AnyDisk, true);
    for cell in cells.iter().step_by(7) {
        for step in 0..4 {
            let moved = match step {
                0 => scanner.seek(cell.get().key()),
                1 => scanner.reseek(cell.get().key()),
                2 => scanner.seek_before(cell.get().key()),
                _ => file.may_contain_row_col(cell.row(), cell.qualifier(), ReadMode::AnyDisk).map(|_| ()),
            };
            let _ = moved.map_err(|e| check_error(&e));
        }
    }
    let _ = file.mid_key(ReadMode::AnyDisk).map_err(|e| check_error(&e));
    let _ = file.info().compacted_from();
}

fn check_error(error: &Error) {
    let known = matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Invalid | ErrorKind::Io);
    assert!(known && !error.message().is_empty(), "{error:?}");
}

#[test]
fn truncated_and_damaged_files_never_panic_and_never_give_wrong_cells() {
    let cells = sample(60);
    for (compression, checksum, encoding) in [
        (Compression::None, ChecksumType::Crc32c, BlockEncoding::None),
        (Compression::None, ChecksumType::Crc32c, BlockEncoding::FastDiff),
        (Compression::Snappy, ChecksumType::Crc32, BlockEncoding::RowIndexV1),
    ] {
        let options =
            WriterOptions { compression, checksum, encoding, compress_tags: true, ..deep(BloomType::RowCol) };
        let scratch = Scratch::new();
        write(&scratch, &cells, options);
        let good = scratch.bytes();
        let blocks_end = good.len() - trailer::TRAILER_LEN;
        for at in (0..good.len()).filter(|at| at % 13 == 0 || *at > good.len() - 40) {
            let scratch = Scratch::new();
            scratch.put(&good[..at]);
            read_everything(&scratch, &cells);
        }
        for at in (0..good.len()).filter(|&at| at < blocks_end + 150 || at > good.len() - 8) {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at * 7 % 8);
            let scratch = Scratch::new();
            scratch.put(&bad);
            read_everything(&scratch, &cells);
        }
    }
}

#[test]
fn without_checksums_damage_still_does_not_panic() {
    let cells = sample(40);
    for encoding in BlockEncoding::ALL {
        let (checksum, compress_tags) = (ChecksumType::Null, true);
        let scratch = Scratch::new();
        write(&scratch, &cells, WriterOptions { checksum, encoding, compress_tags, ..deep(BloomType::Row) });
        damage_every_byte(&scratch.bytes(), &cells);
    }
}

fn damage_every_byte(good: &[u8], cells: &[Cell]) {
    let cache = Arc::new(BlockCache::new(0));
    for at in 0..good.len() - trailer::TRAILER_LEN {
        let mut bad = good.to_vec();
        bad[at] ^= 1 << (at * 5 % 8);
        let scratch = Scratch::new(); // one remembers every version of the file
        scratch.put(&bad);
        let Ok(file) = open_with(&scratch, &cache, ReaderOptions::default()) else { continue };
        let mut scanner = file.scanner(ReadMode::AnyDisk, true);
        for cell in cells.iter().step_by(11) {
            let _ = scanner.seek(cell.get().key());
            let _ = scanner.seek_before(cell.get().key());
            let _ = file.may_contain_row(cell.row(), ReadMode::AnyDisk);
        }
        let _ = (scan(&file), file.verify(), file.mid_key(ReadMode::AnyDisk));
    }
}

fn any_cells() -> impl Strategy<Value = Vec<Cell>> {
    let part = |max| prop::collection::vec(prop_oneof![Just(0u8), Just(b','), Just(b'a'), Just(255)], 0..max);
    let kind = prop_oneof![
        4 => Just(CellType::Put),
        1 => Just(CellType::DeleteColumn),
        1 => Just(CellType::DeleteFamily)
    ];
    let tags = prop_oneof![Just(vec![]), Just(vec![0, 3, 8, 1, 2])];
    let cell = (part(6), part(3), 0i64..5, kind, prop::collection::vec(any::<u8>(), 0..60), tags, 0u64..1000)
        .prop_map(|(mut row, qualifier, ts, kind, value, tags, seq)| {
            row.push(b'r');
            let qualifier = if kind == CellType::DeleteFamily { vec![] } else { qualifier };
            Cell::build(&row, b"f", &qualifier, ts, kind, &value, &tags, seq)
        });
    prop::collection::vec(cell, 0..300)
}

/// What a seek and a seek_before must find, by asking every cell.
fn model(c: CellComparator, cells: &[Cell], key: KeyRef<'_>) -> (Option<Cell>, Option<Cell>) {
    let at = cells.partition_point(|cell| c.compare_keys(cell.get().key(), key).is_lt());
    let before = at.checked_sub(1).map(|before| cells[before].clone());
    // Of equal keys the last is before.
    (cells.get(at).cloned(), before)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..Default::default() })]
    #[test]
    fn random_files_are_equal_to_a_sorted_list(
        cells in any_cells(),
        probes in any_cells(),
        meta in any::<bool>(),
        bloom in prop::sample::select(BLOOMS.to_vec()),
        compression in prop::sample::select(vec![Compression::None, Compression::Snappy]),
        encoding in prop::sample::select(BlockEncoding::ALL.to_vec()),
        compress_tags in any::<bool>(),
        block_size in prop::sample::select(vec![256, 4096, 65536]),
        (include_tags, include_mvcc) in any::<(bool, bool)>(),
    ) {
        let comparator = if meta { CellComparator::Meta } else { CellComparator::Default };
        let mut cells = cells;
        cells.sort_by(|a, b| comparator.compare(a.get(), b.get()));
        let stored = |cell: Cell| {
            let seq = if include_mvcc { cell.seq() } else { 0 };
            let bytes = if include_tags { cell.get().bytes() } else { cell.get().bytes_without_tags() };
            CellRef::trusted(bytes, seq).to_cell()
        };
        let scratch = Scratch::new();
        let options = WriterOptions {
            comparator, compression, encoding, compress_tags, block_size, include_tags, include_mvcc, ..deep(bloom)
        };
        write(&scratch, &cells, options);
        cells = cells.into_iter().map(stored).collect();
        let file = open(&scratch);
        prop_assert_eq!(&scan(&file).unwrap(), &cells);
        file.verify().unwrap();
        let mut scanner = file.scanner(ReadMode::AnyDisk, true);
        let mut keys: Vec<Key> = probes.iter().chain(&cells).map(|c| c.get().key().to_key()).collect();
        keys.extend(probes.iter().flat_map(|c| [Key::first_on_row(c.row()), Key::last_on_row(c.row())]));
        for key in &keys {
            let (at, before) = model(comparator, &cells, key.get());
            scanner.seek(key.get()).unwrap();
            prop_assert_eq!(scanner.cell(), at);
            scanner.seek_before(key.get()).unwrap();
            prop_assert_eq!(scanner.cell(), before);
        }
        keys.sort_by(|a, b| comparator.compare_keys(a.get(), b.get()));
        scanner.seek_to_first().unwrap();
        for key in &keys {
            scanner.reseek(key.get()).unwrap();
            let (at, _) = model(comparator, &cells, key.get());
            prop_assert_eq!(scanner.cell().as_ref().map(Cell::get).map(|c: CellRef<'_>| c.bytes().to_vec()),
                at.as_ref().map(|c| c.bytes().to_vec()));
            if at.is_none() { break }
        }
        scanner.seek_to_last().unwrap();
        prop_assert_eq!(scanner.cell(), cells.last().cloned());
    }
}

/// A cell that comes out of a cached block of plain cells is a piece of the block, not a copy.
#[test]
fn cells_of_a_cached_block_are_slices_of_it() {
    for (encoding, copied) in
        [(BlockEncoding::None, false), (BlockEncoding::RowIndexV1, false), (BlockEncoding::FastDiff, true)]
    {
        let scratch = Scratch::new();
        let cells: Vec<Cell> =
            (0..20).map(|n| Cell::put(format!("r{n:02}").as_bytes(), b"f", b"q", 1, &[n; 10_000])).collect();
        write(&scratch, &cells, WriterOptions { encoding, ..Default::default() });
        let cache = Arc::new(BlockCache::new(64 << 20));
        let file = open_with(&scratch, &cache, ReaderOptions::default()).unwrap();
        assert_eq!(scan(&file).unwrap(), cells);
        let decoded = cache.stats().decoded_bytes;
        let mut scanner = file.scanner(ReadMode::CacheOnly, true);
        scanner.seek_to_first().unwrap();
        while let Some(cell) = scanner.cell() {
            let block = scanner.block_for_test();
            let (block, cell) = (block.bytes().as_ptr_range(), cell.bytes().as_ptr_range());
            let inside = block.start <= cell.start && cell.end <= block.end;
            assert_eq!(inside, !copied, "{}", encoding.name());
            scanner.next().unwrap();
        }
        let decoded = cache.stats().decoded_bytes - decoded;
        assert_eq!(decoded > 200_000, copied, "{} bytes of {}", decoded, encoding.name());
        assert!(copied || decoded == 0);
    }
}

/// Blocks belong to what the file is: a file written anew under an old name begins without any.
#[test]
fn another_file_of_the_same_name_has_blocks_of_its_own() {
    let scratch = Scratch::new();
    let cache = Arc::new(BlockCache::new(64 << 20));
    for (value, created) in [(b"one", 1), (b"two", 2), (b"one", 3)] {
        let cells: Vec<Cell> = (0..100).map(|n| Cell::put(&[n], b"f", b"q", 1, value)).collect();
        write(&scratch, &cells, WriterOptions { create_time_ms: Some(created), ..Default::default() });
        let before = cache.stats();
        for _ in 0..2 {
            let file = open_with(&scratch, &cache, ReaderOptions::default()).unwrap();
            assert_eq!(scan(&file).unwrap(), cells);
        }
        let after = cache.stats();
        assert_eq!(after.inserts_count - before.inserts_count, 1, "found again when it was opened again");
    }
}

/// A long scan through real files reads each block once, whatever the scanner does: what was read again stays.
#[test]
fn a_scan_of_a_cold_file_leaves_the_hot_one_in_memory() {
    let scratch = Scratch::new();
    let cells: Vec<Cell> = (0..30_000u32)
        .map(|n| Cell::put(format!("row{n:06}").as_bytes(), b"f", b"q", 1, &[7; 1000]))
        .collect();
    write(&scratch, &cells[..2000], WriterOptions { block_size: 16 << 10, ..Default::default() });
    let cache = Arc::new(BlockCache::new(8 << 20));
    let hot = open_with(&scratch, &cache, ReaderOptions::default()).unwrap();
    for _ in 0..3 {
        scan(&hot).unwrap();
    }
    write(&scratch, &cells, WriterOptions { block_size: 16 << 10, ..Default::default() });
    let cold = open_with(&scratch, &cache, ReaderOptions::default()).unwrap();
    let mut scanner = cold.scanner(ReadMode::AnyDisk, true);
    scanner.seek_to_first().unwrap();
    for (at, cell) in cells.iter().enumerate() {
        // As the scan of a region does it: a step, and now and then a jump to the next row.
        if at % 3 == 0 {
            scanner.reseek(cell.get().key()).unwrap()
        }
        assert_eq!(scanner.peek().unwrap().row(), cell.row());
        scanner.next().unwrap();
    }
    assert!(cache.stats().evictions_count > 1000);
    let misses = cache.stats().misses_count;
    assert_eq!(scan(&hot).unwrap().len(), 2000);
    let missed = cache.stats().misses_count - misses;
    assert!(missed <= 8, "{missed} of 125 blocks had gone");
}
