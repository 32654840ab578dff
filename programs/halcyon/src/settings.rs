//! What is in force: defaults, then `hbase-site.xml`, then flags.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use halcyon_coord::ZkSettings;
use halcyon_env::CryptoSettings;
use halcyon_regionserver::RegionServerSettings;
use halcyon_rpc::{CallClass, RpcSettings};
use halcyon_settings::Effect::Restart;
use halcyon_settings::{
    Alias, Codec, Flag, Millis, Number, OrNever, Positive, Section, Setting, Text, settings,
};
use halcyon_wal::SyncMode;

use crate::args::{StandaloneArgs, WalSync};
use crate::cleaner_settings::CleanerSettings;
use crate::cluster_settings::CLUSTER;
use crate::crypto_settings::{ENCRYPTION, KEY_STORE, is_secret};
use crate::keeper::{self, KeeperSettings};
use crate::master_settings::{
    GROUP_SCRIPT, GROUPS, LOCKS, MasterParts, NORMALIZER, PEERS, PLACEMENT, QUOTAS, REPAIRS, TRACKERS,
};
use crate::references::first_reference;
use crate::root;
use crate::safe_start::{is_below, is_same_directory};
use crate::site::Property;
use crate::sizes::Size;
use crate::status_settings::{STATUS, STATUS_PUBLISHER};
use crate::traces::{self, TraceSettings};
use crate::without_effect;

const REQUEST_BYTES_MAX: &str = "hbase.ipc.server.max.callqueue.size";
const FRAME_BYTES_MAX: &str = "hbase.ipc.max.request.size";
const RESULT_BYTES_MAX: &str = "hbase.server.scanner.max.result.size";

/// All settings of `halcyon standalone`, as plain data. Names in parentheses are the HBase properties that
/// set them; they print as `name = value` lines that [`StandaloneSettings::set`] reads back.
#[derive(Clone, Debug)]
pub struct StandaloneSettings {
    /// The local directory, also the root directory unless `root` is set (`hbase.rootdir`, a path or `file:` address).
    pub data: PathBuf,
    /// Address of the root directory in HDFS (`hbase.rootdir`, an `hdfs:` address); `None`: it is `data`.
    pub root: Option<String>,
    /// Address of the root directory of WALs (`hbase.wal.dir`); `None`: WALs are in the root directory.
    pub wal_root: Option<String>,
    /// Whether that may be on a local disk although the server is one of a cluster (`halcyon.wal.dir.local`).
    pub wal_root_is_shared: bool,
    /// Clocks of region servers that differ more from the master's are refused (`hbase.master.maxclockskew`).
    pub clock_skew_max: Duration,
    /// Clocks of region servers that differ more are logged (`hbase.master.warningclockskew`).
    pub clock_skew_warned: Duration,
    /// Address of every port (`hbase.master.ipc.address`, `hbase.regionserver.ipc.address`). Loopback: no authentication.
    pub bind: IpAddr,
    /// What clients connect to (`hbase.master.hostname`, `hbase.regionserver.hostname`); empty: the bound address, or
    /// the machine's name if that is no address to connect to.
    pub hostname: String,
    /// 0 takes any port, here and below (`hbase.zookeeper.property.clientPort`).
    pub zookeeper_port: u16,
    /// `hbase.master.port`
    pub master_port: u16,
    /// `hbase.regionserver.port`
    pub regionserver_port: u16,
    /// `hbase.master.info.port`; `None` (-1): no page.
    pub master_info_port: Option<u16>,
    /// `hbase.regionserver.info.port`; `None` (-1): no page.
    pub regionserver_info_port: Option<u16>,
    /// Address of the master's page (`hbase.master.info.bindAddress`); `None`: `bind`.
    pub master_info_bind: Option<IpAddr>,
    /// Address of the region server's page (`hbase.regionserver.info.bindAddress`); `None`: `bind`.
    pub regionserver_info_bind: Option<IpAddr>,
    /// Base path of what clients find in ZooKeeper (`zookeeper.znode.parent`).
    pub znode_parent: String,
    /// Region servers that clients are told of at once by the RPC registry (`hbase.client.bootstrap.node.limit`).
    pub bootstrap_nodes_max: usize,
    /// Limits of both RPC ports (`hbase.ipc.max.request.size`, `hbase.ipc.server.max.callqueue.size`).
    pub rpc: RpcSettings,
    /// Limits of the endpoint where clients look for the cluster.
    pub zookeeper: ZkSettings,
    pub cleaner: CleanerSettings,
    /// How long clients are told to wait for a snapshot (`hbase.snapshot.master.timeout.millis`).
    pub snapshot_timeout: Duration,
    /// Whether descriptors must pass HBase's sanity checks (`hbase.table.sanity.checks`).
    pub sanity_checks: bool,
    /// Whether `hbck` of HBase 1 is kept out of the root directory (`hbase.write.hbck1.lock.file`).
    pub hbck1_lock: bool,
    /// Whether families that are to be encrypted are tried first (`hbase.master.check.encryption`).
    pub checks_encryption: bool,
    /// `hbase.crypto.*`
    pub crypto: CryptoSettings,
    pub parts: MasterParts,
    pub traces: TraceSettings,
    pub keeper: KeeperSettings,
    pub regionserver: RegionServerSettings,
}

