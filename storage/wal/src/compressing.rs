//! A log's file with dictionary compression (HBase: `WALCellCodec.CompressedKvEncoder`, `WALKeyImpl.getBuilder`).
//!
//! Appends encode plain entries, and everything in memory stays plain: an entry may go to another file than it was made for
//! (`replace.rs`, `hedge.rs`), and each file has dictionaries of its own. So the file itself, [`CompressedFile`], encodes what
//! it is given to write, whole entries only.
//!
//! What did not get into the file is kept in its encoded form, because the dictionaries know it already: a disk that was full
//! gets the same bytes again.
//!
//! Tags have no dictionary: their bytes would not say where an entry ends, and a reader could not check an entry before it
//! decodes it.

use std::io;
use std::path::Path;
use std::time::Duration;

use halcyon_cell::{CellRef, Error, Result};
use halcyon_compression::Compressor;
use halcyon_env::{Attempt, WritableFile, vitals};
use halcyon_proto::pb;
use prost::Message;

use crate::WalCompression;
use crate::check::{CHECK_LEN, Check, CheckForm, SALTED_TRAILER_LEN, Salt};
use crate::compressed::{LARGE, SMALL};
use crate::dictionary::WritingDictionary;
use crate::format::{plain_len, put_varint};

/// After so much of values the thread says that it has come on ([`vitals::turn`]). A value takes its codec as long as some more bytes,
/// however short it is, and an entry may have millions.
const TURN_BYTES: usize = 64 << 10;
const VALUE_EXTRA_BYTES: usize = 256;

/// Dictionaries of a file that is written. They have at most the names that the file spells out.
struct Encoder {
    salt: Salt,
    values: Option<Compressor>,
    regions: WritingDictionary,
    tables: WritingDictionary,
    rows: WritingDictionary,
    families: WritingDictionary,
    qualifiers: WritingDictionary,
    /// Room for a value.
    packed: Vec<u8>,
    /// Of values since the last turn.
    unturned_bytes: usize,
}

impl Encoder {
    fn new(compression: WalCompression, salt: Salt) -> Encoder {
        Encoder {
            salt,
            values: compression.values.map(|codec| Compressor::new(codec, compression.zstd_in_records)),
            regions: WritingDictionary::new(LARGE),
            tables: WritingDictionary::new(LARGE),
            rows: WritingDictionary::new(LARGE),
            families: WritingDictionary::new(SMALL),
            qualifiers: WritingDictionary::new(SMALL),
            packed: Vec::new(),
            unturned_bytes: 0,
        }
    }

    /// Appends the compressed form of whole entries. After an error the dictionaries know more than the file.
    fn encode(&mut self, mut plain: &[u8], out: &mut Vec<u8>) -> Result<()> {
        while !plain.is_empty() {
            plain = self.encode_entry(plain, out)?;
        }
        Ok(())
    }

    /// Encodes the first entry; returns those behind it.
    fn encode_entry<'a>(&mut self, plain: &'a [u8], out: &mut Vec<u8>) -> Result<&'a [u8]> {
        let cut = || Error::corrupt("an entry in the log's own buffer is cut off");
        let mut rest = plain;
        let key_len = prost::encoding::decode_varint(&mut rest).map_err(|_| cut())? as usize;
        let (key, mut rest) = rest.split_at_checked(key_len).ok_or_else(cut)?;
        let mut check = Check::of_key(key, CheckForm::Plain, Some(self.salt)).ok_or_else(cut)?;
        let mut key = pb::WalKey::decode(&key[..key_len - CHECK_LEN]).map_err(|_| cut())?;
        let (seq, table) = (key.log_sequence_number, key.table_name.clone());
        key.encoded_region_name = self.regions.field(&key.encoded_region_name).into();
        key.table_name = self.tables.field(&table).into();
        for scope in &mut key.scopes {
            scope.family = self.families.field(&scope.family).into();
        }
        for attribute in &mut key.extended_attributes {
            attribute.value = self.tables.field(&attribute.value).into();
        }
        let index = self.tables.field(&table);
        let index = index.try_into().map_err(|_| Error::invalid("an entry needs the name of a table"))?;
        check.table_index = Some(index);
        put_varint(|byte| out.push(byte), (key.encoded_len() + CheckForm::Packed.len()) as u64);
        let key_at = out.len();
        key.encode_raw(out);
        let check_at = out.len();
        out.resize(check_at + CheckForm::Packed.len(), 0);
        let cells_at = out.len();
        for _ in 0..key.following_kv_count() {
            let len = plain_len(rest).ok_or_else(cut)?;
            let (cell, behind) = rest.split_at_checked(len).ok_or_else(cut)?;
            self.put_cell(CellRef::parse(&cell[4..], seq)?, out)?;
            rest = behind;
        }
        let crc = crc32c::crc32c_append(crc32c::crc32c(&out[key_at..check_at]), &out[cells_at..]);
        check.put(crc, &mut out[check_at..cells_at]);
        Ok(rest)
    }

    fn put_cell(&mut self, cell: CellRef<'_>, out: &mut Vec<u8>) -> Result<()> {
        for len in [cell.key_len(), cell.value_len(), cell.tags().len()] {
            put_varint(|byte| out.push(byte), len as u64);
        }
        let key = cell.key();
        self.rows.put(key.row(), out);
        self.families.put(key.family(), out);
        self.qualifiers.put(key.qualifier(), out);
        out.extend_from_slice(&cell.timestamp().to_be_bytes());
        out.push(cell.type_code());
        match &mut self.values {
            None => out.extend_from_slice(cell.value()),
            Some(values) => {
                self.packed.clear();
                values.compress(cell.value(), &mut self.packed)?;
                put_varint(|byte| out.push(byte), self.packed.len() as u64);
                out.extend_from_slice(&self.packed);
                self.unturned_bytes += cell.value_len() + VALUE_EXTRA_BYTES;
                if self.unturned_bytes >= TURN_BYTES {
                    self.unturned_bytes = 0;
                    vitals::turn();
                }
            }
        }
        out.extend_from_slice(cell.tags());
        Ok(())
    }
}

