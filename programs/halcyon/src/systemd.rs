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
use crate::progress::{Progress, Stuck};

/// Threads are checked this many times within the time that systemd allows.
const CHECKS_PER_TIMEOUT: u32 = 3;

/// The server answers clients. Starts the reports to the watchdog, if systemd wants them; they end with the region server.
pub fn ready(event_loops: Arc<EventLoops>, region_server: &Arc<RegionServer>) {
    notify(NotifyState::Ready);
    let Some(timeout) = keeper::watchdog_timeout() else { return };
    tokio::spawn(watch(Progress::new(event_loops, region_server), timeout));
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

async fn watch(mut progress: Progress, timeout: Duration) {
    let period = timeout / CHECKS_PER_TIMEOUT;
    loop {
        match progress.look(period).await {
            Stuck::Nothing => notify(NotifyState::Watchdog),
            Stuck::Thread(name) => {
                tracing::error!(thread = name, ?period, "a thread hangs; the watchdog is not answered");
            }
            Stuck::Ended => return,
        }
        tokio::time::sleep(period).await;
    }
}
