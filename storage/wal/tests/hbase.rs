//! Logs between HBase's own classes and ours, in both directions.
//!
//! `testdata/*.wal` were written by `testdata/HBaseWal.java` with HBase 2.6.4, and `entries.txt` is how HBase
//! reads them. The other direction, HBase reading what we wrote, needs its jars and is run by
//! `testing/compat/files.sh`.
#![allow(clippy::disallowed_methods)] // reads testdata

use crate::common;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::Scratch;
use halcyon_cell::{Cell, CellRef, CellType, SeqId, append_tag};
use halcyon_env::Env;
use halcyon_schema::Compression;
use halcyon_wal::{Durability, Wal, WalCompression, WalEntry, WalReader, split_logs};

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)
}

fn key_store() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../base/crypto/testdata/same.jceks")
}

/// This machine, with the keys that `HBaseWal.java` has.
fn env() -> Env {
    Env { keys: common::keys(), ..Env::real() }
}

/// A log as `HBaseWal.java` prints it.
fn print_log(path: &Path) -> String {
    let mut out = String::new();
    let mut reader = WalReader::open(&env(), path).unwrap();
    for entry in &mut reader {
        let (key, cells) = entry.unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let (region, table) = (text(&key.encoded_region_name), text(&key.table_name));
        let (group, nonce) = (key.nonce_group(), key.nonce());
        let (seq, time) = (key.log_sequence_number, key.write_time);
        write!(out, "entry {region} {table} seq={seq} time={time} nonce={group}/{nonce}").unwrap();
        for scope in &key.scopes {
            write!(out, " scope={}/{}", text(&scope.family), scope.scope_type).unwrap();
        }
        out.push('\n');
        for cell in cells {
            assert_eq!(cell.seq(), seq);
            out.push_str("  ");
            cell.bytes().iter().for_each(|byte| write!(out, "{byte:02x}").unwrap());
            out.push('\n');
        }
    }
    assert!(!reader.is_torn());
    out
}

#[test]
fn logs_of_hbase_are_read() {
    let expected = std::fs::read_to_string(testdata("entries.txt")).unwrap();
    assert_eq!(expected.lines().filter(|line| line.starts_with("entry")).count(), 40);
    for kind in ["plain", "secure", "dictionary", "gz", "snappy", "zstd"] {
        assert_eq!(print_log(&testdata(&format!("{kind}.wal"))), expected, "{kind}");
    }
}

/// 190 qualifiers go through a dictionary of 127; every value is its qualifier.
#[test]
fn dictionaries_give_up_the_same_slots_as_those_of_hbase() {
    let reader = WalReader::open(&Env::real(), &testdata("eviction.wal")).unwrap();
    let cells: Vec<Cell> = reader.flat_map(|entry| entry.unwrap().1).collect();
    assert_eq!(cells.len(), 500);
    for (n, cell) in cells.iter().enumerate() {
        assert_eq!(cell.qualifier(), format!("q{}", (n * n + 3 * n) % 401 % 190).as_bytes());
        assert_eq!(cell.value(), cell.qualifier());
    }
}

