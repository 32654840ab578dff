//! Files of Accumulo itself, and the same files with damage. `testdata/README.md` says where they come from; those of
//! versions before 8 are in `third_party/accumulo-rfiles`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use halcyon_env::sim::Dice;
use halcyon_env::{Env, ReadableFile};

use super::{Key, RFile, RFileError};

/// A file in memory.
struct Bytes(Vec<u8>, PathBuf);

impl ReadableFile for Bytes {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(buffer.len() as u64).filter(|end| *end <= self.0.len() as u64);
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(&self.0[offset as usize..end as usize]);
        Ok(())
    }

    fn read_resident_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<bool> {
        self.read_exact_at(buffer, offset).map(|()| true)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn path(&self) -> &PathBuf {
        &self.1
    }
}

pub(crate) type Entry = (Key, Vec<u8>);

fn seed() -> u64 {
    let seed: u64 = std::env::var("HALCYON_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    println!("HALCYON_SEED={seed}");
    seed
}

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata")
}

pub(crate) fn file(name: &str) -> Vec<u8> {
    let old_versions = || testdata().join("../../../third_party/accumulo-rfiles");
    let dir = if name.starts_with("ver_") { old_versions() } else { testdata() };
    Env::real().local.read(&dir.join(name)).unwrap()
}

pub(crate) fn open(bytes: Vec<u8>) -> Result<RFile, RFileError> {
    let len = bytes.len() as u64;
    RFile::open(Arc::new(Bytes(bytes, PathBuf::from("memory"))), len)
}

/// All entries with rows from `start` on and before `end`, in Accumulo's order.
fn entries(file: &RFile, start: &[u8], end: &[u8]) -> Result<Vec<Entry>, RFileError> {
    let mut entries = Vec::new();
    for group in 0..file.groups().len() {
        let mut scanner = file.scan(group, start, end)?;
        let mut more = scanner.next_from(start)?;
        while more {
            entries.push((scanner.key().clone(), scanner.value().to_vec()));
            more = scanner.next()?;
        }
    }
    entries.sort();
    Ok(entries)
}

/// What Accumulo has read of a file.
pub(crate) fn expected(name: &str) -> Vec<Entry> {
    let hex = |text: &str| {
        let digits = text.strip_prefix('x').unwrap();
        crate::state::hex::bytes(digits).unwrap()
    };
    let text = String::from_utf8(file(name)).unwrap();
    let entry = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        let [row, family, qualifier, visibility, timestamp, is_deleted, value] = fields[..] else {
            panic!("{line}")
        };
        let key = Key {
            row: hex(row),
            family: hex(family),
            qualifier: hex(qualifier),
            visibility: hex(visibility),
            timestamp: timestamp.parse().unwrap(),
            is_deleted: is_deleted.parse().unwrap(),
        };
        (key, hex(value))
    };
    text.lines().map(entry).collect()
}

/// Accumulo 1.3 to 1.7 have written these: 1000 rows with four families, in four locality groups.
#[test]
fn files_of_old_versions_are_read() {
    for version in [3, 4, 6, 7] {
        let file = open(file(&format!("ver_{version}.rf"))).unwrap();
        assert_eq!(file.version(), version);
        for start in [0, 10, 100, 998, 1000] {
            let row = format!("r_{start:06}");
            let found = entries(&file, if start == 0 { b"" } else { row.as_bytes() }, b"").unwrap();
            let expected = (start..1000).flat_map(|row| (1..=4).map(move |family| (row, family)));
            let expected = expected.map(|(row, family)| {
                let key = Key {
                    row: format!("r_{row:06}").into(),
                    family: format!("cf_{family:06}").into(),
                    qualifier: b"cq_000000".to_vec(),
                    visibility: Vec::new(),
                    timestamp: 1000 - row,
                    is_deleted: false,
                };
                (key, row.to_string().into_bytes())
            });
            assert_eq!(found, expected.collect::<Vec<_>>(), "version {version} from {start}");
        }
    }
}

const NAMES: [&str; 10] =
    ["none", "gz", "snappy", "lz4", "zstd", "levels", "one-group", "empty", "sampled", "bloom"];

