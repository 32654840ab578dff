//! The files of clusters that send bulk loads by replication (HBase: `DefaultSourceFSConfigurationProvider`).
//!
//! A request names the cluster that it is from, and directories there. The settings of that cluster's file system are the files
//! `*.xml` in the directory of the cluster's name below `hbase.replication.conf.dir`.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use halcyon_env::{Env, FileSystem};
use halcyon_regionserver::{OpenSourceFiles, RegionServerSettings};

/// `config` is the directory of the server's own settings.
pub fn opener(env: &Env, settings: &RegionServerSettings, config: Option<&Path>) -> Arc<OpenSourceFiles> {
    let configured = Some(&settings.replication_conf_dir).filter(|dir| !dir.is_empty());
    let dir = configured.map(PathBuf::from).or_else(|| config.map(Path::to_path_buf));
    let env = env.clone();
    Arc::new(move |address, cluster| open(&env, dir.as_deref(), address, cluster))
}

fn open(
    env: &Env,
    dir: Option<&Path>,
    address: &str,
    cluster: &str,
) -> Result<(Arc<dyn FileSystem>, PathBuf), String> {
    let files = match dir {
        Some(dir) => site_files(env, dir, cluster)?,
        None => Vec::new(),
    };
    open_with(env, address, &files)
}

/// Names and texts of the settings of a cluster, in the order of their names. None if it has no directory.
fn site_files(env: &Env, dir: &Path, cluster: &str) -> Result<Vec<(String, String)>, String> {
    let mut parts = Path::new(cluster).components();
    if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
        return Err(format!("{cluster:?} is no name of a directory in {}", dir.display()));
    }
    let dir = dir.join(cluster);
    let failed = |error: io::Error| format!("{}: {error}", dir.display());
    let mut names: Vec<String> = match env.local.list(&dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => {
            listed.map_err(failed)?.into_iter().filter(|file| !file.is_dir).map(|file| file.name).collect()
        }
    };
    names.retain(|name| name.ends_with(".xml"));
    names.sort_unstable();
    let mut files = Vec::new();
    for name in names {
        let bytes = env.local.read(&dir.join(&name)).map_err(failed)?;
        let text = String::from_utf8(bytes).map_err(|_| format!("{}/{name} is not UTF-8", dir.display()))?;
        files.push((name, text));
    }
    Ok(files)
}

#[cfg(not(feature = "hdfs"))]
fn open_with(_: &Env, _: &str, _: &[(String, String)]) -> Result<(Arc<dyn FileSystem>, PathBuf), String> {
    Err("this program was built without the feature hdfs".to_string())
}

#[cfg(feature = "hdfs")]
fn open_with(
    env: &Env,
    address: &str,
    files: &[(String, String)],
) -> Result<(Arc<dyn FileSystem>, PathBuf), String> {
    use halcyon_hdfs::{HdfsAddress, HdfsFileSystem, HdfsOptions, Site};

    let failed = |error: io::Error| error.to_string();
    let mut site = Site::default();
    for (name, text) in files {
        site.add(text, name).map_err(failed)?;
    }
    let default = site.get("fs.defaultFS").unwrap_or_default();
    if address.starts_with('/') && !default.starts_with("hdfs:") {
        return Ok((Arc::clone(&env.local), address.into()));
    }
    let address = if address.starts_with('/') { format!("hdfs://{address}") } else { address.to_string() };
    let address = HdfsAddress::new(&address, &site).map_err(failed)?;
    let path = address.path().to_path_buf();
    let fs = HdfsFileSystem::new(address, HdfsOptions::default()).map_err(failed)?;
    Ok((Arc::new(fs), path))
}

#[cfg(all(test, feature = "hdfs"))]
mod tests {
    use halcyon_env::sim::SimFileSystem;

    use super::*;

    fn site(name: &str, value: &str) -> Vec<u8> {
        let property = format!("<property><name>{name}</name><value>{value}</value></property>");
        format!("<configuration>{property}</configuration>").into_bytes()
    }

    #[test]
    fn a_cluster_has_the_settings_of_its_directory() {
        let fs = SimFileSystem::new();
        let env = Env { local: fs.env().fs, ..fs.env() };
        let dir = Path::new("/conf");
        env.local.create_dir_all(&dir.join("east")).unwrap();
        let nodes = site("fs.defaultFS", "hdfs://namenode:8020");
        env.local.put_new(&dir.join("east/core-site.xml"), &nodes).unwrap();
        let opened = |address: &str, cluster: &str| {
            let opened = open(&env, Some(dir), address, cluster);
            opened.map(|(fs, path)| (fs.address(), path.display().to_string()))
        };
        let namenode = Some("hdfs://namenode:8020".to_string());
        assert_eq!(opened("/hbase/data", "east"), Ok((namenode.clone(), "/hbase/data".to_string())));
        assert_eq!(opened("hdfs://namenode:8020/hbase", "west"), Ok((namenode, "/hbase".to_string())));
        assert_eq!(opened("/hbase/data", "west"), Ok((None, "/hbase/data".to_string())));
        for bad in ["", "..", "a/b", "/"] {
            assert!(opened("/hbase/data", bad).is_err(), "{bad:?}");
        }
        assert!(opened("s3a://bucket/hbase", "east").unwrap_err().contains("s3a://bucket/hbase"));
        env.local.put_new(&dir.join("east/x.xml"), b"<nothing/>").unwrap();
        assert!(opened("/hbase/data", "east").unwrap_err().contains("x.xml"));
    }
}
