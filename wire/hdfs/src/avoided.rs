//! DataNodes that new logs and small files do without.
//!
//! The NameNode offers a DataNode for ten minutes after it died, and one that is frozen for longer. Who waited for such a
//! DataNode must not meet it again in the next file. HBase does the same (`ExcludeDatanodeManager`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use hdfs_native::file::fan_out::{Datanode, Placement};
use parking_lot::Mutex;
use tokio::time::Instant;

/// How long a DataNode is left out that has failed or was late for the first time. The time doubles with each further time. A log with
/// fewer copies than it should have is the worse choice for longer: with one live copy HDFS waits for all others before it seals a log.
const AVOIDED_MIN: Duration = Duration::from_secs(10);
const AVOIDED_MAX: Duration = Duration::from_secs(60);
/// One that was well for so long after it was let in again has failed for the first time.
const FORGIVEN: Duration = Duration::from_secs(60);
/// So long it is remembered that it was late.
const REMEMBERED: Duration = Duration::from_secs(600);
/// A longer list would be one of the whole cluster.
const ENTRIES_MAX: usize = 16;
/// Logs whose DataNodes are remembered: of each directory those of tables and those of meta.
const PLACED_MAX: usize = 16;

#[derive(Default)]
pub(crate) struct Avoided {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    avoided: Vec<Entry>,
    /// Where the newest log of a kind is.
    placed: Vec<(Kind, Vec<Datanode>)>,
}

struct Entry {
    datanode: Datanode,
    noted: Instant,
    until: Instant,
    /// It is gone, and was not only late.
    is_dead: bool,
    /// How often it was late.
    lates_count: u32,
    /// How often it has failed, each time after it was let in again.
    failures_count: u32,
}

/// Logs of one directory that follow each other.
#[derive(PartialEq)]
struct Kind {
    dir: PathBuf,
    extension: Option<std::ffi::OsString>,
}

impl Kind {
    fn of(path: &Path) -> Kind {
        let extension = path.extension().filter(|extension| *extension == "meta");
        Kind {
            dir: path.parent().unwrap_or(path).to_path_buf(),
            extension: extension.map(|text| text.to_os_string()),
        }
    }
}

/// What the next file would like.
pub(crate) struct Wishes {
    before: Vec<Datanode>,
    avoided: Vec<Datanode>,
    dead: Vec<Datanode>,
}

impl Wishes {
    /// First, DataNodes that the log before does not have: a spare file helps when one of those is late. Then, all but one copy on
    /// DataNodes that are well, then any that is not dead.
    pub(crate) fn for_replication(&self, replication: usize) -> Vec<Placement> {
        let mut placements = Vec::new();
        let has_failed = self.before.iter().any(|datanode| self.avoided.contains(datanode));
        if !self.before.is_empty() && !has_failed {
            let without = [&self.before[..], &self.avoided[..]].concat();
            placements.push(Placement { without, at_least: replication });
        }
        if !self.avoided.is_empty() {
            let at_least = replication.saturating_sub(1).max(1);
            placements.push(Placement { without: self.avoided.clone(), at_least });
        }
        if !self.dead.is_empty() && self.dead.len() < self.avoided.len() {
            placements.push(Placement { without: self.dead.clone(), at_least: 1 });
        }
        placements
    }
}

impl Avoided {
    /// It has failed at this time. Several logs may tell the same failure, some of them much later.
    pub(crate) fn note_failed(&self, datanode: &Datanode, noticed: Instant) {
        self.note(datanode, noticed, true);
    }

    pub(crate) fn note_late(&self, datanode: &Datanode) {
        self.note(datanode, Instant::now(), false);
    }

