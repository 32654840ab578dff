//! Quotas: how much users, tables and namespaces may do here, and whether tables may still grow (HBase:
//! `RegionServerRpcQuotaManager`, `QuotaCache`, `RegionServerSpaceQuotaManager`).
//!
//! ```text
//! hbase:quota -> QuotaSource (the master) -> Quotas::reload -> State, swapped as one
//! call -> Quotas::begin: user, table, namespace, server -> OperationQuota, settled when it is dropped
//! ```
//!
//! A limiter outlives a reload: what was used stays used. Without a limit a call pays for one load of a flag.
//!
//! *Thread safety*: all methods from any thread.

mod operation;
mod rate_limiter;
mod settings;
mod space;
mod throttle;

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use halcyon_contract::{ALL_REGION_SERVERS, QuotaSource, QuotaSubject, QuotaView};
use halcyon_env::{Clock, Condvar, Mutex, RwLock};
use halcyon_proto::pb;
use halcyon_region::Mutation;
use halcyon_rpc::{Connection, RpcError};
use halcyon_schema::TableName;

use crate::background::workers::Worker;
use crate::lifecycle::Lifecycle;
use crate::metrics::counters::{Counters, RequestRate};
use crate::regions::region_table::{OnlineRegion, RegionTable};

pub(crate) use operation::{Intent, OperationQuota, ScanHistory};
use operation::{Limits, SizeRules};
pub use settings::QuotaSettings;
use space::SpaceState;
use throttle::{Throttle, US_OF_MS};

/// Users without quotas of their own that have limiters of their own; beyond, such users share one.
const DEFAULT_USERS_MAX: usize = 10_000;
/// Bytes of such a user's name, which a client chooses. Users with longer ones share that limiter, too.
const DEFAULT_USER_LEN_MAX: usize = 256;
/// Before quotas that could not be read are read again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// See the head of the file.
pub(crate) struct Quotas {
    settings: QuotaSettings,
    parts: QuotaParts,
    source: OnceLock<Weak<dyn QuotaSource>>,
    /// Some call may be limited.
    is_limiting: AtomicBool,
    /// Some table exceeds its space quota, or could with a bulk load.
    has_space_quotas: AtomicBool,
    state: RwLock<Arc<State>>,
    /// Limits of users without quotas.
    default_users: Mutex<HashMap<String, Arc<Throttle>>>,
    reloading: Mutex<()>,
    /// A reload is due now.
    asked: Mutex<bool>,
    was_asked: Condvar,
    /// When they are read again without being asked for, in `monotonic_ns`.
    next_ns: AtomicU64,
}

/// What quotas look at.
pub(crate) struct QuotaParts {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) regions: Arc<RegionTable>,
    pub(crate) request_rate: Arc<RequestRate>,
    pub(crate) counters: Arc<Counters>,
    /// Calls that wait for the disk at the same time: what stands for HBase's handlers.
    pub(crate) handlers_count: usize,
}

/// Limits in force.
#[derive(Default)]
struct State {
    /// The quotas were read once.
    is_loaded: bool,
    may_exceed: bool,
    users: HashMap<String, UserState>,
    tables: HashMap<TableName, Arc<Throttle>>,
    namespaces: HashMap<String, Arc<Throttle>>,
    server: Option<Arc<Throttle>>,
    default_user: Option<pb::Throttle>,
    space: HashMap<TableName, SpaceState>,
}

#[derive(Default)]
struct UserState {
    /// The limits of others do not count.
    bypasses_others: bool,
    own: Option<Arc<Throttle>>,
    tables: HashMap<TableName, Arc<Throttle>>,
    namespaces: HashMap<String, Arc<Throttle>>,
}

impl UserState {
    /// The most special one: of the table, of its namespace, of the user.
    fn throttle(&self, table: &TableName) -> Option<&Arc<Throttle>> {
        self.tables.get(table).or_else(|| self.namespaces.get(table.namespace())).or(self.own.as_ref())
    }
}

impl Quotas {
    pub(crate) fn new(settings: &QuotaSettings, parts: QuotaParts) -> Quotas {
        Quotas {
            settings: settings.clone(),
            parts,
            source: OnceLock::new(),
            is_limiting: AtomicBool::new(false),
            has_space_quotas: AtomicBool::new(false),
            state: RwLock::default(),
            default_users: Mutex::default(),
            reloading: Mutex::new(()),
            asked: Mutex::new(false),
            was_asked: Condvar::new(),
            next_ns: AtomicU64::new(0),
        }
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.settings.enabled
    }

