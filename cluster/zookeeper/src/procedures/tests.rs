//! A server that takes part, over znodes in memory. The test is the coordinator.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use halcyon_proto::PB_MAGIC;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::*;
use crate::znodes::Znode;

const LIMIT: Duration = Duration::from_secs(20);
const KIND: BarrierKind = BarrierKind::Snapshot;

/// A tree in memory.
struct FakeZnodes {
    tree: watch::Sender<BTreeMap<String, Znode>>,
    creations: AtomicUsize,
    /// As if ZooKeeper could not be reached.
    is_away: AtomicBool,
}

impl FakeZnodes {
    fn new() -> Arc<FakeZnodes> {
        let (tree, _) = watch::channel(BTreeMap::new());
        let znodes = FakeZnodes { tree, creations: AtomicUsize::new(0), is_away: AtomicBool::new(false) };
        for part in ["acquired", "reached", "abort"] {
            znodes.put(&format!("/hbase/online-snapshot/{part}"), b"");
        }
        Arc::new(znodes)
    }

    fn put(&self, path: &str, data: &[u8]) {
        let created = self.creations.fetch_add(1, Ordering::Relaxed) as i64;
        self.tree.send_modify(|tree| {
            tree.insert(path.to_string(), Znode { data: data.to_vec(), created });
        });
    }

    /// With all below it.
    fn remove(&self, path: &str) {
        let below = format!("{path}/");
        self.tree.send_modify(|tree| tree.retain(|name, _| name != path && !name.starts_with(&below)));
    }

    fn get(&self, path: &str) -> Option<Vec<u8>> {
        self.tree.borrow().get(path).map(|znode| znode.data.clone())
    }

    async fn wait(&self, path: &str) -> Vec<u8> {
        let mut trees = self.tree.subscribe();
        let there = timeout(LIMIT, trees.wait_for(|tree| tree.contains_key(path))).await;
        let tree = there.unwrap_or_else(|_| panic!("{path} was not created")).unwrap();
        tree[path].data.clone()
    }

    /// Reads by `look`, and ends the change when that reads something else.
    fn watched<T: PartialEq + Clone + Send + Sync + 'static>(
        &self,
        look: impl Fn(&BTreeMap<String, Znode>) -> T + Send + Sync + 'static,
    ) -> Result<(T, Change)> {
        if self.is_away.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Io, "away"));
        }
        let mut trees = self.tree.subscribe();
        let seen = look(&trees.borrow_and_update());
        let before = seen.clone();
        let changed = async move { drop(trees.wait_for(|tree| look(tree) != before).await) };
        Ok((seen, Box::pin(changed)))
    }
}

impl Znodes for FakeZnodes {
    async fn children(&self, path: &str) -> Result<(Option<Vec<String>>, Change)> {
        let path = path.to_string();
        // A watch of ZooKeeper also fires for a child that was removed and created again.
        let (children, changed) = self.watched(move |tree| {
            let below = format!("{path}/");
            let children = tree.iter().filter_map(|(name, znode)| {
                let name = name.strip_prefix(&below).filter(|name| !name.contains('/'))?;
                Some((name.to_string(), znode.created))
            });
            tree.contains_key(&path).then_some(children.collect::<Vec<_>>())
        })?;
        Ok((children.map(|children| children.into_iter().map(|(name, _)| name).collect()), changed))
    }

    async fn read(&self, path: &str) -> Result<(Option<Znode>, Change)> {
        let path = path.to_string();
        self.watched(move |tree| tree.get(&path).cloned())
    }

    async fn create(&self, path: &str, data: &[u8]) -> Result<Created> {
        if self.is_away.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Io, "away"));
        }
        let (parent, _) = path.rsplit_once('/').unwrap();
        if self.get(path).is_some() {
            return Ok(Created::Exists);
        }
        if self.get(parent).is_none() {
            return Ok(Created::NoParent);
        }
        self.put(path, data);
        Ok(Created::Done)
    }
}

/// What the work of a test does.
#[derive(Clone, Copy, PartialEq)]
enum Plan {
    Work,
    Fail,
    Panic,
    /// Until it is cancelled.
    Hang,
}

struct FakeMember {
    plan: Plan,
    time_max: Duration,
    worked: Arc<Mutex<Vec<String>>>,
    cancelled: Arc<AtomicBool>,
}

