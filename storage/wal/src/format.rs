//! Bytes of a log: header, entries and trailer as HBase's `ProtobufLogWriter` lays them out.
//!
//! ```text
//! file    = "PWAL" | varint length, WALHeader | entry* | [ trailer ]
//! entry   = varint length, WALKey | cell * following_kv_count
//! cell    = int32 length | KeyValue with tags          of an encrypted log: see cipher.rs
//! trailer = WALTrailer | int32 its size | "LAWP"
//! ```
//!
//! HBase trusts HDFS for checksums; a local disk gives none, and after a power cut the pages behind the last
//! sync may be anything. So our entries carry a *check* as the last extended attribute of their key (`check.rs`). HBase's
//! readers take it for an attribute of somebody's coprocessor and leave it alone.

use halcyon_cell::{CellRef, Error, Result};
use halcyon_crypto::IV_LEN;
use halcyon_proto::pb;
use halcyon_schema::Compression;
use prost::Message;
use smallvec::SmallVec;

use crate::check::{CHECK_LEN, CHECK_PREFIX, Check, Mark, Salt, is_check};
use crate::cipher::WalCipher;
use crate::reader::{APPENDED_KEY_LEN_MAX, APPENDED_LEN_MAX};
use crate::{WalCompression, WalEntry};

pub(crate) const MAGIC: &[u8; 4] = b"PWAL";
pub(crate) const TRAILER_MAGIC: &[u8; 4] = b"LAWP";
/// The empty `WALTrailer`, its size and the magic: how HBase's files end, and those of ours that have no salt.
pub(crate) const TRAILER: &[u8; 8] = b"\0\0\0\0LAWP";

/// Family of the cells that mark flushes, compactions and the like (`WALEdit.METAFAMILY`).
pub const META_FAMILY: &[u8] = b"METAFAMILY";
/// Qualifier of a compaction's marker cell (`WALEdit.COMPACTION`).
pub const COMPACTION_QUALIFIER: &[u8] = b"HBASE::COMPACTION";

/// HBase refuses a log whose writer it does not know by name.
const WRITER_CLASS: &str = "ProtobufLogWriter";
const SECURE_WRITER_CLASS: &str = "SecureProtobufLogWriter";
pub(crate) const SECURE_CELL_CODEC_CLASS: &str =
    "org.apache.hadoop.hbase.regionserver.wal.SecureWALCellCodec";
const CELL_CODEC_CLASS: &str = "org.apache.hadoop.hbase.regionserver.wal.WALCellCodec";

const _: () = assert!(TRAILER.len() == 4 + TRAILER_MAGIC.len() && TRAILER[4] == TRAILER_MAGIC[0]);

/// Magic and header of a new log. Error: its key cannot be wrapped.
pub(crate) fn encode_header(
    cipher: Option<&WalCipher>,
    compression: Option<&WalCompression>,
    salt: Salt,
) -> Result<Vec<u8>> {
    debug_assert!(cipher.is_none() || compression.is_none(), "what is encrypted cannot be compressed");
    let (writer, codec) = match cipher {
        Some(_) => (SECURE_WRITER_CLASS, SECURE_CELL_CODEC_CLASS),
        None => (WRITER_CLASS, CELL_CODEC_CLASS),
    };
    let values = compression.and_then(|compression| compression.values);
    let header = pb::WalHeader {
        has_compression: Some(compression.is_some()),
        encryption_key: cipher.map(WalCipher::wrapped_key).transpose()?.map(Into::into),
        has_tag_compression: Some(false),
        writer_cls_name: Some(writer.to_string()),
        cell_codec_cls_name: Some(codec.to_string()),
        has_value_compression: Some(values.is_some()),
        value_compression_algorithm: values.map(Compression::code),
    };
    let mut message = header.encode_to_vec();
    salt.extension().encode_raw(&mut message);
    let mut out = MAGIC.to_vec();
    put_varint(|byte| out.push(byte), message.len() as u64);
    out.extend_from_slice(&message);
    Ok(out)
}

/// Bytes of the longest varint.
const VARINT_LEN_MAX: usize = 10;
/// What a cell has in an entry besides its KeyValue: its length; or what its encryption adds to it, with the lengths of its parts.
const PLAIN_CELL_EXTRA_LEN: usize = 4;
const ENCRYPTED_CELL_EXTRA_LEN_MAX: usize = 36;
/// What a key has besides its names: five numbers, the lengths and fields of two names, its own length.
const KEY_REST_LEN_MAX: usize = 5 * (1 + VARINT_LEN_MAX) + 2 * (1 + VARINT_LEN_MAX) + VARINT_LEN_MAX;
/// What the name of a family that is replicated has besides its bytes, and what a cluster has.
const SCOPE_EXTRA_LEN_MAX: usize = 12;
const CLUSTER_LEN_MAX: usize = 2 + 2 * (1 + VARINT_LEN_MAX);
/// From this field of a `WALKey` on, numbers that are 0 are left out.
const FIELD_NONCE_GROUP: u8 = 9;

