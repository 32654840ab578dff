//! Coprocessors that are not built in: Java classes in a JVM beside the server.
//!
//! ```text
//! jvm.rs         the process: started, watched, killed, started again
//! frames.rs      messages on a socket, with limits
//! operation.rs   calls to the JVM, and what it asks meanwhile
//! asked.rs       ... of the regions
//! hooks.rs       which hooks cost a call
//! write.rs       mutations with their hooks          row_locks.rs   locks that a hook may hold
//! answers.rs     what repeated calls are answered
//! read.rs        gets                                scans.rs       scanners that are objects of the JVM
//! store_hooks.rs flushes and compactions             bulk_load.rs   bulk loads
//! jar_paths.rs   from where tables may have classes loaded
//! ```
//!
//! A region has coprocessors if its table or a property names a class that is not built in (`CoprocessorSettings::hosted`). Then
//! [`OnlineRegion::coprocessors`] is set, and its calls go another way (`service/hosted.rs`), on threads of their own. All others
//! look at that field once. `docs/decisions/0015-coprocessors-in-a-jvm.md` says what was decided and why.
//!
//! When you change a method or a field, also touch `base/proto/proto/Coprocessor.proto` and `cluster/coprocessor-host`.

mod answers;
mod asked;
mod bulk_load;
mod frames;
mod hooks;
pub(crate) mod jar_paths;
mod jvm;
mod operation;
mod read;
mod row_locks;
mod scans;
mod store_hooks;
mod write;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_env::{Env, Mutex, RwLock, vitals};
use halcyon_proto::coprocessor::{Frame, Method};
use halcyon_proto::pb;
use halcyon_rpc::{RpcError, Terms};
use halcyon_schema::{COPROCESSOR_HOST, Endpoint, TableDescriptor};
use prost::Message;

pub use jvm::JvmSurroundings;

use crate::RegionServer;
use crate::calls::pool::{DiskPool, PoolLimits};
use crate::lifecycle::Lifecycle;
use crate::regions::region_table::OnlineRegion;
use crate::settings::coprocessors::CoprocessorSettings;

pub(crate) use bulk_load::{after_bulk_load, before_bulk_load};
pub(crate) use jvm::{CallPermit, Jvm};
pub(crate) use operation::Operation;
pub(crate) use read::get;
pub(crate) use scans::{HostedLimits, Opened, next, open};
pub(crate) use write::{Asked, check_and_mutate, mutate, put_not_before};

/// A frame from its bytes, and the cells of its results; the error says what is wrong. For tests of the decoder.
pub fn decode_coprocessor_frame(bytes: Bytes) -> std::result::Result<usize, String> {
    let frame = frames::decode(bytes).map_err(|broken| broken.to_string())?;
    frames::first(&frame).map(|cells| cells.len()).map_err(|broken| broken.to_string())
}

/// The coprocessors of one region.
#[derive(Default)]
pub(crate) struct RegionCoprocessors {
    /// By which the JVM calls the region.
    number: u64,
    /// The region has no classes: the JVM reads it with filters that Halcyon does not have.
    only_filters: bool,
    /// The JVM that has loaded them; 0: none.
    generation: AtomicU64,
    hooks: AtomicU64,
    loading: Mutex<()>,
    rows: row_locks::RowLocks,
    /// Those of the server.
    asked: Arc<asked::OpenScans>,
}

impl RegionCoprocessors {
    #[inline]
    pub(crate) fn only_filters(&self) -> bool {
        self.only_filters
    }

    /// Lets scanners of coprocessors let go of memory of the region that was flushed or compacted in memory.
    pub(crate) fn region_flushed(&self, online: &Arc<OnlineRegion>) {
        self.asked.region_flushed(online);
    }
}

/// Of one server. *Thread safety*: from any thread.
pub(crate) struct Coprocessors {
    jvm: Arc<Jvm>,
    /// Threads for calls of regions with coprocessors, so that a slow one keeps no thread from other tables.
    pub(crate) pool: Arc<DiskPool>,
    pub(crate) scans: Arc<scans::HostedScans>,
    pub(crate) answers: answers::KeptAnswers,
    numbers: AtomicU64,
    /// A region with coprocessors was opened.
    used: AtomicBool,
    regions: RwLock<HashMap<u64, Weak<OnlineRegion>>>,
    /// Tables whose classes override hooks that are not called; one warning for each is enough.
    warned: Mutex<HashSet<String>>,
}