/// A file behind an [`Encoder`]. Lengths are those of the file itself.
pub(crate) struct CompressedFile {
    inner: Box<dyn WritableFile>,
    encoder: Encoder,
    unwritten: Option<Unwritten>,
    /// An entry could not be encoded, so the dictionaries are of no use any more.
    failed: Option<Error>,
}

/// What was encoded and is not in the file.
struct Unwritten {
    /// Of the plain entries.
    plain_len: usize,
    plain_crc: u32,
    encoded: Vec<u8>,
}

impl CompressedFile {
    /// For a file that has its header and nothing else.
    pub(crate) fn new(
        inner: Box<dyn WritableFile>,
        compression: WalCompression,
        salt: Salt,
    ) -> CompressedFile {
        CompressedFile { inner, encoder: Encoder::new(compression, salt), unwritten: None, failed: None }
    }

    /// The encoded form of entries. They begin with those that were not written before, if there are any.
    fn encode(&mut self, plain: &[u8]) -> io::Result<Vec<u8>> {
        if let Some(error) = &self.failed {
            return Err(io::Error::other(error.clone()));
        }
        let (known, mut encoded) = match self.unwritten.take() {
            None => (0, Vec::with_capacity(plain.len())),
            Some(before) => {
                let again = plain.get(..before.plain_len);
                if again.is_none_or(|again| crc32c::crc32c(again) != before.plain_crc) {
                    self.failed = Some(Error::corrupt("entries that were not written have been passed over"));
                    return self.encode(plain);
                }
                (before.plain_len, before.encoded)
            }
        };
        if let Err(error) = self.encoder.encode(&plain[known..], &mut encoded) {
            self.failed = Some(error);
            return self.encode(plain);
        }
        Ok(encoded)
    }

    /// Keeps what the file did not take.
    fn keep(&mut self, plain: &[u8], encoded: Vec<u8>) {
        self.unwritten =
            Some(Unwritten { plain_len: plain.len(), plain_crc: crc32c::crc32c(plain), encoded });
    }
}

