//! Values made by a client that knows the format and wants a server's log to be called damaged, or its recovery to take for ever.

use std::path::{Path, PathBuf};

use crate::common;
use crate::damage::{Found, append_one, read};
use halcyon_cell::{Cell, ErrorKind};
use halcyon_env::FileSystem;
use halcyon_env::sim::SimFileSystem;
use halcyon_wal::{Durability, Wal, WalCompression, WalReader, examine_log};

const CHECK_PREFIX: &[u8; 12] = b"\x62\x16\x0a\x06crc32c\x12\x0c";
/// Header of a log of before: field 1000 says that its entries have checks, and there is no salt.
const OLD_HEADER: &[u8] = b"PWAL\x53\x08\x00\x18\x00\x22\x11ProtobufLogWriter\
    \x2a\x35org.apache.hadoop.hbase.regionserver.wal.WALCellCodec\x30\x00\xc0\x3e\x01";
/// What an entry of before says of its file at most.
const ALL: u64 = u64::MAX;

/// An entry without cells as a log of before has it.
fn old_entry(region: &str, seq: u8, synced: u64) -> Vec<u8> {
    let mut key = vec![0x0a, region.len() as u8];
    key.extend_from_slice(region.as_bytes());
    key.extend_from_slice(&[0x12, 1, b't', 0x18, seq, 0x20, 1, 0x38, 0]);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&key), &synced.to_be_bytes());
    key.extend_from_slice(CHECK_PREFIX);
    key.extend_from_slice(&crc.to_be_bytes());
    key.extend_from_slice(&synced.to_be_bytes());
    [&[key.len() as u8][..], &key].concat()
}

/// The same as in a compressed log.
fn old_packed_entry(seq: u8, synced: u64) -> Vec<u8> {
    let mut key = vec![0x0a, 2, 0, 0, 0x12, 2, 0, 0, 0x18, seq, 0x20, 1, 0x38, 0];
    let index = [0, 0];
    let crc = crc32c::crc32c_append(crc32c::crc32c(&key), &synced.to_be_bytes());
    let crc = crc32c::crc32c_append(crc, &index);
    let value = [&crc.to_be_bytes()[..], &synced.to_be_bytes()].concat();
    let bit = |at: usize| value[at / 8] >> (7 - at % 8) & 1;
    let packed = (0..16).map(|at| (0..6).fold(0, |bits, n| bits << 1 | bit(6 * at + n)) + b'0');
    key.extend_from_slice(b"\x62\x1c\x0a\x16crc32c");
    key.extend(packed);
    key.extend_from_slice(&[0x12, 2, 0, 0]);
    [&[key.len() as u8][..], &key].concat()
}

fn put(value: &[u8]) -> Cell {
    Cell::put(b"row", b"f", b"q", 1, value)
}

struct Log {
    fs: SimFileSystem,
    wal: std::sync::Arc<Wal>,
    path: PathBuf,
    offsets: Vec<usize>,
}

impl Log {
    fn new() -> Log {
        let fs = SimFileSystem::new();
        let wal = Wal::open(common::env(&fs), common::config("/WALs/h", "/oldWALs", "h")).unwrap();
        let path = wal.current_file();
        Log { fs, wal, path, offsets: Vec::new() }
    }

    fn append(&mut self, value: &[u8]) {
        self.offsets.push(self.bytes().len());
        append_one(&self.wal, self.offsets.len() as u64, put(value).get(), Durability::SyncWal);
    }

    fn bytes(&self) -> Vec<u8> {
        self.fs.read(&self.path).unwrap()
    }
}

fn find(bytes: &[u8], part: &[u8]) -> usize {
    bytes.windows(part.len()).position(|window| window == part).expect("it is there as it was put")
}

fn assert_torn(found: &Found, entries_count: usize, at: usize, what: &str) {
    assert!(found.end.is_ok(), "{what}: {:?}", found.end);
    assert_eq!((found.entries.len(), found.torn_at), (entries_count, Some(at as u64)), "{what}");
}

fn examine(bytes: &[u8]) -> halcyon_wal::LogDamage {
    let fs = SimFileSystem::new();
    fs.put_new(Path::new("/log"), bytes).unwrap();
    examine_log(&common::env(&fs), Path::new("/log")).unwrap()
}

fn with_and_without_compression(test: impl Fn(&[u8])) {
    // Three of them, each of which would do.
    let plain: Vec<u8> = (1..4).flat_map(|seq| old_entry("x", seq, ALL)).collect();
    let packed: Vec<u8> = (1..4).flat_map(|seq| old_packed_entry(seq, ALL)).collect();
    test(&plain);
    common::compressed_as(WalCompression::default(), || test(&packed));
}

/// A client put a value that held a whole entry. When the server died while it wrote that value, its log was called damaged at
/// each start: the regions stayed closed.
#[test]
fn an_entry_in_a_value_is_no_witness() {
    with_and_without_compression(|forged| {
        let mut log = Log::new();
        log.append(b"before");
        log.append(&[forged, &[7; 200]].concat());
        let bytes = log.bytes();
        let behind = find(&bytes, forged) + forged.len();
        for len in behind..bytes.len() {
            let cut = &bytes[..len];
            assert_torn(&read(cut), 1, log.offsets[1], &format!("cut to {len}"));
            let damage = examine(cut);
            assert!(!damage.is_damaged() && damage.entries_count == 1, "{damage}");
        }
    });
}

