//! What region servers report, and which of them may.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use common::{FakeServer, Master, region, transition};
use halcyon_client::ClientError;
use halcyon_contract::{RegionServers, RegionStateTransition, Standing};
use halcyon_env::{Clock, SystemClock};
use halcyon_proto::pb;
use halcyon_proto::pb::region_state_transition::TransitionCode;
use halcyon_schema::{RegionInfo, ServerName};
use halcyon_servers::{Permit, ServersSettings};

fn start(master: &Master, port: u32, code: u64, skew_ms: i64) -> Result<Vec<(String, String)>, ClientError> {
    let request = pb::RegionServerStartupRequest {
        port,
        server_start_code: code,
        server_current_time: (SystemClock::new().now_ms() + skew_ms) as u64,
        use_this_hostname_instead: Some("h".to_string()),
    };
    let answer: pb::RegionServerStartupResponse = master.call("RegionServerStartup", &request)?;
    Ok(answer.map_entries.into_iter().map(|pair| (pair.name, pair.value)).collect())
}

fn refused<T: std::fmt::Debug>(result: Result<T, ClientError>, class: &str) -> String {
    let error = result.unwrap_err();
    assert!(error.is_exception(class), "{error}");
    error.remote().unwrap().message().to_string()
}

fn name(code: i64) -> ServerName {
    ServerName::new("h", 16020, code)
}

#[test]
fn a_server_starts_and_is_told_where_the_files_are() {
    let master = Master::new();
    let told = start(&master, 16020, 5, 0).unwrap();
    let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
    let seen = pair("hbase.regionserver.hostname.seen.by.master", "h");
    assert_eq!(told, [seen, pair("hbase.rootdir", "hdfs://n/hbase")]);
    assert_eq!(master.servers.online(), [name(5)]);
    assert_eq!(master.servers.reports().len(), 0);
    master.report(&name(5), pb::ServerLoad { info_server_port: Some(7), ..Default::default() }).unwrap();
    let reports = master.servers.reports();
    assert_eq!((reports[0].server.clone(), reports[0].load.info_server_port()), (name(5), 7));
    master.servers.set_draining(vec![name(5), name(6)]);
    assert_eq!(master.servers.draining(), [name(5)]);
}

#[test]
fn a_server_without_a_name_gets_its_address_from_a_master_that_is_named_so() {
    let master = Master::new();
    let request = pb::RegionServerStartupRequest {
        port: 16020,
        server_start_code: 5,
        server_current_time: SystemClock::new().now_ms() as u64,
        use_this_hostname_instead: None,
    };
    let _: pb::RegionServerStartupResponse = master.call("RegionServerStartup", &request).unwrap();
    assert_eq!(master.servers.online(), [ServerName::new("127.0.0.1", 16020, 5)]);
}

#[test]
fn clocks_may_differ_a_little() {
    let master = Master::new();
    start(&master, 16020, 5, 20_000).unwrap();
    for skew_ms in [-60_000, 60_000] {
        let why = refused(start(&master, 16021, 5, skew_ms), "ClockOutOfSyncException");
        let text = "Server h,16021,5 has been rejected; Reported time is too far out of sync with master.  \
                    Time difference of ";
        assert!(why.starts_with(text) && why.ends_with("ms > max allowed of 30000ms"), "{why}");
    }
    assert_eq!(master.servers.online(), [name(5)]);
}