    fn note(&self, datanode: &Datanode, noticed: Instant, is_dead: bool) {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.avoided.retain(|entry| now.duration_since(entry.noted) < REMEMBERED);
        let before = state.avoided.iter().position(|entry| entry.datanode == *datanode);
        let before = before.map(|at| state.avoided.remove(at));
        let counted = |count: fn(&Entry) -> u32| before.as_ref().map_or(0, count);
        let lates_count = counted(|entry| entry.lates_count) + u32::from(!is_dead);
        let failures_count = match before.as_ref().filter(|entry| entry.failures_count > 0) {
            _ if !is_dead => counted(|entry| entry.failures_count),
            Some(entry) if noticed <= entry.until => entry.failures_count, // the same failure
            Some(entry) if noticed <= entry.until + FORGIVEN => entry.failures_count + 1,
            _ => 1,
        };
        let times = if is_dead { failures_count } else { lates_count };
        let avoided = (AVOIDED_MIN * (1 << (times - 1).min(6))).min(AVOIDED_MAX);
        if state.avoided.len() == ENTRIES_MAX {
            state.avoided.remove(0);
        }
        // One that failed stays so when it is late as well.
        let still_dead = before.filter(|entry| entry.is_dead && entry.until > now);
        let until = still_dead.as_ref().map_or(noticed + avoided, |entry| entry.until.max(noticed + avoided));
        let is_dead = is_dead || still_dead.is_some();
        if still_dead.is_none_or(|entry| entry.until < until) {
            tracing::warn!(datanode = datanode.name(), "new files do without this DataNode for {avoided:?}");
        }
        let datanode = datanode.clone();
        assert!(
            state.avoided.iter().all(|entry| entry.datanode != datanode),
            "a DataNode is on the list once"
        );
        assert!(state.avoided.len() < ENTRIES_MAX, "a longer list would be one of the whole cluster");
        state.avoided.push(Entry { datanode, noted: now, until, is_dead, lates_count, failures_count });
    }

    pub(crate) fn is_avoided(&self, datanode: &Datanode) -> bool {
        let now = Instant::now();
        self.state.lock().avoided.iter().any(|entry| entry.until > now && entry.datanode == *datanode)
    }

    pub(crate) fn is_any(&self) -> bool {
        let now = Instant::now();
        self.state.lock().avoided.iter().any(|entry| entry.until > now)
    }

    pub(crate) fn note_placed(&self, path: &Path, datanodes: &[Datanode]) {
        let kind = Kind::of(path);
        let mut state = self.state.lock();
        state.placed.retain(|(of, _)| *of != kind);
        if state.placed.len() == PLACED_MAX {
            state.placed.remove(0);
        }
        state.placed.push((kind, datanodes.to_vec()));
    }

    /// Of the next log of this name's kind.
    pub(crate) fn placements(&self, path: &Path) -> Wishes {
        let kind = Kind::of(path);
        let state = self.state.lock();
        let before = state.placed.iter().find(|(of, _)| *of == kind);
        state.wishes(before.map_or_else(Vec::new, |(_, datanodes)| datanodes.clone()))
    }

    /// Of a file that does not follow another one.
    pub(crate) fn placements_of_file(&self) -> Wishes {
        self.state.lock().wishes(Vec::new())
    }
}