impl ProcedureMember for FakeMember {
    fn prepare(&self, procedure: &BarrierProcedure) -> Result<Subprocedure> {
        if procedure.data == b"wrong" {
            return Err(Error::invalid("wrong data"));
        }
        let (plan, instance) = (self.plan, procedure.instance.clone());
        let (worked, cancelled) = (self.worked.clone(), self.cancelled.clone());
        let work = Box::new(move |signal: &Cancelled| match plan {
            Plan::Work => {
                worked.lock().push(instance);
                Ok(())
            }
            Plan::Fail => Err(Error::new(ErrorKind::Io, "no disk")),
            Plan::Panic => panic!("as the test wants it"),
            Plan::Hang => {
                worked.lock().push(instance);
                while !signal.is_set() {
                    std::thread::yield_now();
                }
                cancelled.store(true, Ordering::Relaxed);
                Err(Error::new(ErrorKind::Stopping, "cancelled"))
            }
        });
        Ok(Subprocedure { time_max: self.time_max, work })
    }
}

struct Lab {
    znodes: Arc<FakeZnodes>,
    server: ServerName,
    worked: Arc<Mutex<Vec<String>>>,
    cancelled: Arc<AtomicBool>,
    _tasks: JoinSet<()>,
}

impl Lab {
    fn new(plan: Plan) -> Lab {
        Lab::limited(plan, LIMIT)
    }