impl Coprocessors {
    pub(crate) fn new(
        settings: &CoprocessorSettings,
        env: &Env,
        lifecycle: &Arc<Lifecycle>,
        server_name: String,
    ) -> Coprocessors {
        let limits = PoolLimits::new(settings.calls_max, 1, 0.0, 0.0);
        Coprocessors {
            jvm: Arc::new(Jvm::new(settings.clone(), env.clone(), lifecycle.clone(), server_name)),
            pool: Arc::new(DiskPool::new(limits, env.clock.clone())),
            scans: Arc::default(),
            answers: answers::KeptAnswers::new(env.clock.clone()),
            numbers: AtomicU64::new(0),
            used: AtomicBool::new(false),
            regions: RwLock::default(),
            warned: Mutex::default(),
        }
    }

    pub(crate) fn jvm(&self) -> &Arc<Jvm> {
        &self.jvm
    }

    /// What a region that opens gets: nothing if all its coprocessors are built in and there is no JVM. `Invalid` if there is no JVM
    /// for them.
    pub(crate) fn of_table(&self, table: &TableDescriptor) -> Result<Option<Arc<RegionCoprocessors>>> {
        let class = self.jvm.settings.hosted(table);
        let only_filters = class.is_none();
        if only_filters && (!self.jvm.settings.has_host() || table.name().is_system()) {
            return Ok(None);
        }
        if let Some(class) = class.filter(|_| !self.jvm.settings.has_host()) {
            return Err(Error::invalid(format!(
                "coprocessor {class} of table {} needs a JVM beside the server: set {COPROCESSOR_HOST}",
                table.name()
            )));
        }
        if !only_filters {
            self.jvm.settings.check_jars(table)?;
        }
        let number = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        self.used.fetch_or(!only_filters, Ordering::Relaxed);
        let asked = self.jvm.scans.clone();
        Ok(Some(Arc::new(RegionCoprocessors {
            number,
            only_filters,
            asked,
            ..RegionCoprocessors::default()
        })))
    }

    /// The JVM may ask for the region from now on.
    fn note(&self, online: &Arc<OnlineRegion>) {
        if let Some(coprocessors) = &online.coprocessors {
            self.regions.write().insert(coprocessors.number, Arc::downgrade(online));
        }
    }

    fn region(&self, number: u64) -> std::result::Result<Arc<OnlineRegion>, RpcError> {
        let found = self.regions.read().get(&number).and_then(Weak::upgrade);
        found
            .ok_or_else(|| RpcError::not_serving_region(format!("region {number} of coprocessors is closed")))
    }

    /// Whether any region may have coprocessors.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    fn has_regions(&self) -> bool {
        self.regions.read().values().any(|online| online.strong_count() > 0)
    }
}

/// The message of a table without the coprocessors that are built in.
fn schema(table: &TableDescriptor) -> Bytes {
    let mut message = table.to_pb();
    message.attributes.retain(|pair| {
        let is_coprocessor = pair.first.to_ascii_lowercase().starts_with(b"coprocessor$");
        let class = pair.second.split(|&byte| byte == b'|').nth(1).unwrap_or_default();
        !is_coprocessor || Endpoint::of_class(String::from_utf8_lossy(class).trim()).is_none()
    });
    Bytes::from(message.encode_to_vec())
}

impl RegionServer {
    /// Starts the JVM of coprocessors, if the settings ask for one. To be called once, before regions are opened.
    pub fn host_coprocessors(self: &Arc<Self>, surroundings: JvmSurroundings) -> std::io::Result<()> {
        if !self.settings.coprocessors.has_host() {
            return Ok(());
        }
        if !self.settings.coprocessors.limits_jars() {
            let setting = jar_paths::JAR_PATHS;
            tracing::info!(
                setting,
                "tables may name jars of coprocessors anywhere: the setting would limit them"
            );
        }
        self.coprocessors.jvm.start(Arc::downgrade(self), surroundings)
    }

    /// Process number of the JVM of coprocessors, while one runs, and how often it was started.
    pub fn coprocessor_jvm(&self) -> (Option<u32>, u64) {
        (self.coprocessors.jvm.pid(), self.coprocessors.jvm.starts_count())
    }

    /// Whether jars that a table names may be loaded (HBase: `CoprocessorWhitelistMasterObserver`). `Invalid`, with HBase's text, if not.
    pub fn check_coprocessor_jars(&self, table: &TableDescriptor) -> Result<()> {
        self.settings.coprocessors.check_jars(table)
    }

