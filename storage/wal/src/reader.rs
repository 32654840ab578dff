//! Reads one log from begin to end.
//!
//! The writer of a log may have died at any moment, so its end may be missing; and the pages it had not
//! synced may be there, be zeros, or be anything. That is a *torn tail*: the entries before it are all there
//! are, and reading ends with [`WalReader::torn_at`] set. Damage to bytes that were once on disk is another
//! thing, and an error: edits are lost that somebody may have been promised.
//!
//! To tell the two apart, each of our entries says how many bytes of its file were on disk when it was
//! appended. When an entry cannot be decoded, the reader looks for whole entries behind it: if one of them
//! knows the damaged place to have been on disk, this is corruption, else a torn tail. What clients put into values cannot be
//! taken for such an entry, because checks depend on the file's salt (`check.rs`). For a log written by
//! HBase there are no such witnesses; there an entry that is cut short or all zeros to the end is a torn
//! tail, anything else corruption. A file that ends with a trailer was closed in peace and cannot be torn.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use halcyon_cell::{Cell, Error, Result};
use halcyon_crypto::DataKey;
use halcyon_env::{Env, ReadableFile};
use halcyon_proto::pb;
use prost::Message;

use crate::check::{Check, CheckForm, HeaderExtension, SALTED_TRAILER_LEN, Salt};
use crate::cipher;
use crate::compressed::CompressionContext;
use crate::format::{MAGIC, SECURE_CELL_CODEC_CLASS, TRAILER, TRAILER_MAGIC, continue_crc};
use crate::source::{Decode, Source, Stop, bad};

mod search;

use search::Found;

/// Longest `WALHeader` and `WALTrailer`.
const HEADER_LEN_MAX: usize = 1 << 20;
/// Longest `WALKey`.
pub const KEY_LEN_MAX: usize = 16 << 20;
/// Longest key that an entry may be appended with: so far behind damage its entry is looked for.
pub(crate) const APPENDED_KEY_LEN_MAX: usize = 1 << 20;
/// Longest cell.
pub const CELL_LEN_MAX: usize = 1 << 30;
/// Longest entry, decompressed.
pub const ENTRY_LEN_MAX: usize = 1 << 30;
/// Most bytes of cells that an entry may be appended with. What is acknowledged has to be read back, with whatever its key adds.
pub const APPENDED_LEN_MAX: usize = ENTRY_LEN_MAX / 2;

const _: () = assert!(APPENDED_LEN_MAX <= CELL_LEN_MAX, "one cell may be all of an entry");
const _: () = assert!(APPENDED_KEY_LEN_MAX <= KEY_LEN_MAX, "what is appended can be read");

/// Iterates over the entries of one log: `(WALKey, cells)`, each cell with the entry's seq.
///
/// After the last entry, or an error, there are no more. One thread at a time.
pub struct WalReader {
    path: String,
    header: pb::WalHeader,
    source: Source,
    file_len: u64,
    /// Where the first entry begins.
    begin: u64,
    /// Its entries have checks.
    checked: bool,
    /// What these are made with; `None` in a log of before.
    salt: Option<Salt>,
    has_trailer: bool,
    compression: Option<CompressionContext>,
    /// Of an encrypted log.
    key: Option<DataKey>,
    torn_at: Option<u64>,
    done: bool,
    /// `ENTRY_LEN_MAX`; tests use less.
    entry_len_max: usize,
}

struct Decoded {
    key: pb::WalKey,
    cells: Vec<Cell>,
}

impl WalReader {
    /// Opens a log that nobody writes any more. A file that ends inside its header, or is all zeros, is a log
    /// without entries and torn. `Corrupt` if the header is not a log's; `Invalid` if its key cannot be unwrapped, or for
    /// values compressed with a codec we do not have.
    pub fn open(env: &Env, path: &Path) -> Result<WalReader> {
        WalReader::of(env, path, env.fs.open(path)?, u64::MAX)
    }

