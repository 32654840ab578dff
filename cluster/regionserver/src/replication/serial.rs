//! Serial peers: an edit goes only when the peer has all edits of its region that other servers wrote before (HBase:
//! `SerialReplicationChecker`).
//!
//! `hbase:meta` has a barrier for each opening of a region, with the server (`halcyon_schema::RegionBarriers`). Between two barriers is a
//! range; its edits are in the WALs of one server, in their order. A source asks for all ranges before that of an edit, and for those of
//! the regions that this one was split or merged from. Whether they are sent tell the queues of the servers that had them (`sent.rs`). A
//! source that has to wait sends what comes before the edit, and looks again. It waits only for edits that are older than its own,
//! so sources never wait for each other in a circle.
//!
//! HBase keeps the last pushed sequence id of each region instead of looking at queues. So it needs a marker in the WAL for each opening.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use halcyon_cell::Result;
use halcyon_proto::pb;
use halcyon_schema::{RegionBarriers, TableName};

use super::barriers::ReadBarriers;
use super::closings::Closings;
use super::sent::Sent;
use crate::regions::resources::RegionResources;

/// Regions of which it is remembered what may be sent; with more, all is forgotten and asked anew.
const KNOWN_MAX: usize = 20_000;

/// See the head of the file. Of one source.
pub(super) struct SerialChecker {
    resources: Arc<RegionResources>,
    peer: String,
    /// Whose WALs are sent, named as in these.
    server: String,
    barriers: Arc<dyn ReadBarriers>,
    closings: Arc<Closings>,
    /// Ranges that may be sent, by encoded name.
    known: HashMap<Bytes, Known>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    from: u64,
    until: Until,
}

#[derive(Clone, Copy, Debug)]
enum Until {
    Barrier(u64),
    /// No later barrier was there when so many regions had been opened here.
    Openings(u64),
}

impl Known {
    fn covers(&self, seq: u64, openings: u64) -> bool {
        self.from <= seq
            && match self.until {
                Until::Barrier(next) => seq < next,
                Until::Openings(then) => then == openings,
            }
    }
}

impl SerialChecker {
    pub(super) fn new(
        resources: &Arc<RegionResources>,
        (peer, server): (&str, &str),
        barriers: Arc<dyn ReadBarriers>,
        closings: Arc<Closings>,
    ) -> SerialChecker {
        SerialChecker {
            resources: Arc::clone(resources),
            peer: peer.to_string(),
            server: server.to_string(),
            barriers,
            closings,
            known: HashMap::new(),
        }
    }

    /// Whether an entry may be sent. It was read before this is asked, so that the barrier of its range is there. The row is that of one of
    /// its cells.
    pub(super) async fn can_send(&mut self, key: &pb::WalKey, row: &[u8]) -> Result<bool> {
        let (region, seq) = (&key.encoded_region_name, key.log_sequence_number);
        let openings = self.closings.openings();
        if self.known.get(region).is_some_and(|known| known.covers(seq, openings)) {
            return Ok(true);
        }
        let table = TableName::parse(&key.table_name)?;
        let found = self.barriers.find(&table, row, &String::from_utf8_lossy(region)).await?;
        let barriers = found.unwrap_or_default();
        let count = barriers.count_up_to(seq);
        // Before the first barrier: it was written before there were any, or the peer has what was before.
        if count > 0 && !self.is_sent_before(&barriers, count - 1).await? {
            return Ok(false);
        }
        let from = if count == 0 { 0 } else { barriers.ranges[count - 1].open_seq };
        let next = barriers.ranges.get(count).map(|range| range.open_seq);
        let until = next.map_or(Until::Openings(openings), Until::Barrier);
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(region.clone(), Known { from, until });
        Ok(true)
    }

