//! HBCK2's `scheduleRecoveries` and `recoverUnknown`, which answered as if master and region server were one process.

use halcyon_master::HbckService;

use super::*;

/// As clients see -1.
const NO_PROCEDURE: u64 = u64::MAX;

fn schedule(c: &Many, servers: &[ServerName]) -> Vec<u64> {
    let hbck = HbckService::new(c.master.clone()).unwrap();
    let server_name = servers.iter().map(ServerName::to_pb).collect();
    let request = pb::ScheduleServerCrashProcedureRequest { server_name };
    let begun: pb::ScheduleServerCrashProcedureResponse =
        answer(&hbck, "ScheduleServerCrashProcedure", &request).unwrap();
    begun.pid
}

fn recover_unknown(c: &Many) -> Vec<u64> {
    let hbck = HbckService::new(c.master.clone()).unwrap();
    let request = pb::ScheduleScPsForUnknownServersRequest::default();
    let begun: pb::ScheduleScPsForUnknownServersResponse =
        answer(&hbck, "ScheduleSCPsForUnknownServers", &request).unwrap();
    begun.pid
}

#[test]
fn a_server_is_recovered_when_an_operator_says_so() {
    let c = Many::new(env(), 3);
    c.create(&KEYS);
    c.servers.state.lock().leases.insert(name(1), Duration::from_millis(300));
    let begun = schedule(&c, &[name(1)]);
    assert!(begun.len() == 1 && begun[0] != NO_PROCEDURE, "{begun:?}");
    assert_eq!(schedule(&c, &[name(1)]), [NO_PROCEDURE], "it is under way");
    c.settles("t", 9);
    c.quiet();
    assert!(!c.servers.state.lock().online.contains_key(&name(1)));
    assert_eq!(recover_unknown(&c), [] as [u64; 0]);
}

/// Meta names a server of which neither ZooKeeper nor the directory of WALs knows that it was there.
#[test]
fn servers_that_nobody_knows_are_recovered() {
    let c = Many::new(env(), 3);
    c.create(&KEYS);
    let meta = c.servers.state.lock().meta.clone();
    let unknown = [name(0), name(1), name(2)].into_iter().find(|it| meta.as_ref() != Some(it)).unwrap();
    c.servers.state.lock().online.remove(&unknown).unwrap();
    let begun = recover_unknown(&c);
    assert!(begun.len() == 1 && begun[0] != NO_PROCEDURE, "{begun:?}");
    c.settles("t", 9);
}
