//! Deletes an empty namespace.

use halcyon_cell::{Error, Result};
use halcyon_contract::QuotaSubject;
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::layout;

use super::{HasSteps, Lock, Parameters, Procedure, Step, parameters, step};
use crate::archive::remove_dir;
use crate::descriptors::list;
use crate::namespaces::{self, is_reserved};
use crate::placement::soon;
use crate::state::MasterState;
use crate::{errors, quotas};

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
        match left(core, &self.name).map_err(|error| errors::from_error(&error))? {
            None => Ok(()),
            Some(left) => Err(errors::constraint(left)),
        }
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
        if let Some(left) = left(core, &self.name)? {
            return Err(Error::invalid(left));
        }
        remove_dir(&*core.env.fs, &layout::namespace_dir(&core.root, &self.name))
    }
}

/// What is left of tables in the namespace that the master does not know: of one whose descriptor cannot be read, or of a creation that
/// has not come so far. Its files are not archived when the namespace goes.
fn left(core: &MasterState, namespace: &str) -> Result<Option<String>> {
    let (fs, dir) = (&*core.env.fs, layout::namespace_dir(&core.root, namespace));
    for table in list(fs, &dir)?.into_iter().filter(|entry| entry.is_dir && !entry.name.starts_with('.')) {
        let table_dir = dir.join(table.name);
        let is_left = |name: &str| name == layout::TABLE_DESC || !name.starts_with('.');
        if list(fs, &table_dir)?.iter().any(|entry| entry.is_dir && is_left(&entry.name)) {
            return Ok(Some(format!(
                "Only empty namespaces can be removed. The directory of namespace {namespace} has that of a table which is not known: \
                 {}. Repair its descriptor, or move it away",
                table_dir.display()
            )));
        }
    }
    let content = soon(&*core.env.clock, || core.meta_rows_of_namespace(namespace))?;
    let mut tables = content.regions.iter().map(|(region, _)| region.table()).chain(content.states.keys());
    Ok(tables.next().map(|table| {
        format!(
            "Only empty namespaces can be removed. hbase:meta has rows of table {table}, which is not known"
        )
    }))
}