/// A master that had been frozen thawed when another one was active. It told a server that it had never known that it is dead, and the server
/// ended itself.
#[test]
fn a_master_that_may_not_act_answers_nobody() {
    let may_act = Arc::new(AtomicBool::new(true));
    let permit = {
        let may_act = may_act.clone();
        Permit::while_true(move || may_act.load(Ordering::SeqCst))
    };
    let master = Master::with(ServersSettings { permit, ..common::settings() });
    start(&master, 16020, 5, 0).unwrap();
    master.servers.expire(&name(5));
    may_act.store(false, Ordering::SeqCst);
    refused(master.report(&name(5), pb::ServerLoad::default()), "ServerNotRunningYetException");
    refused(start(&master, 16020, 6, 0), "ServerNotRunningYetException");
    let opened = transition(TransitionCode::Opened, &region("a"), Some(1), 1);
    refused(master.transition(&name(6), opened), "ServerNotRunningYetException");
    assert_eq!(master.servers.online(), []);
    may_act.store(true, Ordering::SeqCst);
    refused(master.report(&name(5), pb::ServerLoad::default()), "YouAreDeadException");
}

#[test]
fn the_dead_stay_dead() {
    let master = Master::new();
    start(&master, 16020, 5, 0).unwrap();
    let expired = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&expired);
    master.servers.on_expired(Box::new(move |server| list.lock().unwrap().push(server)));
    assert!(master.servers.expire(&name(5)));
    assert!(!master.servers.expire(&name(5)));
    let why = refused(start(&master, 16020, 5, 0), "YouAreDeadException");
    assert_eq!(why, "Server STARTUP rejected; currently processing h,16020,5 as dead server");
    let why = refused(master.report(&name(5), pb::ServerLoad::default()), "YouAreDeadException");
    assert_eq!(why, "Server REPORT rejected; currently processing h,16020,5 as dead server");
    master.servers.add_online(&name(5));
    master.servers.recovered(&name(5));
    refused(master.report(&name(5), pb::ServerLoad::default()), "YouAreDeadException");
    assert_eq!((master.servers.online(), master.servers.standing(&name(5))), (vec![], Standing::Gone));
    assert_eq!(*expired.lock().unwrap(), [name(5)]);

    // Found dead by its WALs: who calls this recovers it.
    master.servers.add_recovering(&name(4));
    assert_eq!(master.servers.standing(&name(4)), Standing::Recovering);
    assert!(!master.servers.expire(&name(4)));
    refused(master.report(&name(4), pb::ServerLoad::default()), "YouAreDeadException");
    assert_eq!(master.servers.dead(), [name(4), name(5)]);
    assert_eq!(expired.lock().unwrap().len(), 1);
    // A successor has come.
    start(&master, 16020, 9, 0).unwrap();
    assert_eq!(master.servers.dead(), [name(4)]);
}

#[test]
fn the_newest_server_of_an_address_counts() {
    let master = Master::new();
    let expired = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&expired);
    master.servers.on_expired(Box::new(move |server| list.lock().unwrap().push(server)));
    master.servers.add_online(&name(5));
    refused(start(&master, 16020, 4, 0), "PleaseHoldException");
    refused(master.report(&name(4), pb::ServerLoad::default()), "PleaseHoldException");
    let opened = transition(TransitionCode::Opened, &region("a"), Some(1), 1);
    refused(master.transition(&name(4), opened.clone()), "PleaseHoldException");
    assert_eq!((master.servers.online(), expired.lock().unwrap().len()), (vec![name(5)], 0));
    start(&master, 16020, 6, 0).unwrap();
    assert_eq!(master.servers.online(), [name(6)]);
    assert_eq!(master.servers.standing(&name(5)), Standing::Recovering);
    assert_eq!(*expired.lock().unwrap(), [name(5)]);
    refused(master.transition(&name(5), opened), "YouAreDeadException");
    // A master that was not active when it started learns of it by a report.
    let other = ServerName::new("i", 16020, 3);
    master.report(&other, pb::ServerLoad::default()).unwrap();
    assert_eq!(master.servers.online(), [name(6), other]);
}

