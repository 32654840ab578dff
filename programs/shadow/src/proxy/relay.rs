//! One connection of a client, and the one to the server behind it.
//!
//! Both directions are passed on frame by frame. A frame goes on before anybody looks into it; only answers that name servers
//! wait until the names are changed. What is to be observed is copied into a queue with a limit, and dropped if that is full.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use halcyon_proto::pb;
use halcyon_rpc::{Codec, Compressor};
use parking_lot::Mutex;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout};

use crate::proxy::calls::{
    Method, is_end_of_scan, is_for_meta, meta_actions, scanner_of_answer, scanner_of_call,
};
use crate::proxy::frames::{
    Frame, FrameReader, frame, request_head, request_parts, response_head, response_parts,
};
use crate::proxy::names::{self, CellForm};
use crate::proxy::scanners::Known;
use crate::proxy::wire::{Path, with_server_names};
use crate::proxy::{Proxy, Target};

const PREAMBLE_LEN: usize = 6;
const HEADER_BYTES_MAX: usize = 64 << 10;
/// A client says who it is within this time.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(30);
/// Calls of a connection that wait for their answers at most; a client with more is no client.
const CALLS_MAX: usize = 1 << 16;
/// Small frames that are ready are written together up to this size.
const OUTPUT_BYTES: usize = 64 << 10;
const SIMPLE: &[u8; PREAMBLE_LEN] = b"HBas\x00\x50";

/// A read with its answer, on its way to whoever observes.
pub(crate) struct Seen {
    pub(crate) server: Arc<str>,
    pub(crate) method: Method,
    /// The parameter message.
    pub(crate) request: Bytes,
    /// The frame of the answer.
    pub(crate) response: Bytes,
    pub(crate) form: CellForm,
    pub(crate) began: Instant,
    pub(crate) took: Duration,
    /// Its share of the queue: request and answer.
    pub(crate) _room: OwnedSemaphorePermit,
}

/// The parameter message of a read that is observed. It has its share of the queue while it waits for the answer: a server that
/// does not answer would have it for long, and others of its kind.
struct Asked {
    message: Bytes,
    room: OwnedSemaphorePermit,
}

