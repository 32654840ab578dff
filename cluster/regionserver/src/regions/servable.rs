//! Refuses tables with features of HBase that Halcyon does not read. A region of such a table does not open, so that no
//! client reads a wrong cell.

use std::path::Path;

use halcyon_cell::{Error, Result};
use halcyon_env::Env;
use halcyon_schema::TableDescriptor;

/// Where HBase keeps large values of families with `IS_MOB`.
const MOB_DIR: &str = "mobdir";

/// Invalid if this program would not show the table's cells as HBase does.
pub(crate) fn check(env: &Env, root: &Path, table: &TableDescriptor) -> Result<()> {
    table.check_files()?;
    let mob_files = halcyon_schema::layout::table_dir(&root.join(MOB_DIR), table.name());
    for family in table.families().iter().filter(|family| family.is_mob()) {
        if env.fs.exists(&mob_files)? {
            return Err(Error::invalid(format!(
                "family {} has values in {}, which are not read here. Set IS_MOB to false at HBase and compact the \
                 table there first",
                family.name_str(),
                mob_files.display()
            )));
        }
    }
    Ok(())
}
