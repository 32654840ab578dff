//! Encrypted files: written and read by us, and read from HBase. `matrix.rs` has every combination, with HBase's classes.
#![allow(clippy::disallowed_methods)] // test files

mod common;

use std::path::Path;
use std::sync::Arc;

use common::*;
use halcyon_cache::BlockCache;
use halcyon_cell::{CellScanner, Error, ErrorKind};
use halcyon_crypto::DataKey;
use halcyon_env::Env;
use halcyon_hfile::{
    BlockEncoding, BlockWalk, BloomType, ChecksumType, Compression, FileKey, FileMeta, HFile, ReaderOptions,
    WriterOptions,
};

fn open_with(env: &Env, path: &Path) -> Result<Arc<HFile>, Error> {
    HFile::open(env, path, &Arc::new(BlockCache::new(16 << 20)), ReaderOptions::default())
}

fn options(compression: Compression, encoding: BlockEncoding) -> WriterOptions {
    WriterOptions { compression, encoding, key: Some(FileKey::Random), ..small() }
}

/// `HFileMatrix.java` wrote them.
#[test]
fn encrypted_files_of_hbase_are_read() {
    let expected = cells_of("cells.txt");
    for name in ["encrypted", "encrypted-gz"] {
        let file = open(&testdata(&format!("{name}.hfile")));
        assert!(scan(&file) == expected, "{name}");
        file.verify().unwrap();
        check_seeks(&file, &expected);
    }
}

#[test]
fn cells_come_back_and_are_not_in_the_file() {
    let (scratch, cells) = (Scratch::new("encrypted"), cells_of("few-cells.txt"));
    let key = DataKey::aes(&[9; 32]).unwrap();
    for compression in [Compression::None, Compression::Gz, Compression::Snappy] {
        for encoding in [BlockEncoding::None, BlockEncoding::FastDiff, BlockEncoding::RowIndexV1] {
            for key in [FileKey::Random, FileKey::Given(key.clone())] {
                let path = scratch.0.join("file");
                let options = WriterOptions { key: Some(key), ..options(compression, encoding) };
                write(&path, &cells, options, FileMeta::default());
                let file = open(&path);
                assert!(scan(&file) == cells, "{compression:?} {encoding:?}");
                file.verify().unwrap();
                check_seeks(&file, &cells);
                let bytes = std::fs::read(&path).unwrap();
                for cell in cells.iter().filter(|cell| cell.row().len() >= 8) {
                    assert!(!bytes.windows(cell.row().len()).any(|window| window == cell.row()));
                }
            }
        }
    }
}

#[test]
fn a_file_without_cells_can_be_encrypted() {
    let scratch = Scratch::new("encrypted-empty");
    for compression in [Compression::None, Compression::Gz] {
        let path = scratch.0.join("file");
        let options = WriterOptions { bloom: BloomType::RowCol, ..options(compression, BlockEncoding::None) };
        write(&path, &[], options, FileMeta::default());
        assert!(scan(&open(&path)).is_empty());
    }
}

#[test]
fn each_file_has_a_key_of_its_own_unless_it_is_given_one() {
    let (scratch, cells) = (Scratch::new("encrypted-keys"), cells_of("few-cells.txt"));
    let key_of = |name: &str, key: FileKey| {
        let path = scratch.0.join(name);
        let options = WriterOptions { key: Some(key), ..options(Compression::None, BlockEncoding::None) };
        write(&path, &cells, options, FileMeta::default());
        let trailer = open(&path).trailer().clone();
        env().keys.unwrap(trailer.wrapped_key().unwrap()).unwrap().bytes().to_vec()
    };
    assert_ne!(key_of("a", FileKey::Random), key_of("b", FileKey::Random));
    assert_eq!(key_of("c", FileKey::Given(DataKey::aes(&[9; 16]).unwrap())), [9; 16]);
}

#[test]
fn without_its_key_a_file_is_not_opened_but_its_blocks_can_be_walked() {
    let (scratch, cells) = (Scratch::new("encrypted-no-key"), cells_of("few-cells.txt"));
    let path = scratch.0.join("file");
    write(&path, &cells, options(Compression::Gz, BlockEncoding::None), FileMeta::default());
    let error = open_with(&Env::real(), &path).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let start = format!("{}: Key provider ", path.display());
    assert!(error.message().starts_with(&start), "{error}");
    let walk = BlockWalk::open(&Env::real(), &path).unwrap();
    let blocks: Vec<_> = walk.collect();
    assert!(blocks.len() > 10);
    let walk = BlockWalk::open(&Env::real(), &path).unwrap();
    blocks.iter().for_each(|block| walk.check(block.as_ref().unwrap()).unwrap());
}

/// Bytes behind checksums that say nothing, and in the trailer: an error, or the cells that were written; never a panic.
#[test]
fn damage_is_an_error() {
    let (scratch, cells) = (Scratch::new("encrypted-damage"), cells_of("few-cells.txt"));
    for compression in [Compression::None, Compression::Gz] {
        let path = scratch.0.join("file");
        let options =
            WriterOptions { checksum: ChecksumType::Null, ..options(compression, BlockEncoding::None) };
        write(&path, &cells, options, FileMeta::default());
        let good = std::fs::read(&path).unwrap();
        let bad_path = scratch.0.join("bad");
        let mut opened = 0;
        for at in (0..good.len() - 3800).step_by(3) {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            std::fs::write(&bad_path, &bad).unwrap();
            if let Ok(file) = open_with(&env(), &bad_path) {
                opened += 1;
                _ = file.verify();
                let mut scanner = file.scanner(DISK, true);
                let mut more = scanner.seek_to_first().is_ok();
                let mut count = 0;
                while more && scanner.cell().is_some() && count < 100_000 {
                    more = scanner.next().is_ok();
                    count += 1;
                }
            }
        }
        assert!(opened > 10, "{opened}");
    }
}
