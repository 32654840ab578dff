//! What the ports of a master answer before it serves.

use std::sync::{Arc, OnceLock, Weak};

use halcyon_contract::{Assignments, RegionServerStatus, RegionStateTransition, Unasked};
use halcyon_master::Master;
use halcyon_proto::pb;
use halcyon_rpc::{Call, Outcome, Reply, RpcError, Service, Services};
use halcyon_schema::znode::HBASE_VERSION;
use halcyon_schema::{RegionInfo, ServerName};
use prost::Message;

/// Services that answer when the master is active, and say that it is not before.
#[derive(Clone, Default)]
pub struct LateServices(Arc<[OnceLock<Arc<dyn Service>>; 3]>);

/// The places in [`LateServices`].
const LATE: [&str; 3] = ["MasterService", "HbckService", "RegionServerStatusService"];

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

    pub fn set(&self, name: &str, service: Arc<dyn Service>) {
        let at = LATE.iter().position(|it| *it == name).expect("the name is one of a late service");
        let _ = self.0[at].set(service);
    }
}

impl Service for LateService {
    fn call(&self, call: Call) -> Outcome {
        match self.services.0[self.at].get() {
            Some(service) => service.call(call),
            // Region servers ask for the version before they join, which the master waits for.
            None if is_question_for_version(&call) => {
                let version = pb::HBaseVersionFileContent { version: HBASE_VERSION.to_string() };
                let cluster_status =
                    pb::ClusterStatus { hbase_version: Some(version), ..pb::ClusterStatus::default() };
                Outcome::Ready(Ok(Reply::message(&pb::GetClusterStatusResponse { cluster_status })))
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
