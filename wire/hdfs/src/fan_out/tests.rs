use std::net::{SocketAddr, TcpListener};

use halcyon_env::spawn_thread;

use super::*;

const CHUNK: usize = 512;
const SOON: Duration = Duration::from_secs(10);

/// A packet as a DataNode reads it.
#[derive(Debug)]
struct Packet {
    offset: u64,
    seqno: i64,
    last: bool,
    sync: bool,
    data: Vec<u8>,
}

fn read_packet(stream: &mut TcpStream) -> Option<Packet> {
    let mut lengths = [0; 6];
    stream.read_exact(&mut lengths).ok()?;
    let payload = u32::from_be_bytes(lengths[..4].try_into().unwrap()) as usize - 4;
    let mut header = vec![0; usize::from(u16::from_be_bytes(lengths[4..].try_into().unwrap()))];
    stream.read_exact(&mut header).unwrap();
    let number = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().unwrap());
    let (offset, seqno) = (number(1), number(10) as i64);
    assert_eq!((header[0], header[9], header[18], header[20]), (0x09, 0x11, 0x18, 0x25));
    let data_len = u32::from_le_bytes(header[21..25].try_into().unwrap()) as usize;
    let (last, sync) = (header[19] == 1, header[25..] == [0x28, 1]);
    let mut sums = vec![0; payload - data_len];
    stream.read_exact(&mut sums).unwrap();
    let mut data = vec![0; data_len];
    stream.read_exact(&mut data).unwrap();
    let expected: Vec<u8> =
        data.chunks(CHUNK).flat_map(|chunk| crc32c::crc32c(chunk).to_be_bytes()).collect();
    assert_eq!(sums, expected);
    Some(Packet { offset, seqno, last, sync, data })
}

/// `PipelineAckProto` with one reply; `status` 0 is success.
fn ack(seqno: i64, status: u8) -> Vec<u8> {
    let mut zigzag = ((seqno << 1) ^ (seqno >> 63)) as u64;
    let mut body = vec![0x08];
    while zigzag >= 0x80 {
        body.push(zigzag as u8 | 0x80);
        zigzag >>= 7;
    }
    body.extend_from_slice(&[zigzag as u8, 0x10, status]);
    [vec![body.len() as u8], body].concat()
}

/// Connects to as many DataNodes as there are scripts. Each runs its script with its end of the connection.
pub(crate) fn connect(scripts: Vec<Box<dyn FnOnce(TcpStream) + Send>>) -> FanOut {
    let connections = scripts.into_iter().enumerate().map(|(number, script)| {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let port = listener.local_addr().unwrap().port();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stream.set_nonblocking(true).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        spawn_thread("datanode", move || script(accepted)).unwrap();
        FanOutConnection { datanode: Datanode::new("127.0.0.1", port, &number.to_string()), stream }
    });
    FanOut::new(connections.collect(), CHUNK)
}

/// Keeps what comes as a DataNode does, checks it, and acknowledges each packet.
pub(crate) fn keeps(
    told: std::sync::mpsc::Sender<(Vec<u8>, usize, usize)>,
) -> Box<dyn FnOnce(TcpStream) + Send> {
    Box::new(move |mut stream| {
        let (mut block, mut seqno, mut syncs, mut heartbeats) = (Vec::new(), 0, 0, 0);
        while let Some(packet) = read_packet(&mut stream) {
            if packet.seqno == HEARTBEAT {
                assert!(packet.data.is_empty() && !packet.last);
                heartbeats += 1;
                stream.write_all(&ack(HEARTBEAT, 0)).unwrap();
                continue;
            }
            seqno += 1;
            assert_eq!(packet.seqno, seqno);
            if !packet.data.is_empty() {
                assert_eq!(packet.offset % CHUNK as u64, 0, "else it reads its disk");
                assert!(packet.offset as usize <= block.len() && !packet.last);
                let known = block.len() - packet.offset as usize;
                assert!(known < CHUNK && packet.data[..known] == block[packet.offset as usize..]);
                assert!(packet.data.len() > known, "a packet without news is not synced");
                block.truncate(packet.offset as usize);
                block.extend_from_slice(&packet.data);
            } else {
                assert_eq!(packet.offset, block.len() as u64);
            }
            syncs += usize::from(packet.sync);
            stream.write_all(&ack(packet.seqno, 0)).unwrap();
            if packet.last {
                told.send((block, syncs, heartbeats)).unwrap();
                return;
            }
        }
    })
}

