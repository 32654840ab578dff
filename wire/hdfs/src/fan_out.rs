//! The bytes of a file on their way to its DataNodes, without a thread between.
//!
//! Each DataNode has a connection of its own and gets every packet from here, as HBase's `FanOutOneBlockAsyncDFSOutput`
//! does it. The thread that waits for the file sends the packets and reads the acknowledgements itself. So a flush costs
//! no change of threads on this side, and it is known which DataNode is late.
//!
//! A packet begins at a whole chunk of the checksum: the bytes of the last chunk that is not whole are sent again with
//! those that follow. Otherwise a DataNode would read that chunk back from its disk to compute the checksum. A packet
//! without data syncs what the DataNode has, or ends the block.
//!
//! Facts of the protocol: Hadoop's `PacketHeader`, `BlockReceiver` and `datatransfer.proto`.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use hdfs_native::file::fan_out::{Datanode, FanOutConnection, decode_ack};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::time::Instant;

/// A packet has at most so many chunks.
const PACKET_CHUNKS_MAX: usize = 512;
/// Kept for the next packets; a larger buffer is given back.
const BUFFER_KEPT_MAX_BYTES: usize = 4 << 20;
/// The sequence number of a heartbeat, which says only that this side is alive.
const HEARTBEAT: i64 = -1;
/// So long the slowest DataNode is waited for alone; the failure of another one is noticed later by that.
const ALONE_MAX: Duration = Duration::from_millis(2);
/// An acknowledgement has a few dozen bytes.
const READ_BYTES: usize = 1 << 10;

/// What a packet asks of the DataNodes besides keeping its data.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PacketEnd {
    /// To their disks.
    pub(crate) sync: bool,
    /// It is the last packet of the block.
    pub(crate) last: bool,
}

/// A DataNode that is of no use any more.
#[derive(Clone, Debug)]
pub(crate) struct LinkFailure {
    pub(crate) datanode: Datanode,
    pub(crate) why: String,
    pub(crate) noticed: Instant,
}

/// The connection to one DataNode.
struct Link {
    datanode: Datanode,
    stream: TcpStream,
    /// Bytes of `FanOut::outgoing` that were sent.
    sent: usize,
    acknowledged: i64,
    incoming: Vec<u8>,
}

/// The connections of a block.
pub(crate) struct FanOut {
    links: Vec<Link>,
    chunk_bytes: usize,
    /// Packets that not all DataNodes were sent.
    outgoing: Vec<u8>,
    /// The bytes behind the last whole chunk.
    tail: Vec<u8>,
    /// Where they begin in the block.
    tail_offset: u64,
    /// Of the last packet; 0 if there was none.
    seqno: i64,
    /// The last packet of the block was made: DataNodes close their connections when they have it.
    is_ended: bool,
    /// The index of the DataNode that kept the last wait longest.
    slowest: usize,
    used: Instant,
    failure: Option<LinkFailure>,
}

impl FanOut {
    pub(crate) fn new(connections: Vec<FanOutConnection>, chunk_bytes: usize) -> FanOut {
        assert!(!connections.is_empty(), "without a DataNode every packet would count as acknowledged");
        let link = |connection: FanOutConnection| Link {
            datanode: connection.datanode,
            stream: connection.stream,
            sent: 0,
            acknowledged: 0,
            incoming: Vec::new(),
        };
        FanOut {
            links: connections.into_iter().map(link).collect(),
            chunk_bytes,
            outgoing: Vec::new(),
            tail: Vec::new(),
            tail_offset: 0,
            seqno: 0,
            is_ended: false,
            slowest: 0,
            used: Instant::now(),
            failure: None,
        }
    }

    /// Bytes in the block.
    pub(crate) fn len(&self) -> u64 {
        self.tail_offset + self.tail.len() as u64
    }

    pub(crate) fn datanodes(&self) -> impl Iterator<Item = &Datanode> {
        self.links.iter().map(|link| &link.datanode)
    }

    /// Those that have not acknowledged everything, if others have.
    pub(crate) fn late(&self) -> Vec<Datanode> {
        let is_late = |link: &&Link| link.acknowledged < self.seqno;
        let late: Vec<_> = self.links.iter().filter(is_late).map(|link| link.datanode.clone()).collect();
        if late.len() < self.links.len() { late } else { Vec::new() }
    }

