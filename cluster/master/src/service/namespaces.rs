//! Namespaces.

use halcyon_proto::pb;
use halcyon_schema::{NamespaceDescriptor, TableDescriptor};

use super::{Answer, Request, tables};
use crate::errors::invalid;
use crate::procedure::{CreateNamespace, DeleteNamespace, ModifyNamespace};
use crate::state::MasterState;

pub(super) fn create(request: pb::CreateNamespaceRequest) -> Answer<Request> {
    let nonce = (request.nonce_group(), request.nonce());
    let namespace = NamespaceDescriptor::from_pb(&request.namespace_descriptor).map_err(invalid)?;
    Ok((Box::new(CreateNamespace { namespace }), nonce))
}

pub(super) fn modify(request: pb::ModifyNamespaceRequest) -> Answer<Request> {
    let nonce = (request.nonce_group(), request.nonce());
    let namespace = NamespaceDescriptor::from_pb(&request.namespace_descriptor).map_err(invalid)?;
    Ok((Box::new(ModifyNamespace { namespace }), nonce))
}

pub(super) fn delete(request: pb::DeleteNamespaceRequest) -> Answer<Request> {
    let nonce = (request.nonce_group(), request.nonce());
    Ok((Box::new(DeleteNamespace { name: request.namespace_name }), nonce))
}

pub(super) fn get(
    core: &MasterState,
    request: &pb::GetNamespaceDescriptorRequest,
) -> Answer<pb::GetNamespaceDescriptorResponse> {
    let namespace_descriptor = core.namespace(&request.namespace_name)?.to_pb();
    Ok(pb::GetNamespaceDescriptorResponse { namespace_descriptor })
}

pub(super) fn names(core: &MasterState) -> Answer<pb::ListNamespacesResponse> {
    core.check_namespaces()?;
    let namespaces = core.namespaces.read();
    let namespace_name = namespaces.iter().map(|each| each.name.clone()).collect();
    Ok(pb::ListNamespacesResponse { namespace_name })
}

pub(super) fn descriptors(core: &MasterState) -> Answer<pb::ListNamespaceDescriptorsResponse> {
    core.check_namespaces()?;
    let namespaces = core.namespaces.read();
    let namespace_descriptor = namespaces.iter().map(NamespaceDescriptor::to_pb).collect();
    Ok(pb::ListNamespaceDescriptorsResponse { namespace_descriptor })
}

pub(super) fn table_names(
    core: &MasterState,
    request: &pb::ListTableNamesByNamespaceRequest,
) -> Answer<pb::ListTableNamesByNamespaceResponse> {
    core.namespace(&request.namespace_name)?;
    let found = tables::list(core, &request.namespace_name, None, true)?;
    Ok(pb::ListTableNamesByNamespaceResponse {
        table_name: found.iter().map(|table| table.name().to_pb()).collect(),
    })
}

pub(super) fn table_descriptors(
    core: &MasterState,
    request: &pb::ListTableDescriptorsByNamespaceRequest,
) -> Answer<pb::ListTableDescriptorsByNamespaceResponse> {
    core.namespace(&request.namespace_name)?;
    let found = tables::list(core, &request.namespace_name, None, true)?;
    Ok(pb::ListTableDescriptorsByNamespaceResponse {
        table_schema: found.iter().map(TableDescriptor::to_pb).collect(),
    })
}