#[test]
fn all_datanodes_get_the_bytes() {
    let (told, hears) = std::sync::mpsc::channel();
    let mut fan_out = connect((0..3).map(|_| keeps(told.clone())).collect());
    let mut expected = Vec::new();
    let flush = PacketEnd::default();
    let sync = PacketEnd { sync: true, last: false };
    let mut syncs = 0;
    for (round, size) in
        [3, 512, 0, 509, 1, 1024, 262_144, 262_145, 3_000_000, 7].into_iter().cycle().take(40).enumerate()
    {
        let bytes: Vec<u8> = (0..size).map(|at| (at * 31 + round) as u8).collect();
        expected.extend_from_slice(&bytes);
        let end = if round % 3 == 0 { sync } else { flush };
        syncs += usize::from(end == sync);
        fan_out.put(&bytes, end);
        assert!(fan_out.wait(SOON).unwrap());
        assert_eq!(fan_out.len(), expected.len() as u64);
        if round == 20 {
            fan_out.tend(Duration::from_secs(100)).unwrap(); // it was used just now
            fan_out.tend(Duration::ZERO).unwrap();
        }
    }
    fan_out.put(&[], PacketEnd { sync: true, last: true });
    assert!(fan_out.wait(SOON).unwrap());
    for _ in 0..3 {
        let (block, of_datanode, heartbeats) = hears.recv_timeout(SOON).unwrap();
        assert!(block == expected);
        assert_eq!((of_datanode, heartbeats), (syncs + 1, 1));
    }
    // They close their connections when the block is complete. That is no failure, or each file that ends would cost a
    // DataNode.
    for at in 0..3 {
        fan_out.poll(SOON, &[at]).unwrap(); // until the end of its connection can be read
    }
    fan_out.tend(Duration::ZERO).unwrap();
}

#[test]
fn the_late_datanode_is_known() {
    let (told, _hears) = std::sync::mpsc::channel();
    let (thaw, thawed) = std::sync::mpsc::channel::<()>();
    let frozen = move |stream: TcpStream| {
        let _ = thawed.recv();
        keeps(told)(stream);
    };
    let (told, _others) = std::sync::mpsc::channel();
    let mut fan_out = connect(vec![keeps(told.clone()), Box::new(frozen), keeps(told)]);
    assert!(fan_out.late().is_empty());
    // More than the sockets of a frozen DataNode take.
    fan_out.put(&vec![1; 20 << 20], PacketEnd::default());
    let names: Vec<_> = fan_out.datanodes().cloned().collect();
    let began = Instant::now();
    // The others take a while for so much.
    while fan_out.late() != [names[1].clone()] && began.elapsed() < SOON {
        assert!(!fan_out.wait(Duration::from_millis(100)).unwrap());
    }
    assert_eq!(fan_out.late(), [names[1].clone()]);
    drop(thaw);
    assert!(fan_out.wait(SOON).unwrap() && fan_out.late().is_empty());
}

#[test]
fn with_all_of_them_late_nobody_is() {
    let (thaw, thawed) = std::sync::mpsc::channel::<()>();
    let frozen = move |stream: TcpStream| {
        let _ = thawed.recv();
        drop(stream);
    };
    let mut fan_out = connect(vec![Box::new(frozen)]);
    fan_out.put(b"1", PacketEnd::default());
    assert!(!fan_out.wait(Duration::from_millis(5)).unwrap());
    assert!(fan_out.late().is_empty());
    drop(thaw);
}

