//! Whether a server serves, stops or has given up, and why.
//!
//! *Thread safety*: all methods from any thread. *Invariants*: a server that stopped serving never serves again; one
//! that gave up stays so.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use halcyon_env::{Condvar, Mutex, vitals};
use halcyon_rpc::{Connection, RpcError};
use halcyon_schema::ServerName;

/// Stages of a server's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Life {
    Serving,
    Stopping,
    /// Gave up; the next start recovers its WALs.
    Aborted,
}

impl Life {
    fn of(stored: u8) -> Life {
        match stored {
            stored if stored == Life::Serving as u8 => Life::Serving,
            stored if stored == Life::Stopping as u8 => Life::Stopping,
            _ => Life::Aborted,
        }
    }
}

/// Ends the wait of a thread, so that it sees that the server stops.
type Waker = Box<dyn Fn() + Send + Sync>;
type MayAnswer = Box<dyn Fn() -> bool + Send + Sync>;
type NewestEpoch = Box<dyn Fn() -> u64 + Send + Sync>;

/// See the head of the file.
pub(crate) struct Lifecycle {
    server_name: ServerName,
    life: AtomicU8,
    failure: Mutex<Option<String>>,
    /// Why somebody wants the server to stop.
    stop_wanted: Mutex<Option<String>>,
    pauses: Mutex<()>,
    ended: Condvar,
    /// Called once, when the server stops serving.
    wakers: Mutex<Vec<Waker>>,
    /// Whether the server may answer now; not set where master and region server are one process.
    may_answer: OnceLock<MayAnswer>,
    /// The greatest epoch of a master that has called.
    master_epoch: AtomicU64,
    /// The epoch of the last master that became active, as the coordination service says; not set where there is none.
    newest_epoch: OnceLock<NewestEpoch>,
    master_writes: Arc<Mutex<MasterWrites>>,
}

/// How many writes of masters to system tables have begun and are not done, by the epoch of the master.
type MasterWrites = BTreeMap<u64, usize>;

/// A write of a master that has begun. It is done when this is dropped.
pub(crate) struct MasterWrite {
    epoch: u64,
    all: Arc<Mutex<MasterWrites>>,
}

impl Drop for MasterWrite {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        let count = all.get_mut(&self.epoch).expect("it was counted");
        *count -= 1;
        if *count == 0 {
            all.remove(&self.epoch);
        }
    }
}

impl Lifecycle {
    pub(crate) fn new(server_name: ServerName) -> Lifecycle {
        Lifecycle {
            server_name,
            life: AtomicU8::new(Life::Serving as u8),
            failure: Mutex::new(None),
            stop_wanted: Mutex::new(None),
            pauses: Mutex::new(()),
            ended: Condvar::new(),
            wakers: Mutex::default(),
            may_answer: OnceLock::new(),
            master_epoch: AtomicU64::new(0),
            newest_epoch: OnceLock::new(),
            master_writes: Arc::default(),
        }
    }

    /// Calls are answered only while `may_answer` is true. The first one stays.
    pub(crate) fn answer_while(&self, may_answer: impl Fn() -> bool + Send + Sync + 'static) {
        let _ = self.may_answer.set(Box::new(may_answer));
    }

    /// An epoch above `newest_epoch` is no master's. The first one stays.
    pub(crate) fn check_epochs_by(&self, newest_epoch: impl Fn() -> u64 + Send + Sync + 'static) {
        let _ = self.newest_epoch.set(Box::new(newest_epoch));
    }

    pub(crate) fn server_name(&self) -> &ServerName {
        &self.server_name
    }

    #[inline]
    fn life(&self) -> Life {
        Life::of(self.life.load(Ordering::Acquire))
    }

    #[inline]
    pub(crate) fn is_serving(&self) -> bool {
        self.life() == Life::Serving
    }

    pub(crate) fn has_aborted(&self) -> bool {
        self.life() == Life::Aborted
    }

