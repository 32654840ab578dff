//! Every combination of encoding, compression, bloom filter, tags and depth of the index, both ways between HBase
//! 2.6.4's classes and ours. Needs HBase's jars and a JDK 17; `testing/compat/files.sh` runs it, or
//! `HALCYON_HBASE_LIB=<directory of jars> cargo test -p halcyon-hfile --test matrix -- --ignored --nocapture`.
#![allow(clippy::disallowed_methods)] // test files

mod common;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use common::*;
use halcyon_cell::{Cell, CellRef, SeqId};
use halcyon_hfile::{BlockEncoding, BloomType, ChecksumType, Compression, FileKey, FileMeta, WriterOptions};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tags {
    /// Neither tags nor sequence ids.
    None,
    Plain,
    Compressed,
}

/// One combination. The name is a store file's.
#[derive(Clone, Debug)]
struct Case {
    name: String,
    encoding: BlockEncoding,
    compression: Compression,
    bloom: BloomType,
    tags: Tags,
    block_size: usize,
    index_size: usize,
    checksum: ChecksumType,
    /// Bytes of the key that it is encrypted with; 0: it is not.
    key_len: usize,
}

const BLOOMS: [BloomType; 4] =
    [BloomType::None, BloomType::Row, BloomType::RowCol, BloomType::RowPrefixFixedLength(6)];
const CHECKSUMS: [ChecksumType; 3] = [ChecksumType::Crc32c, ChecksumType::Crc32, ChecksumType::Null];

fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for encoding in BlockEncoding::ALL {
        for compression in Compression::ALL {
            for bloom in BLOOMS {
                for tags in [Tags::None, Tags::Plain, Tags::Compressed] {
                    // Several levels of blocks of a few cells, and one level of larger ones.
                    for (block_size, index_size) in [(200, 100), (2000, 1 << 17)] {
                        let number = cases.len();
                        let (name, checksum) = (format!("{number:032x}"), CHECKSUMS[number / 2 % 3]);
                        // Encryption knows nothing of filters, tags and indexes.
                        let key_len = if bloom == BLOOMS[1] { [0, 16][number / 2 % 2] } else { 0 };
                        cases.push(Case {
                            name,
                            encoding,
                            compression,
                            bloom,
                            tags,
                            block_size,
                            index_size,
                            checksum,
                            key_len,
                        });
                    }
                }
            }
        }
    }
    cases
}

impl Case {
    fn options(&self) -> WriterOptions {
        WriterOptions {
            encoding: self.encoding,
            compression: self.compression,
            zstd_in_records: true, // HBase's codec of that kind is the one that needs no native library
            bloom: self.bloom,
            include_tags: self.tags != Tags::None,
            include_mvcc: self.tags != Tags::None,
            compress_tags: self.tags == Tags::Compressed,
            block_size: self.block_size,
            index_chunk_bytes: self.index_size,
            checksum: self.checksum,
            key: match self.key_len {
                0 => None,
                _ => Some(FileKey::Random),
            },
            ..small()
        }
    }

    /// As `HFileMatrix` reads it.
    fn line(&self) -> String {
        let tags = format!("{:?}", self.tags).to_lowercase();
        let checksum = format!("{:?}", self.checksum).to_uppercase();
        let Case { name, block_size, index_size, key_len, .. } = self;
        let (encoding, compression) = (self.encoding.name(), self.compression.name());
        format!(
            "{name} {encoding} {compression} {} {tags} {block_size} {index_size} {checksum} {key_len}",
            self.bloom.name()
        )
    }

    /// What of a cell is in such a file.
    fn stored(&self, cell: &Cell) -> Cell {
        match self.tags {
            Tags::None => CellRef::trusted(cell.get().bytes_without_tags(), 0).to_cell(),
            _ => cell.clone(),
        }
    }
}

fn write_lines(path: &Path, lines: impl Iterator<Item = String>) {
    let mut text = String::new();
    lines.for_each(|line| writeln!(text, "{line}").unwrap());
    std::fs::write(path, text).unwrap();
}

fn text_of(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[test]
#[ignore = "needs HBase's jars"]
fn hbase_reads_every_combination_of_ours() {
    let scratch = Scratch::new("matrix-ours");
    let java = Java::compile(&scratch.0);
    let [files, answers] = ["files", "answers"].map(|name| scratch.0.join(name));
    std::fs::create_dir(&files).unwrap();
    std::fs::create_dir(&answers).unwrap();
    let (cells, cases) = (cells_of("cells.txt"), cases());
    for case in &cases {
        let meta = FileMeta { max_seq_id: Some(SeqId::new(4711)), ..Default::default() };
        write(&files.join(&case.name), &cells, case.options(), meta);
    }
    let list = scratch.0.join("list");
    write_lines(&list, cases.iter().map(|case| text_of(&files.join(&case.name))));
    java.run("HFileMatrix", &["read", &text_of(&list), &text_of(&answers)]);
    for case in &cases {
        let path = files.join(&case.name);
        let found = std::fs::read_to_string(answers.join(&case.name)).unwrap();
        let expected = describe(&path);
        let wrong = found.lines().zip(expected.lines()).find(|(found, expected)| found != expected);
        assert!(found == expected, "{}: {wrong:?}", case.line());
        let stored = scan(&open(&path));
        assert!(stored.iter().eq(cells.iter().map(|cell| case.stored(cell)).collect::<Vec<_>>().iter()));
    }
    println!("HBase read {} files of ours, {} cells each", cases.len(), cells.len());
}

#[test]
#[ignore = "needs HBase's jars"]
fn we_read_every_combination_of_hbases() {
    let scratch = Scratch::new("matrix-hbases");
    let java = Java::compile(&scratch.0);
    let (cells, cases) = (cells_of("cells.txt"), cases());
    let files = scratch.0.join("files");
    std::fs::create_dir(&files).unwrap();
    let list = scratch.0.join("list");
    write_lines(&list, cases.iter().map(Case::line));
    java.run("HFileMatrix", &["write", &text_of(&files), &text_of(&list)]);
    let (mut same_bytes, mut deep) = (0, 0);
    for case in &cases {
        let path: PathBuf = files.join(format!("{}.hfile", case.name));
        let file = open(&path);
        let expected: Vec<Cell> = cells.iter().map(|cell| case.stored(cell)).collect();
        assert!(scan(&file) == expected, "{}", case.line());
        file.verify().unwrap_or_else(|e| panic!("{}: {e}", case.line()));
        check_seeks(&file, &expected);
        deep += u32::from(file.index_levels() >= 3);
        if case.compression == Compression::None && case.key_len == 0 {
            let ours = scratch.0.join("ours");
            let meta = FileMeta { max_seq_id: Some(SeqId::new(4711)), ..Default::default() };
            write(&ours, &cells, case.options(), meta);
            let (ours, theirs) = (std::fs::read(&ours).unwrap(), std::fs::read(&path).unwrap());
            let at = ours.iter().zip(&theirs).position(|(a, b)| a != b);
            assert!(ours == theirs, "{}: differs at {at:?}", case.line());
            same_bytes += 1;
        }
    }
    assert!(deep as usize >= cases.len() / 2, "{deep} files with three index levels or more");
    println!(
        "{} files of HBase's read, {deep} of them with three index levels or more; of {same_bytes} without \
         compression ours are the same bytes",
        cases.len()
    );
}
