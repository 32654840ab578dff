//! Damage behind right checksums: every decoder of this crate gets to see it.
//!
//! Seeds are files that HBase wrote (`testdata/`: all encodings, codecs and bloom filters) and files of ours with several
//! index levels. Their blocks are changed before the checksums are computed, once block by block and once within a
//! whole file that is then opened, walked and sought in. Nothing may panic, run for ever, or take memory that the bytes do
//! not justify; what comes out must be cells. `cargo xtask fuzz hfile` runs this with new seeds.
#![allow(clippy::disallowed_methods)] // reads testdata and /proc

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use halcyon_cache::{BlockCache, BlockKind};
use halcyon_cell::{
    Cell, CellComparator, CellRef, CellScanner, CellType, Error, ErrorKind, Key, KeyRef, SeqId,
};
use halcyon_compression::{compress, decompress};
use halcyon_env::Env;
use halcyon_env::sim::SimFileSystem;

use crate::block::{HEADER_LEN, Header, open_block};
use crate::bloom::Bloom;
use crate::data_block::{self, CellLayout, Marks, cell_at};
use crate::encoding::tests::decode;
use crate::index::{KeyOrder, RootIndex, check_node, read_all_entries};
use crate::trailer::{self, TRAILER_LEN};
use crate::{
    BlockEncoding, BloomType, ChecksumType, Compression, FileInfo, FileMeta, HFile, HFileWriter, ReadMode,
    ReaderOptions, WriterOptions,
};

pub(super) const NAME: &str = "/file";
/// No seed file has as many cells, however its index is bent.
const CELLS_COUNT_MAX: usize = 100_000;
/// Above what the tests of this crate hold at once.
const RESIDENT_KIB_MAX: u64 = 1 << 20;

/// Damage that repeats itself from its seed.
struct Dice(halcyon_env::sim::Dice);

impl Dice {
    /// `HALCYON_SEED` gives another sequence.
    fn new(test: u64) -> Dice {
        let seed = std::env::var("HALCYON_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0u64);
        println!("HALCYON_SEED={seed}");
        Dice(halcyon_env::sim::Dice::new(seed.wrapping_mul(1_000_003).wrapping_add(test)))
    }

    fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    fn below(&mut self, end: usize) -> usize {
        self.0.below(end)
    }

    fn one_in(&mut self, chances: usize) -> bool {
        self.0.one_in(chances)
    }

    /// Bytes in which small numbers are frequent, as in lengths.
    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let small = self.one_in(2);
        let byte = |dice: &mut Dice| match dice.below(4) {
            0 => dice.next() as u8,
            1 if small => dice.below(24) as u8,
            _ if small => 0,
            _ => dice.next() as u8,
        };
        (0..len).map(|_| byte(self)).collect()
    }

    /// Changes some bytes in place; one time in four as an int32.
    fn change(&mut self, bytes: &mut [u8]) {
        for _ in 0..=self.below(3) {
            if bytes.is_empty() {
                return;
            }
            // Counts and lengths of the whole stand at the beginning.
            let end = if self.one_in(3) { bytes.len().min(24) } else { bytes.len() };
            let at = self.below(end);
            match self.below(4) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = [0, 1, 0x7f, 0x80, 0x8f, 0xff][self.below(6)],
                2 => bytes[at] = bytes[at].wrapping_add([1, 0xff][self.below(2)]),
                _ => {
                    let value = match self.below(3) {
                        0 => self.below(bytes.len() + 8) as u32,
                        1 => u32::MAX >> self.below(24),
                        _ => (self.next() as u32) >> self.below(32),
                    };
                    let end = bytes.len().min(at + 4);
                    bytes[at..end].copy_from_slice(&value.to_be_bytes()[..end - at]);
                }
            }
        }
    }

    /// As `change`; also cuts, repeats and inserts.
    fn reshape(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len().max(1));
        match self.below(8) {
            0 => bytes.truncate(at),
            1 => {
                let end = bytes.len().min(at + self.below(64));
                let part = bytes.get(at..end).unwrap_or_default().to_vec();
                let to = self.below(bytes.len().max(1));
                bytes.splice(to..to, part);
            }
            2 => {
                let len = self.below(16);
                let fresh = self.bytes(len);
                bytes.splice(at..at, fresh);
            }
            _ => self.change(bytes),
        }
    }
}

pub(super) struct Seed {
    pub(super) bytes: Vec<u8>,
    compression: Compression,
    comparator: CellComparator,
}

