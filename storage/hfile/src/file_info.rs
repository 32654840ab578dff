//! The file info block: facts about the whole file under text keys.
//!
//! Payload: `PBUF | varint length | FileInfoProto { (key, value)* }`, sorted by key bytes. Names and values were
//! checked against HBase's `HFileInfo`, `HStoreFile` and `StoreFileWriter`.

use std::collections::BTreeMap;

use bytes::Bytes;
use halcyon_cell::{Error, KeyRef, Result, SeqId};
use halcyon_proto::PB_MAGIC;
use halcyon_proto::pb::{BytesBytesPair, CompactionEventTracker, FileInfoProto, TimeRangeTracker};
use prost::Message;

use crate::BloomType;

pub(crate) mod name {
    pub(crate) const LAST_KEY: &str = "hfile.LASTKEY";
    pub(crate) const AVG_KEY_LEN: &str = "hfile.AVG_KEY_LEN";
    pub(crate) const AVG_VALUE_LEN: &str = "hfile.AVG_VALUE_LEN";
    pub(crate) const CREATE_TIME: &str = "hfile.CREATE_TIME_TS";
    pub(crate) const MAX_TAGS_LEN: &str = "hfile.MAX_TAGS_LEN";
    pub(crate) const TAGS_COMPRESSED: &str = "hfile.TAGS_COMPRESSED";
    pub(crate) const KEY_OF_BIGGEST_CELL: &str = "hfile.KEY_OF_BIGGEST_CELL";
    pub(crate) const LEN_OF_BIGGEST_CELL: &str = "hfile.LEN_OF_BIGGEST_CELL";
    pub(crate) const KEY_VALUE_VERSION: &str = "KEY_VALUE_VERSION";
    pub(crate) const MAX_MEMSTORE_TS: &str = "MAX_MEMSTORE_TS_KEY";
    pub(crate) const MAX_SEQ_ID: &str = "MAX_SEQ_ID_KEY";
    pub(crate) const MAJOR_COMPACTION: &str = "MAJOR_COMPACTION_KEY";
    pub(crate) const EXCLUDE_FROM_MINOR: &str = "EXCLUDE_FROM_MINOR_COMPACTION";
    pub(crate) const COMPACTION_EVENT: &str = "COMPACTION_EVENT_KEY";
    pub(crate) const TIME_RANGE: &str = "TIMERANGE";
    pub(crate) const EARLIEST_PUT: &str = "EARLIEST_PUT_TS";
    pub(crate) const BLOOM_TYPE: &str = "BLOOM_FILTER_TYPE";
    pub(crate) const BLOOM_PARAM: &str = "BLOOM_FILTER_PARAM";
    pub(crate) const LAST_BLOOM_KEY: &str = "LAST_BLOOM_KEY";
    pub(crate) const DELETE_FAMILY_COUNT: &str = "DELETE_FAMILY_COUNT";
    pub(crate) const DATA_BLOCK_ENCODING: &str = "DATA_BLOCK_ENCODING";
    pub(crate) const INDEX_BLOCK_ENCODING: &str = "INDEX_BLOCK_ENCODING";
    pub(crate) const HISTORICAL: &str = "HISTORICAL";
    pub(crate) const BULK_LOAD_TIME: &str = "BULKLOAD_TIMESTAMP";
    pub(crate) use halcyon_schema::mob::MOB_CELLS_COUNT;
    pub(crate) const SKIP_RESET_SEQ_ID: &str = "SKIP_RESET_SEQ_ID";
}

/// A boolean in file info.
pub(crate) fn boolean(value: bool) -> [u8; 1] {
    [if value { 0xff } else { 0 }]
}

/// What is known of a file without reading its blocks. Times are milliseconds.
#[derive(Clone, Debug)]
pub struct FileInfo {
    pub(crate) map: BTreeMap<Bytes, Bytes>,
    pub(crate) entry_count: u64,
    pub(crate) first_key: Option<Bytes>,
    last_key: Option<Bytes>,
    max_seq_id: Option<SeqId>,
    time_range: Option<(i64, i64)>,
    max_mvcc: SeqId,
    bloom_type: BloomType,
}

