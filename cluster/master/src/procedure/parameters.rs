//! What clients are shown as the parameters of a procedure: the messages that HBase's procedure of the same class keeps
//! (`Procedure.serializeStateData` of 2.6.4), in their order, so that HBase's own classes can read them.
//!
//! The numbers of HBase's states are left out, because the steps here are others.

use halcyon_proto::pb;
use halcyon_schema::RegionInfo;
use prost::Name;
use prost_types::Any;

use super::Procedure;

/// Parameters of an ended procedure are forgotten if they are larger, in bytes: a table can have 100,000 regions.
const KEPT_MAX: usize = 64 << 10;

/// Messages with their types, as `GetProcedures` sends them.
pub(crate) type Parameters = Vec<Any>;

pub(super) fn any<M: Name>(message: &M) -> Any {
    Any { type_url: M::type_url(), value: message.encode_to_vec() }
}

/// Of a procedure with states (`StateMachineProcedure`).
pub(super) fn of(message: &impl Name) -> Parameters {
    vec![any(&pb::StateMachineProcedureData::default()), any(message)]
}

/// Of a procedure with states that is about a region (`AbstractStateMachineRegionProcedure`).
pub(super) fn of_region(region: &RegionInfo, message: &impl Name) -> Parameters {
    vec![any(&pb::StateMachineProcedureData::default()), any(&region.to_pb()), any(message)]
}

/// Who asked for a procedure.
pub(super) fn user(owner: &str) -> pb::UserInformation {
    pb::UserInformation { effective_user: owner.to_string(), real_user: None }
}

/// Those that are worth their memory after the procedure has ended.
pub(super) fn kept(procedure: &dyn Procedure, owner: &str) -> Parameters {
    let parameters = procedure.parameters(owner);
    if bytes_of(&parameters) <= KEPT_MAX { parameters } else { Vec::new() }
}

pub(super) fn bytes_of(parameters: &Parameters) -> usize {
    parameters.iter().map(|any| any.type_url.len() + any.value.len()).sum()
}
