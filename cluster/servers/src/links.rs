//! Connections to one region server.
//!
//! One to `AdminService` and one to `ClientService`, made when they are needed. After an error that is no exception of the
//! server the connection is given up, and the next call makes a new one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_client::{Answer, ClientError, ConnectOptions, Connection};
use halcyon_env::Mutex;
use halcyon_rpc::{CellBlock, Codec};
use halcyon_schema::ServerName;
use prost::Message;

use crate::network::{Network, Way};
use crate::{Permit, ServersSettings, Target};

/// How cells travel to and from `ClientService`.
pub(crate) const CODEC: Codec = Codec::KeyValue;

const NO_PERMIT: &str = "this master may not act: its lease has expired";

/// *Thread safety*: calls from any thread. [`Links::call_blocking`] not from a thread of the runtime.
pub(crate) struct Links {
    way: Way,
    server: ServerName,
    address: String,
    connect_timeout: Duration,
    admin: Link,
    client: Link,
    closed: AtomicBool,
    permit: Permit,
}

struct Link {
    options: ConnectOptions,
    current: Mutex<Option<Arc<Connection>>>,
    connecting: tokio::sync::Mutex<()>,
}

impl Links {
    pub(crate) fn new(way: Way, server: &ServerName, settings: &ServersSettings) -> Links {
        let link = |service: &str, codec| {
            let options = ConnectOptions {
                user: "hbase".to_string(),
                codec,
                version: numbers(&settings.version).or(Some((2, 6, 4))),
                master_epoch: settings.epoch,
                ..ConnectOptions::new(service)
            };
            Link { options, current: Mutex::default(), connecting: tokio::sync::Mutex::default() }
        };
        Links {
            way,
            server: server.clone(),
            address: server.address(),
            connect_timeout: settings.call_timeout,
            admin: link("AdminService", None),
            client: link("ClientService", Some(CODEC)),
            closed: AtomicBool::new(false),
            permit: settings.permit.clone(),
        }
    }

    pub(crate) async fn call<M: Message + Default>(
        &self,
        target: Target,
        method: &str,
        request: &impl Message,
        cells: Option<CellBlock>,
        timeout: Duration,
    ) -> Result<(M, Vec<Cell>), ClientError> {
        if let Way::Threads(network, _) = &self.way {
            return self.call_over(&**network, target, method, request, cells, timeout);
        }
        let link = match target {
            Target::Admin => &self.admin,
            Target::Client => &self.client,
        };
        let connection = self.connection(link).await?;
        if !self.permit.is_given() {
            return Err(std::io::Error::other(NO_PERMIT).into());
        }
        let answer = connection.call_with_cells(method, request, cells, Some(timeout)).await;
        let decoded = answer.and_then(|Answer { message, cells }| Ok((decode(message)?, cells)));
        if matches!(&decoded, Err(error) if error.remote().is_none()) {
            link.give_up(&connection);
        }
        decoded
    }

    fn call_over<M: Message + Default>(
        &self,
        network: &dyn Network,
        target: Target,
        method: &str,
        request: &impl Message,
        cells: Option<CellBlock>,
        timeout: Duration,
    ) -> Result<(M, Vec<Cell>), ClientError> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(ClientError::Closed);
        }
        if !self.permit.is_given() {
            return Err(std::io::Error::other(NO_PERMIT).into());
        }
        let param = request.encode_to_vec().into();
        let (message, cells) = network.call(&self.server, target, method, param, cells, timeout)?;
        Ok((decode(message)?, cells))
    }

    /// As `call`, for a thread that may wait.
    pub(crate) fn call_blocking<M: Message + Default + 'static>(
        self: &Arc<Self>,
        target: Target,
        method: &'static str,
        request: impl Message + 'static,
        cells: Option<CellBlock>,
        timeout: Duration,
    ) -> Result<(M, Vec<Cell>), ClientError> {
        let runtime = match &self.way {
            Way::Runtime(runtime) => runtime,
            Way::Threads(network, _) => {
                return self.call_over(&**network, target, method, &request, cells, timeout);
            }
        };
        let (sender, receiver) = mpsc::sync_channel(1);
        let links = Arc::clone(self);
        runtime.spawn(async move {
            let answer = links.call(target, method, &request, cells, timeout).await;
            let _ = sender.send(answer);
        });
        receiver.recv().unwrap_or(Err(ClientError::Closed)) // the runtime has ended
    }

    /// Calls under way fail, and no new connection is made.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        for link in [&self.admin, &self.client] {
            *link.current.lock() = None;
        }
    }

    async fn connection(&self, link: &Link) -> Result<Arc<Connection>, ClientError> {
        if let Some(connection) = link.usable() {
            return Ok(connection);
        }
        let _one_at_a_time = link.connecting.lock().await;
        if let Some(connection) = link.usable() {
            return Ok(connection);
        }
        if self.closed.load(Ordering::SeqCst) {
            return Err(ClientError::Closed);
        }
        let connecting = Connection::connect(&self.address, &link.options);
        let connected = tokio::time::timeout(self.connect_timeout, connecting).await;
        let late = |_| std::io::Error::new(std::io::ErrorKind::TimedOut, "no connection in time");
        let connection = Arc::new(connected.map_err(late)??);
        *link.current.lock() = Some(Arc::clone(&connection));
        if self.closed.load(Ordering::SeqCst) {
            *link.current.lock() = None;
            return Err(ClientError::Closed);
        }
        Ok(connection)
    }
}

fn decode<M: Message + Default>(message: Bytes) -> Result<M, ClientError> {
    M::decode(message).map_err(|error| ClientError::Malformed(error.to_string()))
}

impl Link {
    fn usable(&self) -> Option<Arc<Connection>> {
        self.current.lock().as_ref().filter(|connection| !connection.has_ended()).cloned()
    }

    fn give_up(&self, connection: &Arc<Connection>) {
        let mut current = self.current.lock();
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection)) {
            *current = None;
        }
    }
}

/// `2.6.4`, `2.6.4-hadoop3`
fn numbers(version: &str) -> Option<(u32, u32, u32)> {
    let numbers = version.split('-').next()?;
    let mut parts = numbers.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??, parts.next()??))
}