/// Where values come from, the weakest first.
const SOURCES: [&str; 5] = ["default", "hbase-site.xml", "environment", "option", "computed from the memory"];

/// A setting as the console shows it.
#[derive(Clone, Debug)]
pub struct ShownSetting {
    pub value: String,
    /// One of [`SOURCES`], or the master of a cluster.
    pub source: &'static str,
    pub description: halcyon_settings::Description,
}

impl Default for StandaloneSettings {
    fn default() -> StandaloneSettings {
        StandaloneSettings {
            data: PathBuf::from("halcyon-data"),
            root: None,
            wal_root: None,
            wal_root_is_shared: false,
            clock_skew_max: Duration::from_secs(30),
            clock_skew_warned: Duration::from_secs(1),
            bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            hostname: String::new(),
            zookeeper_port: 2181,
            master_port: 16000,
            regionserver_port: 16020,
            master_info_port: Some(16010),
            regionserver_info_port: Some(16030),
            master_info_bind: None,
            regionserver_info_bind: None,
            znode_parent: "/hbase".to_string(),
            bootstrap_nodes_max: 10,
            rpc: RpcSettings::default(),
            zookeeper: ZkSettings::default(),
            cleaner: CleanerSettings::default(),
            snapshot_timeout: Duration::from_secs(5 * 60),
            sanity_checks: true,
            hbck1_lock: true,
            checks_encryption: true,
            crypto: CryptoSettings::default(),
            parts: MasterParts::default(),
            traces: TraceSettings::default(),
            keeper: KeeperSettings::default(),
            regionserver: RegionServerSettings::default(),
        }
    }
}

impl StandaloneSettings {
    /// Defaults, then the properties, then the flags. Beside them, one sentence for each property that has
    /// no effect. The error is one sentence about a property whose value makes no sense.
    pub fn new(
        properties: &[Property],
        flags: &StandaloneArgs,
    ) -> Result<(StandaloneSettings, Vec<String>), String> {
        let (mut settings, mut unused) = StandaloneSettings::of_properties(properties)?;
        settings.apply(flags)?;
        settings.fit_memory(properties);
        settings.check()?;
        if settings.root.is_some() {
            unused.retain(|sentence| !root::is_of_hdfs(sentence)); // each begins with the name
        }
        Ok((settings, unused))
    }

    /// The settings as lines `name = value`, under a comment that says where each value comes from.
    pub fn print_by_source(properties: &[Property], flags: &StandaloneArgs) -> Result<String, String> {
        let lines = StandaloneSettings::lines_by_source(properties, flags)?;
        let mut text = String::new();
        for source in SOURCES {
            let of_source = lines.iter().filter(|(of, _)| *of == source);
            let of_source: Vec<_> = of_source.map(|(_, line)| line.as_str()).collect();
            if !of_source.is_empty() {
                text += &format!("# {source}\n{}\n", of_source.join("\n"));
            }
        }
        Ok(text)
    }