impl WritableFile for CompressedFile {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() == SALTED_TRAILER_LEN && bytes == self.encoder.salt.trailer() {
            return self.inner.write_all(bytes); // no entry is as short as its first bytes say that the key is
        }
        let encoded = self.encode(bytes)?;
        let before = self.inner.len();
        let written = self.inner.write_all(&encoded);
        match &written {
            Ok(()) => assert_eq!(
                self.inner.len(),
                before + encoded.len() as u64,
                "a batch is appended whole, or the next index would mean another name"
            ),
            Err(_) => self.keep(bytes, encoded),
        }
        written
    }

    fn write_within(&mut self, bytes: &[u8], to_disk: bool, limit: Duration) -> Attempt {
        let encoded = match self.encode(bytes) {
            Ok(encoded) => encoded,
            Err(error) => return Attempt::Done(Err(error)),
        };
        let attempt = self.inner.write_within(&encoded, to_disk, limit);
        if !matches!(attempt, Attempt::Done(Ok(())) | Attempt::Late) {
            self.keep(bytes, encoded);
        }
        attempt
    }

    fn sync(&mut self) -> io::Result<()> {
        self.inner.sync()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }

    fn wait_within(&mut self, limit: Duration) -> Attempt {
        self.inner.wait_within(limit)
    }

    fn late_machines(&self) -> Vec<String> {
        self.inner.late_machines()
    }

    fn is_on(&self, machines: &[String]) -> bool {
        self.inner.is_on(machines)
    }

    fn avoid_late(&mut self) {
        self.inner.avoid_late();
    }

    fn check(&mut self) -> io::Result<()> {
        self.inner.check()
    }

    fn is_thin(&self) -> bool {
        self.inner.is_thin()
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.inner.truncate(len)
    }

    fn close(self: Box<Self>) -> io::Result<()> {
        self.inner.close()
    }

    fn sync_and_close(self: Box<Self>) -> io::Result<()> {
        self.inner.sync_and_close()
    }

    fn len_max(&self) -> u64 {
        self.inner.len_max()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn path(&self) -> &Path {
        self.inner.path()
    }
}

#[cfg(all(test, not(halcyon_shuttle)))]
mod tests {
    use halcyon_cell::{Cell, CellType, SeqId};
    use halcyon_schema::Compression;

    use super::*;
    use crate::WalEntry;
    use crate::check::Mark;
    use crate::format::PreparedEntry;
    use crate::log::growth_max;

    /// An entry of so many cells with values of this length: plain, and compressed.
    fn lens(compression: WalCompression, (cells_count, value_len): (usize, usize)) -> (usize, usize) {
        let mut state = 7u32;
        let mut byte = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let mut cell = |at: usize| {
            let value: Vec<u8> = (0..value_len).map(|_| byte()).collect();
            // The first one has no qualifier, and those of the others come once.
            let qualifier = at.checked_sub(1).map(|at| at.to_be_bytes()).unwrap_or_default();
            let qualifier = if at.is_multiple_of(2) { &qualifier[7..] } else { &b""[..] };
            Cell::build(b"r", b"f", qualifier, at as i64, CellType::Put, &value, b"", 0)
        };
        let cells: Vec<Cell> = (0..cells_count).map(&mut cell).collect();
        let cells: Vec<_> = cells.iter().map(Cell::get).collect();
        let entry = WalEntry {
            region: b"0123456789abcdef0123456789abcdef",
            table: b"t",
            seq: SeqId::new(1),
            write_time_ms: 1,
            nonce_group: 0,
            nonce: 0,
            cluster_ids: &[],
            replicated: &[],
            cells: &cells,
        };
        let (salt, mut plain, mut packed) = (Salt::random(), Vec::new(), Vec::new());
        PreparedEntry::new(&entry, None).unwrap().put(&mut plain, Mark::of_new(salt));
        Encoder::new(compression, salt).encode(&plain, &mut packed).unwrap();
        (plain.len(), packed.len())
    }

    /// Values of one byte in BZIP2 made an entry that was accepted larger than any file.
    #[test]
    fn an_entry_gets_no_longer_than_its_codec_may_make_it() {
        for (codec, zstd_in_records) in
            Compression::ALL.map(|codec| (codec, false)).into_iter().chain([(Compression::Zstd, true)])
        {
            let compression = WalCompression { values: Some(codec), zstd_in_records };
            for value_len in (0..12).chain([16, 24, 32, 48, 100, 1000]) {
                // The difference, without the key.
                let (few, many) = (lens(compression, (4, value_len)), lens(compression, (12, value_len)));
                let (plain, packed) = (many.0 - few.0, many.1 - few.1);
                let growth = growth_max(codec) as usize;
                assert!(
                    packed <= plain * growth,
                    "{codec:?}, values of {value_len}: {plain} became {packed}"
                );
            }
        }
    }

    /// A server ended itself because the thread of its WAL compressed one entry for a minute.
    #[test]
    fn a_thread_that_compresses_comes_on() {
        let (vitals, clock) = (vitals::Vitals::default(), halcyon_env::SystemClock::new());
        vitals.watch_thread();
        let _work = vitals::work(|| "a round".to_string(), None);
        let late = || vitals.look(&halcyon_env::RealFileSystem, &clock, Duration::from_secs(3)).len();
        let compression = WalCompression { values: Some(Compression::Snappy), zstd_in_records: false };
        for entry in [(2_000, 1), (1, 200_000)] {
            late();
            assert_eq!(late(), 1, "it does nothing");
            lens(compression, entry);
            assert_eq!(late(), 0, "{entry:?}");
        }
    }
}
