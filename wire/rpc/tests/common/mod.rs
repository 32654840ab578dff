//! A server with a service that does as it is told, and a client that speaks bytes.
#![allow(dead_code)] // every test file uses a part of it

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use halcyon_cell::Cell;
use halcyon_env::{Clock, SystemClock};
use halcyon_proto::pb;
use halcyon_rpc::{
    AnsweredCalls, Call, CallClass, CallHead, CallParts, CellBlock, Notable, NotedCall, Outcome, Reply,
    RpcError, RpcServer, RpcSettings, Service, Services, Tags,
};
use parking_lot::Mutex;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

pub const CLUSTER_ID: &str = "01234567-89ab-cdef-0123-456789abcdef";

/// Methods: `Echo` (message and cells come back), `Replicate` (the number of cells comes back), `Later` and `ScanLater` (after `release`, unless nobody waits then), `Big` (a value of the length in
/// the parameter), `Fail`, `Panic`, `LaterPanic`.
pub struct TestService {
    pub release: Arc<Semaphore>,
    pub batches: AtomicUsize,
    pub closed: AtomicUsize,
    pub finished: Arc<AtomicUsize>,
    /// Calls and failed calls that the service was told of as answered.
    pub answered: Mutex<(u64, u64)>,
    /// Number of answered calls by their tags. `Echo` has the length of its parameter.
    pub tags: Mutex<BTreeMap<Vec<u64>, u64>>,
    pub seen: Mutex<Vec<(u32, String)>>,
    /// Calls over these limits are in `noted`.
    pub notable: Mutex<Notable>,
    pub noted: Mutex<Vec<Noted>>,
    /// Of the last call.
    pub received_ns: AtomicU64,
}

/// What the service was told of a notable call.
#[derive(Clone, Debug)]
pub struct Noted {
    pub call_id: u32,
    pub method: String,
    pub param: Bytes,
    pub failed: bool,
    pub response_bytes: u64,
    /// On the network thread, put aside, on its way to the socket.
    pub times: [Duration; 3],
}

impl Default for TestService {
    fn default() -> TestService {
        TestService {
            received_ns: AtomicU64::new(0),
            release: Arc::new(Semaphore::new(0)),
            batches: AtomicUsize::new(0),
            closed: AtomicUsize::new(0),
            finished: Arc::default(),
            answered: Mutex::default(),
            tags: Mutex::default(),
            seen: Mutex::default(),
            notable: Mutex::new(Notable::NONE),
            noted: Mutex::default(),
        }
    }
}

impl Service for TestService {
    /// A method `Scan...` is a scan; all others change something. `PanicEarly` fails here, outside of any call.
    fn class(&self, head: &CallHead<'_>) -> CallClass {
        assert_ne!(head.method, "PanicEarly", "as asked, early");
        match head.method {
            "Replicate" => CallClass::Replication,
            method if method.starts_with("Scan") => CallClass::Scan,
            _ => CallClass::Write,
        }
    }

    /// Each two bytes of a batch of `Replicate` are an entry of a log.
    fn decoded_bytes(&self, head: &CallHead<'_>, _max: usize) -> usize {
        if head.method == "Replicate" { head.param.len() / 2 * size_of::<pb::WalEntry>() } else { 0 }
    }

    fn takes_cells(&self, method: &str) -> bool {
        matches!(method, "Echo" | "Later" | "ScanLater" | "Replicate")
    }

