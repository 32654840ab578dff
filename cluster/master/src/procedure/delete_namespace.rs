//! Deletes an empty namespace.

use halcyon_cell::Result;
use halcyon_contract::QuotaSubject;
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::layout;

use super::{HasSteps, Lock, Parameters, Procedure, Step, parameters, step};
use crate::archive::remove_dir;
use crate::errors;
use crate::namespaces::{self, is_reserved};
use crate::quotas;
use crate::state::MasterState;

pub(super) const KIND: &str = "delete_namespace";

pub(crate) struct DeleteNamespace {
    pub(crate) name: String,
}

impl DeleteNamespace {
    pub(super) fn decode(bytes: &[u8]) -> Result<DeleteNamespace> {
        halcyon_schema::check_namespace_name(bytes)?;
        Ok(DeleteNamespace { name: String::from_utf8_lossy(bytes).into_owned() })
    }
}

impl Procedure for DeleteNamespace {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn class_name(&self) -> &'static str {
        "org.apache.hadoop.hbase.master.procedure.DeleteNamespaceProcedure"
    }

    fn parameters(&self, _owner: &str) -> Parameters {
        let namespace_name = self.name.clone();
        parameters::of(&pb::DeleteNamespaceStateData { namespace_name, namespace_descriptor: None })
    }

    fn locks(&self) -> Vec<Lock> {
        Lock::namespace(&self.name)
    }

    fn prepare(&mut self, core: &MasterState) -> std::result::Result<(), RpcError> {
        core.namespace(&self.name)?;
        if is_reserved(&self.name) {
            let message = format!("Reserved namespace {} cannot be removed.", self.name);
            return Err(errors::constraint(message));
        }
        let tables = core.tables.read().in_namespace(&self.name).count();
        if tables > 0 {
            return Err(errors::constraint(format!(
                "Only empty namespaces can be removed. Namespace {} has {tables} tables",
                self.name
            )));
        }
        Ok(())
    }

    fn payload(&self) -> Vec<u8> {
        self.name.as_bytes().to_vec()
    }
}

const STEPS: &[Step<DeleteNamespace>] = &[
    step("write", |this, core| namespaces::delete(core, &this.name)),
    step("remove directory", DeleteNamespace::remove_dir),
    step("remove quotas", |this, core| quotas::forget(core, &QuotaSubject::Namespace(this.name.clone()))),
];

impl HasSteps for DeleteNamespace {
    fn steps(&self) -> &'static [Step<Self>] {
        STEPS
    }
}

impl DeleteNamespace {
    /// What is left in it belongs to no table: those are gone, and their files are in the archive.
    fn remove_dir(&mut self, core: &MasterState) -> Result<()> {
        remove_dir(&*core.env.fs, &layout::namespace_dir(&core.root, &self.name))
    }
}
