//! The files of `halcyon import`: on this machine or in HDFS.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use halcyon_env::{Env, FileSystem};
use halcyon_import::ImportCommand;

use crate::settings::local_path;

pub fn import(command: ImportCommand) -> Result<(), String> {
    let ImportCommand::Accumulo(args) = &command;
    let config = args.config.clone();
    halcyon_import::import(command, &move |address| open(address, config.as_deref()))
}

/// The file system of an address, and the path in it.
pub fn open(address: &str, config: Option<&Path>) -> Result<(Arc<dyn FileSystem>, PathBuf), String> {
    let env = Env::read_only();
    if address.starts_with("hdfs:") {
        return open_hdfs(&env, address, config);
    }
    let path = local_path(address).map_err(|why| format!("{address} {why}"))?;
    Ok((env.local, path))
}

#[cfg(not(feature = "hdfs"))]
fn open_hdfs(_: &Env, address: &str, _: Option<&Path>) -> Result<(Arc<dyn FileSystem>, PathBuf), String> {
    Err(format!("{address} is in HDFS, and this program was built without the feature hdfs"))
}

#[cfg(feature = "hdfs")]
fn open_hdfs(
    env: &Env,
    address: &str,
    config: Option<&Path>,
) -> Result<(Arc<dyn FileSystem>, PathBuf), String> {
    use halcyon_hdfs::{HdfsAddress, HdfsFileSystem, HdfsOptions};

    let failed = |error: std::io::Error| format!("cannot use {address}: {error}");
    let site = crate::root::hadoop_site(env, config).map_err(failed)?;
    let address = HdfsAddress::new(address, &site).map_err(failed)?;
    let path = address.path().to_path_buf();
    let fs = HdfsFileSystem::new(address, HdfsOptions::default()).map_err(failed)?;
    Ok((Arc::new(fs), path))
}
