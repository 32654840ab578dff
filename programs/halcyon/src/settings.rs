//! What is in force: defaults, then `hbase-site.xml`, then flags.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use halcyon_regionserver::RegionServerSettings;
use halcyon_rpc::{CallClass, RpcSettings};
use halcyon_wal::SyncMode;

use crate::args::{StandaloneArgs, WalSync};
use crate::references::first_reference;
use crate::site::Property;
use crate::sizes::Size;

const REQUEST_BYTES_MAX: &str = "hbase.ipc.server.max.callqueue.size";
const FRAME_BYTES_MAX: &str = "hbase.ipc.max.request.size";
const RESULT_BYTES_MAX: &str = "hbase.server.scanner.max.result.size";

/// All settings of `halcyon standalone`, as plain data. Names in parentheses are the HBase properties that
/// set them; they print as `name = value` lines that [`StandaloneSettings::set`] reads back.
#[derive(Clone, Debug)]
pub struct StandaloneSettings {
    /// HBase's root directory on the local disk (`hbase.rootdir`, a `file:` address or a path).
    pub data: PathBuf,
    /// Address of every port (`hbase.master.ipc.address`, `hbase.regionserver.ipc.address`). Loopback: there
    /// is no authentication.
    pub bind: IpAddr,
    /// What clients are told to connect to (`hbase.master.hostname`, `hbase.regionserver.hostname`); empty:
    /// the bound address, or the machine's name if that is no address to connect to.
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
    /// Base path of what clients find in ZooKeeper (`zookeeper.znode.parent`).
    pub znode_parent: String,
    /// Limits of both RPC ports (`hbase.ipc.max.request.size`, `hbase.ipc.server.max.callqueue.size`).
    pub rpc: RpcSettings,
    pub regionserver: RegionServerSettings,
}

impl Default for StandaloneSettings {
    fn default() -> StandaloneSettings {
        StandaloneSettings {
            data: PathBuf::from("halcyon-data"),
            bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            hostname: String::new(),
            zookeeper_port: 2181,
            master_port: 16000,
            regionserver_port: 16020,
            master_info_port: Some(16010),
            regionserver_info_port: Some(16030),
            znode_parent: "/hbase".to_string(),
            rpc: RpcSettings::default(),
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
        let mut settings = StandaloneSettings::default();
        let mut unused = Vec::new();
        for Property { name, value } in properties {
            let known = settings.set(name, value);
            if known != Ok(false) {
                check_resolved(name, value)?;
            }
            if !known? {
                let reason = reason_without_effect(name);
                unused.push(format!("{name} is not used: {reason}"));
            }
        }
        if let Some(parent) = default_parent(properties) {
            check_resolved("hbase.tmp.dir", parent)?;
            settings.data = local_path("hbase.tmp.dir", parent)?.join("hbase");
        }
        settings.apply(flags);
        settings.fit_memory(properties);
        settings.check()?;
        Ok((settings, unused))
    }

    /// Sets one by its property name; `Ok(false)` if no setting has that name.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool, String> {
        match name {
            "hbase.rootdir" => self.data = local_path(name, value)?,
            "hbase.master.ipc.address" | "hbase.regionserver.ipc.address" => {
                self.bind = parsed(name, value, "an IP address")?;
            }
            "hbase.master.hostname" | "hbase.regionserver.hostname" => self.hostname = value.to_string(),
            "hbase.zookeeper.property.clientPort" => self.zookeeper_port = parsed(name, value, "a port")?,
            "hbase.master.port" => self.master_port = parsed(name, value, "a port")?,
            "hbase.regionserver.port" => self.regionserver_port = parsed(name, value, "a port")?,
            "hbase.master.info.port" => self.master_info_port = info_port(name, value)?,
            "hbase.regionserver.info.port" => self.regionserver_info_port = info_port(name, value)?,
            "zookeeper.znode.parent" => self.znode_parent = value.to_string(),
            FRAME_BYTES_MAX => self.rpc.frame_bytes_max = parsed(name, value, "a size in bytes")?,
            REQUEST_BYTES_MAX => {
                self.rpc.queues.request_bytes_max = parsed(name, value, "a size in bytes")?;
            }
            "hbase.ipc.server.max.callqueue.length" => {
                let calls_max = parsed(name, value, "a number of calls")?;
                for class in [CallClass::Read, CallClass::Scan, CallClass::Write] {
                    self.rpc.queues.calls_max[class.index()] = calls_max;
                }
            }
            "hbase.ipc.server.priority.max.callqueue.length" => {
                self.rpc.queues.calls_max[CallClass::Meta.index()] =
                    parsed(name, value, "a number of calls")?;
            }
            "hbase.ipc.server.replication.max.callqueue.length" => {
                let calls_max = parsed(name, value, "a number of calls")?;
                self.rpc.queues.calls_max[CallClass::Replication.index()] = calls_max;
            }
            "hbase.ipc.min.client.request.timeout" => {
                let millis = parsed(name, value, "a time in milliseconds")?;
                self.rpc.request_timeout_min = Duration::from_millis(millis);
            }
            "hbase.wal.hsync" => {
                let on_disk = parsed(name, value, "true or false")?;
                self.regionserver.wal_sync = if on_disk { SyncMode::Fsync } else { SyncMode::Written };
            }
            _ => return self.regionserver.set(name, value).map_err(|error| error.to_string()),
        }
        Ok(true)
    }

