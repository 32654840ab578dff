//! Creates a namespace.

use halcyon_cell::Result;
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::{NamespaceDescriptor, layout};
use prost::Message;

use super::{HasSteps, Lock, Parameters, Procedure, Step, parameters, payload, step};
use crate::state::MasterState;
use crate::{errors, groups, namespaces, quotas};

pub(super) const KIND: &str = "create_namespace";

pub(crate) struct CreateNamespace {
    pub(crate) namespace: NamespaceDescriptor,
}

impl CreateNamespace {
    pub(super) fn decode(bytes: &[u8]) -> Result<CreateNamespace> {
        let namespace = NamespaceDescriptor::from_pb(&payload::<pb::NamespaceDescriptor>(KIND, bytes)?)?;
        Ok(CreateNamespace { namespace })
    }
}

impl Procedure for CreateNamespace {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn class_name(&self) -> &'static str {
        "org.apache.hadoop.hbase.master.procedure.CreateNamespaceProcedure"
    }

    fn parameters(&self, _owner: &str) -> Parameters {
        let namespace_descriptor = self.namespace.to_pb();
        parameters::of(&pb::CreateNamespaceStateData { namespace_descriptor })
    }

    fn locks(&self) -> Vec<Lock> {
        Lock::namespace(&self.namespace.name)
    }

    fn prepare(&mut self, core: &MasterState) -> std::result::Result<(), RpcError> {
        let name = &self.namespace.name;
        halcyon_schema::check_file_name("The namespace", name).map_err(errors::invalid)?;
        groups::check_namespace(core, &self.namespace)?;
        quotas::check_namespace(core, &self.namespace)?;
        core.check_namespaces()?;
        if core.namespace(&self.namespace.name).is_ok() {
            let message = format!("Namespace {} already exists", self.namespace.name);
            return Err(RpcError::namespace_exist(message));
        }
        Ok(())
    }

    fn payload(&self) -> Vec<u8> {
        self.namespace.to_pb().encode_to_vec()
    }
}

const STEPS: &[Step<CreateNamespace>] = &[step("write", CreateNamespace::write)];

impl HasSteps for CreateNamespace {
    fn steps(&self) -> &'static [Step<Self>] {
        STEPS
    }
}

impl CreateNamespace {
    fn write(&mut self, core: &MasterState) -> Result<()> {
        core.env.fs.create_dir_all(&layout::namespace_dir(&core.root, &self.namespace.name))?;
        namespaces::change(core, &self.namespace)
    }
}
