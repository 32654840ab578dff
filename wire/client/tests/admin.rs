//! Calls of a master that does not answer.

mod fake;

use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use fake::options;
use halcyon_client::{Admin, Cluster, ClusterAddress, ClusterOptions, ServerName};
use halcyon_env::SystemClock;
use halcyon_proto::pb;
use halcyon_rpc::{Call, Outcome, Reply, RpcError, RpcServer, RpcSettings, Service, Services};
use tokio::time::{Instant, sleep, timeout};

const CALL_TIMEOUT: Duration = Duration::from_millis(200);
/// Much longer than a test takes.
const LONG: Duration = Duration::from_secs(60);

/// A master, and a registry that names it or another one.
struct Master {
    /// Of this one.
    name: OnceLock<ServerName>,
    active: Mutex<ServerName>,
    /// Before it answers.
    delay: Duration,
    calls: AtomicUsize,
}

impl Service for Master {
    fn call(&self, call: Call) -> Outcome {
        let answer = match call.method.as_str() {
            "GetActiveMaster" => {
                let server_name = Some(self.active.lock().unwrap().to_pb());
                return Outcome::Ready(Ok(Reply::message(&pb::GetActiveMasterResponse { server_name })));
            }
            "GetMetaRegionLocations" => {
                let server_name = self.name.get().map(ServerName::to_pb);
                let meta_locations = vec![pb::RegionLocation { server_name, ..Default::default() }];
                let answer = pb::GetMetaRegionLocationsResponse { meta_locations };
                return Outcome::Ready(Ok(Reply::message(&answer)));
            }
            "ListNamespaceDescriptors" => {
                self.calls.fetch_add(1, Ordering::Relaxed);
                let namespace = pb::NamespaceDescriptor { name: "n".into(), ..Default::default() };
                let namespace_descriptor = vec![namespace];
                Ok(Reply::message(&pb::ListNamespaceDescriptorsResponse { namespace_descriptor }))
            }
            method => Err(RpcError::unknown_method(method)),
        };
        let delay = self.delay;
        Outcome::Later(Box::pin(async move {
            sleep(delay).await;
            answer
        }))
    }
}

/// The master, its name, and what keeps it running.
async fn start(delay: Duration) -> (Arc<Master>, ServerName, RpcServer) {
    let nobody = ServerName::new("127.0.0.1", 1, 1);
    let (name, active) = (OnceLock::new(), Mutex::new(nobody));
    let master = Arc::new(Master { name, active, delay, calls: AtomicUsize::new(0) });
    let mut services = Services::new();
    services.insert("MasterService", Arc::clone(&master) as Arc<dyn Service>);
    services.insert("ClientService", Arc::clone(&master) as Arc<dyn Service>);
    services.insert("ClientMetaService", Arc::clone(&master) as Arc<dyn Service>);
    let address = "127.0.0.1:0".parse().unwrap();
    let bound = RpcServer::bind(address, RpcSettings::default(), Arc::new(SystemClock::new())).await;
    let server = bound.unwrap().serve(services, "the id");
    let name = ServerName::new("127.0.0.1", server.local_addr().port(), 2);
    master.name.set(name.clone()).unwrap();
    (master, name, server)
}

async fn admin(registry: &RpcServer) -> Admin {
    let address = ClusterAddress::registry([registry.local_addr().to_string()]);
    let options = ClusterOptions { call_timeout: CALL_TIMEOUT, operation_timeout: LONG, ..options() };
    Cluster::connect(address, options).await.unwrap().admin().await.unwrap()
}

/// The machine of the master was lost, so the connection did not end. The call waited for its whole operation time, although another
/// master was active after seconds; and so did each later call. A migration left its source closed for writes by that.
#[tokio::test]
async fn a_call_goes_to_the_next_master_when_its_own_is_frozen() {
    let (master, name, server) = start(Duration::ZERO).await;
    let frozen = TcpListener::bind("127.0.0.1:0").unwrap();
    *master.active.lock().unwrap() = ServerName::new("127.0.0.1", frozen.local_addr().unwrap().port(), 1);
    let admin = admin(&server).await;
    let asking = admin.clone();
    let asked = tokio::spawn(async move { asking.namespaces().await });
    sleep(CALL_TIMEOUT * 3).await;
    assert!(!asked.is_finished(), "it is the active master still, and may answer");
    let changed = Instant::now();
    *master.active.lock().unwrap() = name;
    let answer = timeout(LONG / 2, asked).await.expect("an answer of the next master").unwrap();
    assert_eq!(answer.unwrap(), ["n"]);
    assert!(changed.elapsed() < CALL_TIMEOUT * 20, "{:?}", changed.elapsed());
    assert_eq!(timeout(LONG / 2, admin.namespaces()).await.unwrap().unwrap(), ["n"]);
}

#[tokio::test]
async fn a_call_that_takes_long_is_made_once() {
    let (master, name, server) = start(CALL_TIMEOUT * 4).await;
    *master.active.lock().unwrap() = name;
    let admin = admin(&server).await;
    assert_eq!(admin.namespaces().await.unwrap(), ["n"]);
    assert_eq!(master.calls.load(Ordering::Relaxed), 1);
}