    fn limited(plan: Plan, time_max: Duration) -> Lab {
        let (znodes, server) = (FakeZnodes::new(), ServerName::new("h", 16020, 77));
        let (worked, cancelled) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<AtomicBool>::default());
        let member = FakeMember { plan, time_max, worked: worked.clone(), cancelled: cancelled.clone() };
        let paths = ZnodePaths::new("/hbase").unwrap();
        let participant =
            Participant::new(znodes.clone(), paths, server.clone(), Arc::new(member), Handle::current());
        let mut tasks = JoinSet::new();
        tasks.spawn(follow(participant, KIND));
        Lab { znodes, server, worked, cancelled, _tasks: tasks }
    }

    fn path(&self, part: &str, instance: &str) -> String {
        format!("/hbase/online-snapshot/{part}/{instance}")
    }

    fn own(&self, part: &str, instance: &str) -> String {
        format!("{}/{}", self.path(part, instance), self.server)
    }

    fn begin(&self, instance: &str, payload: &[u8]) {
        self.znodes.put(&self.path("acquired", instance), &[PB_MAGIC, payload].concat());
    }

    async fn acquired(&self, instance: &str) {
        assert_eq!(self.znodes.wait(&self.own("acquired", instance)).await, b"");
    }

    fn reach(&self, instance: &str) {
        self.znodes.put(&self.path("reached", instance), b"");
    }

    async fn completed(&self, instance: &str) {
        let path = self.own("reached", instance);
        let data = self.znodes.wait(&path).await;
        assert_eq!(znode::payload(&path, &data).unwrap(), b"");
    }

    async fn abort_reason(&self, instance: &str) -> String {
        let path = self.path("abort", instance);
        let data = self.znodes.wait(&path).await;
        let why = znode::decode_abort(&path, &data).unwrap();
        why.strip_prefix(&format!("{}: ", self.server)).expect("it names the server").to_string()
    }

    fn clear(&self, instance: &str) {
        for part in ["acquired", "reached", "abort"] {
            self.znodes.remove(&self.path(part, instance));
        }
    }

    async fn eventually(&self, what: &str, holds: impl Fn() -> bool) {
        for _ in 0..2000 {
            if holds() {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
        panic!("never: {what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn work_is_done_between_the_barriers() {
    let lab = Lab::new(Plan::Work);
    lab.begin("s", b"x");
    lab.acquired("s").await;
    sleep(Duration::from_millis(50)).await;
    assert!(lab.worked.lock().is_empty(), "the work has begun before all servers were ready");
    lab.reach("s");
    lab.completed("s").await;
    assert_eq!(*lab.worked.lock(), ["s"]);
    assert_eq!(lab.znodes.get(&lab.path("abort", "s")), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_can_come_again() {
    let lab = Lab::new(Plan::Work);
    for round in 1..=3 {
        lab.begin("s", b"x");
        lab.acquired("s").await;
        lab.reach("s");
        lab.completed("s").await;
        lab.eventually("worked", || lab.worked.lock().len() == round).await;
        lab.clear("s"); // and comes again before the list was read
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn procedures_that_were_there_before_are_joined() {
    let lab = Lab::new(Plan::Work);
    lab.znodes.is_away.store(true, Ordering::Relaxed);
    lab.begin("s", b"x");
    lab.reach("s");
    sleep(PAUSE).await;
    assert_eq!(lab.znodes.get(&lab.own("acquired", "s")), None);
    lab.znodes.is_away.store(false, Ordering::Relaxed);
    lab.completed("s").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_are_told() {
    let lab = Lab::new(Plan::Fail);
    lab.begin("s", b"x");
    lab.acquired("s").await;
    lab.reach("s");
    assert_eq!(lab.abort_reason("s").await, "no disk");
    assert_eq!(lab.znodes.get(&lab.own("reached", "s")), None);

    let lab = Lab::new(Plan::Panic);
    lab.begin("s", b"x");
    lab.reach("s");
    assert!(lab.abort_reason("s").await.contains("the work has ended by a failure"));
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_aborts_and_empty_znodes_do_not() {
    let lab = Lab::new(Plan::Work);
    lab.znodes.put(&lab.path("acquired", "empty"), b"");
    lab.znodes.put(&lab.path("acquired", "garbage"), b"\xff\xff\xff\xff\xff garbage");
    lab.znodes.put(&lab.path("acquired", "other"), b"no magic");
    lab.begin("wrong", b"wrong");
    assert!(lab.abort_reason("garbage").await.contains("acquired/garbage"));
    assert!(lab.abort_reason("other").await.contains("not \"PBUF\""));
    assert_eq!(lab.abort_reason("wrong").await, "wrong data");
    lab.begin("s", b"x"); // goes on
    lab.reach("s");
    lab.completed("s").await;
    assert_eq!(lab.znodes.get(&lab.path("abort", "empty")), None);
    for instance in ["empty", "garbage", "other", "wrong"] {
        assert_eq!(lab.znodes.get(&lab.own("acquired", instance)), None, "{instance}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn aborts_of_others_are_heard() {
    let lab = Lab::new(Plan::Hang);
    lab.begin("before", b"x");
    lab.acquired("before").await;
    lab.znodes.put(&lab.path("abort", "before"), b"garbage");
    lab.begin("during", b"x");
    lab.reach("during");
    lab.eventually("begun", || *lab.worked.lock() == ["during"]).await;
    assert!(!lab.cancelled.load(Ordering::Relaxed));
    lab.znodes.put(&lab.path("abort", "during"), b"");
    lab.eventually("cancelled", || lab.cancelled.load(Ordering::Relaxed)).await;
    lab.reach("before");
    sleep(Duration::from_millis(50)).await;
    assert_eq!(*lab.worked.lock(), ["during"]);

    // One that is there first keeps the server out.
    lab.znodes.put(&lab.path("abort", "late"), b"");
    lab.begin("late", b"x");
    sleep(Duration::from_millis(50)).await;
    assert_eq!(lab.znodes.get(&lab.own("acquired", "late")), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_removed_is_cancelled_and_not_aborted() {
    let lab = Lab::new(Plan::Hang);
    lab.begin("s", b"x");
    lab.reach("s");
    lab.eventually("begun", || *lab.worked.lock() == ["s"]).await;
    lab.clear("s");
    lab.eventually("cancelled", || lab.cancelled.load(Ordering::Relaxed)).await;
    sleep(Duration::from_millis(50)).await;
    assert_eq!(lab.znodes.get(&lab.path("abort", "s")), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn limits() {
    let lab = Lab::limited(Plan::Work, Duration::from_millis(100));
    lab.begin("slow", b"x");
    assert!(lab.abort_reason("slow").await.contains("longer than 100ms"));

    let lab = Lab::new(Plan::Work);
    for number in 0..RUNNING_MAX {
        lab.begin(&format!("s{number}"), b"x");
        lab.acquired(&format!("s{number}")).await;
    }
    lab.begin("many", b"x");
    assert!(lab.abort_reason("many").await.contains("run here already"));
    lab.reach("s0");
    lab.completed("s0").await;
    // A place is free when the task of s0 has ended, a moment after its znode is there.
    lab.eventually("a place is free", || {
        if lab.znodes.get(&lab.path("abort", "many")).is_some() {
            lab.clear("many");
            lab.begin("many", b"x");
        }
        lab.znodes.get(&lab.own("acquired", "many")).is_some()
    })
    .await;
}