    /// As `open`, for a log that is still being written, of which the first `len` bytes are whole entries
    /// ([`crate::Wal::acknowledged`]). What is behind is not looked at.
    pub fn open_up_to(env: &Env, path: &Path, len: u64) -> Result<WalReader> {
        WalReader::of(env, path, env.fs.open_up_to(path, len)?, len)
    }

    fn of(env: &Env, path: &Path, file: Arc<dyn ReadableFile>, len: u64) -> Result<WalReader> {
        let file_len = file.len()?.min(len);
        let mut reader = WalReader {
            path: path.display().to_string(),
            header: pb::WalHeader::default(),
            source: Source::new(file, file_len),
            file_len,
            begin: 0,
            checked: false,
            salt: None,
            has_trailer: false,
            compression: None,
            key: None,
            torn_at: None,
            done: false,
            entry_len_max: ENTRY_LEN_MAX,
        };
        match reader.read_header() {
            Ok(header) => reader.begin(header, path, env)?,
            Err(Stop::End) => reader.end_torn(0),
            Err(Stop::Bad(_)) if reader.is_zero_from(0)? => reader.end_torn(0),
            Err(stop) => return Err(reader.error(0, stop)),
        }
        Ok(reader)
    }

    /// Goes on in the same log, of which more is to be read by now: its first `len` bytes, or all of it. It may have been moved to
    /// `path`. Entries that were read are not read again, so also a compressed log is read once. The reader is of no use after an
    /// error.
    pub fn go_on(&mut self, env: &Env, path: &Path, len: Option<u64>) -> Result<()> {
        let file = match len {
            Some(len) => env.fs.open_up_to(path, len)?,
            None => env.fs.open(path)?,
        };
        self.file_len = file.len()?.min(len.unwrap_or(u64::MAX));
        self.source.go_on(file, self.file_len);
        self.path = path.display().to_string();
        (self.has_trailer, self.torn_at, self.done) = (false, None, false);
        self.find_trailer()
    }

    pub fn header(&self) -> &pb::WalHeader {
        &self.header
    }

    /// Offset of the first byte behind the entries read so far.
    pub fn offset(&self) -> u64 {
        self.source.offset()
    }

    /// Where the entries end, if the log was not closed in peace; known when the iterator has ended.
    pub fn torn_at(&self) -> Option<u64> {
        self.torn_at
    }

    pub fn is_torn(&self) -> bool {
        self.torn_at.is_some()
    }

    /// Whether the log was closed in peace.
    pub fn has_trailer(&self) -> bool {
        self.has_trailer
    }

    /// The next entry, `None` at the end. `Corrupt` names file and offset.
    pub fn next_entry(&mut self) -> Result<Option<(pb::WalKey, Vec<Cell>)>> {
        if self.done {
            return Ok(None);
        }
        let at = self.source.offset();
        if at == self.source.end() {
            self.done = true;
            return Ok(None);
        }
        match self.decode() {
            Ok(entry) => {
                let (behind, end) = (self.source.offset(), self.source.end());
                assert!(
                    at < behind && behind <= end,
                    "an entry from {at} to {behind} lies in front of {end}"
                );
                Ok(Some((entry.key, entry.cells)))
            }
            Err(stop) => self.settle(at, stop),
        }
    }

    /// Where the first entry begins: behind the header. 0 if the log is torn within that.
    pub fn entries_begin(&self) -> u64 {
        self.begin
    }

    /// Where the entries end, as far as the file was there when it was opened.
    pub fn end(&self) -> u64 {
        self.source.end()
    }

    /// Goes to the entry that begins at `offset`. `Invalid` if the log is compressed, because its entries need those before
    /// them, or if no entry can begin there.
    pub fn seek(&mut self, offset: u64) -> Result<()> {
        let (begin, end) = (self.begin, self.source.end());
        if self.compression.is_some() {
            return Err(Error::invalid(format!("{}: a compressed log is read from its begin", self.path)));
        }
        if offset < begin || offset > end {
            let what = format!("expected an offset from {begin} to {end}, found {offset}");
            return Err(Error::invalid(format!("{}: {what}", self.path)));
        }
        self.source.seek(offset);
        self.done = false;
        self.torn_at = None;
        Ok(())
    }

