//! HBase's znodes: their names, and the bytes in them.
//!
//! A znode's data, as HBase's servers write it (`RecoverableZooKeeper`, `ProtobufUtil`):
//!
//! ```text
//! FF | int32 id length | id | "PBUF" | message          id = the writer's name and 8 random bytes
//! ```
//!
//! The 8 bytes tell a writer that has lost an answer whether the data is its own. Some znodes, such as those below
//! `draining`, have no data. Java also takes data without the id; gohbase and asynchbase do not.
//!
//! Bytes of others are untrusted: every reader here returns an error that names the znode.
//!
//! Checked against HBase 2.6 `ZNodePaths`, `ZKMetadata`, `MasterAddressTracker`, `MetaTableLocator` and
//! `RegionServerTracker`.

use halcyon_cell::{Error, Result};
use halcyon_proto::{PB_MAGIC, pb};
use prost::Message;

use crate::{ClusterId, ServerName, decode, strip_magic};

/// The version of HBase that servers of Halcyon say they have, if nothing else is asked for.
pub const HBASE_VERSION: &str = "2.6.4";

/// Marks the id before the message.
const ID_MAGIC: u8 = 0xff;
/// The id ends with so many random bytes.
const UNIQUE_BYTES: usize = 8;
/// The port of a server without pages: HBase's -1, as 32 bits without a sign.
const NO_PORT: u32 = u32::MAX;
const META: &str = "meta-region-server";
/// The child of a peer that says whether it is enabled.
pub const PEER_STATE: &str = "peer-state";
/// Digits of the largest epoch.
const EPOCH_DIGITS_MAX: usize = 20;

/// Namespaces that every cluster has. A master makes a znode for each, below `namespace`.
pub const NAMESPACES: &[&str] = &["default", "hbase"];

/// Znodes below the base path that a master makes first, without data. Parents are made as well.
pub const EMPTY: &[&str] = &[
    "backup-masters",
    "draining",
    "flush-table-proc/abort",
    "flush-table-proc/acquired",
    "flush-table-proc/reached",
    "master-maintenance",
    "namespace",
    "online-snapshot/abort",
    "online-snapshot/acquired",
    "online-snapshot/reached",
    "replication/peers",
    "replication/rs",
    "rolllog-proc/abort",
    "rolllog-proc/acquired",
    "rolllog-proc/reached",
    "rs",
    "splitWAL",
    "switch",
    "table",
    "table-lock",
];

/// Where HBase's znodes are, below one base path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZnodePaths {
    base: String,
}

impl ZnodePaths {
    /// The base path is `zookeeper.znode.parent`, by default `/hbase`.
    pub fn new(base: &str) -> Result<ZnodePaths> {
        let names = base.strip_prefix('/').unwrap_or_default().trim_end_matches('/');
        if names.is_empty() || names.split('/').any(|name| matches!(name, "" | "." | "..")) {
            return Err(Error::invalid(format!(
                "zookeeper.znode.parent: {base:?} is not an absolute path below the root"
            )));
        }
        Ok(ZnodePaths { base: format!("/{names}") })
    }

    pub fn base(&self) -> &str {
        &self.base
    }

    /// A znode without a method of its own.
    pub fn below(&self, name: &str) -> String {
        format!("{}/{name}", self.base)
    }

    /// The active master; ephemeral.
    pub fn master(&self) -> String {
        self.below("master")
    }

    /// Its children are the masters that wait to become active.
    pub fn backup_masters(&self) -> String {
        self.below("backup-masters")
    }

    /// One master that waits; ephemeral.
    pub fn backup_master(&self, server: &ServerName) -> String {
        self.below(&format!("backup-masters/{server}"))
    }

    /// How often a master of Halcyon became active. HBase has no such znode.
    pub fn master_epoch(&self) -> String {
        self.below("halcyon/master-epoch")
    }

    /// There while the cluster is up.
    pub fn running(&self) -> String {
        self.below("running")
    }

    pub fn cluster_id(&self) -> String {
        self.below("hbaseid")
    }

    /// Who serves a replica of `hbase:meta`; replica 0 is the one that is written.
    pub fn meta(&self, replica: u32) -> String {
        match replica {
            0 => self.below(META),
            replica => self.below(&format!("{META}-{replica}")),
        }
    }

    /// The replica that a child of the base path is about, if it is about `hbase:meta`.
    pub fn meta_replica(child: &str) -> Option<u32> {
        let rest = child.strip_prefix(META)?;
        if rest.is_empty() {
            return Some(0);
        }
        rest.strip_prefix('-')?.parse().ok().filter(|replica| *replica > 0)
    }