    fn apply(&mut self, flags: &StandaloneArgs) {
        fn take<T: Clone>(setting: &mut T, flag: &Option<T>) {
            if let Some(value) = flag {
                setting.clone_from(value);
            }
        }
        take(&mut self.data, &flags.data);
        take(&mut self.bind, &flags.bind);
        take(&mut self.hostname, &flags.hostname);
        take(&mut self.zookeeper_port, &flags.zookeeper_port);
        take(&mut self.master_port, &flags.master_port);
        take(&mut self.regionserver_port, &flags.regionserver_port);
        take(&mut self.master_info_port, &flags.master_info_port.map(Some));
        take(&mut self.regionserver_info_port, &flags.regionserver_info_port.map(Some));
        take(&mut self.regionserver.memory_bytes, &flags.memory.map(|Size(bytes)| bytes));
        if let Some(sync) = flags.wal_sync {
            self.regionserver.wal_sync = match sync {
                WalSync::Fsync => SyncMode::Fsync,
                WalSync::Written => SyncMode::Written,
            };
        }
    }

    /// What calls may hold, as the memory is divided (`MemoryPlan`), unless a property says otherwise. One answer gets an
    /// eighth of what is for answers; clients ask for 2 MiB by default.
    fn fit_memory(&mut self, properties: &[Property]) {
        const ANSWER_FLOOR_BYTES: u64 = 2 << 20;
        let is_set = |name: &str| properties.iter().any(|property| property.name == name);
        let plan = self.regionserver.plan();
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        if !is_set(RESULT_BYTES_MAX) {
            let fitting = (plan.answers / 8).max(ANSWER_FLOOR_BYTES);
            self.regionserver.result_bytes_max = self.regionserver.result_bytes_max.min(fitting);
        }
        if !is_set(REQUEST_BYTES_MAX) {
            self.rpc.queues.request_bytes_max = bytes(plan.requests);
        }
        if !is_set(FRAME_BYTES_MAX) {
            // A request that can never have room is better told so.
            self.rpc.frame_bytes_max = self.rpc.frame_bytes_max.min(self.rpc.queues.request_bytes_max);
        }
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
        let info_port = |port: Option<u16>| port.map_or(-1, i32::from);
        writeln!(f, "hbase.rootdir = {}", self.data.display())?;
        writeln!(f, "hbase.master.ipc.address = {}", self.bind)?;
        writeln!(f, "hbase.master.hostname = {}", self.hostname)?;
        writeln!(f, "hbase.zookeeper.property.clientPort = {}", self.zookeeper_port)?;
        writeln!(f, "hbase.master.port = {}", self.master_port)?;
        writeln!(f, "hbase.regionserver.port = {}", self.regionserver_port)?;
        writeln!(f, "hbase.master.info.port = {}", info_port(self.master_info_port))?;
        writeln!(f, "hbase.regionserver.info.port = {}", info_port(self.regionserver_info_port))?;
        writeln!(f, "zookeeper.znode.parent = {}", self.znode_parent)?;
        writeln!(f, "hbase.ipc.max.request.size = {}", self.rpc.frame_bytes_max)?;
        writeln!(f, "hbase.ipc.server.max.callqueue.size = {}", self.rpc.queues.request_bytes_max)?;
        let calls_max = |class: CallClass| self.rpc.queues.calls_max[class.index()];
        writeln!(f, "hbase.ipc.server.max.callqueue.length = {}", calls_max(CallClass::Read))?;
        writeln!(f, "hbase.ipc.server.priority.max.callqueue.length = {}", calls_max(CallClass::Meta))?;
        let replication = calls_max(CallClass::Replication);
        writeln!(f, "hbase.ipc.server.replication.max.callqueue.length = {replication}")?;
        let timeout = self.rpc.request_timeout_min.as_millis();
        writeln!(f, "hbase.ipc.min.client.request.timeout = {timeout}")?;
        write!(f, "{}", self.regionserver)
    }
}

