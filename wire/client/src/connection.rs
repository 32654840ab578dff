//! One connection to one service of one server, with many calls at a time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use halcyon_cell::Cell;
use halcyon_proto::pb;
use halcyon_rpc::{CellBlock, Codec, Compressor, MASTER_EPOCH, decode_cells};
use parking_lot::Mutex;
use prost::Message;
use prost::encoding::{decode_varint, encode_varint, encoded_len_varint};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpStream, ToSocketAddrs};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use crate::{ClientError, RemoteException};

/// Longest answer that is believed.
const FRAME_BYTES_MAX: usize = 1 << 30;
const READ_BYTES: usize = 64 << 10;

/// What the connection header says.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Simple name of the service (`ClientService`).
    pub service: String,
    /// Name of the user (`effective_user`); there is no authentication.
    pub user: String,
    /// `None`: cells come inline in the messages.
    pub codec: Option<Codec>,
    /// Compression of cell blocks, both ways. Its Java class is sent.
    pub compressor: Option<(Compressor, String)>,
    /// Version the client claims to be; `None`: it says nothing, as gohbase and asynchbase do.
    pub version: Option<(u32, u32, u32)>,
    /// What follows the numbers in the text of the version, such as `-hadoop3`.
    pub version_suffix: String,
    /// The client is a master of Halcyon with this epoch.
    pub master_epoch: Option<u64>,
}

impl ConnectOptions {
    /// As the Java client of 2.6 connects by default.
    pub fn new(service: impl Into<String>) -> ConnectOptions {
        ConnectOptions {
            service: service.into(),
            user: "halcyon".to_string(),
            codec: Some(Codec::KeyValue),
            compressor: None,
            version: Some((2, 6, 0)),
            version_suffix: String::new(),
            master_epoch: None,
        }
    }

    fn header(&self) -> pb::ConnectionHeader {
        let version_info = self.version.map(|(major, minor, patch)| pb::VersionInfo {
            version: format!("{major}.{minor}.{patch}{}", self.version_suffix),
            version_major: Some(major),
            version_minor: Some(minor),
            ..Default::default()
        });
        let epoch = self.master_epoch.map(|epoch| pb::NameBytesPair {
            name: MASTER_EPOCH.to_string(),
            value: Some(epoch.to_string().into()),
        });
        pb::ConnectionHeader {
            user_info: Some(pb::UserInformation { effective_user: self.user.clone(), real_user: None }),
            service_name: Some(self.service.clone()),
            cell_block_codec_class: self.codec.map(|codec| codec.class().to_string()),
            cell_block_compressor_class: self.compressor.as_ref().map(|(_, class)| class.clone()),
            version_info,
            attribute: epoch.into_iter().collect(),
            ..Default::default()
        }
    }
}

/// A successful answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Encoded response message.
    pub message: Bytes,
    /// Cells of the cell block, in order.
    pub cells: Vec<Cell>,
}

/// One connection to one service. Dropping it closes it; calls under way fail.
///
/// # Thread safety
/// Shared freely. A call locks the output buffer to append its frame and the table of calls to enter itself;
/// neither lock is held while waiting.
pub struct Connection {
    shared: Arc<Shared>,
    codec: Option<Codec>,
    compressor: Option<Compressor>,
    tasks: [JoinHandle<()>; 2],
}

struct Shared {
    state: Mutex<State>,
    /// There is output.
    output_ready: Notify,
}

struct State {
    next_id: u32,
    calls: HashMap<u32, oneshot::Sender<Result<Answer, ClientError>>>,
    output: BytesMut,
    /// Why the connection ended.
    ended: Option<ClientError>,
}

impl Connection {
    /// Connects and introduces itself. A server that refuses is noticed at the first call: the protocol has
    /// no answer to a good header.
    pub async fn connect(
        address: impl ToSocketAddrs,
        options: &ConnectOptions,
    ) -> Result<Connection, ClientError> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let mut output = BytesMut::from(&b"HBas\x00\x50"[..]);
        let header = options.header();
        output.put_u32(header.encoded_len() as u32);
        header.encode(&mut output).expect("a BytesMut grows");

