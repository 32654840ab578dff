//! The answer to a Multi, encoded as it grows.
//!
//! ```text
//! MultiResponse       1: RegionActionResult*   2: processed   3: region statistics
//! RegionActionResult  1: ResultOrException*    2: exception   3: processed
//! ResultOrException   1: index   2: Result   3: exception   6: metrics
//! ```
//!
//! Most actions of most batches are puts, whose result is an empty message: seven bytes, written here without
//! building the generated types, which are several hundred bytes each.

use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_proto::pb;
use halcyon_rpc::{CellBlock, Codec, Reply, RpcError};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};

use crate::convert;

/// Failures up to here say in full what was wrong; of others there is the class. Each action of a call may fail, and the
/// answer is not to be many times as large as the request.
const FAILURES_BYTES_MAX: usize = 256 << 10;

/// An answer in the making. Results are added to the region action that was begun last.
pub(super) struct MultiReply {
    codec: Option<Codec>,
    message: Vec<u8>,
    /// `ResultOrException`s of the present region action.
    action: Vec<u8>,
    block: Option<CellBlock>,
    results_bytes: u64,
    failures_bytes: usize,
    /// Of the next entry.
    metrics: Option<pb::QueryMetrics>,
    /// Whether the region is a copy for reads.
    is_secondary: bool,
    statistics: pb::MultiRegionLoadStats,
}

impl MultiReply {
    pub(super) fn new(codec: Option<Codec>) -> MultiReply {
        MultiReply {
            codec,
            message: Vec::new(),
            action: Vec::new(),
            block: None,
            results_bytes: 0,
            failures_bytes: 0,
            metrics: None,
            is_secondary: false,
            statistics: pb::MultiRegionLoadStats::default(),
        }
    }

    /// Bytes of cells and of answers of endpoints so far.
    pub(super) fn results_bytes(&self) -> u64 {
        self.results_bytes
    }

    /// Whether what follows was read in a copy for reads.
    pub(super) fn set_secondary(&mut self, is_secondary: bool) {
        self.is_secondary = is_secondary;
    }

    fn push_result(&mut self, index: u32, result: pb::Result) {
        let result = convert::stale_result(result, self.is_secondary);
        self.push_entry(index, Some(2), &result.encode_to_vec());
    }

    /// What the next entry cost, if its client asked for it.
    pub(super) fn set_metrics(&mut self, metrics: Option<pb::QueryMetrics>) {
        self.metrics = metrics;
    }

    /// A put or delete that was done.
    pub(super) fn push_done(&mut self, index: u32) {
        self.push_entry(index, Some(2), &[]);
    }

    /// An entry of an atomic region action, which says nothing but its place.
    pub(super) fn push_place(&mut self, index: u32) {
        self.push_entry(index, None, &[]);
    }

    /// Cells that go into the cell block if the client has one.
    pub(super) fn push_cells(&mut self, index: u32, cells: &[Cell]) {
        let Some(codec) = self.codec else { return self.push_inline(index, cells) };
        self.results_bytes += convert::cells_size_bytes(cells);
        if !cells.is_empty() {
            let block = self.block.get_or_insert_with(|| CellBlock::new(codec));
            cells.iter().for_each(|cell| block.push(cell));
        }
        self.push_result(index, convert::no_cells_result(cells.len()));
    }

    /// Cells inside of the message, as conditional and atomic region actions have them.
    pub(super) fn push_inline(&mut self, index: u32, cells: &[Cell]) {
        self.results_bytes += convert::cells_size_bytes(cells);
        self.push_result(index, convert::inline_result(cells, false));
    }

    pub(super) fn push_exists(&mut self, index: u32, exists: bool) {
        self.push_result(index, convert::exists_result(exists));
    }