    /// Appends packets with these bytes. The last one has the given end; without bytes and end there is none.
    pub(crate) fn put(&mut self, bytes: &[u8], end: PacketEnd) {
        assert!(!self.is_ended, "a DataNode takes nothing behind the last packet");
        self.is_ended = end.last;
        let resent = std::mem::take(&mut self.tail);
        let mut data = bytes;
        let joined;
        if !resent.is_empty() && !bytes.is_empty() {
            joined = [&resent[..], bytes].concat();
            data = &joined;
        }
        if bytes.is_empty() {
            self.tail = resent; // a packet with known data only would not be synced
        }
        let has_empty_end = end.last || (end.sync && bytes.is_empty());
        let packet_bytes = PACKET_CHUNKS_MAX * self.chunk_bytes;
        let packets = data.len().div_ceil(packet_bytes);
        for (number, packet) in data.chunks(packet_bytes).enumerate() {
            let is_last = number + 1 == packets;
            let sync = is_last && end.sync && !has_empty_end;
            self.seqno += 1;
            put_packet(
                &mut self.outgoing,
                self.tail_offset,
                self.seqno,
                PacketEnd { sync, last: false },
                packet,
                self.chunk_bytes,
            );
            let whole = packet.len() - packet.len() % self.chunk_bytes;
            assert!(
                is_last || whole == packet.len(),
                "only the last packet ends within a chunk: a DataNode would have to read it back"
            );
            self.tail_offset += whole as u64;
            self.tail.extend_from_slice(&packet[whole..]);
        }
        assert!(self.tail.len() < self.chunk_bytes, "what is sent again is less than a chunk");
        assert_eq!(self.tail_offset % self.chunk_bytes as u64, 0, "a packet begins at a whole chunk");
        if has_empty_end {
            self.seqno += 1;
            let (at, seqno) = (self.len(), self.seqno);
            put_packet(&mut self.outgoing, at, seqno, end, &[], self.chunk_bytes);
        }
    }

    /// Goes on without the DataNode that has failed, if there are others; how many are left.
    pub(crate) fn leave_out_failed(&mut self) -> usize {
        let Some(failure) = &self.failure else { return self.links.len() };
        let left = self.links.iter().filter(|link| link.datanode != failure.datanode).count();
        assert!(left < self.links.len(), "who has failed is one of those that were sent to");
        if left > 0 {
            self.links.retain(|link| link.datanode != failure.datanode);
            self.failure = None;
            self.slowest = 0;
        }
        left
    }

    /// Sends and reads until all packets are acknowledged or the time is over; whether they are. After an error nothing
    /// more is sent.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<bool, LinkFailure> {
        let end = Instant::now() + limit;
        self.send()?;
        // Most often the others have answered when it has, and this thread wakes up once.
        if self.is_waited_for(self.slowest) && self.outgoing.is_empty() {
            self.poll(limit.min(ALONE_MAX), &[self.slowest])?;
            self.receive_due()?;
        }
        while !self.is_acknowledged() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            let waiting: Vec<usize> = (0..self.links.len()).filter(|at| self.is_waited_for(*at)).collect();
            self.poll(left, &waiting)?;
            self.receive_due()?;
            if let [last] = waiting[..] {
                self.slowest = last;
            }
            self.send()?;
        }
        self.used = Instant::now();
        Ok(true)
    }

    /// Says that this side is alive, unless it has just shown that, and looks whether the DataNodes are. Of an ended block
    /// nothing more is expected.
    pub(crate) fn tend(&mut self, period: Duration) -> Result<(), LinkFailure> {
        if self.is_ended {
            return Ok(());
        }
        if self.is_acknowledged() && self.outgoing.is_empty() && self.used.elapsed() >= period {
            put_packet(&mut self.outgoing, 0, HEARTBEAT, PacketEnd::default(), &[], self.chunk_bytes);
            self.used = Instant::now();
        }
        self.send()?;
        self.receive_all()
    }

    pub(crate) fn is_acknowledged(&self) -> bool {
        self.links.iter().all(|link| link.acknowledged >= self.seqno)
    }

    /// Sends what the sockets take.
    fn send(&mut self) -> Result<(), LinkFailure> {
        self.check()?;
        for at in 0..self.links.len() {
            let sent = self.links[at].send(&self.outgoing);
            sent.map_err(|error| self.fail(at, error.to_string()))?;
        }
        if !self.outgoing.is_empty() && self.links.iter().all(|link| link.sent == self.outgoing.len()) {
            self.links.iter_mut().for_each(|link| link.sent = 0);
            self.outgoing.clear();
            self.outgoing.shrink_to(BUFFER_KEPT_MAX_BYTES);
        }
        Ok(())
    }

    /// Whether bytes or an acknowledgement of it are due.
    fn is_waited_for(&self, at: usize) -> bool {
        let link = &self.links[at];
        link.acknowledged < self.seqno || link.sent < self.outgoing.len()
    }

    /// Waits until one of these sockets can be read, or takes more.
    fn poll(&mut self, limit: Duration, waiting: &[usize]) -> Result<(), LinkFailure> {
        let polled = waiting.iter().map(|at| &self.links[*at]).map(|link| {
            let unsent = link.sent < self.outgoing.len();
            let flags = if unsent { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            PollFd::new(&link.stream, flags)
        });
        let mut polled: Vec<PollFd<'_>> = polled.collect();
        let timeout = Timespec { tv_sec: limit.as_secs() as _, tv_nsec: limit.subsec_nanos() as _ };
        match poll(&mut polled, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(self.fail(waiting[0], error.to_string())),
        }
    }

    /// Reads what is there of those that have not acknowledged everything.
    fn receive_due(&mut self) -> Result<(), LinkFailure> {
        for at in 0..self.links.len() {
            if self.links[at].acknowledged < self.seqno {
                self.receive(at)?;
            }
        }
        Ok(())
    }

    fn receive_all(&mut self) -> Result<(), LinkFailure> {
        (0..self.links.len()).try_for_each(|at| self.receive(at))
    }

    fn receive(&mut self, at: usize) -> Result<(), LinkFailure> {
        let seqno = self.seqno;
        let received = self.links[at].receive(seqno);
        received.map_err(|why| self.fail(at, why))
    }

    fn check(&self) -> Result<(), LinkFailure> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    fn fail(&mut self, at: usize, why: String) -> LinkFailure {
        let (datanode, noticed) = (self.links[at].datanode.clone(), Instant::now());
        let failure = LinkFailure { datanode, why, noticed };
        self.failure.get_or_insert(failure).clone()
    }
}

