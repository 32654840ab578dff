//! The cells of calls: unpacked at once, or beside the event loop if that takes long.

use std::sync::Arc;

use bytes::Bytes;

use super::Calls;
use crate::peers::Peer;
use crate::queues::Charge;
use crate::shared::Shared;
use crate::unpack::{Here, Packed, Stopped, Unpacked, Within};
use crate::{Call, CallClass, Outcome, ReplyFuture, RpcError, Terms, decode_cells};

impl Calls {
    /// Unpacks the cell block of a call if it has one and may have one.
    /// `charge` is the room for its message, which grows for the cells.
    pub(super) fn unpack(
        &self,
        method: &str,
        class: CallClass,
        block: Bytes,
        charge: Option<Charge>,
    ) -> Result<Here, RpcError> {
        if block.is_empty() {
            return Ok(Here::Done(Ok(Unpacked { cells: Vec::new(), charge })));
        }
        if !self.agreed.service.takes_cells(method) {
            return Err(RpcError::do_not_retry(format!("{method} takes no cell block")));
        }
        let Some(codec) = self.agreed.connection.codec else {
            return Err(RpcError::do_not_retry("a cell block, but the connection named no codec"));
        };
        if Packed::is_small(self.agreed.compressor, &block) {
            let cells = decode_cells(codec, block).map_err(Stopped::from);
            return Ok(Here::Done(cells.map(|cells| Unpacked { cells, charge })));
        }
        let within = Within { shared: &self.task.shared, peer: self.task.place.peer() };
        Ok(Packed::new(codec, self.agreed.compressor, block, class, charge).unpack_here(within))
    }

    /// A call whose cells are unpacked beside the event loop, and then are the service's.
    pub(super) fn call_later(&self, call: Call, mut packed: Packed, frame_bytes: usize) -> ReplyFuture {
        packed.waits(frame_bytes);
        let (shared, peer) = (Arc::clone(&self.task.shared), Arc::clone(self.task.place.peer()));
        let service = Arc::clone(&self.agreed.service);
        Box::pin(async move {
            let terms = call.terms();
            let Unpacked { cells, charge } = unpacked_aside(&shared, peer, &terms, packed).await?;
            let outcome = service.call(Call { cells, ..call });
            service.batch_done(); // nobody else does for a call that comes late
            let answer = match outcome {
                Outcome::Ready(answer) => answer,
                Outcome::Later(later) => later.await,
            };
            drop(charge);
            answer
        })
    }
}

async fn unpacked_aside(
    shared: &Arc<Shared>,
    peer: Arc<Peer>,
    terms: &Terms,
    packed: Packed,
) -> Result<Unpacked, RpcError> {
    let turn = shared.unpacking.await_turn(peer.number).await;
    let asker = (Arc::clone(&peer), terms.connection.id);
    if let Some(why) = terms.dropped(shared.clock.monotonic_ns()) {
        return Err(RpcError::dropped(why));
    }
    let within = Arc::clone(shared);
    let unpacking = move || {
        let unpacked = packed.unpack(Within { shared: &within, peer: &peer });
        drop(turn);
        unpacked
    };
    let unpacked = tokio::task::spawn_blocking(unpacking).await;
    let unpacked =
        unpacked.map_err(|error| RpcError::do_not_retry(format!("cells not unpacked: {error}")))?;
    unpacked.map_err(|stopped| {
        stopped.to_rpc().unwrap_or_else(|| {
            let (peer, connection) = &asker;
            shared.queues.note_refused(terms.class, peer, *connection, shared.clock.monotonic_ns());
            RpcError::call_queue_too_big(super::requests::QUEUE_FULL)
        })
    })
}
