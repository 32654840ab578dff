//! `halcyon master`: the master of a cluster whose region servers are other processes, of Halcyon or of HBase.
//!
//! Start: the port is taken; the master stands for election in ZooKeeper, and refuses calls until it is active. Then it takes the
//! WALs of dead servers and of masters before it, waits for region servers, opens `hbase:meta` and what else is not open, and
//! serves. Stop: another master becomes active; region servers go on in any case.
//!
//! The process has a region server of its own, which joins nothing and serves nobody's rows: the master works with files of
//! regions through it, and has its pages from it. Its WALs are those of a server of the master's name, so the next master takes
//! them away like those of any dead server.

mod late;
mod predecessor;
mod publish;
mod watch;

use std::fmt::Display;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Weak};
use std::time::Duration;

use halcyon_cell::ErrorKind;
use halcyon_contract::{ClusterServices, RegionServers, WalFiles};
use halcyon_coord::{ClientMetaService, ClusterView, Coordinator, Lease, LeaseState, MemberRegistry};
use halcyon_env::Env;
use halcyon_master::{
    HbckService, LockService, Master, MasterAdminService, MasterService, MasterSettings, MobChoreSettings,
    StopRequest, Timelines,
};
use halcyon_region::WalRoot;
use halcyon_regionserver::{JvmSurroundings, RegionServer};
use halcyon_rpc::{EventLoops, Queues, RpcServer};
use halcyon_schema::{ServerName, layout};
use halcyon_servers::{
    ClusterSources, LEASE_IS_OVER, MulticastSender, Permit, PermittedFs, RemoteTables, Servers,
    ServersSettings, process_ended,
};
use halcyon_zookeeper::{Leadership, ZooKeeperCluster};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::Instant;

use self::late::{LateAssignments, LateServices};
use self::predecessor::Predecessor;
use self::publish::{DeadNews, Publisher};
use self::watch::{Znodes, balance, follow_tables, recover, share_queues, watch_servers};
use crate::Failure;
use crate::args::{MasterArgs, StandaloneArgs};
use crate::cluster::Cluster;
use crate::group_script;
use crate::hbase_pages::{Standby, standby_routes};
use crate::host_check;
use crate::info::{BoundInfo, RouteSwitch};
use crate::info_pages::{InfoPages, Port};
use crate::jvm;
use crate::keeper::{self, Kept};
use crate::pages::{Shown, Sources};
use crate::regionserver::{MASTER_OF_HALCYON, cluster_stopped, zookeeper_settings};
use crate::role_start::{self, Role};
use crate::root::{self, Root};
use crate::settings::StandaloneSettings;
use crate::signals::StopSignals;
use crate::site::{self, Property};
use crate::standalone::{self, DRAIN_TIME_MAX};
use crate::surroundings::{ClusterMaster, Surroundings};
use crate::traces::{self, Traces};

/// How long a starting master waits for the list of region servers in ZooKeeper.
const LIST_WAIT: Duration = Duration::from_millis(1500);
/// Between two looks at which region servers have come.
const LOOK: Duration = Duration::from_millis(20);
/// Between two attempts to take the cluster over, at first and later. After a power failure the first one finds only servers that are
/// dead; the others come in a moment.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(100);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);
/// HBase's default of `hbase.balancer.period`.
const BALANCER_PERIOD_MS: u64 = 300_000;
/// How often the master looks after what follows its tables and servers.
const CHORE_PERIOD: Duration = Duration::from_secs(1);
/// How long a master that stops the cluster waits for its servers.
const STOP_TIME_MAX: Duration = Duration::from_secs(120);
/// Threads that run procedures, most of which wait for other servers.
const PROCEDURE_THREADS: usize = 16;
const REGION_THREADS: usize = 32;