impl FileInfo {
    /// Parses the payload of a file info block. Known keys are checked here, once.
    pub(crate) fn parse(payload: &Bytes) -> Result<FileInfo> {
        let Some(message) = payload.strip_prefix(PB_MAGIC) else {
            return Err(Error::corrupt("file info: expected PBUF at its start"));
        };
        let message = payload.slice_ref(message);
        let proto = FileInfoProto::decode_length_delimited(message)
            .map_err(|e| Error::corrupt(format!("file info: {e}")))?;
        let map = proto.map_entry.into_iter().map(|pair| (pair.first, pair.second)).collect();
        FileInfo::of_map(map)
    }

    fn of_map(map: BTreeMap<Bytes, Bytes>) -> Result<FileInfo> {
        let mut info = FileInfo {
            map,
            entry_count: 0,
            first_key: None,
            last_key: None,
            max_seq_id: None,
            time_range: None,
            max_mvcc: SeqId::ZERO,
            bloom_type: BloomType::None,
        };
        info.last_key = info.get(name::LAST_KEY).cloned();
        if let Some(key) = &info.last_key {
            KeyRef::parse(key).map_err(|e| e.context("file info hfile.LASTKEY"))?;
        }
        info.max_seq_id = info.i64(name::MAX_SEQ_ID)?.map(|id| SeqId::new(id.max(0) as u64));
        info.max_mvcc = SeqId::new(info.i64(name::MAX_MEMSTORE_TS)?.unwrap_or(0).max(0) as u64);
        info.time_range = info.parse_time_range(name::TIME_RANGE)?;
        info.bloom_type = info.parse_bloom_type()?;
        for long in [name::CREATE_TIME, name::EARLIEST_PUT, name::DELETE_FAMILY_COUNT, name::BULK_LOAD_TIME] {
            info.i64(long)?;
        }
        for int in [name::KEY_VALUE_VERSION, name::MAX_TAGS_LEN, name::AVG_KEY_LEN, name::AVG_VALUE_LEN] {
            info.i32(int)?;
        }
        Ok(info)
    }

    /// Any entry, by its name.
    pub fn get(&self, name: &str) -> Option<&Bytes> {
        self.map.get(name.as_bytes())
    }

