//! Whether the threads that calls need come round: the event loops, and the thread of the WAL.
//!
//! A process whose calls hang is as dead to clients as one that has ended, although its session with ZooKeeper goes on living.

use std::sync::{Arc, Weak};
use std::time::Duration;

use halcyon_regionserver::RegionServer;
use halcyon_rpc::EventLoops;

/// Threads are looked at so many times within the time that they may take. A process that was frozen as a whole finds itself late once,
/// and not so often.
const LOOKS: u32 = 5;

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

/// Waits until an event loop has not come round for `limit`, and says which; for ever if that is zero. The thread of the WAL is not looked
/// at: it may wait for HDFS, and has limits of its own for that.
pub async fn loop_stuck_for(event_loops: Arc<EventLoops>, limit: Duration) -> String {
    if limit.is_zero() {
        return std::future::pending().await;
    }
    let period = limit / LOOKS;
    let look = async || match event_loops.stuck_loop(period).await {
        Some(index) => Stuck::Thread(format!("network-{index}")),
        None => Stuck::Nothing,
    };
    let name = stuck_again_and_again(look, period).await;
    format!("its thread {name} has not come round for {limit:?}")
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
}