    /// Every setting with its source and default, for the console.
    pub fn with_sources(
        properties: &[Property],
        flags: &StandaloneArgs,
    ) -> Result<Vec<ShownSetting>, String> {
        let descriptions = StandaloneSettings::describe();
        let lines = StandaloneSettings::lines_by_source(properties, flags)?;
        let shown = lines.into_iter().filter_map(|(source, line)| {
            let (name, value) = line.split_once(" =")?;
            let description = descriptions.iter().find(|description| description.name == name)?;
            Some(ShownSetting { value: value.trim().to_string(), source, description: description.clone() })
        });
        Ok(shown.collect())
    }

    /// The settings in force as lines `name = value`, each with one of [`SOURCES`].
    fn lines_by_source(
        properties: &[Property],
        flags: &StandaloneArgs,
    ) -> Result<Vec<(&'static str, String)>, String> {
        let defaults = StandaloneSettings::default().to_string();
        let (mut settings, _) = StandaloneSettings::of_properties(properties)?;
        let of_file = settings.to_string();
        settings.apply(flags)?;
        let with_flags = settings.to_string();
        settings.fit_memory(properties);
        let in_force = settings.to_string();
        let has = |text: &str, line: &str| text.lines().any(|other| other == line);
        let source = |line: &str| {
            let name = line.split(" =").next().unwrap_or_default();
            let [of_default, of_site, of_environment, of_option, of_memory] = SOURCES;
            match () {
                () if !has(&with_flags, line) => of_memory,
                () if !has(&of_file, line) => of_option,
                () if traces::is_in_environment(name) => of_environment,
                () if !has(&defaults, line) || properties.iter().any(|property| property.name == name) => {
                    of_site
                }
                () => of_default,
            }
        };
        Ok(in_force.lines().map(|line| (source(line), line.to_string())).collect())
    }

    fn of_properties(properties: &[Property]) -> Result<(StandaloneSettings, Vec<String>), String> {
        let mut settings = StandaloneSettings::default();
        let mut unused = Vec::new();
        for Property { name, value } in properties {
            let known = settings.set(name, value);
            if known != Ok(false) {
                check_resolved(name, value)?;
            }
            if !known? {
                let reason = without_effect::reason(name);
                unused.push(format!("{name} is not used: {reason}"));
            }
        }
        if let Some(parent) = default_parent(properties) {
            check_resolved("hbase.tmp.dir", parent)?;
            let parent = local_path(parent).map_err(|why| format!("hbase.tmp.dir: {parent:?} {why}"))?;
            settings.data = parent.join("hbase");
        }
        Ok((settings, unused))
    }