    fn call(&self, call: Call) -> Outcome {
        self.seen.lock().push((call.id, call.method.clone()));
        self.received_ns.store(call.received_ns, Ordering::SeqCst);
        match call.method.as_str() {
            "Echo" => {
                let tags = Tags::One(call.param.len() as u64);
                Outcome::Ready(Ok(Reply { tags, ..echo(&call) }))
            }
            "Replicate" => Outcome::Ready(Ok(Reply::encoded(Bytes::from(call.cells.len().to_string())))),
            "Later" | "ScanLater" => {
                let (release, finished) = (Arc::clone(&self.release), Arc::clone(&self.finished));
                let (terms, clock) = (call.terms(), SystemClock::new());
                let began_ns = call.received_ns;
                Outcome::Later(Box::pin(async move {
                    release.acquire().await.expect("never closed").forget();
                    if call.method == "ScanLater"
                        && let Some(why) = terms.dropped(began_ns + clock.monotonic_ns())
                    {
                        return Err(RpcError::dropped(why));
                    }
                    finished.fetch_add(1, Ordering::SeqCst);
                    Ok(echo(&call))
                }))
            }
            "Big" => {
                let len = (&call.param[..]).get_u32() as usize;
                let codec = call.connection.codec.expect("the test names one");
                let mut block = CellBlock::new(codec);
                block.push(&Cell::put(b"row", b"f", b"q", 7, &vec![b'v'; len]));
                Outcome::Ready(Ok(Reply { cells: Some(block), ..Reply::encoded(Bytes::new()) }))
            }
            "Fail" => Outcome::Ready(Err(RpcError::region_moved("h2", 16021, 5, 6))),
            "Panic" => panic!("as asked"),
            "LaterPanic" => Outcome::Later(Box::pin(async { panic!("as asked, later") })),
            other => Outcome::Ready(Err(RpcError::unknown_method(other))),
        }
    }

    fn answered(&self, calls: &AnsweredCalls<'_>) {
        let mut answered = self.answered.lock();
        answered.0 += calls.count;
        answered.1 += calls.failed_count;
        *self.tags.lock().entry(calls.tags.as_slice().to_vec()).or_default() += calls.count;
    }

    fn notable(&self) -> Notable {
        *self.notable.lock()
    }

    fn noted(&self, call: &NotedCall<'_>) -> CallParts {
        let times_ns = [call.thread_ns, call.waited_ns, call.network_ns];
        self.noted.lock().push(Noted {
            call_id: call.call_id,
            method: call.method.to_string(),
            param: call.param.clone(),
            failed: call.failed,
            response_bytes: call.response_bytes,
            times: times_ns.map(Duration::from_nanos),
        });
        CallParts::default()
    }

    fn batch_done(&self) {
        self.batches.fetch_add(1, Ordering::SeqCst);
    }

    fn connection_closed(&self, _connection: &halcyon_rpc::Connection) {
        self.closed.fetch_add(1, Ordering::SeqCst);
    }
}

fn echo(call: &Call) -> Reply {
    let cells = call.connection.codec.map(|codec| {
        let mut block = CellBlock::new(codec);
        call.cells.iter().for_each(|cell| block.push(cell));
        block
    });
    Reply { cells, ..Reply::encoded(call.param.clone()) }
}

pub async fn start(settings: RpcSettings) -> (RpcServer, Arc<TestService>) {
    let service = Arc::new(TestService::default());
    let mut services = Services::new();
    services.insert("TestService", Arc::clone(&service) as Arc<dyn Service>);
    let address = "127.0.0.1:0".parse().unwrap();
    let bound = RpcServer::bind(address, settings, Arc::new(SystemClock::new())).await.unwrap();
    (bound.serve(services, CLUSTER_ID), service)
}

pub fn header(codec: Option<&str>, compressor: Option<&str>) -> pb::ConnectionHeader {
    pb::ConnectionHeader {
        user_info: Some(pb::UserInformation { effective_user: "tester".to_string(), real_user: None }),
        service_name: Some("TestService".to_string()),
        cell_block_codec_class: codec.map(str::to_string),
        cell_block_compressor_class: compressor.map(str::to_string),
        version_info: Some(pb::VersionInfo {
            version: "2.6.4".to_string(),
            version_major: Some(2),
            version_minor: Some(6),
            ..Default::default()
        }),
        ..Default::default()
    }
}

