//! A client whose call was not answered sends it again with the same nonce. However the server died, an Increment or
//! Append is applied once.
//!
//! The story: nonces stood in the WAL, but replay did not read them. An Increment whose answer was lost by a crash was
//! applied a second time when the client repeated it.

#![allow(clippy::disallowed_methods)] // threads of the test itself

use crate::common;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{Lab, ROOT, connection, mutation, settings, table};
use halcyon_cell::Cell;
use halcyon_contract::RegionServerApi;
use halcyon_env::sim::{CrashMode, SimFileSystem};
use halcyon_env::{Env, ManualClock};
use halcyon_proto::pb;
use halcyon_proto::pb::mutation_proto::MutationType;
use halcyon_regionserver::{AdminService, ClientService, Predecessors, RegionServer, RegionServerSettings};
use halcyon_rpc::{Codec, Outcome, RpcError, Service};
use halcyon_wal::SyncMode;
use prost::Message;

const COUNT: u64 = 9;

fn durable() -> RegionServerSettings {
    RegionServerSettings { wal_sync: SyncMode::Fsync, memory_bytes: 32 << 20, ..settings() }
}

/// A server on what the disk holds, unless it dies before it serves.
fn start(fs: &SimFileSystem, clock: &Arc<ManualClock>) -> Option<Lab> {
    let env = Env { clock: clock.clone(), ..fs.env() };
    let server =
        RegionServer::start(env, Path::new(ROOT), &Predecessors::All, durable(), "localhost", 16020).ok()?;
    let info = halcyon_schema::RegionInfo::new(table().name().clone(), "".into(), "".into(), 1);
    let opened = server
        .region_files()
        .create_region_files(&info, &table())
        .and_then(|()| server.open_region(&info, &table().into()));
    if opened.is_err() {
        server.abort("the region does not open");
        return None;
    }
    Some(Lab {
        fs: fs.clone(),
        clock: clock.clone(),
        client: ClientService::new(server.clone()),
        admin: AdminService::new(server.clone()),
        server,
        connection: connection(Some(Codec::KeyValue), Some((2, 6))),
        info,
        runtime: tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap(),
    })
}

/// Calls Mutate. `None`: there is no answer, because the server died.
fn mutate(lab: &Lab, mutation: pb::MutationProto, cell: Cell) -> Option<Vec<Cell>> {
    let request =
        pb::MutateRequest { region: lab.specifier(), mutation, condition: None, nonce_group: Some(1) };
    let call = lab.raw_call("Mutate", request.encode_to_vec().into(), vec![cell]);
    let _context = lab.runtime.enter();
    let outcome = lab.client.call(call);
    lab.client.batch_done();
    let reply = match outcome {
        Outcome::Ready(reply) => reply,
        Outcome::Later(mut later) => lab.runtime.block_on(async {
            loop {
                if let Ok(answer) = tokio::time::timeout(Duration::from_millis(20), &mut later).await {
                    return answer;
                }
                if lab.fs.is_dead() {
                    return Err(RpcError::io("no answer"));
                }
            }
        }),
    };
    reply.ok().map(|reply| common::decoded::<pb::MutateResponse>(reply).1)
}

/// Operation `number` of a client: an Increment by one, or an Append of its letter.
fn operate(lab: &Lab, number: u64) -> Option<i64> {
    let nonce = Some(1000 + number);
    let cell = |qualifier: &[u8], value: &[u8]| Cell::put(b"r", b"f", qualifier, i64::MAX, value);
    if number % 3 == 2 {
        let append = pb::MutationProto { nonce, ..mutation(MutationType::Append, 1) };
        let letter = [b'a' + number as u8];
        return mutate(lab, append, cell(b"letters", &letter)).map(|_| 0);
    }
    let increment = pb::MutationProto { nonce, ..mutation(MutationType::Increment, 1) };
    let cells = mutate(lab, increment, cell(b"count", &1i64.to_be_bytes()))?;
    Some(i64::from_be_bytes(cells[0].value().try_into().unwrap()))
}

