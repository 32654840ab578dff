use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use halcyon_env::Clock;
use parking_lot::RwLock;

/// What ZooKeeper tells about a znode beside its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Transaction that created it.
    pub created_zxid: i64,
    /// Transaction that last set its data.
    pub modified_zxid: i64,
    /// Milliseconds since 1970.
    pub created_ms: i64,
    /// Milliseconds since 1970.
    pub modified_ms: i64,
    /// How often its data was set after it was created.
    pub version: i32,
    /// How often a child came or went.
    pub children_version: i32,
    /// Session that it lives with; 0 if it stays.
    pub ephemeral_owner: i64,
    pub data_len: i32,
    pub children_count: i32,
    /// Transaction that last added or removed a child.
    pub children_zxid: i64,
}

/// Znodes by path, in memory. The process that owns the tree writes it; clients of [`crate::ZkServer`] read.
///
/// # Thread safety
/// All methods may be called from any thread; each sees and leaves a whole tree.
///
/// # Invariants
/// The root exists. Every znode's parent exists. The zxid grows with every change; it starts from the wall
/// clock, so that it also grows from one process to the next (clients refuse a server from their past).
pub struct ZnodeTree {
    clock: Arc<dyn Clock>,
    state: RwLock<TreeState>,
    /// Paths, each with what brings the znodes below it up to date.
    live: RwLock<Vec<(String, Refresh)>>,
}

type Refresh = Box<dyn Fn(&ZnodeTree) + Send + Sync>;

struct TreeState {
    zxid: i64,
    znodes: BTreeMap<String, Znode>,
}

struct Znode {
    data: Bytes,
    stat: Stat,
}

impl ZnodeTree {
    /// A tree with a root only.
    pub fn new(clock: Arc<dyn Clock>) -> ZnodeTree {
        let now_ms = clock.now_ms();
        // Room for a million changes per millisecond, for more than 200 years.
        let zxid = (now_ms.max(1) << 20) & i64::MAX;
        let stat = Stat { created_zxid: zxid, modified_zxid: zxid, children_zxid: zxid, ..Stat::default() };
        let root = Znode { data: Bytes::new(), stat };
        let znodes = BTreeMap::from([("/".to_string(), root)]);
        ZnodeTree { clock, state: RwLock::new(TreeState { zxid, znodes }), live: RwLock::default() }
    }

    /// Calls `refresh` before each read of `path` or of a znode below it.
    ///
    /// `refresh` may set and remove znodes; it must not read any below such a path.
    pub fn refresh_before_reads(&self, path: &str, refresh: impl Fn(&ZnodeTree) + Send + Sync + 'static) {
        self.live.write().push((path.to_string(), Box::new(refresh)));
    }

    fn refresh(&self, path: &str) {
        let is_below =
            |live: &str| path.strip_prefix(live).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        for (_, refresh) in self.live.read().iter().filter(|(live, _)| is_below(live)) {
            refresh(self);
        }
    }

    /// Sets a znode's data; creates it, and parents without data, if need be.
    ///
    /// Panics on a path that is not absolute or has an empty name in it.
    pub fn set(&self, path: &str, data: Bytes) {
        self.put(path, data, 0);
    }

    /// As [`ZnodeTree::set`], for a znode that lives with a session.
    pub fn set_ephemeral(&self, path: &str, data: Bytes, session: i64) {
        self.put(path, data, session);
    }

    fn put(&self, path: &str, data: Bytes, session: i64) {
        assert!(is_path(path) && path != "/", "{path:?} is not a path");
        let now_ms = self.clock.now_ms();
        let mut state = self.state.write();
        state.create_parents(path, now_ms);
        state.put(path, data, session, now_ms);
    }

    /// Removes a znode and all below it. False if there is none.
    pub fn remove(&self, path: &str) -> bool {
        assert!(is_path(path) && path != "/", "{path:?} is not a path that can be removed");
        self.state.write().remove(path)
    }

    pub fn get(&self, path: &str) -> Option<(Bytes, Stat)> {
        self.refresh(path);
        let state = self.state.read();
        state.znodes.get(path).map(|znode| (znode.data.clone(), znode.stat))
    }

    pub fn stat(&self, path: &str) -> Option<Stat> {
        self.refresh(path);
        self.state.read().znodes.get(path).map(|znode| znode.stat)
    }

    /// Names of the children in order.
    pub fn children(&self, path: &str) -> Option<(Vec<String>, Stat)> {
        self.refresh(path);
        let state = self.state.read();
        let stat = state.znodes.get(path)?.stat;
        let prefix = if path == "/" { path.to_string() } else { format!("{path}/") };
        let names = state.below(&prefix).filter_map(|path| {
            let name = &path[prefix.len()..];
            (!name.contains('/')).then(|| name.to_string())
        });
        Some((names.collect(), stat))
    }

    /// The last change.
    pub fn zxid(&self) -> i64 {
        self.state.read().zxid
    }

    pub fn znodes_count(&self) -> usize {
        self.state.read().znodes.len()
    }
}