    /// Its children are the live region servers.
    pub fn region_servers(&self) -> String {
        self.below("rs")
    }

    /// One live region server; ephemeral.
    pub fn region_server(&self, server: &ServerName) -> String {
        self.below(&format!("rs/{server}"))
    }

    /// Where procedures of one kind are coordinated, such as `online-snapshot`.
    pub fn procedures(&self, signature: &str) -> ProcedurePaths {
        ProcedurePaths { base: self.below(signature) }
    }

    /// Its children are the region servers that get no more regions.
    pub fn draining(&self) -> String {
        self.below("draining")
    }

    /// One region server that gets no more regions; without data.
    pub fn draining_server(&self, server: &ServerName) -> String {
        self.below(&format!("draining/{server}"))
    }

    /// Its children are the namespaces.
    pub fn namespaces(&self) -> String {
        self.below("namespace")
    }

    pub fn namespace(&self, name: &str) -> String {
        self.below(&format!("namespace/{name}"))
    }

    /// Its children are the replication peers, for HBase's tools (`ZKReplicationPeerStorage`).
    pub fn peers(&self) -> String {
        self.below("replication/peers")
    }

    pub fn peer(&self, id: &str) -> String {
        self.below(&format!("replication/peers/{id}"))
    }

    pub fn peer_state(&self, id: &str) -> String {
        self.below(&format!("replication/peers/{id}/{PEER_STATE}"))
    }

    /// Its children are the states of tables, for clients of HBase 1.
    pub fn tables(&self) -> String {
        self.below("table")
    }

    pub fn table(&self, name: &str) -> String {
        self.below(&format!("table/{name}"))
    }

    /// Whether region servers throttle requests; missing: they do.
    pub fn rpc_throttle(&self) -> String {
        self.below("rpc-throttle")
    }

    /// Its children are the region server groups, for HBase's master.
    pub fn groups(&self) -> String {
        self.below("rsgroup")
    }

    pub fn group(&self, name: &str) -> String {
        self.below(&format!("rsgroup/{name}"))
    }
}

/// Where procedures are that a master coordinates by two barriers (`ZKProcedureUtil`).
///
/// ```text
/// acquired/<instance>             what the master wants; there as long as the procedure runs
/// acquired/<instance>/<server>    the server is ready
/// reached/<instance>              the master says that all servers are ready
/// reached/<instance>/<server>     the server has done its part
/// abort/<instance>                why the procedure fails, of the master or of a server
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcedurePaths {
    base: String,
}

impl ProcedurePaths {
    /// Its children are the procedures that run.
    pub fn instances(&self) -> String {
        format!("{}/acquired", self.base)
    }

    pub fn acquired(&self, instance: &str) -> String {
        format!("{}/acquired/{instance}", self.base)
    }

    pub fn reached(&self, instance: &str) -> String {
        format!("{}/reached/{instance}", self.base)
    }

    pub fn abort(&self, instance: &str) -> String {
        format!("{}/abort/{instance}", self.base)
    }
}

/// A message as HBase's servers write it. `unique` are random bytes.
pub fn encode(writer: &str, unique: [u8; UNIQUE_BYTES], message: &impl Message) -> Vec<u8> {
    encode_payload(writer, unique, &message.encode_to_vec())
}

/// As [`encode`], of bytes that need not be a message.
pub fn encode_payload(writer: &str, unique: [u8; UNIQUE_BYTES], payload: &[u8]) -> Vec<u8> {
    let mut out = id(writer, unique);
    out.extend_from_slice(PB_MAGIC);
    out.extend_from_slice(payload);
    out
}

/// What a child of `namespace` says. HBase writes it without the magic.
pub fn encode_namespace(
    writer: &str,
    unique: [u8; UNIQUE_BYTES],
    namespace: &pb::NamespaceDescriptor,
) -> Vec<u8> {
    encode_bare(writer, unique, &namespace.encode_to_vec())
}

/// As [`encode_payload`], without the magic.
pub fn encode_bare(writer: &str, unique: [u8; UNIQUE_BYTES], payload: &[u8]) -> Vec<u8> {
    let mut out = id(writer, unique);
    out.extend_from_slice(payload);
    out
}

fn id(writer: &str, unique: [u8; UNIQUE_BYTES]) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    let id_len = u32::try_from(writer.len() + UNIQUE_BYTES).expect("the id is a short text");
    out.push(ID_MAGIC);
    out.extend_from_slice(&id_len.to_be_bytes());
    out.extend_from_slice(writer.as_bytes());
    out.extend_from_slice(&unique);
    out
}