    fn read_header(&mut self) -> Decode<Bytes> {
        let magic = self.source.take(MAGIC.len())?;
        if magic != MAGIC {
            return bad(format!("magic: expected {}, found {}", MAGIC.escape_ascii(), magic.escape_ascii()));
        }
        let len = self.source.varint32()? as usize;
        if len > HEADER_LEN_MAX {
            return bad(format!("header length: expected at most {HEADER_LEN_MAX}, found {len}"));
        }
        Ok(Bytes::copy_from_slice(self.source.take(len)?))
    }

    fn begin(&mut self, header: Bytes, path: &Path, env: &Env) -> Result<()> {
        let malformed =
            |error: prost::DecodeError| Error::corrupt(format!("{}: header: {error}", path.display()));
        let extension = HeaderExtension::decode(header.clone()).map_err(malformed)?;
        if let Some(bytes) = &extension.salt {
            let salt = Salt::of_bytes(bytes).ok_or_else(|| {
                let what = format!("a salt of {} bytes", bytes.len());
                Error::corrupt(format!("{}: header: expected one of 16, found {what}", self.path))
            })?;
            self.salt = Some(salt);
        }
        self.checked = extension.checked() || self.salt.is_some();
        self.header = pb::WalHeader::decode(header).map_err(malformed)?;
        if let Some(wrapped) = &self.header.encryption_key {
            let key = env.keys.unwrap_for_wal(wrapped);
            let key = key.map_err(|error| error.context(format_args!("{}: key of the log", self.path)))?;
            self.key = (self.header.cell_codec_cls_name() == SECURE_CELL_CODEC_CLASS).then_some(key);
        }
        // HBase compresses no encrypted log, whatever the header says.
        if self.header.has_compression() && self.key.is_none() {
            let recovered = path.parent().is_some_and(|dir| dir.ends_with(crate::split::RECOVERED_EDITS_DIR));
            let context = CompressionContext::new(&self.header, recovered);
            self.compression = Some(context.map_err(|e| Error::invalid(format!("{}: {e}", self.path)))?);
        }
        self.begin = self.source.offset();
        self.find_trailer()?;
        assert!(
            self.begin <= self.source.end() && self.source.end() <= self.file_len,
            "entries lie behind the header and before the trailer: {} to {} of {} bytes",
            self.begin,
            self.source.end(),
            self.file_len
        );
        Ok(())
    }

    /// Sets the end of the entries in front of a trailer, which is behind what was read. With a salt it is known from the end of a
    /// value.
    fn find_trailer(&mut self) -> Result<()> {
        let at = self.source.offset();
        if let Some(salt) = self.salt {
            let len = SALTED_TRAILER_LEN as u64;
            let Some(begin) = self.file_len.checked_sub(len).filter(|begin| *begin >= at) else {
                return Ok(());
            };
            self.source.seek(begin);
            self.has_trailer = match self.source.take(SALTED_TRAILER_LEN) {
                Ok(tail) => tail == salt.trailer(),
                Err(stop) => return Err(self.error(begin, stop)),
            };
            if self.has_trailer {
                self.source.set_end(begin);
            }
            self.source.seek(at);
            return Ok(());
        }
        if self.file_len < at + 8 {
            return Ok(());
        }
        self.source.seek(self.file_len - 8);
        let tail: [u8; 8] = match self.source.take(8) {
            Ok(tail) => tail.try_into().expect("eight bytes"),
            Err(stop) => return Err(self.error(self.file_len - 8, stop)),
        };
        let len = u64::from(u32::from_be_bytes([tail[0], tail[1], tail[2], tail[3]]));
        if tail[4..] == *TRAILER_MAGIC && len <= HEADER_LEN_MAX as u64 && at + 8 + len <= self.file_len {
            self.has_trailer = true;
            self.source.set_end(self.file_len - 8 - len);
        }
        self.source.seek(at);
        Ok(())
    }

    fn check_form(&self) -> CheckForm {
        if self.compression.is_some() { CheckForm::Packed } else { CheckForm::Plain }
    }

