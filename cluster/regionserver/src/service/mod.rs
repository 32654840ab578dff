//! What clients can call: one file per RPC.
//!
//! A call is answered on the thread that received it whenever memory is enough for it. A region says
//! `NeedsDisk` when it is not; the call then runs again, or goes on where it was, on the [`DiskPool`]. A write's
//! answer waits for its ticket, which the log resolves in [`Service::batch_done`] or on its own thread.
//!
//! [`DiskPool`]: crate::pool::DiskPool

mod admin;
mod bulk_load;
mod exec_service;
mod get;
mod multi;
mod multi_reply;
mod mutate;
mod scan;
mod scan_run;

pub use admin::AdminService;

use std::sync::Arc;

use bytes::Bytes;
use halcyon_cell::{Error, ErrorKind};
use halcyon_rpc::{Call, Outcome, Reply, RpcError, Service};
use prost::Message;

use crate::RegionServer;
use crate::errors;

/// `ClientService` on the regions of one server.
pub struct ClientService {
    server: Arc<RegionServer>,
}

impl ClientService {
    pub fn new(server: Arc<RegionServer>) -> ClientService {
        ClientService { server }
    }
}

impl Service for ClientService {
    fn call(&self, call: Call) -> Outcome {
        let server = &self.server;
        server.counters.calls.add(1);
        if let Err(error) = server.check_serving() {
            return Outcome::Ready(Err(error));
        }
        match call.method.as_str() {
            "Get" => get::call(server, call),
            "Mutate" => mutate::call(server, call),
            "Multi" => multi::call(server, call),
            "Scan" => scan::call(server, call),
            "PrepareBulkLoad" | "BulkLoadHFile" | "CleanupBulkLoad" => bulk_load::call(&call),
            "ExecService" | "ExecRegionServerService" => exec_service::call(&call),
            method => Outcome::Ready(Err(RpcError::unknown_method(method))),
        }
    }

    fn batch_done(&self) {
        self.server.drive_logs();
    }
}

/// How an attempt at a call ended that did not end well.
pub(crate) enum CallError {
    /// Try again where blocking is allowed. Nothing was changed.
    NeedsDisk,
    Failed(RpcError),
}

impl CallError {
    /// For attempts that were allowed to use the disk.
    fn into_rpc(self) -> RpcError {
        match self {
            CallError::NeedsDisk => RpcError::io("a read that may use the disk says that it needs the disk"),
            CallError::Failed(error) => error,
        }
    }
}

impl From<RpcError> for CallError {
    fn from(error: RpcError) -> CallError {
        CallError::Failed(error)
    }
}

impl From<Error> for CallError {
    fn from(error: Error) -> CallError {
        match error.kind() {
            ErrorKind::NeedsDisk => CallError::NeedsDisk,
            _ => CallError::Failed(errors::to_rpc(&error)),
        }
    }
}

fn decode<M: Message + Default>(method: &str, param: Bytes) -> Result<M, RpcError> {
    M::decode(param).map_err(|error| errors::undecodable(method, &error))
}

fn ready(result: Result<Reply, RpcError>) -> Outcome {
    Outcome::Ready(result)
}