#[test]
fn transitions_that_are_not_orders() {
    let master = Master::new();
    let server = FakeServer::new(&master);
    let table = region("a").table().clone();
    let part = |start: &'static str, end: &'static str| {
        RegionInfo::new(table.clone(), start.into(), end.into(), 9).to_pb()
    };
    let proposal = |regions: [pb::RegionInfo; 2]| pb::RegionStateTransition {
        transition_code: TransitionCode::ReadyToSplit as i32,
        region_info: [region("a").to_pb()].into_iter().chain(regions).collect(),
        ..Default::default()
    };
    let report = |transition| master.transition(&server.name, transition).unwrap();
    assert_eq!(report(proposal([part("a", "k"), part("k", "")])), Ok(()));
    let expected = RegionStateTransition::ReadyToSplit { parent: region("a"), split_row: "k".into() };
    assert_eq!(*master.status.splits.lock().unwrap(), [expected]);
    for regions in
        [[part("a", "k"), part("l", "")], [part("a", ""), part("", "")], [part("", "k"), part("k", "")]]
    {
        assert!(report(proposal(regions)).is_err());
    }
    for code in [TransitionCode::Split, TransitionCode::Merged, TransitionCode::SplitReverted] {
        let why = report(transition(code, &region("a"), None, 1)).unwrap_err();
        assert!(why.starts_with(code.as_str_name()), "{why}");
    }
    // Nothing waits for these.
    for code in [TransitionCode::Closed, TransitionCode::FailedOpen] {
        assert_eq!(report(transition(code, &region("a"), None, -1)), Ok(()));
    }
    assert_eq!(master.status.splits.lock().unwrap().len(), 1);
}

#[test]
fn garbage_is_refused_and_harms_nothing() {
    let master = Master::new();
    let server = FakeServer::new(&master);
    let report = |transition| master.transition(&server.name, transition).unwrap();
    let opened = |seq| transition(TransitionCode::Opened, &region("a"), seq, 1);
    for garbage in [
        opened(None),
        opened(Some(u64::MAX)),
        pb::RegionStateTransition { transition_code: 77, ..opened(Some(1)) },
        pb::RegionStateTransition { region_info: Vec::new(), ..opened(Some(1)) },
        pb::RegionStateTransition { region_info: vec![region("a").to_pb(); 5], ..opened(Some(1)) },
        pb::RegionStateTransition {
            region_info: vec![pb::RegionInfo {
                table_name: pb::TableName { namespace: "../x".into(), qualifier: "\u{0}".into() },
                ..region("a").to_pb()
            }],
            ..opened(Some(1))
        },
    ] {
        assert!(report(garbage.clone()).is_err(), "{garbage:?}");
    }
    for (host, port, code) in [
        ("", Some(1), Some(1)),
        ("a,b", Some(1), Some(1)),
        ("a\nb", Some(1), Some(1)),
        ("h", Some(70_000), Some(1)),
        ("h", None, Some(1)),
        ("h", Some(1), None),
        ("h", Some(1), Some(u64::MAX)),
    ] {
        let server = pb::ServerName { host_name: host.to_string(), port, start_code: code };
        let request = pb::RegionServerReportRequest { server, load: None };
        let answer = master.call::<pb::RegionServerReportResponse>("RegionServerReport", &request);
        refused(answer, "DoNotRetryIOException");
    }
    let long = pb::RegionServerReportRequest {
        server: pb::ServerName { host_name: "h".repeat(300), port: Some(1), start_code: Some(1) },
        load: None,
    };
    refused(
        master.call::<pb::RegionServerReportResponse>("RegionServerReport", &long),
        "DoNotRetryIOException",
    );
    // Messages of another kind.
    let other = pb::GetLastFlushedSequenceIdRequest { region_name: Bytes::from_static(&[0xff; 9]) };
    for method in ["RegionServerStartup", "RegionServerReport", "ReportRegionStateTransition"] {
        refused(master.call::<pb::RegionServerReportResponse>(method, &other), "DoNotRetryIOException");
    }
    refused(master.call::<pb::RegionServerReportResponse>("Reboot", &other), "DoNotRetryIOException");
    assert_eq!(master.servers.online(), std::slice::from_ref(&server.name));
}