    /// Refuses calls to a server that stops or has given up.
    #[inline]
    pub(crate) fn check_serving(&self) -> Result<(), RpcError> {
        match self.life() {
            Life::Serving => match self.may_answer.get() {
                Some(may_answer) if !may_answer() => Err(RpcError::server_not_running_yet(format!(
                    "Server {} has not heard of the coordination service for long",
                    self.server_name
                ))),
                _ => Ok(()),
            },
            Life::Stopping => {
                Err(RpcError::region_server_stopped(format!("Server {} is stopping", self.server_name)))
            }
            Life::Aborted => {
                Err(RpcError::region_server_aborted(format!("Server {} aborting", self.server_name)))
            }
        }
    }

    /// Refuses calls of a master that was deposed: one with a greater epoch has called before. It takes no more orders and
    /// no more rows of `hbase:meta` from it, which may have been on their way while that master was frozen.
    ///
    /// A greater epoch counts only if the coordination service knows it. Else a client that claims one, or the master of another cluster,
    /// would keep all masters of this one away until the server starts again. A new master may call before the server has seen its
    /// election: it is told to come again.
    #[inline]
    pub(crate) fn check_master(&self, connection: &Connection) -> Result<(), RpcError> {
        let Some(epoch) = connection.master_epoch else { return Ok(()) };
        if epoch > self.master_epoch.load(Ordering::Acquire) {
            self.check_epoch(epoch)?;
        }
        let newest = self.master_epoch.fetch_max(epoch, Ordering::AcqRel);
        if epoch >= newest {
            return Ok(());
        }
        let text = format!(
            "the master with epoch {epoch} was deposed: one with epoch {newest} has called {}",
            self.server_name
        );
        tracing::warn!(epoch, newest, "a call of a master that was deposed is refused");
        Err(RpcError::master_not_running(text))
    }

    /// A master begins to write rows. `None` of others. An error as of [`Lifecycle::check_master`].
    pub(crate) fn begin_master_write(
        &self,
        connection: &Connection,
    ) -> Result<Option<MasterWrite>, RpcError> {
        let Some(epoch) = connection.master_epoch else { return Ok(None) };
        let mut all = self.master_writes.lock();
        // While the lock is held: a newer master that calls from here on finds this write in the count.
        self.check_master(connection)?;
        *all.entry(epoch).or_default() += 1;
        Ok(Some(MasterWrite { epoch, all: Arc::clone(&self.master_writes) }))
    }

    /// Keeps a master from rows while a write of one before it is under way. It waits for the WAL, perhaps for seconds: a new master would
    /// read `hbase:meta` without it, and act on that, and then it would be there.
    pub(crate) fn check_writes_before(&self, connection: &Connection) -> Result<(), RpcError> {
        let Some(epoch) = connection.master_epoch else { return Ok(()) };
        let first = self.master_writes.lock().first_key_value().map(|(before, count)| (*before, *count));
        let Some((before, count)) = first.filter(|(before, _)| *before < epoch) else { return Ok(()) };
        tracing::info!(epoch, before, count, "a master waits for writes of one before it");
        Err(RpcError::server_not_running_yet(format!(
            "Server {} has not done {count} writes of the master with epoch {before}, which the one with epoch {epoch} has to see",
            self.server_name
        )))
    }

    fn check_epoch(&self, epoch: u64) -> Result<(), RpcError> {
        let Some(newest) = self.newest_epoch.get().map(|newest| newest()).filter(|newest| epoch > *newest)
        else {
            return Ok(());
        };
        tracing::info!(
            epoch,
            newest,
            "a call with an epoch that no master of this cluster has yet is refused"
        );
        Err(RpcError::server_not_running_yet(format!(
            "Server {} has not heard of a master with epoch {epoch}: the newest one has epoch {newest}",
            self.server_name
        )))
    }

