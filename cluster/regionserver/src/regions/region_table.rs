//! The regions of this server by encoded name.
//!
//! *Thread safety*: a look-up holds a read lock for the time of one hash probe; opening and closing take the
//! write lock for as short. *Invariants*: a region is in the table from the moment its open began until its
//! close began; what an [`OnlineRegion`] is found for does not change while it is in the table.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use halcyon_cell::{Error, ErrorKind};
use halcyon_contract::remote_procedures::IS_CLOSING;
use halcyon_env::{Mutex, RwLock};
use halcyon_proto::pb;
use halcyon_region::Region;
use halcyon_rpc::RpcError;
use halcyon_schema::{RegionInfo, ServerName, parse_region_name};
use tokio::sync::watch;

use crate::coprocessors::RegionCoprocessors;
use crate::metrics::op_times::OpTable;

/// A region and what the server keeps beside it.
pub struct OnlineRegion {
    pub region: Arc<Region>,
    /// Classes in the JVM, or what reads with filters of its classes need of it; `None`: there is no JVM, and nothing else is looked at.
    pub(crate) coprocessors: Option<Arc<RegionCoprocessors>>,
    /// Tags the answers to its calls.
    pub(crate) ops: Arc<OpTable>,
    /// Is or will soon be in the flusher's queue.
    pub(crate) flush_queued: AtomicBool,
    /// Is or will soon be in the queue for in-memory compaction.
    pub(crate) memory_queued: AtomicBool,
    /// Is or will soon be in the queue of those whose blocks are read ahead.
    pub(crate) prefetch_queued: AtomicBool,
    /// Its flush has waited for the compactor and does not wait again.
    pub(crate) flush_waited: AtomicBool,
    /// The next queued flush takes all families, whatever the flush policy says.
    pub(crate) flush_everything: AtomicBool,
    /// Is or will soon be in one of the compactor's queues.
    pub(crate) compaction_queued: AtomicBool,
    /// Is or will soon be in the queue of those that look for new files of their primary.
    pub(crate) refresh_queued: AtomicBool,
    /// An administrator asked for a minor compaction: two files are enough for it.
    pub(crate) compaction_asked: AtomicBool,
    /// An administrator asked for a major compaction, and it has not begun.
    pub(crate) major_asked: AtomicBool,
    /// The compaction that has left the queue was asked for as a major one. Of none if `compaction_queued` is false.
    pub(crate) major_begun: AtomicBool,
    /// When the master was asked for a split, in `monotonic_ns`; 0: never.
    pub(crate) split_asked_ns: AtomicU64,
    /// Calls of endpoints since it was opened.
    pub(crate) endpoint_calls_count: AtomicU64,
}

impl OnlineRegion {
    pub(crate) fn new(
        region: Arc<Region>,
        ops: Arc<OpTable>,
        coprocessors: Option<Arc<RegionCoprocessors>>,
    ) -> Arc<OnlineRegion> {
        Arc::new(OnlineRegion {
            region,
            coprocessors,
            ops,
            flush_queued: AtomicBool::new(false),
            memory_queued: AtomicBool::new(false),
            prefetch_queued: AtomicBool::new(false),
            flush_waited: AtomicBool::new(false),
            flush_everything: AtomicBool::new(false),
            refresh_queued: AtomicBool::new(false),
            compaction_queued: AtomicBool::new(false),
            compaction_asked: AtomicBool::new(false),
            major_asked: AtomicBool::new(false),
            major_begun: AtomicBool::new(false),
            split_asked_ns: AtomicU64::new(0),
            endpoint_calls_count: AtomicU64::new(0),
        })
    }

    /// Whether it has coprocessors in the JVM.
    #[inline]
    pub(crate) fn is_hosted(&self) -> bool {
        self.coprocessors.as_ref().is_some_and(|coprocessors| !coprocessors.only_filters())
    }

