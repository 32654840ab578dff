//! What file info tells about the cells of a file as a whole, gathered while they are written.

use halcyon_cell::{CellRef, CellType, KeyRef, SeqId};

use crate::file_info::{FileInfoWriter, name};

/// What file info tells about the cells as a whole.
pub(crate) struct CellStats {
    pub(crate) entries: u64,
    pub(crate) key_bytes: u64,
    pub(crate) value_bytes: u64,
    pub(crate) max_tags_len: usize,
    pub(crate) max_mvcc: SeqId,
    pub(crate) min_ts: i64,
    pub(crate) max_ts: i64,
    pub(crate) earliest_put: i64,
    pub(crate) delete_families: u64,
    pub(crate) biggest_len: u64,
    pub(crate) biggest_key: Vec<u8>,
}

impl CellStats {
    pub(crate) fn new() -> CellStats {
        CellStats {
            entries: 0,
            key_bytes: 0,
            value_bytes: 0,
            max_tags_len: 0,
            max_mvcc: SeqId::ZERO,
            min_ts: i64::MAX,
            max_ts: -1,
            earliest_put: i64::MAX,
            delete_families: 0,
            biggest_len: 0,
            biggest_key: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, cell: &CellRef<'_>, key: KeyRef<'_>) {
        let timestamp = key.timestamp();
        let code = key.type_code();
        self.entries += 1;
        self.key_bytes += key.bytes().len() as u64;
        self.value_bytes += cell.value_len() as u64;
        self.max_tags_len = self.max_tags_len.max(cell.tags().len());
        self.max_mvcc = self.max_mvcc.max(SeqId::new(cell.seq()));
        self.max_ts = self.max_ts.max(timestamp);
        self.min_ts = self.min_ts.min(timestamp);
        if code == CellType::Put as u8 {
            self.earliest_put = self.earliest_put.min(timestamp);
        } else if code == CellType::DeleteColumn as u8 || code == CellType::DeleteFamily as u8 {
            // Such a marker matters to everything older than itself.
            self.min_ts = self.min_ts.min(0);
        }
        // HBase counts the length field that goes in front of a cell on the wire.
        let len = cell.bytes().len() as u64 + 4;
        if len > self.biggest_len {
            self.biggest_len = len;
            self.biggest_key.clear();
            self.biggest_key.extend_from_slice(key.bytes());
        }
    }

    pub(crate) fn time_range(&self) -> Option<(i64, i64)> {
        (self.entries > 0).then_some((self.min_ts, self.max_ts))
    }

    pub(crate) fn describe(&self, info: &mut FileInfoWriter) {
        assert!(
            self.entries == 0 || self.min_ts <= self.max_ts,
            "a file with cells has a time range: a read that asks for a time would skip it otherwise"
        );
        assert!(
            self.delete_families <= self.entries,
            "markers are cells: {} of {}",
            self.delete_families,
            self.entries
        );
        let average = |sum: u64| sum.checked_div(self.entries).unwrap_or(0) as i32;
        info.put_i32(name::AVG_KEY_LEN, average(self.key_bytes));
        info.put_i32(name::AVG_VALUE_LEN, average(self.value_bytes));
        if self.entries > 0 {
            info.put(name::KEY_OF_BIGGEST_CELL.as_bytes(), &self.biggest_key);
            info.put_i64(name::LEN_OF_BIGGEST_CELL, self.biggest_len as i64);
        }
        let range = [self.min_ts.to_be_bytes(), self.max_ts.to_be_bytes()].concat();
        info.put(name::TIME_RANGE.as_bytes(), &range);
        info.put_i64(name::EARLIEST_PUT, self.earliest_put);
        info.put_i64(name::DELETE_FAMILY_COUNT, self.delete_families as i64);
    }
}
