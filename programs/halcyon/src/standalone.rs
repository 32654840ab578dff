//! `halcyon standalone`: every role in one process.
//!
//! Start: ports and data directory are taken first, so that what is in use is told before anything changes;
//! then the region server recovers the logs of the last life, the master opens `hbase:meta` and the tables,
//! both ports serve every service, and last the znodes appear that clients go by. Stop goes the other way:
//! refuse, drain, flush, release.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use halcyon_coord::{ClientMetaService, ClusterZnodes, ZkServer, ZnodeTree};
use halcyon_env::{Env, FileLock, FileSystem, RealFileSystem, spawn_thread};
use halcyon_master::{
    CoprocessorCheck, HbckService, LockService, Master, MasterService, MasterSettings, StopRequest,
};
use halcyon_regionserver::{
    AdminService, ClientService, JvmSurroundings, OpenSourceFiles, Predecessors, RegionServer,
    RegionServerSettings,
};
use halcyon_rpc::{BoundServer, EventLoops, Queues, RpcServer, Services};
use halcyon_schema::ServerName;
use halcyon_wal::SyncMode;
use tokio::sync::Notify;

use crate::Failure;
use crate::args::StandaloneArgs;
use crate::group_script;
use crate::info::{BoundInfo, InfoServer};
use crate::info_pages::{InfoPages, Port};
use crate::jvm;
use crate::limits;
use crate::pages::{Shown, Sources};
use crate::root::{self, OwnWals, Root};
use crate::safe_start::{self, Finding, Protection};
use crate::settings::{ShownSetting, StandaloneSettings};
use crate::signals::StopSignals;
use crate::site::{self, Property};
use crate::sizes::Size;
use crate::source_files;
use crate::surroundings::Surroundings;
use crate::systemd;
use crate::traces::{self, Traces};

/// With fewer open files than this an operator should know.
const OPEN_FILES_MIN: u64 = 4096;
const LOCK_FILE: &str = ".halcyon.lock";
/// How long another process may hold the data directory before the start fails, and how often the lock is tried.
const LOCK_TIME_MAX: Duration = Duration::from_secs(10);
const LOCK_RETRY_PERIOD: Duration = Duration::from_millis(50);
/// How long calls under way may take when the server stops.
pub const DRAIN_TIME_MAX: Duration = Duration::from_secs(5);
/// How often it is looked whether threads run when they want to. Short against what counts as a stall: of one that
/// begins while the thread sleeps anyway, the rest of that sleep is not seen.
const STALL_CHECK_PERIOD: Duration = Duration::from_millis(3);
/// How often the monitor looks what the host of a virtual machine took.
const HOST_LOOK_PERIOD: Duration = Duration::from_millis(30);
/// How often network threads give back memory that others have freed.
const GIVE_BACK_PERIOD: Duration = Duration::from_millis(20);
/// How often it is looked whether the region server gave up.
const FAILURE_CHECK_PERIOD: Duration = Duration::from_millis(200);

/// Runs until a signal or a client ends it.
pub fn run(args: StandaloneArgs) -> Result<(), Failure> {
    let env = Env::real();
    let started_ns = env.clock.monotonic_ns();
    let properties = match &args.config {
        Some(dir) => site::read(&env, dir)?,
        None => Vec::new(),
    };
    let properties = traces::with_environment(properties);
    let (settings, unused) = StandaloneSettings::new(&properties, &args)?;
    for sentence in unused {
        eprintln!("halcyon: hbase-site.xml: {sentence}");
    }
    if settings.parts.status.published {
        eprintln!(
            "halcyon: hbase-site.xml: hbase.status.published has no effect: there is no other server to tell clients of"
        );
    }
    if args.server.print_settings {
        print!("{}", StandaloneSettings::print_by_source(&properties, &args)?);
        return Ok(());
    }
    let env = settings.with_keys(env);
    let root = root::open(env.clone(), &settings, &args, &properties)?;
    let wals = OwnWals::open(&env, &settings, &args, &properties)?;
    wals.as_ref().map_or(Ok(()), OwnWals::check_apart)?;
    check_safe_start(&root, &settings, &properties, &args.server.accept_without)?;
    if !settings.bind.is_loopback() {
        tracing::warn!(
            address = %settings.bind,
            "clients are not authenticated: every client that reaches this address can read, change and delete all \
             tables and stop the server"
        );
    }
    check_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("server").build();
    let runtime = runtime.map_err(|error| format!("cannot start threads: {error}"))?;
    let shown_settings = StandaloneSettings::with_sources(&properties, &args)?;
    let opener = source_files::opener(&env, &settings.regionserver, args.config.as_deref());
    let read_again = read_again(env, args, settings.clone());
    let of_site = (properties, opener, read_again);
    let ended = runtime.block_on(serve((root, wals), settings, shown_settings, started_ns, of_site));
    runtime.shutdown_background(); // what had to be waited for has ended
    Ok(ended?)
}

