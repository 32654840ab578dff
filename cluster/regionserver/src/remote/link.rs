//! Calls of the master's `RegionServerStatusService`.
//!
//! The connection is made when it is needed, to the master that is active then. After an error the active master is looked
//! for again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use halcyon_client::{ClientError, ConnectOptions, Connection};
use halcyon_env::{Mutex, vitals};
use halcyon_proto::pb;
use halcyon_schema::ServerName;
use prost::Message;
use tokio::runtime::Handle;

/// Names the active master; `None` while there is none.
pub type FindMaster = Box<dyn Fn() -> Option<ServerName> + Send + Sync>;

/// Calls the active master in another way than over connections: for the simulation of a cluster.
pub trait CallMaster: Send + Sync {
    /// Calls `RegionServerStatusService`, and returns the message of the answer. *Blocking*, for `timeout` at most.
    fn call(&self, method: &'static str, param: Bytes, timeout: Duration) -> Result<Bytes, ClientError>;
}

enum Way {
    Connections { runtime: Handle, find: FindMaster },
    Other(Box<dyn CallMaster>),
}

/// One call, with the connection before it.
const CALL_TIME_MAX: Duration = Duration::from_secs(10);
const SERVICE: &str = "RegionServerStatusService";

/// Of HBase: `2.6.4`, `2.6.4-hadoop3`, `3.0.0-beta-1`. HBase takes a version with a suffix for older than one without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Major, minor, patch.
    pub numbers: (u32, u32, u32),
    /// Empty, or `-hadoop3`.
    pub suffix: String,
}

impl Version {
    /// Without a suffix.
    pub fn new(numbers: (u32, u32, u32)) -> Version {
        Version { numbers, suffix: String::new() }
    }

    fn parse(text: &str) -> Option<Version> {
        let (numbers, suffix) = text.split_at(text.find('-').unwrap_or(text.len()));
        let mut parts = numbers.split('.').map(|part| part.parse().ok());
        let numbers = (parts.next()??, parts.next()??, parts.next()??);
        parts.next().is_none().then(|| Version { numbers, suffix: suffix.to_string() })
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (major, minor, patch) = self.numbers;
        write!(f, "{major}.{minor}.{patch}{}", self.suffix)
    }
}

/// The master waits for these, or another master does soon.
const NOT_YET: [&str; 6] = [
    "PleaseHoldException",
    "ServerNotRunningYetException",
    "MasterNotRunningException",
    "PleaseRestartMasterException",
    "CallQueueTooBigException",
    "MasterStoppedException",
];

/// HBase does not mark this one as final, though its servers end with it.
const CLOCK: &str = "ClockOutOfSyncException";

/// Why a call of the master failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MasterError {
    /// The master has declared this server dead (`YouAreDeadException`).
    Dead(String),
    /// Nobody has refused it; the same call may succeed later.
    Later(String),
    /// The same call would be refused again.
    Refused(String),
}

impl std::fmt::Display for MasterError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MasterError::Dead(why) => write!(f, "the master has declared this server dead: {why}"),
            MasterError::Later(why) | MasterError::Refused(why) => f.write_str(why),
        }
    }
}

fn error_of(error: &ClientError) -> MasterError {
    let Some(exception) = error.remote() else { return MasterError::Later(error.to_string()) };
    let text = format!("{}: {}", exception.simple_class(), exception.message());
    match exception.simple_class() {
        "YouAreDeadException" => MasterError::Dead(exception.message().to_string()),
        CLOCK => MasterError::Refused(text),
        class if NOT_YET.contains(&class) || !exception.do_not_retry => MasterError::Later(text),
        _ => MasterError::Refused(text),
    }
}

async fn connect(master: &ServerName, service: &str, version: &Version) -> Result<Connection, MasterError> {
    let options = ConnectOptions {
        codec: None,
        version: Some(version.numbers),
        version_suffix: version.suffix.clone(),
        ..ConnectOptions::new(service)
    };
    let connecting = Connection::connect(master.address(), &options);
    let failed = |why: String| MasterError::Later(format!("cannot reach the master {master}: {why}"));
    match tokio::time::timeout(CALL_TIME_MAX, connecting).await {
        Ok(connected) => connected.map_err(|error| failed(error.to_string())),
        Err(_) => Err(failed(format!("no connection within {CALL_TIME_MAX:?}"))),
    }
}