impl State {
    fn wishes(&self, before: Vec<Datanode>) -> Wishes {
        let now = Instant::now();
        let avoided = || self.avoided.iter().filter(|entry| entry.until > now);
        Wishes {
            before,
            avoided: avoided().map(|entry| entry.datanode.clone()).collect(),
            dead: avoided().filter(|entry| entry.is_dead).map(|entry| entry.datanode.clone()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u16) -> Datanode {
        Datanode::new("10.0.0.1", number, &number.to_string())
    }

    fn wishes(avoided: &Avoided, path: &str) -> Vec<(Vec<Datanode>, usize)> {
        let placements = avoided.placements(Path::new(path)).for_replication(3);
        placements.into_iter().map(|placement| (placement.without, placement.at_least)).collect()
    }

    #[test]
    fn nothing_is_wished_at_first() {
        let avoided = Avoided::default();
        assert!(wishes(&avoided, "/w/1").is_empty() && !avoided.is_any());
    }

    #[test]
    fn the_next_log_of_a_kind_lies_elsewhere() {
        let avoided = Avoided::default();
        avoided.note_placed(Path::new("/w/1"), &[node(1), node(2)]);
        avoided.note_placed(Path::new("/w/2"), &[node(3)]);
        avoided.note_placed(Path::new("/w/2.meta"), &[node(4)]);
        assert_eq!(wishes(&avoided, "/w/3"), [(vec![node(3)], 3)]);
        assert_eq!(wishes(&avoided, "/w/3.meta"), [(vec![node(4)], 3)]);
        assert!(wishes(&avoided, "/other/3").is_empty());
    }

    /// One that was late is taken before a log has only one copy; one that is dead is not.
    #[test]
    fn late_and_dead_ones_are_avoided() {
        let avoided = Avoided::default();
        avoided.note_placed(Path::new("/w/1"), &[node(1), node(2), node(3)]);
        avoided.note_late(&node(1));
        avoided.note_failed(&node(4), Instant::now());
        assert!(
            avoided.is_avoided(&node(1)) && avoided.is_avoided(&node(4)) && !avoided.is_avoided(&node(2))
        );
        let expected = [(vec![node(1), node(4)], 2), (vec![node(4)], 1)];
        assert_eq!(
            wishes(&avoided, "/w/2"),
            expected,
            "the log before has failed: its others are as good as any"
        );
        avoided.note_failed(&node(1), Instant::now());
        assert_eq!(wishes(&avoided, "/w/2"), [(vec![node(4), node(1)], 2)]);
    }

    /// A pause that does not come again costs a copy for ten seconds, and one that does for a minute.
    #[test]
    fn one_that_is_late_again_and_again_is_left_out_for_longer() {
        let avoided = Avoided::default();
        let seconds_left = |avoided: &Avoided| {
            let state = avoided.state.lock();
            let entry = state.avoided.iter().find(|entry| entry.datanode == node(1)).unwrap();
            entry.until.saturating_duration_since(entry.noted).as_secs_f64().round() as u64
        };
        for expected in [10, 20, 40, 60, 60] {
            avoided.note_late(&node(1));
            assert_eq!(seconds_left(&avoided), expected);
        }
        (0..100).for_each(|_| avoided.note_late(&node(1)));
        assert_eq!(seconds_left(&avoided), 60);
        let avoided = Avoided::default();
        avoided.note_failed(&node(1), Instant::now());
        avoided.note_late(&node(1));
        assert!(seconds_left(&avoided) >= 9 && avoided.state.lock().avoided[0].is_dead);
    }

    #[test]
    fn one_that_fails_again_and_again_is_left_out_for_longer() {
        let avoided = Avoided::default();
        let until = |avoided: &Avoided| avoided.state.lock().avoided[0].until;
        let start = Instant::now();
        let mut noticed = start;
        for expected in [10, 20, 40, 60, 60] {
            avoided.note_failed(&node(1), noticed);
            assert_eq!(until(&avoided), noticed + Duration::from_secs(expected));
            noticed = until(&avoided) + Duration::from_secs(1);
        }
        // It was well for a while.
        noticed = until(&avoided) + FORGIVEN + Duration::from_secs(1);
        avoided.note_failed(&node(1), noticed);
        assert_eq!(until(&avoided), noticed + AVOIDED_MIN);
    }

    /// A log that nobody writes learns of a failure when it is written. By then the DataNode may be well again.
    #[test]
    fn a_failure_that_is_told_again_does_not_last_longer() {
        let avoided = Avoided::default();
        let noticed = Instant::now();
        avoided.note_failed(&node(1), noticed);
        let until = |avoided: &Avoided| avoided.state.lock().avoided[0].until;
        assert_eq!(until(&avoided), noticed + AVOIDED_MIN);
        avoided.note_failed(&node(1), noticed);
        assert_eq!(until(&avoided), noticed + AVOIDED_MIN);
        avoided.note_failed(&node(1), noticed + Duration::from_secs(1));
        assert_eq!(until(&avoided), noticed + AVOIDED_MIN + Duration::from_secs(1));
    }

    #[test]
    fn the_list_has_a_limit() {
        let avoided = Avoided::default();
        (0..100).for_each(|number| avoided.note_failed(&node(number), Instant::now()));
        assert!(!avoided.is_avoided(&node(83)) && avoided.is_avoided(&node(84)));
        for number in 0..100 {
            avoided.note_placed(Path::new(&format!("/{number}/1")), &[node(1)]);
        }
        assert_eq!(avoided.state.lock().placed.len(), PLACED_MAX);
    }
}