impl Seed {
    fn new(bytes: Vec<u8>) -> Seed {
        let trailer = trailer::parse(&bytes).unwrap();
        Seed { bytes, compression: trailer.compression, comparator: trailer.comparator }
    }

    /// Where blocks start, and what their headers say.
    pub(super) fn blocks(&self) -> Vec<(usize, Header)> {
        let mut blocks = Vec::new();
        let mut at = 0;
        while at < self.bytes.len() - TRAILER_LEN {
            let header = Header::parse(&self.bytes[at..]).unwrap();
            blocks.push((at, header));
            at += header.on_disk_len;
        }
        blocks
    }
}

pub(super) fn seeds() -> Vec<Seed> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let mut paths: Vec<_> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "hfile"));
    // Their blocks cannot be changed from outside: tests/encrypted.rs damages such files.
    paths
        .retain(|path| !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("encrypted")));
    paths.sort();
    let mut seeds: Vec<Seed> = paths.iter().map(|path| Seed::new(std::fs::read(path).unwrap())).collect();
    assert!(seeds.len() >= 22, "golden files are gone");
    for (compression, bloom, encoding) in [
        (Compression::None, BloomType::Row, BlockEncoding::None),
        (Compression::None, BloomType::RowCol, BlockEncoding::FastDiff),
        (Compression::Lz4, BloomType::RowPrefixFixedLength(4), BlockEncoding::None),
        (Compression::Zstd, BloomType::None, BlockEncoding::RowIndexV1),
        (Compression::None, BloomType::Row, BlockEncoding::Diff),
    ] {
        seeds.push(Seed::new(ours(compression, bloom, encoding)));
    }
    seeds
}

/// A file with several levels of index and several bloom chunks.
fn ours(compression: Compression, bloom: BloomType, encoding: BlockEncoding) -> Vec<u8> {
    let env = SimFileSystem::new().env();
    let options = WriterOptions {
        compression,
        bloom,
        checksum: ChecksumType::Crc32c,
        encoding,
        compress_tags: true,
        // Blocks of several runs of cells, where there are runs.
        block_size: if encoding == BlockEncoding::Diff { 5000 } else { 200 },
        index_chunk_bytes: 200,
        index_entries_min: 2,
        bloom_chunk_bytes: 64,
        ..Default::default()
    };
    let mut writer = HFileWriter::create(&env, Path::new(NAME), options).unwrap();
    for row in 0..150u64 {
        let name = format!("row{row:03}");
        let (tags, value): (&[u8], _) = (&[0, 2, 8, 1][..if row % 3 == 0 { 4 } else { 0 }], [7; 9]);
        if row % 7 == 0 {
            let marker =
                Cell::build(name.as_bytes(), b"f", b"", 9, CellType::DeleteFamily, b"", b"", row * 100);
            writer.append(marker.get()).unwrap();
        }
        let put = Cell::build(name.as_bytes(), b"f", b"q", 5, CellType::Put, &value, tags, row * 100);
        writer.append(put.get()).unwrap();
    }
    writer.finish(FileMeta { max_seq_id: Some(SeqId::new(9)), ..Default::default() }).unwrap();
    env.fs.read(Path::new(NAME)).unwrap()
}

/// Computes the checksums of a block anew, if its header still says where they are.
fn mend_checksums(block: &mut [u8]) {
    let Ok(header) = Header::parse(block) else { return };
    if header.checksum == ChecksumType::Null || header.on_disk_len > block.len() {
        return;
    }
    let (guarded, sums) = block[..header.on_disk_len].split_at_mut(header.guarded_len);
    for (run, sum) in guarded.chunks(header.bytes_per_checksum).zip(sums.chunks_exact_mut(4)) {
        sum.copy_from_slice(&header.checksum.compute(run).to_be_bytes());
    }
}

/// A whole block around `payload` with the magic of `like`; lengths and checksums are right.
fn block_around(payload: &[u8], like: &[u8], compression: Compression) -> Vec<u8> {
    let mut block = like[..HEADER_LEN].to_vec();
    compress(compression, payload, payload.len() % 2 == 1, &mut block).unwrap();
    let per_checksum = Header::parse(like).unwrap().bytes_per_checksum;
    let guarded_len = block.len();
    block.resize(guarded_len + guarded_len.div_ceil(per_checksum) * 4, 0);
    let on_disk_len = (block.len() - HEADER_LEN) as u32;
    block[8..12].copy_from_slice(&on_disk_len.to_be_bytes());
    block[12..16].copy_from_slice(&(payload.len() as u32).to_be_bytes());
    block[29..33].copy_from_slice(&(guarded_len as u32).to_be_bytes());
    mend_checksums(&mut block);
    block
}

