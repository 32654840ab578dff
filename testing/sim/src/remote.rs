//! Messages between masters and real region servers: the real `halcyon-servers` on one side, the real orders and reports of
//! `halcyon-regionserver` on the other, and here what is between them.
//!
//! What servers report is also what the invariants look at: a region is open from the first report of its opening on, serves from the
//! answer on, and is closed from the report of its close on.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_client::{ClientError, RemoteException};
use halcyon_contract::Assignments;
use halcyon_env::sim::{Process, SimThreads};
use halcyon_master::Master;
use halcyon_proto::pb;
use halcyon_proto::pb::region_state_transition::TransitionCode;
use halcyon_regionserver::CallMaster;
use halcyon_rpc::{CellBlock, Connection, RpcError};
use halcyon_schema::{RegionInfo, ServerName};
use halcyon_servers::{Network, Target};
use parking_lot::Mutex;
use prost::Message;

use crate::calls::{self, Caller, Failure};
use crate::master::Serving;
use crate::server::Open;
use crate::view::View;
use crate::world::{State, World};

/// The way of a message.
const WAY_MAX: Duration = Duration::from_millis(3);
/// Between two looks whether a master has answered.
const LOOK_PAUSE: Duration = Duration::from_millis(5);
/// The numbers of masters' connections.
const MASTERS: u64 = 1 << 40;

/// How a master calls servers.
pub(crate) struct ToServers {
    pub(crate) world: Arc<World>,
    pub(crate) epoch: u64,
}

impl Network for ToServers {
    fn call(
        &self,
        server: &ServerName,
        target: Target,
        method: &str,
        param: Bytes,
        cells: Option<CellBlock>,
        timeout: Duration,
    ) -> Result<(Bytes, Vec<Cell>), ClientError> {
        let connection = Connection {
            user: Some("hbase".into()),
            client_version: Some((2, 6)),
            master_epoch: Some(self.epoch),
            codec: cells.as_ref().map(CellBlock::codec),
            ..Connection::new(MASTERS + self.epoch, "127.0.0.1:2")
        };
        let caller = Caller {
            connection: Arc::new(connection),
            patience: timeout,
            fault_one_in: self.world.rates.message_fault_one_in,
            held: None,
        };
        let called = self.world.call_with_cells(&caller, server, target, method, param, cells);
        self.world.tell(|| {
            format!("master {} calls {method} at {server}: {:?}", self.epoch, called.as_ref().err())
        });
        called.map(|message| (message, Vec::new())).map_err(|failure| client_error(server, failure))
    }
}

fn client_error(server: &ServerName, failure: Failure) -> ClientError {
    match failure {
        Failure::Refused(error) => remote(&error),
        Failure::NoAnswer => {
            std::io::Error::new(std::io::ErrorKind::TimedOut, format!("{server} gives no answer")).into()
        }
    }
}

fn remote(error: &RpcError) -> ClientError {
    ClientError::Remote(Box::new(RemoteException {
        class: error.class.to_string(),
        trace: error.stack_trace(),
        do_not_retry: error.do_not_retry,
        server_overloaded: error.server_overloaded,
    }))
}

/// The active master, as servers reach it.
#[derive(Clone)]
pub(crate) struct Reached {
    pub(crate) process: Process,
    pub(crate) view: Weak<View>,
    pub(crate) serving: Arc<Mutex<Option<Serving>>>,
}

/// How a server calls the active master.
pub(crate) struct ToMaster {
    world: Weak<World>,
    server: ServerName,
    /// Numbers of closes that it has begun to report.
    closes: Mutex<BTreeSet<i64>>,
}

impl CallMaster for ToMaster {
    fn call(&self, method: &'static str, param: Bytes, timeout: Duration) -> Result<Bytes, ClientError> {
        let world = self.world.upgrade().ok_or(ClientError::Closed)?;
        let reported = Reported::of(method, &param);
        // A report that is repeated may come behind a later opening.
        let is_repeated =
            matches!(&reported, Reported::Closed(_, number) if !self.closes.lock().insert(*number));
        // One that serves is reported again by order. The answer changes nothing: the region may be elsewhere by then.
        let serves = matches!(&reported, Reported::Opened(region, seq) if world.is_granted(&self.server, region, *seq));
        if !is_repeated {
            reported.note_before(&world, &self.server);
        }
        let called = self.send(&world, method, param, timeout);
        if !serves {
            reported.note_after(&world, &self.server, &called);
        }
        world.tell(|| format!("{} calls {method}: {:?}", self.server, called.as_ref().err()));
        called
    }
}

impl ToMaster {
    pub(crate) fn new(world: &Arc<World>, server: &ServerName) -> ToMaster {
        ToMaster { world: Arc::downgrade(world), server: server.clone(), closes: Mutex::default() }
    }