    /// Sets one by its property name; `Ok(false)` if no setting has that name.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let here = halcyon_settings::set(SETTINGS, self, name, value);
        let set = here.and_then(|known| Ok(known || self.regionserver.set(name, value)?));
        set.map_err(|error| error.to_string())
    }

    /// Where the root directory is: an address in HDFS, or a path.
    pub fn root_address(&self) -> String {
        self.root.clone().unwrap_or_else(|| self.data.display().to_string())
    }

    /// Where WALs are if not in the root directory: an address in HDFS, or a path. As in HBase, a path alone is one in
    /// `fs.defaultFS`, and a directory below the root directory is refused.
    pub fn wal_root_address(&self) -> Result<Option<String>, String> {
        let root = self.root_address();
        let Some(wal_root) = &self.wal_root else { return Ok(None) };
        let is_path = !wal_root.contains(':');
        let wal_root =
            if is_path && self.root.is_some() { format!("hdfs://{wal_root}") } else { wal_root.clone() };
        if is_same_directory(&wal_root, &root) {
            return Ok(None);
        }
        if is_below(&wal_root, &root) {
            return Err(format!("hbase.wal.dir: {wal_root} is below the root directory {root}"));
        }
        Ok(Some(wal_root))
    }

    /// Where the master's page is; `None`: there is none.
    pub fn master_info_address(&self) -> Option<SocketAddr> {
        self.master_info_port.map(|port| SocketAddr::new(self.master_info_bind.unwrap_or(self.bind), port))
    }

    /// Where the region server's page is; `None`: there is none.
    pub fn regionserver_info_address(&self) -> Option<SocketAddr> {
        let bind = self.regionserver_info_bind.unwrap_or(self.bind);
        self.regionserver_info_port.map(|port| SocketAddr::new(bind, port))
    }

    /// With the root directory that the master of the cluster names, if it does.
    pub fn with_root(mut self, address: Option<&str>) -> Result<StandaloneSettings, String> {
        if let Some(address) = address {
            self.set_root(address)
                .map_err(|why| format!("the master's hbase.rootdir, {address:?}, {why}"))?;
        }
        self.check()?;
        Ok(self)
    }

    /// The error goes on after the value.
    fn set_root(&mut self, address: &str) -> Result<(), String> {
        if address.starts_with("hdfs:") {
            self.root = Some(address.to_string());
        } else {
            self.data = local_path(address)?;
            self.root = None;
        }
        Ok(())
    }

    /// All settings with their defaults.
    pub fn describe() -> Vec<halcyon_settings::Description> {
        let mut all = halcyon_settings::describe(SETTINGS, &StandaloneSettings::default());
        all.extend(RegionServerSettings::describe());
        all
    }

    fn apply(&mut self, flags: &StandaloneArgs) -> Result<(), String> {
        fn take<T: Clone>(setting: &mut T, flag: &Option<T>) {
            if let Some(value) = flag {
                setting.clone_from(value);
            }
        }
        if let Some(root) = &flags.root {
            self.set_root(root).map_err(|why| format!("--root {root} {why}"))?;
        }
        take(&mut self.data, &flags.data);
        take(&mut self.bind, &flags.server.bind);
        take(&mut self.hostname, &flags.server.hostname);
        take(&mut self.zookeeper_port, &flags.zookeeper_port);
        take(&mut self.master_port, &flags.master_port);
        take(&mut self.regionserver_port, &flags.regionserver_port);
        take(&mut self.master_info_port, &flags.master_info_port.map(Some));
        take(&mut self.regionserver_info_port, &flags.regionserver_info_port.map(Some));
        take(&mut self.regionserver.memory_bytes, &flags.server.memory.map(|Size(bytes)| bytes));
        if let Some(sync) = flags.server.wal_sync {
            self.regionserver.wal_sync = match sync {
                WalSync::Fsync => SyncMode::Fsync,
                WalSync::Written => SyncMode::Written,
            };
            self.regionserver.wal_hsync = sync == WalSync::Fsync;
        }
        Ok(())
    }

    /// What calls may hold, as the memory is divided (`MemoryPlan`), unless a property says otherwise. One answer gets an
    /// eighth of what is for answers; clients ask for 2 MiB by default.
    fn fit_memory(&mut self, properties: &[Property]) {
        const ANSWER_FLOOR_BYTES: u64 = 2 << 20;
        /// What sessions of the ZooKeeper endpoint may hold, of the part for requests.
        const ENDPOINT_SHARE: u64 = 64;
        let is_set = |name: &str| properties.iter().any(|property| property.name == name);
        let plan = self.regionserver.plan();
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        if !is_set(RESULT_BYTES_MAX) {
            let fitting = (plan.answers / 8).max(ANSWER_FLOOR_BYTES);
            self.regionserver.result_bytes_max = self.regionserver.result_bytes_max.min(fitting);
        }
        self.rpc.peer_share = self.regionserver.peer_share;
        let endpoint = bytes(self.regionserver.memory_bytes / ENDPOINT_SHARE);
        self.zookeeper = ZkSettings { peer_share: self.regionserver.peer_share, ..self.zookeeper.clone() }
            .within(endpoint);
        if !is_set(REQUEST_BYTES_MAX) {
            let requests = bytes(plan.requests);
            let of_endpoint = self.zookeeper.held_bytes_max().min(requests / 4);
            self.rpc.queues.request_bytes_max = requests - of_endpoint;
        }
        if !is_set(FRAME_BYTES_MAX) {
            // A request that can never have room is better told so.
            self.rpc.frame_bytes_max = self.rpc.frame_bytes_max.min(self.rpc.queues.request_bytes_max);
        }
        self.regionserver.request_cells_bytes_max = self.rpc.frame_bytes_max;
        self.rpc.queues.answer_bytes_max = bytes(plan.answers);
        let share = self.rpc.queues.answer_bytes_max / 4;
        self.rpc.connection_response_bytes_max = self.rpc.connection_response_bytes_max.min(share);
    }

    fn check(&self) -> Result<(), String> {
        let path = &self.znode_parent;
        if !path.starts_with('/') || path.len() < 2 || path.ends_with('/') || path.contains("//") {
            return Err(format!("zookeeper.znode.parent: {path:?} is not an absolute path below the root"));
        }
        self.regionserver.check().map_err(|error| error.to_string())
    }
}