    /// Whether some call may be limited.
    #[inline]
    pub(crate) fn is_limiting(&self) -> bool {
        self.is_limiting.load(Ordering::Relaxed)
    }

    /// Where quotas are read from. The first one stays. They are read soon.
    pub(crate) fn read_from(&self, source: Weak<dyn QuotaSource>) {
        let _ = self.source.set(source);
        self.reload_soon();
    }

    /// Refuses what is to be done to a region if a limit has no room for it. `None`: nothing limits it.
    #[inline]
    pub(crate) fn begin(
        &self,
        online: &OnlineRegion,
        connection: &Connection,
        attributes: &[pb::NameBytesPair],
        intent: Intent,
    ) -> Result<Option<OperationQuota>, RpcError> {
        if !self.is_limiting() {
            return Ok(None);
        }
        self.begin_limited(online, &self.user_of(connection, attributes), intent)
    }

    /// Whose quotas count for a call: the user whom its attribute names (`QuotaCache.getQuotaUserName`), else that of the connection.
    fn user_of<'c>(&self, connection: &'c Connection, attributes: &'c [pb::NameBytesPair]) -> Cow<'c, str> {
        let key = &self.settings.user_override;
        let named = attributes.iter().find(|attribute| !key.is_empty() && attribute.name == *key);
        match named.and_then(|attribute| attribute.value.as_deref()) {
            Some(user) => String::from_utf8_lossy(user),
            None => Cow::Borrowed(connection.user.as_deref().unwrap_or_default()),
        }
    }

    #[cold]
    fn begin_limited(
        &self,
        online: &OnlineRegion,
        user: &str,
        intent: Intent,
    ) -> Result<Option<OperationQuota>, RpcError> {
        let table = online.region.table();
        if table.name().is_system() {
            return Ok(None);
        }
        let state = self.state.read().clone();
        let limits = self.limits(&state, user, table.name());
        if limits.subjects.is_empty() && limits.server.is_none() {
            return Ok(None);
        }
        let block_size = table.families().iter().map(|family| family.block_size()).min().unwrap_or_default();
        let clock = self.parts.clock.clone();
        let begun = OperationQuota::begin(limits, self.size_rules(), clock, intent, block_size);
        if let Err(error) = &begun {
            self.parts.counters.throttled.add(1);
            tracing::debug!(user, table = %table.name(), %error, "a call was throttled");
        }
        begun.map(Some)
    }

    fn limits(&self, state: &State, user: &str, table: &TableName) -> Limits {
        let of_user = state.users.get(user);
        let user_throttle = match of_user {
            Some(of_user) => of_user.throttle(table).cloned(),
            None => self.default_throttle(state, user),
        };
        if of_user.is_some_and(|of_user| of_user.bypasses_others) {
            let subjects = user_throttle.into_iter().collect();
            return Limits { subjects, server: None, may_exceed: false };
        }
        let of_table = state.tables.get(table).cloned();
        let of_namespace = state.namespaces.get(table.namespace()).cloned();
        let subjects = user_throttle.into_iter().chain(of_table).chain(of_namespace).collect();
        Limits { subjects, server: state.server.clone(), may_exceed: state.may_exceed }
    }

    fn default_throttle(&self, state: &State, user: &str) -> Option<Arc<Throttle>> {
        let throttle = state.default_user.as_ref()?;
        let mut users = self.default_users.lock();
        let is_kept = users.len() < DEFAULT_USERS_MAX || users.contains_key(user);
        let name = if is_kept && user.len() <= DEFAULT_USER_LEN_MAX { user } else { "" };
        if let Some(known) = users.get(name) {
            return Some(known.clone());
        }
        let throttle = Arc::new(Throttle::new(throttle, self.settings.refill())?);
        users.insert(name.to_string(), throttle.clone());
        Some(throttle)
    }

    /// How long a call may hold a thread is guessed from the load, as HBase does it.
    fn size_rules(&self) -> SizeRules {
        let per_second = self.parts.request_rate.get().per_second;
        let handlers = self.parts.handlers_count as u64;
        let handler_ms = if per_second <= handlers { handlers } else { per_second.div_ceil(1000) };
        let unit = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
        SizeRules {
            read_unit: unit(self.settings.read_unit),
            write_unit: unit(self.settings.write_unit),
            by_result_size: self.settings.by_result_size,
            handler_us: i64::try_from(handler_ms.max(1)).unwrap_or(i64::MAX).saturating_mul(US_OF_MS),
        }
    }

