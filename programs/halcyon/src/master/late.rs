//! What the ports of a master answer before it serves, and when another one may be active.

use std::sync::{Arc, OnceLock, Weak};

use halcyon_contract::{Assignments, RegionServerStatus, RegionStateTransition, Unasked};
use halcyon_coord::Lease;
use halcyon_master::Master;
use halcyon_proto::pb;
use halcyon_rpc::{Call, Outcome, Reply, RpcError, Service, Services};
use halcyon_schema::znode::HBASE_VERSION;
use halcyon_schema::{RegionInfo, ServerName};
use prost::Message;

/// Services that answer when the master is active, and say that it is not before.
///
/// They say so as well when its lease has expired. A master that was frozen finds calls that came meanwhile, before it
/// notices that its session has ended. The end of an order of its successor would be lost if it took it.
#[derive(Clone, Default)]
pub struct LateServices(Arc<Late>);

#[derive(Default)]
struct Late {
    services: [OnceLock<Arc<dyn Service>>; LATE.len()],
    lease: OnceLock<Arc<Lease>>,
}

/// The places in [`LateServices`].
const LATE: [&str; 5] =
    ["MasterService", "HbckService", "LockService", "RegionServerStatusService", "AdminService"];

struct LateService {
    services: LateServices,
    at: usize,
}

impl LateServices {
    pub fn services(&self) -> Services {
        let mut services = Services::new();
        for (at, name) in LATE.into_iter().enumerate() {
            services.insert(name, Arc::new(LateService { services: self.clone(), at }));
        }
        services
    }

    /// This master is active while this lease is valid. Without it no service answers.
    pub fn elected(&self, lease: &Arc<Lease>) {
        let _ = self.0.lease.set(Arc::clone(lease));
    }

    pub fn set(&self, name: &str, service: Arc<dyn Service>) {
        let at = LATE.iter().position(|it| *it == name).expect("the name is one of a late service");
        let _ = self.0.services[at].set(service);
    }

    fn is_active(&self) -> bool {
        self.0.lease.get().is_some_and(|lease| lease.is_valid())
    }
}

impl Service for LateService {
    fn call(&self, call: Call) -> Outcome {
        match self.services.0.services[self.at].get().filter(|_| self.services.is_active()) {
            Some(service) => service.call(call),
            // Region servers ask for the version before they join, which the master waits for.
            None if is_question_for_version(&call) => {
                let version = pb::HBaseVersionFileContent { version: HBASE_VERSION.to_string() };
                let cluster_status =
                    pb::ClusterStatus { hbase_version: Some(version), ..pb::ClusterStatus::default() };
                Outcome::Ready(Ok(Reply::message(&pb::GetClusterStatusResponse { cluster_status })))
            }
            // A standby of HBase reads its settings again. Those of a master need its restart here; the call is no error, because
            // `update_all_config` makes it to each server in turn.
            None if LATE[self.at] == "AdminService" && call.method == "UpdateConfiguration" => {
                tracing::info!(
                    "settings of a master are read when it starts; the request to read them again changes nothing"
                );
                Outcome::Ready(Ok(Reply::message(&pb::UpdateConfigurationResponse::default())))
            }
            None => Outcome::Ready(Err(RpcError::server_not_running_yet("Server is not running yet"))),
        }
    }
}

fn is_question_for_version(call: &Call) -> bool {
    let options = pb::GetClusterStatusRequest::decode(call.param.clone()).map(|request| request.options);
    call.method == "GetClusterStatus" && options.is_ok_and(|it| it == [pb::Option::HbaseVersion as i32])
}

/// What a master that still starts answers to region servers.
#[derive(Default)]
pub struct LateAssignments(OnceLock<Weak<Master>>);

impl LateAssignments {
    pub fn set(&self, master: &Arc<Master>) {
        let _ = self.0.set(Arc::downgrade(master));
    }