    /// The bytes of a key, the check in them, and what they are.
    fn read_key(&mut self) -> Decode<(Bytes, Option<Check>, pb::WalKey)> {
        let at = self.source.offset();
        let key_len = self.source.varint32()? as usize;
        if key_len == 0 || key_len > KEY_LEN_MAX {
            return bad(format!("key length: expected 1 to {KEY_LEN_MAX}, found {key_len}"));
        }
        let bytes = Bytes::copy_from_slice(self.source.take(key_len)?);
        let check = Check::of_key(&bytes, self.check_form(), self.salt);
        if self.checked && check.is_none() {
            return bad("key: expected a check at its end, found none");
        }
        if self.checked && !check.as_ref().is_some_and(|check| check.can_begin_at(at)) {
            return bad("check of key and cells: expected one of this file, found one that is not");
        }
        let key = pb::WalKey::decode(bytes.clone())
            .or_else(|error| bad(format!("key: expected a WALKey, found that {error}")))?;
        Ok((bytes, check, key))
    }

    /// Whether the entry that comes next is whole, for a compressed log with checks. Nothing is looked up in dictionaries, so it
    /// can be asked of any place. The source is behind the entry then.
    fn verify_compressed(&mut self) -> Decode<()> {
        let (bytes, check, key) = self.read_key()?;
        let (Some(check), Some(context)) = (check, &self.compression) else {
            return bad("a log without compression or without checks");
        };
        let count = u64::from(key.following_kv_count());
        if count > self.source.remaining() {
            return Err(Stop::End);
        }
        let crc = self.source.with_crc(Check::begin(&bytes, self.check_form()), |source| {
            (0..count).try_for_each(|_| context.skip_cell(source))
        })?;
        check.verify(crc)
    }

    fn decode(&mut self) -> Decode<Decoded> {
        let is_verified = self.checked && self.compression.is_some();
        if is_verified {
            // First of all: what is not whole must not get into the dictionaries.
            let at = self.source.offset();
            self.verify_compressed()?;
            self.source.seek(at);
        }
        let (key_bytes, check, mut key) = self.read_key()?;
        if let Some(context) = &mut self.compression {
            context.expand_key(&mut key)?;
        }
        if key.encoded_region_name.is_empty() {
            return bad("key: expected the name of a region, found none");
        }
        let check = check.filter(|_| self.checked);
        let mut crc = check.as_ref().map_or(0, |_| Check::begin(&key_bytes, self.check_form()));
        let (cells, len) = self.decode_cells(&key, &mut crc)?;
        if let Some(check) = check
            && !is_verified
        {
            check.verify(crc)?;
        }
        if len > self.entry_len_max {
            return Err(Stop::TooLong(len));
        }
        Ok(Decoded { key, cells })
    }

    /// The cells and their bytes. Of an entry that is too long none are kept. `crc` goes on over all of them.
    fn decode_cells(&mut self, key: &pb::WalKey, crc: &mut u32) -> Decode<(Vec<Cell>, usize)> {
        let count = key.following_kv_count() as usize;
        if count as u64 > self.source.remaining() {
            return Err(Stop::End);
        }
        let seq = key.log_sequence_number;
        let mut cells = Vec::with_capacity(count.min(1024));
        let mut len = 0;
        for _ in 0..count {
            let cell = match (&self.key, &mut self.compression) {
                (Some(key), _) => cipher::read_cell(key, &mut self.source, seq, crc)?,
                (None, Some(context)) => context.read_cell(&mut self.source, seq)?,
                (None, None) => read_plain_cell(&mut self.source, seq, crc)?,
            };
            len += cell.bytes().len();
            if len <= self.entry_len_max {
                cells.push(cell);
            } else {
                cells.clear(); // whether it is whole is found out all the same
            }
        }
        Ok((cells, len))
    }

