//! `halcyon regionserver`: a region server of a cluster whose master is another process, such as HBase's.
//!
//! Start: the port is taken; the server finds the master in ZooKeeper, joins, and learns where the root directory is. Then it
//! begins its WAL, serves, and obeys. Stop: calls are refused, regions are flushed and closed, and the master gives them
//! to other servers.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use halcyon_coord::{ClientMetaService, ClusterView, Coordinator, MemberRegistry, Membership, Seen};
use halcyon_env::Env;
use halcyon_regionserver::{
    AdminService, BarrierWork, ClientService, ClusterBooks, JvmSurroundings, MasterLink, RegionServer,
    RegionServerSettings, RemoteMaster, RemoteQuotas, WalRoot,
};
use halcyon_rpc::{BoundServer, EventLoops, Queues, RpcServer, Services};
use halcyon_schema::{ClusterId, ServerName, layout};
use halcyon_zookeeper::{ZooKeeperCluster, ZooKeeperSettings};
use tokio::runtime::Handle;

use crate::Failure;
use crate::args::{RegionServerArgs, StandaloneArgs};
use crate::info::{BoundInfo, InfoServer};
use crate::info_pages::{InfoPages, Port};
use crate::jvm;
use crate::keeper::{self, Kept};
use crate::pages::{Shown, Sources};
use crate::progress;
use crate::role_start::{self, Role};
use crate::root::{self, Root};
use crate::safe_start::{self, Protection};
use crate::settings::{ShownSetting, StandaloneSettings};
use crate::signals::StopSignals;
use crate::site::{self, Property};
use crate::source_files;
use crate::standalone::{self, DRAIN_TIME_MAX};
use crate::surroundings::{Member, Surroundings};
use crate::systemd;
use crate::traces::{self, Traces};

/// The newest version of HBase that this server works like. A master of an older one is told its own version.
const HBASE_VERSION: (u32, u32, u32) = (2, 6, 4);
/// What masters of Halcyon add to the settings that a server is told when it starts.
pub const MASTER_OF_HALCYON: &str = "halcyon.master";
/// HBase's default of `hbase.regionserver.msginterval`.
const REPORT_PERIOD_MS: u64 = 3000;
/// How often the server looks whether an administrator wants it to stop.
const STOP_CHECK_PERIOD: Duration = Duration::from_millis(100);

/// Runs until a signal, the master or an error ends it.
pub fn run(args: RegionServerArgs) -> Result<ExitCode, Failure> {
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
    role_start::check_properties(Role::RegionServer, &properties, &settings, unused, accepted)?;
    if keeper::is_wanted(&args.keeper, settings.keeper) {
        return keeper::keep(settings.keeper, zookeeper_settings(&properties)?);
    }
    standalone::check_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("server").build();
    let runtime = runtime.map_err(|error| format!("cannot start threads: {error}"))?;
    let ended = runtime.block_on(serve(env, settings, flags, &properties, kept, started_ns));
    runtime.shutdown_background(); // what had to be waited for has ended
    ended?;
    Ok(ExitCode::SUCCESS)
}

pub fn zookeeper_settings(properties: &[Property]) -> Result<ZooKeeperSettings, String> {
    let quorum = ZooKeeperSettings::from_properties(|name| site::find(properties, name).map(str::to_string));
    quorum.map_err(|error| error.to_string())
}

