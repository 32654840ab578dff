//! Repairs of files, under the lock of the root directory.

use std::path::{Path, PathBuf};

use halcyon_env::Env;
use halcyon_inspect::{Stop, place};

use crate::finding::{Finding, Repair};

/// Where files go that are moved aside, as in HBCK2.
const ASIDE: &str = ".hbck";

/// Repairs what can be. A repair that fails is noted in its finding.
pub(crate) fn repair(env: &Env, root: &Path, findings: &mut [Finding]) -> Result<(), Stop> {
    let lock = env.fs.lock(&root.join(place::LOCK_FILE));
    let _lock = lock.map_err(|error| Stop::Failed(format!("cannot lock the root directory: {error}")))?;
    let aside = root.join(ASIDE).join(env.clock.now_ms().to_string());
    for finding in findings {
        let done = match &finding.repair {
            Some(Repair::WriteRegionInfo { path, region }) => env.fs.replace(path, &region.encode_file()),
            Some(Repair::MoveAside { path }) => move_aside(env, root, &aside, path),
            Some(Repair::Calls(_)) | None => continue,
        };
        match done {
            Ok(()) => finding.is_repaired = true,
            Err(error) => finding.failure = Some(error.to_string()),
        }
    }
    Ok(())
}

/// Below `aside` the file has the path that it had below the root.
fn move_aside(env: &Env, root: &Path, aside: &Path, path: &Path) -> std::io::Result<()> {
    let below: PathBuf = path.strip_prefix(root).unwrap_or(path).to_path_buf();
    let to = aside.join(below);
    let (from_dir, to_dir) = (path.parent().unwrap_or(root), to.parent().unwrap_or(aside));
    env.fs.create_dir_all(to_dir)?;
    env.fs.rename(path, &to)?;
    env.fs.sync_dir(to_dir)?;
    env.fs.sync_dir(from_dir)
}