/// What a DataNode answers that makes its file fail. The other DataNode is not to blame, and nothing is sent any more.
#[test]
fn bad_answers_name_their_datanode() {
    let bad: [(&str, Vec<u8>); 7] = [
        ("closed", Vec::new()),
        ("refused packet 1", ack(1, 1)),
        ("acknowledged packet 2 for 1", ack(2, 0)),
        ("acknowledged packet 2 for 2", [ack(1, 0), ack(2, 0)].concat()),
        ("not the length", vec![0xff; 12]),
        ("decode", vec![3, 0xff, 0xff, 0xff]),
        ("not the length", b"GET / HTTP/1.1\r\n\r\n".repeat(4).into_iter().map(|byte| byte | 0x80).collect()),
    ];
    for (expected, answer) in bad {
        let (told, _hears) = std::sync::mpsc::channel();
        let answers = move |mut stream: TcpStream| {
            read_packet(&mut stream);
            stream.write_all(&answer).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        };
        let mut fan_out = connect(vec![keeps(told), Box::new(answers)]);
        let names: Vec<_> = fan_out.datanodes().cloned().collect();
        fan_out.put(b"1", PacketEnd::default());
        // An answer that says too much is seen when the next one is waited for.
        let failure = match fan_out.wait(SOON) {
            Err(failure) => failure,
            Ok(_) => {
                fan_out.put(b"2", PacketEnd::default());
                fan_out.wait(SOON).expect_err(expected)
            }
        };
        assert!(failure.why.contains(expected), "{} for {expected}", failure.why);
        assert_eq!(failure.datanode, names[1], "{expected}");
        assert!(fan_out.wait(SOON).is_err() && fan_out.tend(Duration::ZERO).is_err());
    }
}

/// Random bytes as answers: an error, or nothing for a while, but no panic and no end without acknowledgement.
#[test]
fn garbage_is_no_acknowledgement() {
    for seed in 0..200_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut byte = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        };
        let answer: Vec<u8> = (0..1 + seed % 40).map(|_| byte()).collect();
        let answers = move |mut stream: TcpStream| {
            let _ = stream.write_all(&answer);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        };
        let mut fan_out = connect(vec![Box::new(answers)]);
        fan_out.put(&[7; 4000], PacketEnd { sync: true, last: false });
        assert!(fan_out.wait(SOON).is_err(), "seed {seed}");
    }
}

/// Recovery of a block cuts all of its copies to the shortest of those that answer: no DataNode has a newer generation stamp than
/// the others, because a log is never given one. So nothing may count as written before every DataNode has it. With the answers of
/// two of three, what was acknowledged would be cut off without an error, when the third one takes part in the recovery.
#[test]
fn what_is_acknowledged_is_in_the_shortest_copy() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    let lens: Vec<Arc<AtomicU64>> = (0..3).map(|_| Arc::default()).collect();
    let (go, may_go) = std::sync::mpsc::channel::<()>();
    let mut may_go = Some(may_go);
    let scripts = lens.iter().enumerate().map(|(at, len)| {
        let (len, waits) = (len.clone(), may_go.take_if(|_| at == 2));
        Box::new(move |mut stream: TcpStream| {
            while let Some(packet) = read_packet(&mut stream) {
                if waits.as_ref().is_some_and(|go| go.recv().is_err()) {
                    return;
                }
                len.store(packet.offset + packet.data.len() as u64, Ordering::SeqCst);
                if stream.write_all(&ack(packet.seqno, 0)).is_err() {
                    return;
                }
            }
        }) as Box<dyn FnOnce(TcpStream) + Send>
    });
    let mut fan_out = connect(scripts.collect());
    let copies = || lens.iter().map(|len| len.load(Ordering::SeqCst)).collect::<Vec<_>>();
    let recovered = || copies().into_iter().min().unwrap();
    let mut acknowledged = 0;
    for round in 1..=20_u8 {
        fan_out.put(&[round; 100], PacketEnd { sync: round % 2 == 0, last: false });
        while copies()[..2] != [fan_out.len(); 2] {
            assert!(!fan_out.wait(Duration::from_millis(1)).unwrap(), "two of three are not enough");
        }
        assert!(!fan_out.wait(Duration::from_millis(5)).unwrap() && recovered() == acknowledged);
        go.send(()).unwrap();
        assert!(fan_out.wait(SOON).unwrap());
        acknowledged = fan_out.len();
        assert_eq!(recovered(), acknowledged);
    }
}
