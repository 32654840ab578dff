//! `MultiRowMutationService`: mutations of several rows of one region, all or nothing, perhaps under conditions.

use halcyon_proto::pb;
use halcyon_region::{Condition, Mutation, Nonce, ReadMode};

use super::super::mutate::turn;
use super::{Answer, CallError, EndpointCall, decode};
use crate::calls::nonces::{NonceGuard, Once, Turn};
use crate::convert::{self, CellSource, InlineCells};
use crate::coprocessors::{self, Asked, Operation};

/// `MultiRowMutationEndpoint.mutateRows`. The message holds the cells. A call that is repeated with its nonce is applied
/// once; HBase applies it again.
pub(super) fn run(call: &EndpointCall) -> Result<Answer, CallError> {
    if call.method != "MutateRows" {
        return Err(call.unknown_method().into());
    }
    let server = &call.server;
    let rows: pb::MutateRowsRequest = decode("MutateRows", call.request.clone())?;
    let inline = InlineCells::of_all(&rows.mutation_request);
    inline.check(server.settings.request_cells_bytes_max, &call.terms.connection)?;
    let mut no_cells = CellSource::new(Vec::new());
    let mutations = rows.mutation_request.iter().map(|mutation| convert::mutation(mutation, &mut no_cells));
    let mutations = mutations.collect::<Result<Vec<_>, _>>()?;
    let conditions = rows.condition.iter().map(convert::condition).collect::<Result<Vec<_>, _>>()?;
    let nonce = Nonce { group: rows.nonce_group(), nonce: rows.nonce() };
    if let Turn::Done(_) = turn(server, nonce, ReadMode::AnyDisk, &call.terms)? {
        return Ok(answer(true));
    }
    if call.online.is_hosted() {
        let mut once = Once::new(&server.nonces, nonce);
        let processed = with_hooks(call, &rows, mutations, conditions, &mut once)?;
        if processed {
            once.end();
        }
        return Ok(answer(processed));
    }
    let guard = (nonce.nonce != 0).then(|| NonceGuard::new(&server.nonces, nonce));
    let outcome = call.online.region.mutate_rows(conditions, mutations, nonce, ReadMode::AnyDisk)?;
    server.after_write(&call.online);
    server.drive_logs();
    Ok(Answer {
        ticket: Some(outcome.ticket),
        guard: guard.filter(|_| outcome.processed).map(NonceGuard::written),
        ..answer(outcome.processed)
    })
}

/// In a region with coprocessors: the hooks of a batch, under the locks of its rows.
fn with_hooks(
    call: &EndpointCall,
    rows: &pb::MutateRowsRequest,
    mutations: Vec<Mutation>,
    conditions: Vec<Condition>,
    once: &mut Once,
) -> Result<bool, CallError> {
    let mut operation = Operation::begin(&call.server, &call.online, Some(&call.terms))?;
    let mut checked_ms = None;
    if !conditions.is_empty() {
        let mut locked: Vec<_> = conditions.iter().map(|condition| condition.row.clone()).collect();
        locked.extend(mutations.iter().map(|mutation| mutation.row.clone()));
        operation.lock_rows(&call.online, locked)?;
        let region = &call.online.region;
        let tested = region.mutate_rows(conditions, Vec::new(), Nonce::default(), ReadMode::AnyDisk)?;
        tested.ticket.wait()?;
        if !tested.processed {
            return Ok(false);
        }
        checked_ms = tested.checked_ms;
    }
    let asked = rows.mutation_request.iter().zip(mutations);
    let mut asked: Vec<Asked> = asked.map(|(proto, mutation)| Asked::new(proto, mutation)).collect();
    coprocessors::put_not_before(&mut asked, checked_ms, call.server.env.clock.now_ms());
    for written in coprocessors::mutate(&mut operation, &call.online, asked, true, once, None)? {
        written?;
    }
    Ok(true)
}

fn answer(processed: bool) -> Answer {
    Answer::new("hbase.pb.MutateRowsResponse", &pb::MutateRowsResponse { processed: Some(processed) })
}
