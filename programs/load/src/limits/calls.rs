//! Calls through our RPC stack that do nothing. The server is in this process, on a thread of its own: processor time of a
//! call is that of both sides.

use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_client::{ClientError, ConnectOptions, Connection};
use halcyon_env::spawn_thread;
use halcyon_proto::pb;
use halcyon_rpc::{Call, CellBlock, Codec, Outcome, Reply, RpcServer, RpcSettings, Service, Services};
use halcyon_schema::{RegionInfo, TableName};
use prost::Message;
use serde_json::json;
use tokio::sync::oneshot;

use crate::limits::{Measure, Measured, STEP};
use crate::pe::format_row;
use crate::run::{Client, Step};

/// Time that calls under way have when a measurement is over.
const STOP_TIME: Duration = Duration::from_millis(100);

/// How many connections, and how many calls at once upon all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    connections: usize,
    calls: usize,
}

impl FromStr for Concurrency {
    type Err = String;

    fn from_str(text: &str) -> Result<Concurrency, String> {
        let parsed = text.split_once('x').and_then(|(connections, calls)| {
            Some(Concurrency { connections: connections.parse().ok()?, calls: calls.parse().ok()? })
        });
        parsed.filter(|it| it.connections > 0 && it.connections <= it.calls && it.calls <= 10_000).ok_or_else(
            || "it is CONNECTIONSxCALLS, with a call for each connection or more, such as 4x64".to_string(),
        )
    }
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// A call with an empty message, answered with as good as none.
    Nothing,
    /// A get of a row as `bench pe` asks for it, answered with one cell that is at hand.
    Get,
}

impl Question {
    fn service(self) -> &'static str {
        match self {
            Question::Nothing => "MasterService",
            Question::Get => "ClientService",
        }
    }
}

impl Measure<'_> {
    /// Calls of a service that answers at once.
    pub(super) async fn calls(&self, question: Question, of: Concurrency) -> Result<Measured, String> {
        let name = match question {
            Question::Nothing => "a call that does nothing",
            Question::Get => "a get that is answered with a cell at hand",
        };
        let failed = |error: &dyn std::fmt::Display| format!("{name}: {error}");
        let (ready, address) = oneshot::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let clock = Arc::clone(&self.env.clock);
        let service = Arc::new(AtHand { answer: Answer::of(question, self.args.value_size) });
        let server = spawn_thread("limits-server", move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let Ok(runtime) = runtime else { return };
            runtime.block_on(async {
                let any = SocketAddr::from(([127, 0, 0, 1], 0));
                let Ok(bound) = RpcServer::bind(any, RpcSettings::default(), clock).await else { return };
                let server = bound.serve(Services::from([(question.service(), service as _)]), "limits");
                let _ = ready.send(server.local_addr());
                let _ = stopped.await;
                server.stop(STOP_TIME).await;
            });
        });
        let server = server.map_err(|error| failed(&error))?;
        let address = address.await.map_err(|_| failed(&"the server did not start"))?;
        let options = ConnectOptions {
            codec: (question == Question::Get).then_some(Codec::KeyValue),
            ..ConnectOptions::new(question.service())
        };
        let mut connections = Vec::new();
        for _ in 0..of.connections {
            let connection = Connection::connect(address, &options).await;
            connections.push(Arc::new(connection.map_err(|error| failed(&error))?));
        }
        let connection = |number: usize| Arc::clone(&connections[number % connections.len()]);
        let region = RegionInfo::new(TableName::META, Bytes::new(), Bytes::new(), 1).region_name().clone();
        let caller = |number: usize| Caller {
            connection: connection(number),
            question,
            region: region.clone(),
            row: number as u64,
        };
        let callers = (0..of.calls).map(caller).collect();
        let name = format!("{name}, connections {}, calls at once {}", of.connections, of.calls);
        let bytes = if question == Question::Get { self.args.value_size } else { 0 };
        let shape = json!({ "connections": of.connections, "calls_at_once": of.calls });
        let measured = self.run(&name, callers, bytes, shape).await;
        drop(stop);
        server.join().map_err(|_| failed(&"the server broke"))?;
        Ok(measured)
    }
}

/// Answers everything at once with the same.
struct AtHand {
    answer: Answer,
}

struct Answer {
    message: Bytes,
    cell: Option<Cell>,
}

impl Answer {
    fn of(question: Question, value_len: usize) -> Answer {
        match question {
            Question::Nothing => {
                let message = pb::IsMasterRunningResponse { is_master_running: true };
                Answer { message: message.encode_to_vec().into(), cell: None }
            }
            Question::Get => {
                let result = pb::Result { associated_cell_count: Some(1), ..Default::default() };
                let message = pb::GetResponse { result: Some(result) };
                let value = vec![b'v'; value_len];
                let cell = Cell::put(&format_row(0), b"info0", b"0", 1, &value);
                Answer { message: message.encode_to_vec().into(), cell: Some(cell) }
            }
        }
    }
}

impl Service for AtHand {
    fn call(&self, call: Call) -> Outcome {
        let cells = match (&self.answer.cell, call.connection.codec) {
            (Some(cell), Some(codec)) => {
                let mut block = CellBlock::new(codec);
                block.push(cell);
                Some(block)
            }
            _ => None,
        };
        Outcome::Ready(Ok(Reply { cells, ..Reply::encoded(self.answer.message.clone()) }))
    }
}

struct Caller {
    connection: Arc<Connection>,
    question: Question,
    region: Bytes,
    row: u64,
}

impl Client for Caller {
    async fn step(&mut self) -> Result<Step, ClientError> {
        match self.question {
            Question::Nothing => {
                let request = pb::IsMasterRunningRequest {};
                let _: pb::IsMasterRunningResponse =
                    self.connection.call("IsMasterRunning", &request).await?;
            }
            Question::Get => {
                self.row += 1;
                let column = pb::Column {
                    family: Bytes::from_static(b"info0"),
                    qualifier: vec![Bytes::from_static(b"0")],
                };
                let request = pb::GetRequest {
                    region: pb::RegionSpecifier { r#type: 1, value: self.region.clone() },
                    get: pb::Get { row: format_row(self.row), column: vec![column], ..Default::default() },
                };
                let answer = self.connection.call_with_cells("Get", &request, None, None).await?;
                if answer.cells.len() != 1 {
                    return Err(ClientError::Malformed(format!("{} cells, not one", answer.cells.len())));
                }
            }
        }
        Ok(STEP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_and_calls_are_read() {
        assert_eq!("4x64".parse(), Ok(Concurrency { connections: 4, calls: 64 }));
        for wrong in ["", "4", "x", "0x1", "4x3", "1x10001", "4x64x1", "-1x4"] {
            assert!(wrong.parse::<Concurrency>().is_err(), "{wrong}");
        }
    }
}
