//! Calls that were slow or whose answers were large: the last ones in memory (HBase: `NamedQueueRecorder`).
//!
//! A call is judged when the socket has taken its answer, wherever it waited. Only then is anything written down, so a
//! call that is neither slow nor large costs nothing here. What a long call did while it was put aside was noted
//! before; the two are brought together by the connection and the client's number for the call.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use halcyon_env::{Lookups, Mutex, Stall};
use halcyon_rpc::{CallClass, NotedCall, Terms};

use crate::calls::asked::Asked;
use crate::calls::time_parts::{Noted, TimeParts, parts};

/// Long calls that wait for their answer to go to the socket. Of more, nothing is noted.
const NOTED_MAX: usize = 4096;
/// Stalls that are kept with one call, the longest.
const STALLS_MAX: usize = 5;
/// Lines of the log in one second. Of more only the number is told.
const LINES_PER_SECOND_MAX: u64 = 100;

/// A call that was slow, or whose answer was large, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowCall {
    pub is_slow: bool,
    pub is_large: bool,
    pub failed: bool,
    /// When it arrived, in milliseconds since 1970.
    pub received_ms: i64,
    pub class: CallClass,
    pub method: String,
    /// Name of the region; empty if the call has none.
    pub region: Bytes,
    /// What it asked for, in HBase's words: region, row, number of actions.
    pub param: String,
    /// Of a Multi: gets, mutations, calls of endpoints.
    pub actions: Option<[i32; 3]>,
    /// Address as `host:port`.
    pub client: String,
    /// Empty if the connection named none.
    pub user: String,
    pub response_bytes: u64,
    /// Where its time went.
    pub parts: TimeParts,
    /// Times that it read from disk on the disk pool: what it asked for was not in the cache.
    pub disk_reads: u64,
    /// Lookups of blocks, of a traced call.
    pub lookups: Lookups,
    /// What was slow in the server meanwhile, the longest first: cause, what, time.
    pub stalls: Vec<(&'static str, String, Duration)>,
}

impl SlowCall {
    /// From its arrival until the socket had taken its answer.
    pub fn took(&self) -> Duration {
        self.parts.sum()
    }

    /// Before it began (HBase: queue time).
    pub fn queued(&self) -> Duration {
        self.parts.queue + self.parts.memory
    }

    /// What is neither the queue's nor the network's (HBase: processing time).
    pub fn processed(&self) -> Duration {
        self.took().saturating_sub(self.queued() + self.parts.network)
    }

    /// `queue 3 ms, disk 20 ms`: parts of a millisecond or more, and the stalls meanwhile.
    pub fn where_text(&self) -> String {
        let long = |time: &Duration| time.as_millis() > 0;
        let parts = self.parts.named().into_iter().filter(|(_, time)| long(time));
        let mut texts: Vec<String> =
            parts.map(|(name, time)| format!("{name} {} ms", time.as_millis())).collect();
        if self.disk_reads > 0 {
            texts.push(format!("{} cache misses", self.disk_reads));
        }
        for (cause, what, time) in &self.stalls {
            texts.push(format!("stall {cause} {} ms ({what})", time.as_millis()));
        }
        texts.join(", ")
    }
}

/// *Thread safety*: all methods from any thread; slow calls take a short lock.
pub(crate) struct SlowCalls {
    kept_max: usize,
    /// By connection and number of the call.
    noted: Mutex<HashMap<(u64, u32), Noted>>,
    kept: Mutex<VecDeque<SlowCall>>,
    lines: Lines,
}

impl SlowCalls {
    /// Keeps the last `kept_max` calls.
    pub(crate) fn new(kept_max: usize) -> SlowCalls {
        SlowCalls { kept_max, noted: Mutex::default(), kept: Mutex::default(), lines: Lines::default() }
    }

    /// Adds to what is noted of a call that took long. Its answer is not on the socket yet.
    pub(crate) fn note(&self, terms: &Terms, add: impl FnOnce(&mut Noted)) {
        let mut noted = self.noted.lock();
        let key = (terms.connection.id, terms.call_id);
        if noted.len() < NOTED_MAX || noted.contains_key(&key) {
            add(noted.entry(key).or_default());
        }
    }