/// Takes as many open files as the system allows, and warns if that is not many.
pub fn check_open_files() {
    if let Some(files_max) = limits::take_open_files()
        && files_max < OPEN_FILES_MIN
    {
        tracing::warn!(files_max, "few files may be open; connections and store files need them");
    }
}

/// Fails if the site file or the data directory needs something that is lacking here and is not accepted. Warns of what is.
fn check_safe_start(
    root: &Root,
    settings: &StandaloneSettings,
    properties: &[Property],
    accepted: &[Protection],
) -> Result<(), Failure> {
    let locked = root.env.local.exists(&settings.data.join(LOCK_FILE));
    let is_new_here = !locked.map_err(|error| format!("cannot look at the data directory: {error}"))?;
    let mut findings = safe_start::of_properties(properties);
    findings.extend(safe_start::of_directory(&root.env, &root.path, is_new_here)?);
    let has_quotas = settings.regionserver.quotas.enabled;
    findings.retain(|finding| !(has_quotas && finding.protection == Protection::Quotas));
    if settings.regionserver.coprocessors.has_host() {
        safe_start::retain_unhosted(&mut findings);
    }
    let wal_root = settings.wal_root_address()?;
    findings.extend(safe_start::of_wals(&root.env, &root.path, wal_root.as_deref())?);
    judge(findings, accepted)
}

/// Has the JVM of the region server in the master's process load what tables name.
pub fn coprocessor_check(
    settings: &StandaloneSettings,
    region_server: &Arc<RegionServer>,
) -> CoprocessorCheck {
    if !settings.regionserver.coprocessors.has_host() {
        return CoprocessorCheck::default();
    }
    let (permits, loads) = (Arc::downgrade(region_server), Arc::downgrade(region_server));
    CoprocessorCheck::hosted(
        move |table| {
            permits.upgrade().map_or(Ok(()), |region_server| region_server.check_coprocessor_jars(table))
        },
        move |table| loads.upgrade().map_or(Ok(()), |region_server| region_server.check_coprocessors(table)),
    )
}

/// Fails unless all that was found is accepted, and warns of what is.
pub fn judge(findings: Vec<Finding>, accepted: &[Protection]) -> Result<(), Failure> {
    let judged = safe_start::judge(findings, accepted);
    let warning = judged.map_err(|sentence| Failure { sentence, exit_code: safe_start::EXIT_CODE })?;
    if let Some(warning) = warning {
        tracing::warn!("{warning}");
    }
    Ok(())
}

/// Reads the site file as at the start, with the same flags. What the region server does not know needs a restart.
pub fn read_again(
    env: Env,
    args: StandaloneArgs,
    started: StandaloneSettings,
) -> impl Fn() -> Result<RegionServerSettings, String> + Send + Sync + 'static {
    move || {
        let properties = args.config.as_ref().map_or(Ok(Vec::new()), |dir| site::read(&env, dir))?;
        let properties = traces::with_environment(properties);
        let (settings, _) = StandaloneSettings::new(&properties, &args)?;
        let before = started.to_string();
        let of_region_server = settings.regionserver.to_string();
        let changed = settings.to_string();
        let others = changed.lines().filter(|line| {
            let is_here = |text: &str| text.lines().any(|other| other == *line);
            !is_here(&before) && !is_here(&of_region_server)
        });
        for line in others {
            tracing::warn!(setting = line, "configuration update: needs a restart");
        }
        Ok(settings.regionserver)
    }
}