    /// Why the server has given up; `None` while it has not.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// Asks whoever runs the server to stop it. The first reason stays.
    pub(crate) fn want_stop(&self, reason: &str) {
        tracing::info!(server = %self.server_name, reason, "the server is asked to stop");
        self.stop_wanted.lock().get_or_insert_with(|| reason.to_string());
    }

    pub(crate) fn stop_wanted(&self) -> Option<String> {
        self.stop_wanted.lock().clone()
    }

    /// Ends an orderly life. False if it had ended already.
    pub(crate) fn begin_stop(&self) -> bool {
        let (serving, stopping) = (Life::Serving as u8, Life::Stopping as u8);
        let left = self.life.compare_exchange(serving, stopping, Ordering::AcqRel, Ordering::Acquire);
        self.wake_all();
        left.is_ok()
    }

    /// Gives up, also during an orderly stop. The first reason stays.
    pub(crate) fn abort(&self, reason: &str) {
        if Life::of(self.life.swap(Life::Aborted as u8, Ordering::AcqRel)) == Life::Aborted {
            return;
        }
        tracing::error!(server = %self.server_name, reason, "the server gives up");
        *self.failure.lock() = Some(reason.to_string());
        self.wake_all();
    }

    /// Has `waker` called when the server stops serving; at once if it has.
    pub(crate) fn on_end(&self, waker: impl Fn() + Send + Sync + 'static) {
        self.wakers.lock().push(Box::new(waker));
        if !self.is_serving() {
            self.wake_all();
        }
    }

    fn wake_all(&self) {
        drop(self.pauses.lock());
        self.ended.notify_all();
        // Each is needed once; what they hold may hold this.
        let wakers = std::mem::take(&mut *self.wakers.lock());
        wakers.iter().for_each(|wake| wake());
    }