    fn send(
        &self,
        world: &Arc<World>,
        method: &'static str,
        param: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, ClientError> {
        world.delay(WAY_MAX);
        let (is_lost, is_answer_lost, is_repeated) = {
            let mut state = world.lock();
            let one_in = world.rates.message_fault_one_in * 2;
            (state.fault(one_in), state.fault(one_in), state.fault(one_in))
        };
        let no_answer = || std::io::Error::new(std::io::ErrorKind::TimedOut, "the master gives no answer");
        if is_lost {
            world.lock().count("reports that are lost");
            world.delay(timeout);
            return Err(no_answer().into());
        }
        if is_repeated {
            world.lock().count("reports that come twice");
            let _ = self.begin(world, method, param.clone(), timeout);
        }
        let answer = self.begin(world, method, param, Duration::ZERO)?;
        let begun_ns = world.now_ns();
        let reply = loop {
            SimThreads::step();
            if let Some(reply) = answer.lock().take() {
                break reply;
            }
            if world.now_ns() - begun_ns > timeout.as_nanos() as u64 {
                return Err(no_answer().into());
            }
            world.clock.sleep(LOOK_PAUSE);
        };
        if is_answer_lost {
            world.lock().count("reports without an answer");
            world.delay(timeout);
            return Err(no_answer().into());
        }
        world.delay(WAY_MAX);
        reply.map_err(|error| remote(&error))
    }

    /// A thread of the master's process answers, after a while.
    #[allow(clippy::type_complexity)]
    fn begin(
        &self,
        world: &Arc<World>,
        method: &'static str,
        param: Bytes,
        after: Duration,
    ) -> Result<Arc<Mutex<Option<Result<Bytes, RpcError>>>>, ClientError> {
        let master = world.lock().master.clone().ok_or(ClientError::Closed)?;
        let answer = Arc::new(Mutex::new(None));
        let body = {
            let (answer, world, master) = (answer.clone(), world.clone(), master.clone());
            move || {
                world.delay(after);
                *answer.lock() = Some(answered(&world, &master, method, param));
            }
        };
        world.threads.spawn_in(master.process, "status", body).map_err(|_| ClientError::Closed)?;
        Ok(answer)
    }
}

fn answered(world: &World, master: &Reached, method: &'static str, param: Bytes) -> Result<Bytes, RpcError> {
    let gone = || RpcError::io("there is no master");
    let servers = master.view.upgrade().and_then(|view| view.servers()).ok_or_else(gone)?;
    let serving = master.serving.lock().clone();
    let assignments: Weak<dyn Assignments> = match &serving {
        Some(serving) => Arc::downgrade(&serving.master) as Weak<dyn Assignments>,
        None => Weak::<Master>::new(),
    };
    let service = servers.status_service(assignments);
    let connection = Connection { client_version: Some((2, 6)), ..Connection::new(1, "127.0.0.1:3") };
    let call = calls::a_call(Arc::new(connection), method, param, Vec::new());
    calls::driven(world, &service, call, &|| None)
}

/// What a report says of regions.
enum Reported {
    Nothing,
    Opened(RegionInfo, u64),
    /// With the number of the order.
    Closed(RegionInfo, i64),
}

impl Reported {
    fn of(method: &str, param: &Bytes) -> Reported {
        if method != "ReportRegionStateTransition" {
            return Reported::Nothing;
        }
        let request = pb::ReportRegionStateTransitionRequest::decode(param.clone()).expect("a server's own");
        let transition = &request.transition[0];
        let region = RegionInfo::from_pb(&transition.region_info[0]).expect("a server's own");
        match TransitionCode::try_from(transition.transition_code) {
            Ok(TransitionCode::Opened) => {
                Reported::Opened(region, transition.open_seq_num.expect("it is open"))
            }
            Ok(TransitionCode::Closed) => Reported::Closed(region, transition.proc_id[0]),
            _ => Reported::Nothing,
        }
    }

    fn note_before(&self, world: &World, name: &ServerName) {
        let mut state = world.lock();
        match self {
            Reported::Nothing => {}
            Reported::Closed(region, _) => {
                let server = state.servers.get_mut(name).expect("it is there");
                if server.regions.remove(region.encoded_name()).is_some() {
                    state.count("closes");
                }
            }
            Reported::Opened(region, seq) => {
                // The report of a server that has lost its WALs is refused. Else it counts from the answer on.
                if !world.is_fenced(name) {
                    note_open(world, &mut state, name, region, *seq);
                }
            }
        }
    }

    fn note_after(&self, world: &Arc<World>, name: &ServerName, called: &Result<Bytes, ClientError>) {
        let (Reported::Opened(region, seq), Ok(answer)) = (self, called) else { return };
        let answer = pb::ReportRegionStateTransitionResponse::decode(answer.clone()).expect("a master's own");
        if world.is_fenced(name) {
            return; // it was frozen on the way, and answers nobody any more
        }
        match answer.error_message {
            None => {
                let mut state = world.lock();
                // It may be closed by now.
                if state.history.open_seqs.get(region.encoded_name()) != Some(seq) {
                    note_open(world, &mut state, name, region, *seq);
                }
                drop(state);
                world.grant(name, region, *seq);
            }
            // Another report of the same opening was taken, and it stays open: a master that was deposed answers late to an order of
            // its own.
            Some(_) if world.is_granted(name, region, *seq) => {}
            Some(_) => world.forget(name, region),
        }
    }
}

fn note_open(world: &World, state: &mut State, name: &ServerName, region: &RegionInfo, seq: u64) {
    let server = state.servers.get(name).expect("it is there");
    if server.regions.get(region.encoded_name()).is_some_and(|open| open.seq == seq) {
        return; // reported before
    }
    world.check_alone_real(state, name, region);
    let before = state.history.open_seqs.insert(region.encoded_name().to_string(), seq);
    assert!(before.is_none_or(|before| before < seq), "{region} opens with {seq} after {before:?}");
    state.count("openings");
    let server = state.servers.get_mut(name).expect("it is there");
    server.regions.insert(region.encoded_name().to_string(), Open::reported(region, seq));
}
