//! Cells as text, files to compare, and HBase's classes to compare with.
#![allow(clippy::disallowed_methods, dead_code)] // test files; not every test needs everything

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use halcyon_cache::BlockCache;
use halcyon_cell::{Cell, CellScanner, CellType, Key};
use halcyon_env::{CryptoSettings, Env};
use halcyon_hfile::{FileMeta, HFile, HFileWriter, ReadMode, ReaderOptions, WriterOptions};

pub const DISK: ReadMode = ReadMode::AnyDisk;

pub fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)
}

/// This machine, with the keys of `base/crypto/testdata/same.jceks`.
pub fn env() -> Env {
    // Opening a key store takes long, by design.
    static ENV: OnceLock<Env> = OnceLock::new();
    let open = || {
        Env::real().with_crypto(CryptoSettings {
            parameters: format!("jceks://{}?password=st0re-pass", key_store().display()),
            master_key: Some("master".to_string()),
            ..CryptoSettings::default()
        })
    };
    ENV.get_or_init(open).clone()
}

fn key_store() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../base/crypto/testdata/same.jceks")
}

pub fn open(path: &Path) -> Arc<HFile> {
    let cache = Arc::new(BlockCache::new(16 << 20));
    HFile::open(&env(), path, &cache, ReaderOptions::default()).unwrap()
}

pub fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() { "-".to_string() } else { bytes.iter().map(|b| format!("{b:02x}")).collect() }
}