/// The way to the active master. *Thread safety*: calls from any thread that may block; not from one of `runtime`.
pub struct MasterLink {
    way: Way,
    /// The newest version of HBase that this server works like.
    version_max: Version,
    /// The version that the master was told, as HBase's servers do.
    version: Mutex<Version>,
    current: Mutex<Option<(ServerName, Arc<Connection>)>>,
}

impl MasterLink {
    /// Connects to nobody yet. Calls run on `runtime`.
    pub fn new(runtime: Handle, find: FindMaster, version_max: (u32, u32, u32)) -> MasterLink {
        MasterLink::by(Way::Connections { runtime, find }, version_max)
    }

    /// In a simulation.
    pub fn simulated(calls: Box<dyn CallMaster>, version_max: (u32, u32, u32)) -> MasterLink {
        MasterLink::by(Way::Other(calls), version_max)
    }

    fn by(way: Way, version_max: (u32, u32, u32)) -> MasterLink {
        let version_max = Version::new(version_max);
        let version = Mutex::new(version_max.clone());
        MasterLink { way, version_max, version, current: Mutex::default() }
    }

    /// The version that the master was told when it was connected to.
    pub fn version(&self) -> Version {
        self.version.lock().clone()
    }

    /// The master that was called last.
    pub fn master(&self) -> Option<ServerName> {
        self.current.lock().as_ref().map(|(name, _)| name.clone())
    }