fn check_error(error: &Error) {
    let known = matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Invalid | ErrorKind::Io);
    assert!(known && !error.message().is_empty(), "{error:?}");
}

/// The most memory that this process ever had resident.
fn assert_memory() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib < RESIDENT_KIB_MAX, "{kib} KiB were resident");
}

/// Every decoder of a block of this kind; whether the block was accepted.
fn decode_block(
    block: Vec<u8>,
    compression: Compression,
    comparator: CellComparator,
    dice: &mut Dice,
) -> bool {
    let raw = match open_block(block, compression, None) {
        Ok(raw) => raw,
        Err(error) => {
            check_error(&error);
            return false;
        }
    };
    assert_eq!(raw.payload.len(), raw.header.raw_len);
    let payload = raw.payload;
    let result = match raw.header.kind {
        BlockKind::Data => return decode_cells(&payload, raw.header.encoded, comparator, dice),
        BlockKind::LeafIndex | BlockKind::IntermediateIndex => {
            check_node(&payload, comparator).map(|()| read_all_entries(&payload))
        }
        BlockKind::RootIndex => {
            let count = if dice.one_in(2) { payload.len() / 40 } else { dice.next() as u32 as usize };
            let order = if dice.one_in(4) { KeyOrder::Bytes } else { KeyOrder::Cells(comparator) };
            RootIndex::parse(&payload, 0, count as u32, order).map(|root| read_root(&root))
        }
        BlockKind::FileInfo => FileInfo::parse(&payload).map(|info| drop(info.compacted_from())),
        BlockKind::GeneralBloomMeta | BlockKind::DeleteFamilyBloomMeta => {
            Bloom::parse(&payload, dice.one_in(2).then_some(comparator)).map(|bloom| {
                read_root(&bloom.chunks);
                let bits = if dice.one_in(2) { dice.bytes(33) } else { vec![0xff; 33] };
                bloom.chunk_may_contain(&bits, b"row");
            })
        }
        BlockKind::BloomChunk | BlockKind::Meta => Ok(()),
    };
    result.inspect_err(check_error).is_ok()
}

fn read_root(root: &RootIndex) {
    for at in 0..root.len() {
        let _ = (root.key(at), root.place(at));
    }
}

fn decode_cells(payload: &Bytes, encoded: bool, comparator: CellComparator, dice: &mut Dice) -> bool {
    let layout = CellLayout { tags: dice.one_in(2), mvcc: !dice.one_in(4), seq: None };
    let plain =
        if encoded { decode(payload, layout, dice.one_in(2)).map(Bytes::from) } else { Ok(payload.clone()) };
    let checked = plain.and_then(|plain| {
        let marks = data_block::check(&plain, layout, comparator, |_| {})?;
        Ok((plain, marks))
    });
    match checked {
        Ok((plain, marks)) => {
            walk_cells(&plain, Marks::of(&marks), layout, comparator, dice);
            true
        }
        Err(error) => {
            check_error(&error);
            false
        }
    }
}

/// What a scanner does in a block that was accepted.
fn walk_cells(
    bytes: &[u8],
    marks: Marks<'_>,
    layout: CellLayout,
    comparator: CellComparator,
    dice: &mut Dice,
) {
    let (mut at, mut keys) = (0, Vec::new());
    while at < bytes.len() {
        let span = cell_at(bytes, at, layout);
        let cell = span.cell(bytes);
        CellRef::parse(cell.bytes(), 0).unwrap();
        if dice.one_in(4) {
            keys.push(cell.key().to_key());
        }
        assert!(span.next > at);
        at = span.next;
    }
    assert_eq!(at, bytes.len());
    keys.push(Key::first_on_row(b"row000"));
    for key in keys {
        let _ = data_block::seek(bytes, marks, layout, comparator, key.get(), 0);
        let _ = data_block::seek_before(bytes, marks, layout, comparator, key.get());
    }
}

