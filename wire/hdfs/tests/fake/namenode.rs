//! A NameNode that knows one file and answers as it is told.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use halcyon_env::spawn_thread;
use parking_lot::Mutex;

use crate::datanode::DataNode;
use crate::wire::{Message, bytes, delimited, number, take_delimited};

pub const POOL: &str = "pool";
/// Of the first block; each has the next number.
pub const FIRST_BLOCK: u64 = 1000;
pub const STAMP: u64 = 50;
/// After each recovery of a pipeline one more.
pub const NEW_STAMP: u64 = 51;

/// What becomes of a call.
#[derive(Clone, Debug)]
pub enum Answer {
    /// This exception of Java's.
    Exception(&'static str),
    /// None, ever, to nothing of this connection.
    Silence,
    /// None, ever; what comes behind it is answered.
    None,
    /// The connection is closed behind the request.
    Close,
    /// This message.
    Is(Vec<u8>),
}

/// A call that came.
#[derive(Clone, Debug)]
pub struct Call {
    pub method: String,
    /// Client and number: those of a call that is made again are the same.
    pub id: (Vec<u8>, u64),
    pub body: Message,
}

/// How a connection ended that was not answered.
pub type Ended = io::Result<usize>;

#[derive(Default)]
struct State {
    calls: Vec<Call>,
    connections: usize,
    scripts: HashMap<&'static str, VecDeque<Answer>>,
    always: Option<Answer>,
    ended: Vec<Ended>,
    blocks: u64,
    recoveries: u64,
    block_bytes: u64,
    /// `LocatedBlocksProto` of the file.
    located: Vec<u8>,
}

#[derive(Clone)]
pub struct NameNode {
    pub address: String,
    state: Arc<Mutex<State>>,
    datanodes: Vec<DataNode>,
}

impl NameNode {
    /// Its blocks are on these DataNodes, in this order.
    pub fn start(datanodes: &[DataNode]) -> NameNode {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = State { block_bytes: 1 << 20, ..State::default() };
        let node = NameNode { address, state: Arc::new(Mutex::new(state)), datanodes: datanodes.to_vec() };
        let serving = node.clone();
        spawn_thread("namenode", move || {
            for connection in listener.incoming() {
                serving.state.lock().connections += 1;
                let (serving, connection) = (serving.clone(), connection.unwrap());
                spawn_thread("namenode", move || serving.serve(connection)).unwrap();
            }
        })
        .unwrap();
        node
    }

    /// The next calls of this name are answered so, and those behind them as usual.
    pub fn script(&self, method: &'static str, answers: &[Answer]) {
        self.state.lock().scripts.insert(method, answers.iter().cloned().collect());
    }

    /// All calls are answered so.
    pub fn always(&self, answer: Answer) {
        self.state.lock().always = Some(answer);
    }

    /// The file has these blocks: the length of each, and where it is.
    pub fn set_file(&self, blocks: &[(u64, u64)], on: &[DataNode]) {
        let mut located = number(1, blocks.iter().map(|(_, len)| len).sum());
        let mut offset = 0;
        for (id, len) in blocks {
            located.extend(bytes(2, located_block(*id, STAMP, *len, offset, on)));
            offset += len;
        }
        located.extend([number(3, 0), number(5, 1)].concat());
        self.state.lock().located = located;
    }

    /// The usual answer to `addBlock`.
    pub fn new_block(&self, id: u64) -> Vec<u8> {
        bytes(1, located_block(id, STAMP, 0, 0, &self.datanodes))
    }

    pub fn calls(&self, method: &str) -> Vec<Call> {
        self.state.lock().calls.iter().filter(|call| call.method == method).cloned().collect()
    }

    /// The names of all calls that change something, in their order.
    pub fn changes(&self) -> Vec<String> {
        let reads = ["getServerDefaults", "getFileInfo", "getBlockLocations"];
        let calls = self.state.lock().calls.clone();
        calls.into_iter().map(|call| call.method).filter(|method| !reads.contains(&&**method)).collect()
    }

    pub fn connections(&self) -> usize {
        self.state.lock().connections
    }

    pub fn ended(&self) -> Vec<Result<usize, io::ErrorKind>> {
        let kind = |ended: &Ended| ended.as_ref().map(|len| *len).map_err(io::Error::kind);
        self.state.lock().ended.iter().map(kind).collect()
    }