    /// Whether a read has to go through the JVM: the region has coprocessors, or `filter` is of a class that only the JVM has.
    pub(crate) fn reads_hosted(&self, filter: Option<&pb::Filter>) -> bool {
        self.coprocessors.as_ref().is_some_and(|coprocessors| {
            !coprocessors.only_filters()
                || filter.is_some_and(|filter| halcyon_filter::check_filter(filter).is_err())
        })
    }

    /// Whether an administrator asked for a compaction that has not begun.
    pub(crate) fn is_compaction_asked(&self) -> bool {
        self.compaction_asked.load(Ordering::Acquire) || self.major_asked.load(Ordering::Acquire)
    }

    /// The region stands in no compaction queue.
    pub(crate) fn forget_compaction(&self) {
        self.compaction_asked.store(false, Ordering::Release);
        self.major_asked.store(false, Ordering::Release);
        self.compaction_queued.store(false, Ordering::Release);
    }
}

enum Slot {
    Opening(Begun),
    Online(Arc<OnlineRegion>),
    /// Refuses clients; stays until everything is on disk, so that it is not opened before.
    Closing(Arc<OnlineRegion>),
}

/// An opening, or the time before one that the master has announced. It is over when this is dropped.
struct Begun {
    at_ns: u64,
    over: watch::Sender<()>,
}

impl Begun {
    fn new(at_ns: u64) -> Begun {
        Begun { at_ns, over: watch::Sender::new(()) }
    }

    fn arrival(&self, is_opening: bool) -> Arrival {
        Arrival { is_opening, began_ns: self.at_ns, over: self.over.subscribe() }
    }
}

/// A region that is being opened, or will be soon.
pub(crate) struct Arrival {
    /// False: the master has announced it.
    pub is_opening: bool,
    /// When that began, in `monotonic_ns`.
    pub began_ns: u64,
    over: watch::Receiver<()>,
}

impl Arrival {
    /// Returns when the opening has begun, if it was announced; otherwise when the region is open, or could not be opened.
    pub(crate) async fn over(&mut self) {
        let _ = self.over.changed().await; // nothing is ever sent: it returns when the sender is gone
    }
}

/// See the head of the file.
pub struct RegionTable {
    /// For the message to clients that come to the wrong place.
    server_name: String,
    slots: RwLock<HashMap<EncodedName, Slot, BuildHasherDefault<EncodedNameHasher>>>,
    /// Regions that the master will have opened here soon. Locked after `slots`.
    announced: Mutex<HashMap<EncodedName, Begun, BuildHasherDefault<EncodedNameHasher>>>,
    /// Regions that are opening or announced, so that calls need not look for them while there are none.
    arrivals_count: AtomicUsize,
    /// Where regions went that were open here a short time ago.
    moved: Mutex<HashMap<EncodedName, Moved, BuildHasherDefault<EncodedNameHasher>>>,
}

/// Where a region went.
struct Moved {
    to: ServerName,
    /// Of its last opening here.
    open_seq_num: u64,
    at_ns: u64,
}

/// How long a region that was announced is waited for: the server that has it flushes it first.
const ANNOUNCED_KEPT_NS: u64 = 30_000_000_000;

const ANNOUNCED_MAX: usize = 10_000;

/// How long clients are told where a region went (HBase: `TIMEOUT_REGION_MOVED`).
const MOVED_KEPT_NS: u64 = 120_000_000_000;

const ENCODED_LEN_MAX: usize = 32;

/// 32 hexadecimal digits, or meta's decimal number followed by zeros.
#[derive(Clone, Copy, PartialEq, Eq)]
struct EncodedName([u8; ENCODED_LEN_MAX]);

impl EncodedName {
    fn new(name: &[u8]) -> Option<EncodedName> {
        if name.len() > ENCODED_LEN_MAX {
            return None;
        }
        let mut bytes = [0; ENCODED_LEN_MAX];
        bytes[..name.len()].copy_from_slice(name);
        Some(EncodedName(bytes))
    }

    fn text(&self) -> String {
        let len = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        String::from_utf8_lossy(&self.0[..len]).into_owned()
    }
}