impl fmt::Display for StandaloneSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        halcyon_settings::print(SETTINGS, self, f)?;
        write!(f, "{}", self.regionserver)
    }
}

const ADDRESSES: &str = "Addresses and directories";

const SETTINGS: &[Section<StandaloneSettings>] = &[
    Section { title: ADDRESSES, settings: &[ROOT_DIR, WAL_DIR] },
    Section {
        title: ADDRESSES,
        settings: settings!(StandaloneSettings:
            Restart, "hbase.master.ipc.address", "IP address", Number, bind,
                "Address of every port. HBase: the address of the host name.";
            Restart, "hbase.regionserver.ipc.address", "IP address", Alias<Number>, bind,
                "The same: all ports have one address.";
            Restart, "hbase.master.hostname", "host", Text, hostname,
                "Name that clients connect to. Empty: the bound address, or the machine's name if that is `0.0.0.0`.";
            Restart, "hbase.regionserver.hostname", "host", Alias<Text>, hostname, "The same.";
            Restart, "hbase.zookeeper.property.clientPort", "port", Number, zookeeper_port,
                "Where clients look for the cluster. 0: any port, here and below.";
            Restart, "hbase.master.port", "port", Number, master_port, "RPC port of the master.";
            Restart, "hbase.regionserver.port", "port", Number, regionserver_port, "RPC port of the region server.";
            Restart, "hbase.master.info.port", "port", InfoPort, master_info_port,
                "HTTP port of the master's page; -1: none.";
            Restart, "hbase.regionserver.info.port", "port", InfoPort, regionserver_info_port,
                "HTTP port of the region server's page; -1: none.";
            Restart, "hbase.master.info.bindAddress", "IP address", InfoAddress, master_info_bind,
                "Address of the master's page. Not set: that of every port. HBase: `0.0.0.0`.";
            Restart, "hbase.regionserver.info.bindAddress", "IP address", InfoAddress, regionserver_info_bind,
                "Address of the region server's page, likewise.";
            Restart, "zookeeper.znode.parent", "path", Text, znode_parent,
                "Base path of what clients find in ZooKeeper.";
            Restart, "hbase.client.bootstrap.node.limit", "servers", Positive, bootstrap_nodes_max,
                "Region servers that clients are told of at once, if they find the cluster by its masters or region servers.";
        ),
    },
    Section {
        title: "Calls",
        settings: settings!(StandaloneSettings:
            Restart, FRAME_BYTES_MAX, "bytes", Number, rpc.frame_bytes_max,
                "Largest request; at most what requests may hold together.";
            Restart, REQUEST_BYTES_MAX, "bytes", Number, rpc.queues.request_bytes_max,
                "Memory of waiting requests. Without the property: the part of the memory budget for requests.";
            Restart, "halcyon.ipc.connections.max", "connections", Positive, rpc.connections_max,
                "Open connections of each RPC port. HBase has no limit.";
            Restart, "halcyon.ipc.handshake.timeout", "ms", Millis, rpc.handshake_timeout,
                "Time that a connection has to say which service it wants.";
            Restart, "halcyon.ipc.cellblock.ratio.max", "times", Positive, rpc.cell_block_ratio_max,
                "How many times as large as it arrived a compressed cell block may become, if that is more than 16 MiB.";
            Restart, "halcyon.zookeeper.connections.max", "connections", Positive, zookeeper.connections_max,
                "Open connections of the ZooKeeper endpoint of `halcyon standalone`. A 64th of the memory is a limit, too, at 5 KiB each, but never below 512.";
            Restart, "hbase.ipc.min.client.request.timeout", "ms", Millis, rpc.request_timeout_min,
                "Client timeouts below this count as this.";
        ),
    },
    Section { title: "Calls", settings: &[CALLS_MAX, PRIORITY_CALLS_MAX, REPLICATION_CALLS_MAX] },
    Section {
        title: "WAL",
        settings: settings!(StandaloneSettings:
            Restart, "hbase.master.cleaner.interval", "ms", Millis, cleaner.period,
                "How often the archive and old WALs are cleaned. HBase: 600000.";
            Restart, "hbase.master.hfilecleaner.ttl", "ms", Millis, cleaner.archive_keep,
                "How long a store file stays in the archive.";
            Restart, "hbase.master.logcleaner.ttl", "ms", Millis, cleaner.old_wals_keep,
                "How long a WAL stays in `oldWALs`.";
            Restart, "replication.wal.bytes.max", "bytes", OrNever<Number>, cleaner.peer_wal_bytes_max,
                "Bytes in `oldWALs` that are kept for replication peers, and as many of archived files of bulk loads. Beyond it the \
                 oldest are deleted, and peers miss what is in them. -1: no limit.";
            Restart, "hbase.master.snapshot.ttl", "s", Number, cleaner.snapshot_ttl_s,
                "Time to live of a snapshot that is taken without one; 0: it is kept.";
        ),
    },
    PEERS,
    Section { title: "WAL", settings: &[WAL_HSYNC] },
    TRACKERS,
    Section {
        title: "Tables and snapshots",
        settings: settings!(StandaloneSettings:
            Restart, "hbase.table.sanity.checks", "true, false", Flag, sanity_checks,
                "Whether a new or changed table must pass HBase's sanity checks. A table can also turn them off.";
            Restart, "hbase.write.hbck1.lock.file", "true, false", Flag, hbck1_lock,
                "Whether the root directory has the lock file that keeps `hbck` of HBase 1 from repairing it.";
            Restart, "hbase.snapshot.master.timeout.millis", "ms", Millis, snapshot_timeout,
                "How long a client waits for a snapshot before it gives up.";
        ),
    },
    keeper::SECTION,
    CLUSTER,
    KEY_STORE,
    ENCRYPTION,
    NORMALIZER,
    LOCKS,
    REPAIRS,
    PLACEMENT,
    QUOTAS,
    GROUPS,
    GROUP_SCRIPT,
    STATUS,
    STATUS_PUBLISHER,
    traces::SECTION,
];

