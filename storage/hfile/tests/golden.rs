//! HBase's files read by us, and ours by HBase.
//!
//! `testdata/` holds files that HBase 2.6.4 wrote, and the cells in them as text; `HFileGolden.java` under
//! `testing/compat/golden/` made both. The second half needs HBase's jars and a JDK 17, and is run with
//! `HALCYON_HBASE_LIB=<directory of jars> cargo test -p halcyon-hfile --test golden -- --ignored`; with
//! `HALCYON_REWRITE=1` as well, the golden files are written anew.
#![allow(clippy::disallowed_methods)] // test files

mod common;

use common::*;
use halcyon_cell::{Cell, CellComparator, CellType, SeqId};
use halcyon_hfile::{BlockEncoding, BloomType, ChecksumType, Compression, FileMeta, HFile, WriterOptions};

#[test]
fn files_of_hbase_hold_the_cells_that_were_written() {
    let no_mvcc = |cells: &[Cell]| cells.iter().map(|c| c.clone().with_seq(0)).collect::<Vec<_>>();
    let (all, few, meta) = (cells_of("cells.txt"), cells_of("few-cells.txt"), cells_of("meta-cells.txt"));
    for (name, expected) in [
        ("row", all.clone()),
        ("rowcol", few.clone()),
        ("rowprefix", few.clone()),
        ("gz", few.clone()),
        ("snappy", few.clone()),
        ("zstd", few.clone()),
        ("lz4", few.clone()),
        ("lzo", few.clone()),
        ("bzip2", few.clone()),
        ("lzma", few.clone()),
        ("brotli", few.clone()),
        ("crc32", few.clone()),
        ("prefix", all.clone()),
        ("diff", all.clone()),
        ("fast-diff", all.clone()),
        ("row-index-v1", all.clone()),
        ("prefix-tags", few.clone()),
        ("diff-tags", few.clone()),
        ("fast-diff-tags", few.clone()),
        ("row-index-v1-tags", few.clone()),
        ("meta", meta),
        ("bulk", no_mvcc(&few)),
        ("empty", vec![]),
    ] {
        let file = open(&testdata(&format!("{name}.hfile")));
        let found = scan(&file);
        assert_eq!(found.len(), expected.len(), "{name}");
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(line(found), line(expected), "{name}");
        }
        file.verify().unwrap_or_else(|e| panic!("{name}: {e}"));
        check_seeks(&file, &expected);
        assert_eq!(file.comparator() == CellComparator::Meta, name == "meta");
        assert_eq!(file.info().bulk_load_time_ms().is_some(), name == "bulk");
    }
}

#[test]
fn facts_about_a_file_of_hbase() {
    let file = open(&testdata("row.hfile"));
    let info = file.info();
    assert_eq!(
        (info.max_seq_id(), info.is_major(), info.bloom_type()),
        (Some(SeqId::new(4711)), true, BloomType::Row)
    );
    assert_eq!(info.create_time_ms(), Some(1_700_000_000_000));
    assert_eq!(info.compacted_from().unwrap(), Vec::<String>::new());
    let prefix = open(&testdata("rowprefix.hfile"));
    assert_eq!(prefix.info().bloom_type(), BloomType::RowPrefixFixedLength(6));
}

/// The same cells through our writer must give the same facts.
#[test]
fn our_file_says_of_itself_what_hbases_says() {
    let scratch = Scratch::new("facts");
    for (name, bloom) in [
        ("row", BloomType::Row),
        ("rowcol", BloomType::RowCol),
        ("rowprefix", BloomType::RowPrefixFixedLength(6)),
        ("empty", BloomType::Row),
    ] {
        let golden = open(&testdata(&format!("{name}.hfile")));
        let path = scratch.0.join(name);
        let major_compaction = golden.info().is_major();
        let meta = FileMeta { max_seq_id: Some(SeqId::new(4711)), major_compaction, ..Default::default() };
        write(&path, &scan(&golden), WriterOptions { bloom, ..small() }, meta);
        let ours = open(&path);
        let entries =
            |file: &HFile| file.info().iter().map(|(k, v)| (k.clone(), v.clone())).collect::<Vec<_>>();
        assert_eq!(entries(&ours), entries(&golden), "{name}");
    }
}