async fn serve(
    env: Env,
    settings: StandaloneSettings,
    flags: StandaloneArgs,
    properties: &[Property],
    kept: Kept,
    started_ns: u64,
) -> Result<(), String> {
    let mut signals = StopSignals::watch().map_err(|error| format!("cannot watch for signals: {error}"))?;
    let address = SocketAddr::new(settings.bind, settings.regionserver_port);
    let bound = RpcServer::bind(address, settings.rpc.clone(), env.clock.clone()).await;
    let bound = bound.map_err(|error| format!("cannot listen for the region server: {error}"))?;
    let info = BoundInfo::bind_if(settings.regionserver_info_address()).await;
    let info = info.map_err(|error| format!("cannot listen for the region server's page: {error}"))?;
    let host = standalone::host_name(&env, &settings);
    let name = ServerName::new(host, bound.local_addr().port(), env.clock.now_ms());
    let quorum = zookeeper_settings(properties)?;
    let znode = quorum.paths().region_server(&name);
    let quorum_shown = quorum.to_string();
    let registry = (quorum.servers().to_vec(), quorum.paths().base().to_string());
    let zookeeper = ZooKeeperCluster::connect(quorum, env.clock.clone()).await;
    let zookeeper = zookeeper.map_err(|error| error.to_string())?;
    kept.has_session(zookeeper.session_key());
    let masters = zookeeper.view().master.clone();
    let find_master = Box::new(move || masters.present().map(|master| master.server));
    let link = Arc::new(MasterLink::new(Handle::current(), find_master, HBASE_VERSION));
    let quota_link = link.clone();

    let told = join(&link, &name, &env, &mut signals).await?;
    let (of_site, settings) =
        (settings.clone(), settings.with_root(told.get("hbase.rootdir").map(String::as_str))?);
    role_start::check_wals_of_master(&told, &settings)?;
    let root = root::open(env.clone(), &settings, &flags, properties)?;
    let wal_root = root::open_wals(&env, &settings, &flags, properties)?;
    warn_of_lack(&root, &settings.regionserver)?;
    let report_period =
        site::find(properties, "hbase.regionserver.msginterval").map_or(Ok(REPORT_PERIOD_MS), str::parse);
    let report_period = report_period.map_err(|error| format!("hbase.regionserver.msginterval: {error}"))?;
    let starting = tokio::task::spawn_blocking({
        let (name, settings, link) = (name.clone(), settings.regionserver.clone(), link.clone());
        let jvm = jvm::surroundings(properties, &[]);
        let is_own_master = told.contains_key(MASTER_OF_HALCYON);
        move || {
            let report_period = Duration::from_millis(report_period);
            let started = Started::new((root, wal_root), settings, name, link, report_period, jvm)?;
            if is_own_master {
                // Before regions come, and after the master knows the server: a change is read now, or the master tells of it.
                let read = started.region_server.read_peers();
                read.map_err(|error| format!("the replication peers cannot be read: {error}"))?;
            }
            Ok::<_, String>(started)
        }
    });
    let started = starting.await.map_err(|_| "the start failed by an assertion".to_string())??;
    let opener = source_files::opener(&env, &settings.regionserver, flags.config.as_deref());
    started.region_server.open_source_files_with(opener);
    let shown = Shown {
        settings: shown_settings(properties, &flags, &settings)?,
        traces: Traces::start(&env, &settings.traces, name.to_string())?.map(Arc::new),
    };
    traces::warn_of_variables(&settings.traces);
    let traces = shown.traces.clone();
    if settings.regionserver.backup_enabled {
        let books = ClusterBooks::new(Handle::current(), registry.clone());
        started.region_server.keep_backup_books(Arc::new(books));
    }
    // It reads and reports as long as it lives.
    let _quotas = RemoteQuotas::start(&started.region_server, quota_link, Handle::current(), registry)
        .map_err(|error| error.to_string())?;
    started.region_server.on_configuration_update(standalone::read_again(env.clone(), flags, of_site));
    let page_port = info.as_ref().map_or(Ok(0), |info| info.local_addr().map(|address| address.port()));
    let page_port = page_port.map_err(|error| format!("the region server's page has no address: {error}"))?;
    started.region_server.set_info_port(page_port);
    zookeeper.claim_version(link.version().to_string());
    let member = zookeeper.join(&name, page_port).await.map_err(|error| error.to_string())?;
    kept.has_znode(znode);
    let lease = Arc::clone(member.lease());
    started.region_server.answer_while(move || lease.is_valid());
    let newest_epoch = zookeeper.view().master_epoch.clone();
    started.region_server.check_epochs_by(move || newest_epoch.present().unwrap_or(0));
    // Last, so that no call is answered without a lease. The kernel keeps the connections of those who saw the znode until here.
    let ports = started.serve(bound, &env, &settings, &shown, zookeeper.view())?;
    let (live, last_count) = (zookeeper.view().region_servers.clone(), AtomicUsize::new(0));
    started.region_server.limit_recovery(move || {
        // While ZooKeeper does not answer, there are as many as before.
        if let Some(servers) = live.present() {
            last_count.store(servers.len().saturating_sub(1), Ordering::Relaxed);
        }
        last_count.load(Ordering::Relaxed)
    });
    let work = Arc::new(BarrierWork::new(Arc::clone(&started.region_server)));
    zookeeper.take_part(&name, work, Handle::current());
    let surroundings = Member {
        view: zookeeper.view().clone(),
        zookeeper: quorum_shown,
        session: format!("{}, timeout {:?}", zookeeper.session().id(), zookeeper.session_timeout()),
        lease: Arc::clone(member.lease()),
        root: settings.root_address(),
        wal_root: settings.wal_root_address()?,
    };
    let info = started.show(&env, &settings, shown, surroundings, &ports, info)?;
    systemd::ready(Arc::clone(&ports.event_loops), &started.region_server);
    tell(&env, &settings, &started, info.as_ref(), started_ns);

    let stuck_time_max = started.region_server.settings().stuck_time_max;
    let ended = tokio::select! {
        signal = signals.next() => Ok(signal),
        () = stop_wanted(&started.region_server) => Ok("an administrator stops the server"),
        () = cluster_stopped(&zookeeper) => Ok("the cluster is stopped"),
        stuck = progress::stuck_for(Arc::clone(&ports.event_loops), &started.region_server, stuck_time_max) => Err(stuck),
        loss = member.lease().lost() => Err(format!("{name} is no member of the cluster any more: {loss}")),
        failure = standalone::failed(&started.region_server) => Err(failure),
    };
    let parts = Running {
        region_server: Arc::clone(&started.region_server),
        server: ports.server,
        traces,
        member,
        zookeeper,
    };
    match ended {
        Ok(reason) => {
            tracing::info!(reason, "stopping");
            parts.stop().await
        }
        Err(failure) => parts.abort(&failure).await,
    }
}