const ROOT_DIR: Setting<StandaloneSettings> = Setting {
    name: "hbase.rootdir",
    unit: "path",
    effect: Restart,
    text: "Root directory of all data: a path, a `file:` or an `hdfs:` address. Not set, but `hbase.tmp.dir` is: `hbase` \
           below that. HBase's default is below `/tmp`.",
    set: StandaloneSettings::set_root,
    get: |settings| Some(settings.root_address()),
};

const WAL_DIR: Setting<StandaloneSettings> = Setting {
    name: "hbase.wal.dir",
    unit: "path",
    effect: Restart,
    text: "Root directory of WALs and recovered edits, if they are not in `hbase.rootdir`; not below that. A path, a `file:` \
           or an `hdfs:` address. It may be changed when the server was stopped in order.",
    set: |settings, text| {
        settings.wal_root = Some(text.trim().to_string()).filter(|text| !text.is_empty());
        Ok(())
    },
    get: |settings| settings.wal_root.clone(),
};

const CALLS_MAX: Setting<StandaloneSettings> = Setting {
    name: "hbase.ipc.server.max.callqueue.length",
    unit: "calls",
    effect: Restart,
    text: "Calls that may wait in each class: reads, scans, writes.",
    set: |settings, text| set_calls(settings, text, &[CallClass::Read, CallClass::Scan, CallClass::Write]),
    get: |settings| Some(settings.rpc.queues.calls_max[CallClass::Read.index()].to_string()),
};

const PRIORITY_CALLS_MAX: Setting<StandaloneSettings> = Setting {
    name: "hbase.ipc.server.priority.max.callqueue.length",
    unit: "calls",
    effect: Restart,
    text: "Calls on `hbase:meta` that may wait.",
    set: |settings, text| set_calls(settings, text, &[CallClass::Meta]),
    get: |settings| Some(settings.rpc.queues.calls_max[CallClass::Meta.index()].to_string()),
};