pub fn unhex(text: &str) -> Vec<u8> {
    let digits = if text == "-" { "" } else { text };
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

/// `row family qualifier timestamp type value tags sequence-id`, bytes in hex.
pub fn line(cell: &Cell) -> String {
    format!(
        "{} {} {} {} {} {} {} {}",
        hex(cell.row()),
        hex(cell.family()),
        hex(cell.qualifier()),
        cell.timestamp(),
        cell.get().type_code(),
        hex(cell.value()),
        hex(cell.tags()),
        cell.seq()
    )
}

pub fn parse_line(line: &str) -> Cell {
    let parts: Vec<&str> = line.split(' ').collect();
    let kind = CellType::from_code(parts[4].parse().unwrap()).unwrap();
    Cell::build(
        &unhex(parts[0]),
        &unhex(parts[1]),
        &unhex(parts[2]),
        parts[3].parse().unwrap(),
        kind,
        &unhex(parts[5]),
        &unhex(parts[6]),
        parts[7].parse().unwrap(),
    )
}

pub fn cells_of(name: &str) -> Vec<Cell> {
    std::fs::read_to_string(testdata(name)).unwrap().lines().map(parse_line).collect()
}

pub fn scan(file: &Arc<HFile>) -> Vec<Cell> {
    let mut scanner = file.scanner(DISK, true);
    let mut cells = Vec::new();
    scanner.seek_to_first().unwrap();
    while let Some(cell) = scanner.cell() {
        cells.push(cell);
        scanner.next().unwrap();
    }
    cells
}

/// Seeks everywhere in a file that must hold exactly `cells`.
pub fn check_seeks(file: &Arc<HFile>, cells: &[Cell]) {
    let comparator = file.comparator();
    let mut scanner = file.scanner(DISK, true);
    for cell in cells {
        for key in [cell.get().key().to_key(), Key::first_on_row(cell.row()), Key::last_on_row(cell.row())] {
            let at = cells.partition_point(|c| comparator.compare_keys(c.get().key(), key.get()).is_lt());
            scanner.seek(key.get()).unwrap();
            assert_eq!(scanner.cell().as_ref(), cells.get(at));
            scanner.seek_before(key.get()).unwrap();
            assert_eq!(scanner.cell().as_ref(), at.checked_sub(1).map(|before| &cells[before]));
        }
    }
    scanner.seek_to_last().unwrap();
    assert_eq!(scanner.cell().as_ref(), cells.last());
}

pub fn write(path: &Path, cells: &[Cell], options: WriterOptions, meta: FileMeta) {
    let _ = Env::real().fs.remove_file(path); // of an earlier run
    let mut writer = HFileWriter::create(&env(), path, options).unwrap();
    for cell in cells {
        writer.append(cell.get()).unwrap();
    }
    writer.finish(meta).unwrap();
}

/// What `HFileGolden read` prints.
pub fn describe(path: &Path) -> String {
    let file = open(path);
    let info = file.info();
    let mut out = String::new();
    let bit = |value: halcyon_cell::Result<bool>| value.unwrap();
    writeln!(out, "file {}", path.file_name().unwrap().to_string_lossy()).unwrap();
    writeln!(out, "bloom {}", info.bloom_type().name()).unwrap();
    writeln!(out, "seqid {} major {}", info.max_seq_id().unwrap(), info.is_major()).unwrap();
    let (min, max) = info.time_range().unwrap();
    let max_mvcc = info.get("MAX_MEMSTORE_TS_KEY").map_or(-1, |_| info.max_mvcc().get() as i64);
    writeln!(out, "mvcc {max_mvcc} range {min} {max}").unwrap();
    for (key, value) in info.iter() {
        writeln!(out, "info {} {}", String::from_utf8_lossy(key), hex(value)).unwrap();
    }
    let middle = file.mid_key(DISK).unwrap();
    writeln!(out, "midkey {}", middle.map_or("-".into(), |key| hex(key.get().bytes()))).unwrap();
    let cells = scan(&file);
    for cell in &cells {
        writeln!(out, "cell {}", line(cell)).unwrap();
    }
    let mut scanner = file.scanner(DISK, true);
    for (number, cell) in cells.iter().enumerate() {
        let row = cell.row();
        if number > 0 && cells[number - 1].row() == row {
            continue;
        }
        let absent = [&row[..row.len() - 1], format!("/{number}").as_bytes()].concat();
        writeln!(
            out,
            "blooms {} {} {} {} {} {} {}",
            hex(row),
            bit(file.may_contain_row(row, DISK)),
            bit(file.may_contain_row(&absent, DISK)),
            bit(file.may_contain_row_col(row, b"q0", DISK)),
            bit(file.may_contain_row_col(row, b"nothing", DISK)),
            bit(file.may_contain_row_col(&absent, b"q0", DISK)),
            bit(file.may_contain_delete_family(row, DISK)),
        )
        .unwrap();
        let key = Key::first_on_row(row);
        scanner.seek(key.get()).unwrap();
        let found = scanner.peek().map_or("-".into(), |cell| hex(cell.key().bytes()));
        writeln!(out, "seek {} {found}", hex(row)).unwrap();
        scanner.seek_before(key.get()).unwrap();
        let found = scanner.peek().map_or("-".into(), |cell| hex(cell.row()));
        writeln!(out, "before {} {found}", hex(row)).unwrap();
    }
    out
}

pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("halcyon-golden-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// HBase's classes, and our program on top of them compiled into a directory.
pub struct Java {
    class_path: String,
}

impl Java {
    pub fn compile(into: &Path) -> Java {
        let jars = std::env::var("HALCYON_HBASE_LIB")
            .expect("HALCYON_HBASE_LIB names the directory of HBase's jars");
        let sources = ["HFileGolden.java", "HFileMatrix.java", "LzmaCodec.java", "BZip2JavaCodec.java"]
            .map(|name| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/compat/golden").join(name));
        let class_path = format!("{}:{jars}/*", into.display());
        let status = Command::new("javac")
            .args(["-nowarn", "-Xlint:-deprecation", "-cp", &class_path, "-d"])
            .arg(into)
            .args(sources)
            .status()
            .expect("javac runs");
        assert!(status.success());
        Java { class_path }
    }

    pub fn run(&self, class: &str, arguments: &[&str]) -> String {
        let mut command = Command::new("java");
        command.env("HALCYON_KEY_STORE", key_store());
        for package in [
            "java.lang",
            "java.nio",
            "java.io",
            "java.util",
            "java.util.concurrent",
            "sun.nio.ch",
            "java.lang.reflect",
        ] {
            command.arg(format!("--add-opens=java.base/{package}=ALL-UNNAMED"));
        }
        command.arg("--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED");
        let output =
            command.args(["-cp", &self.class_path, class]).args(arguments).output().expect("java runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
        text
    }
}

/// The settings that the golden files were written with.
pub fn small() -> WriterOptions {
    WriterOptions {
        block_size: 300,
        index_chunk_bytes: 256,
        index_entries_min: 3,
        bloom_chunk_bytes: 128,
        create_time_ms: Some(1_700_000_000_000),
        ..Default::default()
    }
}