/// All operations from `first` on, with flushes and log rolls between them. Ends at the first that fails.
fn operate_from(lab: &Lab, first: u64) -> Result<(), u64> {
    for number in first..=COUNT {
        lab.clock.advance(Duration::from_millis(3));
        operate(lab, number).ok_or(number)?;
        if number % 4 == 0 {
            let _ = lab.server.flush_region(lab.info.encoded_name(), &[]);
        }
        if number % 5 == 0 && !lab.fs.is_dead() {
            let _ = lab.admin::<pb::RollWalWriterResponse>("RollWALWriter", &pb::RollWalWriterRequest {});
        }
    }
    Ok(())
}

fn compact(lab: &Lab) {
    lab.server.compact_region(&lab.info, &"f".into(), true).unwrap();
    while lab.server.is_compacting(&lab.info).unwrap() {
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn check(lab: &Lab, what: &str) {
    let (_, cells) = lab.get(common::get("r")).unwrap();
    let value = |qualifier: &[u8]| {
        cells.iter().find(|cell| cell.qualifier() == qualifier).expect("it was written").value().to_vec()
    };
    let appended: Vec<u8> = (1..=COUNT).filter(|n| n % 3 == 2).map(|n| b'a' + n as u8).collect();
    let incremented = COUNT - appended.len() as u64;
    assert_eq!(value(b"count"), incremented.to_be_bytes(), "{what}: Increments");
    assert_eq!(value(b"letters"), appended, "{what}: Appends");
}

#[test]
fn an_increment_repeated_after_a_crash_at_any_sync_point_is_applied_once() {
    let whole = SimFileSystem::new();
    let lab = start(&whole, &Arc::new(ManualClock::at(1_700_000_000_000))).unwrap();
    operate_from(&lab, 1).unwrap();
    check(&lab, "without a crash");
    drop(lab);
    let points = whole.sync_points();
    assert!(points > COUNT, "every operation is synced");
    // Most of the time a server waits for its threads to end, so several die at the same time.
    let next = AtomicU64::new(1);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    let point = next.fetch_add(1, Ordering::Relaxed);
                    if point > points {
                        break;
                    }
                    CrashMode::ALL.into_iter().for_each(|mode| die_at(point, mode));
                }
            });
        }
    });
}

/// The server dies at this sync point, comes up again and dies before the client does.
fn die_at(point: u64, mode: CrashMode) {
    let what = format!("death at sync point {point}, {mode:?}");
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    let fs = SimFileSystem::new();
    fs.fail_at(point);
    let next = match start(&fs, &clock) {
        None => 1,
        Some(lab) => operate_from(&lab, 1).err().unwrap_or(COUNT),
    };
    let again = fs.crash(mode, point);
    drop(start(&again, &clock).unwrap_or_else(|| panic!("{what}: starts again")));
    let left = again.crash(mode, point + 1);
    let lab = start(&left, &clock).unwrap_or_else(|| panic!("{what}: starts a third time"));
    operate_from(&lab, next).unwrap_or_else(|number| panic!("{what}: operation {number} fails"));
    check(&lab, &what);
}