const REPLICATION_CALLS_MAX: Setting<StandaloneSettings> = Setting {
    name: "hbase.ipc.server.replication.max.callqueue.length",
    unit: "calls",
    effect: Restart,
    text: "Calls of replication that may wait.",
    set: |settings, text| set_calls(settings, text, &[CallClass::Replication]),
    get: |settings| Some(settings.rpc.queues.calls_max[CallClass::Replication.index()].to_string()),
};

const WAL_HSYNC: Setting<StandaloneSettings> = Setting {
    name: "hbase.wal.hsync",
    unit: "true, false",
    effect: Restart,
    text: "`true` sets `wal.sync` to `fsync`, `false` to `written`. With a root directory in HDFS, `true` lets `SYNC_WAL` wait until all DataNodes have a write on their disks (`hsync`); without it they have it in memory (`hflush`), as in HBase. `FSYNC_WAL` always waits for the disks.",
    set: |settings, text| {
        let on_disk: bool = text.trim().parse().map_err(|_| "is neither true nor false".to_string())?;
        settings.regionserver.wal_sync = if on_disk { SyncMode::Fsync } else { SyncMode::Written };
        settings.regionserver.wal_hsync = on_disk;
        Ok(())
    },
    get: |_| None,
};

fn set_calls(settings: &mut StandaloneSettings, text: &str, classes: &[CallClass]) -> Result<(), String> {
    let calls_max = text.trim().parse().map_err(|_| "is not a number of calls".to_string())?;
    for class in classes {
        settings.rpc.queues.calls_max[class.index()] = calls_max;
    }
    Ok(())
}

/// A port, or -1 for none.
struct InfoPort;

impl Codec<Option<u16>> for InfoPort {
    fn parse(text: &str) -> Option<Option<u16>> {
        if text == "-1" { Some(None) } else { text.parse().ok().map(Some) }
    }

    fn print(port: &Option<u16>) -> Option<String> {
        Some(port.map_or(-1, i32::from).to_string())
    }

    fn refused(_: &Option<u16>) -> &'static str {
        "is neither a port nor -1"
    }
}

/// An address, or that of every port.
struct InfoAddress;

impl Codec<Option<IpAddr>> for InfoAddress {
    fn parse(text: &str) -> Option<Option<IpAddr>> {
        text.parse().ok().map(Some)
    }

    fn print(address: &Option<IpAddr>) -> Option<String> {
        address.map(|address| address.to_string())
    }

    fn refused(_: &Option<IpAddr>) -> &'static str {
        "is not an IP address"
    }
}

/// Refuses a value that still has a reference. Used as it is, it would name another directory or address.
fn check_resolved(name: &str, value: &str) -> Result<(), String> {
    match first_reference(value) {
        Some((start, end)) if is_secret(name) => {
            Err(format!("{name}: nothing defines {} in its value", &value[start..end]))
        }
        Some((start, end)) => Err(format!("{name}: nothing defines {} in {value:?}", &value[start..end])),
        None => Ok(()),
    }
}

/// Where HBase keeps its data if the file does not say: in `hbase` below `hbase.tmp.dir`.
fn default_parent(properties: &[Property]) -> Option<&str> {
    let value = |name: &str| properties.iter().find(|property| property.name == name);
    value("hbase.tmp.dir").filter(|_| value("hbase.rootdir").is_none()).map(|found| found.value.as_str())
}

/// A path, or a `file:` address in one of its forms. The error goes on after the value.
pub fn local_path(value: &str) -> Result<PathBuf, String> {
    let path = match value.split_once(':') {
        None => value,
        Some(("file", rest)) => match rest.strip_prefix("//") {
            Some(rest) => &rest[rest.find('/').unwrap_or(rest.len())..],
            None => rest,
        },
        Some(_) => return Err("is neither on the local disk nor in HDFS".to_string()),
    };
    if path.is_empty() {
        return Err("names no directory".to_string());
    }
    Ok(PathBuf::from(path))
}

#[cfg(test)]
mod tests;