    /// Refuses mutations of a table that exceeds its space quota.
    #[inline]
    pub(crate) fn check_space(&self, online: &OnlineRegion, mutation: &Mutation) -> Result<(), RpcError> {
        match self.space_of(online.region.table().name()) {
            Some(space) => space.check(mutation),
            None => Ok(()),
        }
    }

    /// What tables with space quotas use, as region servers tell it (HBase: `getActivePoliciesAsMap`).
    pub(crate) fn space_snapshots(&self) -> pb::GetSpaceQuotaSnapshotsResponse {
        let state = self.state.read().clone();
        let snapshot = |(table, space): (&TableName, &SpaceState)| {
            pb::get_space_quota_snapshots_response::TableQuotaSnapshot {
                table_name: Some(table.to_pb()),
                snapshot: Some(space.to_pb()),
            }
        };
        pb::GetSpaceQuotaSnapshotsResponse { snapshots: state.space.iter().map(snapshot).collect() }
    }

    pub(crate) fn has_space_quota(&self, table: &TableName) -> bool {
        self.space_of(table).is_some()
    }

    /// Refuses a bulk load of so many bytes that a table has no space for.
    pub(crate) fn check_bulk_load(&self, table: &TableName, bytes: u64) -> Result<(), RpcError> {
        self.space_of(table).map_or(Ok(()), |space| space.check_bulk_load(bytes))
    }

    pub(crate) fn forbids_compactions(&self, table: &TableName) -> bool {
        self.space_of(table).is_some_and(|space| space.forbids_compactions())
    }

    #[inline]
    fn space_of(&self, table: &TableName) -> Option<SpaceState> {
        if !self.has_space_quotas.load(Ordering::Relaxed) {
            return None;
        }
        self.state.read().space.get(table).copied()
    }

    /// Reads the quotas. *Blocking*. After an error those that were read before stay in force.
    pub(crate) fn reload(&self) -> halcyon_cell::Result<()> {
        if !self.settings.enabled {
            return Ok(());
        }
        let Some(source) = self.source.get().and_then(Weak::upgrade) else { return Ok(()) };
        let _one_at_a_time = self.reloading.lock();
        let view = source.quotas()?;
        for unreadable in &view.table.unreadable {
            tracing::warn!(cell = unreadable, "a quota cannot be read; it limits nothing");
        }
        self.take(&view);
        Ok(())
    }

    fn take(&self, view: &QuotaView) {
        let old = self.state.read().clone();
        let new = self.new_state(&old, view);
        let has_limits = new.server.is_some()
            || new.default_user.is_some()
            || !(new.users.is_empty() && new.tables.is_empty() && new.namespaces.is_empty());
        for (table, space) in new.space.iter().filter(|(_, space)| space.is_exceeded()) {
            if old.space.get(table) != Some(space) {
                tracing::warn!(%table, ?space, "a table exceeds its space quota");
            }
        }
        let has_space_quotas = !new.space.is_empty();
        *self.state.write() = Arc::new(new);
        self.is_limiting.store(view.is_throttling && has_limits, Ordering::Relaxed);
        self.has_space_quotas.store(has_space_quotas, Ordering::Relaxed);
    }

    fn new_state(&self, old: &State, view: &QuotaView) -> State {
        let mut state = State { is_loaded: true, may_exceed: view.table.exceed_throttle, ..State::default() };
        let default_user = self.settings.default_throttle();
        state.default_user = (default_user != pb::Throttle::default()).then_some(default_user);
        let of_cluster = 1.0 / view.servers_count.max(1) as f64;
        let new = |quotas: &pb::Quotas, factor: f64| self.throttle_of(quotas, factor);
        for (subject, quotas) in &view.table.quotas {
            match subject {
                QuotaSubject::Table(table) => {
                    keep(&mut state.tables, &old.tables, table, new(quotas, self.table_share(view, table)));
                }
                QuotaSubject::Namespace(name) => {
                    keep(&mut state.namespaces, &old.namespaces, name, new(quotas, of_cluster));
                }
                QuotaSubject::RegionServer(name) if name == ALL_REGION_SERVERS => {
                    state.server = kept(old.server.as_ref(), new(quotas, 1.0));
                }
                QuotaSubject::RegionServer(_) => {}
                QuotaSubject::User(user) => {
                    let before = old.users.get(user).and_then(|user| user.own.as_ref());
                    let of_user = state.users.entry(user.clone()).or_default();
                    of_user.bypasses_others = quotas.bypass_globals();
                    of_user.own = kept(before, new(quotas, of_cluster));
                }
                QuotaSubject::UserOnTable(user, table) => {
                    let none = HashMap::new();
                    let before = old.users.get(user).map_or(&none, |user| &user.tables);
                    let of_user = state.users.entry(user.clone()).or_default();
                    keep(&mut of_user.tables, before, table, new(quotas, self.table_share(view, table)));
                }
                QuotaSubject::UserOnNamespace(user, namespace) => {
                    let none = HashMap::new();
                    let before = old.users.get(user).map_or(&none, |user| &user.namespaces);
                    let of_user = state.users.entry(user.clone()).or_default();
                    keep(&mut of_user.namespaces, before, namespace, new(quotas, of_cluster));
                }
            }
        }
        let snapshots = view.table.snapshots.iter();
        state.space = snapshots.map(|(table, snapshot)| (table.clone(), SpaceState::of(snapshot))).collect();
        state
    }