fn parsed<T: std::str::FromStr>(name: &str, value: &str, what: &str) -> Result<T, String> {
    value.trim().parse().map_err(|_| format!("{name}: {value:?} is not {what}"))
}

fn info_port(name: &str, value: &str) -> Result<Option<u16>, String> {
    if value.trim() == "-1" {
        return Ok(None);
    }
    parsed(name, value, "a port or -1").map(Some)
}

/// Refuses a value that still has a reference. Used as it is, it would name another directory or address.
fn check_resolved(name: &str, value: &str) -> Result<(), String> {
    match first_reference(value) {
        Some((start, end)) => Err(format!("{name}: nothing defines {} in {value:?}", &value[start..end])),
        None => Ok(()),
    }
}

/// Where HBase keeps its data if the file does not say: in `hbase` below `hbase.tmp.dir`.
fn default_parent(properties: &[Property]) -> Option<&str> {
    let value = |name: &str| properties.iter().find(|property| property.name == name);
    value("hbase.tmp.dir").filter(|_| value("hbase.rootdir").is_none()).map(|found| found.value.as_str())
}

/// A path, or a `file:` address in one of its forms.
pub fn local_path(name: &str, value: &str) -> Result<PathBuf, String> {
    let path = match value.split_once(':') {
        None => value,
        Some(("file", rest)) => match rest.strip_prefix("//") {
            Some(rest) => &rest[rest.find('/').unwrap_or(rest.len())..],
            None => rest,
        },
        Some(_) => return Err(format!("{name}: {value:?} is not on the local disk")),
    };
    if path.is_empty() {
        return Err(format!("{name}: {value:?} names no directory"));
    }
    Ok(PathBuf::from(path))
}