    /// Whether the classes that a table names can be loaded (HBase: `RegionCoprocessorHost.testTableCoprocessorAttrs`). `Invalid`, with
    /// HBase's text, if not; `Io` if there is no JVM now. *Blocking*.
    pub fn check_coprocessors(self: &Arc<Self>, table: &TableDescriptor) -> Result<()> {
        if table.hosted_coprocessor().is_none() {
            return Ok(());
        }
        if !self.settings.coprocessors.has_host() {
            return table.check_no_host();
        }
        let frame = Frame { schema: Some(schema(table)), ..frames::call(Method::CheckTable, 0) };
        let connected = Operation::connect(self);
        let mut operation = connected.map_err(|error| Error::new(ErrorKind::Io, error.message))?;
        operation.call(frame).map(drop).map_err(|error| {
            let text = error.message.lines().next().unwrap_or_default().to_string();
            Error::invalid(text)
        })
    }

    /// Loads the coprocessors of a region that opens, if there is a JVM now; if there is none, the first call does it. The error of a
    /// class keeps the region closed. *Blocking*.
    pub(crate) fn load_coprocessors(&self, online: &Arc<OnlineRegion>) -> Result<()> {
        let (true, Some(server)) = (online.is_hosted(), self.coprocessors.jvm.server()) else {
            return Ok(());
        };
        match vitals::outside(|| Operation::begin(&server, online, None)) {
            Ok(_) => Ok(()),
            Err(error) if self.coprocessors.jvm.pid().is_none() => {
                tracing::warn!(region = online.region.info().encoded_name(), %error, "coprocessors are loaded later");
                Ok(())
            }
            Err(error) => {
                let text = format!("coprocessors cannot be loaded: {}", error.message);
                Err(Error::new(ErrorKind::Invalid, text))
            }
        }
    }

    /// Flushes and compactions of the region ask its coprocessors from now on.
    pub(crate) fn hook_stores(&self, online: &Arc<OnlineRegion>) {
        if online.is_hosted() && !online.region.is_secondary() {
            let hooks = store_hooks::HostedStores::new(&self.coprocessors.jvm, online);
            online.region.set_store_hooks(Arc::new(hooks));
        }
    }

    /// Tells coprocessors that their region is about to be closed: its last flush still has their hooks. *Blocking*.
    pub(crate) fn announce_close(&self, online: &Arc<OnlineRegion>, abort: bool) {
        let Some(coprocessors) = &online.coprocessors else { return };
        let Some(mut operation) = self.operation_of(coprocessors) else { return };
        let frame = Frame { flag: Some(abort), ..frames::call(Method::PreClose, coprocessors.number) };
        if let Err(error) = vitals::outside(|| operation.call(frame)) {
            tracing::warn!(region = online.region.info().encoded_name(), %error, "preClose has failed");
        }
    }

    /// If the JVM that runs has the region.
    fn operation_of(&self, coprocessors: &RegionCoprocessors) -> Option<Operation> {
        let generation = coprocessors.generation.load(Ordering::Acquire);
        if generation == 0 || self.coprocessors.jvm.pid().is_none() {
            return None;
        }
        let server = self.coprocessors.jvm.server()?;
        let operation = Operation::connect(&server).ok()?;
        (operation.child.generation == generation).then_some(operation)
    }

    /// Tells coprocessors that their region is closed. What they say to that changes nothing. *Blocking*.
    pub(crate) fn unload_coprocessors(&self, online: &Arc<OnlineRegion>, abort: bool) {
        // Each call of the JVM has a limit.
        vitals::outside(|| self.unload(online, abort));
    }

    fn unload(&self, online: &Arc<OnlineRegion>, abort: bool) {
        let Some(coprocessors) = &online.coprocessors else { return };
        self.coprocessors.scans.region_closing(online);
        coprocessors.asked.close_region(online);
        if let Some(mut operation) = self.operation_of(coprocessors) {
            let frame = Frame { flag: Some(abort), ..frames::call(Method::Unload, coprocessors.number) };
            if let Err(error) = operation.call(frame) {
                tracing::warn!(region = online.region.info().encoded_name(), %error, "coprocessors were not stopped");
            }
        }
        self.coprocessors.regions.write().remove(&coprocessors.number);
    }

    /// Calls an endpoint (`HRegion.execService`). *Blocking*.
    pub(crate) fn execute_endpoint(
        self: &Arc<Self>,
        online: &Arc<OnlineRegion>,
        call: &pb::CoprocessorServiceCall,
        terms: &Terms,
    ) -> std::result::Result<pb::NameBytesPair, RpcError> {
        let mut operation = Operation::begin(self, online, Some(terms))?;
        let number = online.coprocessors.as_ref().map_or(0, |coprocessors| coprocessors.number);
        let frame =
            Frame { value: Some(Bytes::from(call.encode_to_vec())), ..frames::call(Method::Execute, number) };
        let answer = operation.call(frame)?;
        Ok(pb::NameBytesPair { name: answer.text.unwrap_or_default(), value: answer.value })
    }
}
