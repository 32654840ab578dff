//! The erasure coding policy of a table (`ERASURE_CODING_POLICY`): HDFS keeps it with the table's directory, and stores the files
//! that are made below by it (HBase: `ErasureCodingUtils`). Files that are there already stay as they are until a compaction.

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_env::{Env, random_bytes};
use halcyon_schema::{SANITY_CHECKS_HINT, TableDescriptor, layout};

use crate::state::MasterState;

/// Invalid if the table asks for a policy that HDFS does not know, that is not enabled, or by which no file can be written: so many
/// DataNodes may not be there.
pub(crate) fn check(core: &MasterState, table: &TableDescriptor) -> Result<()> {
    let Some(policy) = table.erasure_coding() else { return Ok(()) };
    let insane = |message: String| Error::invalid(format!("{message} {SANITY_CHECKS_HINT}"));
    if !core.env.fs.is_remote() {
        return Err(insane(
            "Cannot manage Erasure Coding policy. Erasure Coding is only available on HDFS, but fs is LocalFileSystem".into(),
        ));
    }
    check_available(&core.env, policy).and_then(|()| try_it(core, policy)).map_err(|error| {
        match error.kind() {
            ErrorKind::Invalid => insane(error.message().to_string()),
            _ => error, // nobody could look
        }
    })
}

fn check_available(env: &Env, policy: &str) -> Result<()> {
    let known = env.fs.erasure_codings()?;
    let cannot =
        |why: String| Err(Error::invalid(format!("Cannot set Erasure Coding policy: {policy}. {why}")));
    match known.iter().find(|one| one.name == policy) {
        None => {
            let names: Vec<_> = known.iter().map(|one| &*one.name).collect();
            cannot(format!("Policy not found. Available policies are: {}", names.join(", ")))
        }
        Some(found) if found.state != "ENABLED" => {
            cannot(format!("The policy must be enabled, but has state {}", found.state))
        }
        Some(found) if !found.is_writable => {
            cannot("Halcyon writes files with policies of Reed-Solomon (RS) only".to_string())
        }
        Some(_) => Ok(()),
    }
}

/// Writes a file by the policy.
fn try_it(core: &MasterState, policy: &str) -> Result<()> {
    let fs = &core.env.fs;
    let name = format!("ec-test-{}-{:08x}", core.now_ms(), u32::from_be_bytes(random_bytes()));
    let dir = layout::tmp_dir(&core.root).join(name);
    fs.create_dir_all(&dir)?;
    let written = fs.set_erasure_coding(&dir, Some(policy)).and_then(|()| {
        let mut file = fs.create(&dir.join("test.out"))?;
        file.write_all(policy.as_bytes())?;
        file.sync_and_close()
    });
    if let Err(error) = fs.remove_dir_all(&dir) {
        tracing::warn!(%error, "the directory of a test of erasure coding stays");
    }
    written.map_err(|error| Error::invalid(format!("Failed write test for EC policy {policy}: {error}")))
}

/// Gives the directory of a table the policy of its descriptor. `old` is the descriptor before, if the directory is not new. May
/// run again.
pub(crate) fn apply(core: &MasterState, old: Option<&TableDescriptor>, new: &TableDescriptor) -> Result<()> {
    let policy = new.erasure_coding();
    if old.and_then(TableDescriptor::erasure_coding) == policy {
        return Ok(());
    }
    let dir = new.name().dir(&core.root);
    core.env.fs.create_dir_all(&dir)?;
    Ok(core.env.fs.set_erasure_coding(&dir, policy)?)
}
