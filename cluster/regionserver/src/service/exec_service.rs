use halcyon_proto::pb;
use halcyon_rpc::{Call, Outcome, RpcError};
use prost::Message;

/// No coprocessor is loaded, so every coprocessor service is unknown (`HRegion.execService`).
pub(super) fn call(call: &Call) -> Outcome {
    let name = pb::CoprocessorServiceRequest::decode(call.param.clone())
        .map_or_else(|_| "?".to_string(), |request| request.call.service_name);
    Outcome::Ready(Err(no_such_service(&name)))
}

pub(super) fn no_such_service(name: &str) -> RpcError {
    RpcError::unknown_protocol(format!("No registered coprocessor service found for {name}"))
}