#[test]
fn damaged_blocks_are_refused_or_hold_cells() {
    let mut dice = Dice::new(1);
    let (mut accepted, mut refused) = (0, 0);
    for seed in seeds() {
        for (at, header) in seed.blocks() {
            let whole = &seed.bytes[at..at + header.on_disk_len];
            let payload = open_block(whole.to_vec(), seed.compression, None).unwrap().payload;
            for _ in 0..200 {
                let mut block = if dice.one_in(4) {
                    // The bytes as they are on disk: headers and compressed streams.
                    let mut block = whole.to_vec();
                    if dice.one_in(2) {
                        dice.change(&mut block[HEADER_LEN..header.guarded_len]);
                    } else {
                        dice.reshape(&mut block);
                    }
                    mend_checksums(&mut block);
                    block
                } else {
                    let mut payload = payload.to_vec();
                    dice.reshape(&mut payload);
                    block_around(&payload, whole, seed.compression)
                };
                if dice.one_in(16) {
                    let end = block.len().min(12);
                    dice.change(&mut block[..end]);
                }
                let ok = decode_block(block, seed.compression, seed.comparator, &mut dice);
                *(if ok { &mut accepted } else { &mut refused }) += 1;
            }
        }
    }
    assert!(accepted > 1000 && refused > 1000, "{accepted} accepted, {refused} refused: no teeth");
    assert_memory();
}

#[test]
fn random_payloads_are_refused_or_hold_cells() {
    let mut dice = Dice::new(2);
    let seeds = seeds();
    let likes: Vec<Vec<u8>> = seeds
        .iter()
        .flat_map(|seed| seed.blocks().into_iter().map(|(at, _)| seed.bytes[at..at + HEADER_LEN].to_vec()))
        .collect();
    let codecs = Compression::ALL;
    for _ in 0..100_000 {
        let like = &likes[dice.below(likes.len())];
        let len = dice.below(200);
        let mut payload = dice.bytes(len);
        if like.starts_with(b"DATABLKE") && len > 6 {
            payload[0] = 0;
            payload[1] = [2, 3, 4, 7][dice.below(4)];
            payload[2..4].fill(0);
        }
        let codec = codecs[dice.below(codecs.len())];
        let comparator = if dice.one_in(8) { CellComparator::Meta } else { CellComparator::Default };
        let block = block_around(&payload, like, codec);
        decode_block(block, codec, comparator, &mut dice);
        // The same bytes as a compressed stream, and without any frame.
        let raw_len = dice.below(1 << 20);
        if let Ok(out) = decompress(codec, &payload, raw_len) {
            assert_eq!(out.len(), raw_len);
        }
        let _ = FileInfo::parse(&Bytes::from([b"PBUF", &payload[..]].concat())).map_err(|e| check_error(&e));
        let _ = trailer::parse(&payload).map_err(|e| check_error(&e));
    }
    assert_memory();
}

/// Changes one field of the trailer's message, which no checksum guards.
fn change_trailer(bytes: &mut [u8], dice: &mut Dice) {
    let start = bytes.len() - TRAILER_LEN;
    if dice.one_in(3) {
        let end = start + 160;
        dice.change(&mut bytes[start..end]);
        return;
    }
    let mut proto = trailer::parse(&bytes[start..]).unwrap().proto;
    let near = |dice: &mut Dice, value: u64| match dice.below(5) {
        0 => 0,
        1 => value.wrapping_add(1),
        2 => value.wrapping_sub(1),
        3 => dice.next() >> dice.below(64),
        _ => dice.below(start) as u64,
    };
    match dice.below(6) {
        0 => proto.load_on_open_data_offset = Some(near(dice, proto.load_on_open_data_offset())),
        1 => proto.data_index_count = Some(near(dice, proto.data_index_count().into()) as u32),
        2 => proto.num_data_index_levels = Some(dice.below(20) as u32),
        3 => proto.entry_count = Some(near(dice, proto.entry_count())),
        4 => proto.compression_codec = Some(dice.below(9) as u32),
        _ => proto.comparator_class_name = Some(CellComparator::Meta.trailer_name().to_string()),
    }
    bytes[start..].copy_from_slice(&trailer::encode(&proto));
}

#[test]
fn damaged_files_are_refused_or_read_to_their_end() {
    let mut dice = Dice::new(3);
    let seeds = seeds();
    let (mut opened, mut refused) = (0, 0);
    for _ in 0..8_000 {
        let seed = &seeds[dice.below(seeds.len())];
        let mut bytes = seed.bytes.clone();
        let blocks = seed.blocks();
        for _ in 0..=dice.below(2) {
            let (at, header) = blocks[dice.below(blocks.len())];
            let block = &mut bytes[at..at + header.on_disk_len];
            if dice.one_in(6) {
                dice.change(block);
            } else {
                dice.change(&mut block[HEADER_LEN..header.guarded_len]);
            }
            mend_checksums(block);
        }
        if dice.one_in(4) {
            change_trailer(&mut bytes, &mut dice);
        }
        match read_file(&bytes, &mut dice) {
            Ok(()) => opened += 1,
            Err(error) => {
                check_error(&error);
                refused += 1;
            }
        }
    }
    assert!(opened > 300 && refused > 100, "{opened} opened, {refused} refused: no teeth");
    assert_memory();
}