    /// What is known of a call that has ended, slow or not. `recent` are the latest stalls, `region_of` knows the region of
    /// a scanner. Forgets what was noted of it.
    pub(crate) fn describe(
        &self,
        call: &NotedCall<'_>,
        (is_slow, is_large): (bool, bool),
        now_ms: i64,
        recent: &[Stall],
        region_of: impl FnOnce(u64) -> Option<Bytes>,
    ) -> SlowCall {
        let took = Duration::from_nanos(call.took_ns());
        let received_ms = now_ms - i64::try_from(took.as_millis()).unwrap_or(i64::MAX);
        let noted = self.take_noted(call);
        let stalls = longest(recent, received_ms);
        let log_stall = stalls.iter().find(|(cause, ..)| *cause == "log").map(|(.., time)| *time);
        let log_stall = log_stall.unwrap_or_default().max(Duration::from_nanos(call.batch_ns));
        let (parts, disk_reads) = parts(call, noted.as_ref(), log_stall);
        let lookups = noted.as_ref().map(|noted| noted.lookups).unwrap_or_default();
        let asked = Asked::of(call.method, call.param);
        let named = [asked.region, noted.map(|noted| noted.region).unwrap_or_default()];
        let region = named.into_iter().find(|name| !name.is_empty());
        let region = region.or_else(|| asked.scanner.and_then(region_of)).unwrap_or_default();
        SlowCall {
            is_slow,
            is_large,
            failed: call.failed,
            received_ms,
            class: call.class,
            method: call.method.to_string(),
            region,
            param: asked.param,
            actions: asked.actions,
            client: call.connection.peer.clone(),
            user: call.connection.user.clone().unwrap_or_default(),
            response_bytes: call.response_bytes,
            parts,
            disk_reads,
            lookups,
            stalls,
        }
    }

    /// Keeps a call that was slow or large.
    pub(crate) fn keep(&self, slow: SlowCall) {
        let mut kept = self.kept.lock();
        kept.push_back(slow);
        let surplus = kept.len().saturating_sub(self.kept_max);
        kept.drain(..surplus);
    }

    fn take_noted(&self, call: &NotedCall<'_>) -> Option<Noted> {
        self.noted.lock().remove(&(call.connection.id, call.call_id))
    }

    /// Forgets what was noted of calls whose answers nobody takes.
    pub(crate) fn connection_closed(&self, id: u64) {
        let mut noted = self.noted.lock();
        if !noted.is_empty() {
            noted.retain(|(connection, _), _| *connection != id);
        }
    }

    /// The newest first.
    pub(crate) fn kept(&self) -> Vec<SlowCall> {
        self.kept.lock().iter().rev().cloned().collect()
    }

    pub(crate) fn clear(&self) {
        self.kept.lock().clear();
    }

    /// Whether the log may have one more line in this second; with it, how many were left out before.
    pub(crate) fn next_line(&self, now_ms: i64) -> Option<u64> {
        self.lines.next(now_ms.unsigned_abs() / 1000)
    }
}

/// Counts lines of the log. A storm of slow calls must not fill the disk.
#[derive(Default)]
struct Lines {
    second: AtomicU64,
    written: AtomicU64,
    left_out: AtomicU64,
}

impl Lines {
    fn next(&self, second: u64) -> Option<u64> {
        if self.second.swap(second, Ordering::Relaxed) != second {
            self.written.store(0, Ordering::Relaxed);
        }
        if self.written.fetch_add(1, Ordering::Relaxed) < LINES_PER_SECOND_MAX {
            return Some(self.left_out.swap(0, Ordering::Relaxed));
        }
        self.left_out.fetch_add(1, Ordering::Relaxed);
        None
    }
}