/// Where damaged entries are passed over, such an entry would have been replayed: cells for any region and table.
#[test]
fn an_entry_in_a_value_is_not_found_behind_damage() {
    let mut log = Log::new();
    log.append(b"before");
    log.append(&[&old_entry("x", 1, ALL)[..], &[7; 200]].concat());
    log.append(b"behind");
    let mut bytes = log.bytes();
    bytes[log.offsets[1] + 3] ^= 1;
    assert_eq!(
        read(&bytes).end.unwrap_err().kind(),
        ErrorKind::Corrupt,
        "the entry behind it knows that it was on disk"
    );
    let damage = examine(&bytes);
    assert_eq!((damage.entries_count, damage.lost.len()), (2, 1));
    assert_eq!(damage.lost[0].end, log.offsets[2] as u64);
    assert_eq!(damage.regions.keys().collect::<Vec<_>>(), ["aaaa"]);
}

/// Bytes of another log, which that one's own checks are in. Pages that a disk had before may be such, too.
#[test]
fn entries_of_other_files_are_no_witnesses() {
    let (mut log, mut other) = (Log::new(), Log::new());
    (0..20).for_each(|_| other.append(b"another file's"));
    log.append(b"before");
    log.append(b"torn");
    let at = log.offsets[1];
    let bytes = [&log.bytes()[..at + 20], &other.bytes()[other.offsets[1]..]].concat();
    assert_torn(&read(&bytes), 1, at, "bytes of another file behind it");
}

/// The end of a value that was cut off at the right place looked like the end of a log that was closed in peace, in which no entry
/// may be missing.
#[test]
fn a_trailer_in_a_value_ends_no_log() {
    let mut log = Log::new();
    log.append(b"before");
    log.append(&b"\0\0\0\0LAWP".repeat(40));
    let bytes = log.bytes();
    let begin = find(&bytes, b"LAWP\0\0\0\0LAWP");
    for len in begin..bytes.len() {
        assert_torn(&read(&bytes[..len]), 1, log.offsets[1], &format!("cut to {len}"));
    }
    assert_eq!(read(&bytes).entries.len(), 2);
}

/// Calls of the file system that it takes to read a log.
fn calls_to_read(bytes: &[u8]) -> (Found, u64) {
    let fs = SimFileSystem::new();
    fs.put_new(Path::new("/log"), bytes).unwrap();
    let mut reader = WalReader::open(&common::env(&fs), Path::new("/log")).unwrap();
    let (mut entries, mut end) = (Vec::new(), Ok(()));
    for entry in &mut reader {
        match entry {
            Ok((_, cells)) => entries.push(cells),
            Err(error) => end = Err(error),
        }
    }
    (Found { entries, torn_at: reader.torn_at(), end }, fs.calls())
}

/// Each beginning of a check in a torn entry cost 65,536 reads, and recovery took hours.
#[test]
fn a_torn_entry_full_of_checks_is_read_a_few_times() {
    let sparse: Vec<u8> = CHECK_PREFIX.iter().copied().chain([0xff; 100_000]).collect();
    for part in [&CHECK_PREFIX[..], &sparse] {
        let mut log = Log::new();
        log.append(b"before");
        log.append(&part.repeat((1 << 20) / part.len()));
        let bytes = log.bytes();
        let (found, calls) = calls_to_read(&bytes[..bytes.len() - 10]);
        assert_torn(&found, 1, log.offsets[1], "cut");
        assert!(calls < 50, "{calls} calls");
    }
}

/// A log that was written before files had salts.
#[test]
fn a_log_of_before_is_read_with_the_check_of_before() {
    let mut bytes = OLD_HEADER.to_vec();
    let mut offsets = Vec::new();
    for seq in 1..=5 {
        offsets.push(bytes.len());
        bytes.extend(old_entry("abcd", seq, bytes.len() as u64));
    }
    assert_eq!(read(&bytes).entries.len(), 5);
    assert_torn(&read(&bytes[..offsets[4] + 9]), 4, offsets[4], "cut");
    let mut damaged = bytes.clone();
    damaged[offsets[2] + 7] ^= 1;
    let found = read(&damaged);
    assert_eq!((found.entries.len(), found.end.unwrap_err().kind()), (2, ErrorKind::Corrupt));
    let damage = examine(&damaged);
    assert_eq!((damage.entries_count, damage.lost[0].end), (4, offsets[3] as u64));
    let closed = [&bytes[..], b"\0\0\0\0LAWP"].concat();
    let found = read(&closed);
    assert!(found.end.is_ok() && found.torn_at.is_none() && found.entries.len() == 5);
    // Nothing tells a made up witness from another one there.
    let end = bytes.len();
    bytes.extend_from_slice(&[0x7f; 3]);
    bytes.extend(old_entry("x", 1, ALL));
    let found = read(&bytes);
    assert_eq!((found.entries.len(), found.end.unwrap_err().kind()), (5, ErrorKind::Corrupt));
    // And looking for one ends all the same.
    bytes.truncate(end + 3);
    bytes.extend(CHECK_PREFIX.repeat((1 << 20) / 12));
    let (found, calls) = calls_to_read(&bytes);
    assert_eq!(found.entries.len(), 5);
    assert!(calls < 2000, "{calls} calls");
}
