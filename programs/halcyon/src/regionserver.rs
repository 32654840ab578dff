//! `halcyon regionserver`: a region server of a cluster whose master is another process, such as HBase's.
//!
//! Start: the port is taken; the server finds the master in ZooKeeper, joins, and learns where the root directory is. Then it
//! begins its WAL, serves, and obeys. Stop: calls are refused, regions are flushed and closed, and the master gives them
//! to other servers.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use halcyon_coord::{Coordinator, Seen};
use halcyon_env::Env;
use halcyon_regionserver::{
    AdminService, ClientService, MasterLink, RegionServer, RegionServerSettings, RemoteMaster,
};
use halcyon_rpc::{BoundServer, EventLoops, Queues, RpcServer, Services};
use halcyon_schema::{ClusterId, ServerName, layout};
use halcyon_zookeeper::{ZooKeeperCluster, ZooKeeperSettings};
use tokio::runtime::Handle;

use crate::Failure;
use crate::args::{RegionServerArgs, StandaloneArgs};
use crate::root::{self, Root};
use crate::settings::StandaloneSettings;
use crate::signals::StopSignals;
use crate::site::{self, Property};
use crate::standalone::{self, DRAIN_TIME_MAX};
use crate::systemd;

/// The version of HBase that this server works like. A master gives regions of system tables only to servers of the
/// newest version in the cluster.
const HBASE_VERSION: (u32, u32, u32) = (2, 6, 4);
/// HBase's default of `hbase.regionserver.msginterval`.
const REPORT_PERIOD_MS: u64 = 3000;

/// Runs until a signal, the master or an error ends it.
pub fn run(args: RegionServerArgs) -> Result<(), Failure> {
    let env = Env::real();
    let started_ns = env.clock.monotonic_ns();
    let properties = site::read(&env, &args.config)?;
    let flags = args.as_standalone();
    let (settings, _) = StandaloneSettings::new(&properties, &flags)?;
    standalone::check_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("server").build();
    let runtime = runtime.map_err(|error| format!("cannot start threads: {error}"))?;
    let ended = runtime.block_on(serve(env, settings, &flags, &properties, started_ns));
    runtime.shutdown_background(); // what had to be waited for has ended
    Ok(ended?)
}

fn property<'a>(properties: &'a [Property], name: &str) -> Option<&'a str> {
    properties.iter().find(|property| property.name == name).map(|property| property.value.trim())
}

async fn serve(
    env: Env,
    settings: StandaloneSettings,
    flags: &StandaloneArgs,
    properties: &[Property],
    started_ns: u64,
) -> Result<(), String> {
    let mut signals = StopSignals::watch().map_err(|error| format!("cannot watch for signals: {error}"))?;
    let address = SocketAddr::new(settings.bind, settings.regionserver_port);
    let bound = RpcServer::bind(address, settings.rpc.clone(), env.clock.clone()).await;
    let bound = bound.map_err(|error| format!("cannot listen for the region server: {error}"))?;
    let host = standalone::host_name(&env, &settings);
    let name = ServerName::new(host, bound.local_addr().port(), env.clock.now_ms());
    let zookeeper = ZooKeeperSettings::from_properties(|name| property(properties, name).map(str::to_string));
    let zookeeper =
        ZooKeeperCluster::connect(zookeeper.map_err(|error| error.to_string())?, env.clock.clone()).await;
    let zookeeper = zookeeper.map_err(|error| error.to_string())?;
    let masters = zookeeper.view().master.clone();
    let find_master = Box::new(move || masters.present().map(|master| master.server));
    let link = Arc::new(MasterLink::new(Handle::current(), find_master, HBASE_VERSION));

    let go_on = Arc::new(AtomicBool::new(true));
    let joining = tokio::task::spawn_blocking({
        let (link, name, clock, go_on) = (link.clone(), name.clone(), env.clock.clone(), go_on.clone());
        move || link.join(&name, &*clock, &|| go_on.load(Ordering::Relaxed))
    });
    let told = tokio::select! {
        joined = joining => joined.map_err(|_| "joining the cluster failed by an assertion".to_string())?,
        signal = signals.next() => {
            go_on.store(false, Ordering::Relaxed);
            return Err(format!("{signal} while waiting for the master"));
        }
    };
    let told = told.map_err(|error| error.to_string())?;
    let settings = settings.with_root(told.get("hbase.rootdir").map(String::as_str))?;
    let root = root::open(env.clone(), &settings, flags, properties)?;
    let report_period =
        property(properties, "hbase.regionserver.msginterval").map_or(Ok(REPORT_PERIOD_MS), str::parse);
    let report_period = report_period.map_err(|error| format!("hbase.regionserver.msginterval: {error}"))?;
    let starting = tokio::task::spawn_blocking({
        let (name, settings) = (name.clone(), settings.regionserver.clone());
        move || Started::new(root, settings, name, link, Duration::from_millis(report_period))
    });
    let started = starting.await.map_err(|_| "the start failed by an assertion".to_string())??;
    let (server, event_loops) = started.serve(bound, &env, &settings)?;
    let member = zookeeper.join(&name, 0).await.map_err(|error| error.to_string())?;
    let lease = Arc::clone(member.lease());
    started.region_server.answer_while(move || lease.is_valid());
    systemd::ready(event_loops, &started.region_server);
    tell(&env, &settings, &started, started_ns);

    let ended = tokio::select! {
        signal = signals.next() => Ok(signal),
        () = cluster_stopped(&zookeeper) => Ok("the cluster is stopped"),
        loss = member.lease().lost() => Err(format!("{name} is no member of the cluster any more: {loss}")),
        failure = standalone::failed(&started.region_server) => Err(failure),
    };
    let region_server = Arc::clone(&started.region_server);
    match ended {
        Ok(reason) => {
            tracing::info!(reason, "stopping");
            systemd::stopping();
            server.stop(DRAIN_TIME_MAX).await;
            let stopped = tokio::task::spawn_blocking(move || region_server.stop()).await;
            let stopped = stopped.map_err(|_| "the stop failed by an assertion".to_string())?;
            // Now the master gives the regions to other servers.
            if let Err(error) = member.leave().await {
                tracing::warn!(%error, "ZooKeeper was not told that the server has stopped");
            }
            zookeeper.close().await;
            stopped.map_err(|error| {
                format!("not everything could be flushed; the master has the log split: {error}")
            })
        }
        Err(failure) => {
            region_server.give_up(&failure); // from now on nothing is answered
            server.stop(DRAIN_TIME_MAX).await;
            let _ = tokio::task::spawn_blocking(move || region_server.abort("as it gave up")).await;
            zookeeper.close().await; // the master need not wait for the end of the session
            Err(format!("the server gave up: {failure}"))
        }
    }
}

