//! A server with an open region of a table whose edits go to a peer.
#![allow(clippy::disallowed_methods)] // the time is the real one: so is the connection to the peer

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_contract::{PeerDescription, ReplicationSources};
use halcyon_env::sim::SimFileSystem;
use halcyon_env::{Env, ManualClock};
use halcyon_proto::pb;
use halcyon_regionserver::{AdminService, ClientService, RegionServer, RegionServerSettings};
use halcyon_rpc::{Codec, QueueLimits, Queues};
use halcyon_schema::{
    ClusterId, FamilyDescriptor, RegionInfo, ServerName, TableDescriptor, TableName, layout,
};

use super::Peer;
use crate::common::{Lab, ROOT, connection, put, settings};

pub const OWN: &str = "b9a4f3a2-4c42-4e5f-9d58-0d1c4a6f3b11";
/// A source looks again every tenth of a second, and pauses for a second after its first failure.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Here {
    pub lab: Lab,
    pub info: RegionInfo,
}

impl Here {
    pub fn new() -> Here {
        Here::on(SimFileSystem::new(), settings())
    }

    /// Alone, on what the file system holds.
    pub fn on(fs: SimFileSystem, settings: RegionServerSettings) -> Here {
        has_id(&fs);
        let lab = Lab::with(fs, settings);
        let info = open(&lab.server, "sent");
        Here::serving(lab, info)
    }

    /// One of several servers. It has a table of its own.
    pub fn one_of_several(fs: &SimFileSystem, settings: RegionServerSettings, port: u16) -> Here {
        Here::one_of_several_with(fs, settings, port, |_| {})
    }

    /// With something to do before it knows any peer.
    pub fn one_of_several_with(
        fs: &SimFileSystem,
        settings: RegionServerSettings,
        port: u16,
        prepare: impl FnOnce(&RegionServer),
    ) -> Here {
        has_id(fs);
        let clock = Arc::new(ManualClock::at(1_700_000_000_000));
        let env = Env { clock: clock.clone(), ..fs.env() };
        let name = ServerName::new("localhost", port, 7);
        let server = RegionServer::start_as(env, ROOT.as_ref(), None, settings, name).unwrap();
        server.replicate_own_wals();
        prepare(&server);
        server.read_peers().unwrap();
        let info = open(&server, &format!("sent{port}"));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let lab = Lab {
            fs: fs.clone(),
            clock,
            client: ClientService::new(server.clone()),
            admin: AdminService::new(server.clone()),
            server,
            connection: connection(Some(Codec::KeyValue), Some((2, 6))),
            info: info.clone(),
            runtime: runtime.unwrap(),
        };
        Here::serving(lab, info)
    }

    fn serving(lab: Lab, info: RegionInfo) -> Here {
        let queues = Queues::new(QueueLimits::new(1_000, 64 << 20));
        lab.server.serve_behind(queues, lab.runtime.handle().clone());
        Here { lab, info }
    }

    pub fn add_peer(&self, peer: &Peer) {
        self.lab.server.begin_queue("p").unwrap();
        self.lab.server.peer_changed(&description(peer, true)).unwrap();
    }

    pub fn put(&self, row: &str) {
        self.put_into(&self.info, row);
    }