    /// Calls the active master. *Blocking*, for [`CALL_TIME_MAX`] at most.
    pub(crate) fn call<M>(&self, method: &'static str, request: &impl Message) -> Result<M, MasterError>
    where
        M: Message + Default,
    {
        let answered = vitals::outside(|| match &self.way {
            Way::Other(calls) => {
                let answer = calls.call(method, request.encode_to_vec().into(), CALL_TIME_MAX);
                answer.map_err(|error| error_of(&error))
            }
            Way::Connections { runtime, find } => runtime.block_on(async {
                let connection = self.connection(find).await?;
                let answer = connection.call_with_cells(method, request, None, Some(CALL_TIME_MAX)).await;
                answer.map(|answer| answer.message).map_err(|error| error_of(&error))
            }),
        });
        let result = answered.and_then(|message| {
            M::decode(message).map_err(|error| {
                MasterError::Later(format!("the answer to {method} cannot be decoded: {error}"))
            })
        });
        if matches!(result, Err(MasterError::Later(_))) {
            *self.current.lock() = None; // another master may be active
        }
        result
    }

    async fn connection(&self, find: &FindMaster) -> Result<Arc<Connection>, MasterError> {
        if let Some((_, connection)) = self.current.lock().as_ref().filter(|(_, made)| !made.has_ended()) {
            return Ok(connection.clone());
        }
        let master = find().ok_or_else(|| MasterError::Later("there is no active master".to_string()))?;
        let version = self.version_for(&master).await?;
        *self.version.lock() = version.clone();
        let connection = Arc::new(connect(&master, SERVICE, &version).await?);
        tracing::info!(%master, %version, "connected to the master");
        *self.current.lock() = Some((master, connection.clone()));
        Ok(connection)
    }

    /// The version to tell a master. It gives system tables to the servers of the newest version only, so a version above
    /// its own would take them from all other servers. 2.6.4 is above 2.6.4-hadoop3.
    async fn version_for(&self, master: &ServerName) -> Result<Version, MasterError> {
        let connection = connect(master, "MasterService", &self.version_max).await?;
        let request = pb::GetClusterStatusRequest { options: vec![pb::Option::HbaseVersion as i32] };
        let answer =
            connection.call_with_cells("GetClusterStatus", &request, None, Some(CALL_TIME_MAX)).await;
        let told = match answer {
            Ok(answer) => pb::GetClusterStatusResponse::decode(answer.message)
                .ok()
                .and_then(|answer| answer.cluster_status.hbase_version)
                .map(|version| version.version),
            Err(error) => match error_of(&error) {
                MasterError::Refused(why) => Some(why),
                error => return Err(error),
            },
        };
        let told = told.unwrap_or_default();
        let Some(version) = Version::parse(&told) else {
            tracing::warn!(%master, told, "the master does not tell its version");
            return Ok(self.version_max.clone());
        };
        let is_newer = version.numbers > self.version_max.numbers;
        Ok(if is_newer { self.version_max.clone() } else { version })
    }

    pub(crate) fn startup(
        &self,
        request: &pb::RegionServerStartupRequest,
    ) -> Result<pb::RegionServerStartupResponse, MasterError> {
        self.call("RegionServerStartup", request)
    }

    pub(crate) fn report(&self, request: &pb::RegionServerReportRequest) -> Result<(), MasterError> {
        self.call::<pb::RegionServerReportResponse>("RegionServerReport", request).map(|_| ())
    }

    pub(crate) fn report_sizes(&self, request: &pb::RegionSpaceUseReportRequest) -> Result<(), MasterError> {
        self.call::<pb::RegionSpaceUseReportResponse>("ReportRegionSpaceUse", request).map(|_| ())
    }

    /// An error message in the answer is a refusal.
    pub(crate) fn transition(
        &self,
        request: &pb::ReportRegionStateTransitionRequest,
    ) -> Result<(), MasterError> {
        let answer: pb::ReportRegionStateTransitionResponse =
            self.call("ReportRegionStateTransition", request)?;
        answer.error_message.map_or(Ok(()), |why| Err(MasterError::Refused(why)))
    }

    /// Up to where the edits of a region are in its files.
    pub(crate) fn last_flushed(
        &self,
        encoded: &[u8],
    ) -> Result<pb::GetLastFlushedSequenceIdResponse, MasterError> {
        let region_name = bytes::Bytes::copy_from_slice(encoded);
        self.call("GetLastFlushedSequenceId", &pb::GetLastFlushedSequenceIdRequest { region_name })
    }

    /// A refusal is not the end of it: a master waits for the end of a procedure until the server dies, and never asks for it. So
    /// the same is told again, to the master that is active then (HBase: `RemoteProcedureResultReporter`).
    pub(crate) fn procedures_done(
        &self,
        request: &pb::ReportProcedureDoneRequest,
    ) -> Result<(), MasterError> {
        let answer = self.call::<pb::ReportProcedureDoneResponse>("ReportProcedureDone", request);
        answer.map(|_| ()).map_err(|error| match error {
            MasterError::Refused(why) => {
                *self.current.lock() = None; // another master may be active
                MasterError::Later(why)
            }
            error => error,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use halcyon_client::RemoteException;

    use super::*;

    #[test]
    fn versions() {
        for (text, numbers, suffix) in [
            ("2.6.4", (2, 6, 4), ""),
            ("2.5.11-hadoop3", (2, 5, 11), "-hadoop3"),
            ("3.0.0-beta-1", (3, 0, 0), "-beta-1"),
        ] {
            let version = Version { numbers, suffix: suffix.to_string() };
            assert_eq!(version.to_string(), text);
            assert_eq!(Version::parse(text), Some(version));
        }
        for text in
            ["", "2", "2.6", "2.6.x", "2.6.4.1", "-2.6.4", "AccessDeniedException: 2.6.4", "2.6.99999999999"]
        {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }

    #[test]
    fn without_a_master_a_call_may_succeed_later() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let link = MasterLink::new(runtime.handle().clone(), Box::new(|| None), (2, 6, 4));
        let error = link.report(&pb::RegionServerReportRequest::default()).unwrap_err();
        assert_eq!(error, MasterError::Later("there is no active master".to_string()));
    }

    #[test]
    fn a_clock_that_differs_by_too_much_is_a_refusal() {
        let of_class = |class: &str| {
            error_of(&ClientError::Remote(Box::new(RemoteException {
                class: format!("org.apache.hadoop.hbase.{class}"),
                trace: format!("org.apache.hadoop.hbase.{class}: Time difference of 39991ms"),
                do_not_retry: false,
                server_overloaded: false,
            })))
        };
        assert!(matches!(of_class("ClockOutOfSyncException"), MasterError::Refused(_)));
        assert!(matches!(of_class("PleaseHoldException"), MasterError::Later(_)));
        assert!(matches!(of_class("YouAreDeadException"), MasterError::Dead(_)));
    }

    #[test]
    fn connections_that_break_are_no_refusals() {
        let error = ClientError::from(io::Error::new(io::ErrorKind::ConnectionReset, "reset"));
        assert!(matches!(error_of(&error), MasterError::Later(_)));
        assert!(matches!(error_of(&ClientError::Closed), MasterError::Later(_)));
    }
}