/// A call that waits for its answer.
struct Pending {
    method: Method,
    /// Paths to server names in the answer.
    paths: &'static [Path],
    /// Of a read of `hbase:meta`: its method, and the numbers of the region actions that are for it.
    meta: Option<(&'static str, Vec<u32>)>,
    is_scan_open: bool,
    /// A next or a close of this scanner.
    scanner: Option<u64>,
    closes: bool,
    /// Of a read that is observed.
    observed: Option<Asked>,
    began: Instant,
}

/// An answer: its frame if that was changed, and its call with its time if that is observed.
type Passed = (Option<Bytes>, Option<(Pending, Duration)>);

/// What both directions share.
struct Shared {
    proxy: Arc<Proxy>,
    server: Arc<str>,
    service: String,
    form: CellForm,
    pending: Mutex<HashMap<u32, Pending>>,
}

/// Serves a client until one of both ends its connection. The error says why it was refused.
pub(crate) async fn serve(proxy: Arc<Proxy>, mut client: TcpStream, target: Target) -> Result<(), String> {
    let handshake = timeout(HANDSHAKE_LIMIT, greet(&proxy, &mut client, &target)).await;
    let Some((server, upstream, header)) = handshake.map_err(|_| "no connection header in time")?? else {
        return Ok(());
    };
    let form = cell_form(&header)?;
    let service = header.service_name.unwrap_or_default();
    let _ = (client.set_nodelay(true), upstream.set_nodelay(true));
    let shared =
        Arc::new(Shared { proxy: Arc::clone(&proxy), server, service, form, pending: Mutex::default() });
    let (client_in, client_out) = client.into_split();
    let (server_in, server_out) = upstream.into_split();
    let ended = tokio::select! {
        ended = pass_calls(&shared, client_in, server_out) => ended,
        ended = pass_answers(&shared, server_in, client_out) => ended,
    };
    match ended {
        Err(End::Wrong(why)) => Err(why),
        Ok(()) | Err(End::Gone) => Ok(()),
    }
}

/// Why a connection ends before one of both has closed it.
enum End {
    /// One of both is gone.
    Gone,
    /// Its bytes are wrong.
    Wrong(String),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> End {
        match error.kind() {
            io::ErrorKind::InvalidData => End::Wrong(error.to_string()),
            _ => End::Gone,
        }
    }
}

impl From<String> for End {
    fn from(why: String) -> End {
        End::Wrong(why)
    }
}

/// What stands before the first call. `None`: nothing follows.
async fn greet(
    proxy: &Proxy,
    client: &mut TcpStream,
    target: &Target,
) -> Result<Option<(Arc<str>, TcpStream, pb::ConnectionHeader)>, String> {
    loop {
        let mut preamble = [0; PREAMBLE_LEN];
        if client.read_exact(&mut preamble).await.is_err() {
            return Ok(None); // somebody looked whether the port is open
        }
        match &preamble {
            b"Regist" => {
                let (_, mut upstream) = proxy.connect(target).await?;
                upstream.write_all(&preamble).await.map_err(text)?;
                let answer = upstream.read_u32().await.map_err(text)? as usize;
                if answer > HEADER_BYTES_MAX {
                    return Err(format!("an answer of {answer} bytes to the question for the cluster id"));
                }
                let mut bytes = vec![0; 4 + answer];
                bytes[..4].copy_from_slice(&(answer as u32).to_be_bytes());
                upstream.read_exact(&mut bytes[4..]).await.map_err(text)?;
                client.write_all(&bytes).await.map_err(text)?;
                return Ok(None);
            }
            b"Securi" => {
                let class = "org.apache.hadoop.hbase.ipc.SecurityNotEnabledException";
                refuse(client, class, "halcyon shadow has no principal", false).await;
            }
            SIMPLE => break,
            _ if preamble[..5] == SIMPLE[..5] => {
                let why = "halcyon shadow passes on connections without SASL only (hbase.security.authentication=simple)";
                refuse(client, "org.apache.hadoop.hbase.ipc.BadAuthException", why, true).await;
                return Err(format!("authentication {:#04x}: {why}", preamble[5]));
            }
            _ => {
                let why =
                    format!("Expected HEADER=HBas but received HEADER={}", preamble[..4].escape_ascii());
                refuse(client, "org.apache.hadoop.hbase.ipc.FatalConnectionException", &why, true).await;
                return Err(why);
            }
        }
    }
    let len = client.read_u32().await.map_err(text)? as usize;
    if len > HEADER_BYTES_MAX {
        return Err(format!("a connection header of {len} bytes"));
    }
    let mut bytes = vec![0; len];
    client.read_exact(&mut bytes).await.map_err(text)?;
    let header = pb::ConnectionHeader::decode(&bytes[..]).map_err(text)?;
    let (server, mut upstream) = proxy.connect(target).await?;
    let opening = [SIMPLE, &(len as u32).to_be_bytes()[..], &bytes].concat();
    upstream.write_all(&opening).await.map_err(text)?;
    Ok(Some((server, upstream, header)))
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// An exception before any call, as HBase's servers send it.
async fn refuse(client: &mut TcpStream, class: &str, why: &str, do_not_retry: bool) {
    let exception = pb::ExceptionResponse {
        exception_class_name: Some(class.to_string()),
        stack_trace: Some(format!("{class}: {why}")),
        do_not_retry: Some(do_not_retry),
        ..Default::default()
    };
    let header =
        pb::ResponseHeader { call_id: Some(u32::MAX), exception: Some(exception), ..Default::default() };
    let _ = client.write_all(&frame(&header, None, &[])).await; // it may be gone
}

/// The error is a reason to close, as HBase does.
fn cell_form(header: &pb::ConnectionHeader) -> Result<CellForm, String> {
    let named = |class: &Option<String>| class.clone().filter(|class| !class.is_empty());
    let codec = match named(&header.cell_block_codec_class) {
        Some(class) => Some(Codec::of_class(&class).ok_or_else(|| format!("unknown codec {class}"))?),
        None => None,
    };
    let compressor = match named(&header.cell_block_compressor_class) {
        Some(class) => {
            Some(Compressor::of_class(&class).ok_or_else(|| format!("unknown compressor {class}"))?)
        }
        None => None,
    };
    Ok(CellForm { codec, compressor })
}

/// Frames that are ready to be written.
struct Output<W> {
    stream: W,
    bytes: BytesMut,
}

impl<W: AsyncWrite + Unpin> Output<W> {
    fn new(stream: W) -> Output<W> {
        Output { stream, bytes: BytesMut::with_capacity(OUTPUT_BYTES) }
    }

    async fn push(&mut self, frame: &Bytes) -> io::Result<()> {
        if self.bytes.len() + frame.len() <= OUTPUT_BYTES {
            self.bytes.extend_from_slice(frame);
            return Ok(());
        }
        self.flush().await?;
        self.stream.write_all(frame).await
    }

    async fn flush(&mut self) -> io::Result<()> {
        if !self.bytes.is_empty() {
            self.stream.write_all(&self.bytes).await?;
            self.bytes.clear();
        }
        Ok(())
    }
}

/// The next frame. What is ready to be sent leaves before anything is waited for.
async fn next_frame(
    reader: &mut FrameReader<OwnedReadHalf>,
    output: &mut Output<OwnedWriteHalf>,
) -> Result<Option<Frame>, End> {
    match reader.ready()? {
        Some(frame) => Ok(Some(frame)),
        None => {
            output.flush().await?;
            Ok(reader.next().await?)
        }
    }
}

async fn pass_calls(shared: &Shared, input: OwnedReadHalf, output: OwnedWriteHalf) -> Result<(), End> {
    let proxy = &shared.proxy;
    let mut reader = FrameReader::new(input, proxy.limits.frame_bytes_max, Arc::clone(&proxy.budget));
    let mut output = Output::new(output);
    loop {
        match next_frame(&mut reader, &mut output).await? {
            None => return Ok(()),
            Some(Frame::Whole(frame, _room)) => {
                let changed = shared.call(&frame)?;
                output.push(changed.as_ref().unwrap_or(&frame)).await?;
            }
            Some(Frame::Large(head, mut left)) => {
                proxy.counts.large.add();
                proxy.counts.calls.add();
                if request_head(&head).is_none() {
                    return Err(End::Wrong("a large request without a header".to_string()));
                }
                output.push(&head).await?;
                output.flush().await?;
                while left > 0 {
                    let piece = reader.piece(left).await?;
                    left -= piece.len();
                    output.stream.write_all(&piece).await?;
                }
            }
        }
    }
}

async fn pass_answers(shared: &Shared, input: OwnedReadHalf, output: OwnedWriteHalf) -> Result<(), End> {
    let proxy = &shared.proxy;
    let mut reader = FrameReader::new(input, proxy.limits.frame_bytes_max, Arc::clone(&proxy.budget));
    let mut output = Output::new(output);
    loop {
        match next_frame(&mut reader, &mut output).await? {
            None => return Ok(()),
            Some(Frame::Whole(frame, _room)) => {
                let (changed, observed) = shared.answer(&frame)?;
                output.push(changed.as_ref().unwrap_or(&frame)).await?;
                if let Some((pending, took)) = observed {
                    shared.observe(pending, took, &frame);
                }
            }
            Some(Frame::Large(head, mut left)) => {
                proxy.counts.large.add();
                shared.large_answer(&head)?;
                output.push(&head).await?;
                output.flush().await?;
                while left > 0 {
                    let piece = reader.piece(left).await?;
                    left -= piece.len();
                    output.stream.write_all(&piece).await?;
                }
            }
        }
    }
}

impl Shared {
    /// Notes a call. Returns its frame if that had to be changed; the error ends the connection.
    fn call(&self, frame: &Bytes) -> Result<Option<Bytes>, String> {
        let counts = &self.proxy.counts;
        counts.calls.add();
        let parts = request_parts(frame)?;
        let call_id = parts.header.call_id.ok_or("a request without call id")?;
        let method_name = parts.header.method_name();
        let message = parts.message(frame);
        let mut pending = Pending {
            method: Method::Other,
            paths: names::in_answer(&self.service, method_name),
            meta: None,
            is_scan_open: false,
            scanner: None,
            closes: false,
            observed: None,
            began: Instant::now(),
        };
        if self.service == "ClientService" {
            self.look(method_name, &message, &mut pending)?;
        }
        let paths = names::in_call(&self.service, method_name);
        let mut changed = None;
        if !paths.is_empty() {
            let mut meant = |name: &pb::ServerName| self.proxy.directory.meant(name);
            changed = with_server_names(&message, paths, &mut meant).map(|message| {
                crate::proxy::frames::frame(&parts.header, Some(&message), &parts.cells(frame))
            });
        }
        let mut all = self.pending.lock();
        if all.len() >= CALLS_MAX {
            return Err(format!("{CALLS_MAX} calls wait for their answers"));
        }
        all.insert(call_id, pending);
        Ok(changed)
    }

    /// What has to be known of a call to `ClientService`.
    fn look(&self, method_name: &str, message: &[u8], pending: &mut Pending) -> Result<(), String> {
        let counts = &self.proxy.counts;
        let method = Method::of(method_name, message);
        pending.method = method;
        let mut is_observed = false;
        match method {
            Method::Write => counts.writes.add(),
            Method::Get => pending.meta = is_for_meta(message).then(|| ("Get", Vec::new())),
            Method::MultiGet => {
                let actions = meta_actions(message)?;
                pending.meta = (!actions.is_empty()).then_some(("Multi", actions));
            }
            Method::Scan => match scanner_of_call(message) {
                None => {
                    pending.is_scan_open = true;
                    pending.meta = is_for_meta(message).then(|| ("Scan", Vec::new()));
                }
                Some(id) => {
                    let known = self.proxy.scanners.get(&self.server, id);
                    let is_meta = known.is_some_and(|known| known.is_meta);
                    pending.meta = is_meta.then(|| ("Scan", Vec::new()));
                    pending.scanner = Some(id);
                    pending.closes = crate::proxy::wire::number_field(message, 5) == Some(1);
                    is_observed = known.is_some_and(|known| known.is_observed);
                }
            },
            Method::Other => {}
        }
        if method.is_read() {
            counts.reads.add();
            if pending.meta.is_none() && pending.scanner.is_none() && self.proxy.sample.take() {
                counts.sampled.add();
                is_observed = true;
            }
        }
        if is_observed {
            // Copied: its buffer may be larger, and belongs to the frame.
            let asked = |room| Asked { message: Bytes::copy_from_slice(message), room };
            pending.observed = self.proxy.tap.room(message.len()).map(asked);
            if pending.observed.is_none() {
                self.drop_observed(pending.scanner);
            }
        }
        Ok(())
    }

    /// Counts a read for which the queue has no room. A scan with a gap is of no use.
    fn drop_observed(&self, scanner: Option<u64>) {
        self.proxy.counts.dropped.add();
        if let Some(id) = scanner {
            self.proxy.scanners.remove(&self.server, id);
        }
    }

    /// Changes the names in an answer. The error ends the connection.
    fn answer(&self, frame: &Bytes) -> Result<Passed, String> {
        let parts = response_parts(frame)?;
        let pending = parts.header.call_id.and_then(|id| self.pending.lock().remove(&id));
        let directory = &self.proxy.directory;
        if let Some(exception) = &parts.header.exception {
            let shown = names::exception(exception, directory).map(|exception| {
                let header = pb::ResponseHeader { exception: Some(exception), ..parts.header.clone() };
                crate::proxy::frames::frame(&header, None, &parts.cells(frame))
            });
            let observed = pending.filter(|pending| pending.observed.is_some());
            return Ok((shown, observed.map(|pending| self.timed(pending))));
        }
        let Some(pending) = pending else { return Ok((None, None)) };
        let message = parts.message(frame);
        self.note_scanner(&pending, &message);
        let mut changed = None;
        if let Some((method, actions)) = &pending.meta {
            let cells = parts.cells(frame);
            let shown = names::meta_answer(method, &message, &cells, self.form, actions, directory);
            changed = shown.map_err(|error| format!("an answer about hbase:meta: {error}"))?.map(
                |(message, cells)| {
                    let header = pb::ResponseHeader {
                        cell_block_meta: (!cells.is_empty())
                            .then_some(pb::CellBlockMeta { length: Some(cells.len() as u32) }),
                        ..parts.header.clone()
                    };
                    crate::proxy::frames::frame(&header, Some(&message), &cells)
                },
            );
        } else if !pending.paths.is_empty() {
            let mut shown = |name: &pb::ServerName| directory.shown(name);
            changed = with_server_names(&message, pending.paths, &mut shown);
            changed = changed.map(|message| {
                crate::proxy::frames::frame(&parts.header, Some(&message), &parts.cells(frame))
            });
        } else if matches!(pending.method, Method::MultiGet | Method::Write)
            && names::tells_of_moves(&message)
        {
            changed = names::multi(&message, directory).map(|message| {
                crate::proxy::frames::frame(&parts.header, Some(&message), &parts.cells(frame))
            });
        }
        let observed = pending.observed.is_some().then(|| self.timed(pending));
        Ok((changed, observed))
    }

    fn timed(&self, pending: Pending) -> (Pending, Duration) {
        let took = pending.began.elapsed();
        (pending, took)
    }

    /// Remembers a scanner whose later answers matter, and forgets one that is closed.
    fn note_scanner(&self, pending: &Pending, message: &[u8]) {
        if pending.method != Method::Scan {
            return;
        }
        let scanners = &self.proxy.scanners;
        let is_end = pending.closes || is_end_of_scan(message);
        match pending.scanner {
            Some(id) if is_end => scanners.remove(&self.server, id),
            None if pending.is_scan_open && !is_end => {
                let known =
                    Known { is_meta: pending.meta.is_some(), is_observed: pending.observed.is_some() };
                if (known.is_meta || known.is_observed)
                    && let Some(id) = scanner_of_answer(message)
                {
                    scanners.insert(&self.server, id, known);
                }
            }
            _ => {}
        }
    }

    /// An answer that passes in pieces: nobody looks into it, so it must not be one that names servers.
    fn large_answer(&self, head: &[u8]) -> Result<(), String> {
        let header = response_head(head).ok_or("a large answer without a header")?;
        let pending = header.call_id.and_then(|id| self.pending.lock().remove(&id));
        let Some(pending) = pending else { return Ok(()) };
        if pending.meta.is_some() || !pending.paths.is_empty() {
            return Err(
                "an answer that names servers is too large to change: raise --frame-max and --memory"
                    .to_string(),
            );
        }
        if pending.observed.is_some() {
            self.drop_observed(pending.scanner);
        }
        Ok(())
    }

    fn observe(&self, pending: Pending, took: Duration, response: &Bytes) {
        let Some(Asked { message: request, mut room }) = pending.observed else { return };
        if !self.proxy.tap.more(&mut room, response.len()) {
            return self.drop_observed(pending.scanner);
        }
        self.proxy.tap.send(Seen {
            server: Arc::clone(&self.server),
            method: pending.method,
            request,
            response: Bytes::copy_from_slice(response),
            form: self.form,
            began: pending.began,
            took,
            _room: room,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(proxy: &Arc<Proxy>) -> Shared {
        Shared {
            proxy: Arc::clone(proxy),
            server: "rs:1".into(),
            service: "ClientService".to_string(),
            form: CellForm { codec: None, compressor: None },
            pending: Mutex::default(),
        }
    }

    fn call(id: u32, method: &str, message: &impl Message) -> Bytes {
        let header = pb::RequestHeader {
            call_id: Some(id),
            method_name: Some(method.to_string()),
            request_param: Some(true),
            ..Default::default()
        };
        frame(&header, Some(&message.encode_to_vec()), &[])
    }

    fn answer(id: u32, message: &impl Message) -> Bytes {
        let header = pb::ResponseHeader { call_id: Some(id), ..Default::default() };
        frame(&header, Some(&message.encode_to_vec()), &[])
    }

    fn get(row_bytes: usize) -> pb::GetRequest {
        let get = pb::Get { row: vec![b'r'; row_bytes].into(), ..Default::default() };
        pb::GetRequest { region: region(), get }
    }

    fn region() -> pb::RegionSpecifier {
        pb::RegionSpecifier { r#type: 1, value: Bytes::from_static(b"t,,1") }
    }

    fn answered(shared: &Shared, id: u32, message: &impl Message) {
        let frame = answer(id, message);
        if let (_, Some((pending, took))) = shared.answer(&frame).unwrap() {
            shared.observe(pending, took, &frame);
        }
    }

    /// A server behind the proxy was frozen. Reads of clients that did not wait were kept until their answers came, 65,536 of a
    /// connection with 64 KiB each, and only the answer was asked whether the queue has room.
    #[test]
    fn reads_that_wait_for_their_answers_have_their_share_of_the_queue() {
        let (proxy, mut seen) = Proxy::with_queue(100_000);
        let first = shared(&proxy);
        for id in 0..10 {
            assert!(first.call(&call(id, "Get", &get(30_000))).unwrap().is_none(), "it passes as it is");
        }
        let kept = |shared: &Shared| {
            shared.pending.lock().values().filter(|pending| pending.observed.is_some()).count()
        };
        assert_eq!(kept(&first), 3);
        assert_eq!(first.pending.lock().len(), 10);
        let counts = &proxy.counts;
        assert_eq!((counts.calls.get(), counts.sampled.get(), counts.dropped.get()), (10, 10, 7));
        answered(&first, 9, &pb::GetResponse::default());
        assert!(seen.try_recv().is_err(), "it was not kept");
        answered(&first, 0, &pb::GetResponse::default());
        let one = seen.try_recv().unwrap();
        assert_eq!(&one.request[..], get(30_000).encode_to_vec());
        assert_eq!(one.response, answer(0, &pb::GetResponse::default()));
        // The answer has its share, too.
        let large = pb::Result {
            cell: vec![pb::Cell { value: Some(vec![7; 50_000].into()), ..Default::default() }],
            ..Default::default()
        };
        answered(&first, 1, &pb::GetResponse { result: Some(large) });
        assert!(seen.try_recv().is_err());
        assert_eq!(counts.dropped.get(), 8);
        let second = shared(&proxy);
        (0..2).for_each(|id| drop(second.call(&call(id, "Get", &get(30_000))).unwrap()));
        assert_eq!(kept(&second), 1, "one is seen, one waits");
        drop((one, first, second));
        assert!(proxy.tap.room(99_000).is_some(), "all is given back when connections end");
    }

    #[test]
    fn a_scan_without_room_for_a_call_is_forgotten() {
        let (proxy, mut seen) = Proxy::with_queue(10_000);
        let shared = shared(&proxy);
        let opening =
            pb::ScanRequest { region: Some(region()), scan: Some(pb::Scan::default()), ..Default::default() };
        shared.call(&call(0, "Scan", &opening)).unwrap();
        let more = pb::ScanResponse { scanner_id: Some(5), more_results: Some(true), ..Default::default() };
        answered(&shared, 0, &more);
        assert!(seen.try_recv().is_ok());
        assert!(proxy.scanners.get(&shared.server, 5).is_some_and(|known| known.is_observed));
        shared.call(&call(1, "Get", &get(9_000))).unwrap();
        let next = pb::ScanRequest { scanner_id: Some(5), ..Default::default() };
        shared.call(&call(2, "Scan", &next)).unwrap();
        assert!(proxy.scanners.get(&shared.server, 5).is_none());
        assert_eq!(proxy.counts.dropped.get(), 1);
    }
}