/// The threads of a server that gave up have so long to end.
const ABORT_TIME_MAX: Duration = Duration::from_secs(5);

/// What has to end.
struct Running {
    region_server: Arc<RegionServer>,
    server: Arc<RpcServer>,
    traces: Option<Arc<Traces>>,
    member: Arc<dyn Membership>,
    zookeeper: ZooKeeperCluster,
}

impl Running {
    /// Flushes and closes the regions, and leaves the cluster. A second signal changes nothing: it may be the one that a keeper
    /// passes on, which systemd or a terminal has sent to this process as well.
    async fn stop(self) -> Result<(), String> {
        let Running { region_server, server, traces, member, zookeeper } = self;
        systemd::stopping();
        let stopping = Arc::clone(&region_server);
        let mut stop = tokio::task::spawn_blocking(move || {
            traces.iter().for_each(|traces| traces.stop());
            stopping.stop()
        });
        // Who is dead to the master has nothing to flush any more: others open its regions. A server that gives up ends soon.
        let failure = tokio::select! {
            stopped = &mut stop => Ok(stopped),
            loss = member.lease().lost() => Err(format!("the server is no member of the cluster any more: {loss}")),
            failure = standalone::failed(&region_server) => Err(failure),
        };
        let stopped = match failure {
            Ok(stopped) => stopped,
            Err(failure) => {
                region_server.give_up(&failure);
                match tokio::time::timeout(ABORT_TIME_MAX, stop).await {
                    Ok(stopped) => stopped,
                    Err(_) => end_stuck(zookeeper, &failure).await,
                }
            }
        };
        let stopped = stopped.map_err(|_| "the stop failed by an assertion".to_string())?;
        // Now the master gives the regions to other servers.
        if let Err(error) = member.leave().await {
            tracing::warn!(%error, "ZooKeeper was not told that the server has stopped");
        }
        // Last, as in HBase: a master may take a port that nothing listens on for the end of the process. Calls are refused since
        // the stop began.
        server.stop(DRAIN_TIME_MAX).await;
        zookeeper.close().await;
        stopped.map_err(|error| {
            format!("not everything could be flushed; the master has the log split: {error}")
        })
    }