#[test]
fn entries_are_those_that_accumulo_reads() {
    for name in NAMES {
        let found = entries(&open(file(&format!("{name}.rf"))).unwrap(), b"", b"").unwrap();
        let expected = expected(&format!("{name}.txt"));
        assert_eq!(found.len(), expected.len(), "{name}");
        found.iter().zip(&expected).for_each(|(found, expected)| assert_eq!(found, expected, "{name}"));
    }
}

#[test]
fn a_range_has_the_entries_of_its_rows() {
    for name in ["levels", "gz", "empty"] {
        let file = open(file(&format!("{name}.rf"))).unwrap();
        let all = expected(&format!("{name}.txt"));
        let mut bounds: Vec<Vec<u8>> = all.iter().map(|(key, _)| key.row.clone()).collect();
        bounds.dedup();
        let mut dice = Dice::new(seed());
        for _ in 0..100 {
            let mut bound = || match bounds.len() {
                0 => vec![dice.below(256) as u8],
                len => {
                    let mut row = bounds[dice.below(len)].clone();
                    row.truncate(1 + dice.below(5));
                    row
                }
            };
            let (start, end) = (bound(), bound());
            let expected = all.iter().filter(|(key, _)| key.row >= start && key.row < end).cloned();
            assert_eq!(
                entries(&file, &start, &end).unwrap(),
                expected.collect::<Vec<_>>(),
                "{start:?} {end:?}"
            );
        }
    }
}

#[test]
fn what_is_no_rfile_is_refused_by_a_sentence() {
    let said = |bytes: Vec<u8>| open(bytes).err().expect("it is refused").to_string();
    assert!(said(Vec::new()).contains("too few"));
    assert!(said(vec![0; 1000]).contains("does not end as an RFile"));
    let whole = file("gz.rf");
    assert!(said(whole[..whole.len() - 100].to_vec()).contains("not copied to its end"));
    let encrypted = said(file("encrypted.rf"));
    assert!(encrypted.contains("encrypted by a crypto service"), "{encrypted}");
    let mut foreign = whole.clone();
    foreign[0] ^= 1;
    assert!(said(foreign).contains("does not begin"));
    let mut later = whole;
    let at = later.len() - 20;
    later[at + 1] = 9;
    assert!(said(later).contains("BCFile version 9"));
}

/// A file that was cut off anywhere is never taken for a whole one.
#[test]
fn half_a_file_is_no_file() {
    for name in ["none.rf", "ver_3.rf", "levels.rf"] {
        let whole = file(name);
        for len in (0..whole.len()).step_by(7) {
            assert!(open(whole[..len].to_vec()).is_err(), "{name}: {len} of {} bytes", whole.len());
        }
    }
}

/// Damage of any kind ends with entries or an error, never with a panic or with much memory. What is read without an error is in
/// order, and there is not more of it than the file could have.
#[test]
fn damaged_files_are_errors() {
    let first = seed();
    let mut errors = 0;
    for name in NAMES
        .map(|name| format!("{name}.rf"))
        .iter()
        .map(String::as_str)
        .chain(["ver_3.rf", "ver_4.rf", "ver_7.rf"])
    {
        let whole = file(name);
        for round in 0..150 {
            let mut dice = Dice::new(first.wrapping_add(round));
            let mut bytes = whole.clone();
            for _ in 0..=dice.below(3) {
                let at = dice.below(bytes.len());
                // more often where lengths and offsets are
                let at =
                    if dice.below(2) == 0 { bytes.len() - 1 - at.min(300).min(bytes.len() - 1) } else { at };
                match dice.below(4) {
                    0 => bytes[at] ^= 1 << dice.below(8),
                    1 => bytes[at] = dice.below(256) as u8,
                    2 => bytes[at] = [0, 0x7f, 0x80, 0xff][dice.below(4)],
                    _ => {
                        let end = (at + 1 + dice.below(9)).min(bytes.len());
                        bytes[at..end].fill(dice.below(256) as u8);
                    }
                }
            }
            let read = open(bytes).and_then(|file| entries(&file, b"", b""));
            match read {
                Ok(found) => assert!(found.len() < 100_000, "{name}, seed {}", first.wrapping_add(round)),
                Err(_) => errors += 1,
            }
        }
    }
    assert!(errors > 500, "{errors} errors: the damage does not reach the decoder");
}
