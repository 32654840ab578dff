//! A DataNode that does what a test says with each connection.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use halcyon_env::spawn_thread;

use crate::wire::{Message, bytes, delimited, number, read_delimited, signed};

/// Stages of a pipeline (`OpWriteBlockProto`).
pub const CLOSE_RECOVERY: u64 = 5;
pub const CREATE: u64 = 6;

/// How many bytes have a checksum.
const CHUNK_BYTES: usize = 512;

/// A request to write a block, or to read it.
pub struct Request {
    pub stream: TcpStream,
    pub body: Message,
}

/// A packet as it came.
pub struct Packet {
    pub seqno: i64,
    pub is_last: bool,
    pub sync: bool,
    pub len: u64,
}

#[derive(Clone)]
pub struct DataNode {
    port: u16,
    pub uuid: String,
}

impl DataNode {
    /// Does this with each request.
    pub fn start(uuid: &str, act: impl Fn(Request) -> io::Result<()> + Send + Sync + 'static) -> DataNode {
        DataNode::listen(uuid, TcpListener::bind("127.0.0.1:0").unwrap(), act)
    }

    pub fn listen(
        uuid: &str,
        listener: TcpListener,
        act: impl Fn(Request) -> io::Result<()> + Send + Sync + 'static,
    ) -> DataNode {
        let datanode = DataNode { port: listener.local_addr().unwrap().port(), uuid: uuid.to_string() };
        let act = Arc::new(act);
        spawn_thread("datanode", move || {
            for stream in listener.incoming() {
                let (mut stream, act) = (stream.unwrap(), act.clone());
                spawn_thread("datanode", move || {
                    let mut head = [0; 3];
                    if stream.read_exact(&mut head).is_err() {
                        return;
                    }
                    let Ok(body) = read_delimited(&mut stream) else { return };
                    let _ = act(Request { stream, body: Message::of(&body) }); // the client may have gone
                })
                .unwrap();
            }
        })
        .unwrap();
        datanode
    }

    /// One at this address that may not be there.
    pub fn at(uuid: &str, port: u16) -> DataNode {
        DataNode { port, uuid: uuid.to_string() }
    }

    /// `DatanodeIDProto`.
    pub fn id(&self) -> Vec<u8> {
        let port = u64::from(self.port);
        [bytes(1, "127.0.0.1"), bytes(2, "localhost"), bytes(3, &self.uuid), number(4, port)].concat()
    }
}

impl Request {
    pub fn stage(&self) -> u64 {
        self.body.number(4)
    }

    pub fn stamp(&self) -> u64 {
        self.body.number(8)
    }

    /// Says yes to a request to write, or no.
    pub fn answer(&mut self, is_yes: bool) -> io::Result<()> {
        self.stream.write_all(&delimited(&number(1, if is_yes { 0 } else { 1 })))
    }

    pub fn packet(&mut self) -> io::Result<Packet> {
        let mut lengths = [0; 6];
        self.stream.read_exact(&mut lengths)?;
        let payload = u32::from_be_bytes(lengths[..4].try_into().unwrap()) as usize - 4;
        let mut header = vec![0; usize::from(u16::from_be_bytes(lengths[4..].try_into().unwrap()))];
        self.stream.read_exact(&mut header)?;
        self.stream.read_exact(&mut vec![0; payload])?;
        let header = Message::of(&header);
        Ok(Packet {
            seqno: header.number(2) as i64,
            is_last: header.number(3) == 1,
            sync: header.number(5) == 1,
            len: header.number(4),
        })
    }

    /// Acknowledges a packet, for so many DataNodes of the pipeline.
    pub fn acknowledge(&mut self, packet: &Packet, datanodes: usize) -> io::Result<()> {
        let replies = number(2, 0).repeat(datanodes);
        self.stream.write_all(&delimited(&[signed(1, packet.seqno), replies].concat()))
    }

    /// Takes all packets of a block; its length.
    pub fn take_block(&mut self, datanodes: usize) -> io::Result<u64> {
        self.answer(true)?;
        let mut len = 0;
        loop {
            let packet = self.packet()?;
            len += packet.len;
            self.acknowledge(&packet, datanodes)?;
            if packet.is_last {
                return Ok(len);
            }
        }
    }

    /// Sends these bytes of a block, from its beginning, with checksums; wrong ones if `is_corrupt`.
    pub fn send(&mut self, block: &[u8], is_corrupt: bool) -> io::Result<()> {
        self.send_head()?;
        self.send_packet(block, 0, is_corrupt)
    }

    /// Sends what is behind `offset`, as a DataNode does: from a whole chunk on.
    pub fn send_from(&mut self, block: &[u8], offset: usize) -> io::Result<()> {
        let start = offset - offset % CHUNK_BYTES;
        self.send_head()?;
        self.send_packet(&block[start..], start as u64, false)
    }

    /// Says yes to a request to read, and sends these bytes as packets.
    pub fn send_raw(&mut self, garbage: &[u8]) -> io::Result<()> {
        self.send_head()?;
        self.stream.write_all(garbage)
    }

    fn send_head(&mut self) -> io::Result<()> {
        let checksum = bytes(1, [number(1, 2), number(2, CHUNK_BYTES as u64)].concat());
        let response = [number(1, 0), bytes(4, [checksum, number(2, 0)].concat())].concat();
        self.stream.write_all(&delimited(&response))
    }

    fn send_packet(&mut self, data: &[u8], offset: u64, is_corrupt: bool) -> io::Result<()> {
        let mut header = vec![0x09];
        header.extend(offset.to_le_bytes());
        header.push(0x11);
        header.extend(0_u64.to_le_bytes());
        header.extend([0x18, u8::from(data.is_empty())]);
        header.push(0x25);
        header.extend((data.len() as u32).to_le_bytes());
        let sum = |chunk: &[u8]| (crc32c::crc32c(chunk) ^ u32::from(is_corrupt)).to_be_bytes();
        let sums: Vec<u8> = data.chunks(CHUNK_BYTES).flat_map(sum).collect();
        let payload = (4 + sums.len() + data.len()) as u32;
        let head = [&payload.to_be_bytes()[..], &(header.len() as u16).to_be_bytes()].concat();
        self.stream.write_all(&[head, header, sums, data.to_vec()].concat())
    }

    /// Says that nothing more comes, and waits for the reader.
    pub fn end(&mut self, offset: u64) -> io::Result<()> {
        self.send_packet(&[], offset, false)?;
        read_delimited(&mut self.stream).map(|_| ())
    }
}