    /// All entries, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.map.iter()
    }

    /// Number of cells (from the trailer).
    pub fn entry_count(&self) -> u64 {
        self.entry_count
    }

    pub fn first_key(&self) -> Option<KeyRef<'_>> {
        self.first_key.as_deref().map(KeyRef::trusted)
    }

    pub fn last_key(&self) -> Option<KeyRef<'_>> {
        self.last_key.as_deref().map(KeyRef::trusted)
    }

    /// The flush sequence id; `None` in bulk-loaded files, whose names hold it.
    pub fn max_seq_id(&self) -> Option<SeqId> {
        self.max_seq_id
    }

    /// Smallest and largest cell timestamp, both inside. Smallest is 0 when the file holds a marker that deletes
    /// older versions. `None` if it was not recorded or there are no cells.
    pub fn time_range(&self) -> Option<(i64, i64)> {
        self.time_range
    }

    /// As `time_range`, under another name than HBase's own; `None` also if it cannot be read.
    pub fn time_range_named(&self, name: &str) -> Option<(i64, i64)> {
        self.parse_time_range(name).ok().flatten()
    }

    /// The largest sequence id that stands beside a cell; 0 if none is needed any more.
    pub fn max_mvcc(&self) -> SeqId {
        self.max_mvcc
    }

    pub fn is_major(&self) -> bool {
        self.boolean(name::MAJOR_COMPACTION)
    }

    pub fn is_excluded_from_minor_compaction(&self) -> bool {
        self.boolean(name::EXCLUDE_FROM_MINOR)
    }

    /// The oldest Put's timestamp; `None` if there is no Put. `i64::MIN` if the file does not say it: HBase's `HFile.Writer` alone,
    /// without its `StoreFileWriter`, writes no such entry, and then any Put may be there (`Compactor.getFileDetails`).
    pub fn earliest_put_ts(&self) -> Option<i64> {
        match self.i64(name::EARLIEST_PUT) {
            Ok(Some(ts)) => (ts != i64::MAX).then_some(ts),
            Ok(None) if self.entry_count() == 0 => None,
            Ok(None) | Err(_) => Some(i64::MIN),
        }
    }

    /// Number of `DeleteFamily` and `DeleteFamilyVersion` cells; `None` if they were not counted.
    pub fn delete_family_count(&self) -> Option<u64> {
        self.i64(name::DELETE_FAMILY_COUNT).ok()?.map(|count| count.max(0) as u64)
    }

    pub fn create_time_ms(&self) -> Option<i64> {
        self.i64(name::CREATE_TIME).ok()?
    }

    /// When the file was made for bulk load; `None` for files of flushes and compactions.
    pub fn bulk_load_time_ms(&self) -> Option<i64> {
        self.i64(name::BULK_LOAD_TIME).ok()?
    }

    /// A bulk-loaded file whose cells keep the sequence ids they have.
    pub fn skips_reset_of_seq_ids(&self) -> bool {
        self.boolean(name::SKIP_RESET_SEQ_ID)
    }

    pub fn bloom_type(&self) -> BloomType {
        self.bloom_type
    }

    /// Names of the files this one was compacted from.
    pub fn compacted_from(&self) -> Result<Vec<String>> {
        let Some(value) = self.get(name::COMPACTION_EVENT) else { return Ok(Vec::new()) };
        let message = value.strip_prefix(PB_MAGIC).unwrap_or(value);
        let tracker = CompactionEventTracker::decode(message)
            .map_err(|e| Error::corrupt(format!("file info COMPACTION_EVENT_KEY: {e}")))?;
        Ok(tracker.compacted_store_file.iter().map(|n| String::from_utf8_lossy(n).into_owned()).collect())
    }

    /// Bytes of the longest tags of a cell; 0 if none has any.
    pub fn max_tags_len(&self) -> u32 {
        self.i32(name::MAX_TAGS_LEN).ok().flatten().unwrap_or(0).max(0) as u32
    }

    pub(crate) fn has_tags(&self) -> bool {
        self.get(name::MAX_TAGS_LEN).is_some()
    }

    pub(crate) fn has_mvcc(&self) -> bool {
        matches!(self.i32(name::KEY_VALUE_VERSION), Ok(Some(1)))
    }

    pub(crate) fn has_compressed_tags(&self) -> bool {
        self.boolean(name::TAGS_COMPRESSED)
    }

    fn i64(&self, name: &str) -> Result<Option<i64>> {
        self.fixed::<8>(name).map(|found| found.map(i64::from_be_bytes))
    }

    fn i32(&self, name: &str) -> Result<Option<i32>> {
        self.fixed::<4>(name).map(|found| found.map(i32::from_be_bytes))
    }

    fn fixed<const N: usize>(&self, name: &str) -> Result<Option<[u8; N]>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let value = value.as_ref().try_into().map_err(|_| {
            Error::corrupt(format!("file info {name}: expected {N} bytes, found {}", value.len()))
        })?;
        Ok(Some(value))
    }

    fn boolean(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value.iter().any(|&b| b != 0))
    }

    fn parse_time_range(&self, name: &str) -> Result<Option<(i64, i64)>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let (from, to) = if let Some(message) = value.strip_prefix(PB_MAGIC) {
            let tracker = TimeRangeTracker::decode(message)
                .map_err(|e| Error::corrupt(format!("file info {name}: {e}")))?;
            (tracker.from() as i64, tracker.to() as i64)
        } else {
            let value = self.fixed::<16>(name)?.expect("it is there");
            let (from, to) = value.split_at(8);
            let long = |half: &[u8]| i64::from_be_bytes(half.try_into().expect("eight bytes"));
            (long(from), long(to))
        };
        Ok((from <= to).then_some((from, to)))
    }

    fn parse_bloom_type(&self) -> Result<BloomType> {
        let Some(value) = self.get(name::BLOOM_TYPE) else { return Ok(BloomType::None) };
        match value.as_ref() {
            b"NONE" => Ok(BloomType::None),
            b"ROW" => Ok(BloomType::Row),
            b"ROWCOL" => Ok(BloomType::RowCol),
            b"ROWPREFIX_FIXED_LENGTH" => self.parse_prefix_len().map(BloomType::RowPrefixFixedLength),
            other => Err(Error::invalid(format!("bloom filter type {} is unknown", other.escape_ascii()))),
        }
    }

    /// Four bytes of an int32 or, as some writers had it, decimal digits.
    fn parse_prefix_len(&self) -> Result<u16> {
        let wrong = || Error::corrupt("file info BLOOM_FILTER_PARAM: expected a prefix length");
        let value = self.get(name::BLOOM_PARAM).ok_or_else(wrong)?;
        let int = value.as_ref().try_into().map(u32::from_be_bytes).ok().and_then(|n| u16::try_from(n).ok());
        let len = int.or_else(|| std::str::from_utf8(value).ok()?.parse().ok());
        len.filter(|&len| len > 0).ok_or_else(wrong)
    }
}