/// Runs until a signal, a client or an error ends it.
pub fn run(args: MasterArgs) -> Result<ExitCode, Failure> {
    let env = Env::real();
    let kept = Kept::by(args.keeper.kept_by, &env)?;
    let started_ns = env.clock.monotonic_ns();
    let properties = traces::with_environment(site::read(&env, &args.config)?);
    let flags = args.as_standalone();
    let (settings, unused) = StandaloneSettings::new(&properties, &flags)?;
    if flags.server.print_settings {
        print!("{}", StandaloneSettings::print_by_source(&properties, &flags)?);
        return Ok(ExitCode::SUCCESS);
    }
    let env = settings.with_keys(env);
    // The keeper has named them already.
    let unused = if args.keeper.kept_by.is_none() { unused } else { Vec::new() };
    let accepted = &flags.server.accept_without;
    role_start::check_properties(Role::Master, &properties, &settings, unused, accepted)?;
    if keeper::is_wanted(&args.keeper, settings.keeper) {
        return keeper::keep(settings.keeper, zookeeper_settings(&properties)?);
    }
    standalone::check_open_files();
    let root = root::open(env.clone(), &settings, &flags, &properties)?;
    role_start::check_directory(&root, &settings, accepted)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("server").build();
    let runtime = runtime.map_err(|error| format!("cannot start threads: {error}"))?;
    let ended = runtime.block_on(serve((env, root), settings, flags, &properties, kept, started_ns));
    runtime.shutdown_background(); // what had to be waited for has ended
    ended?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(
    (env, root): (Env, Root),
    settings: StandaloneSettings,
    flags: StandaloneArgs,
    properties: &[Property],
    kept: Kept,
    started_ns: u64,
) -> Result<(), String> {
    let mut signals = StopSignals::watch().map_err(|error| format!("cannot watch for signals: {error}"))?;
    let status = &settings.parts.status;
    let status = status.published.then(|| MulticastSender::open(status)).transpose()?;
    let address = SocketAddr::new(settings.bind, settings.master_port);
    let bound = RpcServer::bind(address, settings.rpc.clone(), env.clock.clone()).await;
    let bound = bound.map_err(|error| format!("cannot listen for the master: {error}"))?;
    let info = BoundInfo::bind_if(settings.master_info_address()).await;
    let info = info.map_err(|error| format!("cannot listen for the master's page: {error}"))?;
    let info_port = info.as_ref().and_then(|info| info.local_addr().ok()).map_or(0, |it| it.port());
    let host = standalone::host_name(&env, &settings);
    let name = ServerName::new(host, bound.local_addr().port(), env.clock.now_ms());
    let wal_root = root::open_wals(&env, &settings, &flags, properties)?;
    let lookup = |name: &str| site::find(properties, name).map(str::to_string);
    let quorum = zookeeper_settings(properties)?;
    let paths = quorum.paths().clone();
    let balancer_period = lookup("hbase.balancer.period").map_or(Ok(BALANCER_PERIOD_MS), |it| it.parse());
    let balancer_period = balancer_period.map_err(|error| format!("hbase.balancer.period: {error}"))?;
    let balancer_period = Duration::from_millis(balancer_period);
    let quorum_shown = quorum.to_string();
    let zookeeper = ZooKeeperCluster::connect(quorum, env.clock.clone()).await;
    let zookeeper = zookeeper.map_err(|error| error.to_string())?;
    kept.has_session(zookeeper.session_key());
    let view = zookeeper.view().clone();
    let mut masters = Predecessor::new(view.master.clone());
    let candidate = zookeeper.stand(&name, info_port).await.map_err(|error| error.to_string())?;
    kept.has_znode(paths.backup_master(&name));
    let candidate = candidate.watching(|master| Box::pin(async move { process_ended(&master).await }));
    let (reads, runtime) = ((root.env.clone(), root.path.clone()), Handle::current());
    let candidate = candidate.above(move || Box::pin(highest_epoch(reads.clone(), runtime.clone())));
    // A standby changes nothing in the root directory: its settings may name another one than those of the active master. Where there
    // is no cluster yet, the port is served when one begins.
    let cluster_id = tokio::select! {
        id = existing_cluster(&root) => id?,
        elected = candidate.elected() => {
            elected.map_err(|error| error.to_string())?;
            prepare_root(&root, &settings, &view).await?
        }
        signal = signals.next() => {
            zookeeper.close().await;
            tracing::info!(signal, "stopped before there was a cluster");
            return Ok(());
        }
        () = masters.follow() => unreachable!("it is followed for ever"),
    };
    let late = LateServices::default();
    let event_loops = EventLoops::start(std::thread::available_parallelism().map_or(1, usize::from));
    let event_loops = event_loops.map_err(|error| format!("cannot start threads: {error}"))?;
    let queues = Queues::new(settings.rpc.queues);
    let registry = Arc::new(MemberRegistry::new(cluster_id.clone(), view.clone()));
    let mut services = late.services();
    services.insert(
        "ClientMetaService",
        Arc::new(ClientMetaService::new(registry, settings.bootstrap_nodes_max)),
    );
    let bound = bound.sharing(Arc::clone(&queues)).on_event_loops(event_loops);
    let server = Arc::new(bound.serve(services, cluster_id.clone()));

    let standby = Standby::new(
        &env,
        (name.clone(), cluster_id.clone()),
        (view.clone(), quorum_shown.clone()),
        StandaloneSettings::with_sources(properties, &flags)?,
        settings.regionserver.memory_bytes,
    );
    let own_names = standalone::own_names(&env, &settings);
    let (routes, shown_routes) =
        RouteSwitch::new(host_check::guarded(standby_routes(standby.clone()), own_names.clone()));
    let info = info.map(|info| info.serve(routes)).transpose();
    let info = info.map_err(|error| format!("cannot show the master's page: {error}"))?;
    let mut text = format!("halcyon {} master\nmaster {name}\n", env!("CARGO_PKG_VERSION"));
    if let Some(info) = &info {
        text += &format!("master-info http://{}/\n", standalone::reach(info.local_addr()));
    }
    say(&format!("{text}stands for election"));
    let leadership = tokio::select! {
        elected = candidate.elected() => elected.map_err(|error| error.to_string())?,
        signal = signals.next() => {
            zookeeper.close().await;
            tracing::info!(signal, "stopped before this master was active");
            return Ok(());
        }
        () = cluster_stopped(&zookeeper) => {
            zookeeper.close().await;
            tracing::info!("the cluster is stopped, and this master with it");
            return Ok(());
        }
        () = masters.follow() => unreachable!("it is followed for ever"),
    };
    let elected_ns = env.clock.boot_ns();
    let permit = permit_of(&leadership);
    let wal_root = wal_root.map(|wal| WalRoot { env: PermittedFs::of(&wal.env, &permit), ..wal });
    let root = own_root(root, (&settings, &view), (&leadership, &name), &cluster_id).await?;
    late.elected(leadership.lease());
    kept.has_znode(paths.master());
    standby.elected(leadership.epoch());
    let timelines = Arc::new(Timelines::new(env.clock.clone()));
    timelines.takeover_began(&name, leadership.epoch(), masters.last(&name).as_ref());
    let elected_ms = env.clock.now_ms();
    tracing::info!(master = %name, epoch = leadership.epoch(), "this master is active");
    let active = Active {
        env: env.clone(),
        name: name.clone(),
        settings,
        root,
        wal_root,
        leadership: leadership.clone(),
        view,
        late,
        jvm: jvm::surroundings(properties, &[]),
        balancer_period,
        timelines,
        elected_ms,
        elected_ns,
    };
    let running = tokio::select! {
        running = active.take_over(&cluster_id, info_port, status) => running?,
        loss = leadership.lease().lost() => return Err(format!("{name} is not the active master any more: {loss}")),
        signal = signals.next() => return Err(format!("{signal} while this master takes the cluster over")),
    };
    let shown = Shown {
        settings: StandaloneSettings::with_sources(properties, &flags)?,
        traces: Traces::start(&env, &active.settings.traces, name.to_string())?.map(Arc::new),
    };
    traces::warn_of_variables(&active.settings.traces);
    let session = format!("{}, timeout {:?}", zookeeper.session().id(), zookeeper.session_timeout());
    let surroundings = active.surroundings(&running, quorum_shown, session);
    let pages = {
        let ports = [("master", &server)];
        let cluster = (cluster_id.clone(), surroundings);
        let sources =
            Sources::new(&env, &active.settings, shown, &running.files, cluster, Arc::clone(&queues), &ports);
        InfoPages::start(&env, sources, own_names)?
    };
    shown_routes.turn_to(pages.routes(&Port::Master(Arc::clone(&running.master))));
    tell(&env, &active, &running, &cluster_id, started_ns);

    let mut stops = running.stop_requests();
    let ended = tokio::select! {
        signal = signals.next() => Ok(StopRequest::Master).inspect(|_| tracing::info!(signal, "stopping")),
        asked = stops.recv() => Ok(asked.unwrap_or(StopRequest::Master)),
        loss = leadership.lease().lost() => Err(format!("{name} is not the active master any more: {loss}")),
        failure = standalone::failed(&running.files) => Err(failure),
    };
    drop((pages, info, shown_routes));
    match ended {
        Ok(request) => {
            active.stop(running, request, &server).await;
            zookeeper.close().await;
            Ok(())
        }
        // The next master has taken the WALs, so what this one still does cannot succeed.
        Err(failure) => {
            running.master.stop_soon();
            Err(failure)
        }
    }
}

/// Repeats what a master does before it serves, as long as it has not lost its lease, where it has failed because ZooKeeper does not
/// answer for a moment: it elects a leader, say, and the session lives. Else this master would end, and all that stand behind it.
async fn while_not_lost<T, E: Display, F: Future<Output = Result<T, E>>>(
    lease: &Lease,
    passes: impl Fn(&E) -> bool,
    mut work: impl FnMut() -> F,
) -> Result<T, String> {
    loop {
        match work().await {
            Err(error) if passes(&error) && !matches!(lease.state(), LeaseState::Lost(_)) => {
                tracing::warn!(%error, "the cluster cannot be taken over yet");
                tokio::time::sleep(RETRY_PAUSE_MAX).await;
            }
            done => return done.map_err(|error| error.to_string()),
        }
    }
}

/// Of work with files. The lease may be valid again by now.
fn is_lease_over<E: AsRef<str>>(error: &E) -> bool {
    error.as_ref().contains(LEASE_IS_OVER)
}

fn is_no_answer(error: &halcyon_cell::Error) -> bool {
    matches!(error.kind(), ErrorKind::Io | ErrorKind::Busy)
}

/// The highest epoch of a master that has left records of procedures.
async fn highest_epoch((env, root): (Env, PathBuf), runtime: Handle) -> halcyon_cell::Result<u64> {
    let found = runtime.spawn_blocking(move || halcyon_master::highest_epoch(&env, &root)).await;
    found.map_err(|_| halcyon_cell::Error::new(ErrorKind::Io, "the look failed by an assertion"))?
}

/// A master may act while its lease is valid.
fn permit_of(leadership: &Leadership) -> Permit {
    let lease = Arc::clone(leadership.lease());
    Permit::while_true(move || lease.is_valid())
}

/// The root directory of the active master: its files, with a directory for what must not come late.
async fn own_root(
    mut root: Root,
    (settings, view): (&StandaloneSettings, &ClusterView),
    (leadership, name): (&Leadership, &ServerName),
    cluster_id: &str,
) -> Result<Root, String> {
    let permit = permit_of(leadership);
    root.env = PermittedFs::of(&root.env, &permit);
    let lease = leadership.lease();
    let prepared = while_not_lost(lease, is_lease_over, || prepare_root(&root, settings, view)).await?;
    if prepared != cluster_id {
        return Err(format!(
            "the root directory is of cluster {prepared}; it was of {cluster_id} when this master started"
        ));
    }
    let own =
        while_not_lost(lease, is_lease_over, || make_scratch_dir(&root, leadership.epoch(), name)).await?;
    root.env = PermittedFs::through(&root.env, &permit, &root.path, own);
    Ok(root)
}

async fn make_scratch_dir(root: &Root, epoch: u64, name: &ServerName) -> Result<PathBuf, String> {
    let (env, path, name) = (root.env.clone(), root.path.clone(), name.clone());
    let made = tokio::task::spawn_blocking(move || {
        halcyon_master::make_scratch_dir(&env, &path, epoch, &name).map_err(|error| error.to_string())
    });
    made.await.map_err(|_| "the start failed by an assertion".to_string())?
}

/// The id of the cluster that the root directory is of; waits until there is one.
async fn existing_cluster(root: &Root) -> Result<String, String> {
    loop {
        let (env, path) = (root.env.clone(), root.path.clone());
        let id = tokio::task::spawn_blocking(move || role_start::cluster_id(&env, &path)).await;
        if let Some(id) =
            id.map_err(|_| "the look at the root directory failed by an assertion".to_string())??
        {
            return Ok(id);
        }
        tokio::time::sleep(CHORE_PERIOD).await;
    }
}

/// Makes the root directory of a new cluster, or checks that it can be worked in; its id. Only for the active master.
async fn prepare_root(
    root: &Root,
    settings: &StandaloneSettings,
    view: &ClusterView,
) -> Result<String, String> {
    let servers = view.region_servers.clone().wait(LIST_WAIT).await.unwrap_or_default();
    let (env, path, hbck1_lock) = (root.env.clone(), root.path.clone(), settings.hbck1_lock);
    let address = settings.root_address();
    let prepared = tokio::task::spawn_blocking(move || {
        // A server that is a member has found the cluster's id in its root directory.
        if let Some(server) = servers.first()
            && role_start::cluster_id(&env, &path)?.is_none()
        {
            return Err(format!(
                "hbase.rootdir: there is no cluster in {address}, and {server} is a server of one; is it the same everywhere?"
            ));
        }
        let id = halcyon_master::prepare_root_dir(&env, &path).map_err(|error| error.to_string())?;
        if hbck1_lock {
            halcyon_master::keep_hbck1_out(&env, &path).map_err(|error| error.to_string())?;
        }
        Ok(id.to_string())
    });
    prepared.await.map_err(|_| "the start failed by an assertion".to_string())?
}

impl StandaloneSettings {
    /// What a master takes from here.
    pub fn set_master(&self, master: &mut MasterSettings) {
        master.cleaner_period = self.cleaner.period;
        master.archive_keep = self.cleaner.archive_keep;
        master.old_wals_keep = self.cleaner.old_wals_keep;
        master.peer_wal_bytes_max = self.cleaner.peer_wal_bytes_max;
        master.snapshot_ttl = Duration::from_secs(self.cleaner.snapshot_ttl_s);
        master.snapshot_timeout = self.snapshot_timeout;
        master.sanity_checks = self.sanity_checks;
        master.store_file_tracker.clone_from(&self.parts.store_file_tracker);
        master.peer_base_config.clone_from(&self.parts.peer_base_config);
        master.checks_encryption = self.checks_encryption;
        master.slow_log_table = self.regionserver.slow_log_table;
        master.backup_enabled = self.regionserver.backup_enabled;
        master.backup_tables = self.regionserver.backup_tables.clone();
        master.normalizer = self.parts.normalizer.clone();
        master.groups = self.parts.groups;
        master.quotas = self.parts.quotas.clone();
        master.quotas.enabled = self.regionserver.quotas.enabled;
        master.remote_lock_timeout = self.parts.remote_lock_timeout;
        master.fix_merge_count_max = self.parts.fix_merge_count_max;
        master.separate_daughters = self.parts.separate_daughters;
        master.servers_settle = self.parts.servers_settle;
        master.servers_max = usize::try_from(self.parts.servers_max).ok().filter(|max| *max > 0);
        master.mob = MobChoreSettings {
            cleaner_period: Duration::from_secs(self.regionserver.mob_cleaner_period_s),
            age_min: self.regionserver.mob_age_min,
            compaction_period: Duration::from_secs(self.regionserver.mob_compaction_period_s),
            compaction_batch: self.regionserver.mob_compaction_batch,
        };
    }
}

/// The active master, before and while it serves.
struct Active {
    env: Env,
    name: ServerName,
    settings: StandaloneSettings,
    root: Root,
    wal_root: Option<WalRoot>,
    leadership: Leadership,
    view: ClusterView,
    late: LateServices,
    jvm: JvmSurroundings,
    balancer_period: Duration,
    timelines: Arc<Timelines>,
    /// When it won the election, in Unix time.
    elected_ms: i64,
    /// The same by `Clock::boot_ns`.
    elected_ns: u64,
}

/// A master that serves.
struct Running {
    /// For files, and for the pages.
    files: Arc<RegionServer>,
    servers: Arc<Servers>,
    master: Arc<Master>,
}

impl Active {
    /// Becomes the master that the cluster has.
    async fn take_over(
        &self,
        cluster_id: &str,
        info_port: u16,
        status: Option<MulticastSender>,
    ) -> Result<Running, String> {
        let failed = |error: halcyon_cell::Error| error.to_string();
        let id = halcyon_schema::ClusterId(cluster_id.to_string());
        let lease = self.leadership.lease();
        while_not_lost(lease, is_no_answer, || self.leadership.publish_cluster_id(&id)).await?;
        let servers = Servers::new(Handle::current(), self.env.clock.clone(), self.servers_settings()?);
        let news = status.map(|sender| self.publisher(sender, cluster_id));
        let news = news.map(|publisher| publisher.start(&servers, Arc::clone(&self.timelines)));
        let watched = watch_servers(self.view.clone(), Arc::downgrade(&servers), Arc::clone(&self.timelines));
        tokio::spawn(watched);
        let assignments = Arc::new(LateAssignments::default());
        let status: Weak<LateAssignments> = Arc::downgrade(&assignments);
        self.late.set("RegionServerStatusService", Arc::new(servers.status_service(status)));
        while_not_lost(lease, is_no_answer, || self.leadership.publish_running()).await?;
        self.wait_for_servers(&servers).await;
        self.timelines.servers_joined();

        let files = while_not_lost(lease, is_lease_over, || self.start_files()).await?;
        let mut retry_pause = RETRY_PAUSE_MIN;
        let (master, sources) = loop {
            while_not_lost(lease, is_lease_over, || self.add_recovering(&servers, news.as_ref())).await?;
            let sources = Arc::new(ClusterSources::new(servers.clone(), files.replication_books()));
            let services = self.cluster_services(&servers, &files, &sources);
            let settings = self.master_settings(info_port, &files);
            let (env, root) = (self.root.env.clone(), self.root.path.clone());
            let timelines = Arc::clone(&self.timelines);
            let starting = tokio::task::spawn_blocking(move || {
                Master::start_noting(env, &root, settings, services, timelines)
            });
            match starting.await.map_err(|_| "the start failed by an assertion".to_string())? {
                Ok(master) => break (master, sources),
                Err(error) if error.kind().is_permanent() => {
                    return Err(format!("the master cannot start: {error}"));
                }
                Err(error) => tracing::warn!(%error, "the cluster cannot be taken over yet"),
            }
            tokio::time::sleep(retry_pause).await;
            retry_pause = (retry_pause * 2).min(RETRY_PAUSE_MAX);
        };
        self.timelines.takeover_ended();
        assignments.set(&master);
        // It lives as long as the process.
        tokio::spawn(recover(servers.changes(), Arc::downgrade(&master), assignments));
        tokio::spawn(follow_tables(Arc::downgrade(&master)));
        tokio::spawn(share_queues(Arc::downgrade(&master), sources));
        tokio::spawn(balance(self.balancer_period, Arc::downgrade(&master)));
        let service = MasterService::new(Arc::clone(&master)).map_err(failed)?;
        self.late.set("MasterService", Arc::new(service));
        let hbck = HbckService::new(Arc::clone(&master)).map_err(failed)?;
        self.late.set("HbckService", Arc::new(hbck));
        self.late.set("LockService", Arc::new(LockService::new(Arc::clone(&master))));
        let mob = MasterAdminService::new(Arc::clone(&master)).map_err(failed)?;
        self.late.set("AdminService", Arc::new(mob));
        Ok(Running { files, servers, master })
    }

    fn publisher(&self, sender: MulticastSender, cluster_id: &str) -> Publisher {
        Publisher {
            sender,
            period: self.settings.parts.status.period,
            version: MasterSettings::new(self.name.clone()).hbase_version,
            cluster_id: cluster_id.to_string(),
            master: self.name.clone(),
            permit: permit_of(&self.leadership),
        }
    }

    fn servers_settings(&self) -> Result<ServersSettings, String> {
        let mut settings = ServersSettings::new(self.name.clone(), self.env.clock.now_ms());
        settings.epoch = Some(self.leadership.epoch());
        settings.permit = permit_of(&self.leadership);
        settings.clock_skew_max = self.settings.clock_skew_max;
        settings.clock_skew_warned = self.settings.clock_skew_warned;
        settings.answers = vec![
            ("hbase.rootdir".to_string(), self.settings.root_address()),
            (MASTER_OF_HALCYON.to_string(), "true".to_string()),
        ];
        if let Some(address) = self.settings.wal_root_address()? {
            settings.answers.push(("hbase.wal.dir".to_string(), address));
        }
        Ok(settings)
    }

    fn master_settings(&self, info_port: u16, files: &Arc<RegionServer>) -> MasterSettings {
        let mut master = MasterSettings::new(self.name.clone());
        master.epoch = self.leadership.epoch();
        master.predecessor_until_ns = self.predecessor_until_ns();
        master.info_port = if info_port == 0 { -1 } else { i32::from(info_port) };
        master.procedure_threads = PROCEDURE_THREADS;
        master.region_threads = REGION_THREADS;
        self.settings.set_master(&mut master);
        master.coprocessors = standalone::coprocessor_check(&self.settings, files);
        master.group_mapping = group_script::mapping(&self.settings.parts, self.env.clock.clone());
        master
    }

    /// Those that have a znode are there; in a cluster that starts as a whole they come one after the other. For those that had
    /// regions the master waits when it has read `hbase:meta`.
    async fn wait_for_servers(&self, servers: &Arc<Servers>) {
        let known = self.view.region_servers.clone().wait(LIST_WAIT).await.unwrap_or_default();
        for server in &known {
            servers.add_online(server);
        }
        let count_min = self.settings.parts.servers_min.max(1);
        if servers.online().len() < count_min {
            tracing::info!(count_min, "waiting for region servers");
        }
        while servers.online().len() < count_min {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The WALs that are there are of servers that are online, of dead ones, and of masters before.
    async fn add_recovering(&self, servers: &Arc<Servers>, news: Option<&DeadNews>) -> Result<(), String> {
        let (env, path) = match &self.wal_root {
            Some(wal) => (wal.env.clone(), wal.path.clone()),
            None => (self.root.env.clone(), self.root.path.clone()),
        };
        let listed = tokio::task::spawn_blocking(move || {
            let dir = layout::wals_dir(&path);
            env.fs.create_dir_all(&dir)?;
            env.fs.list(&dir)
        });
        let listed = listed.await.map_err(|_| "the start failed by an assertion".to_string())?;
        let online = servers.online();
        for entry in listed.map_err(|error| format!("cannot list the WALs: {error}"))? {
            let taken = entry.name.strip_suffix("-splitting");
            match ServerName::parse(taken.unwrap_or(&entry.name)) {
                Ok(server) if server == self.name => {}
                // One whose WALs were taken is dead for ever, although it may have a znode still.
                Ok(server) if taken.is_none() && online.contains(&server) => {}
                Ok(server) if entry.is_dir => {
                    servers.add_recovering(&server);
                    if let Some(news) = news {
                        news.tell(server);
                    }
                }
                _ => tracing::warn!(name = entry.name, "among the WALs is something else"),
            }
        }
        Ok(())
    }

    async fn start_files(&self) -> Result<Arc<RegionServer>, String> {
        let (env, root, wal_root) = (self.root.env.clone(), self.root.path.clone(), self.wal_root.clone());
        let (settings, name) = (self.settings.regionserver.clone(), self.name.clone());
        let starting =
            tokio::task::spawn_blocking(move || RegionServer::start_as(env, &root, wal_root, settings, name));
        let started = starting.await.map_err(|_| "the start failed by an assertion".to_string())?;
        let files =
            started.map_err(|error| format!("the master cannot write to the root directory: {error}"))?;
        // No region is open here: the JVM only says whether the classes of a table can be loaded.
        let hosted = files.host_coprocessors(self.jvm.clone());
        hosted.map_err(|error| format!("the JVM of coprocessors has no thread: {error}"))?;
        Ok(files)
    }

    fn cluster_services(
        &self,
        servers: &Arc<Servers>,
        files: &Arc<RegionServer>,
        sources: &Arc<ClusterSources>,
    ) -> ClusterServices {
        let (env, root) = match &self.wal_root {
            Some(wal) => (wal.env.clone(), wal.path.clone()),
            None => (self.root.env.clone(), self.root.path.clone()),
        };
        ClusterServices {
            servers: servers.clone(),
            files: files.region_files(),
            system_tables: Arc::new(RemoteTables::new(servers.clone())),
            wals: WalFiles { env, root, is_root: self.wal_root.is_none() },
            replication: Some(sources.clone()),
            quotas: Some(servers.clone()),
            coordination: Arc::new(Znodes {
                leadership: self.leadership.clone(),
                view: self.view.clone(),
                runtime: Handle::current(),
            }),
        }
    }

    fn surroundings(&self, running: &Running, zookeeper: String, session: String) -> Arc<dyn Surroundings> {
        Arc::new(ClusterMaster {
            cluster: Cluster {
                master: Arc::clone(&running.master),
                servers: Arc::clone(&running.servers),
                timelines: Arc::clone(&self.timelines),
                view: self.view.clone(),
                clock: self.env.clock.clone(),
                name: self.name.clone(),
                epoch: self.leadership.epoch(),
                elected_ms: self.elected_ms,
                active_ms: self.env.clock.now_ms(),
                newest: Mutex::default(),
            },
            zookeeper,
            session,
            root: self.settings.root_address(),
        })
    }

    async fn stop(&self, running: Running, request: StopRequest, server: &Arc<RpcServer>) {
        let Running { files, servers, master } = running;
        if request == StopRequest::Cluster {
            tracing::info!("a client stops the cluster");
            // Servers that leave now are not to be recovered: their regions would be opened at the others, which leave too.
            master.stop_soon();
            if let Err(error) = self.leadership.remove_running().await {
                tracing::warn!(%error, "region servers were not told that the cluster is stopped");
            }
            let begun = Instant::now();
            while !servers.online().is_empty() && begun.elapsed() < STOP_TIME_MAX {
                tokio::time::sleep(CHORE_PERIOD / 10).await;
            }
        }
        let stopping = tokio::task::spawn_blocking(move || {
            master.stop();
            files.stop()
        });
        if let Ok(Err(error)) = stopping.await {
            tracing::warn!(%error, "the master's own WAL is left to the next master");
        }
        self.wait_for_predecessor(server).await;
        if let Err(error) = self.leadership.resign().await {
            tracing::warn!(%error, "ZooKeeper was not told that this master has stopped");
        }
        // Last: a standby master takes a port that nothing listens on for the end of the process. Calls are refused since the stop began.
        server.stop(DRAIN_TIME_MAX).await;
    }

    /// A master that follows one that has resigned may know of no other: it has not seen the znode. So the znode stays until the master before this one cannot act any
    /// more, or until a standby takes it because nothing listens at the port: it then learns from the znode how long that is.
    async fn wait_for_predecessor(&self, server: &Arc<RpcServer>) {
        let left = self.predecessor_until_ns().unwrap_or(0).saturating_sub(self.env.clock.boot_ns());
        if left == 0 {
            return;
        }
        server.stop(DRAIN_TIME_MAX).await;
        let left = Duration::from_nanos(left);
        tracing::info!(?left, "waits until the master before this one cannot act any more");
        tokio::select! {
            () = tokio::time::sleep(left) => {}
            loss = self.leadership.lease().lost() => tracing::info!("{loss}"),
        }
    }

    /// Until when the master before this one may act, in `boot_ns`; `None` if its session had ended.
    fn predecessor_until_ns(&self) -> Option<u64> {
        let lease = self.leadership.predecessor_lease()?;
        Some(self.elected_ns.saturating_add(u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Running {
    /// What clients ask for with `Shutdown` and `StopMaster`.
    fn stop_requests(&self) -> mpsc::Receiver<StopRequest> {
        let (asked, requests) = mpsc::channel(1);
        self.master.on_stop_request(move |request| {
            let _ = asked.try_send(request); // one is enough
        });
        requests
    }
}

fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush()); // nothing has to listen
}

/// Says on the standard output who this is; the last line begins with `ready`.
fn tell(env: &Env, active: &Active, running: &Running, cluster_id: &str, started_ns: u64) {
    let mut text = format!("root {}\ncluster {cluster_id}\n", active.settings.root_address());
    text += &format!("epoch {}\n", active.leadership.epoch());
    text += &format!("regionservers {}\n", running.servers.online().len());
    text += &format!("ready after {} ms", (env.clock.monotonic_ns() - started_ns) / 1_000_000);
    say(&text);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use halcyon_coord::Loss;
    use halcyon_env::SystemClock;
    use halcyon_env::sim::SimFileSystem;

    use super::*;

    /// ZooKeeper elected a leader while a master took over: the first file that it was to make was refused, and it ended, as did each
    /// master behind it.
    #[tokio::test]
    async fn a_master_that_takes_over_outlives_a_moment_without_its_lease() {
        let lease = Lease::new(ServerName::new("h", 16000, 1), Arc::new(SystemClock::new()));
        let asked = Arc::new(AtomicUsize::new(0));
        let permit = {
            let asked = Arc::clone(&asked);
            Permit::while_true(move || asked.fetch_add(1, Ordering::SeqCst) > 0)
        };
        let env = PermittedFs::of(&SimFileSystem::hdfs(1).env(), &permit);
        let make = || async {
            let made = env.fs.create_dir_all(std::path::Path::new("/hbase/WALs"));
            made.map_err(|error| format!("cannot list the WALs: {error}"))
        };
        while_not_lost(&lease, is_lease_over, make).await.unwrap();
        assert_eq!(asked.load(Ordering::SeqCst), 2);

        let fails = || async { Err::<(), _>("it is damaged".to_string()) };
        assert_eq!(while_not_lost(&lease, is_lease_over, fails).await.unwrap_err(), "it is damaged");
        let away = || async { Err::<(), _>(halcyon_cell::Error::new(ErrorKind::Io, "no answer")) };
        assert!(tokio::time::timeout(LOOK, while_not_lost(&lease, is_no_answer, away)).await.is_err());
        lease.lose(Loss::SessionExpired);
        assert!(while_not_lost(&lease, is_no_answer, away).await.is_err());
    }
}
