//! Where the root directory is: on the local disk, or in HDFS.
//!
//! A local root directory belongs to the process that holds its lock file. HDFS has no lock that its holder cannot lose
//! unnoticed. There the directory belongs to the server whose local directory holds the same name as the file
//! [`OWNER_FILE`] in the root. Any other server refuses to start, because it would split the WALs of the first one, which
//! may be running. `--take-over` makes a server the owner. The WALs of the former owner are sealed when they are split, so
//! nothing that it writes afterwards is acknowledged.
//!
//! WALs may have a root directory of their own (`hbase.wal.dir`), which belongs to the same server in the same way.

use std::io;
use std::path::{Path, PathBuf};

use halcyon_env::{DirEntry, Env, random_bytes};
use halcyon_regionserver::{RegionServerSettings, WalRoot};
use halcyon_schema::layout;

use crate::args::StandaloneArgs;
use crate::settings::{StandaloneSettings, local_path};
use crate::site::Property;

/// Says whose the root directory is, in HDFS.
const OWNER_FILE: &str = ".halcyon.owner";

/// In the root directory: where the WALs are, if that is another directory. It goes when a server has stopped in order, so that
/// `hbase.wal.dir` can be changed then and not before.
const WALS_FILE: &str = ".halcyon.wals";

/// HDFS wants blocks of a multiple of this.
#[cfg(feature = "hdfs")]
const CHECKSUM_BYTES: u64 = 512;

/// The root directory, opened.
pub struct Root {
    /// `env.fs` are the files that the root directory is among.
    pub env: Env,
    /// Path within `env.fs`.
    pub path: PathBuf,
    is_remote: bool,
    take_over: bool,
}

impl Root {
    /// A directory that is open already.
    #[cfg(test)]
    pub fn at(env: Env, path: PathBuf) -> Root {
        Root { env, path, is_remote: false, take_over: false }
    }

    /// Fails if another server may be using the directory, or that of the WALs. `local` is this server's own directory,
    /// which it has locked.
    pub fn claim(&self, wals: Option<&OwnWals>, local: &Path) -> Result<(), String> {
        if self.is_remote {
            claim(&self.env, &self.path, local, self.take_over)?;
        }
        wals.map_or(Ok(()), |wals| wals.claim(local, self.take_over))
    }

    /// Writes down where the WALs are, before there are any.
    pub fn note_wals(&self, wals: Option<&OwnWals>) -> Result<(), String> {
        let path = self.path.join(WALS_FILE);
        let noted = match wals {
            Some(wals) => self
                .env
                .fs
                .create_dir_all(&self.path)
                .and_then(|()| self.env.fs.replace(&path, wals.address.as_bytes())),
            None => remove_note(&self.env, &path),
        };
        noted.map_err(|error| format!("cannot note where the WALs are: {error}"))
    }

    /// To be called when a server has stopped in order: its WALs are not needed any more.
    pub fn forget_wals(env: &Env, root: &Path) -> io::Result<()> {
        remove_note(env, &root.join(WALS_FILE))
    }
}

/// Where WALs are that may be needed, if not in the root directory.
pub fn wals_left(env: &Env, root: &Path) -> Result<Option<String>, String> {
    let left = read(&*env.fs, &root.join(WALS_FILE));
    let left = left.map_err(|error| format!("cannot look where the WALs are: {error}"))?;
    Ok(left.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_string()))
}

/// The root directory of WALs of a server that has all roles, if that is another one than that of the store files.
pub struct OwnWals {
    pub root: WalRoot,
    address: String,
}

impl OwnWals {
    pub fn open(
        env: &Env,
        settings: &StandaloneSettings,
        flags: &StandaloneArgs,
        properties: &[Property],
    ) -> Result<Option<OwnWals>, String> {
        let Some(address) = settings.wal_root_address()? else { return Ok(None) };
        let opened = open_wals(env, settings, flags, properties)?;
        Ok(opened.map(|root| OwnWals { root, address }))
    }

    /// The directory, if it is on this machine: its lock keeps other servers out.
    pub fn local_dir(&self) -> Option<&Path> {
        (!self.is_remote()).then_some(&*self.root.path)
    }

    pub fn is_remote(&self) -> bool {
        self.root.env.fs.is_remote()
    }

    /// Fails if the directory is a root directory of tables, such as the server's own under another name. That may be
    /// new, so this is to be called again when it is made.
    pub fn check_apart(&self) -> Result<(), String> {
        let id = layout::cluster_id_file(&self.root.path);
        let is_root = self.root.env.fs.exists(&id);
        if is_root.map_err(|error| format!("cannot use the root directory of WALs: {error}"))? {
            let address = &self.address;
            return Err(format!(
                "hbase.wal.dir: {address} is a root directory of tables; name another one, or none if WALs are to be \
                 in the root directory"
            ));
        }
        Ok(())
    }

