//! Changes a namespace's configuration.

use halcyon_cell::Result;
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::NamespaceDescriptor;
use prost::Message;

use super::{HasSteps, Lock, Parameters, Procedure, Step, parameters, payload, step};
use crate::state::MasterState;
use crate::{groups, namespaces, quotas};

pub(super) const KIND: &str = "modify_namespace";

pub(crate) struct ModifyNamespace {
    pub(crate) namespace: NamespaceDescriptor,
}

impl ModifyNamespace {
    pub(super) fn decode(bytes: &[u8]) -> Result<ModifyNamespace> {
        let namespace = NamespaceDescriptor::from_pb(&payload::<pb::NamespaceDescriptor>(KIND, bytes)?)?;
        Ok(ModifyNamespace { namespace })
    }
}

impl Procedure for ModifyNamespace {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn class_name(&self) -> &'static str {
        "org.apache.hadoop.hbase.master.procedure.ModifyNamespaceProcedure"
    }

    fn parameters(&self, _owner: &str) -> Parameters {
        let namespace_descriptor = self.namespace.to_pb();
        parameters::of(&pb::ModifyNamespaceStateData {
            namespace_descriptor,
            unmodified_namespace_descriptor: None,
        })
    }

    fn locks(&self) -> Vec<Lock> {
        Lock::namespace(&self.namespace.name)
    }

    fn prepare(&mut self, core: &MasterState) -> std::result::Result<(), RpcError> {
        groups::check_namespace(core, &self.namespace)?;
        quotas::check_namespace(core, &self.namespace)?;
        core.namespace(&self.namespace.name).map(|_| ())
    }

    fn payload(&self) -> Vec<u8> {
        self.namespace.to_pb().encode_to_vec()
    }
}

const STEPS: &[Step<ModifyNamespace>] =
    &[step("write", |this, core| namespaces::change(core, &this.namespace))];

impl HasSteps for ModifyNamespace {
    fn steps(&self) -> &'static [Step<Self>] {
        STEPS
    }
}