/// The key of an entry without its check. Keys of tables with names of usual length need no memory of their own.
type Head = SmallVec<[u8; 128]>;

/// An entry made ready outside the log's lock: what is left to do inside is to copy.
pub(crate) struct PreparedEntry<'a> {
    head: Head,
    cells: Cells<'a>,
    /// Over the head and the cells.
    crc: u32,
    len: usize,
}

enum Cells<'a> {
    Plain(&'a [CellRef<'a>]),
    Encrypted(Vec<u8>),
}

impl<'a> PreparedEntry<'a> {
    /// Encodes the key and sums up the cells. `Invalid` if there is no region or there are no cells, and if no reader would take the
    /// entry.
    pub(crate) fn new(entry: &WalEntry<'a>, cipher: Option<&WalCipher>) -> Result<PreparedEntry<'a>> {
        if entry.region.is_empty() || entry.cells.is_empty() {
            return Err(Error::invalid("a log entry needs a region and at least one cell"));
        }
        check_appended_len(entry.cells.iter().map(|cell| cell.bytes().len()).sum())?;
        let head = encode_key(entry);
        check_key_len(head.len() + CHECK_LEN, entry)?;
        Ok(PreparedEntry::from_head(head, entry.cells, cipher))
    }

    /// An entry read from one log, for another: all of its key is kept but an old check.
    pub(crate) fn copied(
        key: &pb::WalKey,
        cells: &'a [CellRef<'a>],
        cipher: Option<&WalCipher>,
    ) -> PreparedEntry<'a> {
        let mut key = key.clone();
        key.extended_attributes.retain(|attribute| !is_check(&attribute.key));
        key.following_kv_count = Some(cells.len() as u32);
        PreparedEntry::from_head(key.encode_to_vec().into(), cells, cipher)
    }

    fn from_head(head: Head, cells: &'a [CellRef<'a>], cipher: Option<&WalCipher>) -> PreparedEntry<'a> {
        let mut crc = crc32c::crc32c(&head);
        let (cells, cells_len) = match cipher {
            None => {
                let mut cells_len = 0;
                for cell in cells {
                    crc = continue_crc(crc, cell.bytes());
                    cells_len += 4 + cell.bytes().len();
                }
                (Cells::Plain(cells), cells_len)
            }
            Some(cipher) => {
                let mut out = Vec::new();
                cells.iter().for_each(|cell| cipher.put_cell(&mut out, *cell));
                crc = crc32c::crc32c_append(crc, &out);
                let len = out.len();
                (Cells::Encrypted(out), len)
            }
        };
        let key_len = head.len() + CHECK_LEN;
        let len = varint_len(key_len as u64) + key_len + cells_len;
        PreparedEntry { head, cells, crc, len }
    }

    /// Bytes that [`PreparedEntry::put`] appends.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Appends the entry to `out`, for the file of this mark.
    pub(crate) fn put(&self, out: &mut Vec<u8>, mark: Mark) {
        let start = out.len();
        out.reserve(self.len);
        put_varint(|byte| out.push(byte), (self.head.len() + CHECK_LEN) as u64);
        out.extend_from_slice(&self.head);
        out.extend_from_slice(CHECK_PREFIX);
        out.extend_from_slice(&Check::of_mark(mark).value(self.crc));
        match &self.cells {
            Cells::Plain(cells) => {
                for cell in *cells {
                    let bytes = cell.bytes();
                    out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
                    out.extend_from_slice(bytes);
                }
            }
            Cells::Encrypted(bytes) => out.extend_from_slice(bytes),
        }
        let written = out.len() - start;
        assert_eq!(written, self.len, "an entry takes the room that was asked for it");
    }
}

/// Whether a log takes an entry with so many bytes of cells. `Invalid` if not: nobody could read it back.
pub(crate) fn check_appended_len(len: usize) -> Result<()> {
    if len <= APPENDED_LEN_MAX {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "a write of {len} bytes is larger than an entry of the log may be, {APPENDED_LEN_MAX} bytes"
    )))
}

