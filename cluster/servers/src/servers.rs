//! The table of region servers.
//!
//! ```text
//! (unknown) ── add_online, start, report ──> online ── expire, start of a successor ──> recovering ── recovered ──> gone
//!     └────────────────── add_recovering ─────────────────────────────────────────────────^
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use halcyon_cell::Result;
use halcyon_contract::{
    Assignments, QuotaEnforcement, RegionServerApi, RegionServers, ServerReport, Standing,
};
use halcyon_env::{Clock, Mutex};
use halcyon_proto::pb;
use halcyon_schema::{RegionInfo, ServerName};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::dead::DeadServers;
use crate::errors;
use crate::flushed::{FlushedIds, FlushedTable};
use crate::network::Way;
use crate::orders::OrderNumbers;
use crate::remote_server::{Common, RemoteServer};
use crate::{Network, ServersSettings, StatusService};

/// Dead servers that clients are shown.
const DEAD_SHOWN_MAX: usize = 100;

type Callback = dyn Fn(ServerName) + Send + Sync;

/// The region servers of a cluster.
///
/// # Thread safety
/// All methods from any thread. The table's lock is held for look-ups and changes only; callbacks are called and orders end
/// after it is released.
pub struct Servers {
    pub(crate) common: Common,
    pub(crate) table: Mutex<Table>,
    pub(crate) flushed: FlushedTable,
    /// What servers have reported of their regions since the last look; `None` until the first one, so that nothing is kept
    /// where no quotas are.
    sizes: Mutex<Option<HashMap<String, (RegionInfo, u64)>>>,
    callbacks: Mutex<Vec<Arc<Callback>>>,
    changes: watch::Sender<u64>,
}

#[derive(Default)]
pub(crate) struct Table {
    pub(crate) online: BTreeMap<ServerName, Arc<RemoteServer>>,
    draining: BTreeSet<ServerName>,
    /// Those of the online ones whose znodes were seen.
    with_session: BTreeSet<ServerName>,
    pub(crate) dead: DeadServers,
}

impl Servers {
    /// Network tasks run on `runtime`. They end with the object.
    pub fn new(runtime: Handle, clock: Arc<dyn Clock>, settings: ServersSettings) -> Arc<Servers> {
        Servers::reached(Way::Runtime(runtime), clock, settings)
    }

    /// In a simulation: calls go by `network`, and tasks are threads.
    pub fn simulated(
        network: Arc<dyn Network>,
        clock: Arc<dyn Clock>,
        settings: ServersSettings,
    ) -> Arc<Servers> {
        Servers::reached(Way::Threads(network, clock.clone()), clock, settings)
    }

    fn reached(way: Way, clock: Arc<dyn Clock>, settings: ServersSettings) -> Arc<Servers> {
        let numbers = Arc::new(OrderNumbers::new(settings.active_ms));
        let common = Common { way, clock, settings: Arc::new(settings), numbers };
        Arc::new(Servers {
            common,
            table: Mutex::default(),
            flushed: FlushedTable::default(),
            sizes: Mutex::default(),
            callbacks: Mutex::default(),
            changes: watch::Sender::new(0),
        })
    }

    /// Adds a server that is alive by its znode. Ignored if it is dead, or if a newer one has its address.
    pub fn add_online(&self, server: &ServerName) {
        if let Err(error) = self.admit(server, "ZNODE") {
            tracing::warn!(%server, %error, "a region server with a znode is not taken for alive");
            return;
        }
        let mut table = self.table.lock();
        if table.online.contains_key(server) && table.with_session.insert(server.clone()) {
            table.check(server);
            drop(table);
            self.changed();
        }
    }

    /// Adds a dead server whose WALs have to be split. The caller recovers it: no callback is called.
    pub fn add_recovering(&self, server: &ServerName) {
        let mut table = self.table.lock();
        table.dead.add_recovering(server);
        let ended = table.remove(server);
        table.check(server);
        drop(table);
        self.end(ended);
    }

    /// Declares a server dead. It is [`Standing::Recovering`] from here on, and may never report again. Orders that wait for
    /// it end with an error. True the first time, when the callbacks are called too.
    pub fn expire(&self, server: &ServerName) -> bool {
        let mut table = self.table.lock();
        if table.dead.contains(server) {
            return false;
        }
        table.dead.add_recovering(server);
        let ended = table.remove(server);
        table.check(server);
        drop(table);
        tracing::warn!(%server, was_online = ended.is_some(), "a region server is dead");
        self.end(ended);
        let callbacks = self.callbacks.lock().clone();
        for callback in callbacks {
            callback(server.clone());
        }
        true
    }

    /// Adds a callback for each server that `expire` or the start of its successor has declared dead. Must not block.
    pub fn on_expired(&self, callback: Box<dyn Fn(ServerName) + Send + Sync>) {
        self.callbacks.lock().push(Arc::from(callback));
    }

    /// Sets which servers get no more regions, alive or not.
    pub fn set_draining(&self, servers: Vec<ServerName>) {
        self.table.lock().draining = servers.into_iter().collect();
        self.changed();
    }

    /// Whether a newer server is online at its address.
    pub fn has_successor(&self, server: &ServerName) -> bool {
        let table = self.table.lock();
        table.at_address(server).any(|other| other.start_code > server.start_code)
    }