    /// Waits by real time, so that a test's clock does not make threads spin. Ends early when the server stops.
    pub(crate) fn pause(&self, time: Duration) {
        let mut pauses = self.pauses.lock();
        if self.is_serving() {
            vitals::outside(|| self.ended.wait_for(&mut pauses, time));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    fn lifecycle() -> Lifecycle {
        Lifecycle::new(ServerName::new("h", 16020, 1))
    }

    #[test]
    fn a_master_that_was_deposed_is_refused() {
        let lifecycle = lifecycle();
        let of = |master_epoch| Connection { master_epoch, ..Connection::new(1, "a:1") };
        for epoch in [Some(3), Some(3), None, Some(5)] {
            lifecycle.check_master(&of(epoch)).unwrap();
        }
        let refused = lifecycle.check_master(&of(Some(4))).unwrap_err();
        assert!(refused.class.ends_with(".MasterNotRunningException"), "{}", refused.class);
        assert!(!refused.do_not_retry, "a step of a deposed master does not fail for good");
        lifecycle.check_master(&of(Some(5))).unwrap();
        lifecycle.check_master(&of(None)).unwrap(); // a master of HBase's, a client
    }

    /// A split wrote its rows of `hbase:meta` and waited for a DataNode that was frozen. The next master read that table without them, and had
    /// the parent opened; then the rows were there, and its daughters were opened as well.
    #[test]
    fn a_master_waits_for_the_writes_of_the_one_before() {
        let lifecycle = lifecycle();
        let of = |master_epoch| Connection { master_epoch, ..Connection::new(1, "a:1") };
        let (old, new) = (of(Some(3)), of(Some(4)));
        let writes = [(); 2].map(|()| lifecycle.begin_master_write(&old).unwrap().unwrap());
        lifecycle.check_writes_before(&old).unwrap();
        lifecycle.check_writes_before(&of(None)).unwrap();
        lifecycle.check_master(&new).unwrap();
        for write in writes {
            let refused = lifecycle.check_writes_before(&new).unwrap_err();
            assert!(refused.class.ends_with(".ServerNotRunningYetException"), "{}", refused.class);
            assert!(!refused.do_not_retry, "they are done soon");
            assert!(lifecycle.begin_master_write(&old).is_err(), "it was deposed");
            drop(write);
        }
        lifecycle.check_writes_before(&new).unwrap();
        assert!(lifecycle.begin_master_write(&of(None)).unwrap().is_none());
        let own = lifecycle.begin_master_write(&new).unwrap();
        lifecycle.check_writes_before(&new).unwrap();
        drop(own);
        assert!(lifecycle.master_writes.lock().is_empty());
    }

    /// One call with the greatest number kept all masters away until the server started again, and so did the master of a cluster with more
    /// elections that took the server for one of its own.
    #[test]
    fn an_epoch_that_no_master_has_keeps_none_away() {
        let (lifecycle, newest) = (lifecycle(), Arc::new(AtomicU64::new(3)));
        let seen = Arc::clone(&newest);
        lifecycle.check_epochs_by(move || seen.load(Ordering::Relaxed));
        let check = |epoch| {
            let connection = Connection { master_epoch: Some(epoch), ..Connection::new(1, "a:1") };
            lifecycle.check_master(&connection)
        };
        check(3).unwrap();
        for epoch in [u64::MAX, 50, 4] {
            let refused = check(epoch).unwrap_err();
            assert!(refused.class.ends_with(".ServerNotRunningYetException"), "{}", refused.class);
            assert!(!refused.do_not_retry, "its election is seen soon");
            check(3).unwrap();
        }
        newest.store(4, Ordering::Relaxed);
        check(4).unwrap();
        assert!(check(3).unwrap_err().class.ends_with(".MasterNotRunningException"));
        // What ZooKeeper says is asked for a rise only.
        newest.store(0, Ordering::Relaxed);
        check(4).unwrap();
    }

    #[test]
    fn each_stage_refuses_calls_with_its_own_exception() {
        let lifecycle = lifecycle();
        assert!(lifecycle.is_serving() && lifecycle.check_serving().is_ok());
        assert!(lifecycle.begin_stop());
        assert!(!lifecycle.begin_stop(), "a second stop does nothing");
        let stopping = lifecycle.check_serving().unwrap_err();
        assert!(stopping.class.ends_with(".RegionServerStoppedException"), "{}", stopping.class);
        lifecycle.abort("a flush failed");
        let aborted = lifecycle.check_serving().unwrap_err();
        assert!(aborted.class.ends_with(".RegionServerAbortedException"), "{}", aborted.class);
        lifecycle.abort("something else");
        assert_eq!(lifecycle.failure().as_deref(), Some("a flush failed"));
        assert!(!lifecycle.begin_stop(), "who gave up does not stop in order");
    }

    #[test]
    fn a_server_that_is_asked_to_stop_serves_until_it_is_stopped() {
        let lifecycle = lifecycle();
        assert_eq!(lifecycle.stop_wanted(), None);
        lifecycle.want_stop("maintenance");
        lifecycle.want_stop("once more");
        assert_eq!(lifecycle.stop_wanted().as_deref(), Some("maintenance"));
        assert!(lifecycle.is_serving());
    }

    #[test]
    fn wakers_run_once_and_late_ones_at_once() {
        let (lifecycle, woken) = (lifecycle(), Arc::new(AtomicUsize::new(0)));
        let waker = |woken: &Arc<AtomicUsize>| {
            let woken = Arc::clone(woken);
            move || {
                woken.fetch_add(1, Ordering::Relaxed);
            }
        };
        lifecycle.on_end(waker(&woken));
        assert_eq!(woken.load(Ordering::Relaxed), 0);
        lifecycle.begin_stop();
        lifecycle.abort("in addition");
        assert_eq!(woken.load(Ordering::Relaxed), 1);
        lifecycle.on_end(waker(&woken));
        assert_eq!(woken.load(Ordering::Relaxed), 2);
        lifecycle.pause(Duration::from_secs(3600)); // does not wait any more
    }
}