impl TreeState {
    /// Paths that start with `prefix`, without `prefix` itself.
    fn below(&self, prefix: &str) -> impl Iterator<Item = &str> {
        let prefix = prefix.to_string();
        let from = (Bound::Excluded(prefix.clone()), Bound::Unbounded);
        self.znodes
            .range(from)
            .map(|(path, _)| path.as_str())
            .take_while(move |path| path.starts_with(&prefix))
    }

    fn create_parents(&mut self, path: &str, now_ms: i64) {
        let slashes: Vec<usize> = path.match_indices('/').map(|(at, _)| at).skip(1).collect();
        for at in slashes {
            if !self.znodes.contains_key(&path[..at]) {
                self.put(&path[..at], Bytes::new(), 0, now_ms);
            }
        }
    }

    fn put(&mut self, path: &str, data: Bytes, session: i64, now_ms: i64) {
        self.zxid += 1;
        let zxid = self.zxid;
        let data_len = i32::try_from(data.len()).expect("a znode is shorter than 2 GiB");
        if let Some(znode) = self.znodes.get_mut(path) {
            znode.data = data;
            let stat = &mut znode.stat;
            (stat.modified_zxid, stat.modified_ms, stat.data_len) = (zxid, now_ms, data_len);
            stat.version += 1;
            return;
        }
        let stat = Stat {
            created_zxid: zxid,
            modified_zxid: zxid,
            created_ms: now_ms,
            modified_ms: now_ms,
            ephemeral_owner: session,
            data_len,
            children_zxid: zxid,
            ..Stat::default()
        };
        self.znodes.insert(path.to_string(), Znode { data, stat });
        self.child_changed(parent(path), 1);
    }

    fn remove(&mut self, path: &str) -> bool {
        if self.znodes.remove(path).is_none() {
            return false;
        }
        self.zxid += 1;
        let below: Vec<String> = self.below(&format!("{path}/")).map(str::to_string).collect();
        for path in below {
            self.znodes.remove(&path);
        }
        self.child_changed(parent(path), -1);
        true
    }

    fn child_changed(&mut self, parent: &str, count: i32) {
        let zxid = self.zxid;
        let stat = &mut self.znodes.get_mut(parent).expect("every znode's parent exists").stat;
        stat.children_count += count;
        stat.children_version += 1;
        stat.children_zxid = zxid;
    }
}

fn parent(path: &str) -> &str {
    match path.rfind('/') {
        Some(0) | None => "/",
        Some(at) => &path[..at],
    }
}

/// Whether a path is one that ZooKeeper takes.
pub(crate) fn is_path(path: &str) -> bool {
    path == "/"
        || (path.starts_with('/')
            && path[1..].split('/').all(|name| !matches!(name, "" | "." | "..") && !name.contains('\0')))
}

#[cfg(test)]
mod tests {
    use halcyon_env::ManualClock;

    use super::*;

    fn tree() -> ZnodeTree {
        ZnodeTree::new(Arc::new(ManualClock::at(1_700_000_000_000)))
    }

    #[test]
    fn children_are_the_next_names_only() {
        let tree = tree();
        tree.set("/a/b/c", Bytes::from_static(b"c"));
        tree.set("/a/bb", Bytes::from_static(b"bb"));
        tree.set("/a-", Bytes::new());
        assert_eq!(tree.children("/").unwrap().0, ["a", "a-"]);
        assert_eq!(tree.children("/a").unwrap().0, ["b", "bb"]);
        assert_eq!(tree.children("/a/b").unwrap().0, ["c"]);
        assert_eq!(tree.children("/a/b/c").unwrap().0, [""; 0]);
        assert!(tree.children("/x").is_none());
        assert_eq!(tree.get("/a/b").unwrap().1.children_count, 1);
        assert_eq!(tree.get("/a").unwrap().1.children_count, 2);
    }

    #[test]
    fn every_change_grows_the_zxid_and_removal_takes_the_whole_branch() {
        let tree = tree();
        let start = tree.zxid();
        assert!(start > 0);
        tree.set("/a/b/c", Bytes::from_static(b"1"));
        tree.set("/a/b/c", Bytes::from_static(b"22"));
        let stat = tree.stat("/a/b/c").unwrap();
        assert_eq!((stat.version, stat.data_len, stat.modified_zxid), (1, 2, tree.zxid()));
        assert_eq!(tree.zxid(), start + 4);
        assert!(tree.remove("/a/b"));
        assert!(!tree.remove("/a/b"));
        assert!(tree.get("/a/b/c").is_none() && tree.get("/a").is_some());
        assert_eq!((tree.znodes_count(), tree.zxid()), (2, start + 5));
        assert_eq!(tree.stat("/a").unwrap().children_count, 0);
    }

    #[test]
    fn paths() {
        for good in ["/", "/a", "/a/b", "/hbase/rs/h,16020,17"] {
            assert!(is_path(good), "{good}");
        }
        for bad in ["", "a", "/a/", "//", "/a//b", "/a/./b", "/..", "/a\0"] {
            assert!(!is_path(bad), "{bad:?}");
        }
    }
}
