//! Endpoints: services of coprocessors, on one region.
//!
//! The services of the classes that `halcyon_schema::Endpoint` lists are built in; others are called in the JVM of coprocessors:
//!
//! ```text
//! ExecService, or an action of a Multi
//!   -> Endpoint of the service's name, its region, whether the region has the coprocessor
//!   -> run: one thread of the pool, however long it takes
//!        mutate_rows.rs   MultiRowMutationService   several rows of the region, all or nothing
//!        aggregate.rs     AggregateService          rows.rs scans, interpreter.rs adds and compares
//!        bulk_delete.rs   BulkDeleteService         rows.rs scans, batches of deletes
//!        coprocessors/    any other                 if a class of the region has it
//! ```
//!
//! A call that reads many rows looks again and again whether its client still waits and its region is still open
//! (`rows.rs`). Checked against `RSRpcServices.execServiceOnRegion` and `HRegion.execService` of 2.6.4.

mod aggregate;
mod bulk_delete;
mod cents;
mod interpreter;
mod mutate_rows;
mod rows;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use halcyon_env::Patience;
use halcyon_proto::pb;
use halcyon_region::WriteTicket;
use halcyon_rpc::{Call, Outcome, Reply, RpcError, Terms};
use halcyon_schema::Endpoint;
use prost::Message;

use super::{CallError, Waits, decode, ready};
use crate::RegionServer;
use crate::calls::nonces::NonceGuard;
use crate::convert::InlineCells;
use crate::errors;
use crate::regions::region_table::OnlineRegion;

/// A call of a service that its region has.
pub(super) struct EndpointCall {
    server: Arc<RegionServer>,
    online: Arc<OnlineRegion>,
    /// `None`: a class in the JVM may have the service.
    endpoint: Option<Endpoint>,
    call: pb::CoprocessorServiceCall,
    method: String,
    request: Bytes,
    terms: Terms,
}

/// What an endpoint did, before it is durable.
pub(super) struct Answer {
    /// The response message, with its name.
    pub value: pb::NameBytesPair,
    /// `None` if nothing was written that is not durable.
    pub ticket: Option<WriteTicket>,
    /// `None` if there is nothing to remember.
    pub guard: Option<NonceGuard>,
}

impl Answer {
    fn new(name: &str, response: &impl Message) -> Answer {
        let value =
            pb::NameBytesPair { name: name.to_string(), value: Some(Bytes::from(response.encode_to_vec())) };
        Answer { value, ticket: None, guard: None }
    }
}

pub(super) fn call(server: &Arc<RegionServer>, mut call: Call) -> Outcome {
    let param_len = call.param.len();
    let request: pb::CoprocessorServiceRequest = match decode("ExecService", std::mem::take(&mut call.param))
    {
        Ok(request) => request,
        Err(error) => return ready(Err(error)),
    };
    if call.method == "ExecRegionServerService" {
        return ready(Err(no_such_service(&request.call.service_name)));
    }
    let room_bytes = InlineCells::of_endpoint(&request.call).room_bytes(param_len);
    let specifier = request.region.clone();
    let opened = EndpointCall::new(server, &specifier, &request.call, call.into_terms());
    let call = match opened {
        Ok(call) => call,
        Err(error) => return ready(Err(error)),
    };
    let server = server.clone();
    Outcome::Later(Box::pin(async move {
        if call.may_write() && server.pressure.is_high() && !call.online.region.info().is_meta() {
            server.wait_for_room(&call.terms).await?;
        }
        // Not before: others may use the permit while this call waits.
        let is_hosted = call.online.is_hosted();
        let permit = is_hosted.then(|| server.coprocessors.jvm().permit()).transpose()?;
        let waits = Waits { hosted: permit, ..Waits::new(call.terms.clone()) }.on(&call.online);
        let waits = waits.making_cells(room_bytes, &server); // and conditions look at rows as a whole
        let work = move || call.run().map_err(CallError::into_rpc);
        let Answer { value, ticket, guard } = server.run_pooled("ExecService", waits, work).await?;
        if let Some(ticket) = ticket {
            ticket.await.map_err(|error| errors::to_rpc(&error))?;
        }
        if let Some(guard) = guard {
            guard.end();
        }
        Ok(Reply::message(&pb::CoprocessorServiceResponse { region: specifier, value }))
    }))
}

impl EndpointCall {
    /// Finds the region, and whether it has the service.
    pub(super) fn new(
        server: &Arc<RegionServer>,
        specifier: &pb::RegionSpecifier,
        call: &pb::CoprocessorServiceCall,
        terms: Terms,
    ) -> Result<EndpointCall, RpcError> {
        let endpoint = Endpoint::of_service(&call.service_name);
        if endpoint.is_none() && !server.coprocessors.is_used() {
            return Err(no_such_service(&call.service_name));
        }
        let online = server.regions.find(specifier)?;
        let is_own = |endpoint: &Endpoint| server.settings.coprocessors.has(online.region.table(), *endpoint);
        let endpoint = endpoint.filter(is_own);
        if endpoint.is_none() && !online.is_hosted() {
            let region = online.region.info().region_name().escape_ascii();
            return Err(no_such_service(&format!("{} in region {region}", call.service_name)));
        }
        let call = call.clone();
        let (method, request) = (call.method_name.clone(), call.request.clone());
        Ok(EndpointCall { server: server.clone(), online, endpoint, call, method, request, terms })
    }

    fn may_write(&self) -> bool {
        self.endpoint != Some(Endpoint::Aggregate)
    }

    /// Does the work. *Blocking*: on a thread of the pool.
    pub(super) fn run(&self) -> Result<Answer, CallError> {
        self.online.endpoint_calls_count.fetch_add(1, Ordering::Relaxed);
        match self.endpoint {
            Some(Endpoint::MultiRowMutation) if self.online.is_hosted() => mutate_rows::run(self),
            Some(Endpoint::MultiRowMutation) => {
                // Conditions may look at all of a row. Once the rows are written nothing asks any more.
                let is_wanted = self.server.is_wanted_of(&self.terms, &self.online);
                Patience::while_wanted(is_wanted, || mutate_rows::run(self))
            }
            Some(Endpoint::Aggregate) => aggregate::run(self),
            Some(Endpoint::BulkDelete) => bulk_delete::run(self),
            None => {
                let value = self.server.execute_endpoint(&self.online, &self.call, &self.terms)?;
                Ok(Answer { value, ticket: None, guard: None })
            }
        }
    }

    /// As HBase answers a method that the service does not have (`CoprocessorRpcUtils.getMethodDescriptor`).
    fn unknown_method(&self) -> RpcError {
        let (method, service) = (&self.method, self.endpoint.map_or("", Endpoint::service));
        RpcError::unknown_protocol(format!("Unknown method {method} called on service hbase.pb.{service}"))
    }
}

/// Unlike an unknown method, this tells clients not to look for the service anywhere else
/// (`HRegion.execService`).
fn no_such_service(name: &str) -> RpcError {
    RpcError::unknown_protocol(format!("No registered coprocessor service found for {name}"))
}