    /// As [`Root::claim`].
    fn claim(&self, local: &Path, take_over: bool) -> Result<(), String> {
        if self.is_remote() { claim(&self.root.env, &self.root.path, local, take_over) } else { Ok(()) }
    }
}

/// Opens the root directory that the settings name. Nothing is asked of HDFS yet. `core-site.xml` and `hdfs-site.xml` are in
/// the directory of `--config`; the properties of `hbase-site.xml` go before theirs, as in HBase.
pub fn open(
    env: Env,
    settings: &StandaloneSettings,
    flags: &StandaloneArgs,
    properties: &[Property],
) -> Result<Root, String> {
    let Some(address) = &settings.root else {
        let path = settings.data.clone();
        return Ok(Root { env, path, is_remote: false, take_over: flags.take_over });
    };
    let (env, path) = open_hdfs(env, address, flags.config.as_deref(), properties, &settings.regionserver)?;
    Ok(Root { env, path, is_remote: true, take_over: flags.take_over })
}

/// Opens the root directory of WALs, if the settings name one besides the root directory.
pub fn open_wals(
    env: &Env,
    settings: &StandaloneSettings,
    flags: &StandaloneArgs,
    properties: &[Property],
) -> Result<Option<WalRoot>, String> {
    let Some(address) = settings.wal_root_address()? else { return Ok(None) };
    let (env, path) = if address.starts_with("hdfs:") {
        open_hdfs(env.clone(), &address, flags.config.as_deref(), properties, &settings.regionserver)?
    } else {
        let path = local_path(&address).map_err(|why| format!("hbase.wal.dir: {address:?} {why}"))?;
        (env.clone(), path)
    };
    Ok(Some(WalRoot { env, path }))
}

/// Whether a property belongs to HDFS's client.
pub fn is_of_hdfs(name: &str) -> bool {
    ["dfs.", "fs.", "hadoop."].iter().any(|start| name.starts_with(start))
}

#[cfg(not(feature = "hdfs"))]
fn open_hdfs(
    _: Env,
    address: &str,
    _: Option<&Path>,
    _: &[Property],
    _: &RegionServerSettings,
) -> Result<(Env, PathBuf), String> {
    Err(format!(
        "the root directory {address} is in HDFS, and this program was built without the feature hdfs"
    ))
}

#[cfg(feature = "hdfs")]
fn open_hdfs(
    env: Env,
    address: &str,
    config: Option<&Path>,
    properties: &[Property],
    settings: &RegionServerSettings,
) -> Result<(Env, PathBuf), String> {
    use std::sync::Arc;

    use halcyon_env::WatchedFileSystem;
    use halcyon_hdfs::{HdfsAddress, HdfsFileSystem, HdfsOptions};

    let failed = |error: io::Error| format!("cannot use the root directory {address}: {error}");
    let mut site = hadoop_site(&env, config).map_err(failed)?;
    for Property { name, value } in properties.iter().filter(|property| is_of_hdfs(&property.name)) {
        site.set(name, value);
    }
    let address = HdfsAddress::new(address, &site).map_err(failed)?;
    let path = address.path().to_path_buf();
    if path == Path::new("/") {
        return Err(format!(
            "the root directory {address}/ is the root of HDFS itself; name a directory, such as {address}/hbase"
        ));
    }
    let root = path.clone();
    // A WAL has one block: the next one would have to be asked for while writes wait.
    let log_block_bytes = settings.wal_block_bytes.max(2 * settings.wal_roll_bytes);
    let options = HdfsOptions {
        log_block_size_bytes: Some(log_block_bytes.next_multiple_of(CHECKSUM_BYTES)),
        log_replication: Some(settings.wal_replication).filter(|count| *count > 0),
        moved_to: Some(Arc::new(move |moved| archived(&root, moved))),
        ..HdfsOptions::default()
    };
    let fs = HdfsFileSystem::new(address, options).map_err(failed)?;
    let fs = WatchedFileSystem::new(Arc::new(fs), env.clock.clone(), env.stalls.clone());
    Ok((Env { fs: Arc::new(fs), ..env }, path))
}

/// The settings of HDFS's clients in a directory, or where Hadoop's own clients find theirs.
#[cfg(feature = "hdfs")]
pub fn hadoop_site(env: &Env, config: Option<&Path>) -> io::Result<halcyon_hdfs::Site> {
    let Some(dir) = config.map(Path::to_path_buf).or_else(hadoop_conf_dir) else {
        return Ok(halcyon_hdfs::Site::default());
    };
    match halcyon_hdfs::Site::read(&*env.local, &dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(halcyon_hdfs::Site::default()),
        read => read,
    }
}