/// A damaged file was set aside, and its region opened without it, so with lower ids. What was written then counted as flushed when its
/// WAL was split, because the file had had edits of higher ids: it was lost.
#[test]
fn what_was_flushed_is_forgotten_when_a_region_opens_below_it() {
    let master = Master::new();
    let (old, new) = (name(5), ServerName::new("i", 16020, 3));
    let load = |id: u64| pb::ServerLoad {
        region_loads: vec![pb::RegionLoad {
            region_specifier: pb::RegionSpecifier { r#type: 1, value: region("a").region_name().clone() },
            complete_sequence_id: Some(id),
            store_complete_sequence_id: vec![pb::StoreSequenceId {
                family_name: "f".into(),
                sequence_id: id,
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let known = || master.servers.last_flushed(region("a").encoded_name()).region;
    let opens_with = |number: u64| {
        let opened = transition(TransitionCode::Opened, &region("a"), Some(number), 1);
        // Whatever it is told: the ids are noted before.
        drop(master.transition(&new, opened));
    };
    master.report(&old, load(500)).unwrap();
    assert!(master.servers.expire(&old));
    master.report(&new, pb::ServerLoad::default()).unwrap();
    opens_with(501);
    assert_eq!(known(), Some(500));
    for number in [52, 500] {
        master.report(&new, load(500)).unwrap();
        opens_with(number);
        assert_eq!(known(), None, "{number}");
    }
    master.report(&new, load(60)).unwrap();
    assert_eq!(known(), Some(60));
}

#[test]
fn flushed_ids_live_servers_and_last_words() {
    let master = Master::new();
    let load = pb::RegionLoad {
        region_specifier: pb::RegionSpecifier { r#type: 1, value: region("a").region_name().clone() },
        complete_sequence_id: Some(40),
        store_complete_sequence_id: vec![pb::StoreSequenceId { family_name: "f".into(), sequence_id: 41 }],
        ..Default::default()
    };
    let server = name(5);
    master.report(&server, pb::ServerLoad { region_loads: vec![load], ..Default::default() }).unwrap();
    // The last flush of a region that is closed is in no report.
    for open_seq_num in [Some(70), Some(60), None] {
        let closed = transition(TransitionCode::Closed, &region("b"), open_seq_num, 1);
        master.transition(&server, closed).unwrap().unwrap();
    }
    assert!(master.servers.expire(&server));
    let ask = |region_name: Bytes| -> pb::GetLastFlushedSequenceIdResponse {
        let request = pb::GetLastFlushedSequenceIdRequest { region_name };
        master.call("GetLastFlushedSequenceId", &request).unwrap()
    };
    let known = ask(Bytes::copy_from_slice(region("a").encoded_name().as_bytes()));
    assert_eq!(known.last_flushed_sequence_id, 40);
    assert_eq!(known.store_last_flushed_sequence_id[0].sequence_id, 41);
    let closed = ask(Bytes::copy_from_slice(region("b").encoded_name().as_bytes()));
    assert_eq!(closed.last_flushed_sequence_id, 70);
    assert_eq!(ask(Bytes::from_static(b"\xff")).last_flushed_sequence_id, u64::MAX);
    assert_eq!(master.servers.last_flushed(region("a").encoded_name()).region, Some(40));

    for port in 1..=3 {
        master.servers.add_online(&ServerName::new("h", port, 1));
    }
    let request = pb::GetLiveRegionServersRequest { count: 2 };
    let live: pb::GetLiveRegionServersResponse = master.call("GetLiveRegionServers", &request).unwrap();
    assert_eq!((live.server.len(), live.total), (2, 3));

    let words = pb::ReportRsFatalErrorRequest { server: server.to_pb(), error_message: "x".repeat(1 << 20) };
    let _: pb::ReportRsFatalErrorResponse = master.call("ReportRSFatalError", &words).unwrap();
    let files = pb::FileArchiveNotificationRequest::default();
    let _: pb::FileArchiveNotificationResponse = master.call("ReportFileArchival", &files).unwrap();
}