/// Every kind of entry that we write.
fn write_log(scratch: &Scratch) -> PathBuf {
    let wal = Wal::open(env(), scratch.config()).unwrap();
    let mut tags = Vec::new();
    append_tag(&mut tags, 8, &60_000i64.to_be_bytes());
    for seq in 1..=30u64 {
        let row = format!("row{}", seq % 5);
        let mut cells =
            vec![Cell::put(row.as_bytes(), b"f", b"q", seq as i64, &vec![b'v'; 7 * seq as usize])];
        if seq % 3 == 0 {
            let kind = CellType::DeleteFamily;
            cells.push(Cell::build(row.as_bytes(), b"g", b"", 5, kind, b"", b"", 0));
        }
        if seq % 4 == 0 {
            cells.push(Cell::build(row.as_bytes(), b"f", b"tagged", 9, CellType::Put, b"v", &tags, 0));
        }
        if seq % 10 == 0 {
            // More qualifiers than a dictionary has slots, each of them several times.
            cells.extend((0..200).map(|n| n + 200 * seq).map(|n| {
                let qualifier = format!("q{}", (n * n + 3 * n) % 401 % 190);
                Cell::put(row.as_bytes(), b"f", qualifier.as_bytes(), n as i64, qualifier.as_bytes())
            }));
        }
        let cells: Vec<CellRef<'_>> = cells.iter().map(Cell::get).collect();
        let entry = WalEntry {
            region: b"0123456789abcdef0123456789abcdef",
            table: b"ns:table",
            seq: SeqId::new(seq),
            write_time_ms: 1_700_000_000_000 + seq as i64,
            nonce_group: seq % 2,
            nonce: seq * 3 % 7,
            cluster_ids: &[],
            replicated: &[],
            cells: &cells,
        };
        wal.append(&entry, Durability::SyncWal, Box::new(|result| assert!(result.is_ok()))).unwrap();
        wal.drive();
    }
    let path = wal.current_file();
    let root = scratch.path().to_path_buf();
    wal.close().unwrap();
    let report = split_logs(&env(), &scratch.config().dir, &|_, _| Ok(Some(root.join("recovered.edits"))));
    assert_eq!(report.unwrap().files, [root.join("recovered.edits/0000000000000000030")]);
    path
}

#[test]
#[ignore = "needs HBase's jars: testing/compat/files.sh"]
fn hbase_reads_our_encrypted_logs() {
    common::encrypted(hbase_reads_our_logs);
}

/// ZSTD is read by HBase's own codec class, which the classes of the test have.
#[test]
#[ignore = "needs HBase's jars: testing/compat/files.sh"]
fn hbase_reads_our_compressed_logs() {
    let codecs =
        [Compression::None, Compression::Gz, Compression::Snappy, Compression::Lz4, Compression::Zstd];
    for values in std::iter::once(None).chain(codecs.map(Some)) {
        common::compressed_as(WalCompression { values, zstd_in_records: true }, hbase_reads_our_logs);
    }
}

#[test]
#[ignore = "needs HBase's jars: testing/compat/files.sh"]
fn hbase_reads_our_logs() {
    let lib =
        std::env::var("HALCYON_HBASE_LIB").expect("HALCYON_HBASE_LIB names the directory of HBase's jars");
    let opened = ["java.lang", "java.lang.reflect", "java.io", "java.nio", "java.util", "sun.nio.ch"];
    let mut flags: Vec<String> =
        opened.iter().map(|package| format!("--add-opens=java.base/{package}=ALL-UNNAMED")).collect();
    flags.push("--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED".to_string());
    let scratch = Scratch::new(&format!("hbase-reads-{:?}", std::thread::current().id()));
    let log = write_log(&scratch);
    let recovered = scratch.path().join("recovered.edits/0000000000000000030");
    let jars = format!("{lib}/*");
    let javac = ["-nowarn", "-cp", &jars, "-d"];
    let compiled =
        Command::new("javac").args(javac).arg(scratch.path()).arg(testdata("HBaseWal.java")).status();
    assert!(compiled.unwrap().success());
    let class_path = format!("{jars}:{}", scratch.path().display());
    let codec = "<property><name>hbase.io.compress.zstd.codec</name><value>org.apache.hadoop.hbase.io.compress.zstd.ZstdCodec</value></property>";
    let site = format!("<configuration>{codec}</configuration>");
    std::fs::write(scratch.path().join("core-site.xml"), site).unwrap();
    for path in [log, recovered] {
        let mut java = Command::new("java");
        java.env("HALCYON_KEY_STORE", key_store());
        java.args(&flags).args(["-cp", &class_path, "HBaseWal", "read"]).arg(&path);
        let output = java.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), print_log(&path), "{errors}");
    }
    if env().keys.settings().encrypts_wal {
        return; // the printer takes the keys from a site file
    }
    // And HBase's printer, which is what an operator would use.
    let mut java = Command::new("java");
    java.env("HALCYON_KEY_STORE", key_store());
    java.args(&flags).args(["-cp", &class_path, "org.apache.hadoop.hbase.wal.WALPrettyPrinter"]);
    let output = java.arg(scratch.path().join("recovered.edits/0000000000000000030")).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.matches("Sequence=").count(), 30, "{text}");
}