    /// Decides what an undecodable entry at `at` means.
    fn settle(&mut self, at: u64, mut stop: Stop) -> Result<Option<(pb::WalKey, Vec<Cell>)>> {
        if let Stop::Io(_) = stop {
            self.done = true;
            return Err(self.error(at, stop));
        }
        let may_decode_again = self.compression.is_none() || self.checked;
        if self.has_trailer && may_decode_again && matches!(stop, Stop::End) {
            // What looked like a trailer may be the end of a value.
            self.has_trailer = false;
            self.source.set_end(self.file_len);
            self.source.seek(at);
            if let Ok(entry) = self.decode()
                && self.source.offset() == self.file_len
            {
                return Ok(Some((entry.key, entry.cells)));
            }
            self.has_trailer = true;
        }
        self.done = true;
        if self.is_torn_tail(at, &mut stop)? {
            self.end_torn(at);
            return Ok(None);
        }
        self.source.seek(at);
        Err(self.error(at, stop))
    }

    fn is_torn_tail(&mut self, at: u64, stop: &mut Stop) -> Result<bool> {
        if self.has_trailer || matches!(stop, Stop::TooLong(_)) {
            return Ok(false);
        }
        if self.checked {
            // One that knows that the damaged place was on disk.
            let witness = self.find_entry(at + 1, at + 1)?;
            if matches!(witness, Found::TooMuch) {
                let what =
                    "expected a torn tail or damage, found too much that looks like entries to tell which";
                *stop = Stop::Bad(what.to_string());
            }
            return Ok(matches!(witness, Found::Nothing));
        }
        Ok(matches!(stop, Stop::End) || self.is_begin_of_trailer(at)? || self.is_zero_from(at)?)
    }

    /// Whether the writer died while it wrote its trailer.
    fn is_begin_of_trailer(&mut self, at: u64) -> Result<bool> {
        self.source.seek(at);
        let len = self.source.remaining();
        if len >= TRAILER.len() as u64 {
            return Ok(false);
        }
        match self.source.take(len as usize) {
            Ok(bytes) => Ok(TRAILER.starts_with(bytes)),
            Err(stop) => Err(self.error(at, stop)),
        }
    }

    fn is_zero_from(&mut self, at: u64) -> Result<bool> {
        self.source.seek(at);
        loop {
            let here = self.source.offset();
            let len = self.source.remaining().min(64 << 10) as usize;
            if len == 0 {
                return Ok(true);
            }
            match self.source.take(len) {
                Ok(bytes) if bytes.iter().all(|byte| *byte == 0) => {}
                Ok(_) => return Ok(false),
                Err(stop) => return Err(self.error(here, stop)),
            }
        }
    }

    fn end_torn(&mut self, at: u64) {
        self.source.seek(at);
        self.torn_at = Some(at);
        self.done = true;
    }

    fn error(&self, at: u64, stop: Stop) -> Error {
        match stop {
            Stop::End => {
                let end = self.source.end();
                let what = format!("expected an entry that ends before {end}, found one that is cut short");
                Error::corrupt(format!("{}: at offset {at}: {what}", self.path))
            }
            Stop::Bad(what) => Error::corrupt(format!("{}: at offset {at}: {what}", self.path)),
            Stop::TooLong(len) => {
                let what =
                    format!("expected an entry of at most {} bytes, found a whole one", self.entry_len_max);
                Error::corrupt(format!("{}: at offset {at}: {what} of {len} bytes", self.path))
            }
            Stop::Io(error) => Error::from(error).context(format_args!("{} at offset {at}", self.path)),
        }
    }
}

impl Iterator for WalReader {
    type Item = Result<(pb::WalKey, Vec<Cell>)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_entry().transpose()
    }
}

