//! Bit rot: one bit of a file, in every kind of block that HBase or we write, is another than was written.
//!
//! Whoever reads the file is told which file, at which offset, what was expected and what was found, or, where the trailer's own
//! bytes have no checksum, reads the cells that were written. Nobody gets other cells.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use halcyon_cache::{BlockCache, BlockKind};
use halcyon_cell::{CellScanner, Error, ErrorKind};
use halcyon_env::sim::SimFileSystem;

use super::damage::{NAME, seeds};
use crate::block::HEADER_LEN;
use crate::trailer::TRAILER_LEN;
use crate::{ChecksumType, HFile, ReadMode, ReaderOptions};

/// Payload bytes of a block that are tried, besides all of its header and checksums.
const PLACES_MAX: usize = 12;

/// The cells of a file, by a scan; then everything else in it is read too.
fn read(bytes: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    let env = SimFileSystem::new().env();
    env.fs.replace(Path::new(NAME), bytes)?;
    let cache = Arc::new(BlockCache::new(0));
    let file = HFile::open(&env, Path::new(NAME), &cache, ReaderOptions::default())?;
    let mut scanner = file.scanner(ReadMode::AnyDisk, true);
    let mut cells = Vec::new();
    scanner.seek_to_first()?;
    while let Some(cell) = scanner.cell() {
        cells.push(cell.get().bytes().to_vec());
        scanner.next()?;
    }
    file.verify()?;
    Ok(cells)
}

fn assert_names_all(error: &Error, what: &str) {
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error}");
    for word in [NAME, "offset ", "expected ", "found "] {
        assert!(error.message().contains(word), "{what}: {error} says nothing of \"{word}\"");
    }
}

#[test]
fn rot_in_a_block_is_named() {
    let mut kinds = BTreeSet::new();
    for (number, seed) in seeds().into_iter().enumerate() {
        read(&seed.bytes).unwrap();
        for (begin, header) in seed.blocks() {
            if header.checksum == ChecksumType::Null {
                continue;
            }
            // Of blocks of one kind with no difference but their content the first few will do.
            if number > 0 && header.kind == BlockKind::Data && begin % 7 > 2 {
                continue;
            }
            kinds.insert(format!("{:?}", header.kind));
            let end = begin + header.on_disk_len;
            let payload = begin + HEADER_LEN..begin + header.guarded_len;
            let step = (payload.len() / PLACES_MAX).max(1);
            let places = (begin..begin + HEADER_LEN)
                .chain(payload.step_by(step))
                .chain(begin + header.guarded_len..end);
            for at in places {
                let mut bytes = seed.bytes.clone();
                bytes[at] ^= 1 << (at % 8);
                let what = format!("file {number}, {:?} block at {begin}, byte {}", header.kind, at - begin);
                let error = read(&bytes).map(|_| ()).expect_err(&what);
                assert_names_all(&error, &what);
            }
        }
    }
    let all = [
        "BloomChunk",
        "Data",
        "DeleteFamilyBloomMeta",
        "FileInfo",
        "GeneralBloomMeta",
        "IntermediateIndex",
        "LeafIndex",
        "RootIndex",
    ];
    assert_eq!(kinds, all.map(String::from).into(), "no file has a block of every kind");
}

/// A trailer has no checksum. What contradicts the file is refused; the rest must not matter.
#[test]
fn rot_in_the_trailer_is_named_or_harmless() {
    let mut refused = 0;
    for (number, seed) in seeds().into_iter().enumerate() {
        let cells = read(&seed.bytes).unwrap();
        let begin = seed.bytes.len() - TRAILER_LEN;
        // Behind the message there is nothing but zeros up to the version.
        for at in (begin..begin + 200).chain(seed.bytes.len() - 4..seed.bytes.len()) {
            for bit in [0, 3, 7] {
                let mut bytes = seed.bytes.clone();
                bytes[at] ^= 1 << bit;
                match read(&bytes) {
                    Ok(found) => assert!(found == cells, "file {number}, byte {} of the trailer", at - begin),
                    Err(error) => {
                        let named = error.message().contains(NAME);
                        assert!(named, "file {number}, byte {} of the trailer: {error}", at - begin);
                        refused += 1;
                    }
                }
            }
        }
    }
    assert!(refused > 1000, "{refused} changes of trailers were noticed");
}