/// Why a property of HBase does nothing here.
fn reason_without_effect(name: &str) -> &'static str {
    const REASONS: &[(&str, &str)] = &[
        ("hbase.cluster.distributed", "standalone is one process"),
        ("hbase.zookeeper.quorum", "the endpoint that clients ask runs inside, at the bound address"),
        ("hbase.zookeeper.property.dataDir", "the endpoint that clients ask keeps nothing on disk"),
        ("hbase.zookeeper.", "there is no ZooKeeper behind the endpoint that clients ask"),
        ("zookeeper.", "there is no ZooKeeper behind the endpoint that clients ask"),
        (
            "hbase.tmp.dir",
            "temporary files are in the data directory; without hbase.rootdir the data is below it",
        ),
        ("hbase.local.dir", "temporary files are in the data directory"),
        ("hbase.unsafe.stream.capability.enforce", "the local disk has what is needed"),
        ("hbase.client.", "only clients read it"),
        ("hbase.rpc.protection", "traffic is not encrypted"),
        ("hbase.rpc.", "only clients read it"),
        (
            "hbase.ipc.server.",
            "the scheduler of calls has other settings: see the properties that --print-settings shows",
        ),
        ("hbase.coprocessor.", "coprocessors do not run"),
        ("hbase.quota.", "there are no quotas"),
        ("hbase.security.", "clients are not authenticated"),
        ("hbase.server.netty.tls.", "there is no TLS"),
        ("hbase.superuser", "clients are not authenticated: every user may do what a superuser may"),
        ("hbase.wal.dir", "WALs are in the root directory"),
        ("hbase.bucketcache.bucket.sizes", "blocks of every size lie side by side in the cache file"),
        ("hbase.bucketcache.", "the cache file has no use for it"),
        ("hbase.rs.evictblocksonsplit", "both daughters of a split use the parent's blocks"),
        (
            "hbase.lru.blockcache.",
            "blocks that are read again, IN_MEMORY and index blocks stay without shares of their own",
        ),
        ("hfile.block.cache.policy", "there is one policy: a scan does not push out what is read again"),
        ("hbase.wal.provider", "there is one kind of log"),
        ("dfs.", "there is no HDFS below"),
        ("fs.", "there is no HDFS below"),
    ];
    let known = REASONS.iter().find(|(start, _)| name.starts_with(start));
    known.map_or("it is not known here", |(_, reason)| reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn property(name: &str, value: &str) -> Property {
        Property { name: name.to_string(), value: value.to_string() }
    }

    #[test]
    fn settings_print_and_parse_back() {
        let mut settings = StandaloneSettings {
            data: PathBuf::from("/var/lib/x"),
            master_info_port: None,
            regionserver_port: 7,
            ..StandaloneSettings::default()
        };
        settings.rpc.frame_bytes_max = 4711;
        settings.regionserver.region.compaction.ratio = 1.5;
        let printed = settings.to_string();
        let mut read = StandaloneSettings::default();
        for line in printed.lines() {
            let (name, value) = line.split_once(" =").expect("name = value");
            assert!(read.set(name, value.trim()).unwrap(), "{name}");
        }
        assert_eq!(read.to_string(), printed);
    }

    #[test]
    fn flags_win_over_the_file_and_what_is_not_used_is_named() {
        let properties = [
            property("hbase.rootdir", "file:///data/hbase"),
            property("hbase.master.port", "1"),
            property("hbase.regionserver.port", "2"),
            property("hbase.wal.hsync", "false"),
            property("hbase.cluster.distributed", "true"),
            property("hbase.tmp.dir", "/home/ada/tmp"),
            property("my.own", "x"),
        ];
        let flags =
            StandaloneArgs { master_port: Some(9), memory: Some(Size(5 << 20)), ..StandaloneArgs::default() };
        let (settings, unused) = StandaloneSettings::new(&properties, &flags).unwrap();
        assert_eq!(settings.data, PathBuf::from("/data/hbase"));
        assert_eq!((settings.master_port, settings.regionserver_port), (9, 2));
        assert_eq!(settings.regionserver.memory_bytes, 5 << 20);
        assert!(settings.regionserver.wal_sync == SyncMode::Written);
        assert_eq!(unused.len(), 3, "{unused:?}");
        assert_eq!(unused[0], "hbase.cluster.distributed is not used: standalone is one process");
        assert!(unused[2].contains("my.own is not used: it is not known here"));
    }

    #[test]
    fn values_without_sense_are_told_by_name() {
        for (name, value) in [
            ("hbase.master.port", "x"),
            ("hbase.master.port", "70000"),
            ("hbase.rootdir", "hdfs://n:8020/hbase"),
            ("hbase.master.ipc.address", "somewhere"),
            ("zookeeper.znode.parent", "hbase"),
            ("hfile.block.cache.size", "7"),
            ("hbase.bucketcache.ioengine", "mmap:/ssd/cache"),
            ("hbase.bucketcache.size", "0.5"),
        ] {
            let told = StandaloneSettings::new(&[property(name, value)], &StandaloneArgs::default());
            assert!(told.unwrap_err().contains(name), "{name}");
        }
    }

    #[test]
    fn references_that_nothing_defines_are_refused_where_they_matter() {
        let new = |name: &str, value: &str| {
            StandaloneSettings::new(&[property(name, value)], &StandaloneArgs::default())
        };
        let error = new("hbase.rootdir", "file://${no.such}/hbase").unwrap_err();
        assert_eq!(error, r#"hbase.rootdir: nothing defines ${no.such} in "file://${no.such}/hbase""#);
        for name in ["hbase.master.port", "hbase.regionserver.hostname", "hbase.tmp.dir"] {
            let error = new(name, "${no.such}").unwrap_err();
            assert!(error.contains("nothing defines ${no.such}"), "{error}");
        }
        assert_eq!(new("my.own", "${no.such}").unwrap().1, ["my.own is not used: it is not known here"]);
    }

    #[test]
    fn without_a_root_directory_the_data_is_where_hbase_has_it() {
        let properties = [property("hbase.tmp.dir", "/srv/tmp")];
        let new = |flags: &StandaloneArgs| StandaloneSettings::new(&properties, flags).unwrap().0.data;
        assert_eq!(new(&StandaloneArgs::default()), PathBuf::from("/srv/tmp/hbase"));
        let flags = StandaloneArgs { data: Some(PathBuf::from("/d")), ..StandaloneArgs::default() };
        assert_eq!(new(&flags), PathBuf::from("/d"));
    }

    #[test]
    fn the_forms_of_a_local_address() {
        for text in ["/a/b", "file:/a/b", "file:///a/b", "file://localhost/a/b"] {
            assert_eq!(local_path("hbase.rootdir", text), Ok(PathBuf::from("/a/b")), "{text}");
        }
        assert!(local_path("hbase.rootdir", "file:").is_err());
    }
}