/// Entries on their way into a file.
#[derive(Default)]
pub(crate) struct FileInfoWriter {
    map: BTreeMap<Bytes, Bytes>,
}

impl FileInfoWriter {
    pub(crate) fn put(&mut self, name: &[u8], value: &[u8]) {
        self.map.insert(Bytes::copy_from_slice(name), Bytes::copy_from_slice(value));
    }

    pub(crate) fn put_i64(&mut self, name: &str, value: i64) {
        self.put(name.as_bytes(), &value.to_be_bytes());
    }

    pub(crate) fn put_i32(&mut self, name: &str, value: i32) {
        self.put(name.as_bytes(), &value.to_be_bytes());
    }

    /// Takes over entries; they win over those of the same name.
    pub(crate) fn put_all(&mut self, other: FileInfoWriter) {
        self.map.extend(other.map);
    }

    pub(crate) fn put_compaction_event(&mut self, names: &[String]) {
        let tracker = CompactionEventTracker {
            compacted_store_file: names.iter().map(|n| Bytes::copy_from_slice(n.as_bytes())).collect(),
        };
        let mut value = PB_MAGIC.to_vec();
        tracker.encode(&mut value).expect("a vector grows");
        self.put(name::COMPACTION_EVENT.as_bytes(), &value);
    }

    pub(crate) fn payload(&self) -> Vec<u8> {
        let pair = |(first, second): (&Bytes, &Bytes)| BytesBytesPair {
            first: first.clone(),
            second: second.clone(),
        };
        let proto = FileInfoProto { map_entry: self.map.iter().map(pair).collect() };
        let mut out = PB_MAGIC.to_vec();
        proto.encode_length_delimited(&mut out).expect("a vector grows");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(entries: &[(&str, &[u8])]) -> Result<FileInfo> {
        let mut writer = FileInfoWriter::default();
        for (name, value) in entries {
            writer.put(name.as_bytes(), value);
        }
        FileInfo::parse(&Bytes::from(writer.payload()))
    }

    #[test]
    fn typed_values_come_back() {
        let range = [&5i64.to_be_bytes()[..], &9i64.to_be_bytes()].concat();
        let info = parse(&[
            (name::MAX_SEQ_ID, &77i64.to_be_bytes()),
            (name::TIME_RANGE, &range),
            (name::MAJOR_COMPACTION, &[0xff]),
            (name::BLOOM_TYPE, b"ROWPREFIX_FIXED_LENGTH"),
            (name::BLOOM_PARAM, b"12"),
        ])
        .unwrap();
        assert_eq!(
            (info.max_seq_id(), info.time_range(), info.is_major()),
            (Some(SeqId::new(77)), Some((5, 9)), true)
        );
        assert_eq!(info.bloom_type(), BloomType::RowPrefixFixedLength(12));
        assert!(!info.has_tags() && !info.has_mvcc());
    }

    #[test]
    fn values_of_the_wrong_size_are_refused() {
        for wrong in [name::MAX_SEQ_ID, name::TIME_RANGE, name::KEY_VALUE_VERSION, name::LAST_KEY] {
            assert!(parse(&[(wrong, b"abc")]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn compaction_inputs_come_back() {
        let mut writer = FileInfoWriter::default();
        writer.put_compaction_event(&["a1".into(), "b2".into()]);
        let info = FileInfo::parse(&Bytes::from(writer.payload())).unwrap();
        assert_eq!(info.compacted_from().unwrap(), ["a1", "b2"]);
    }
}
