use bytes::Bytes;
use halcyon_proto::pb;

use super::{copied, read_options};

/// How the server reads a scan's blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadType {
    /// The server decides.
    #[default]
    Default,
    /// Reads ahead; for scans of many rows.
    Stream,
    /// Reads block by block; for scans of few rows.
    Pread,
}

/// Whether a scan returns rows in parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowParts {
    /// Whole rows.
    #[default]
    Whole,
    /// Parts of so many cells; the last part of a row may have fewer.
    Batch(u32),
    /// Parts as responses bring them.
    Partial,
}

/// A read of a range of rows.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    pub(crate) message: pb::Scan,
    pub(crate) caching: Option<u32>,
    pub(crate) limit: Option<u32>,
    pub(crate) parts: RowParts,
}

impl Scan {
    /// All rows of a table.
    pub fn new() -> Scan {
        Scan::default()
    }

    /// Rows with this prefix.
    pub fn prefix(prefix: impl AsRef<[u8]>) -> Scan {
        let prefix = prefix.as_ref();
        let scan = Scan::new().start(prefix);
        match after_prefix(prefix) {
            Some(stop) => scan.stop(stop),
            None => scan,
        }
    }

    /// Rows with this prefix from the highest to the lowest.
    pub fn prefix_reversed(prefix: impl AsRef<[u8]>) -> Scan {
        let prefix = prefix.as_ref();
        let scan = Scan::new().stop_inclusive(prefix).reversed(true);
        match after_prefix(prefix) {
            Some(start) => scan.start_after(start),
            None => scan,
        }
    }

    /// First row (inclusive). With [`Scan::reversed`], the highest one.
    pub fn start(mut self, row: impl AsRef<[u8]>) -> Scan {
        self.message.start_row = Some(copied(row));
        self.message.include_start_row = Some(true);
        self
    }

    /// Begins behind this row.
    pub fn start_after(mut self, row: impl AsRef<[u8]>) -> Scan {
        self.message.start_row = Some(copied(row));
        self.message.include_start_row = Some(false);
        self
    }

    /// Ends before this row.
    pub fn stop(mut self, row: impl AsRef<[u8]>) -> Scan {
        self.message.stop_row = Some(copied(row));
        self.message.include_stop_row = Some(false);
        self
    }

    /// Ends with this row.
    pub fn stop_inclusive(mut self, row: impl AsRef<[u8]>) -> Scan {
        self.message.stop_row = Some(copied(row));
        self.message.include_stop_row = Some(true);
        self
    }

    /// Reads from the highest row to the lowest.
    pub fn reversed(mut self, reversed: bool) -> Scan {
        self.message.reversed = Some(reversed);
        self
    }

    read_options!();

    /// Ends after so many rows; 0 is no limit.
    pub fn limit(mut self, rows: u32) -> Scan {
        self.limit = (rows > 0).then_some(rows);
        self
    }

    /// Rows of each call at most. By default only [`Scan::response_bytes_max`] limits a call.
    pub fn caching(mut self, rows: u32) -> Scan {
        self.caching = (rows > 0).then_some(rows);
        self
    }

    /// Bytes of each response at most (`hbase.client.scanner.max.result.size`, 2 MiB).
    pub fn response_bytes_max(mut self, bytes: u64) -> Scan {
        self.message.max_result_size = Some(bytes);
        self
    }

    /// Returns rows in parts of so many cells; 0 returns whole rows.
    pub fn batch(mut self, cells: u32) -> Scan {
        self.message.batch_size = (cells > 0).then_some(cells);
        self.parts = if cells > 0 { RowParts::Batch(cells) } else { RowParts::Whole };
        self
    }

    /// Returns rows in parts as responses bring them, so that no row has to fit into memory.
    pub fn allow_partial_rows(mut self) -> Scan {
        self.parts = RowParts::Partial;
        self
    }

    /// How the server reads blocks.
    pub fn read_type(mut self, read_type: ReadType) -> Scan {
        let read_type = match read_type {
            ReadType::Default => pb::scan::ReadType::Default,
            ReadType::Stream => pb::scan::ReadType::Stream,
            ReadType::Pread => pb::scan::ReadType::Pread,
        };
        self.message.read_type = Some(read_type as i32);
        self
    }

    /// Returns delete markers, deleted cells and all versions (`RAW`).
    pub fn raw(self, raw: bool) -> Scan {
        self.attribute("_raw_", [if raw { 0xff } else { 0 }])
    }
}

impl From<pb::Scan> for Scan {
    fn from(message: pb::Scan) -> Scan {
        let parts = match message.batch_size {
            Some(cells) if cells > 0 => RowParts::Batch(cells),
            _ => RowParts::Whole,
        };
        Scan { message, caching: None, limit: None, parts }
    }
}

/// The first row behind all rows with a prefix; `None` if there is none.
fn after_prefix(prefix: &[u8]) -> Option<Bytes> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut stop = prefix[..=last].to_vec();
    stop[last] += 1;
    Some(Bytes::from(stop))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_a_range() {
        let range = |prefix: &[u8]| {
            let message = Scan::prefix(prefix).message;
            (message.start_row.unwrap().to_vec(), message.stop_row.map(|stop| stop.to_vec()))
        };
        assert_eq!(range(b"ab"), (b"ab".to_vec(), Some(b"ac".to_vec())));
        assert_eq!(range(b"a\xff\xff"), (b"a\xff\xff".to_vec(), Some(b"b".to_vec())));
        assert_eq!(range(b"\xff"), (b"\xff".to_vec(), None));
        assert_eq!(range(b""), (Vec::new(), None));
        let reversed = |prefix: &[u8]| {
            let message = Scan::prefix_reversed(prefix).message;
            assert!(message.reversed() && message.include_stop_row());
            assert!(!message.include_start_row.unwrap_or(false));
            (message.start_row.map(|start| start.to_vec()), message.stop_row.unwrap().to_vec())
        };
        assert_eq!(reversed(b"ab"), (Some(b"ac".to_vec()), b"ab".to_vec()));
        assert_eq!(reversed(b"\xff"), (None, b"\xff".to_vec()));
    }
}
