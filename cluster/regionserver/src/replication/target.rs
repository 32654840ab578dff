//! The cluster that a source sends to: how it is found, and the calls.

use std::ops::Range;
use std::time::Duration;

use halcyon_cell::{Cell, Error, ErrorKind, Result};
use halcyon_client::{ClientError, ClusterAddress, ConnectOptions, Connection, Sighting};
use halcyon_proto::pb;
use halcyon_rpc::{CellBlock, Codec};
use halcyon_schema::{ClusterId, ClusterKey, ClusterUuid, ServerName};
use prost::Message;

use super::deleted::Lack;
use super::wals::Batch;

/// Longest time to find the cluster or to connect to one of its servers.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// HBase: `replication.source.shipedits.timeout`.
const SHIP_TIME_MAX: Duration = Duration::from_secs(60);
/// HBase takes requests up to `hbase.ipc.max.request.size`, 256 MiB.
const REQUEST_BYTES_MAX: usize = 250 << 20;
/// What a cell takes in a request beside its bytes.
const CELL_OVERHEAD_BYTES: usize = 8;

/// The id of the cluster with this cluster key; `None`: its ZooKeeper has none there. `Busy` if no server says so, each within ten
/// seconds.
pub async fn cluster_id_of(cluster_key: &str) -> Result<Option<ClusterId>> {
    let key = ClusterKey::parse(cluster_key)?;
    let id = Sighting::id_of(&key.quorum, &key.base, CONNECT_TIME_MAX).await.map_err(unreached)?;
    Ok(id.map(ClusterId))
}

/// See the head of the file. Of one task at a time.
pub(super) struct Target {
    address: ClusterAddress,
    found: Option<Found>,
    /// What the peer lacks, by its last refusal.
    lack: Option<Lack>,
}

/// What a source says of itself with each batch.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    /// `hbase.replication.cluster.id`, or the cluster's own id.
    pub(super) id: String,
    /// Where the files of bulk loads are; `None`: they are not replicated.
    pub(super) dirs: Option<FileDirs>,
}

/// Addresses of directories, with the scheme of the file system.
#[derive(Clone, Debug)]
pub(super) struct FileDirs {
    pub(super) data: String,
    pub(super) archive: String,
}

struct Found {
    id: ClusterUuid,
    servers: Vec<ServerName>,
    connection: Option<(ServerName, Connection)>,
}

impl Target {
    /// `Invalid` if the key is none.
    pub(super) fn new(cluster_key: &str) -> Result<Target> {
        let key = ClusterKey::parse(cluster_key)?;
        let address = ClusterAddress::ZooKeeper { quorum: key.quorum, base: key.base };
        Ok(Target { address, found: None, lack: None })
    }

    /// The cluster's id, of which its ZooKeeper is asked if it is not known. `own` cannot be its id.
    pub(super) async fn cluster_id(&mut self, own: ClusterUuid) -> Result<ClusterUuid> {
        if let Some(found) = &self.found {
            return Ok(found.id);
        }
        let sighting = Sighting::of(&self.address, CONNECT_TIME_MAX).await.map_err(unreached)?;
        let Some(id) = ClusterId(sighting.cluster_id.clone()).uuid() else {
            return Err(Error::corrupt(format!("the peer's id {:?} is no UUID", sighting.cluster_id)));
        };
        if id == own {
            return Err(Error::invalid(format!("the peer {} is this cluster itself", self.address)));
        }
        if sighting.region_servers.is_empty() {
            return Err(Error::new(
                ErrorKind::Busy,
                format!("the peer {} has no region servers", self.address),
            ));
        }
        self.found = Some(Found { id, servers: sighting.region_servers, connection: None });
        Ok(id)
    }

    /// Sends a batch and waits until it is applied. After an error it may have been applied in part, and the next attempt
    /// looks for the cluster anew.
    pub(super) async fn ship(&mut self, batch: &Batch, own: &Sender) -> Result<()> {
        self.lack = None;
        let shipped = self.try_ship(batch, own).await;
        if shipped.is_err() {
            self.found = None;
        }
        shipped
    }

    /// What the peer lacks, if that is why it refused the last batch.
    pub(super) fn lack(&self) -> Option<Lack> {
        self.lack
    }

    async fn try_ship(&mut self, batch: &Batch, own: &Sender) -> Result<()> {
        let unknown = || Error::new(ErrorKind::Busy, "the peer was not found yet");
        let found = self.found.as_mut().ok_or_else(unknown)?;
        let (server, connection) = match found.connection.take() {
            Some((server, connection)) if !connection.has_ended() => (server, connection),
            _ => connect(&found.servers).await?,
        };
        for (entry, range) in requests(&batch.entries, &batch.cells, REQUEST_BYTES_MAX) {
            let mut cells = CellBlock::new(Codec::KeyValueWithTags);
            batch.cells[range].iter().for_each(|cell| cells.push(cell));
            let request = pb::ReplicateWalEntryRequest {
                entry,
                replication_cluster_id: Some(own.id.clone()),
                source_base_namespace_dir_path: own.dirs.as_ref().map(|dirs| dirs.data.clone()),
                source_h_file_archive_dir_path: own.dirs.as_ref().map(|dirs| dirs.archive.clone()),
            };
            let call =
                connection.call_with_cells("ReplicateWALEntry", &request, Some(cells), Some(SHIP_TIME_MAX));
            let answer = call.await.map_err(|error| {
                self.lack = error.remote().and_then(|exception| Lack::of_text(&exception.trace));
                of_server(&server, &error)
            })?;
            pb::ReplicateWalEntryResponse::decode(answer.message)
                .map_err(|error| Error::corrupt(format!("{server}: {error}")))?;
        }
        found.connection = Some((server, connection));
        Ok(())
    }
}