async fn serve(
    (root, wals): (Root, Option<OwnWals>),
    settings: StandaloneSettings,
    shown_settings: Vec<ShownSetting>,
    started_ns: u64,
    (properties, opener, read_again): (
        Vec<Property>,
        Arc<OpenSourceFiles>,
        impl Fn() -> Result<RegionServerSettings, String> + Send + Sync + 'static,
    ),
) -> Result<(), String> {
    let mut signals = StopSignals::watch().map_err(|error| format!("cannot watch for signals: {error}"))?;
    let env = root.env.clone();
    let locks = tokio::select! {
        locks = take_directories(&env, &settings, wals.as_ref()) => locks?,
        signal = signals.next() => return Err(format!("{signal} while starting")),
    };
    let bound = Bound::new(&env, &settings).await?;
    let host = host_name(&env, &settings);
    let starting = tokio::task::spawn_blocking({
        let settings = settings.clone();
        let ports = (bound.master.local_addr().port(), bound.region_server.local_addr().port());
        let zookeeper = bound.zookeeper.local_addr();
        let zookeeper_host =
            if settings.bind.is_unspecified() { host.clone() } else { settings.bind.to_string() };
        let zookeeper = (zookeeper_host, zookeeper.port());
        let master_info_port = bound.master_info.as_ref().and_then(|info| info.local_addr().ok());
        move || {
            let info_port = master_info_port.map(|address| address.port());
            let cluster = [
                ("hbase.zookeeper.quorum", zookeeper.0),
                ("hbase.zookeeper.property.clientPort", zookeeper.1.to_string()),
                ("zookeeper.znode.parent", settings.znode_parent.clone()),
                ("hbase.cluster.distributed", "true".to_string()),
            ];
            let jvm = jvm::surroundings(&properties, &cluster);
            Roles::start((root, wals), &settings, (&host, ports), info_port, locks, jvm)
        }
    });
    let roles = tokio::select! {
        roles = starting => roles.map_err(|_| "the start failed by an assertion".to_string())??,
        signal = signals.next() => return Err(format!("{signal} while starting")),
    };

    roles.region_server.on_configuration_update(read_again);
    roles.region_server.open_source_files_with(opener);
    let stop_asked = Arc::new(Notify::new());
    let server_name = roles.region_server.server_name().to_string();
    let traces = Traces::start(&env, &settings.traces, server_name)?.map(Arc::new);
    traces::warn_of_variables(&settings.traces);
    let shown = Shown { settings: shown_settings, traces: traces.clone() };
    let ports = bound.serve(&env, &settings, shown, &roles, &stop_asked)?;
    tell(&env, &settings, &roles, &ports, started_ns);
    systemd::ready(Arc::clone(&ports.event_loops), &roles.region_server);

    let ended = tokio::select! {
        signal = signals.next() => Ok(signal),
        () = stop_asked.notified() => Ok("a client's request"),
        failure = failed(&roles.region_server) => Err(failure),
    };
    let reason = match ended {
        Ok(reason) => reason,
        Err(failure) => {
            ports.close().await;
            let region_server = Arc::clone(&roles.region_server);
            let _ = tokio::task::spawn_blocking(move || region_server.abort("as it gave up")).await;
            return Err(format!("the server gave up: {failure}"));
        }
    };
    tracing::info!(reason, "stopping");
    systemd::stopping();
    let stopping = async {
        ports.close().await;
        let stop = move || {
            traces.iter().for_each(|traces| traces.stop());
            roles.stop()
        };
        tokio::task::spawn_blocking(stop).await
    };
    tokio::select! {
        stopped = stopping => {
            stopped.map_err(|_| "the stop failed by an assertion".to_string())??;
            tracing::info!("stopped");
            Ok(())
        }
        signal = signals.next() => {
            eprintln!("halcyon: {signal} while stopping: ends at once");
            std::process::exit(1);
        }
    }
}

