//! Whether the threads that calls need come round: the event loops, and those of WALs, flushes and the master's orders.
//!
//! They are looked at [`LOOKS`] times within the time that they may take. A process that was frozen as a whole finds itself late once,
//! and not so often.
//!
//! A process whose calls hang is as dead to clients as one that has ended, although its session with ZooKeeper goes on living.

use std::sync::{Arc, Weak};
use std::time::Duration;

use halcyon_env::vitals::{LOOKS, StuckThread};
use halcyon_regionserver::RegionServer;
use halcyon_rpc::EventLoops;

/// Looks at the threads of one server.
pub struct Progress {
    event_loops: Arc<EventLoops>,
    region_server: Weak<RegionServer>,
    /// At the last look.
    wal_rounds: Option<u64>,
}

/// What a look finds.
pub enum Stuck {
    Nothing,
    /// The thread with this name has not come round since the last look.
    Thread(String),
    /// The region server has ended.
    Ended,
}

impl Progress {
    pub fn new(event_loops: Arc<EventLoops>, region_server: &Arc<RegionServer>) -> Progress {
        Progress { event_loops, region_server: Arc::downgrade(region_server), wal_rounds: None }
    }

    /// Looks now, and gives event loops this time to come round.
    pub async fn look(&mut self, timeout: Duration) -> Stuck {
        let Some(wal_rounds) = self.region_server.upgrade().map(|server| server.wal_rounds()) else {
            return Stuck::Ended;
        };
        let before = self.wal_rounds.replace(wal_rounds);
        if before == Some(wal_rounds) {
            return Stuck::Thread("log".into());
        }
        match self.event_loops.stuck_loop(timeout).await {
            Some(index) => Stuck::Thread(format!("network-{index}")),
            None => Stuck::Nothing,
        }
    }
}

/// Waits until a thread that clients need is stuck for `limit`, and says which; for ever if that is zero.
pub async fn stuck_for(
    event_loops: Arc<EventLoops>,
    region_server: &Arc<RegionServer>,
    limit: Duration,
) -> String {
    if limit.is_zero() {
        return std::future::pending().await;
    }
    tokio::select! {
        text = loop_stuck_for(event_loops, limit) => text,
        text = thread_stuck_for(Arc::downgrade(region_server), limit) => text,
    }
}

/// The threads of the WAL are not among these: they may wait for HDFS, and have limits of their own for that.
async fn loop_stuck_for(event_loops: Arc<EventLoops>, limit: Duration) -> String {
    let period = limit / LOOKS;
    let look = async || match event_loops.stuck_loop(period).await {
        Some(index) => Stuck::Thread(format!("network-{index}")),
        None => Stuck::Nothing,
    };
    let name = stuck_again_and_again(look, period).await;
    format!("its thread {name} has not come round for {limit:?}")
}

/// Threads that have work and do not come on with it ([`halcyon_env::vitals`]).
async fn thread_stuck_for(region_server: Weak<RegionServer>, limit: Duration) -> String {
    let period = limit / LOOKS;
    let look = || region_server.upgrade().map(|server| server.look_at_threads(period));
    stuck_thread(look, limit).await
}

/// `look` returns `None` when the region server has ended.
async fn stuck_thread(look: impl Fn() -> Option<Vec<StuckThread>>, limit: Duration) -> String {
    loop {
        tokio::time::sleep(limit / LOOKS).await;
        let Some(late) = look() else { return std::future::pending().await };
        for StuckThread { name, thread, work, time, computes, .. } in
            late.iter().filter(|thread| thread.time >= limit / 2)
        {
            tracing::warn!(name, thread, work, ?time, computes, "a thread does not come on with its work");
        }
        if let Some(StuckThread { name, work, time, computes, .. }) = late.first().filter(|it| it.is_stuck) {
            let how = if *computes { "computes" } else { "sleeps" };
            return format!("its thread {name} {how} and has not come on for {time:?} with its work: {work}");
        }
    }
}

async fn stuck_again_and_again(mut look: impl AsyncFnMut() -> Stuck, period: Duration) -> String {
    let mut times = 0;
    loop {
        let begun = tokio::time::Instant::now();
        match look().await {
            Stuck::Nothing => times = 0,
            Stuck::Ended => return std::future::pending().await,
            Stuck::Thread(name) => {
                times += 1;
                tracing::warn!(thread = name, times, "a thread that calls need has not come round");
                if times >= LOOKS {
                    return name;
                }
            }
        }
        tokio::time::sleep_until(begun + period).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_millis(1);

    /// Whether a server whose looks find this (`x`: a thread is stuck) is taken for stuck.
    fn is_stuck(looks: &str) -> bool {
        let mut looks = looks.chars();
        let look = async || match looks.next() {
            Some('x') => Stuck::Thread("log".into()),
            Some(_) => Stuck::Nothing,
            None => Stuck::Ended,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let stuck = stuck_again_and_again(look, PERIOD);
            tokio::time::timeout(Duration::from_millis(200), stuck).await.is_ok_and(|name| name == "log")
        })
    }

    #[test]
    fn a_thread_that_is_late_once_is_not_stuck() {
        assert!(!is_stuck(""));
        assert!(!is_stuck("xxxx.xxxx.x"));
        assert!(is_stuck("x.xxxxx"));
    }
    #[test]
    fn a_stuck_thread_is_named_with_its_work() {
        let flusher = |seconds, is_stuck| StuckThread {
            name: "flusher-0".into(),
            thread: 5,
            work: "a flush of region r".into(),
            time: Duration::from_secs(seconds),
            computes: false,
            is_stuck,
        };
        let looks = std::cell::RefCell::new(vec![
            vec![flusher(15, true), flusher(15, false)],
            vec![flusher(12, false)],
            vec![],
        ]);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let why = runtime.block_on(stuck_thread(|| looks.borrow_mut().pop(), PERIOD * LOOKS));
        assert_eq!(
            why,
            "its thread flusher-0 sleeps and has not come on for 15s with its work: a flush of region r"
        );
        let ended = async { tokio::time::timeout(PERIOD * 20, stuck_thread(|| None, PERIOD)).await };
        assert!(runtime.block_on(ended).is_err(), "a server that has ended is not stuck");
    }
}
