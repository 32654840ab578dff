//! Sends the orders of one server.
//!
//! Orders that come within a pause go in one `ExecuteProcedures`. A request that fails is sent again until the server is
//! declared dead: the server knows an order by its number, and does it once. An order that the server refuses for what it says
//! fails; the others of its request are then sent one by one.

use std::sync::{Arc, Weak};
use std::time::Duration;

use halcyon_client::ClientError;
use halcyon_proto::pb;
use halcyon_schema::ServerName;
use tokio::sync::mpsc;

use crate::Target;
use crate::errors;
use crate::links::Links;
use crate::orders::{Order, execute_procedures};
use crate::remote_server::{Common, RemoteServer};

/// Orders in one request.
const BATCH_MAX: usize = 512;
/// Between two attempts at most, as a multiple of the first pause.
const PAUSE_FACTOR_MAX: u32 = 20;

pub(crate) struct Sender {
    server: Weak<RemoteServer>,
    name: ServerName,
    common: Common,
    links: Arc<Links>,
    queue: mpsc::Receiver<Order>,
    /// Taken from the queue, not sent yet.
    batch: Vec<Order>,
}

impl Sender {
    pub(crate) fn new(
        server: Weak<RemoteServer>,
        name: ServerName,
        common: Common,
        links: Arc<Links>,
        queue: mpsc::Receiver<Order>,
    ) -> Sender {
        Sender { server, name, common, links, queue, batch: Vec::new() }
    }

    /// Until the server is dropped.
    pub(crate) async fn run(mut self) {
        let mut pause = self.common.settings.retry_pause;
        while self.next_batch().await {
            if self.send_batch().await {
                pause = self.common.settings.retry_pause;
            } else {
                self.common.way.sleep(pause).await;
                pause = (pause * 2).min(self.common.settings.retry_pause * PAUSE_FACTOR_MAX);
            }
        }
    }

    /// Gathers what there is to send, perhaps nothing. False at the end.
    async fn next_batch(&mut self) -> bool {
        if self.batch.is_empty() {
            let Some(order) = self.queue.recv().await else { return false };
            self.batch.push(order);
            self.common.way.sleep(self.common.settings.order_pause).await;
        }
        while self.batch.len() < BATCH_MAX
            && let Ok(order) = self.queue.try_recv()
        {
            self.batch.push(order);
        }
        assert!(
            self.batch.len() <= BATCH_MAX,
            "a server refuses a request with more orders than it has room for"
        );
        let Some(server) = self.server.upgrade() else { return false };
        self.batch.retain(|order| server.waiters.is_waiting(order.procedure));
        true
    }

    /// False if it has to be sent again.
    async fn send_batch(&mut self) -> bool {
        if self.batch.is_empty() {
            return true;
        }
        let error = match self.send(&self.batch).await {
            Ok(()) => {
                self.batch.clear();
                return true;
            }
            Err(error) => error,
        };
        if errors::is_refusal(&error) {
            return self.send_each(error).await;
        }
        let (server, count) = (&self.name, self.batch.len());
        tracing::warn!(%server, count, error = errors::text_of(&error), "orders were not sent yet");
        false
    }

    /// One of several orders is refused, and the answer does not say which one.
    async fn send_each(&mut self, refusal: ClientError) -> bool {
        if let [order] = &self.batch[..] {
            self.refuse(order, &refusal);
            self.batch.clear();
            return true;
        }
        while let Some(order) = self.batch.first() {
            match self.send(std::slice::from_ref(order)).await {
                Ok(()) => {}
                Err(error) if errors::is_refusal(&error) => self.refuse(order, &error),
                Err(_) => return false,
            }
            self.batch.remove(0);
        }
        true
    }

    fn refuse(&self, order: &Order, error: &ClientError) {
        let error = errors::of_call(&self.name, "an order", error);
        tracing::warn!(procedure = order.procedure, %error, "a region server refuses an order");
        if let Some(server) = self.server.upgrade() {
            server.waiters.refused(order.procedure, &error);
        }
    }

    async fn send(&self, orders: &[Order]) -> Result<(), ClientError> {
        let settings = &self.common.settings;
        let request = execute_procedures(orders, &self.name, settings.active_ms, self.common.clock.now_ms());
        let timeout: Duration = settings.call_timeout;
        let call = self.links.call::<pb::ExecuteProceduresResponse>(
            Target::Admin,
            "ExecuteProcedures",
            &request,
            None,
            timeout,
        );
        call.await?;
        if let Some(server) = self.server.upgrade() {
            orders.iter().for_each(|order| server.waiters.taken(order.procedure));
        }
        Ok(())
    }
}