/// Ends the master, as HBase's `StopMaster` does; the region server continues. Clients no longer find a master, so their
/// administrative calls end with MasterNotRunningException. Does not wait.
fn stop_master(master: &Weak<Master>, znodes: &ClusterZnodes) {
    let Some(master) = master.upgrade() else { return };
    tracing::info!("a client stops the master; the region server continues");
    znodes.remove_master();
    if let Err(error) = spawn_thread("master-stop", move || master.stop()) {
        tracing::warn!(%error, "the master could not be stopped");
    }
}

/// Takes the data directory and a local directory of WALs for this process.
async fn take_directories(
    env: &Env,
    settings: &StandaloneSettings,
    wals: Option<&OwnWals>,
) -> Result<Vec<Box<dyn FileLock>>, String> {
    let mut locks = vec![take_directory(env, &settings.data, "data directory").await?];
    if let Some(dir) = wals.and_then(OwnWals::local_dir) {
        locks.push(take_directory(env, dir, "directory of WALs").await?);
    }
    Ok(locks)
}

/// Makes a directory if need be and takes it for this process. A process that was just killed may hold the lock
/// until the kernel has cleared it away, so the lock is waited for.
async fn take_directory(env: &Env, dir: &Path, what: &str) -> Result<Box<dyn FileLock>, String> {
    let failed = |error: io::Error| format!("cannot use the {what}: {error}");
    env.local.create_dir_all(dir).map_err(failed)?;
    let path = dir.join(LOCK_FILE);
    let mut waited = Duration::ZERO;
    loop {
        match env.local.lock(&path) {
            Ok(lock) => return Ok(lock),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(failed(error)),
            Err(error) if waited >= LOCK_TIME_MAX => {
                let dir = dir.display();
                return Err(format!(
                    "the {what} {dir} is in use by another process, for {LOCK_TIME_MAX:?} at least: {error}"
                ));
            }
            Err(error) if waited.is_zero() => tracing::info!(%error, "waiting for the {what}"),
            Err(_) => {}
        }
        tokio::time::sleep(LOCK_RETRY_PERIOD).await;
        waited += LOCK_RETRY_PERIOD;
    }
}

/// What clients are told to connect to.
pub fn host_name(env: &Env, settings: &StandaloneSettings) -> String {
    if !settings.hostname.is_empty() {
        return settings.hostname.clone();
    }
    if !settings.bind.is_unspecified() {
        return settings.bind.to_string();
    }
    machine_name(env).unwrap_or_else(|| "localhost".to_string())
}

fn machine_name(env: &Env) -> Option<String> {
    let name = env.local.read("/proc/sys/kernel/hostname".as_ref()).ok();
    let name = name.and_then(|bytes| String::from_utf8(bytes).ok()).map(|name| name.trim().to_string());
    name.filter(|name| !name.is_empty())
}

/// Names that requests to the info ports may call this machine by.
pub fn own_names(env: &Env, settings: &StandaloneSettings) -> Vec<String> {
    let configured = Some(settings.hostname.clone()).filter(|name| !name.is_empty());
    configured.into_iter().chain(machine_name(env)).collect()
}

/// Master and region server over one data directory.
struct Roles {
    region_server: Arc<RegionServer>,
    master: Arc<Master>,
    master_name: ServerName,
    /// The root directory, and the files it is among.
    root: (Env, PathBuf),
    /// Given back last.
    _locks: Vec<Box<dyn FileLock>>,
}