/// Where Hadoop's own clients find their settings.
#[cfg(feature = "hdfs")]
fn hadoop_conf_dir() -> Option<PathBuf> {
    std::env::var_os("HADOOP_CONF_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from)
}

/// Behind the name of a server whose WALs are being split.
#[cfg(any(feature = "hdfs", test))]
const SPLITTING: &str = "-splitting";

/// Where a file below the root is found once it was moved: a store file in the archive, also one of a table that a master
/// was still making when the file was opened; a WAL in `oldWALs` or in the directory that is being split.
#[cfg(any(feature = "hdfs", test))]
fn archived(root: &Path, file: &Path) -> Vec<PathBuf> {
    let data = layout::data_dir(root);
    if file.starts_with(&data) {
        let below = file.strip_prefix(root).expect("data is below the root");
        return vec![layout::archive_dir(root).join(below)];
    }
    if let Ok(below) = file.strip_prefix(layout::tmp_dir(root)) {
        return vec![root.join(below), layout::archive_dir(root).join(below)];
    }
    let (wals, name) = (layout::wals_dir(root), file.file_name().unwrap_or_default());
    let Ok(below) = file.strip_prefix(&wals) else { return Vec::new() };
    let archived = layout::old_wals_dir(root).join(name);
    // Only the WALs of a server that ended have the longer name, and then it is the last one before the archive.
    match below.parent().and_then(Path::file_name).and_then(|dir| dir.to_str()) {
        Some(dir) if !dir.ends_with(SPLITTING) => {
            vec![wals.join(format!("{dir}{SPLITTING}")).join(name), archived]
        }
        _ => vec![archived],
    }
}

/// Makes this server the owner of a root directory in HDFS, or finds that it is. `local` is the server's own directory,
/// which it has the lock of. The error says who else may use the root directory.
fn claim(env: &Env, root: &Path, local: &Path, take_over: bool) -> Result<(), String> {
    let failed = |error: io::Error| format!("cannot look whose the root directory is: {error}");
    let (there, here) = (root.join(OWNER_FILE), local.join(OWNER_FILE));
    let owner = read(&*env.fs, &there).map_err(failed)?;
    let own = read(&*env.local, &here).map_err(failed)?;
    if owner.is_some() && owner == own {
        return Ok(());
    }
    if !take_over {
        refuse_others(env, root, owner.is_some())?;
    }
    // A directory for tables and one for WALs have the same owner.
    let name = match own {
        Some(own) => own,
        None => {
            let name: String = random_bytes::<16>().iter().map(|byte| format!("{byte:02x}")).collect();
            env.local.replace(&here, name.as_bytes()).map_err(failed)?;
            name.into_bytes()
        }
    };
    env.fs.create_dir_all(root).map_err(failed)?;
    let written = if take_over { env.fs.replace(&there, &name) } else { env.fs.put_new(&there, &name) };
    written.map_err(|error| format!("cannot become the owner of the root directory: {error}"))
}

fn remove_note(env: &Env, path: &Path) -> io::Result<()> {
    match env.fs.remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.and_then(|()| path.parent().map_or(Ok(()), |dir| env.fs.sync_dir(dir))),
    }
}

fn refuse_others(env: &Env, root: &Path, has_owner: bool) -> Result<(), String> {
    const ADVICE: &str = "If no server uses it any more, start with --take-over";
    let shown = root.display();
    if has_owner {
        return Err(format!("the root directory {shown} belongs to another Halcyon server. {ADVICE}"));
    }
    let wals = match env.fs.list(&layout::wals_dir(root)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        listed => listed.map_err(|error| format!("cannot look whose the root directory is: {error}"))?,
    };
    // What HDFS was still removing has a name with a dot before it, and is of no server.
    let is_server = |entry: &DirEntry| entry.is_dir && !entry.name.starts_with('.');
    let servers: Vec<_> = wals.into_iter().filter(is_server).map(|entry| entry.name).collect();
    if servers.is_empty() {
        return Ok(());
    }
    Err(format!(
        "the root directory {shown} has WALs of servers that may be running: {}. {ADVICE}",
        servers.join(", ")
    ))
}