/// The same cells, the same settings: the same file, to the last byte. Not so what a compressor made, and files of
/// `hbase:meta` with a ROWCOL filter, where HBase names another order of its chunks than the one they have.
#[test]
fn our_files_are_hbases_byte_for_byte() {
    let scratch = Scratch::new("bytes");
    let encoded = |encoding| WriterOptions { encoding, block_size: 1024, bloom: BloomType::None, ..small() };
    let tags = |encoding| WriterOptions { compress_tags: true, ..encoded(encoding) };
    let cases: Vec<(&str, WriterOptions)> = vec![
        ("row", small()),
        ("rowcol", WriterOptions { bloom: BloomType::RowCol, ..small() }),
        ("rowprefix", WriterOptions { bloom: BloomType::RowPrefixFixedLength(6), ..small() }),
        (
            "crc32",
            WriterOptions {
                checksum: ChecksumType::Crc32,
                bytes_per_checksum: 100,
                bloom: BloomType::None,
                ..small()
            },
        ),
        ("prefix", encoded(BlockEncoding::Prefix)),
        ("diff", encoded(BlockEncoding::Diff)),
        ("fast-diff", encoded(BlockEncoding::FastDiff)),
        ("row-index-v1", encoded(BlockEncoding::RowIndexV1)),
        ("prefix-tags", tags(BlockEncoding::Prefix)),
        ("diff-tags", tags(BlockEncoding::Diff)),
        ("fast-diff-tags", tags(BlockEncoding::FastDiff)),
        ("row-index-v1-tags", tags(BlockEncoding::RowIndexV1)),
        ("empty", small()),
    ];
    for (name, options) in cases {
        let golden = testdata(&format!("{name}.hfile"));
        let path = scratch.0.join(name);
        let meta = FileMeta {
            max_seq_id: Some(SeqId::new(4711)),
            major_compaction: name == "row",
            ..Default::default()
        };
        write(&path, &scan(&open(&golden)), options, meta);
        let (ours, theirs) = (std::fs::read(&path).unwrap(), std::fs::read(&golden).unwrap());
        let at = ours.iter().zip(&theirs).position(|(a, b)| a != b);
        assert!(ours == theirs, "{name}: differs at {at:?}, {} and {} bytes", ours.len(), theirs.len());
    }
}

/// Many rows: full-size blocks, chunks and index levels.
fn many_cells() -> Vec<Cell> {
    (0..60_000)
        .map(|n| {
            let row = format!("row{:07}", n / 3 * 7);
            let kind = if n % 300 == 0 { CellType::DeleteFamily } else { CellType::Put };
            let qualifier = if n % 300 == 0 { String::new() } else { format!("q{}", n % 3) };
            let value = vec![b'v'; n % 150];
            let tags: &[u8] = if n % 50 == 7 { &[0, 2, 1, 7] } else { &[] };
            Cell::build(
                row.as_bytes(),
                b"f",
                qualifier.as_bytes(),
                1000 + n as i64,
                kind,
                &value,
                tags,
                n as u64,
            )
        })
        .collect()
}