impl Roles {
    /// *Blocking*. `ports` are the master's and the region server's.
    fn start(
        (root, wals): (Root, Option<OwnWals>),
        settings: &StandaloneSettings,
        (host, ports): (&str, (u16, u16)),
        info_port: Option<u16>,
        locks: Vec<Box<dyn FileLock>>,
        jvm: JvmSurroundings,
    ) -> Result<Roles, String> {
        root.claim(wals.as_ref(), &settings.data)?;
        // The format is looked at before the logs of the last life are touched.
        halcyon_master::prepare_root_dir(&root.env, &root.path).map_err(|error| error.to_string())?;
        if settings.hbck1_lock {
            halcyon_master::keep_hbck1_out(&root.env, &root.path).map_err(|error| error.to_string())?;
        }
        wals.as_ref().map_or(Ok(()), OwnWals::check_apart)?;
        root.note_wals(wals.as_ref())?;
        let Root { env, path: root, .. } = root;
        let root = root.as_path();
        let region_server = RegionServer::start_over(
            env.clone(),
            root,
            wals.map(|wals| wals.root),
            &Predecessors::All,
            settings.regionserver.clone(),
            (host, ports.1),
        )
        .map_err(|error| format!("the region server cannot start: {error}"))?;
        let hosted = region_server.host_coprocessors(jvm);
        hosted.map_err(|error| format!("the JVM of coprocessors has no thread: {error}"))?;
        let master_name = ServerName::new(host, ports.0, env.clock.now_ms());
        let mut master_settings = MasterSettings::new(master_name.clone());
        master_settings.info_port = info_port.map_or(-1, i32::from);
        settings.set_master(&mut master_settings);
        master_settings.coprocessors = coprocessor_check(settings, &region_server);
        master_settings.group_mapping = group_script::mapping(&settings.parts, env.clock.clone());
        let master = match Master::start(env.clone(), root, master_settings, region_server.cluster_services())
        {
            Ok(master) => master,
            Err(error) => {
                region_server.abort("the master cannot start");
                return Err(format!("the master cannot start: {error}"));
            }
        };
        let status: Weak<Master> = Arc::downgrade(&master);
        region_server.report_to(status);
        let quotas: Weak<Master> = Arc::downgrade(&master);
        region_server.read_quotas_from(quotas);
        Ok(Roles { region_server, master, master_name, root: (env, root.to_path_buf()), _locks: locks })
    }

    /// Closes and flushes every region. *Blocking*.
    fn stop(self) -> Result<(), String> {
        self.master.stop();
        self.region_server.stop().map_err(|error| {
            format!("not everything could be flushed, the log keeps it for the next start: {error}")
        })?;
        let (env, root) = &self.root;
        Root::forget_wals(env, root)
            .map_err(|error| format!("it could not be noted that no WAL is needed: {error}"))
    }

    /// What a client's `Shutdown` and `StopMaster` do.
    fn on_stop_request(&self, znodes: &Arc<ClusterZnodes>, stop_asked: &Arc<Notify>) {
        let (znodes, stop_asked) = (Arc::clone(znodes), Arc::clone(stop_asked));
        let master = Arc::downgrade(&self.master);
        self.master.on_stop_request(move |request| match request {
            StopRequest::Cluster => stop_asked.notify_one(),
            StopRequest::Master => stop_master(&master, &znodes),
        });
    }

    /// All services; every port serves all of them, as clients ask each address for what they want.
    fn services(&self, settings: &StandaloneSettings) -> Result<Services, String> {
        let master_service = MasterService::new(Arc::clone(&self.master));
        let master_service = master_service.map_err(|error| error.to_string())?;
        let mut services = Services::new();
        services.insert("ClientService", Arc::new(ClientService::new(Arc::clone(&self.region_server))));
        services.insert("AdminService", Arc::new(AdminService::new(Arc::clone(&self.region_server))));
        services.insert("MasterService", Arc::new(master_service));
        let registry = ClientMetaService::new(Arc::clone(&self.master), settings.bootstrap_nodes_max);
        services.insert("ClientMetaService", Arc::new(registry));
        services.insert("LockService", Arc::new(LockService::new(Arc::clone(&self.master))));
        let hbck_service = HbckService::new(Arc::clone(&self.master)).map_err(|error| error.to_string())?;
        services.insert("HbckService", Arc::new(hbck_service));
        Ok(services)
    }
}