    /// What an endpoint has answered.
    pub(super) fn push_service_result(&mut self, index: u32, value: pb::NameBytesPair) {
        self.results_bytes += value.value.as_ref().map_or(0, |bytes| bytes.len() as u64);
        let result = pb::CoprocessorServiceResult { value: Some(value) };
        self.push_entry(index, Some(4), &result.encode_to_vec());
    }

    pub(super) fn push_error(&mut self, index: u32, error: &RpcError) {
        let failure = self.failure(error);
        self.push_entry(index, Some(3), &failure);
    }

    /// A failure as one action or region action carries it.
    fn failure(&mut self, error: &RpcError) -> Vec<u8> {
        // Clients take the place of a region that has moved from the text.
        let is_short = self.failures_bytes > FAILURES_BYTES_MAX && error.host_port.is_none();
        let pair = if is_short {
            let message = "as others of this call".to_string();
            RpcError { message, ..error.clone() }.to_name_bytes_pair()
        } else {
            error.to_name_bytes_pair()
        };
        let failure = pair.encode_to_vec();
        self.failures_bytes += failure.len();
        failure
    }

    fn push_entry(&mut self, index: u32, field: Option<u32>, bytes: &[u8]) {
        let index_len = 1 + encoded_len_varint(u64::from(index));
        let field_len = field.map_or(0, |_| 1 + encoded_len_varint(bytes.len() as u64) + bytes.len());
        let metrics = self.metrics.take().map(|metrics| metrics.encode_to_vec());
        let metrics_len = metrics.as_ref().map_or(0, |m| 1 + encoded_len_varint(m.len() as u64) + m.len());
        let out = &mut self.action;
        encode_key(1, WireType::LengthDelimited, out);
        encode_varint((index_len + field_len + metrics_len) as u64, out);
        encode_key(1, WireType::Varint, out);
        encode_varint(u64::from(index), out);
        if let Some(field) = field {
            put_delimited(field, bytes, out);
        }
        if let Some(metrics) = metrics {
            put_delimited(6, &metrics, out);
        }
    }

    /// Ends a region action whose entries were pushed.
    pub(super) fn end_action(&mut self, processed: Option<bool>) {
        let processed_len = if processed.is_some() { 2 } else { 0 };
        encode_key(1, WireType::LengthDelimited, &mut self.message);
        encode_varint((self.action.len() + processed_len) as u64, &mut self.message);
        self.message.append(&mut self.action);
        if let Some(processed) = processed {
            put_bool(3, processed, &mut self.message);
        }
    }

    /// How loaded a region of the call is now. Of several times the last counts.
    pub(super) fn set_statistics(&mut self, region: pb::RegionSpecifier, stats: pb::RegionLoadStats) {
        match self.statistics.region.iter().position(|known| *known == region) {
            Some(at) => self.statistics.stat[at] = stats,
            None => {
                self.statistics.region.push(region);
                self.statistics.stat.push(stats);
            }
        }
    }

    /// Ends a region action that failed as a whole: no entries.
    pub(super) fn fail_action(&mut self, error: &RpcError) {
        self.action.clear();
        let pair = self.failure(error);
        let len = 1 + encoded_len_varint(pair.len() as u64) + pair.len();
        encode_key(1, WireType::LengthDelimited, &mut self.message);
        encode_varint(len as u64, &mut self.message);
        put_delimited(2, &pair, &mut self.message);
    }

    pub(super) fn into_reply(mut self, processed: Option<bool>, statistics: bool) -> Reply {
        if let Some(processed) = processed {
            put_bool(2, processed, &mut self.message);
        }
        if statistics {
            put_delimited(3, &self.statistics.encode_to_vec(), &mut self.message);
        }
        Reply { cells: self.block, ..Reply::encoded(Bytes::from(self.message)) }
    }
}