/// The message in a znode.
pub fn message<M: Message + Default>(path: &str, data: &[u8]) -> Result<M> {
    decode(path, payload(path, data)?)
}

/// What is in a znode behind the id and the magic.
pub fn payload<'a>(path: &str, data: &'a [u8]) -> Result<&'a [u8]> {
    strip_magic(path, without_id(path, data)?)
}

/// Why a server aborts a procedure, as HBase's servers say it (`ForeignException.serialize`). HBase reads source and text.
pub fn foreign_exception(source: &ServerName, class: &str, text: &str) -> pb::ForeignExceptionMessage {
    pb::ForeignExceptionMessage {
        source: Some(source.to_string()),
        generic_exception: Some(pb::GenericExceptionMessage {
            class_name: Some(class.to_string()),
            message: Some(text.to_string()),
            ..Default::default()
        }),
    }
}

/// Who aborts a procedure, and why.
pub fn decode_abort(path: &str, data: &[u8]) -> Result<String> {
    let message: pb::ForeignExceptionMessage = message(path, data)?;
    let text = message.generic_exception.as_ref().map_or("", |exception| exception.message());
    Ok(format!("{}: {text}", message.source()))
}

/// Skips the writer's id, which may be missing.
fn without_id<'a>(path: &str, data: &'a [u8]) -> Result<&'a [u8]> {
    if data.first() != Some(&ID_MAGIC) {
        return Ok(data);
    }
    let cut_off =
        || Error::corrupt(format!("{path}: the id of the writer is cut off after {} bytes", data.len()));
    let (len, rest) = data[1..].split_first_chunk::<4>().ok_or_else(cut_off)?;
    let len = usize::try_from(u32::from_be_bytes(*len)).map_err(|_| cut_off())?;
    rest.get(len..).ok_or_else(cut_off)
}

/// What `master` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveMaster {
    pub server: ServerName,
    /// The port of its pages; 0 if it has none.
    pub info_port: u16,
}

impl ActiveMaster {
    pub fn decode(path: &str, data: &[u8]) -> Result<ActiveMaster> {
        let master: pb::Master = message(path, data)?;
        let info_port = match master.info_port {
            None | Some(NO_PORT) => 0,
            Some(port) => u16::try_from(port)
                .map_err(|_| Error::corrupt(format!("{path}: {port} is no port of a page")))?,
        };
        Ok(ActiveMaster { server: server_name(path, &master.master)?, info_port })
    }

    pub fn to_pb(&self) -> pb::Master {
        pb::Master {
            master: self.server.to_pb(),
            rpc_version: Some(0),
            info_port: Some(if self.info_port == 0 { NO_PORT } else { u32::from(self.info_port) }),
        }
    }
}

/// What `meta-region-server` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaLocation {
    pub replica: u32,
    /// Who serves the replica, or is about to.
    pub server: ServerName,
    /// Whether the region is open there.
    pub is_open: bool,
}

impl MetaLocation {
    pub fn decode(path: &str, replica: u32, data: &[u8]) -> Result<MetaLocation> {
        let meta: pb::MetaRegionServer = message(path, data)?;
        let state = meta.state.map_or(Ok(pb::region_state::State::Open), pb::region_state::State::try_from);
        let state = state.map_err(|_| {
            Error::corrupt(format!("{path}: {:?} is no state of a region", meta.state.unwrap_or_default()))
        })?;
        let is_open = state == pb::region_state::State::Open;
        Ok(MetaLocation { replica, server: server_name(path, &meta.server)?, is_open })
    }

    pub fn to_pb(&self) -> pb::MetaRegionServer {
        let state =
            if self.is_open { pb::region_state::State::Open } else { pb::region_state::State::Opening };
        pb::MetaRegionServer { server: self.server.to_pb(), rpc_version: Some(0), state: Some(state as i32) }
    }
}

/// What `hbaseid` says.
pub fn decode_cluster_id(path: &str, data: &[u8]) -> Result<ClusterId> {
    let id = message::<pb::ClusterId>(path, data)?.cluster_id;
    if id.is_empty() {
        return Err(Error::corrupt(format!("{path}: the cluster's id is empty")));
    }
    Ok(ClusterId(id))
}

/// What `running` says: when the cluster started, as free text.
pub fn decode_running(path: &str, data: &[u8]) -> Result<String> {
    Ok(message::<pb::ClusterUp>(path, data)?.start_date)
}