        let state = State { next_id: 0, calls: HashMap::new(), output, ended: None };
        let shared = Arc::new(Shared { state: Mutex::new(state), output_ready: Notify::new() });
        shared.output_ready.notify_one();
        let (read_half, write_half) = stream.into_split();
        let compressor = options.compressor.as_ref().map(|(compressor, _)| *compressor);
        let reading = read_answers(read_half, Arc::clone(&shared), options.codec, compressor);
        let writing = write_calls(write_half, Arc::clone(&shared));
        let tasks = [tokio::spawn(reading), tokio::spawn(writing)];
        Ok(Connection { shared, codec: options.codec, compressor, tasks })
    }

    /// Whether it broke or was closed: every call fails from now on.
    pub fn has_ended(&self) -> bool {
        self.shared.state.lock().ended.is_some()
    }

    /// Ends it: calls under way fail with this error, and so do later ones.
    pub(crate) fn end(&self, error: ClientError) {
        self.shared.end(error);
        // The other side may be frozen, so nothing is to be waited for.
        self.tasks.iter().for_each(JoinHandle::abort);
    }

    /// A message for a message, without cells.
    pub async fn call<M: Message + Default>(
        &self,
        method: &str,
        param: &impl Message,
    ) -> Result<M, ClientError> {
        let answer = self.call_with_cells(method, param, None, None).await?;
        M::decode(answer.message).map_err(|error| ClientError::Malformed(error.to_string()))
    }

    /// An empty cell block to fill for a call.
    pub fn cell_block(&self) -> Option<CellBlock> {
        self.codec.map(CellBlock::new)
    }

    /// Sends `param` with a cell block behind it and waits for the answer. `timeout` is told to the server and
    /// kept here.
    pub async fn call_with_cells(
        &self,
        method: &str,
        param: &impl Message,
        cells: Option<CellBlock>,
        timeout: Option<Duration>,
    ) -> Result<Answer, ClientError> {
        let (sender, receiver) = oneshot::channel();
        let cells = cells.filter(|block| !block.is_empty()).map(|block| match self.compressor {
            Some(compressor) => compressor.compress(&block.into_bytes()),
            None => block.into_bytes(),
        });
        let id = self.enter(method, param, cells.as_deref().unwrap_or_default(), timeout, sender)?;
        let answer = match timeout {
            None => receiver.await,
            Some(time) => match tokio::time::timeout(time, receiver).await {
                Ok(answer) => answer,
                Err(_) => {
                    self.shared.state.lock().calls.remove(&id);
                    let text = format!("{method}: no answer within {time:?}");
                    return Err(std::io::Error::new(std::io::ErrorKind::TimedOut, text).into());
                }
            },
        };
        answer.unwrap_or(Err(ClientError::Closed))
    }

    /// Appends the frame to the output and the call to the table.
    fn enter(
        &self,
        method: &str,
        param: &impl Message,
        cells: &[u8],
        timeout: Option<Duration>,
        sender: oneshot::Sender<Result<Answer, ClientError>>,
    ) -> Result<u32, ClientError> {
        let mut state = self.shared.state.lock();
        if let Some(error) = &state.ended {
            return Err(error.clone());
        }
        let id = state.next_id;
        state.next_id = if id == i32::MAX as u32 { 0 } else { id + 1 };
        let header = pb::RequestHeader {
            call_id: Some(id),
            method_name: Some(method.to_string()),
            request_param: Some(true),
            cell_block_meta: (!cells.is_empty())
                .then_some(pb::CellBlockMeta { length: Some(cells.len() as u32) }),
            timeout: timeout.map(|time| u32::try_from(time.as_millis()).unwrap_or(u32::MAX)),
            ..Default::default()
        };
        put_frame(&mut state.output, &header, param, cells);
        state.calls.insert(id, sender);
        drop(state);
        self.shared.output_ready.notify_one();
        Ok(id)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// `int32 length | varint, header | varint, parameter | cells`
fn put_frame(out: &mut BytesMut, header: &pb::RequestHeader, param: &impl Message, cells: &[u8]) {
    let (header_len, param_len) = (header.encoded_len(), param.encoded_len());
    let len = encoded_len_varint(header_len as u64)
        + header_len
        + encoded_len_varint(param_len as u64)
        + param_len
        + cells.len();
    out.reserve(4 + len);
    out.put_u32(u32::try_from(len).expect("a request is shorter than 4 GiB"));
    encode_varint(header_len as u64, out);
    header.encode(out).expect("a BytesMut grows");
    encode_varint(param_len as u64, out);
    param.encode(out).expect("a BytesMut grows");
    out.put_slice(cells);
}

async fn write_calls(mut socket: OwnedWriteHalf, shared: Arc<Shared>) {
    loop {
        shared.output_ready.notified().await;
        loop {
            let mut output = shared.state.lock().output.split();
            if output.is_empty() {
                break;
            }
            if let Err(error) = socket.write_all_buf(&mut output).await {
                return shared.end(error.into());
            }
        }
    }
}

async fn read_answers(
    mut socket: OwnedReadHalf,
    shared: Arc<Shared>,
    codec: Option<Codec>,
    compressor: Option<Compressor>,
) {
    let mut input = BytesMut::new();
    let error = loop {
        match read_frame(&mut socket, &mut input).await {
            Ok(frame) => match parse(frame, codec, compressor) {
                Ok((id, answer)) => shared.finish(id, answer),
                Err(error) => break error,
            },
            Err(error) => break error,
        }
    };
    shared.end(error);
}

async fn read_frame(socket: &mut OwnedReadHalf, input: &mut BytesMut) -> Result<Bytes, ClientError> {
    let mut wanted = 4;
    loop {
        if let Some(len) = input.first_chunk() {
            let len = u32::from_be_bytes(*len) as usize;
            if len > FRAME_BYTES_MAX {
                return Err(ClientError::Malformed(format!("an answer of {len} bytes")));
            }
            wanted = 4 + len;
            if input.len() >= wanted {
                input.advance(4);
                return Ok(input.split_to(len).freeze());
            }
        }
        input.reserve((wanted - input.len()).max(READ_BYTES));
        if socket.read_buf(input).await? == 0 {
            return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
        }
    }
}

/// Takes an answer's frame apart; the error ends the connection.
fn parse(
    mut frame: Bytes,
    codec: Option<Codec>,
    compressor: Option<Compressor>,
) -> Result<(u32, Result<Answer, ClientError>), ClientError> {
    let malformed = |what: &dyn std::fmt::Display| ClientError::Malformed(what.to_string());
    let header = pb::ResponseHeader::decode_length_delimited(&mut frame).map_err(|e| malformed(&e))?;
    let id = header.call_id.ok_or_else(|| malformed(&"an answer without call id"))?;
    if let Some(exception) = header.exception {
        return Ok((id, Err(ClientError::Remote(Box::new(RemoteException::of(exception))))));
    }
    let len = decode_varint(&mut frame).map_err(|e| malformed(&e))?;
    if len > frame.len() as u64 {
        return Err(malformed(&"a message longer than its frame"));
    }
    let message = frame.split_to(len as usize);
    let cells_len = header.cell_block_meta.and_then(|meta| meta.length).unwrap_or(0) as usize;
    if cells_len != frame.len() {
        return Err(malformed(&format!("{} bytes follow, not {cells_len}", frame.len())));
    }
    let cells = match codec {
        _ if frame.is_empty() => Vec::new(),
        None => return Err(malformed(&"a cell block without a codec")),
        Some(codec) => {
            let block = match compressor {
                Some(compressor) => compressor.decompress(&frame, FRAME_BYTES_MAX),
                None => Ok(frame),
            };
            block.and_then(|block| decode_cells(codec, block)).map_err(|e| malformed(&e))?
        }
    };
    Ok((id, Ok(Answer { message, cells })))
}

/// Calls have the numbers from 0 on. A server writes a negative one (-1 and others, HBase: `RpcServer`) where it answers the
/// connection itself.
fn is_of_no_call(id: u32) -> bool {
    id > i32::MAX as u32
}

impl Shared {
    /// Hands an answer to its call. An answer without one is dropped: its caller has given up, and what it says is of no
    /// other call. An exception of no call refuses the connection.
    fn finish(&self, id: u32, answer: Result<Answer, ClientError>) {
        let call = self.state.lock().calls.remove(&id);
        match (call, answer) {
            (Some(call), answer) => drop(call.send(answer)),
            (None, Err(error)) if is_of_no_call(id) => self.end(error),
            (None, _) => {}
        }
    }

    /// Fails all calls, now and later; the first reason stands.
    fn end(&self, error: ClientError) {
        let mut state = self.state.lock();
        let error = state.ended.get_or_insert(error).clone();
        let calls = std::mem::take(&mut state.calls);
        drop(state);
        for (_, call) in calls {
            let _ = call.send(Err(error.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HBase's master compares the texts: to it 2.6.4 is newer than 2.6.4-hadoop3.
    #[test]
    fn the_version_is_sent_with_its_suffix() {
        let mut options = ConnectOptions { version: Some((2, 6, 4)), ..ConnectOptions::new("MasterService") };
        assert_eq!(options.header().version_info.unwrap().version, "2.6.4");
        options.version_suffix = "-hadoop3".to_string();
        let sent = options.header().version_info.unwrap();
        assert_eq!(sent.version, "2.6.4-hadoop3");
        assert_eq!((sent.version_major, sent.version_minor), (Some(2), Some(6)));
    }
}
