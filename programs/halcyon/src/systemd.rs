//! What the server tells systemd: that it is ready, that it is alive, that it stops (sd_notify(3)).
//!
//! systemd names its socket in `NOTIFY_SOCKET`, and the time after which a silent service is killed in `WATCHDOG_USEC`.
//! Without these variables nothing is sent. The server reports that it is alive only after it has seen all event loops and
//! the WAL thread come round: a process whose calls hang is as dead to clients as one that has ended.

use std::sync::Arc;
use std::time::Duration;

use halcyon_regionserver::RegionServer;
use halcyon_rpc::EventLoops;
use sd_notify::NotifyState;

use crate::keeper;

/// Threads are checked this many times within the time that systemd allows.
const CHECKS_PER_TIMEOUT: u32 = 3;

/// The server answers clients. Starts the reports to the watchdog, if systemd wants them; they end with the region server.
pub fn ready(event_loops: Arc<EventLoops>, region_server: &Arc<RegionServer>) {
    notify(NotifyState::Ready);
    let Some(timeout) = keeper::watchdog_timeout() else { return };
    let watchdog =
        Watchdog { event_loops, region_server: Arc::downgrade(region_server), wal_rounds: None, timeout };
    tokio::spawn(watchdog.run());
}

/// The server has begun to stop.
pub fn stopping() {
    notify(NotifyState::Stopping);
}

fn notify(state: NotifyState<'_>) {
    if let Err(error) = keeper::notify(&state) {
        tracing::warn!(%error, "systemd cannot be notified");
    }
}

struct Watchdog {
    event_loops: Arc<EventLoops>,
    region_server: std::sync::Weak<RegionServer>,
    /// At the last check.
    wal_rounds: Option<u64>,
    timeout: Duration,
}

impl Watchdog {
    async fn run(mut self) {
        let period = self.timeout / CHECKS_PER_TIMEOUT;
        loop {
            match self.stuck(period).await {
                Stuck::Nothing => notify(NotifyState::Watchdog),
                Stuck::Thread(name) => {
                    tracing::error!(thread = name, ?period, "a thread hangs; the watchdog is not answered");
                }
                Stuck::Ended => return,
            }
            tokio::time::sleep(period).await;
        }
    }

    /// Whether a thread that calls need has not come round since the last check.
    async fn stuck(&mut self, timeout: Duration) -> Stuck {
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

enum Stuck {
    Nothing,
    Thread(String),
    /// The region server has ended.
    Ended,
}
