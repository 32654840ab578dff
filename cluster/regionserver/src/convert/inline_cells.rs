//! How much the cells become that are made of values in a message.
//!
//! A value has two bytes or more, and its cell has the row, which may have 32 KiB, and the family besides: a cell is one KeyValue, from
//! here to the memstore and the WAL, and shares no part of it with others. So a message of 130 KB may ask for 393 MB. All of it is summed
//! up before the first cell is made. A request whose cells have more bytes than a request may bring is refused: as cells of a cell block
//! they would not have come here either. Many copies are made on the pool. Room for them is kept before: of long messages when they
//! arrive (`decoded_bytes` of `halcyon-rpc`), of others as for an answer, for most of it only when their turn has come.

use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_proto::pb;
use halcyon_rpc::{Connection, LONG_PARAM_BYTES, RpcError, exceptions};
use halcyon_schema::Endpoint;
use prost::Message;

use super::mutation::cell_count;

/// Bytes of a KeyValue beside its parts: their lengths, a timestamp and a type.
const KEY_VALUE_BYTES: usize = 22;
/// So many bytes of rows and families are copied on the thread that received a call.
const COPIED_HERE_BYTES_MAX: usize = 64 << 10;

/// Cells that are made of values, not of a cell block. Plain data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InlineCells {
    pub count: usize,
    /// Of rows and families: each cell has its own.
    copied_bytes: usize,
    /// Of qualifiers, values and tags.
    own_bytes: usize,
}

impl InlineCells {
    /// Those of a mutation. Nearly all mutations have none.
    #[inline]
    pub fn of(proto: &pb::MutationProto) -> InlineCells {
        if proto.column_value.is_empty() { InlineCells::default() } else { InlineCells::of_values(proto) }
    }

    fn of_values(proto: &pb::MutationProto) -> InlineCells {
        if cell_count(proto) > 0 {
            return InlineCells::default(); // its cells are in the cell block, whatever else it has
        }
        let len = |part: &Option<Bytes>| part.as_ref().map_or(0, Bytes::len);
        let (row_len, mut all) = (len(&proto.row), InlineCells::default());
        for column in &proto.column_value {
            let values = &column.qualifier_value;
            let own = values.iter().map(|value| len(&value.qualifier) + len(&value.value) + len(&value.tags));
            all.add(&InlineCells {
                count: values.len(),
                copied_bytes: values.len().saturating_mul(row_len.saturating_add(column.family.len())),
                own_bytes: own.fold(0, usize::saturating_add),
            });
        }
        all
    }

    /// Those of several mutations.
    pub fn of_all<'a>(protos: impl IntoIterator<Item = &'a pb::MutationProto>) -> InlineCells {
        let mut all = InlineCells::default();
        for proto in protos.into_iter().filter(|proto| !proto.column_value.is_empty()) {
            all.add(&InlineCells::of_values(proto));
        }
        all
    }

    /// Those of a call of `MultiRowMutationService`, whose message is not decoded yet; of a call with a long message room was kept.
    pub fn of_endpoint(call: &pb::CoprocessorServiceCall) -> InlineCells {
        let is_long = call.request.len() >= LONG_PARAM_BYTES;
        let of_rows = || Endpoint::of_service(&call.service_name) == Some(Endpoint::MultiRowMutation);
        if is_long || call.method_name != "MutateRows" || !of_rows() {
            return InlineCells::default();
        }
        // Whoever carries it out tells of an error.
        let rows = pb::MutateRowsRequest::decode(call.request.clone()).unwrap_or_default();
        InlineCells::of_all(&rows.mutation_request)
    }

    pub fn add(&mut self, other: &InlineCells) {
        self.count = self.count.saturating_add(other.count);
        self.copied_bytes = self.copied_bytes.saturating_add(other.copied_bytes);
        self.own_bytes = self.own_bytes.saturating_add(other.own_bytes);
    }

    /// Bytes of their KeyValues.
    pub fn bytes(&self) -> usize {
        let lengths = self.count.saturating_mul(KEY_VALUE_BYTES);
        self.own_bytes.saturating_add(self.copied_bytes).saturating_add(lengths)
    }

    /// Whether it takes so long to make them that the other connections of an event loop are not to wait for it.
    #[inline]
    pub fn are_many_copies(&self) -> bool {
        self.copied_bytes > COPIED_HERE_BYTES_MAX
    }

    /// Room that is to be kept for them where they are made, which was not kept when their message of so many bytes arrived.
    pub fn room_bytes(&self, param_len: usize) -> u64 {
        if param_len >= LONG_PARAM_BYTES || !self.are_many_copies() {
            return 0;
        }
        self.bytes().saturating_add(self.count.saturating_mul(size_of::<Cell>())) as u64
    }

    /// RequestTooBigException if they have more bytes than a request may bring.
    #[inline]
    pub fn check(&self, bytes_max: usize, connection: &Connection) -> Result<(), RpcError> {
        if self.bytes() <= bytes_max { Ok(()) } else { Err(self.too_big(bytes_max, connection)) }
    }

    #[cold]
    fn too_big(&self, bytes_max: usize, connection: &Connection) -> RpcError {
        let InlineCells { count, copied_bytes, .. } = self;
        let text = format!(
            "The {count} cells of a request from {} have {} bytes, {copied_bytes} of them in copies of rows and families, which is greater \
             than max allowed {bytes_max}. Set \"hbase.ipc.max.request.size\" on server to override this limit (not recommended)",
            connection.peer,
            self.bytes()
        );
        // As for a frame that is too long.
        let is_known = connection.client_at_least(1, 3);
        let class = if is_known { &exceptions::REQUEST_TOO_BIG } else { &exceptions::DO_NOT_RETRY_IO };
        RpcError::new(class, text)
    }
}