    pub fn put_into(&self, info: &RegionInfo, row: &str) {
        let cell = Cell::put(row.as_bytes(), b"f", b"q", i64::MAX, row.as_bytes());
        let region = pb::RegionSpecifier { r#type: 1, value: info.region_name().clone() };
        let request = pb::MutateRequest { region, mutation: put(1), condition: None, nonce_group: Some(1) };
        let answer: (pb::MutateResponse, _) = self.lab.call("Mutate", &request, vec![cell]).unwrap();
        assert_eq!(answer.0.processed, Some(true));
    }

    pub fn loads(&self) -> Vec<pb::ReplicationLoadSource> {
        self.lab.server.server_load().repl_load_source
    }

    pub fn load(&self) -> pb::ReplicationLoadSource {
        self.loads().into_iter().next().expect("there is a source")
    }

    pub fn roll(&self) {
        let request = pb::RollWalWriterRequest {};
        self.lab.admin::<pb::RollWalWriterResponse>("RollWALWriter", &request).unwrap();
    }

    /// Loads a file of one row into the table.
    pub fn bulk_load(&self, row: &str, replicate: bool) {
        let path = format!("/out/f/{row}");
        let env = self.lab.fs.env();
        env.fs.create_dir_all("/out/f".as_ref()).unwrap();
        let options = halcyon_hfile::WriterOptions::default();
        let mut writer = halcyon_hfile::HFileWriter::create(&env, path.as_ref(), options).unwrap();
        writer.append(Cell::put(row.as_bytes(), b"f", b"q", 5, b"loaded").get()).unwrap();
        writer.finish(halcyon_hfile::FileMeta::default()).unwrap();
        let family_path = pb::bulk_load_h_file_request::FamilyPath { family: "f".into(), path };
        let request = pb::BulkLoadHFileRequest {
            region: pb::RegionSpecifier { r#type: 1, value: self.info.region_name().clone() },
            family_path: vec![family_path],
            assign_seq_num: Some(true),
            replicate: Some(replicate),
            ..Default::default()
        };
        let answer: (pb::BulkLoadHFileResponse, _) =
            self.lab.call("BulkLoadHFile", &request, Vec::new()).unwrap();
        assert!(answer.0.loaded);
    }

    /// Names of the table's store files.
    pub fn store_files(&self) -> Vec<String> {
        let dir = self.info.table().dir(ROOT.as_ref()).join(self.info.encoded_name()).join("f");
        let files = self.lab.fs.env().fs.list(&dir).unwrap();
        files.into_iter().filter(|file| !file.is_dir).map(|file| file.name).collect()
    }
}

fn has_id(fs: &SimFileSystem) {
    let env = fs.env();
    env.fs.create_dir_all(ROOT.as_ref()).unwrap();
    let id = ClusterId(OWN.to_string());
    env.fs.replace(&layout::cluster_id_file(ROOT.as_ref()), &id.encode_file()).unwrap();
}

pub fn description(peer: &Peer, enabled: bool) -> PeerDescription {
    let config = pb::ReplicationPeer { clusterkey: Some(peer.cluster_key()), ..Default::default() };
    PeerDescription { id: "p".to_string(), config, is_enabled: enabled }
}

fn replicated(name: &str) -> TableDescriptor {
    let family = FamilyDescriptor::new(b"f").unwrap().with("REPLICATION_SCOPE", "1");
    TableDescriptor::new(TableName::parse(name.as_bytes()).unwrap()).with_family(family)
}

pub fn open(server: &RegionServer, name: &str) -> RegionInfo {
    let table = replicated(name);
    let info = RegionInfo::new(table.name().clone(), Bytes::new(), Bytes::new(), 1);
    server.region_files().create_region_files(&info, &table).unwrap();
    server.open_region(&info, &table.into()).unwrap();
    info
}

pub fn waits(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn rows(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| format!("r{number:03}")).collect()
}

/// As in names of WALs and queues.
pub fn in_file_names(server: &ServerName) -> String {
    server.to_string().replace(',', "%2C")
}

/// Moves the WALs of a server away, as when they were split. What follows its death is so known to have happened.
pub fn archive_wals(env: &Env, server: &ServerName) {
    let (dir, old) =
        (layout::wals_dir(ROOT.as_ref()).join(server.to_string()), layout::old_wals_dir(ROOT.as_ref()));
    env.fs.create_dir_all(&old).unwrap();
    for wal in env.fs.list(&dir).unwrap() {
        env.fs.rename(&dir.join(&wal.name), &old.join(&wal.name)).unwrap();
    }
    env.fs.remove_dir_all(&dir).unwrap();
    for dir in [old.as_path(), Path::new("/hbase/WALs")] {
        env.fs.sync_dir(dir).unwrap();
    }
}