/// Opens a file and does everything that is done with one. An error is that of opening it.
fn read_file(bytes: &[u8], dice: &mut Dice) -> Result<(), Error> {
    let env: Env = SimFileSystem::new().env();
    env.fs.replace(Path::new(NAME), bytes).unwrap();
    let cache = Arc::new(BlockCache::new(if dice.one_in(2) { 0 } else { 1 << 20 }));
    let options = ReaderOptions { cell_seq: dice.one_in(8).then_some(SeqId::new(3)), ..Default::default() };
    let file = HFile::open(&env, Path::new(NAME), &cache, options)?;
    let mode = ReadMode::AnyDisk;
    let mut scanner = file.scanner(mode, true);
    let mut keys = vec![Key::first_on_row(b"row050"), Key::first_on_row(b""), Key::last_on_row(&[0xff; 9])];
    let mut count = 0;
    let mut step = scanner.seek_to_first();
    while let (Ok(()), Some(cell)) = (&step, scanner.cell()) {
        CellRef::parse(cell.get().bytes(), 0).unwrap();
        if count % 40 == 0 {
            keys.push(cell.get().key().to_key());
        }
        count += 1;
        assert!(count < CELLS_COUNT_MAX, "a scan goes in circles");
        step = scanner.next();
    }
    let _ = step.map_err(|e| check_error(&e));
    let _ = scanner.seek_to_last().map_err(|e| check_error(&e));
    for key in &keys {
        let (row, qualifier) = (key.get().row(), key.get().qualifier());
        let _ = scanner.seek(key.get()).map_err(|e| check_error(&e));
        let _ = scanner.reseek(keys[dice.below(keys.len())].get()).map_err(|e| check_error(&e));
        let _ = scanner.seek_before(key.get()).map_err(|e| check_error(&e));
        let _ = file.may_contain_row_col(row, qualifier, mode).map_err(|e| check_error(&e));
        let _ = file.may_contain_row_prefix(row, mode).map_err(|e| check_error(&e));
        let _ = file.may_contain_delete_family(row, mode).map_err(|e| check_error(&e));
    }
    let _ = file.mid_key(mode).map_err(|e| check_error(&e));
    let _ = file.verify().map_err(|e| check_error(&e));
    let info = file.info();
    let ends = [info.first_key(), info.last_key()].into_iter().flatten();
    for key in ends {
        KeyRef::parse(key.bytes()).unwrap();
    }
    let _ = (info.compacted_from(), info.earliest_put_ts(), info.time_range(), file.held_bytes());
    Ok(())
}

/// Were it followed, a file whose index has many levels could be walked for ever.
#[test]
fn an_index_that_leads_back_is_refused() {
    let seed = Seed::new(ours(Compression::None, BloomType::None, BlockEncoding::None));
    let leaf = |header: &Header| header.kind == BlockKind::LeafIndex;
    let (at, header) = seed.blocks().into_iter().filter(|(_, header)| leaf(header)).nth(3).unwrap();
    let mut bytes = seed.bytes.clone();
    let block = &mut bytes[at..at + header.on_disk_len];
    let int = |block: &[u8], at: usize| {
        u32::from_be_bytes(block[HEADER_LEN + at..HEADER_LEN + at + 4].try_into().unwrap()) as usize
    };
    let count = int(block, 0);
    let entries = HEADER_LEN + 4 + 4 * (count + 1);
    let second = entries + int(block, 8);
    block.copy_within(entries..entries + 12, second);
    mend_checksums(block);

    let env = SimFileSystem::new().env();
    env.fs.replace(Path::new(NAME), &bytes).unwrap();
    let cache = Arc::new(BlockCache::new(1 << 20));
    let file = HFile::open(&env, Path::new(NAME), &cache, ReaderOptions::default()).unwrap();
    let mut scanner = file.scanner(ReadMode::AnyDisk, true);
    scanner.seek_to_first().unwrap();
    let error = loop {
        assert!(scanner.peek().is_some(), "the end was reached");
        if let Err(error) = scanner.next() {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains("index: expected a block behind"), "{error}");
    assert!(scanner.peek().is_none());
    assert_eq!(file.verify().unwrap_err().kind(), ErrorKind::Corrupt);
}