/// Most bytes that an entry with so many cells, and bytes of them, will have. Those of `entry` are not looked at. `Invalid` if no reader
/// would take it.
#[inline]
pub(crate) fn entry_len_max(
    entry: &WalEntry<'_>,
    cells_bytes: usize,
    cells_count: usize,
    is_encrypted: bool,
) -> Result<usize> {
    check_appended_len(cells_bytes)?;
    let families_len: usize = entry.replicated.iter().map(|family| family.len() + SCOPE_EXTRA_LEN_MAX).sum();
    let names_len = entry.region.len() + entry.table.len() + families_len;
    let key_len = KEY_REST_LEN_MAX + names_len + entry.cluster_ids.len() * CLUSTER_LEN_MAX + CHECK_LEN;
    check_key_len(key_len, entry)?;
    let cell_extra_len = if is_encrypted { ENCRYPTED_CELL_EXTRA_LEN_MAX } else { PLAIN_CELL_EXTRA_LEN };
    Ok(key_len + cells_bytes + cells_count * cell_extra_len)
}

fn check_key_len(len: usize, entry: &WalEntry<'_>) -> Result<()> {
    if len <= APPENDED_KEY_LEN_MAX {
        return Ok(());
    }
    let (families, clusters) = (entry.replicated.len(), entry.cluster_ids.len());
    Err(Error::invalid(format!(
        "an entry of the log has a key of {len} bytes, more than {APPENDED_KEY_LEN_MAX}: it names {families} families that are \
         replicated, and {clusters} clusters"
    )))
}

/// A `WALKey` without check. By hand, because this is the hot path and the field order is fixed.
fn encode_key(entry: &WalEntry<'_>) -> Head {
    let mut out = Head::new();
    out.reserve(64 + entry.region.len() + entry.table.len());
    put_bytes(&mut out, 1, entry.region);
    put_bytes(&mut out, 2, entry.table);
    for family in entry.replicated {
        let scope = pb::FamilyScope {
            family: family.clone(),
            scope_type: pb::ScopeType::ReplicationScopeGlobal as i32,
        };
        put_bytes(&mut out, 6, &scope.encode_to_vec());
    }
    for cluster in entry.cluster_ids {
        put_bytes(&mut out, 8, &cluster.to_pb().encode_to_vec());
    }
    let numbers = [
        (3, entry.seq.get()),
        (4, entry.write_time_ms as u64),
        (7, entry.cells.len() as u64),
        (FIELD_NONCE_GROUP, entry.nonce_group),
        (10, entry.nonce),
    ];
    let (mut bytes, mut len) = ([0; 5 * (1 + VARINT_LEN_MAX)], 0);
    let mut put = |byte| {
        bytes[len] = byte;
        len += 1;
    };
    for (field, number) in numbers {
        if field < FIELD_NONCE_GROUP || number != 0 {
            put(field << 3);
            put_varint(&mut put, number);
        }
    }
    out.extend_from_slice(&bytes[..len]);
    out
}