/// The longest stalls that ended since.
fn longest(recent: &[Stall], since_ms: i64) -> Vec<(&'static str, String, Duration)> {
    let mut meanwhile: Vec<&Stall> = recent.iter().filter(|stall| stall.at_ms >= since_ms).collect();
    meanwhile.sort_by_key(|stall| std::cmp::Reverse(stall.time));
    let kept = meanwhile.into_iter().take(STALLS_MAX);
    kept.map(|stall| (stall.cause, stall.detail.clone(), stall.time)).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use halcyon_proto::pb;
    use halcyon_rpc::Connection;
    use prost::Message;

    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn connection(id: u64) -> Arc<Connection> {
        let (peer, user) = (format!("10.0.0.{id}:5"), Some("ann".to_string()));
        Arc::new(Connection { user, ..Connection::new(id, peer) })
    }

    fn terms(connection: &Arc<Connection>, call_id: u32) -> Terms {
        Terms {
            class: CallClass::Read,
            deadline_ns: u64::MAX,
            connection: connection.clone(),
            call_id,
            is_traced: false,
            attributes: Vec::new(),
        }
    }

    fn get() -> Bytes {
        let region = pb::RegionSpecifier { r#type: 1, value: Bytes::from_static(b"t,a") };
        let get = pb::Get { row: Bytes::from_static(b"r"), ..Default::default() };
        pb::GetRequest { region, get }.encode_to_vec().into()
    }

    fn keep(
        calls: &SlowCalls,
        connection: &Connection,
        call_id: u32,
        waited_ms: u64,
        recent: &[Stall],
    ) -> SlowCall {
        let param = get();
        let call = NotedCall {
            connection,
            class: CallClass::Read,
            call_id,
            method: "Get",
            param: &param,
            failed: false,
            response_bytes: 77,
            thread_ns: 0,
            waited_ns: waited_ms * 1_000_000,
            network_ns: 0,
            is_traced: false,
            batch_ns: 0,
        };
        let slow = calls.describe(&call, (true, false), 10_000, recent, |_| None);
        calls.keep(slow.clone());
        slow
    }

    #[test]
    fn a_slow_call_says_where_its_time_went() {
        let (calls, one, other) = (SlowCalls::new(10), connection(1), connection(2));
        let note = |connection, call_id, queued, ran| {
            calls.note(&terms(connection, call_id), |noted| {
                noted.queued += queued;
                noted.ran += ran;
            });
        };
        note(&one, 7, ms(600), ms(100));
        note(&one, 7, ms(100), ms(100)); // a second step of the call
        note(&other, 7, ms(1), ms(800));
        let stall = |at_ms, cause, time| Stall { at_ms, cause, detail: "a file".to_string(), time };
        let stalls =
            [stall(8_900, "sync", ms(500)), stall(9_500, "read", ms(20)), stall(9_800, "read", ms(150))];
        let slow = keep(&calls, &one, 7, 1000, &stalls);
        assert_eq!((slow.received_ms, &*slow.method, &slow.region[..]), (9_000, "Get", &b"t,a"[..]));
        assert_eq!((&*slow.client, &*slow.user, slow.response_bytes), ("10.0.0.1:5", "ann", 77));
        assert_eq!((slow.parts.queue, slow.parts.work), (ms(800), ms(200)));
        assert_eq!((slow.took(), slow.queued(), slow.processed()), (ms(1000), ms(800), ms(200)));
        let causes: Vec<_> = slow.stalls.iter().map(|(cause, _, time)| (*cause, *time)).collect();
        assert_eq!(causes, [("read", ms(150)), ("read", ms(20))], "what ended before is not among them");
        assert_eq!(
            slow.where_text(),
            "queue 800 ms, work 200 ms, stall read 150 ms (a file), stall read 20 ms (a file)"
        );
        let again = keep(&calls, &one, 7, 1000, &[]);
        assert_eq!(again.parts.other, ms(1000), "what was noted belongs to one call");
        calls.connection_closed(2);
        assert_eq!(keep(&calls, &other, 7, 900, &[]).parts.other, ms(900));
    }

    #[test]
    fn memory_is_bounded_and_the_newest_come_first() {
        let (calls, one) = (SlowCalls::new(3), connection(1));
        for took_ms in 1..=5 {
            keep(&calls, &one, 1, took_ms, &[]);
        }
        let kept: Vec<_> = calls.kept().iter().map(|call| call.took().as_millis()).collect();
        assert_eq!(kept, [5, 4, 3]);
        for call_id in 0..NOTED_MAX as u32 + 7 {
            calls.note(&terms(&one, call_id), |noted| noted.ran = ms(1));
        }
        assert_eq!(calls.noted.lock().len(), NOTED_MAX);
        calls.clear();
        assert_eq!(calls.kept(), []);
    }

    #[test]
    fn a_storm_of_slow_calls_writes_few_lines() {
        let calls = SlowCalls::new(1);
        let lines = |second_ms| (0..1000).filter_map(|_| calls.next_line(second_ms)).collect::<Vec<_>>();
        assert_eq!(lines(5_000), vec![0; LINES_PER_SECOND_MAX as usize]);
        let next = lines(6_000);
        assert_eq!((next[0], next[1], next.len() as u64), (900, 0, LINES_PER_SECOND_MAX));
    }
}
