//! Coprocessor services. No coprocessor can be loaded; of those that every HBase has, `MultiRowMutationService`
//! is here: mutations of several rows of one region, all or nothing, as clients do them on `hbase:meta`.

use std::sync::Arc;

use bytes::Bytes;
use halcyon_proto::pb;
use halcyon_region::{Nonce, ReadMode, WriteTicket};
use halcyon_rpc::{Call, Outcome, Reply, RpcError};
use prost::Message;

use super::mutate::turn;
use super::{CallError, Waits, decode, ready};
use crate::RegionServer;
use crate::calls::nonces::{NonceGuard, Turn};
use crate::convert::{self, CellSource};
use crate::errors;

const MULTI_ROW_MUTATION: &str = "MultiRowMutationService";

pub(super) fn call(server: &Arc<RegionServer>, mut call: Call) -> Outcome {
    let request: pb::CoprocessorServiceRequest = match decode("ExecService", std::mem::take(&mut call.param))
    {
        Ok(request) => request,
        Err(error) => return ready(Err(error)),
    };
    let name = request.call.service_name.strip_prefix("hbase.pb.").unwrap_or(&request.call.service_name);
    if name != MULTI_ROW_MUTATION {
        return ready(Err(no_such_service(&request.call.service_name)));
    }
    if request.call.method_name != "MutateRows" {
        let method = format!("{MULTI_ROW_MUTATION}.{}", request.call.method_name);
        return ready(Err(RpcError::unknown_method(&method)));
    }
    let server = server.clone();
    let waits = Waits::new(call.terms());
    Outcome::Later(Box::pin(async move {
        let on_pool = server.clone();
        let work = move || mutate_rows(&on_pool, &request).map_err(CallError::into_rpc);
        let RowsMutated { reply, ticket, guard } = server.run_pooled("MutateRows", waits, work).await?;
        ticket.await.map_err(|error| errors::to_rpc(&error))?;
        if let Some(guard) = guard {
            guard.end(true);
        }
        Ok(reply)
    }))
}

/// Unlike an unknown method, this tells clients not to look for the service anywhere else
/// (`HRegion.execService`).
pub(super) fn no_such_service(name: &str) -> RpcError {
    RpcError::unknown_protocol(format!("No registered coprocessor service found for {name}"))
}

/// What `MutateRows` did, before it is durable.
struct RowsMutated {
    reply: Reply,
    ticket: WriteTicket,
    /// `None` if there is nothing to remember.
    guard: Option<NonceGuard>,
}

/// `MultiRowMutationEndpoint.mutateRows`. Cells stand inline in the message. A call that is repeated with its nonce is
/// applied once; HBase applies it again.
fn mutate_rows(
    server: &RegionServer,
    request: &pb::CoprocessorServiceRequest,
) -> Result<RowsMutated, CallError> {
    let online = server.regions.find(&request.region)?;
    let rows: pb::MutateRowsRequest = decode("MutateRows", request.call.request.clone())?;
    let mut no_cells = CellSource::new(Vec::new());
    let mutations = rows.mutation_request.iter().map(|mutation| convert::mutation(mutation, &mut no_cells));
    let mutations = mutations.collect::<Result<Vec<_>, _>>()?;
    let conditions = rows.condition.iter().map(convert::condition).collect::<Result<Vec<_>, _>>()?;
    let nonce = Nonce { group: rows.nonce_group(), nonce: rows.nonce() };
    if turn(server, nonce, ReadMode::AnyDisk)? == Turn::Done {
        return Ok(RowsMutated {
            reply: rows_reply(request, true),
            ticket: WriteTicket::ready(),
            guard: None,
        });
    }
    let guard = (nonce.nonce != 0).then(|| NonceGuard::new(&server.nonces, nonce));
    let outcome = online.region.mutate_rows(conditions, mutations, nonce, ReadMode::AnyDisk)?;
    server.after_write(&online);
    server.drive_logs();
    Ok(RowsMutated {
        reply: rows_reply(request, outcome.processed),
        ticket: outcome.ticket,
        guard: guard.filter(|_| outcome.processed),
    })
}

fn rows_reply(request: &pb::CoprocessorServiceRequest, processed: bool) -> Reply {
    let response = pb::MutateRowsResponse { processed: Some(processed) };
    let value = pb::NameBytesPair {
        name: "hbase.pb.MutateRowsResponse".to_string(),
        value: Some(Bytes::from(response.encode_to_vec())),
    };
    let reply = pb::CoprocessorServiceResponse { region: request.region.clone(), value };
    Reply::message(&reply)
}