fn put_bytes(out: &mut Head, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    put_varint(|byte| out.push(byte), bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(crate) fn put_varint(mut put: impl FnMut(u8), mut number: u64) {
    while number >= 0x80 {
        put(number as u8 | 0x80);
        number >>= 7;
    }
    put(number as u8);
}

pub(crate) fn varint_len(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

/// A check that goes on over a plain cell.
pub(crate) fn continue_crc(crc: u32, cell: &[u8]) -> u32 {
    let crc = crc32c::crc32c_append(crc, &(cell.len() as u32).to_be_bytes());
    crc32c::crc32c_append(crc, cell)
}

/// Makes the checks of whole entries anew, for another file than they were made for.
pub(crate) fn reset_checks(entries: &mut [u8], is_encrypted: bool, mark: Mark) -> Result<()> {
    let mut at = 0;
    while at < entries.len() {
        at += reset_check(&mut entries[at..], is_encrypted, mark)?;
    }
    Ok(())
}

/// The length of each of these whole entries.
pub(crate) fn entry_lens(entries: &[u8], is_encrypted: bool) -> Result<Vec<usize>> {
    let (mut lens, mut rest) = (Vec::new(), entries);
    while !rest.is_empty() {
        let len = Places::of_first(rest, is_encrypted)?.end;
        lens.push(len);
        rest = &rest[len..];
    }
    Ok(lens)
}

/// Where the parts of an entry are.
struct Places {
    key_at: usize,
    check_at: usize,
    cells_at: usize,
    end: usize,
}

impl Places {
    fn of_first(entries: &[u8], is_encrypted: bool) -> Result<Places> {
        let cut = || Error::corrupt("an entry in the log's own buffer is cut off");
        let mut rest = entries;
        let key_len = prost::encoding::decode_varint(&mut rest).map_err(|_| cut())? as usize;
        let key_at = entries.len() - rest.len();
        let key = rest.get(..key_len).ok_or_else(cut)?;
        let cells_count = pb::WalKey::decode(key).map_err(|_| cut())?.following_kv_count();
        let check_at = key_at + key_len.checked_sub(CHECK_LEN).ok_or_else(cut)?;
        let cells_at = key_at + key_len;
        let mut end = cells_at;
        for _ in 0..cells_count {
            let rest = entries.get(end..).ok_or_else(cut)?;
            end += if is_encrypted { encrypted_len(rest) } else { plain_len(rest) }.ok_or_else(cut)?;
        }
        if end > entries.len() {
            return Err(cut());
        }
        Ok(Places { key_at, check_at, cells_at, end })
    }
}

/// The length of the first entry, whose check was made anew.
fn reset_check(entries: &mut [u8], is_encrypted: bool, mark: Mark) -> Result<usize> {
    let Places { key_at, check_at, cells_at, end } = Places::of_first(entries, is_encrypted)?;
    let crc = crc32c::crc32c(&entries[key_at..check_at]);
    let crc = crc32c::crc32c_append(crc, &entries[cells_at..end]);
    Check::of_mark(mark).put(crc, &mut entries[check_at..cells_at]);
    Ok(end)
}

/// Bytes of the plain cell that comes first, with its length.
pub(crate) fn plain_len(rest: &[u8]) -> Option<usize> {
    let len = rest.first_chunk::<4>()?;
    Some(4 + u32::from_be_bytes(*len) as usize)
}

/// Bytes of the encrypted cell that comes first.
fn encrypted_len(rest: &[u8]) -> Option<usize> {
    let mut behind = rest.get(1 + IV_LEN..)?;
    let len = prost::encoding::decode_varint(&mut behind).ok()? as usize;
    Some(rest.len() - behind.len() + len)
}

/// Whether a cell marks a flush, compaction, open or the like instead of holding a user's bytes.
pub fn is_marker(cell: CellRef<'_>) -> bool {
    cell.family() == META_FAMILY
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{CheckForm, HeaderExtension, SALTED_TRAILER_LEN};
    use bytes::Bytes;
    use halcyon_cell::{Cell, SeqId};

    #[test]
    fn varint_lengths_are_those_written() {
        for shift in 0..64 {
            for number in [1u64 << shift, (1u64 << shift) - 1, (1u64 << shift) + 1] {
                let mut out = Vec::new();
                put_varint(|byte| out.push(byte), number);
                assert_eq!(out.len(), varint_len(number), "{number}");
            }
        }
    }

    #[test]
    fn checks_made_anew_are_those_of_the_other_file() {
        let cells = [Cell::put(b"r", b"f", b"q", 5, b"v"), Cell::put(b"r", b"f", b"r", 5, &[7; 300])];
        let cells = [cells[0].get(), cells[1].get()];
        let entry = |seq, cells| WalEntry {
            region: b"0123456789abcdef0123456789abcdef",
            table: b"t",
            seq: SeqId::new(seq),
            write_time_ms: 1,
            nonce_group: 0,
            nonce: 9,
            cluster_ids: &[],
            replicated: &[],
            cells,
        };
        let encrypted = crate::cipher::tests::cipher();
        let other = Mark { salt: Salt::random(), synced_bytes: 77 };
        for cipher in [None, Some(&encrypted)] {
            let (mut kept, mut expected) = (Vec::new(), Vec::new());
            for (seq, cells) in [(1, &cells[..]), (2, &cells[..1]), (300, &cells[1..])] {
                let entry = entry(seq, cells);
                let prepared = PreparedEntry::new(&entry, cipher).unwrap();
                prepared.put(&mut kept, Mark { salt: Salt::random(), synced_bytes: 1000 * seq });
                prepared.put(&mut expected, other);
            }
            assert_ne!(kept, expected);
            let lens = entry_lens(&kept, cipher.is_some()).unwrap();
            assert!(lens.len() == 3 && lens.iter().sum::<usize>() == kept.len() && lens[0] > 300, "{lens:?}");
            reset_checks(&mut kept, cipher.is_some(), other).unwrap();
            assert_eq!(kept, expected);
            for end in 1..kept.len() {
                _ = entry_lens(&kept[..end], cipher.is_some()); // an error or not, never a panic
                _ = reset_checks(&mut kept[..end], cipher.is_some(), other);
            }
        }
    }

    /// A region asks before it copies the cells: an entry that is refused afterwards has cost memory.
    #[test]
    fn an_entry_is_no_longer_than_it_was_said_to_be() {
        let encrypted = crate::cipher::tests::cipher();
        let tags = [&4u16.to_be_bytes()[..], &[8, 1, 2, 3]].concat();
        let build = |qualifier: &[u8], value: &[u8], tags: &[u8]| {
            Cell::build(b"r", b"f", qualifier, i64::MIN, halcyon_cell::CellType::Put, value, tags, 0)
        };
        let cells = [build(b"", b"", b""), build(&[b'q'; 300], &[7; 70_000], &tags), build(b"q", b"v", b"")];
        let clusters = vec![halcyon_schema::ClusterUuid { least: u64::MAX, most: u64::MAX }; 50];
        let families: Vec<Bytes> = (0..50).map(|at| Bytes::from(vec![b'f'; 5 * at + 1])).collect();
        for (names_count, cells_count) in [(0, 1), (0, 1000), (1, 1), (50, 3)] {
            let cells: Vec<_> = cells.iter().cycle().take(cells_count).map(|cell| cell.get()).collect();
            let number = if names_count == 0 { 0 } else { u64::MAX };
            let entry = WalEntry {
                region: &[b'1'; 32],
                table: &vec![b't'; 1 + 10 * names_count],
                seq: SeqId::new(number / 2),
                write_time_ms: -1,
                nonce_group: number,
                nonce: number,
                cluster_ids: &clusters[..names_count],
                replicated: &families[..names_count],
                cells: &cells,
            };
            let bytes = cells.iter().map(|cell| cell.bytes().len()).sum();
            for cipher in [None, Some(&encrypted)] {
                let len = PreparedEntry::new(&entry, cipher).unwrap().len();
                let len_max = entry_len_max(&entry, bytes, cells_count, cipher.is_some()).unwrap();
                let slack = 200 + names_count * 30 + if cipher.is_some() { cells_count * 30 } else { 0 };
                assert!((len..len + slack).contains(&len_max), "{len} of {len_max}");
            }
        }
    }

    #[test]
    fn the_key_is_a_wal_key_with_one_attribute() {
        let cell = Cell::put(b"r", b"f", b"q", 5, b"v");
        let cells = [cell.get()];
        let entry = WalEntry {
            region: b"0123456789abcdef0123456789abcdef",
            table: b"ns:t",
            seq: SeqId::new(7),
            write_time_ms: 1_700_000_000_000,
            nonce_group: 3,
            nonce: 0,
            cluster_ids: &[],
            replicated: &[],
            cells: &cells,
        };
        let prepared = PreparedEntry::new(&entry, None).unwrap();
        let mut out = Vec::new();
        let salt = Salt::random();
        prepared.put(&mut out, Mark { salt, synced_bytes: 99 });
        assert_eq!(out.len(), prepared.len());
        let key_len = out[0] as usize;
        let key = pb::WalKey::decode(&out[1..1 + key_len]).unwrap();
        assert_eq!(&key.encoded_region_name[..], entry.region);
        assert_eq!((key.log_sequence_number, key.write_time), (7, 1_700_000_000_000));
        assert_eq!((key.nonce_group, key.nonce, key.following_kv_count), (Some(3), None, Some(1)));
        assert_eq!(key.extended_attributes.len(), 1);
        let check = Check::of_key(&out[1..1 + key_len], CheckForm::Plain, Some(salt)).unwrap();
        assert_eq!(check.synced_bytes, 99);
        assert!(check.can_begin_at(99) && !check.can_begin_at(98));
        let crc = continue_crc(Check::begin(&out[1..1 + key_len], CheckForm::Plain), cell.bytes());
        assert_eq!(check.complete(crc), check.crc);
        let others = Check::of_key(&out[1..1 + key_len], CheckForm::Plain, Some(Salt::random())).unwrap();
        assert!(!others.can_begin_at(1 << 40) && others.complete(crc) != others.crc);
    }

    #[test]
    fn a_salt_is_in_header_and_trailer() {
        let salt = Salt::random();
        let header = encode_header(None, None, salt).unwrap();
        let header = HeaderExtension::decode(&header[5..]).unwrap();
        assert!(Salt::of_bytes(&header.salt.unwrap()) == Some(salt) && header.checked.is_none());
        assert!(pb::WalTrailer::decode(&salt.trailer()[..SALTED_TRAILER_LEN - TRAILER.len()]).is_ok());
        assert!([0, 8, 15, 17].into_iter().all(|len| Salt::of_bytes(&[0; 17][..len]).is_none()));
    }
}