fn put_delimited(field: u32, bytes: &[u8], out: &mut Vec<u8>) {
    encode_key(field, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn put_bool(field: u32, value: bool, out: &mut Vec<u8>) {
    encode_key(field, WireType::Varint, out);
    out.push(u8::from(value));
}

#[cfg(test)]
mod tests {
    use halcyon_proto::pb;

    use super::*;

    /// A call with 200,000 regions that are not here had an answer seven times as large as itself.
    #[test]
    fn failures_of_a_call_do_not_grow_without_limit() {
        let mut reply = MultiReply::new(None);
        let long = RpcError::not_serving_region("x".repeat(10_000));
        for _ in 0..1_000 {
            reply.fail_action(&long);
        }
        let moved = RpcError::region_moved("host", 1, 2, 3);
        reply.fail_action(&moved);
        let reply = reply.into_reply(None, false);
        assert!(reply.message.len() < FAILURES_BYTES_MAX + 400_000, "{}", reply.message.len());
        let message = pb::MultiResponse::decode(reply.message).unwrap();
        let failures: Vec<_> =
            message.region_action_result.iter().map(|result| result.exception.as_ref().unwrap()).collect();
        assert_eq!(failures.len(), 1_001);
        assert!(failures[..1_000].iter().all(|failure| failure.name == long.class), "each has its class");
        assert_eq!(failures[1_000], &moved.to_name_bytes_pair(), "and its place, if it is elsewhere");
    }

    #[test]
    fn what_is_written_by_hand_reads_as_the_message() {
        let mut reply = MultiReply::new(Some(Codec::KeyValue));
        reply.push_done(1);
        reply.push_cells(300, &[Cell::put(b"r", b"f", b"q", 1, b"v")]);
        reply.push_error(2, &RpcError::do_not_retry("no"));
        reply.push_exists(4, true);
        let value = pb::NameBytesPair { name: "x".to_string(), value: Some("y".into()) };
        reply.push_service_result(5, value.clone());
        reply.end_action(None);
        reply.push_done(1);
        reply.fail_action(&RpcError::not_serving_region("gone"));
        reply.push_place(0);
        reply.push_inline(1, &[Cell::put(b"r", b"f", b"q", 1, b"v")]);
        reply.end_action(Some(true));
        let region = |name: &'static [u8]| pb::RegionSpecifier { r#type: 1, value: Bytes::from_static(name) };
        let stats = |load| pb::RegionLoadStats { mem_store_load: Some(load), ..Default::default() };
        for (name, load) in [(&b"a"[..], 7), (b"b", 8), (b"a", 9)] {
            reply.set_statistics(region(name), stats(load));
        }
        let reply = reply.into_reply(Some(true), true);
        let message = pb::MultiResponse::decode(reply.message.clone()).unwrap();
        assert_eq!(message.encode_to_vec(), reply.message, "the generated types write the same bytes");
        assert_eq!(message.processed, Some(true));
        let statistics = message.region_statistics.as_ref().unwrap();
        assert_eq!(statistics.region, [region(b"a"), region(b"b")], "each region once");
        assert_eq!(statistics.stat, [stats(9), stats(8)]);
        let [first, second, third] = &message.region_action_result[..] else { panic!("three actions") };
        let entries = &first.result_or_exception;
        assert_eq!(entries.iter().map(|e| e.index.unwrap()).collect::<Vec<_>>(), [1, 300, 2, 4, 5]);
        assert_eq!(entries[4].service_result.as_ref().unwrap().value, Some(value));
        assert_eq!(entries[0].result, Some(pb::Result::default()));
        assert_eq!(entries[1].result.as_ref().unwrap().associated_cell_count, Some(1));
        assert!(entries[2].exception.as_ref().unwrap().name.ends_with("DoNotRetryIOException"));
        assert_eq!(entries[3].result.as_ref().unwrap().exists, Some(true));
        assert!(second.result_or_exception.is_empty() && second.exception.is_some());
        assert_eq!((third.processed, third.result_or_exception.len()), (Some(true), 2));
        assert!(third.result_or_exception[0].result.is_none());
    }
}
