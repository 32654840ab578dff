//! `MultiRowMutationService`: mutations of several rows of one region, all or nothing, perhaps under conditions.

use halcyon_proto::pb;
use halcyon_region::{Nonce, ReadMode};

use super::super::mutate::turn;
use super::{Answer, CallError, EndpointCall, decode};
use crate::calls::nonces::{NonceGuard, Turn};
use crate::convert::{self, CellSource};

/// `MultiRowMutationEndpoint.mutateRows`. The message holds the cells. A call that is repeated with its nonce is applied
/// once; HBase applies it again.
pub(super) fn run(call: &EndpointCall) -> Result<Answer, CallError> {
    if call.method != "MutateRows" {
        return Err(call.unknown_method().into());
    }
    let server = &call.server;
    let rows: pb::MutateRowsRequest = decode("MutateRows", call.request.clone())?;
    let mut no_cells = CellSource::new(Vec::new());
    let mutations = rows.mutation_request.iter().map(|mutation| convert::mutation(mutation, &mut no_cells));
    let mutations = mutations.collect::<Result<Vec<_>, _>>()?;
    let conditions = rows.condition.iter().map(convert::condition).collect::<Result<Vec<_>, _>>()?;
    let nonce = Nonce { group: rows.nonce_group(), nonce: rows.nonce() };
    if turn(server, nonce, ReadMode::AnyDisk)? == Turn::Done {
        return Ok(answer(true));
    }
    let guard = (nonce.nonce != 0).then(|| NonceGuard::new(&server.nonces, nonce));
    let outcome = call.online.region.mutate_rows(conditions, mutations, nonce, ReadMode::AnyDisk)?;
    server.after_write(&call.online);
    server.drive_logs();
    Ok(Answer {
        ticket: Some(outcome.ticket),
        guard: guard.filter(|_| outcome.processed),
        ..answer(outcome.processed)
    })
}

fn answer(processed: bool) -> Answer {
    Answer::new("hbase.pb.MutateRowsResponse", &pb::MutateRowsResponse { processed: Some(processed) })
}