    /// Whether the peer has the first ranges of a region, and all of those that it comes from.
    async fn is_sent_before(&self, barriers: &RegionBarriers, count: usize) -> Result<bool> {
        let mut sent = Sent::new(&self.resources, &self.peer, Some(&self.server));
        if !all_sent(&mut sent, barriers, count)? {
            return Ok(false);
        }
        let (mut names, mut asked) = (barriers.parents.clone(), HashSet::new());
        while let Some(name) = names.pop() {
            if !asked.insert(name.clone()) {
                continue;
            }
            // What nothing is known of any more was sent.
            let Some(parent) = self.barriers.named(&name).await? else { continue };
            if !all_sent(&mut sent, &parent, parent.ranges.len())? {
                return Ok(false);
            }
            names.extend(parent.parents);
        }
        Ok(true)
    }
}

fn all_sent(sent: &mut Sent<'_>, barriers: &RegionBarriers, count: usize) -> Result<bool> {
    for range in &barriers.ranges[..count] {
        if !sent.is_sent(&barriers.region_name, range)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Of each region, how many of its first ranges a peer has, with all of the regions that it comes from. Those of regions that are not among
/// these count as sent. For the master, which takes such barriers away.
pub(super) fn count_sent(sent: &mut Sent<'_>, regions: &[RegionBarriers]) -> Result<Vec<usize>> {
    let places: HashMap<&Bytes, usize> =
        regions.iter().enumerate().map(|(at, region)| (&region.region_name, at)).collect();
    let mut counts = Vec::with_capacity(regions.len());
    for region in regions {
        let mut count = 0;
        while count < region.ranges.len() && sent.is_sent(&region.region_name, &region.ranges[count])? {
            count += 1;
        }
        counts.push(count);
    }
    let is_whole: Vec<bool> =
        regions.iter().zip(&counts).map(|(region, count)| region.ranges.len() == *count).collect();
    for (at, region) in regions.iter().enumerate() {
        let (mut names, mut asked) = (region.parents.clone(), HashSet::new());
        while let Some(name) = names.pop() {
            let Some(&parent) = places.get(&name).filter(|_| asked.insert(name.clone())) else { continue };
            if !is_whole[parent] {
                counts[at] = 0;
                break;
            }
            names.extend(regions[parent].parents.iter().cloned());
        }
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Mutex;

    use halcyon_env::sim::SimFileSystem;
    use halcyon_schema::{BarrierRange, ServerName, layout};

    use super::super::barriers::BarriersFuture;
    use super::super::holders::Holder;
    use super::super::queue::{Queue, Reached};
    use super::*;
    use crate::{RegionServer, RegionServerSettings};

    const ROOT: &str = "/hbase";
    const REGION: &[u8] = b"t,,1.00000000000000000000000000000001.";
    const PARENT: &[u8] = b"t,,0.00000000000000000000000000000000.";

    #[derive(Default)]
    struct Rows {
        rows: Mutex<Vec<RegionBarriers>>,
        reads: Mutex<usize>,
    }

    impl ReadBarriers for Rows {
        fn find<'a>(&'a self, _: &'a TableName, _: &'a [u8], _: &'a str) -> BarriersFuture<'a> {
            *self.reads.lock().unwrap() += 1;
            self.named(REGION)
        }

        fn named<'a>(&'a self, region_name: &'a [u8]) -> BarriersFuture<'a> {
            let found = self.rows.lock().unwrap().iter().find(|row| row.region_name == region_name).cloned();
            Box::pin(async move { Ok(found) })
        }
    }

    fn server(port: u16) -> ServerName {
        ServerName::new("h", port, 7)
    }

    fn in_names(port: u16) -> String {
        format!("h%2C{port}%2C7")
    }

    fn row(name: &'static [u8], ranges: &[(u64, u16)], parents: &[&'static [u8]]) -> RegionBarriers {
        let range = |&(open_seq, port)| BarrierRange { open_seq, server: server(port), timestamp: 1 };
        RegionBarriers {
            region_name: Bytes::from_static(name),
            ranges: ranges.iter().map(range).collect(),
            parents: parents.iter().map(|name| Bytes::from_static(name)).collect(),
        }
    }

    /// A server, of which the checker needs the files, and a checker that sends the WALs of server 1.
    struct Lab {
        here: Arc<RegionServer>,
        rows: Arc<Rows>,
        closings: Arc<Closings>,
        checker: SerialChecker,
    }

    impl Lab {
        fn new(rows: Vec<RegionBarriers>) -> Lab {
            let env = SimFileSystem::new().env();
            let name = ServerName::new("m", 1, 1);
            let settings = RegionServerSettings::default();
            let here = RegionServer::start_as(env, Path::new(ROOT), None, settings, name).unwrap();
            let (rows, closings) =
                (Arc::new(Rows { rows: Mutex::new(rows), ..Rows::default() }), Arc::<Closings>::default());
            let checker =
                SerialChecker::new(&here.resources, ("p", &in_names(1)), rows.clone(), Arc::clone(&closings));
            Lab { here, rows, closings, checker }
        }

        fn can_send(&mut self, seq: u64) -> bool {
            let key = pb::WalKey {
                encoded_region_name: Bytes::from_static(b"00000000000000000000000000000001"),
                table_name: Bytes::from_static(b"t"),
                log_sequence_number: seq,
                ..Default::default()
            };
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(self.checker.can_send(&key, b"r")).unwrap()
        }

        fn queue(&self, holder: Holder) -> Queue {
            let resources = &self.here.resources;
            Queue::create(&resources.env, &resources.root, &holder.name("p"), Vec::new()).unwrap()
        }

        /// A directory of WALs that are not archived yet.
        fn lives(&self, port: u16) {
            let dir = layout::wals_dir(ROOT.as_ref()).join(server(port).to_string());
            self.here.resources.env.fs.create_dir_all(&dir).unwrap();
        }

        fn dies(&self, port: u16) {
            let fs = &self.here.resources.env.fs;
            fs.remove_dir_all(&layout::wals_dir(ROOT.as_ref()).join(server(port).to_string())).unwrap();
        }

        fn archive(&self, wal: &str) {
            let fs = &self.here.resources.env.fs;
            let dir = layout::old_wals_dir(ROOT.as_ref());
            fs.create_dir_all(&dir).unwrap();
            fs.put_new(&dir.join(wal), b"").unwrap();
        }
    }

    impl Drop for Lab {
        fn drop(&mut self) {
            self.here.abort("the test is over");
        }
    }

    fn done(queue: &mut Queue, wal: &str) {
        let reached = Reached { finished: vec![wal.to_string()], ..Reached::default() };
        queue.advance(&reached, &HashSet::from([wal.to_string()]), true).unwrap();
    }

    #[test]
    fn without_barriers_and_before_the_first_one_all_may_go() {
        let mut lab = Lab::new(Vec::new());
        assert!(lab.can_send(5));
        let mut lab = Lab::new(vec![row(REGION, &[(10, 2), (20, 1)], &[])]);
        lab.lives(2);
        assert!(lab.can_send(9) && !lab.can_send(20));
        assert!(lab.can_send(10), "in the first range");
    }

    #[test]
    fn a_live_server_has_sent_a_range_when_its_queue_names_the_closing() {
        let mut lab = Lab::new(vec![row(REGION, &[(3, 2), (10, 1)], &[])]);
        lab.lives(2);
        assert!(!lab.can_send(10), "it has no queue yet");
        let mut queue = lab.queue(Holder::Server(in_names(2)));
        assert!(!lab.can_send(10));
        queue.add_closed(&[(Bytes::from_static(REGION), 2)]).unwrap();
        assert!(!lab.can_send(10), "that was an earlier one");
        queue.add_closed(&[(Bytes::from_static(PARENT), 9)]).unwrap();
        assert!(!lab.can_send(10), "that was another region");
        queue.add_closed(&[(Bytes::from_static(REGION), 3)]).unwrap();
        assert!(lab.can_send(10));
    }

    #[test]
    fn a_dead_server_has_sent_a_range_when_nothing_is_left_of_its_wals() {
        let mut lab = Lab::new(vec![row(REGION, &[(3, 2), (10, 1)], &[])]);
        lab.lives(2);
        let wals = [5, 6].map(|number| format!("{}.{number}", in_names(2)));
        wals.iter().for_each(|wal| lab.archive(wal));
        let mut queue = lab.queue(Holder::Server(in_names(2)));
        wals.iter().for_each(|wal| done(&mut queue, wal));
        assert!(!lab.can_send(10), "it lives: there may be other WALs");
        lab.dies(2);
        assert!(!lab.can_send(10), "the queue has forgotten the first one");
        let claimed = Holder::Claimer { server: in_names(2), by: in_names(1) };
        queue.rename(&claimed.name("p")).unwrap();
        let reached = Reached { finished: wals.to_vec(), ..Reached::default() };
        queue.advance(&reached, &wals.iter().cloned().collect(), true).unwrap();
        assert!(lab.can_send(10));

        // The books have adopted the queue.
        lab.closings.note_opened();
        let resources = &lab.here.resources;
        Queue::remove(&resources.env, &resources.root, &claimed.name("p")).unwrap();
        assert!(!lab.can_send(10), "nobody knows anything");
        let mut books = lab.queue(Holder::Master(in_names(9)));
        assert!(!lab.can_send(10));
        books.advance(&reached, &wals.iter().cloned().collect(), true).unwrap();
        assert!(lab.can_send(10));
    }

    #[test]
    fn all_ranges_before_count_and_those_of_parents() {
        let parent = row(PARENT, &[(1, 3)], &[]);
        let mut lab = Lab::new(vec![row(REGION, &[(3, 2), (10, 1), (20, 1)], &[PARENT]), parent]);
        [2, 3].iter().for_each(|port| lab.lives(*port));
        assert!(!lab.can_send(20));
        let (mut second, mut third) =
            (lab.queue(Holder::Server(in_names(2))), lab.queue(Holder::Server(in_names(3))));
        second.add_closed(&[(Bytes::from_static(REGION), 9)]).unwrap();
        assert!(!lab.can_send(20), "the parent is missing");
        third.add_closed(&[(Bytes::from_static(PARENT), 1)]).unwrap();
        assert!(lab.can_send(20));
        // What the source's own server had before is before it in the WALs.
        assert!(lab.can_send(10));
        lab.rows.rows.lock().unwrap().remove(1);
        lab.closings.note_opened();
        assert!(lab.can_send(30), "of a parent without a row all was sent");
    }

    #[test]
    fn meta_is_read_again_only_behind_a_barrier_and_after_an_opening() {
        let mut lab = Lab::new(vec![row(REGION, &[(3, 1), (10, 2)], &[])]);
        lab.lives(2);
        let reads = |lab: &Lab| *lab.rows.reads.lock().unwrap();
        assert!(lab.can_send(3) && lab.can_send(9) && reads(&lab) == 1);
        lab.closings.note_opened();
        assert!(lab.can_send(5) && reads(&lab) == 1, "its range ends");
        lab.rows.rows.lock().unwrap()[0] = row(REGION, &[(3, 1), (10, 2), (20, 1)], &[]);
        assert!(!lab.can_send(20) && !lab.can_send(21) && reads(&lab) == 3);
        lab.queue(Holder::Server(in_names(2))).add_closed(&[(Bytes::from_static(REGION), 19)]).unwrap();
        assert!(lab.can_send(20) && lab.can_send(21) && reads(&lab) == 4);
        lab.closings.note_opened();
        assert!(lab.can_send(22) && reads(&lab) == 5);
    }
}