fn read(fs: &dyn halcyon_env::FileSystem, path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs.read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use halcyon_env::FileSystem;
    use halcyon_env::sim::{Fault, Operation, SimFileSystem};

    use super::*;

    const ROOT: &str = "/hbase";

    /// A server with a disk of its own and the shared root.
    fn server(shared: &SimFileSystem) -> (Env, SimFileSystem) {
        let disk = SimFileSystem::new();
        disk.create_dir_all("/local".as_ref()).unwrap();
        let local = disk.env().fs;
        (Env { local, ..shared.env() }, disk)
    }

    fn claim_by(env: &Env, take_over: bool) -> Result<(), String> {
        claim(env, ROOT.as_ref(), "/local".as_ref(), take_over)
    }

    #[test]
    fn one_server_owns_the_root_until_another_takes_over() {
        let shared = SimFileSystem::new();
        let ((first, _a), (second, _b)) = (server(&shared), server(&shared));
        claim_by(&first, false).unwrap();
        claim_by(&first, false).unwrap();
        let refused = claim_by(&second, false).unwrap_err();
        assert!(refused.contains("belongs to another") && refused.contains("--take-over"), "{refused}");
        claim_by(&first, false).unwrap();
        claim_by(&second, true).unwrap();
        claim_by(&second, false).unwrap();
        claim_by(&first, false).unwrap_err();
    }

    /// The second claim gave the server another name, and the first directory was another server's from then on.
    #[test]
    fn directories_of_tables_and_wals_have_one_owner() {
        let (tables, wals) = (SimFileSystem::new(), SimFileSystem::new());
        let ((first, _a), (second, _b)) = (server(&tables), server(&tables));
        let of_wals = |env: &Env| Env { fs: wals.env().fs, ..env.clone() };
        let claim_wals = |env: &Env| claim(&of_wals(env), "/wals".as_ref(), "/local".as_ref(), false);
        for _start in 0..2 {
            claim_by(&first, false).unwrap();
            claim_wals(&first).unwrap();
        }
        claim_wals(&second).unwrap_err();
    }

    #[test]
    fn wals_are_noted_until_they_are_not_needed() {
        let env = SimFileSystem::new().env();
        let root = Root { env: env.clone(), path: ROOT.into(), is_remote: false, take_over: false };
        let wals = OwnWals {
            root: WalRoot { env: env.clone(), path: "/wals".into() },
            address: "file:///wals".to_string(),
        };
        assert_eq!(wals_left(&env, ROOT.as_ref()).unwrap(), None);
        root.note_wals(Some(&wals)).unwrap();
        assert_eq!(wals_left(&env, ROOT.as_ref()).unwrap().as_deref(), Some("file:///wals"));
        Root::forget_wals(&env, ROOT.as_ref()).unwrap();
        assert_eq!(wals_left(&env, ROOT.as_ref()).unwrap(), None);
        root.note_wals(Some(&wals)).unwrap();
        root.note_wals(None).unwrap();
        root.note_wals(None).unwrap();
        assert_eq!(wals_left(&env, ROOT.as_ref()).unwrap(), None);
    }

    #[test]
    fn wals_of_servers_without_an_owner_keep_the_root() {
        let shared = SimFileSystem::new();
        let (env, _disk) = server(&shared);
        shared.create_dir_all("/hbase/WALs/h,16020,1".as_ref()).unwrap();
        let refused = claim_by(&env, false).unwrap_err();
        assert!(refused.contains("h,16020,1"), "{refused}");
        claim_by(&env, true).unwrap();
        claim_by(&env, false).unwrap();
    }

    #[test]
    fn what_a_removal_left_among_the_wals_is_of_no_server() {
        let shared = SimFileSystem::new();
        let (env, _disk) = server(&shared);
        shared.create_dir_all("/hbase/WALs/.ab-1.removed/h,16020,1".as_ref()).unwrap();
        claim_by(&env, false).unwrap();
    }

    #[test]
    fn a_root_that_cannot_be_looked_at_is_not_claimed() {
        let shared = SimFileSystem::new();
        let (env, _disk) = server(&shared);
        for (at, fault) in [Fault::new(Operation::Read, OWNER_FILE), Fault::new(Operation::List, "WALs")]
            .into_iter()
            .enumerate()
        {
            shared.inject(fault);
            claim_by(&env, false).unwrap_err();
            assert_eq!(shared.faults_hit(), at as u64 + 1);
            assert!(!shared.exists(&Path::new(ROOT).join(OWNER_FILE)).unwrap());
        }
    }

    #[test]
    fn moved_files_are_looked_for_where_they_go() {
        let found = |file: &str| archived(ROOT.as_ref(), file.as_ref());
        assert_eq!(
            found("/hbase/data/default/t/r/f/1"),
            [PathBuf::from("/hbase/archive/data/default/t/r/f/1")]
        );
        assert_eq!(
            found("/hbase/.tmp/data/n/t/r/f/1"),
            ["/hbase/data/n/t/r/f/1", "/hbase/archive/data/n/t/r/f/1"].map(PathBuf::from)
        );
        assert_eq!(
            found("/hbase/WALs/h,1,1/log"),
            ["/hbase/WALs/h,1,1-splitting/log", "/hbase/oldWALs/log"].map(PathBuf::from)
        );
        assert_eq!(found("/hbase/WALs/h,1,1-splitting/log"), [PathBuf::from("/hbase/oldWALs/log")]);
        assert_eq!(found("/hbase/hbase.id"), [] as [PathBuf; 0]);
    }
}