impl std::hash::Hash for EncodedName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.0);
    }
}

/// The name is a digest already; its first half, mixed once, is hash enough.
#[derive(Default)]
struct EncodedNameHasher(u64);

impl Hasher for EncodedNameHasher {
    fn write(&mut self, bytes: &[u8]) {
        let word = |at: usize| {
            bytes.get(at..at + 8).map_or(0, |word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
        };
        let mixed = (self.0 ^ word(0)).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ word(8);
        self.0 = mixed.wrapping_mul(0xD6E8_FEB8_6659_FD93).rotate_left(29);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The part of a region name that identifies it: what stands between the last two dots, or all of it. `hbase:meta` and its
/// replicas have names of another form.
pub(crate) fn encoded_part(name: &[u8]) -> Cow<'_, [u8]> {
    match name {
        b"hbase:meta,,1" => Cow::Borrowed(META_ENCODED),
        [b'h', b'b', b'a', b's', b'e', b':', b'm', b'e', b't', b'a', b',', b',', ..] => {
            let number = parse_region_name(name).map(|parts| parts.replica_id).ok().filter(|id| *id > 0);
            let copy = number.map(|id| RegionInfo::meta().replica(id));
            copy.map_or(Cow::Borrowed(name), |copy| Cow::Owned(copy.encoded_name().as_bytes().to_vec()))
        }
        [start @ .., b'.'] if start.len() > ENCODED_LEN_MAX && start[start.len() - 33] == b'.' => {
            Cow::Borrowed(&start[start.len() - ENCODED_LEN_MAX..])
        }
        _ => Cow::Borrowed(name),
    }
}

const META_ENCODED: &[u8] = b"1588230740";

impl RegionTable {
    pub(crate) fn new(server_name: String) -> RegionTable {
        RegionTable {
            server_name,
            slots: RwLock::default(),
            announced: Mutex::default(),
            arrivals_count: AtomicUsize::new(0),
            moved: Mutex::default(),
        }
    }

    /// The region that a client's request names, by its name or encoded name whatever type it says, as 2.6 does it. One that
    /// is being closed because it moves counts as moved.
    pub fn find(&self, specifier: &pb::RegionSpecifier) -> Result<Arc<OnlineRegion>, RpcError> {
        self.find_for_admin(specifier).map_err(|error| self.moved_to(&specifier.value).unwrap_or(error))
    }

    /// As [`RegionTable::find`], but a region has moved only when it is closed. A master that looks whether the close is over
    /// must not take it for that before.
    pub(crate) fn find_for_admin(
        &self,
        specifier: &pb::RegionSpecifier,
    ) -> Result<Arc<OnlineRegion>, RpcError> {
        let encoded = encoded_part(&specifier.value);
        if let Some(name) = EncodedName::new(&encoded) {
            match self.slots.read().get(&name) {
                Some(Slot::Online(online)) => return Ok(online.clone()),
                Some(Slot::Opening(_)) => {
                    return Err(RpcError::region_opening(format!(
                        "Region {} is opening on {}",
                        text(&specifier.value),
                        self.server_name
                    )));
                }
                Some(Slot::Closing(_)) => {
                    let name = text(&specifier.value);
                    return Err(RpcError::not_serving_region(format!("{name} {IS_CLOSING}")));
                }
                None => {}
            }
        }
        Err(self.not_online(&specifier.value))
    }

    /// The region of an encoded name, if it is online.
    pub fn get(&self, encoded: &str) -> Option<Arc<OnlineRegion>> {
        match self.slots.read().get(&EncodedName::new(encoded.as_bytes())?)? {
            Slot::Online(online) => Some(online.clone()),
            Slot::Opening(_) | Slot::Closing(_) => None,
        }
    }

    /// Whether `online` still is what this server serves under its name.
    pub(crate) fn serves(&self, online: &Arc<OnlineRegion>) -> bool {
        let encoded = online.region.info().encoded_name();
        self.get(encoded).is_some_and(|current| Arc::ptr_eq(&current, online))
    }

    /// All regions that are online, in no order.
    pub fn online(&self) -> Vec<Arc<OnlineRegion>> {
        let slots = self.slots.read();
        let online = slots.values().filter_map(|slot| match slot {
            Slot::Online(online) => Some(online.clone()),
            Slot::Opening(_) | Slot::Closing(_) => None,
        });
        online.collect()
    }

    /// Whether any region is being opened or announced. One atomic load.
    #[inline]
    pub(crate) fn is_any_arriving(&self) -> bool {
        self.arrivals_count.load(Ordering::Relaxed) > 0
    }

    /// The opening of the region that a request names as `name`, or its announcement; `None`: there is neither.
    pub(crate) fn arrival_of(&self, name: &[u8]) -> Option<Arrival> {
        let name = EncodedName::new(&encoded_part(name))?;
        let slots = self.slots.read();
        match slots.get(&name) {
            Some(Slot::Opening(begun)) => Some(begun.arrival(true)),
            Some(Slot::Online(_) | Slot::Closing(_)) => None,
            None => self.announced.lock().get(&name).map(|begun| begun.arrival(false)),
        }
    }

    /// Remembers for a while that a region will be opened here, unless it is here, or too many are to be opened.
    pub(crate) fn announce(&self, encoded: &str, now_ns: u64) {
        let Some(name) = EncodedName::new(encoded.as_bytes()) else { return };
        let slots = self.slots.read();
        let mut announced = self.announced.lock();
        let count_before = announced.len();
        announced.retain(|_, begun| now_ns.saturating_sub(begun.at_ns) < ANNOUNCED_KEPT_NS);
        if !slots.contains_key(&name) && announced.len() < ANNOUNCED_MAX {
            announced.insert(name, Begun::new(now_ns));
        }
        self.arrivals_count.fetch_add(announced.len(), Ordering::Relaxed);
        self.arrivals_count.fetch_sub(count_before, Ordering::Relaxed);
    }

    /// Marks a region as opening; false if it is opening or online.
    pub(crate) fn begin_open(&self, encoded: &str, now_ns: u64) -> bool {
        let Some(name) = EncodedName::new(encoded.as_bytes()) else { return false };
        let mut slots = self.slots.write();
        if slots.contains_key(&name) {
            return false;
        }
        slots.insert(name, Slot::Opening(Begun::new(now_ns)));
        if self.announced.lock().remove(&name).is_none() {
            self.arrivals_count.fetch_add(1, Ordering::Relaxed);
        }
        self.moved.lock().remove(&name);
        true
    }

    /// Encoded names of the regions that are being opened, and when that began, in `monotonic_ns`.
    pub(crate) fn openings(&self) -> Vec<(String, u64)> {
        let slots = self.slots.read();
        let opening = slots.iter().filter_map(|(name, slot)| match slot {
            Slot::Opening(begun) => Some((name.text(), begun.at_ns)),
            Slot::Online(_) | Slot::Closing(_) => None,
        });
        opening.collect()
    }

    pub(crate) fn is_opening(&self, encoded: &str) -> bool {
        let name = EncodedName::new(encoded.as_bytes());
        name.is_some_and(|name| matches!(self.slots.read().get(&name), Some(Slot::Opening(_))))
    }

    /// Whether the region is being opened or closed.
    pub(crate) fn is_changing(&self, encoded: &str) -> bool {
        let name = EncodedName::new(encoded.as_bytes());
        let is_online = |slot: &Slot| matches!(slot, Slot::Online(_));
        name.is_some_and(|name| self.slots.read().get(&name).is_some_and(|slot| !is_online(slot)))
    }

    /// Remembers for a while where a region went that is closed now, so that clients are told.
    pub(crate) fn note_moved(&self, encoded: &str, to: &ServerName, open_seq_num: u64, now_ns: u64) {
        let Some(name) = EncodedName::new(encoded.as_bytes()) else { return };
        let mut moved = self.moved.lock();
        moved.retain(|_, known| now_ns.saturating_sub(known.at_ns) < MOVED_KEPT_NS);
        moved.insert(name, Moved { to: to.clone(), open_seq_num, at_ns: now_ns });
    }

    /// Ends what `begin_open` began: with the region, or without if it could not be opened.
    pub(crate) fn complete_open(&self, encoded: &str, online: Option<Arc<OnlineRegion>>) {
        let name = EncodedName::new(encoded.as_bytes()).expect("its open began with this name");
        assert!(
            online.as_ref().is_none_or(|online| online.region.info().encoded_name() == encoded),
            "{encoded} would be found under the name of another region"
        );
        let mut slots = self.slots.write();
        let before = match online {
            Some(online) => slots.insert(name, Slot::Online(online)),
            None => slots.remove(&name),
        };
        assert!(matches!(before, Some(Slot::Opening(_))), "an open of {encoded} ends that has not begun");
        let arrivals = self.arrivals_count.fetch_sub(1, Ordering::Relaxed);
        assert!(arrivals > 0, "an opening was not counted: calls would not wait for it");
    }

    /// Stops serving a region, which is to be closed now. Of a region that is closing already, that one; `None` if it is not
    /// here. `Busy` if it is opening: it will be online later.
    pub(crate) fn begin_close(&self, encoded: &str) -> Result<Option<Arc<OnlineRegion>>, Error> {
        let Some(name) = EncodedName::new(encoded.as_bytes()) else { return Ok(None) };
        let mut slots = self.slots.write();
        let Some(slot) = slots.get_mut(&name) else { return Ok(None) };
        match slot {
            Slot::Online(online) | Slot::Closing(online) => {
                let online = online.clone();
                *slot = Slot::Closing(online.clone());
                Ok(Some(online))
            }
            Slot::Opening(_) => Err(Error::new(ErrorKind::Busy, format!("{encoded} is opening"))),
        }
    }

    /// Forgets a region that is closed.
    pub(crate) fn complete_close(&self, closed: &Arc<OnlineRegion>) {
        let encoded = closed.region.info().encoded_name();
        let name = EncodedName::new(encoded.as_bytes()).expect("its close began with this name");
        let mut slots = self.slots.write();
        // Two that close it at once both come here, and it may be open again, and even closing.
        if matches!(slots.get(&name), Some(Slot::Closing(online)) if Arc::ptr_eq(online, closed)) {
            slots.remove(&name);
        }
    }

    pub(crate) fn not_online(&self, name: &[u8]) -> RpcError {
        let not_here =
            || RpcError::not_serving_region(format!("{} is not online on {}", text(name), self.server_name));
        self.moved_to(name).unwrap_or_else(not_here)
    }

    /// What a client is told of a region that was here a short time ago, and moved.
    fn moved_to(&self, name: &[u8]) -> Option<RpcError> {
        let name = EncodedName::new(&encoded_part(name))?;
        let moved = self.moved.lock();
        let known = moved.get(&name)?;
        let start_code = u64::try_from(known.to.start_code).unwrap_or(0);
        Some(RpcError::region_moved(&known.to.host, known.to.port, start_code, known.open_seq_num))
    }
}

/// Bytes as HBase prints them in messages.
pub(crate) fn text(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'\\' => out.push_str("\\x5C"),
            0x20..=0x7e => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\x{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use halcyon_schema::TableName;

    use super::*;

    /// A read that asks for a copy must not be answered by another one: its client is told whether the answer may be old.
    #[test]
    fn a_replica_is_not_answered_for_by_its_region() {
        let region = RegionInfo::new(TableName::parse(b"t").unwrap(), "a,b".into(), "c".into(), 7);
        let copy = region.replica(2);
        assert_eq!(&*encoded_part(copy.region_name()), copy.encoded_name().as_bytes());
        assert!(copy.encoded_name() != region.encoded_name());
        let copy = RegionInfo::meta().replica(1);
        assert_eq!(&*encoded_part(copy.region_name()), copy.encoded_name().as_bytes());
        assert_eq!(&*encoded_part(b"hbase:meta,,x"), b"hbase:meta,,x");
    }

    #[test]
    fn the_encoded_part_of_every_form_of_a_name() {
        let encoded = &b"2140f686c386930b96c060b1030c2875"[..];
        let name = [&b"t1,b,1700000000000."[..], encoded, b"."].concat();
        assert_eq!(&*encoded_part(&name), encoded);
        assert_eq!(&*encoded_part(encoded), encoded);
        assert_eq!(&*encoded_part(b"hbase:meta,,1"), META_ENCODED);
        assert_eq!(&*encoded_part(b""), b"");
        assert_eq!(&*encoded_part(b"."), b".");
        assert_eq!(&*encoded_part(&[b'.'; 33]), [b'.'; 33]);
    }

    #[test]
    fn unknown_and_opening_regions_are_told_apart() {
        let table = RegionTable::new("h,1,2".to_string());
        let specifier =
            pb::RegionSpecifier { r#type: 1, value: "t,\u{1},1.2140f686c386930b96c060b1030c2875.".into() };
        let class = |table: &RegionTable| table.find(&specifier).err().expect("not online");
        assert!(class(&table).class.ends_with(".NotServingRegionException"));
        assert_eq!(
            class(&table).message,
            "t,\\x01,1.2140f686c386930b96c060b1030c2875. is not online on h,1,2"
        );
        assert!(table.begin_open("2140f686c386930b96c060b1030c2875", 5));
        assert!(!table.begin_open("2140f686c386930b96c060b1030c2875", 5));
        assert_eq!(table.openings(), [("2140f686c386930b96c060b1030c2875".to_string(), 5)]);
        assert!(class(&table).class.ends_with(".RegionOpeningException"));
        table.complete_open("2140f686c386930b96c060b1030c2875", None);
        assert_eq!(table.openings(), []);
        assert!(class(&table).class.ends_with(".NotServingRegionException"));
    }

    #[tokio::test]
    async fn a_region_arrives_when_it_is_announced_and_when_it_opens() {
        let encoded = "2140f686c386930b96c060b1030c2875";
        let name = format!("t,,1.{encoded}.");
        let table = RegionTable::new("h,1,2".to_string());
        let arrival = || table.arrival_of(name.as_bytes());
        assert!(!table.is_any_arriving() && arrival().is_none());
        table.announce(encoded, 3);
        table.announce(encoded, 4);
        let mut announced = arrival().expect("it is announced");
        assert!(table.is_any_arriving() && !announced.is_opening && announced.began_ns == 4);
        let soon = std::time::Duration::from_millis(1);
        assert!(tokio::time::timeout(soon, announced.over()).await.is_err(), "nothing has happened yet");
        assert!(table.begin_open(encoded, 5));
        announced.over().await;
        let mut opening = arrival().expect("it is opening");
        assert!(table.is_any_arriving() && opening.is_opening && opening.began_ns == 5);
        assert!(tokio::time::timeout(soon, opening.over()).await.is_err(), "it is opening still");
        table.announce(encoded, 6); // comes too late
        table.complete_open(encoded, None);
        opening.over().await;
        assert!(!table.is_any_arriving() && arrival().is_none());
    }

    #[test]
    fn announcements_are_forgotten() {
        let table = RegionTable::new("h,1,2".to_string());
        table.announce("2140f686c386930b96c060b1030c2875", 5);
        table.announce("75d2e0c2f1d8b5d9a4b3c1f0e9d8c7b6", 5 + ANNOUNCED_KEPT_NS);
        assert!(table.arrival_of(b"2140f686c386930b96c060b1030c2875").is_none());
        assert!(table.begin_open("75d2e0c2f1d8b5d9a4b3c1f0e9d8c7b6", 9));
        table.complete_open("75d2e0c2f1d8b5d9a4b3c1f0e9d8c7b6", None);
        assert!(!table.is_any_arriving());
    }
}