    /// The part of a table's limit of scope CLUSTER that this server has: by its regions.
    fn table_share(&self, view: &QuotaView, table: &TableName) -> f64 {
        let Some(&open) = view.open_regions.get(table) else { return 1.0 };
        let here = self.parts.regions.online().iter().filter(|it| it.region.table().name() == table).count();
        if open == 0 { 0.0 } else { here as f64 / open as f64 }
    }

    fn throttle_of(&self, quotas: &pb::Quotas, factor: f64) -> Option<Throttle> {
        let throttle = quotas.throttle.as_ref()?;
        Throttle::new(&of_machine(throttle, factor), self.settings.refill())
    }

    /// Has the quotas read by the thread for it, so that an order of the master does not wait for another server.
    pub(crate) fn reload_soon(&self) {
        *self.asked.lock() = true;
        self.was_asked.notify_all();
    }
}

impl Worker for Quotas {
    fn run_once(&self, timeout: Duration) {
        let mut asked = self.asked.lock();
        if !*asked && self.parts.lifecycle.is_serving() {
            self.was_asked.wait_for(&mut asked, timeout);
        }
        let is_asked = std::mem::take(&mut *asked);
        drop(asked);
        let now_ns = self.parts.clock.monotonic_ns();
        let is_due = is_asked || now_ns >= self.next_ns.load(Ordering::Relaxed);
        if !self.parts.lifecycle.is_serving() || !is_due {
            return;
        }
        let period = match self.reload() {
            Ok(()) => self.settings.refresh_period.min(self.settings.space_refresh_period),
            Err(error) => {
                let is_loaded = self.state.read().is_loaded;
                tracing::warn!(%error, is_loaded, "quotas could not be read");
                RETRY_PAUSE
            }
        };
        let period_ns = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        self.next_ns.store(now_ns.saturating_add(period_ns), Ordering::Relaxed);
    }

    fn wake(&self) {
        self.was_asked.notify_all();
    }
}

/// The limiter that was there, with new limits.
fn kept(old: Option<&Arc<Throttle>>, new: Option<Throttle>) -> Option<Arc<Throttle>> {
    let new = new?;
    Some(match old {
        Some(old) => {
            old.change_to(&new);
            old.clone()
        }
        None => Arc::new(new),
    })
}

fn keep<K: Clone + Eq + Hash>(
    state: &mut HashMap<K, Arc<Throttle>>,
    old: &HashMap<K, Arc<Throttle>>,
    key: &K,
    new: Option<Throttle>,
) {
    if let Some(throttle) = kept(old.get(key), new) {
        state.insert(key.clone(), throttle);
    }
}

/// Limits of scope CLUSTER divided; at least 1 remains. As in HBase the atomic ones and those of time are not divided.
fn of_machine(throttle: &pb::Throttle, factor: f64) -> pb::Throttle {
    let divided = |quota: &Option<pb::TimedQuota>| {
        quota.as_ref().map(|quota| match quota.scope() {
            pb::QuotaScope::Cluster => {
                let limit = ((quota.soft_limit() as f64 * factor) as u64).max(1);
                pb::TimedQuota { soft_limit: Some(limit), ..*quota }
            }
            pb::QuotaScope::Machine => *quota,
        })
    };
    pb::Throttle {
        req_num: divided(&throttle.req_num),
        req_size: divided(&throttle.req_size),
        write_num: divided(&throttle.write_num),
        write_size: divided(&throttle.write_size),
        read_num: divided(&throttle.read_num),
        read_size: divided(&throttle.read_size),
        req_capacity_unit: divided(&throttle.req_capacity_unit),
        write_capacity_unit: divided(&throttle.write_capacity_unit),
        read_capacity_unit: divided(&throttle.read_capacity_unit),
        ..*throttle
    }
}