    /// Ends at once. What was acknowledged is in the WAL, which the master has split.
    async fn abort(self, failure: &str) -> Result<(), String> {
        let Running { region_server, server, zookeeper, .. } = self;
        region_server.give_up(failure); // from now on nothing is answered
        server.stop(DRAIN_TIME_MAX).await;
        let abort = tokio::task::spawn_blocking(move || region_server.abort("as it gave up"));
        if tokio::time::timeout(ABORT_TIME_MAX, abort).await.is_err() {
            end_stuck(zookeeper, failure).await;
        }
        zookeeper.close().await; // the master need not wait for the end of the session
        Err(format!("the server gave up: {failure}"))
    }
}

/// Ends the process of a server that gave up. What is on the disks is all that counts; an orderly end would wait for the thread
/// that hangs.
async fn end_stuck(zookeeper: ZooKeeperCluster, failure: &str) -> ! {
    zookeeper.close().await; // as above
    tracing::error!(failure, "the server gave up, and a thread of it does not end");
    std::process::exit(1);
}

/// Announces the server to the master, and returns the settings that it answers with.
async fn join(
    link: &Arc<MasterLink>,
    name: &ServerName,
    env: &Env,
    signals: &mut StopSignals,
) -> Result<HashMap<String, String>, String> {
    let go_on = Arc::new(AtomicBool::new(true));
    let joining = tokio::task::spawn_blocking({
        let (link, name, clock, go_on) = (link.clone(), name.clone(), env.clock.clone(), go_on.clone());
        move || link.join(&name, &*clock, &|| go_on.load(Ordering::Relaxed))
    });
    tokio::select! {
        joined = joining => {
            let told = joined.map_err(|_| "joining the cluster failed by an assertion".to_string())?;
            told.map_err(|error| error.to_string())
        }
        signal = signals.next() => {
            go_on.store(false, Ordering::Relaxed);
            Err(format!("{signal} while waiting for the master"))
        }
    }
}

/// Warns of what HBase's servers of the cluster enforce and this one does not. The site file, if it is the cluster's, has asked
/// for the same, and its loss was accepted.
fn warn_of_lack(root: &Root, settings: &RegionServerSettings) -> Result<(), String> {
    let mut findings = safe_start::of_member_directory(&root.env, &root.path)?;
    if settings.coprocessors.has_host() {
        safe_start::retain_unhosted(&mut findings);
    }
    for finding in findings {
        if settings.quotas.enabled && finding.protection == Protection::Quotas {
            continue;
        }
        tracing::warn!(
            protection = %finding.protection,
            "the cluster has {}; at this server {}",
            finding.what,
            finding.protection.loss()
        );
    }
    Ok(())
}

/// The settings for the pages, with the root directory that the master has named.
fn shown_settings(
    properties: &[Property],
    flags: &StandaloneArgs,
    settings: &StandaloneSettings,
) -> Result<Vec<ShownSetting>, String> {
    let mut shown = StandaloneSettings::with_sources(properties, flags)?;
    let root = settings.root_address();
    let changed = shown.iter_mut().find(|it| it.description.name == "hbase.rootdir" && it.value != root);
    if let Some(changed) = changed {
        (changed.value, changed.source) = (root, "the master");
    }
    Ok(shown)
}

/// Waits until an administrator wants the server to stop (`StopServer`).
async fn stop_wanted(region_server: &RegionServer) {
    while region_server.stop_wanted().is_none() {
        tokio::time::sleep(STOP_CHECK_PERIOD).await;
    }
}

/// Waits until the cluster is stopped as a whole (HBase removes the znode `running` then).
pub async fn cluster_stopped(zookeeper: &ZooKeeperCluster) {
    let mut running = zookeeper.view().running.clone();
    let mut was_running = running.present().is_some();
    while let Ok(seen) = running.changed().await {
        if was_running && matches!(seen, Seen::Absent) {
            return; // garbage in the znode stops nobody
        }
        was_running |= seen.present().is_some();
    }
    std::future::pending::<()>().await;
}

/// A server that has joined.
struct Started {
    region_server: Arc<RegionServer>,
    master: Arc<RemoteMaster>,
    root: String,
    cluster_id: String,
}