impl Link {
    fn send(&mut self, outgoing: &[u8]) -> io::Result<()> {
        assert!(self.sent <= outgoing.len(), "no DataNode was sent more than there is");
        while self.sent < outgoing.len() {
            match (&self.stream).write(&outgoing[self.sent..]) {
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads the acknowledgements that are there. They come in the order of the packets, up to `seqno`.
    fn receive(&mut self, seqno: i64) -> Result<(), String> {
        let mut bytes = [0; READ_BYTES];
        loop {
            match (&self.stream).read(&mut bytes) {
                Ok(0) => return Err("it closed the connection".to_string()),
                Ok(len) => self.incoming.extend_from_slice(&bytes[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.to_string()),
            }
            let mut taken = 0;
            while let Some(ack) = decode_ack(&self.incoming[taken..]).map_err(|error| error.to_string())? {
                taken += ack.len;
                if !ack.is_success {
                    return Err(format!("it refused packet {}", ack.seqno));
                }
                if ack.seqno != HEARTBEAT {
                    let expected = self.acknowledged + 1;
                    if ack.seqno != expected || expected > seqno {
                        return Err(format!("it acknowledged packet {} for {expected}", ack.seqno));
                    }
                    self.acknowledged = expected;
                }
            }
            self.incoming.drain(..taken);
            assert!(self.acknowledged <= seqno, "{} of {seqno} packets are acknowledged", self.acknowledged);
            if self.acknowledged == seqno && self.incoming.is_empty() {
                return Ok(()); // nothing more is due
            }
        }
    }
}

/// Appends a packet: lengths, header, a CRC-32C of each chunk, data.
fn put_packet(out: &mut Vec<u8>, offset: u64, seqno: i64, end: PacketEnd, data: &[u8], chunk_bytes: usize) {
    let sums_bytes = data.len().div_ceil(chunk_bytes) * 4;
    let header = header_of(offset, seqno, end, data.len());
    assert!(data.len() <= PACKET_CHUNKS_MAX * chunk_bytes, "a DataNode refuses a larger packet");
    assert!(
        offset.is_multiple_of(chunk_bytes as u64) || data.is_empty(),
        "data begins at a whole chunk: the checksums of a DataNode's file are of whole ones"
    );
    out.reserve(6 + header.len() + sums_bytes + data.len());
    out.extend_from_slice(&((4 + sums_bytes + data.len()) as u32).to_be_bytes());
    out.extend_from_slice(&(header.len() as u16).to_be_bytes());
    out.extend_from_slice(&header);
    for chunk in data.chunks(chunk_bytes) {
        out.extend_from_slice(&crc32c::crc32c(chunk).to_be_bytes());
    }
    out.extend_from_slice(data);
}

/// `PacketHeaderProto`: its numbers have fixed sizes, so that a header always has the same length.
fn header_of(offset: u64, seqno: i64, end: PacketEnd, data_len: usize) -> Vec<u8> {
    let mut header = Vec::with_capacity(27);
    header.push(0x09); // offsetInBlock, sfixed64
    header.extend_from_slice(&offset.to_le_bytes());
    header.push(0x11); // seqno, sfixed64
    header.extend_from_slice(&seqno.to_le_bytes());
    header.extend_from_slice(&[0x18, u8::from(end.last)]); // lastPacketInBlock
    header.push(0x25); // dataLen, sfixed32
    header.extend_from_slice(&(data_len as u32).to_le_bytes());
    if end.sync {
        header.extend_from_slice(&[0x28, 1]); // syncBlock
    }
    header
}

#[cfg(test)]
pub(crate) mod tests;
