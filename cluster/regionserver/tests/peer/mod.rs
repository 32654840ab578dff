//! A double of a replication peer: a ZooKeeper and a region server that do what a test tells them.

pub mod here;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use bytes::{BufMut, Bytes, BytesMut};
use halcyon_env::{SystemClock, spawn_thread};
use halcyon_proto::pb;
use halcyon_rpc::{
    Call, ExceptionClass, Outcome, Reply, RpcError, RpcServer, RpcSettings, Service, Services, exceptions,
};
use halcyon_schema::{ClusterId, ServerName};
use prost::Message;

const ID: &str = "c1c2c3c4-0000-4000-8000-000000000001";

/// What the peer says to a batch; its number is counted from 0.
#[derive(Clone, Copy)]
pub enum Say {
    /// Applies it.
    Done,
    Refuse(&'static ExceptionClass),
    /// Fails before it applies it.
    Fail,
    /// Applies it, and then fails.
    DoneAndFail,
    Never,
    /// Bytes that are no answer, without applying it.
    Garbage,
}

/// How the peer's ZooKeeper is.
#[derive(Clone, Debug)]
pub enum ZooKeeper {
    Answers,
    /// Takes connections and ends them.
    Closes,
    Garbage,
    /// Tells another id of the cluster.
    Id(String),
    NoServers,
}

type Script = Box<dyn FnMut(usize) -> Say + Send>;

struct State {
    script: Script,
    /// Refuses a batch with an edit of this table.
    lacks: Option<&'static str>,
    calls: usize,
    rows: Vec<String>,
    entries: Vec<pb::WalEntry>,
    cluster_ids: Vec<String>,
    loads: Vec<pb::BulkLoadDescriptor>,
    /// Where the source says that its files are.
    dirs: Option<(String, String)>,
    zookeeper: ZooKeeper,
}

pub struct Peer {
    state: Arc<Mutex<State>>,
    zookeeper_port: u16,
    _runtime: tokio::runtime::Runtime,
    _server: RpcServer,
}

struct Double(Arc<Mutex<State>>);

impl Service for Double {
    fn takes_cells(&self, _method: &str) -> bool {
        true
    }

    fn call(&self, call: Call) -> Outcome {
        assert_eq!(call.method, "ReplicateWALEntry");
        let request = pb::ReplicateWalEntryRequest::decode(call.param.clone()).unwrap();
        let mut state = self.0.lock().unwrap();
        let number = state.calls;
        state.calls += 1;
        if let Some(table) = state.lacks
            && request.entry.iter().any(|entry| entry.key.table_name == table.as_bytes())
        {
            return Outcome::Ready(Err(RpcError::new(&exceptions::TABLE_NOT_FOUND, table)));
        }
        let said = (state.script)(number);
        if matches!(said, Say::Done | Say::DoneAndFail) {
            let markers = call.cells.iter().filter(|cell| cell.family() == b"METAFAMILY");
            state.loads.extend(markers.map(|cell| pb::BulkLoadDescriptor::decode(cell.value()).unwrap()));
            state.dirs = request.source_base_namespace_dir_path.zip(request.source_h_file_archive_dir_path);
            state.rows.extend(call.cells.iter().map(|cell| String::from_utf8_lossy(cell.row()).into_owned()));
            state.entries.extend(request.entry.iter().cloned());
            state.cluster_ids.extend(request.replication_cluster_id);
        }
        match said {
            Say::Done => Outcome::Ready(Ok(Reply::message(&pb::ReplicateWalEntryResponse::default()))),
            Say::Refuse(class) => Outcome::Ready(Err(RpcError::new(class, "as the script says"))),
            Say::Fail | Say::DoneAndFail => {
                Outcome::Ready(Err(RpcError::new(&exceptions::FATAL_CONNECTION, "the peer has died")))
            }
            Say::Never => Outcome::Later(Box::pin(std::future::pending())),
            Say::Garbage => Outcome::Ready(Ok(Reply::encoded(Bytes::from_static(b"\xff\xff\xff")))),
        }
    }
}

impl Peer {
    pub fn start(script: impl FnMut(usize) -> Say + Send + 'static) -> Peer {
        Peer::with(Box::new(script), None)
    }

    /// One that has all tables but this.
    pub fn lacking(table: &'static str) -> Peer {
        Peer::with(Box::new(|_| Say::Done), Some(table))
    }