/// Entries and cells of each request, in order: one for a batch that fits into `bytes_max`. A write may be as large as a request, and
/// its entry is larger. Its cells then go in several requests, each with the entry's key: a peer writes the cells of an entry one region
/// after the other in any case.
fn requests(
    entries: &[pb::WalEntry],
    cells: &[Cell],
    bytes_max: usize,
) -> Vec<(Vec<pb::WalEntry>, Range<usize>)> {
    let mut requests: Vec<(Vec<pb::WalEntry>, Range<usize>)> = vec![(Vec::new(), 0..0)];
    let (mut at, mut bytes) = (0, 0);
    for entry in entries {
        let (end, key_bytes) = (at + entry.associated_cell_count() as usize, entry.encoded_len());
        assert!(end <= cells.len(), "an entry that counts cells which its batch has not");
        let mut is_begun = false;
        while at < end || !is_begun {
            let cell_bytes =
                cells[at..end].first().map_or(0, |cell| cell.bytes().len() + CELL_OVERHEAD_BYTES);
            let needed = cell_bytes + if is_begun { 0 } else { key_bytes };
            if bytes + needed > bytes_max && bytes > 0 {
                requests.push((Vec::new(), at..at));
                (bytes, is_begun) = (0, false);
                continue;
            }
            let (sent, range) = requests.last_mut().expect("there is one from the start");
            if !is_begun {
                sent.push(pb::WalEntry { associated_cell_count: Some(0), ..entry.clone() });
                is_begun = true;
            }
            bytes += needed;
            if at < end {
                let sent = sent.last_mut().expect("it was begun");
                sent.associated_cell_count = Some(sent.associated_cell_count() + 1);
                at += 1;
                range.end = at;
            }
        }
    }
    assert!(at == cells.len(), "a cell of no entry is not sent, and counts as sent");
    requests
}

/// A connection to some server of these; it stays with one while that works.
async fn connect(servers: &[ServerName]) -> Result<(ServerName, Connection)> {
    let random = u64::from_ne_bytes(halcyon_env::random_bytes());
    let server = &servers[(random % servers.len() as u64) as usize];
    let options =
        ConnectOptions { codec: Some(Codec::KeyValueWithTags), ..ConnectOptions::new("AdminService") };
    let connecting = Connection::connect(server.address(), &options);
    match tokio::time::timeout(CONNECT_TIME_MAX, connecting).await {
        Ok(connected) => connected
            .map(|connection| (server.clone(), connection))
            .map_err(|error| of_server(server, &error)),
        Err(_) => {
            Err(Error::new(ErrorKind::Busy, format!("{server}: no connection within {CONNECT_TIME_MAX:?}")))
        }
    }
}

fn unreached(error: ClientError) -> Error {
    Error::new(ErrorKind::Busy, format!("the peer cannot be found: {error}"))
}

fn of_server(server: &ServerName, error: &ClientError) -> Error {
    Error::new(ErrorKind::Busy, format!("{server}: {error}"))
}

#[cfg(test)]
mod tests {
    use halcyon_cell::CellType;

    use super::*;

    fn cells(sizes: &[usize]) -> Vec<Cell> {
        let cell = |&size: &usize| Cell::build(b"r", b"f", b"q", 1, CellType::Put, &vec![b'v'; size], b"", 0);
        sizes.iter().map(cell).collect()
    }

    fn entry(number: u64, count: i32) -> pb::WalEntry {
        let key = pb::WalKey { log_sequence_number: number, ..pb::WalKey::default() };
        pb::WalEntry { key, associated_cell_count: Some(count), ..pb::WalEntry::default() }
    }

    /// An entry above the limit was tried for ever, and all that was written behind it was lost to the peer in the end.
    #[test]
    fn an_entry_that_is_larger_than_a_request_goes_in_several() {
        let cells = cells(&[100, 400, 400, 400, 100, 100]);
        let entries = [entry(1, 1), entry(2, 3), entry(3, 0), entry(4, 2)];
        let told = |bytes_max| -> Vec<Vec<(u64, i32)>> {
            let requests = requests(&entries, &cells, bytes_max);
            let mut at = 0;
            for (sent, range) in &requests {
                let count: i32 = sent.iter().map(pb::WalEntry::associated_cell_count).sum();
                assert_eq!((range.start, range.end), (at, at + count as usize));
                at = range.end;
                let bytes: usize = cells[range.clone()].iter().map(|cell| cell.bytes().len()).sum();
                assert!(bytes <= bytes_max || range.len() == 1);
            }
            assert_eq!(at, cells.len());
            let told = |sent: &pb::WalEntry| (sent.key.log_sequence_number, sent.associated_cell_count());
            requests.iter().map(|(sent, _)| sent.iter().map(told).collect()).collect()
        };
        assert_eq!(told(1 << 20), [vec![(1, 1), (2, 3), (3, 0), (4, 2)]]);
        assert_eq!(told(1_000), [vec![(1, 1), (2, 1)], vec![(2, 2), (3, 0)], vec![(4, 2)]]);
        assert_eq!(told(10).iter().map(Vec::len).sum::<usize>(), 7, "one cell in each, and one without");
    }

    #[test]
    fn nothing_is_one_request() {
        assert_eq!(requests(&[], &[], 10).len(), 1);
    }
}