/// What a client that repeats a call is told was the present value once, as if no other client had written since.
#[test]
fn a_repeated_increment_gets_its_own_answer() {
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    let lab = start(&SimFileSystem::new(), &clock).unwrap();
    assert_eq!((operate(&lab, 1).unwrap(), operate(&lab, 3).unwrap()), (1, 2));
    let left = lab.fs.crash(CrashMode::ALL[0], 1);
    drop(lab);
    let mut lab = start(&left, &clock).unwrap();
    assert_eq!((operate(&lab, 3).unwrap(), operate(&lab, 1).unwrap(), operate(&lab, 4).unwrap()), (2, 1, 3));
    assert_eq!((operate(&lab, 1).unwrap(), operate(&lab, 3).unwrap()), (1, 2), "it is only read");
    for _ in 0..3 {
        lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap();
        compact(&lab);
        assert_eq!((operate(&lab, 1).unwrap(), operate(&lab, 3).unwrap()), (1, 2));
        let left = lab.fs.crash(CrashMode::ALL[0], 1);
        drop(lab);
        lab = start(&left, &clock).unwrap();
    }
    // Two minutes later a flush or a compaction leaves hidden versions out. An error is told then, and not a later value.
    clock.advance(Duration::from_secs(122));
    assert_eq!(
        (operate(&lab, 1).unwrap(), operate(&lab, 6).unwrap()),
        (1, 4),
        "the family keeps three versions"
    );
    lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap();
    compact(&lab);
    assert_eq!((operate(&lab, 4).unwrap(), operate(&lab, 1)), (3, None));
    // Nobody repeats a call after this time, so a nonce that comes again is a new operation.
    clock.advance(Duration::from_secs(2 * 1800));
    let left = lab.fs.crash(CrashMode::ALL[0], 1);
    drop(lab);
    let lab = start(&left, &clock).unwrap();
    assert_eq!(operate(&lab, 1).unwrap(), 5);
}

/// Versions that were answered were kept in the files of a region for two minutes once, and raw scans and reads with a time range showed
/// them, which HBase had left out.
#[test]
fn an_answer_that_no_file_has_is_in_no_scan() {
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    let mut lab = start(&SimFileSystem::new(), &clock).unwrap();
    let raw = pb::NameBytesPair { name: "_raw_".to_string(), value: Some(vec![1].into()) };
    let versions = |lab: &Lab| {
        let scan = pb::Scan { attribute: vec![raw.clone()], max_versions: Some(100), ..Default::default() };
        let (_, cells) = lab.scan(&lab.open(10, scan)).unwrap();
        cells.iter().filter(|cell| cell.qualifier() == b"count").count()
    };
    for (number, count) in [(1, 1), (3, 2), (4, 3), (6, 4), (7, 5), (9, 6)] {
        clock.advance(Duration::from_millis(3));
        assert_eq!(operate(&lab, number).unwrap(), count);
    }
    assert_eq!(versions(&lab), 6);
    for restart in 0..4 {
        lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap();
        compact(&lab);
        assert_eq!(versions(&lab), 3, "the family keeps three versions");
        assert_eq!((operate(&lab, 1), operate(&lab, 4), operate(&lab, 9)), (Some(1), Some(3), Some(6)));
        let fs = if restart % 2 == 0 {
            lab.fs.crash(CrashMode::ALL[0], 1)
        } else {
            lab.server.stop().unwrap();
            lab.fs.clone()
        };
        drop(lab);
        lab = start(&fs, &clock).unwrap();
    }
    clock.advance(Duration::from_secs(122));
    operate(&lab, 10).unwrap();
    lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap();
    assert_eq!((operate(&lab, 1), operate(&lab, 9)), (None, Some(6)));
}

/// A region moves, or its server stops: the close flushes it, and no WAL entry is replayed that has the nonce. The client whose
/// answer was lost on the way repeats its call where the region is now. Nonces were lost here once, as they are in HBase.
#[test]
fn an_increment_repeated_after_a_clean_stop_is_applied_once() {
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    let mut lab = start(&SimFileSystem::new(), &clock).unwrap();
    for _ in 0..3 {
        assert_eq!((operate(&lab, 1), operate(&lab, 2)), (Some(1), Some(0)));
        assert_eq!(operate(&lab, 3).unwrap(), 2);
        lab.server.stop().unwrap();
        let fs = lab.fs.clone();
        drop(lab);
        clock.advance(Duration::from_secs(1));
        lab = start(&fs, &clock).unwrap();
    }
    assert_eq!(operate(&lab, 4).unwrap(), 3);
    let (_, cells) = lab.get(common::get("r")).unwrap();
    let letters = cells.iter().find(|cell| cell.qualifier() == b"letters").unwrap();
    assert_eq!(letters.value(), [b'a' + 2]);
}
