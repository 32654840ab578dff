//! What a root directory holds before a master can work in it.

use std::io;
use std::path::Path;

use halcyon_cell::{Error, Result};
use halcyon_env::{Env, random_bytes};
use halcyon_proto::{PB_MAGIC, pb};
use halcyon_schema::{ClusterId, RegionInfo, layout};
use prost::Message;
use tracing::info;

/// The layout of the root directory (`HConstants.FILE_SYSTEM_VERSION`).
const LAYOUT_VERSION: u32 = 8;

const HBCK1_LOCK: &str = "hbase-hbck.lock";
const HBCK1_LOCK_TEXT: &[u8] =
    b"hbck of HBase 1 must not repair this directory: use `halcyon check` or HBCK2\n";

/// Makes the root directory and its first files, or checks those that are there. May run twice.
pub fn root_dir(env: &Env, root: &Path) -> Result<ClusterId> {
    for dir in [layout::data_dir(root), layout::master_dir(root), layout::archive_dir(root)] {
        env.fs.create_dir_all(&dir)?;
    }
    check_version(env, root)?;
    let path = layout::cluster_id_file(root);
    if env.fs.exists(&path)? {
        return read_id(env, &path);
    }
    let id = ClusterId::from_random(random_bytes());
    match env.fs.put_new(&path, &id.encode_file()) {
        // Another master began at the same time: its servers know the id already.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return read_id(env, &path),
        written => written?,
    }
    info!(%id, root = %root.display(), "a new cluster begins");
    Ok(id)
}

/// Leaves the lock of `hbck` of HBase 1 in the root directory for good, so that this tool works on nothing here: it would damage what it
/// does not know (HBase: `HMaster.startActiveMasterManager`, `HBaseFsck.HBCK_LOCK_FILE`). May run twice.
pub fn keep_hbck1_out(env: &Env, root: &Path) -> Result<()> {
    let dir = layout::tmp_dir(root);
    env.fs.create_dir_all(&dir)?;
    match env.fs.put_new(&dir.join(HBCK1_LOCK), HBCK1_LOCK_TEXT) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        written => Ok(written?),
    }
}

/// The id of the cluster that the root directory is of; `None`: no master was there yet. Nothing is changed.
pub fn cluster_id(env: &Env, root: &Path) -> Result<Option<ClusterId>> {
    let path = layout::cluster_id_file(root);
    if env.fs.exists(&path)? { read_id(env, &path).map(Some) } else { Ok(None) }
}

/// Whether a master of Halcyon has worked in the root directory before. Nothing is changed.
pub fn has_served(env: &Env, root: &Path) -> Result<bool> {
    Ok(env.fs.exists(&crate::procedure::records_dir(root))?)
}

fn read_id(env: &Env, path: &Path) -> Result<ClusterId> {
    ClusterId::decode_file(&env.fs.read(path)?).map_err(|error| error.context(path.display()))
}

/// The gate: a layout this program does not know is left alone.
fn check_version(env: &Env, root: &Path) -> Result<()> {
    let path = layout::version_file(root);
    if !env.fs.exists(&path)? {
        if env.fs.exists(&RegionInfo::meta().dir(root))? {
            return Err(Error::corrupt(format!(
                "{} is missing, but the directory holds tables; is it the root of an HBase cluster?",
                path.display()
            )));
        }
        let content = pb::HBaseVersionFileContent { version: LAYOUT_VERSION.to_string() };
        let bytes = [&PB_MAGIC[..], &content.encode_to_vec()].concat();
        return Ok(env.fs.replace(&path, &bytes)?);
    }
    let bytes = env.fs.read(&path)?;
    let found = bytes
        .strip_prefix(PB_MAGIC)
        .and_then(|message| pb::HBaseVersionFileContent::decode(message).ok())
        .ok_or_else(|| Error::corrupt(format!("{} is not a version file", path.display())))?;
    if found.version == LAYOUT_VERSION.to_string() {
        return Ok(());
    }
    let hint = match found.version.parse::<u32>() {
        Ok(version) if version > LAYOUT_VERSION => "it was written by a newer program",
        _ => "it must be upgraded by HBase first",
    };
    Err(Error::invalid(format!(
        "{}: file system layout version {}, this program works with {LAYOUT_VERSION}; {hint}",
        path.display(),
        found.version
    )))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use halcyon_env::FileSystem;
    use halcyon_env::sim::{Fault, Operation, SimFileSystem};
    use halcyon_testkit::for_each_seed;
    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn the_lock_of_hbck1_stays() {
        let (fs, root) = (SimFileSystem::new(), Path::new("/hbase"));
        let lock = Path::new("/hbase/.tmp/hbase-hbck.lock");
        keep_hbck1_out(&fs.env(), root).unwrap();
        assert!(fs.read(lock).unwrap().starts_with(b"hbck of HBase 1"));
        fs.replace(lock, b"of a running hbck").unwrap();
        keep_hbck1_out(&fs.env(), root).unwrap();
        assert_eq!(fs.read(lock).unwrap(), b"of a running hbck");
    }

    /// The second of two masters that began at once replaced the id of the first one.
    #[test]
    fn the_first_id_stays() {
        let root = Path::new("/hbase");
        let dry = SimFileSystem::hdfs(3);
        root_dir(&dry.env(), root).unwrap();
        for at in 1..=dry.calls() {
            let (fs, first) = (SimFileSystem::hdfs(3), Arc::new(Mutex::new(None)));
            let (other, told) = (fs.clone(), first.clone());
            fs.pause_at(at, move || *told.lock() = Some(root_dir(&other.env(), root).unwrap()));
            let second = root_dir(&fs.env(), root).unwrap();
            let first = first.lock().take();
            assert_eq!(first, Some(second), "another master began before call {at} of {}", dry.calls());
        }
    }

    /// As below, with any call disturbed.
    #[test]
    fn a_disturbed_start_keeps_the_id() {
        let test = "-p halcyon-master --lib bootstrap::tests::a_disturbed_start_keeps_the_id";
        for_each_seed(test, 0..100, |seed| {
            let (fs, root) = (SimFileSystem::hdfs(seed), Path::new("/hbase"));
            fs.disturb(6);
            let begun = |fs: &SimFileSystem| (0..400).find_map(|_| root_dir(&fs.env(), root).ok()).unwrap();
            let id = begun(&fs);
            (0..10).for_each(|_| assert_eq!(begun(&fs), id, "seed {seed}"));
            fs.deliver_late();
            fs.clear_faults();
            assert_eq!(begun(&fs), id, "seed {seed}, after late changes");
        });
    }

    /// A cluster id was taken for absent when the question whether its file exists failed, and a new one replaced it:
    /// servers and clients of the cluster did not know it any more.
    #[test]
    fn a_cluster_keeps_its_id_and_version() {
        let (fs, root) = (SimFileSystem::new(), Path::new("/hbase"));
        let id = root_dir(&fs.env(), root).unwrap();
        let files = [layout::cluster_id_file(root), layout::version_file(root)];
        let before = files.clone().map(|file| fs.read(&file).unwrap());
        for (at, file) in files.iter().enumerate() {
            fs.inject(Fault::new(Operation::Exists, &file.to_string_lossy()));
            root_dir(&fs.env(), root).unwrap_err();
            assert_eq!(fs.faults_hit(), at as u64 + 1);
        }
        assert_eq!(files.map(|file| fs.read(&file).unwrap()), before);
        assert_eq!(root_dir(&fs.env(), root).unwrap(), id);
    }
}