#[cfg(test)]
mod tests {
    use halcyon_proto::pb::mutation_proto::ColumnValue;
    use halcyon_proto::pb::mutation_proto::column_value::QualifierValue;
    use halcyon_rpc::{CallHead, decoded_bytes};

    use super::*;
    use crate::convert::{CellSource, mutation};

    fn put(row_len: usize, columns: &[(usize, usize, usize)]) -> pb::MutationProto {
        let column = |&(family_len, count, len): &(usize, usize, usize)| {
            let bytes = |byte: u8, len: usize| Some(Bytes::from(vec![byte; len]));
            let value = QualifierValue {
                qualifier: bytes(b'q', len),
                value: bytes(b'v', len * 3),
                ..Default::default()
            };
            ColumnValue {
                family: bytes(b'f', family_len).expect("bytes"),
                qualifier_value: vec![value; count],
            }
        };
        pb::MutationProto {
            row: Some(vec![b'r'; row_len].into()),
            mutate_type: Some(pb::mutation_proto::MutationType::Put as i32),
            column_value: columns.iter().map(column).collect(),
            ..Default::default()
        }
    }

    #[test]
    fn what_is_told_of_cells_is_what_is_made() {
        for (row_len, columns) in [
            (1, Vec::new()),
            (1, vec![(1, 1, 0)]),
            (32_767, vec![(1, 3, 0), (127, 2, 5), (9, 0, 0)]),
            (700, vec![(1, 300, 17)]),
        ] {
            let proto = put(row_len, &columns);
            let cells = InlineCells::of(&proto);
            let made = mutation(&proto, &mut CellSource::new(Vec::new())).unwrap().cells;
            assert_eq!(cells.count, made.len());
            let bytes: usize = made.iter().map(|cell| cell.bytes().len()).sum();
            assert_eq!(cells.bytes(), bytes + 2 * made.len(), "with room for the length of tags");
            assert_eq!(InlineCells::of_all([&proto, &proto]).bytes(), 2 * cells.bytes());
            let in_block = pb::MutationProto { associated_cell_count: Some(1), ..proto };
            assert_eq!(InlineCells::of(&in_block), InlineCells::default());
        }
    }

    /// An aggregate with the name of another service's method asked for room for cells that nobody makes.
    #[test]
    fn other_services_make_no_cells() {
        let rows =
            pb::MutateRowsRequest { mutation_request: vec![put(700, &[(1, 100, 5)])], ..Default::default() };
        let count_of = |service: &str, method: &str| {
            let call = pb::CoprocessorServiceCall {
                row: Bytes::new(),
                service_name: service.to_string(),
                method_name: method.to_string(),
                request: rows.encode_to_vec().into(),
            };
            InlineCells::of_endpoint(&call).count
        };
        assert_eq!(count_of("MultiRowMutationService", "MutateRows"), 100);
        assert_eq!(count_of("hbase.pb.MultiRowMutationService", "MutateRows"), 100);
        assert_eq!(count_of("AggregateService", "MutateRows"), 0);
        assert_eq!(count_of("MultiRowMutationService", "GetSum"), 0);
    }

    /// For each endpoint whose message is decoded here, room is kept.
    #[test]
    fn messages_of_all_endpoints_are_looked_at() {
        for endpoint in Endpoint::ALL {
            let scan = pb::Scan { column: vec![pb::Column::default(); 9], ..Default::default() };
            let (method, request) = match endpoint {
                Endpoint::MultiRowMutation => {
                    let mutation_request = vec![put(700, &[(1, 100, 5)])];
                    (
                        "MutateRows",
                        pb::MutateRowsRequest { mutation_request, ..Default::default() }.encode_to_vec(),
                    )
                }
                Endpoint::Aggregate => {
                    ("GetMax", pb::AggregateRequest { scan, ..Default::default() }.encode_to_vec())
                }
                Endpoint::BulkDelete => {
                    ("delete", pb::BulkDeleteRequest { scan, ..Default::default() }.encode_to_vec())
                }
            };
            let call = pb::CoprocessorServiceCall {
                row: Bytes::new(),
                service_name: endpoint.service().to_string(),
                method_name: method.to_string(),
                request: request.into(),
            };
            let region = pb::RegionSpecifier::default();
            let param = pb::CoprocessorServiceRequest { region, call }.encode_to_vec();
            let head = CallHead { method: "ExecService", priority: 0, param: &param };
            assert!(decoded_bytes(&head, usize::MAX) > 500, "{endpoint:?}");
        }
    }

    #[test]
    fn sums_end_at_the_largest_number() {
        let huge = InlineCells { count: usize::MAX / 2, copied_bytes: usize::MAX - 1, own_bytes: 7 };
        let mut all = huge;
        all.add(&huge);
        all.add(&huge);
        assert_eq!(all.bytes(), usize::MAX);
        assert!(all.are_many_copies() && all.room_bytes(10) == u64::MAX && all.room_bytes(1 << 20) == 0);
        let connection = Connection::new(1, "host:1");
        all.check(usize::MAX, &connection).unwrap();
        let error = all.check(usize::MAX - 1, &connection).unwrap_err();
        assert!(error.do_not_retry && error.message.contains("hbase.ipc.max.request.size"), "{error}");
    }
}
