//! Hostile clients against a server with a small memory: each takes what it can get, and stays. The server keeps within its
//! memory, an honest client is served all the while, and nothing is left when they have gone.
//!
//! Waits are bounded generously: a busy machine is slow to everybody.

#![allow(clippy::disallowed_methods)] // the time is the real one

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{Client, Server, class, family, fresh_dir, get, site, specifier};
use halcyon_proto::pb;
use halcyon_rpc::Compressor;
use halcyon_schema::RegionInfo;
use prost::Message;
use tokio::net::TcpSocket;

const MEMORY_BYTES: u64 = 128 << 20;
/// Beside the memory are code, threads and buffers of connections, as in the test of a flood of writes.
const OVERHEAD_BYTES: u64 = 32 << 20;
const CONNECTIONS_MAX: usize = 1_200;
/// Where the honest client comes from: as far as addresses tell, from another machine.
const HONEST: &str = "127.0.0.7";

/// A frame of the RPC, by hand.
fn request(call_id: u32, method: &str, param: &impl Message, cells: &[u8]) -> Vec<u8> {
    let header = pb::RequestHeader {
        call_id: Some(call_id),
        method_name: Some(method.to_string()),
        request_param: Some(true),
        cell_block_meta: (!cells.is_empty())
            .then_some(pb::CellBlockMeta { length: Some(cells.len() as u32) }),
        ..Default::default()
    };
    let mut body = header.encode_length_delimited_to_vec();
    body.extend(param.encode_length_delimited_to_vec());
    body.extend_from_slice(cells);
    [&(body.len() as u32).to_be_bytes()[..], &body].concat()
}

fn hello(compressor: Option<&str>) -> Vec<u8> {
    let header = pb::ConnectionHeader {
        user_info: Some(pb::UserInformation { effective_user: "mallory".to_string(), real_user: None }),
        service_name: Some("ClientService".to_string()),
        cell_block_codec_class: Some("org.apache.hadoop.hbase.codec.KeyValueCodec".to_string()),
        cell_block_compressor_class: compressor.map(str::to_string),
        ..Default::default()
    };
    let len = (header.encoded_len() as u32).to_be_bytes();
    [b"HBas\x00\x50", &len[..], &header.encode_to_vec()].concat()
}

fn hostile(address: SocketAddr, first: &[u8]) -> Option<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(20)).ok()?;
    stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(first).ok()?;
    Some(stream)
}

fn answer(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut len = [0; 4];
    stream.read_exact(&mut len).ok()?;
    let mut frame = vec![0; u32::from_be_bytes(len) as usize];
    stream.read_exact(&mut frame).ok()?;
    Some(frame)
}

fn is_exception(frame: &[u8]) -> bool {
    pb::ResponseHeader::decode_length_delimited(frame).unwrap().exception.is_some()
}