/// Every port, taken but not served, except for the one where the cluster is looked for: nothing is found there
/// yet.
struct Bound {
    tree: Arc<ZnodeTree>,
    zookeeper: ZkServer,
    master: BoundServer,
    region_server: BoundServer,
    master_info: Option<BoundInfo>,
    region_server_info: Option<BoundInfo>,
}

impl Bound {
    async fn new(env: &Env, settings: &StandaloneSettings) -> Result<Bound, String> {
        let address = |port: u16| SocketAddr::new(settings.bind, port);
        let failed =
            |what: &'static str| move |error: io::Error| format!("cannot listen for the {what}: {error}");
        let rpc = |port: u16| RpcServer::bind(address(port), settings.rpc.clone(), env.clock.clone());
        let tree = Arc::new(ZnodeTree::new(env.clock.clone()));
        let zookeeper =
            ZkServer::bind(address(settings.zookeeper_port), Arc::clone(&tree), settings.zookeeper.clone());
        let zookeeper = zookeeper.await.map_err(failed("ZooKeeper endpoint"))?;
        let master = rpc(settings.master_port).await.map_err(failed("master"))?;
        let region_server = rpc(settings.regionserver_port).await.map_err(failed("region server"))?;
        let master_info = settings.master_info_address();
        let master_info = BoundInfo::bind_if(master_info).await.map_err(failed("master's page"))?;
        let region_server_info = settings.regionserver_info_address();
        let region_server_info =
            BoundInfo::bind_if(region_server_info).await.map_err(failed("region server's page"))?;
        Ok(Bound { tree, zookeeper, master, region_server, master_info, region_server_info })
    }

    /// Begins to serve and lets clients find it.
    fn serve(
        self,
        env: &Env,
        settings: &StandaloneSettings,
        shown: Shown,
        roles: &Roles,
        stop_asked: &Arc<Notify>,
    ) -> Result<Ports, String> {
        let cluster_id = roles.master.cluster_id().to_string();
        let services = roles.services(settings)?;
        let event_loops = event_loops(env, &roles.region_server)?;
        // Both ports take calls into the same memory.
        let queues = Queues::new(settings.rpc.queues);
        roles.region_server.serve_behind(Arc::clone(&queues), tokio::runtime::Handle::current());
        let (master, region_server) =
            (self.master.sharing(Arc::clone(&queues)), self.region_server.sharing(Arc::clone(&queues)));
        let tracer = || shown.traces.as_ref().map(|traces| traces.tracer());
        let (master, region_server) = (master.traced_by(tracer()), region_server.traced_by(tracer()));
        let master =
            master.on_event_loops(Arc::clone(&event_loops)).serve(services.clone(), cluster_id.clone());
        let region_server =
            region_server.on_event_loops(Arc::clone(&event_loops)).serve(services, cluster_id.clone());
        let (master, region_server) = (Arc::new(master), Arc::new(region_server));

        let surroundings: Arc<dyn Surroundings> = roles.master.clone();
        let ports = [("master", &master), ("regionserver", &region_server)];
        let cluster = (cluster_id.clone(), surroundings);
        let mut sources = Sources::new(env, settings, shown, &roles.region_server, cluster, queues, &ports);
        sources.add_part("zookeeper-endpoint", self.zookeeper.account());
        let pages = InfoPages::start(env, sources, own_names(env, settings))?;
        let master_info = pages.serve(self.master_info, &Port::Master(Arc::clone(&roles.master)))?;
        let region_server_info = pages.serve(self.region_server_info, &Port::RegionServer)?;

        let info_port = |info: &Option<InfoServer>| info.as_ref().map_or(0, |info| info.local_addr().port());
        let znodes = ClusterZnodes::new(self.tree, &settings.znode_parent, master.local_addr().port());
        let znodes = Arc::new(znodes);
        roles.on_stop_request(&znodes, stop_asked);
        let server_name = roles.region_server.server_name().to_pb();
        mirror(&znodes, &roles.master);
        znodes.set_cluster_id(&cluster_id);
        znodes.set_running(&format!("{} ms since 1970", roles.master_name.start_code));
        let page_port = info_port(&region_server_info);
        roles.region_server.set_info_port(page_port);
        znodes.set_region_server(&server_name, page_port);
        znodes.set_master(&roles.master_name.to_pb(), info_port(&master_info));
        znodes.set_meta_region_server(&server_name);
        let of_replicas = Arc::clone(&znodes);
        roles.master.on_meta_replicas(move |replicas| of_replicas.set_meta_replicas(replicas));
        let zookeeper = self.zookeeper;
        Ok(Ports { zookeeper, master, region_server, master_info, region_server_info, event_loops })
    }
}

