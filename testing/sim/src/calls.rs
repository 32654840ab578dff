//! Calls of the RPC services of real region servers, as they come from the network.
//!
//! A request is encoded, and the server's `ClientService` or `AdminService` answers it on a thread of the server's process. While
//! there are faults a request is lost, its answer is lost, or it comes twice, or late: then its sender has perhaps repeated it.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_env::sim::SimThreads;
use halcyon_regionserver::{AdminService, ClientService};
use halcyon_rpc::{Call, CallClass, CellBlock, Connection, Outcome, RpcError, Service, decode_cells};
use halcyon_schema::ServerName;
use halcyon_servers::Target;
use prost::Message;

use crate::real::Running;
use crate::world::World;

/// The way of a message.
const WAY_MAX: Duration = Duration::from_millis(3);
/// Between two looks whether an answer is ready.
const LOOK_PAUSE: Duration = Duration::from_millis(1);

/// Who calls, and how long that one waits.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) connection: Arc<Connection>,
    pub(crate) patience: Duration,
    /// One call in so many has a fault.
    pub(crate) fault_one_in: usize,
    /// Each copy of a call holds it until it is carried out, or never will be.
    pub(crate) held: Option<Arc<()>>,
}

impl Caller {
    /// A client. No two have one number.
    pub(crate) fn client(number: u64, patience: Duration, fault_one_in: usize) -> Caller {
        let connection = Connection {
            user: Some("client".into()),
            client_version: Some((2, 6)),
            ..Connection::new(number, "127.0.0.1:1")
        };
        Caller { connection: Arc::new(connection), patience, fault_one_in, held: None }
    }
}

/// A call that did not succeed.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The server has answered with an exception.
    Refused(RpcError),
    /// It may have been carried out, or may be later.
    NoAnswer,
}

enum Fate {
    Done,
    Twice,
    RequestLost,
    AnswerLost,
    Late,
}

impl World {
    /// Calls a server and waits for its answer.
    pub(crate) fn call(
        self: &Arc<World>,
        caller: &Caller,
        server: &ServerName,
        target: Target,
        method: &str,
        request: &impl Message,
    ) -> Result<Bytes, Failure> {
        self.call_with_cells(caller, server, target, method, request.encode_to_vec().into(), None)
    }

    pub(crate) fn call_with_cells(
        self: &Arc<World>,
        caller: &Caller,
        server: &ServerName,
        target: Target,
        method: &str,
        param: Bytes,
        cells: Option<CellBlock>,
    ) -> Result<Bytes, Failure> {
        let cells = cells.map_or_else(Vec::new, |block| {
            decode_cells(block.codec(), block.into_bytes()).expect("cells that were just encoded")
        });
        self.delay(WAY_MAX);
        let fate = {
            let mut state = self.lock();
            match state.fault(caller.fault_one_in) {
                false => Fate::Done,
                true => match state.dice.below(4) {
                    0 => Fate::Twice,
                    1 => Fate::RequestLost,
                    2 => Fate::AnswerLost,
                    _ => Fate::Late,
                },
            }
        };
        let send = |after: Duration| {
            let call = a_call(caller.connection.clone(), method, param.clone(), cells.clone());
            let held = caller.held.clone();
            self.begin_call(server, move |world, running| {
                let _held = held;
                if !after.is_zero() {
                    world.delay(after);
                }
                Ok(answer(world, running, target, call))
            })
        };
        let no_answer = |_| Failure::NoAnswer;
        match fate {
            Fate::Done => {}
            Fate::Twice => {
                self.lock().count("calls that come twice");
                let _ = send(caller.patience);
            }
            Fate::RequestLost | Fate::AnswerLost | Fate::Late => {
                let _ = match fate {
                    Fate::RequestLost => None,
                    Fate::AnswerLost => Some(send(Duration::ZERO)),
                    _ => Some(send(caller.patience * 3)),
                };
                self.lock().count("calls without an answer");
                self.delay(caller.patience); // or the connection breaks before
                return Err(Failure::NoAnswer);
            }
        }
        let sent = send(Duration::ZERO).map_err(no_answer)?;
        let answered = self.wait_for(server, caller.patience, || sent.lock().take()).map_err(no_answer)?;
        let reply = answered.map_err(no_answer)?; // its server has given up meanwhile
        self.delay(WAY_MAX);
        reply.map_err(Failure::Refused)
    }
}

pub(crate) fn a_call(connection: Arc<Connection>, method: &str, param: Bytes, cells: Vec<Cell>) -> Call {
    let class = match method {
        _ if connection.master_epoch.is_some() => CallClass::Meta,
        "Mutate" | "Multi" => CallClass::Write,
        "Scan" => CallClass::Scan,
        "Get" => CallClass::Read,
        _ => CallClass::Meta,
    };
    Call {
        id: 1,
        method: method.into(),
        param,
        cells,
        priority: 0,
        class,
        timeout: None,
        is_traced: false,
        received_ns: 0,
        attributes: Vec::new(),
        connection,
    }
}

fn answer(world: &World, running: &Running, target: Target, call: Call) -> Result<Bytes, RpcError> {
    let server = running.server.clone();
    let failure = || running.server.failure();
    match target {
        Target::Admin => driven(world, &AdminService::obeying(server, &running.master), call, &failure),
        Target::Client => driven(world, &ClientService::new(server), call, &failure),
    }
}

/// What a network thread does with a call, until the answer is there or the process has failed.
pub(crate) fn driven(
    world: &World,
    service: &dyn Service,
    call: Call,
    failure: &dyn Fn() -> Option<String>,
) -> Result<Bytes, RpcError> {
    let outcome = service.call(call);
    service.batch_done();
    let reply = match outcome {
        Outcome::Ready(reply) => reply,
        Outcome::Later(future) => {
            let (mut future, mut context) = (pin!(future), Context::from_waker(Waker::noop()));
            loop {
                SimThreads::step();
                if let Poll::Ready(reply) = future.as_mut().poll(&mut context) {
                    break reply;
                }
                if let Some(failure) = failure() {
                    break Err(RpcError::region_server_aborted(failure));
                }
                world.clock.sleep(LOOK_PAUSE);
            }
        }
    };
    let reply = reply?;
    assert!(reply.cells.is_none_or(|cells| cells.is_empty()), "cells are asked for in the message");
    Ok(reply.message)
}