    /// Changes with the set of online servers.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub fn last_flushed(&self, encoded_region: &str) -> FlushedIds {
        self.flushed.get(encoded_region)
    }

    /// `RegionServerStatusService` of the master. `master` gets what is no answer to an order.
    pub fn status_service(self: &Arc<Self>, master: Weak<dyn Assignments>) -> StatusService {
        StatusService::new(Arc::clone(self), master)
    }

    /// `Moved` if it is not online.
    pub(crate) fn remote(&self, server: &ServerName) -> Result<Arc<RemoteServer>> {
        self.table.lock().online.get(server).cloned().ok_or_else(|| errors::not_online(server))
    }

    /// All that are online.
    pub(crate) fn remotes(&self) -> Vec<Arc<RemoteServer>> {
        self.table.lock().online.values().cloned().collect()
    }

    pub(crate) fn note_sizes(&self, reported: impl Iterator<Item = (RegionInfo, u64)>) {
        if let Some(sizes) = &mut *self.sizes.lock() {
            let named = reported.map(|(region, size)| (region.encoded_name().to_string(), (region, size)));
            sizes.extend(named);
        }
    }

    pub(crate) fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    fn end(&self, server: Option<Arc<RemoteServer>>) {
        if let Some(server) = server {
            server.end();
        }
        self.changed();
    }
}

impl Table {
    /// Of a server whose entries have changed.
    pub(crate) fn check(&self, server: &ServerName) {
        let is_online = self.online.contains_key(server);
        assert!(!(is_online && self.dead.contains(server)), "{server} was declared dead, and stays so");
        assert!(is_online || !self.with_session.contains(server), "{server} has a session and is not online");
    }

    fn remove(&mut self, server: &ServerName) -> Option<Arc<RemoteServer>> {
        self.with_session.remove(server);
        self.online.remove(server)
    }

    /// Newest first: those of which no successor has come, or which are still recovered.
    fn dead_shown(&self) -> impl Iterator<Item = &ServerName> {
        let is_shown = |server: &&ServerName| {
            self.dead.is_recovering(server) || self.at_address(server).next().is_none()
        };
        self.dead.listed().filter(is_shown)
    }

    /// Servers that are online at the address of `server`.
    pub(crate) fn at_address<'a>(
        &'a self,
        server: &ServerName,
    ) -> impl Iterator<Item = &'a ServerName> + use<'a> {
        let with_code = |code| ServerName::new(server.host.clone(), server.port, code);
        self.online.range(with_code(i64::MIN)..=with_code(i64::MAX)).map(|(name, _)| name)
    }
}

impl QuotaEnforcement for Servers {
    fn reload(&self) {
        for server in self.remotes() {
            if let Err(error) = server.reload_quotas() {
                tracing::warn!(%error, "a region server was not told of quotas");
            }
        }
    }

    fn region_sizes(&self) -> Vec<(RegionInfo, u64)> {
        self.sizes.lock().replace(HashMap::new()).unwrap_or_default().into_values().collect()
    }
}

impl RegionServers for Servers {
    fn online(&self) -> Vec<ServerName> {
        self.table.lock().online.keys().cloned().collect()
    }

    fn draining(&self) -> Vec<ServerName> {
        let table = self.table.lock();
        table.online.keys().filter(|server| table.draining.contains(server)).cloned().collect()
    }

    fn has_session(&self, server: &ServerName) -> bool {
        self.table.lock().with_session.contains(server)
    }

    fn standing(&self, server: &ServerName) -> Standing {
        let table = self.table.lock();
        match table.online.contains_key(server) {
            true => Standing::Online,
            false if table.dead.is_recovering(server) => Standing::Recovering,
            false => Standing::Gone,
        }
    }

    fn declare_dead(&self, server: &ServerName) {
        self.expire(server);
    }

    fn recovering(&self) -> Vec<ServerName> {
        let table = self.table.lock();
        let mut names: Vec<_> =
            table.dead.newest().filter(|it| table.dead.is_recovering(it)).cloned().collect();
        names.sort_unstable();
        assert!(names.is_sorted_by(|one, next| one < next), "each dead server is recovered once: {names:?}");
        names
    }

    fn recovered(&self, server: &ServerName) {
        let mut table = self.table.lock();
        assert!(
            !table.online.contains_key(server),
            "{server} is recovered while it is online: regions would open twice"
        );
        table.dead.recovered(server);
    }

    fn dead(&self) -> Vec<ServerName> {
        self.table.lock().dead_shown().take(DEAD_SHOWN_MAX).cloned().collect()
    }

    fn forget_dead(&self, server: &ServerName) {
        self.table.lock().dead.clear(server);
    }

    fn get(&self, server: &ServerName) -> Option<Arc<dyn RegionServerApi>> {
        self.remote(server).ok().map(|remote| remote as Arc<dyn RegionServerApi>)
    }

    fn reports(&self) -> Vec<ServerReport> {
        let reported = |remote: Arc<RemoteServer>| {
            let load: Arc<pb::ServerLoad> = remote.report()?;
            Some(ServerReport { server: remote.server_name(), load: (*load).clone() })
        };
        self.remotes().into_iter().filter_map(reported).collect()
    }

    fn is_one_process(&self) -> bool {
        false
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for server in self.table.get_mut().online.values() {
            server.end();
        }
    }
}
