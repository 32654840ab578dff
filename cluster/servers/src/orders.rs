//! Orders: how they are numbered, and how several become one `ExecuteProcedures`.

use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use halcyon_contract::remote_procedures::{CLAIM_QUEUE, FLUSH_REGION, READ_PEER, RELOAD_QUOTAS, SPLIT_WAL};
use halcyon_contract::{CloseRegionRequest, FlushRegionRequest};
use halcyon_proto::orders::{ClaimQueueParameter, ReadPeerParameter};
use halcyon_proto::pb;
use halcyon_schema::{RegionInfo, ServerName};
use prost::Message;

/// Numbers for a millisecond of being active: `number = active_ms << 20 | count`, with carry. A later master begins beyond.
const COUNT_BITS: u32 = 20;
/// So that the number stays positive: the year 2248.
const ACTIVE_MS_MAX: i64 = (1 << 43) - 1;

/// The directory of WALs, in which each server has one of its own.
const WALS: &str = "WALs";

/// Gives each order its number.
pub(crate) struct OrderNumbers(AtomicI64);

impl OrderNumbers {
    pub(crate) fn new(active_ms: i64) -> OrderNumbers {
        OrderNumbers(AtomicI64::new(active_ms.clamp(1, ACTIVE_MS_MAX) << COUNT_BITS))
    }

    pub(crate) fn next(&self) -> i64 {
        let number = self.0.fetch_add(1, Ordering::Relaxed);
        assert!(number > 0, "numbers of orders rise, and servers take none below zero");
        number
    }
}

/// One order for one server.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) procedure: i64,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Open(RegionInfo),
    Close { region: RegionInfo, destination: Option<ServerName> },
    Run { class: &'static str, parameter: Bytes },
}

/// What an order does at a server that runs procedures.
pub(crate) struct Run {
    class: &'static str,
    parameter: Bytes,
}

impl Run {
    pub(crate) fn flush(request: &FlushRegionRequest) -> Run {
        let parameter = pb::FlushRegionParameter {
            region: request.region.to_pb(),
            column_family: request.families.clone(),
        };
        Run { class: FLUSH_REGION, parameter: parameter.encode_to_vec().into() }
    }

    pub(crate) fn reload_quotas() -> Run {
        Run { class: RELOAD_QUOTAS, parameter: Bytes::new() }
    }

    pub(crate) fn read_peer(peer_id: &str) -> Run {
        let parameter = ReadPeerParameter { peer_id: peer_id.to_string() };
        Run { class: READ_PEER, parameter: parameter.encode_to_vec().into() }
    }

    pub(crate) fn claim_queue(peer_id: &str, queue: &str) -> Run {
        let parameter = ClaimQueueParameter { peer_id: peer_id.to_string(), queue: queue.to_string() };
        Run { class: CLAIM_QUEUE, parameter: parameter.encode_to_vec().into() }
    }

    pub(crate) fn split_wal(wal: &Path) -> Run {
        let parameter = pb::SplitWalParameter { wal_path: below_wal_root(wal) };
        Run { class: SPLIT_WAL, parameter: parameter.encode_to_vec().into() }
    }
}

/// `WALs/<server>/<file>`, whatever directory is before it. Servers look for it below their own root of WALs.
fn below_wal_root(wal: &Path) -> String {
    let parts: Vec<_> = wal.components().map(|part| part.as_os_str().to_string_lossy()).collect();
    let from = parts.iter().rposition(|part| part == WALS).unwrap_or(0);
    parts[from..].join("/")
}

impl Order {
    pub(crate) fn open(procedure: i64, region: &RegionInfo) -> Order {
        Order { procedure, what: What::Open(region.clone()) }
    }

    pub(crate) fn close(procedure: i64, request: &CloseRegionRequest) -> Order {
        let (region, destination) = (request.region.clone(), request.destination.clone());
        Order { procedure, what: What::Close { region, destination } }
    }

    pub(crate) fn run(procedure: i64, run: Run) -> Order {
        Order { procedure, what: What::Run { class: run.class, parameter: run.parameter } }
    }
}

/// The message for orders of one server. `master_ms` is the clock of the master.
pub(crate) fn execute_procedures(
    orders: &[Order],
    server: &ServerName,
    active_ms: i64,
    master_ms: i64,
) -> pb::ExecuteProceduresRequest {
    assert!(!orders.is_empty(), "a request without orders says nothing");
    let start_code = u64::try_from(server.start_code).ok();
    let mut request = pb::ExecuteProceduresRequest::default();
    let mut open_info = Vec::new();
    for Order { procedure, what } in orders {
        match what {
            What::Open(region) => open_info.push(pb::open_region_request::RegionOpenInfo {
                region: region.to_pb(),
                open_proc_id: Some(*procedure),
                ..Default::default()
            }),
            What::Close { region, destination } => request.close_region.push(pb::CloseRegionRequest {
                region: specifier(region),
                destination_server: destination.as_ref().map(ServerName::to_pb),
                server_start_code: start_code,
                close_proc_id: Some(*procedure),
                initiating_master_active_time: Some(active_ms),
                ..Default::default()
            }),
            What::Run { class, parameter } => request.proc.push(pb::RemoteProcedureRequest {
                proc_id: u64::try_from(*procedure).expect("numbers are positive"),
                proc_class: (*class).to_string(),
                proc_data: Some(parameter.clone()),
                initiating_master_active_time: Some(active_ms),
            }),
        }
    }
    let count = open_info.len() + request.close_region.len() + request.proc.len();
    assert_eq!(count, orders.len(), "each order is in the request once: its caller waits for it");
    if !open_info.is_empty() {
        request.open_region.push(pb::OpenRegionRequest {
            open_info,
            server_start_code: start_code,
            initiating_master_active_time: Some(active_ms),
            master_system_time: u64::try_from(master_ms).ok(),
        });
    }
    request
}

/// A region by its whole name.
pub(crate) fn specifier(region: &RegionInfo) -> pb::RegionSpecifier {
    let by_name = pb::region_specifier::RegionSpecifierType::RegionName;
    pb::RegionSpecifier { r#type: by_name as i32, value: region.region_name().clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_later_master_are_beyond() {
        let (first, later) = (OrderNumbers::new(1_760_000_000_000), OrderNumbers::new(1_760_000_000_001));
        let numbers: Vec<_> = (0..3).map(|_| first.next()).collect();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]) && numbers[2] < later.next());
        for odd in [i64::MIN, -1, 0, i64::MAX] {
            assert!(OrderNumbers::new(odd).next() > 0, "{odd}");
        }
    }

    #[test]
    fn a_wal_is_named_below_its_root() {
        for wal in ["/hbase/WALs/h,1,2-splitting/h.7", "WALs/h,1,2-splitting/h.7"] {
            assert_eq!(below_wal_root(Path::new(wal)), "WALs/h,1,2-splitting/h.7");
        }
        assert_eq!(below_wal_root(Path::new("/WALs/of/WALs/h,1,2/h.7")), "WALs/h,1,2/h.7");
    }
}
