//! Which regions clients are told to be in transition.

use super::*;
use pb::region_state::State;

impl Many {
    /// The tables of the regions, with their states and since when they are in transition.
    fn in_transition(&self) -> Vec<(String, State, u64)> {
        let options = vec![pb::Option::RegionsInTransition as i32];
        let answer: pb::GetClusterStatusResponse =
            self.call("GetClusterStatus", &pb::GetClusterStatusRequest { options });
        let told = |one: &pb::RegionInTransition| {
            let (info, it) = (RegionInfo::from_pb(&one.region_state.region_info).unwrap(), &one.region_state);
            (info.table().to_string(), it.state(), it.stamp())
        };
        answer.cluster_status.regions_in_transition.iter().map(told).collect()
    }
}

/// Tools wait until no region is in transition, to know that a recovery is over.
#[test]
fn regions_of_a_dead_server_are_in_transition_until_they_are_open() {
    let c = Many::new(env(), 3);
    c.create(&KEYS);
    c.quiet();
    assert_eq!(c.in_transition(), []);
    let meta = c.servers.state.lock().meta.clone().unwrap();
    let other = (0..3).map(name).find(|server| *server != meta).unwrap();
    for (dead, has_meta) in [(other, false), (meta, true)] {
        let count = c.servers.regions_at(&dead);
        assert!(count > 0);
        c.servers.kill(&dead);
        let shown = c.in_transition();
        let of = |table: &str| shown.iter().filter(|(of, ..)| of == table).count();
        assert_eq!((of("t"), of("hbase:meta")), (count, usize::from(has_meta)), "{shown:?}");
        let is_known = |(_, state, since_ms): &_| *state == State::Offline && *since_ms > 0;
        assert!(shown.iter().all(is_known), "{shown:?}");
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(c.in_transition(), shown, "since the same moment");
        assert_eq!(c.master.regions_in_transition_count(), shown.len());
        c.master.recover_dead_servers();
        let begun = Instant::now();
        while !c.in_transition().is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", c.in_transition());
            std::thread::sleep(Duration::from_millis(1));
        }
        let state = c.servers.state.lock();
        let all = state.online.values().flat_map(|regions| regions.values());
        let open = all.filter(|region| region.table().to_string() == "t").count();
        drop(state);
        assert_eq!(open, 9, "all are open when none is in transition");
        c.quiet();
    }
}