/// Starts the threads that serve connections, one for each processor, and those that watch them.
pub fn event_loops(env: &Env, region_server: &Arc<RegionServer>) -> Result<Arc<EventLoops>, String> {
    let failed = |error: io::Error| format!("cannot start threads: {error}");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let event_loops = EventLoops::start(cores).map_err(failed)?;
    event_loops.watch(&env.watch(), STALL_CHECK_PERIOD);
    event_loops.give_back_memory(GIVE_BACK_PERIOD);
    watch_scheduler(env, Arc::downgrade(region_server)).map_err(failed)?;
    Ok(event_loops)
}

/// Shows tables, namespaces and peers in ZooKeeper, as they are when a client reads them there.
fn mirror(znodes: &ClusterZnodes, master: &Arc<Master>) {
    let weak = Arc::downgrade(master);
    let tables = weak.clone();
    znodes.mirror_tables(move || tables.upgrade().map(|master| master.table_states()).unwrap_or_default());
    let namespaces = weak.clone();
    znodes.mirror_namespaces(move || {
        namespaces.upgrade().map(|master| master.namespaces()).unwrap_or_default()
    });
    znodes.mirror_peers(move || {
        let peers = weak.upgrade().map(|master| master.peers()).unwrap_or_default();
        peers.into_iter().map(|peer| (peer.id, peer.config, peer.is_enabled)).collect()
    });
}

/// Records when a thread that has nothing to do but to wake up does so late: then the machine is what others wait for.
/// Ends with the region server.
fn watch_scheduler(env: &Env, region_server: Weak<RegionServer>) -> io::Result<()> {
    let watch = env.watch();
    // Not by `env`, which would record it if this read was slow, and ask again.
    let taken = || steal_per_processor(&RealFileSystem);
    watch.stalls.ask_host(Box::new(taken));
    spawn_thread("stall-monitor", move || {
        let looks = HOST_LOOK_PERIOD.as_nanos() / STALL_CHECK_PERIOD.as_nanos();
        for turn in 0u128.. {
            if region_server.strong_count() == 0 {
                return;
            }
            if turn.is_multiple_of(looks) {
                watch.stalls.look_at_host(&*watch.clock);
            }
            let due = watch.due_in(STALL_CHECK_PERIOD);
            watch.clock.sleep(STALL_CHECK_PERIOD);
            due.came("scheduler", || "a thread that only sleeps".into());
        }
    })
    .map(|_| ())
}

/// CPU steal of each processor, on average, since the start of the machine.
fn steal_per_processor(fs: &dyn FileSystem) -> Option<Duration> {
    let times = halcyon_env::processor_times(fs)?;
    times.steal.checked_div(u32::try_from(times.processors_count).ok()?)
}

/// Every port, served.
struct Ports {
    zookeeper: ZkServer,
    master: Arc<RpcServer>,
    region_server: Arc<RpcServer>,
    master_info: Option<InfoServer>,
    region_server_info: Option<InfoServer>,
    event_loops: Arc<EventLoops>,
}