impl Started {
    /// *Blocking*.
    fn new(
        (root, wal_root): (Root, Option<WalRoot>),
        settings: RegionServerSettings,
        name: ServerName,
        link: Arc<MasterLink>,
        report_period: Duration,
        jvm: JvmSurroundings,
    ) -> Result<Started, String> {
        let cluster_id = root.env.fs.read(&layout::cluster_id_file(&root.path));
        let cluster_id = cluster_id.map_err(|error| format!("cannot read the cluster's id: {error}"))?;
        let cluster_id = ClusterId::decode_file(&cluster_id).map_err(|error| error.to_string())?.to_string();
        let shown = root.path.display().to_string();
        let started = RegionServer::start_as(root.env, &root.path, wal_root, settings, name);
        let region_server = started.map_err(|error| format!("the region server cannot start: {error}"))?;
        region_server.replicate_own_wals();
        let hosted = region_server.host_coprocessors(jvm);
        hosted.map_err(|error| format!("the JVM of coprocessors has no thread: {error}"))?;
        let master =
            RemoteMaster::start(&region_server, link, report_period).map_err(|error| error.to_string())?;
        Ok(Started { region_server, master, root: shown, cluster_id })
    }

    fn serve(
        &self,
        bound: BoundServer,
        env: &Env,
        settings: &StandaloneSettings,
        shown: &Shown,
        view: &ClusterView,
    ) -> Result<Ports, String> {
        let event_loops = standalone::event_loops(env, &self.region_server)?;
        let queues = Queues::new(settings.rpc.queues);
        self.region_server.serve_behind(Arc::clone(&queues), Handle::current());
        let mut services = Services::new();
        let admin = AdminService::obeying(Arc::clone(&self.region_server), &self.master);
        services.insert("ClientService", Arc::new(ClientService::new(Arc::clone(&self.region_server))));
        services.insert("AdminService", Arc::new(admin));
        let registry = MemberRegistry::new(self.cluster_id.clone(), view.clone());
        let registry = ClientMetaService::new(Arc::new(registry), settings.bootstrap_nodes_max);
        services.insert("ClientMetaService", Arc::new(registry));
        let tracer = shown.traces.as_ref().map(|traces| traces.tracer());
        let bound = bound.sharing(Arc::clone(&queues)).traced_by(tracer);
        let server = bound.on_event_loops(Arc::clone(&event_loops)).serve(services, self.cluster_id.clone());
        Ok(Ports { server: Arc::new(server), queues, event_loops })
    }

    /// Serves the pages, if there is a port for them.
    fn show(
        &self,
        env: &Env,
        settings: &StandaloneSettings,
        shown: Shown,
        member: Member,
        ports: &Ports,
        info: Option<BoundInfo>,
    ) -> Result<Option<InfoServer>, String> {
        let cluster: (String, Arc<dyn Surroundings>) = (self.cluster_id.clone(), Arc::new(member));
        let queues = Arc::clone(&ports.queues);
        let rpc = [("regionserver", &ports.server)];
        let sources = Sources::new(env, settings, shown, &self.region_server, cluster, queues, &rpc);
        let pages = InfoPages::start(env, sources, standalone::own_names(env, settings))?;
        pages.serve(info, &Port::RegionServer)
    }
}

/// The RPC port, served.
struct Ports {
    server: Arc<RpcServer>,
    queues: Arc<Queues>,
    event_loops: Arc<EventLoops>,
}

/// Says on the standard output who this is; the last line begins with `ready`.
fn tell(
    env: &Env,
    settings: &StandaloneSettings,
    started: &Started,
    info: Option<&InfoServer>,
    started_ns: u64,
) {
    let mut text = format!("halcyon {} regionserver\n", env!("CARGO_PKG_VERSION"));
    text += &format!("root {} ({})\n", settings.root_address(), started.root);
    text += &format!("cluster {}\n", started.cluster_id);
    text += &format!(
        "master {}\n",
        started.master.master().map_or("unknown".to_string(), |name| name.to_string())
    );
    text += &format!("regionserver {}\n", started.region_server.server_name());
    if let Some(info) = info {
        text += &format!("regionserver-info http://{}/\n", standalone::reach(info.local_addr()));
    }
    text += &format!("ready after {} ms\n", (env.clock.monotonic_ns() - started_ns) / 1_000_000);
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush()); // nobody has to listen
}