/// A client of another address that comes anew for each Get, and counts those that are answered.
async fn ask_honestly(
    address: SocketAddr,
    region: RegionInfo,
    answered: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let message = pb::GetRequest { region: specifier(&region), get: get(b"r") };
    let call = [hello(None), request(1, "Get", &message, b"")].concat();
    while !stop.load(Ordering::Relaxed) {
        let asked = async {
            let socket = TcpSocket::new_v4()?;
            socket.bind(SocketAddr::new(HONEST.parse::<IpAddr>().unwrap(), 0))?;
            let mut stream = socket.connect(address).await?;
            stream.write_all(&call).await?;
            let len = stream.read_u32().await?;
            let mut frame = vec![0; len as usize];
            stream.read_exact(&mut frame).await?;
            std::io::Result::Ok(frame)
        };
        let asked = tokio::time::timeout(Duration::from_secs(60), asked).await;
        let frame = asked.expect("an honest client is answered").expect("and not sent away");
        assert!(!is_exception(&frame), "{}", String::from_utf8_lossy(&frame));
        answered.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Opens connections that stay open until they are dropped, and does harm with them.
type Attack = fn(&Target) -> Vec<TcpStream>;

/// What attacks need to know.
#[derive(Clone)]
struct Target {
    rpc: SocketAddr,
    zookeeper: SocketAddr,
    region: RegionInfo,
}

/// Cells of no bytes to speak of, packed: some kilobytes become 8 MB, and more than twice that in memory.
fn bombs(target: &Target) -> Vec<TcpStream> {
    let cell = halcyon_cell::Cell::put(b"r", b"f", b"", 1, b"");
    let one = [&(cell.bytes().len() as u32).to_be_bytes()[..], &cell.bytes()[..]].concat();
    let bomb = Compressor::Gzip.compress(&one.repeat((8 << 20) / one.len()));
    let gzip = hello(Some("org.apache.hadoop.io.compress.GzipCodec"));
    let get = pb::GetRequest { region: specifier(&target.region), get: get(b"r") };
    let multi = pb::MultiRequest::default();
    let throw = || {
        let mut stream = hostile(target.rpc, &gzip).unwrap();
        for call_id in 0..4 {
            stream.write_all(&request(call_id, "Get", &get, &bomb)).unwrap();
            stream.write_all(&request(call_id + 10, "Multi", &multi, &bomb)).unwrap();
        }
        for _ in 0..8 {
            assert!(is_exception(&answer(&mut stream).expect("each is answered")));
        }
        stream
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(throw)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Most of a small frame on each connection, and never the rest.
fn unfinished_frames(target: &Target) -> Vec<TcpStream> {
    let get = pb::GetRequest { region: specifier(&target.region), get: get(&[b'r'; 30_000]) };
    let frame = request(1, "Get", &get, b"");
    let part = [&hello(None), &frame[..frame.len() - 100]].concat();
    (0..500).filter_map(|_| hostile(target.rpc, &part)).collect()
}

/// Sessions of the ZooKeeper endpoint with a megabyte of a request each.
fn unfinished_sessions(target: &Target) -> Vec<TcpStream> {
    let mut connect = 44u32.to_be_bytes().to_vec();
    connect.extend([0; 4 + 8]);
    connect.extend(90_000u32.to_be_bytes());
    connect.extend([0; 8]);
    connect.extend(16u32.to_be_bytes());
    connect.extend([0; 16]);
    let mut part = ((1u32 << 20) - 1).to_be_bytes().to_vec();
    part.extend(vec![0; (1 << 20) - 100]);
    let session = |_| {
        let mut stream = hostile(target.zookeeper, &connect)?;
        let _ = stream.write_all(&part); // it is closed on the way
        Some(stream)
    };
    (0..100).filter_map(session).collect()
}

/// All scanners that one connection gets; then another one of the same address still gets one.
fn scanners(target: &Target) -> Vec<TcpStream> {
    let scan = pb::Scan { caching: Some(1), ..Default::default() };
    let open = pb::ScanRequest {
        region: Some(specifier(&target.region)),
        scan: Some(scan),
        number_of_rows: Some(0),
        ..Default::default()
    };
    let mut stream = hostile(target.rpc, &hello(None)).unwrap();
    let mut count = 0;
    let refused = 'open: loop {
        for call_id in 0..100 {
            stream.write_all(&request(call_id, "Scan", &open, b"")).unwrap();
        }
        let mut refused = None;
        for _ in 0..100 {
            let frame = answer(&mut stream).unwrap();
            if is_exception(&frame) {
                refused = Some(frame);
            } else {
                count += 1;
            }
        }
        if let Some(refused) = refused {
            break 'open refused;
        }
        assert!(count < 20_000, "a connection gets as many as it wants");
    };
    let refused = String::from_utf8_lossy(&refused).into_owned();
    assert!(
        refused.contains("RegionTooBusyException") && refused.contains("halcyon.scanners.max"),
        "{refused}"
    );
    let mut other = hostile(target.rpc, &hello(None)).unwrap();
    other.write_all(&request(1, "Scan", &open, b"")).unwrap();
    assert!(!is_exception(&answer(&mut other).unwrap()), "another connection has some");
    vec![stream, other]
}

/// As many connections as the address gets, half of them silent.
fn connections(target: &Target) -> Vec<TcpStream> {
    let hello = hello(None);
    let first = |number: usize| if number.is_multiple_of(2) { &hello[..] } else { &b"H"[..] };
    (0..CONNECTIONS_MAX).filter_map(|number| hostile(target.rpc, first(number))).collect()
}

/// Files that are no client's business.
fn paths(target: &Target) -> Vec<TcpStream> {
    let mut stream = hostile(target.rpc, &hello(None)).unwrap();
    let mut told = Vec::new();
    for path in ["/etc/passwd", "/etc/shadow", "/nowhere", "/dev/zero"] {
        let family_path = pb::bulk_load_h_file_request::FamilyPath { family: "f".into(), path: path.into() };
        let load = pb::BulkLoadHFileRequest {
            region: specifier(&target.region),
            family_path: vec![family_path],
            ..Default::default()
        };
        stream.write_all(&request(1, "BulkLoadHFile", &load, b"")).unwrap();
        let frame = answer(&mut stream).unwrap();
        assert!(is_exception(&frame));
        told.push(String::from_utf8_lossy(&frame).replace(path, "PATH"));
    }
    let text = told[0].split("PATH").nth(1).unwrap().to_string();
    assert!(told.iter().all(|other| other.contains(&text)), "{told:?}");
    vec![stream]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_clients_take_little_from_the_others() {
    let data = fresh_dir("attack");
    let max = CONNECTIONS_MAX.to_string();
    let config = site(&data, &[("halcyon.ipc.connections.max", &max)]);
    let config = config.to_str().unwrap();
    let flags = ["--memory", "128m", "--wal-sync", "written", "--config", config];
    let mut server = Server::start_on_this_machine(&data, &flags);
    let client = Client::connect(&server).await;
    let region = client.create_table("t", vec![family("f")], &[]).await.remove(0);
    client.put(&region, "r", b"v").await.unwrap();
    let target = Target {
        rpc: server.address("regionserver"),
        zookeeper: server.address("zookeeper"),
        region: region.clone(),
    };
    let (answered, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let asking = ask_honestly(target.rpc, region.clone(), Arc::clone(&answered), Arc::clone(&stop));
    let honest = tokio::spawn(asking);
    let attacks: [(&str, Attack); 6] = [
        ("bombs", bombs),
        ("unfinished frames", unfinished_frames),
        ("unfinished sessions", unfinished_sessions),
        ("scanners", scanners),
        ("connections", connections),
        ("paths", paths),
    ];
    for (name, attack) in attacks {
        let (before, calls) = (server.resident_bytes(), answered.load(Ordering::Relaxed));
        let target = target.clone();
        let mut attacking = tokio::task::spawn_blocking(move || attack(&target));
        let mut peak = before;
        let held = loop {
            peak = peak.max(server.resident_bytes());
            assert!(server.is_running(), "{name}: {}", server.log());
            tokio::select! {
                held = &mut attacking => break held.unwrap_or_else(|error| panic!("{name}: {error}")),
                () = tokio::time::sleep(Duration::from_millis(20)) => {}
            }
        };
        // While all stay: whoever asks is answered, and one who was there as well.
        let now = answered.load(Ordering::Relaxed);
        while answered.load(Ordering::Relaxed) < now + 2 {
            assert!(!honest.is_finished(), "{name}: the honest client has failed");
            tokio::time::sleep(Duration::from_millis(5)).await;
            peak = peak.max(server.resident_bytes());
        }
        assert_eq!(client.value(&region, "r").await.unwrap().unwrap(), b"v", "{name}");
        println!(
            "{name}: {} connections held, {} honest calls, +{} MiB to {} MiB",
            held.len(),
            answered.load(Ordering::Relaxed) - calls,
            peak.saturating_sub(before) >> 20,
            peak >> 20
        );
        assert!(peak < MEMORY_BYTES + OVERHEAD_BYTES, "{name}: {} MiB resident", peak >> 20);
    }
    stop.store(true, Ordering::Relaxed);
    honest.await.unwrap();
    client.put(&region, "after", b"all").await.unwrap_or_else(|error| panic!("{}", class(&error)));
    let procedures = pb::GetProceduresRequest::default();
    let left: pb::GetProceduresResponse = client.master.call("GetProcedures", &procedures).await.unwrap();
    let is_over = |procedure: &pb::Procedure| procedure.state == pb::ProcedureState::Success as i32;
    assert!(left.procedure.iter().all(is_over), "{left:?}");
    server.stop();
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::remove_dir_all(config).unwrap();
}