impl Ports {
    /// Refuses new calls and waits a bounded time for those under way.
    async fn close(self) {
        drop((self.zookeeper, self.master_info, self.region_server_info));
        let (master, region_server) =
            tokio::join!(self.master.stop(DRAIN_TIME_MAX), self.region_server.stop(DRAIN_TIME_MAX));
        if !(master && region_server) {
            tracing::warn!("some calls were cut off: they took longer than {DRAIN_TIME_MAX:?}");
        }
    }
}

/// Why the region server gave up; waits until it does.
pub async fn failed(region_server: &RegionServer) -> String {
    loop {
        if let Some(failure) = region_server.failure() {
            return failure;
        }
        tokio::time::sleep(FAILURE_CHECK_PERIOD).await;
    }
}

/// An address that this machine can connect to.
pub fn reach(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => SocketAddr::from(([127, 0, 0, 1], address.port())),
        _ => address,
    }
}

/// Says on the standard output where to connect and what is in force; the last line begins with `ready`.
fn tell(env: &Env, settings: &StandaloneSettings, roles: &Roles, ports: &Ports, started_ns: u64) {
    let region_server = &settings.regionserver;
    let wal_root = settings.wal_root_address().ok().flatten();
    let wals = wal_root.clone().or_else(|| settings.root.clone());
    let is_remote = wals.is_some_and(|address| address.starts_with("hdfs:"));
    let sync = if is_remote { SyncMode::Remote } else { region_server.wal_sync };
    let durability = match sync {
        SyncMode::Fsync => "fsync: an acknowledged write is on the disk and survives a crash of the machine",
        SyncMode::Remote if region_server.wal_hsync => {
            "hsync: an acknowledged write is on the disks of the DataNodes that hold its WAL"
        }
        SyncMode::Remote => {
            "hflush: an acknowledged write is in the memory of the DataNodes that hold its WAL, and survives the \
             death of some of them, not of all at once"
        }
        SyncMode::Written => {
            "written: an acknowledged write is with the operating system and survives a crash of the process, \
             not of the machine"
        }
    };
    let mib = |bytes: u64| bytes >> 20;
    let mut text = format!("halcyon {} standalone\n", env!("CARGO_PKG_VERSION"));
    text += &format!("data {}\n", settings.root_address());
    text.extend(wal_root.map(|address| format!("wals {address}\n")));
    text += &format!("cluster {}\n", roles.master.cluster_id());
    text += &format!("durability {durability}\n");
    text += &format!(
        "memory {}: memstores up to {} MiB, blocks up to {} MiB\n",
        Size(region_server.memory_bytes),
        mib(region_server.memstore_high_bytes()),
        mib(region_server.cache_bytes())
    );
    text += &format!("zookeeper {}\n", reach(ports.zookeeper.local_addr()));
    text += &format!("master {}\n", reach(ports.master.local_addr()));
    text += &format!("regionserver {}\n", reach(ports.region_server.local_addr()));
    if let Some(info) = &ports.master_info {
        text += &format!("master-info http://{}/\n", reach(info.local_addr()));
    }
    if let Some(info) = &ports.region_server_info {
        text += &format!("regionserver-info http://{}/\n", reach(info.local_addr()));
    }
    let took_ms = (env.clock.monotonic_ns() - started_ns) / 1_000_000;
    text += &format!("ready after {took_ms} ms\n");
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush()); // nobody has to listen
}

#[cfg(test)]
mod tests {
    use halcyon_env::sim::SimFileSystem;

    use super::*;

    #[test]
    fn steal_is_that_of_one_processor() {
        let fs = SimFileSystem::new();
        assert_eq!(steal_per_processor(&fs), None);
        fs.create_dir_all("/proc".as_ref()).unwrap();
        let stat = "cpu  374456 551 43992 93479 3424 0 4696 3207 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n\
                    cpu1 1 1 1 1 1 1 1 1 0 0\nctxt 7\nbtime 1700000000\nprocesses 9\n";
        fs.put_new("/proc/stat".as_ref(), stat.as_bytes()).unwrap();
        assert_eq!(steal_per_processor(&fs), Some(Duration::from_millis(32_070 / 2)));
    }
}