    fn master(&self) -> Option<Arc<Master>> {
        self.0.get().and_then(Weak::upgrade)
    }
}

impl RegionServerStatus for LateAssignments {
    fn report_region_state_transition(&self, server: &ServerName, transition: RegionStateTransition) {
        if let Some(master) = self.master() {
            master.report_region_state_transition(server, transition);
        }
    }
}

impl Assignments for LateAssignments {
    fn opened_unasked(&self, server: &ServerName, region: &RegionInfo, open_seq_num: u64) -> Unasked {
        match self.master() {
            Some(master) => master.opened_unasked(server, region, open_seq_num),
            None => Unasked::Later,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use halcyon_client::{ClientError, ConnectOptions, Connection};
    use halcyon_env::{Clock, ManualClock, SystemClock};
    use halcyon_rpc::{RpcServer, RpcSettings};

    use super::*;

    struct Acknowledging;

    impl Service for Acknowledging {
        fn call(&self, _: Call) -> Outcome {
            Outcome::Ready(Ok(Reply::message(&pb::ReportProcedureDoneResponse {})))
        }
    }

    /// A master was frozen for longer than its session. Its successor had the logs of the cluster split. The end of that was
    /// told to the frozen one, which took it when it was thawed, and the successor waited for ever.
    /// HBase's `Admin.updateConfiguration` asks every master, and ends with the first error.
    #[tokio::test]
    async fn a_standby_takes_requests_to_read_its_settings_again() {
        let late = LateServices::default();
        let address = "127.0.0.1:0".parse().unwrap();
        let bound = RpcServer::bind(address, RpcSettings::default(), Arc::new(SystemClock::new())).await;
        let server = bound.unwrap().serve(late.services(), "id");
        let ask = async |service: &str, method: &str| {
            let options = ConnectOptions::new(service);
            let connection = Connection::connect(server.local_addr().to_string(), &options).await.unwrap();
            let request = pb::UpdateConfigurationRequest::default();
            let answer =
                connection.call_with_cells(method, &request, None, Some(Duration::from_secs(10))).await;
            answer.map(drop).map_err(|error: ClientError| error.class().to_string())
        };
        let refused = Err("ServerNotRunningYetException".to_string());
        assert_eq!(ask("AdminService", "UpdateConfiguration").await, Ok(()));
        assert_eq!(ask("AdminService", "CompactRegion").await, refused);
        assert_eq!(
            ask("MasterService", "UpdateConfiguration").await,
            refused,
            "that service has no such method"
        );
    }

    #[tokio::test]
    async fn a_master_without_a_lease_takes_no_reports() {
        let clock = Arc::new(ManualClock::at(0));
        let lease = Arc::new(Lease::new(ServerName::new("localhost", 1, 1), clock.clone()));
        let late = LateServices::default();
        late.set("RegionServerStatusService", Arc::new(Acknowledging));
        let address = "127.0.0.1:0".parse().unwrap();
        let bound = RpcServer::bind(address, RpcSettings::default(), Arc::new(SystemClock::new())).await;
        let server = bound.unwrap().serve(late.services(), "id");
        let options = ConnectOptions::new("RegionServerStatusService");
        let connection = Connection::connect(server.local_addr().to_string(), &options).await.unwrap();
        let report = async || {
            let request = pb::ReportProcedureDoneRequest::default();
            let timeout = Some(Duration::from_secs(10));
            let answer = connection.call_with_cells("ReportProcedureDone", &request, None, timeout).await;
            answer.map(drop).map_err(|error: ClientError| error.class().to_string())
        };
        let refused = Err("ServerNotRunningYetException".to_string());
        assert_eq!(report().await, refused, "not elected");
        late.elected(&lease);
        lease.renew(clock.boot_ns(), Duration::from_secs(8));
        assert_eq!(report().await, Ok(()));
        clock.advance(Duration::from_secs(15));
        assert_eq!(report().await, refused, "frozen for 15 s");
    }
}