/// Waits until the cluster is stopped as a whole (HBase removes the znode `running` then).
async fn cluster_stopped(zookeeper: &ZooKeeperCluster) {
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
        root: Root,
        settings: RegionServerSettings,
        name: ServerName,
        link: Arc<MasterLink>,
        report_period: Duration,
    ) -> Result<Started, String> {
        let cluster_id = root.env.fs.read(&layout::cluster_id_file(&root.path));
        let cluster_id = cluster_id.map_err(|error| format!("cannot read the cluster's id: {error}"))?;
        let cluster_id = ClusterId::decode_file(&cluster_id).map_err(|error| error.to_string())?.to_string();
        let shown = root.path.display().to_string();
        let started = RegionServer::start_as(root.env, &root.path, settings, name);
        let region_server = started.map_err(|error| format!("the region server cannot start: {error}"))?;
        let master =
            RemoteMaster::start(&region_server, link, report_period).map_err(|error| error.to_string())?;
        Ok(Started { region_server, master, root: shown, cluster_id })
    }

    fn serve(
        &self,
        bound: BoundServer,
        env: &Env,
        settings: &StandaloneSettings,
    ) -> Result<(RpcServer, Arc<EventLoops>), String> {
        let event_loops = standalone::event_loops(env, &self.region_server)?;
        let queues = Queues::new(settings.rpc.queues);
        self.region_server.serve_behind(Arc::clone(&queues), Handle::current());
        let mut services = Services::new();
        let admin = AdminService::obeying(Arc::clone(&self.region_server), &self.master);
        services.insert("ClientService", Arc::new(ClientService::new(Arc::clone(&self.region_server))));
        services.insert("AdminService", Arc::new(admin));
        let bound = bound.sharing(queues).on_event_loops(Arc::clone(&event_loops));
        Ok((bound.serve(services, self.cluster_id.clone()), event_loops))
    }
}

/// Says on the standard output who this is; the last line begins with `ready`.
fn tell(env: &Env, settings: &StandaloneSettings, started: &Started, started_ns: u64) {
    let mut text = format!("halcyon {} regionserver\n", env!("CARGO_PKG_VERSION"));
    text += &format!("root {} ({})\n", settings.root_address(), started.root);
    text += &format!("cluster {}\n", started.cluster_id);
    text += &format!(
        "master {}\n",
        started.master.master().map_or("unknown".to_string(), |name| name.to_string())
    );
    text += &format!("regionserver {}\n", started.region_server.server_name());
    text += &format!("ready after {} ms\n", (env.clock.monotonic_ns() - started_ns) / 1_000_000);
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush()); // nobody has to listen
}