    fn serve(&self, mut stream: TcpStream) {
        let mut preamble = [0; 7];
        if stream.read_exact(&mut preamble).is_err() {
            return;
        }
        while let Ok(frame) = read_frame(&mut stream) {
            let mut rest = &frame[..];
            let header = Message::of(&take_delimited(&mut rest));
            let call_id = (header.number(3) >> 1) as u32;
            if header.number(3) & 1 == 1 {
                continue; // negative: the context of the connection
            }
            let method = Message::of(&take_delimited(&mut rest)).text(1);
            let body = Message::of(&take_delimited(&mut rest));
            let id = (header.bytes(4), call_id.into());
            let answer = self.note(Call { method, id, body });
            let (status, rest) = match answer {
                Answer::Is(message) => (number(2, 0), delimited(&message)),
                Answer::Exception(class) => {
                    ([number(2, 1), bytes(4, class), bytes(5, "as the test says")].concat(), Vec::new())
                }
                Answer::None => continue,
                Answer::Close => return,
                Answer::Silence => {
                    let ended = end_of(&mut stream);
                    self.state.lock().ended.push(ended);
                    return;
                }
            };
            let header = [number(1, call_id.into()), status].concat();
            let reply = [delimited(&header), rest].concat();
            let framed = [&(reply.len() as u32).to_be_bytes()[..], &reply].concat();
            if stream.write_all(&framed).is_err() {
                return;
            }
        }
    }

    fn note(&self, call: Call) -> Answer {
        let mut state = self.state.lock();
        let method = call.method.clone();
        state.calls.push(call.clone());
        if let Some(answer) = &state.always {
            return answer.clone();
        }
        if let Some(answer) = state.scripts.get_mut(&*method).and_then(VecDeque::pop_front) {
            return answer;
        }
        Answer::Is(match &*method {
            "getServerDefaults" => {
                let numbers = [(1, state.block_bytes), (2, 512), (3, 65536), (4, 3), (5, 4096)];
                bytes(1, numbers.map(|(field, value)| number(field, value)).concat())
            }
            "create" | "getFileInfo" => bytes(1, self.status(&state, &call)),
            "addBlock" => {
                state.blocks += 1;
                self.new_block(FIRST_BLOCK + state.blocks)
            }
            "updateBlockForPipeline" => {
                state.recoveries += 1;
                let block = call.body.message(1).number(2);
                bytes(1, located_block(block, STAMP + state.recoveries, 0, 0, &[]))
            }
            "complete" | "mkdirs" | "delete" | "isFileClosed" | "recoverLease" => number(1, 1),
            "getBlockLocations" => bytes(1, &state.located),
            "rename2" | "fsync" | "updatePipeline" | "reportBadBlocks" | "renewLease" | "abandonBlock" => {
                Vec::new()
            }
            method => panic!("no test needs {method}"),
        })
    }

    /// `HdfsFileStatusProto`: of a directory, if its name says so.
    fn status(&self, state: &State, call: &Call) -> Vec<u8> {
        let is_dir = call.body.text(1).ends_with("-dir");
        [
            number(1, if is_dir { 1 } else { 2 }),
            bytes(2, "f"),
            number(3, 0),
            bytes(4, number(1, 0o644)),
            number(10, self.datanodes.len() as u64),
            number(11, state.block_bytes),
            number(13, 77),
        ]
        .concat()
    }
}

/// `LocatedBlockProto`.
fn located_block(id: u64, stamp: u64, len: u64, offset: u64, on: &[DataNode]) -> Vec<u8> {
    let block = [bytes(1, POOL), number(2, id), number(3, stamp), number(4, len)].concat();
    let mut located = [bytes(1, block), number(2, offset)].concat();
    on.iter().for_each(|datanode| located.extend(bytes(3, bytes(1, datanode.id()))));
    located.extend([number(4, 0), bytes(5, [])].concat());
    for datanode in on {
        located.extend([number(7, 1), bytes(8, &datanode.uuid)].concat());
    }
    located
}

/// Waits for the end of a connection; the error if it is a reset, which may come just behind an end.
fn end_of(stream: &mut TcpStream) -> Ended {
    let ended = stream.read(&mut [0; 1])?;
    for _ in 0..100 {
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        halcyon_env::Clock::sleep(&halcyon_env::SystemClock::new(), Duration::from_millis(10));
    }
    Ok(ended)
}

fn read_frame(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    let mut frame = vec![0; u32::from_be_bytes(len) as usize];
    stream.read_exact(&mut frame)?;
    Ok(frame)
}

/// Until it is so, or for long.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = halcyon_env::SystemClock::new();
    for _ in 0..1500 {
        if is_so() {
            return;
        }
        halcyon_env::Clock::sleep(&clock, Duration::from_millis(10));
    }
    panic!("it did not come to this: {what}");
}