fn read_plain_cell(source: &mut Source, seq: u64, crc: &mut u32) -> Decode<Cell> {
    let len = source.take(4)?;
    let len = u32::from_be_bytes(len.try_into().expect("four bytes")) as usize;
    if len > CELL_LEN_MAX {
        return bad(format!("cell length: expected at most {CELL_LEN_MAX}, found {len}"));
    }
    let bytes = Bytes::copy_from_slice(source.take(len)?);
    *crc = continue_crc(*crc, &bytes);
    Cell::parse(bytes, seq).or_else(|error| bad(format!("cell: expected a KeyValue, found that {error}")))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use halcyon_cell::{CellRef, SeqId};
    use halcyon_env::sim::SimFileSystem;
    use halcyon_schema::ClusterUuid;

    use super::*;
    use crate::{Durability, Wal, WalConfig, WalEntry};

    fn write(env: &Env, counts: &[usize], cluster_ids: &[ClusterUuid], close: bool) -> PathBuf {
        let wal = Wal::open(env.clone(), WalConfig::new("/wals", "/old", "w")).unwrap();
        for (at, &count) in counts.iter().enumerate() {
            let cell = Cell::put(b"r", b"f", b"q", 5, &[7; 100]);
            let cells: Vec<CellRef<'_>> = vec![cell.get(); count];
            let entry = WalEntry {
                region: b"0123456789abcdef0123456789abcdef",
                table: b"t",
                seq: SeqId::new(1 + at as u64),
                write_time_ms: 1,
                nonce_group: 0,
                nonce: 0,
                cluster_ids,
                replicated: &[],
                cells: &cells,
            };
            wal.append(&entry, Durability::SyncWal, Box::new(|_| ())).unwrap();
        }
        wal.drive();
        if close {
            wal.close().unwrap();
        }
        let files = env.fs.list(Path::new("/wals")).unwrap();
        Path::new("/wals").join(&files[0].name)
    }

    /// Such an entry counted as a torn tail: what was acknowledged with it and behind it was lost without a word.
    #[test]
    fn an_entry_that_is_too_long_is_no_torn_tail() {
        for (counts, close) in [(&[1, 10][..], false), (&[1, 10, 1], false), (&[1, 10, 1], true)] {
            let env = SimFileSystem::new().env();
            let path = write(&env, counts, &[], close);
            let mut reader = WalReader::open(&env, &path).unwrap();
            reader.entry_len_max = 500;
            assert_eq!(reader.next_entry().unwrap().map(|(_, cells)| cells.len()), Some(1));
            let error = reader.next_entry().unwrap_err();
            assert!(!reader.is_torn());
            assert!(error.message().contains("a whole one of 1"), "{error}");
            assert_eq!(error.kind(), halcyon_cell::ErrorKind::Corrupt);
            let rest = reader.skip_damage().unwrap();
            assert_eq!(rest.is_some(), counts.len() > 2, "what is behind it can be read");
        }
    }

    /// Keys as long as a client can make them, or the families of a table, were not seen behind damage, and went with it.
    #[test]
    fn entries_with_long_keys_are_found_behind_damage() {
        let id = ClusterUuid { most: u64::MAX, least: u64::MAX };
        for ids_count in [1024, 40_000] {
            let env = SimFileSystem::new().env();
            let path = write(&env, &[1, 10, 1], &vec![id; ids_count], false);
            let mut reader = WalReader::open(&env, &path).unwrap();
            reader.entry_len_max = 500;
            reader.next_entry().unwrap().unwrap();
            reader.next_entry().unwrap_err();
            assert!(reader.skip_damage().unwrap().is_some(), "{ids_count}");
            assert_eq!(reader.next_entry().unwrap().map(|(_, cells)| cells.len()), Some(1));
        }
    }

    /// Nobody would find them behind damage.
    #[test]
    fn a_key_that_is_too_long_to_be_found_is_refused() {
        let env = SimFileSystem::new().env();
        let wal = Wal::open(env, WalConfig::new("/wals", "/old", "w")).unwrap();
        let cell = Cell::put(b"r", b"f", b"q", 5, b"v");
        let (cells, families) = ([cell.get()], vec![Bytes::from(vec![b'f'; 120]); 9000]);
        let entry = WalEntry {
            region: b"0123456789abcdef0123456789abcdef",
            table: b"t",
            seq: SeqId::new(1),
            write_time_ms: 1,
            nonce_group: 0,
            nonce: 0,
            cluster_ids: &[],
            replicated: &families,
            cells: &cells,
        };
        let refused = wal.append(&entry, Durability::SyncWal, Box::new(|_| ())).unwrap_err();
        assert_eq!(refused.kind(), halcyon_cell::ErrorKind::Invalid);
        assert!(refused.message().contains("9000 families"), "{refused}");
    }
}