/// What `running` says of a cluster that started at this time: the text of `java.util.Date`, in UTC.
pub fn start_date(now_ms: i64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"]; // 1970 began on a Thursday
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let seconds = now_ms.max(0) / 1000;
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    // Years of 365 days are never too few; the correction is the leap days before.
    let leap_days = |year: i64| (year - 1) / 4 - (year - 1) / 100 + (year - 1) / 400 - 477;
    let start = |year: i64| (year - 1970) * 365 + leap_days(year);
    let mut year = 1970 + days / 365;
    while start(year) > days {
        year -= 1;
    }
    let mut day = days - start(year);
    let mut month = 0;
    for length in [31, if is_leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if day < length {
            break;
        }
        (day, month) = (day - length, month + 1);
    }
    let weekday = DAYS[(days % 7) as usize];
    format!("{weekday} {} {:02} {hour:02}:{minute:02}:{second:02} UTC {year}", MONTHS[month], day + 1)
}

/// What a child of `table` says. `hbase:meta` and this mirror number the same states.
pub fn mirrored_table_state(state: pb::table_state::State) -> pb::DeprecatedTableState {
    use pb::deprecated_table_state::State as Mirrored;
    use pb::table_state::State;
    let state = match state {
        State::Enabled => Mirrored::Enabled,
        State::Disabled => Mirrored::Disabled,
        State::Disabling => Mirrored::Disabling,
        State::Enabling => Mirrored::Enabling,
    };
    pb::DeprecatedTableState { state: state as i32 }
}

/// What `peer-state` of a peer says.
pub fn peer_state(is_enabled: bool) -> pb::ReplicationState {
    use pb::replication_state::State;
    let state = if is_enabled { State::Enabled } else { State::Disabled };
    pb::ReplicationState { state: state as i32 }
}

/// What `halcyon/master-epoch` says: a decimal number.
pub fn encode_epoch(epoch: u64) -> Vec<u8> {
    epoch.to_string().into_bytes()
}

pub fn decode_epoch(path: &str, data: &[u8]) -> Result<u64> {
    let digits = data.len() <= EPOCH_DIGITS_MAX && data.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(data).ok().filter(|_| digits).and_then(|text| text.parse().ok());
    number.ok_or_else(|| {
        let start = &data[..data.len().min(EPOCH_DIGITS_MAX)];
        Error::corrupt(format!("{path}: \"{}\" is not a decimal number", start.escape_ascii()))
    })
}

/// The name of a child of `rs` or `draining`.
pub fn decode_server(parent: &str, child: &str) -> Result<ServerName> {
    // `ServerName::parse` also takes `host:port`, which names no start code.
    ServerName::parse(child)
        .ok()
        .filter(|server| server.start_code >= 0 && server.to_string() == child)
        .ok_or_else(|| Error::corrupt(format!("{parent}/{child}: not a server name \"host,port,startcode\"")))
}

/// What a region server writes into its znode below `rs`.
///
/// HBase's master places system tables on servers of the newest version only, so `hbase_version` has to be a version of
/// HBase, such as `2.6.4`.
pub fn region_server_info(info_port: u16, hbase_version: &str) -> pb::RegionServerInfo {
    pb::RegionServerInfo {
        // HBase's servers without pages write -1.
        info_port: Some(if info_port == 0 { -1 } else { i32::from(info_port) }),
        version_info: Some(version_info(hbase_version)),
    }
}

/// HBase's `VersionInfo` of a Halcyon server: HBase's version in the fields that HBase's servers compare, Halcyon in those that
/// people read.
pub fn version_info(hbase_version: &str) -> pb::VersionInfo {
    let mut numbers = hbase_version.split(['.', '-']).map(|part| part.parse().ok());
    pb::VersionInfo {
        version: hbase_version.to_string(),
        url: "halcyon".to_string(),
        revision: format!("halcyon-{}", env!("CARGO_PKG_VERSION")),
        user: "halcyon".to_string(),
        date: String::new(),
        src_checksum: String::new(),
        version_major: numbers.next().flatten(),
        version_minor: numbers.next().flatten(),
    }
}

fn server_name(path: &str, name: &pb::ServerName) -> Result<ServerName> {
    let server = ServerName::from_pb(name).map_err(|error| error.context(path))?;
    if server.host.is_empty() || server.port == 0 {
        return Err(Error::corrupt(format!("{path}: the server name {server} has no host or no port")));
    }
    Ok(server)
}

#[cfg(test)]
mod tests;