pub fn opening(header: &pb::ConnectionHeader) -> Vec<u8> {
    let mut out = b"HBas\x00\x50".to_vec();
    out.extend((header.encoded_len() as u32).to_be_bytes());
    header.encode(&mut out).unwrap();
    out
}

pub fn request(call_id: u32, method: &str, param: &[u8], cells: &[u8]) -> Vec<u8> {
    request_within(call_id, method, param, cells, None)
}

/// With the client's timeout.
pub fn request_within(
    call_id: u32,
    method: &str,
    param: &[u8],
    cells: &[u8],
    timeout_ms: Option<u32>,
) -> Vec<u8> {
    let header = pb::RequestHeader {
        timeout: timeout_ms,
        call_id: Some(call_id),
        method_name: Some(method.to_string()),
        request_param: Some(true),
        cell_block_meta: (!cells.is_empty())
            .then_some(pb::CellBlockMeta { length: Some(cells.len() as u32) }),
        ..Default::default()
    };
    let mut body = header.encode_length_delimited_to_vec();
    prost::encoding::encode_varint(param.len() as u64, &mut body);
    body.extend_from_slice(param);
    body.extend_from_slice(cells);
    let mut out = (body.len() as u32).to_be_bytes().to_vec();
    out.extend(body);
    out
}

/// An answer taken apart.
#[derive(Debug)]
pub struct Answer {
    pub header: pb::ResponseHeader,
    pub message: Bytes,
    pub cells: Bytes,
}

pub struct Client {
    pub stream: TcpStream,
    input: BytesMut,
}

impl Client {
    pub async fn raw(server: &RpcServer) -> Client {
        let stream = TcpStream::connect(server.local_addr()).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Client::of(stream)
    }

    pub fn of(stream: TcpStream) -> Client {
        Client { stream, input: BytesMut::new() }
    }

    pub async fn open(server: &RpcServer) -> Client {
        let mut client = Client::raw(server).await;
        let header = header(Some("org.apache.hadoop.hbase.codec.KeyValueCodec"), None);
        client.send(&opening(&header)).await;
        client
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Exactly `len` bytes as they come.
    pub async fn bytes(&mut self, len: usize) -> Bytes {
        while self.input.len() < len {
            assert!(self.read().await > 0, "the server closed after {:?}", self.input);
        }
        self.input.split_to(len).freeze()
    }

    async fn read(&mut self) -> usize {
        let read = tokio::time::timeout(Duration::from_secs(20), self.stream.read_buf(&mut self.input));
        read.await.expect("the server is silent").unwrap_or(0)
    }

    /// That the server closes without another byte.
    pub async fn expect_close(&mut self) {
        assert_eq!((self.read().await, &self.input[..]), (0, &b""[..]));
    }

    pub async fn answer(&mut self) -> Answer {
        let len = self.bytes(4).await.get_u32() as usize;
        let mut rest = self.bytes(len).await;
        let header = pb::ResponseHeader::decode_length_delimited(&mut rest).unwrap();
        let cells_len = header.cell_block_meta.as_ref().map_or(0, |meta| meta.length.unwrap() as usize);
        assert_ne!(header.cell_block_meta.is_some(), cells_len == 0, "meta only for cells");
        let mut message = Bytes::new();
        if header.exception.is_none() {
            let len = prost::encoding::decode_varint(&mut rest).unwrap() as usize;
            message = rest.split_to(len);
        }
        assert_eq!(rest.len(), cells_len, "every byte of the frame is accounted for");
        Answer { header, message, cells: rest }
    }
}

impl Answer {
    pub fn exception(&self) -> (&str, &str, bool) {
        let exception = self.header.exception.as_ref().expect("an exception");
        let class = exception.exception_class_name.as_deref().unwrap();
        let trace = exception.stack_trace.as_deref().unwrap();
        assert!(trace.starts_with(&format!("{class}: ")), "{trace}");
        (class, trace, exception.do_not_retry.unwrap())
    }
}

pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never happened: {what}");
}