    fn with(script: Script, lacks: Option<&'static str>) -> Peer {
        let state = State {
            script,
            lacks,
            calls: 0,
            rows: Vec::new(),
            entries: Vec::new(),
            cluster_ids: Vec::new(),
            loads: Vec::new(),
            dirs: None,
            zookeeper: ZooKeeper::Answers,
        };
        let state = Arc::new(Mutex::new(state));
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let server = runtime.block_on(async {
            let mut services = Services::new();
            services.insert("AdminService", Arc::new(Double(Arc::clone(&state))) as Arc<dyn Service>);
            let address = "127.0.0.1:0".parse().unwrap();
            let bound = RpcServer::bind(address, RpcSettings::default(), Arc::new(SystemClock::new())).await;
            bound.unwrap().serve(services, ID)
        });
        let name = ServerName::new("127.0.0.1", server.local_addr().port(), 1);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let zookeeper_port = listener.local_addr().unwrap().port();
        let shared = Arc::clone(&state);
        spawn_thread("double-zookeeper", move || {
            for stream in listener.incoming().flatten() {
                let how = shared.lock().unwrap().zookeeper.clone();
                let _ = serve(stream, &how, &name); // the client may have gone
            }
        })
        .unwrap();
        Peer { state, zookeeper_port, _runtime: runtime, _server: server }
    }

    pub fn cluster_key(&self) -> String {
        format!("127.0.0.1:{}:/hbase", self.zookeeper_port)
    }

    pub fn zookeeper_is(&self, how: ZooKeeper) {
        self.state.lock().unwrap().zookeeper = how;
    }

    /// The bulk loads that it was told of, in order.
    pub fn loads(&self) -> Vec<pb::BulkLoadDescriptor> {
        self.state.lock().unwrap().loads.clone()
    }

    pub fn dirs(&self) -> Option<(String, String)> {
        self.state.lock().unwrap().dirs.clone()
    }

    /// Rows of the cells that were applied, in order.
    pub fn rows(&self) -> Vec<String> {
        self.state.lock().unwrap().rows.clone()
    }

    pub fn entries(&self) -> Vec<pb::WalEntry> {
        self.state.lock().unwrap().entries.clone()
    }

    /// The id that each batch names as its source's.
    pub fn cluster_ids(&self) -> Vec<String> {
        self.state.lock().unwrap().cluster_ids.clone()
    }

    pub fn calls(&self) -> usize {
        self.state.lock().unwrap().calls
    }
}

fn receive(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    let mut packet = vec![0; u32::from_be_bytes(len) as usize];
    stream.read_exact(&mut packet)?;
    Ok(packet)
}

fn send(stream: &mut TcpStream, body: &[u8]) -> std::io::Result<()> {
    stream.write_all(&[&(body.len() as u32).to_be_bytes()[..], body].concat())
}

/// One session: `hbaseid`, the children of `rs`, and the end.
fn serve(mut stream: TcpStream, how: &ZooKeeper, server: &ServerName) -> std::io::Result<()> {
    if matches!(how, ZooKeeper::Closes) {
        return Ok(());
    }
    receive(&mut stream)?;
    let mut connected = BytesMut::new();
    connected.put_i32(0);
    connected.put_i32(30_000);
    connected.put_i64(1);
    connected.put_u32(16);
    connected.put_bytes(0, 16);
    send(&mut stream, &connected)?;
    loop {
        let packet = receive(&mut stream)?;
        if matches!(how, ZooKeeper::Garbage) {
            return send(&mut stream, b"\x00\x00garbage of seventeen bytes");
        }
        let operation = i32::from_be_bytes(packet[4..8].try_into().unwrap());
        let mut reply = BytesMut::from(&packet[..4]);
        reply.put_i64(1);
        reply.put_i32(0);
        match operation {
            4 => {
                let id = if let ZooKeeper::Id(id) = how { id.as_str() } else { ID };
                let data = ClusterId(id.to_string()).encode_file();
                reply.put_u32(data.len() as u32);
                reply.put_slice(&data);
                reply.put_bytes(0, 68);
            }
            8 if matches!(how, ZooKeeper::NoServers) => reply.put_u32(0),
            8 => {
                let name = server.to_string();
                reply.put_u32(1);
                reply.put_u32(name.len() as u32);
                reply.put_slice(name.as_bytes());
            }
            _ => return send(&mut stream, &reply),
        }
        send(&mut stream, &reply)?;
    }
}