#[test]
#[ignore = "needs HBase's jars"]
fn hbase_reads_our_files_and_agrees_about_everything() {
    let scratch = Scratch::new("compat");
    let java = Java::compile(&scratch.0);
    let (all, meta, many) = (cells_of("cells.txt"), cells_of("meta-cells.txt"), many_cells());
    let plain = WriterOptions::default;
    let cases: Vec<(&[Cell], WriterOptions)> = vec![
        (&all, small()),
        (&all, WriterOptions { bloom: BloomType::RowCol, ..small() }),
        (&all, WriterOptions { bloom: BloomType::RowPrefixFixedLength(6), ..small() }),
        (&all, WriterOptions { bloom: BloomType::None, checksum: ChecksumType::Crc32, ..small() }),
        (&all, WriterOptions { compression: Compression::Snappy, checksum: ChecksumType::Null, ..small() }),
        (&all, WriterOptions { compression: Compression::Gz, bytes_per_checksum: 100, ..small() }),
        (&meta, WriterOptions { comparator: CellComparator::Meta, bloom: BloomType::RowCol, ..small() }),
        (&all, WriterOptions { encoding: BlockEncoding::Prefix, ..small() }),
        (&all, WriterOptions { encoding: BlockEncoding::Diff, compress_tags: true, ..small() }),
        (&all, WriterOptions { encoding: BlockEncoding::FastDiff, compress_tags: true, ..small() }),
        (&all, WriterOptions { encoding: BlockEncoding::RowIndexV1, compress_tags: true, ..small() }),
        (&many, WriterOptions { encoding: BlockEncoding::Prefix, compress_tags: true, ..plain() }),
        (&many, WriterOptions { encoding: BlockEncoding::Diff, compress_tags: true, ..plain() }),
        (&many, WriterOptions { encoding: BlockEncoding::FastDiff, compress_tags: true, ..plain() }),
        (&many, WriterOptions { encoding: BlockEncoding::RowIndexV1, compress_tags: true, ..plain() }),
        (&many, plain()),
        (&many, WriterOptions { bloom: BloomType::RowCol, compression: Compression::Snappy, ..plain() }),
        (
            &many,
            WriterOptions { block_size: 2000, index_chunk_bytes: 4000, bloom_chunk_bytes: 4096, ..plain() },
        ),
    ];
    let mut paths = Vec::new();
    for (number, (cells, options)) in cases.into_iter().enumerate() {
        let path = scratch.0.join(format!("abc{number}"));
        let meta = FileMeta {
            max_seq_id: Some(SeqId::new(99)),
            major_compaction: number % 2 == 0,
            compacted_from: vec!["00aa".into(), "00bb".into()],
            ..Default::default()
        };
        write(&path, cells, options, meta);
        paths.push(path);
    }
    for golden in
        ["row", "rowcol", "rowprefix", "gz", "snappy", "prefix", "diff", "fast-diff", "row-index-v1", "meta"]
    {
        let path = scratch.0.join(format!("def{}", paths.len()));
        std::fs::copy(testdata(&format!("{golden}.hfile")), &path).unwrap();
        paths.push(path);
    }
    let names: Vec<String> = paths.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    let arguments: Vec<&str> = std::iter::once("read").chain(names.iter().map(String::as_str)).collect();
    let theirs = java.run("HFileGolden", &arguments);
    let ours: String = paths.iter().map(|path| describe(path)).collect();
    let mut file = "";
    for (theirs, ours) in theirs.lines().zip(ours.lines()) {
        file = if ours.starts_with("file ") { ours } else { file };
        assert_eq!(theirs, ours, "{file}");
    }
    assert_eq!(theirs.lines().count(), ours.lines().count());
    let class = "org.apache.hadoop.hbase.io.hfile.HFilePrettyPrinter";
    let printed = java.run(class, &["-m", "-p", "-v", "-b", "-k", "-f", &format!("file://{}", names[0])]);
    assert!(!printed.to_lowercase().contains("exception"), "{printed}");
    assert!(printed.contains(&format!("Scanned kv count -> {}", all.len())), "{printed}");
}

#[test]
#[ignore = "needs HBase's jars"]
fn hbase_writes_the_golden_files_again() {
    let scratch = Scratch::new("rewrite");
    let java = Java::compile(&scratch.0);
    let written = scratch.0.join("written");
    std::fs::create_dir(&written).unwrap();
    java.run("HFileGolden", &["write", &written.to_string_lossy()]);
    for entry in std::fs::read_dir(&written).unwrap() {
        let path = entry.unwrap().path();
        let ours = testdata(&path.file_name().unwrap().to_string_lossy());
        if std::env::var_os("HALCYON_REWRITE").is_some() {
            std::fs::copy(&path, &ours).unwrap();
        }
        assert!(std::fs::read(&path).unwrap() == std::fs::read(&ours).unwrap(), "{}", ours.display());
    }
}
